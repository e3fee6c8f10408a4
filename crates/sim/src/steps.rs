//! What each step of the agent does to the simulated disk, whole or half: as `crates/node/src/act` does it for real.

use crate::disk::{Disk, Draft, File, Loop, SeededBug, both_links, link_of};
use quarry_core::{
    job::Format,
    storage::sparse::{Step, User},
};
use quarry_node::NodeError;

impl Disk {
    pub fn apply(&mut self, uid: &str, step: &Step) -> Result<(), NodeError> {
        match (self.seeded_bug, step) {
            (Some(SeededBug::AttachTwice), Step::Attach { .. }) => {
                self.loops
                    .insert(self.free_loop(), Loop { over: uid.to_owned(), partition: false });
                self.loops
                    .insert(self.free_loop(), Loop { over: uid.to_owned(), partition: false });
            }
            (Some(SeededBug::LoseData), Step::Attach { .. }) => {
                self.files.values_mut().for_each(|file| file.data = None)
            }
            _ => {}
        }
        match step {
            Step::DiscardDraft => {
                self.drafts.remove(uid);
            }
            Step::MakeDraft { size } => {
                if self.drafts.contains_key(uid) {
                    return Err(refusal("making the draft: it exists"));
                }
                self.drafts
                    .insert(uid.to_owned(), Draft { size: *size, format: None, synced: false });
            }
            Step::FormatDraft(format) => return self.format(uid, format),
            Step::PublishDraft => return self.publish(uid),
            Step::Attach { partitioned } => {
                if !self.files.contains_key(uid) {
                    return Err(refusal("attaching: there is no such file"));
                }
                if self.loops_over(uid).is_empty() {
                    let partition = *partitioned && self.parser;
                    self.loops.insert(self.free_loop(), Loop { over: uid.to_owned(), partition });
                }
            }
            Step::AddPartition { device } => self.loop_named(device, uid)?.partition = true,
            Step::MakeLink { device } | Step::AwaitLink { device } => {
                // loop3p1
                let partitioned =
                    device.strip_prefix("loop").is_some_and(|rest| rest.contains('p'));
                self.links.insert(link_of(uid, partitioned), device.clone());
            }
            Step::Detach { device } => return self.detach(uid, device),
            Step::RemoveLink | Step::AwaitNoLink => {
                for link in both_links(uid) {
                    self.links.remove(&link);
                }
            }
            Step::RemoveFile => {
                if !self.loops_over(uid).is_empty() {
                    return Err(NodeError::InUse {
                        device: uid.to_owned(),
                        users: "attached".into(),
                    });
                }
                self.files.remove(uid);
            }
        }
        Ok(())
    }

    /// The state in which a crash in the middle of the step leaves the disk; `false` when the step is atomic.
    pub fn apply_half(&mut self, uid: &str, step: &Step, power_cut: bool) -> bool {
        match step {
            Step::MakeDraft { .. } => {
                let empty = Draft { size: quarry_api::Bytes(0), format: None, synced: false };
                self.drafts.insert(uid.to_owned(), empty);
                true
            }
            Step::FormatDraft(_) => {
                // Bytes are written, mkfs has not ended: the draft looks formatted and is not.
                if let Some(draft) = self.drafts.get_mut(uid) {
                    draft.synced = true;
                }
                true
            }
            // Renamed, the directory not synced: a power cut may bring the old name back, a crash does not.
            Step::PublishDraft if power_cut => true,
            Step::Detach { device } => {
                if let Ok(found) = self.loop_named(device, uid) {
                    found.partition = false;
                }
                true
            }
            Step::PublishDraft
            | Step::DiscardDraft
            | Step::Attach { .. }
            | Step::AddPartition { .. }
            | Step::MakeLink { .. }
            | Step::AwaitLink { .. }
            | Step::RemoveLink
            | Step::AwaitNoLink
            | Step::RemoveFile => false,
        }
    }

    fn format(&mut self, uid: &str, format: &Format) -> Result<(), NodeError> {
        if self.broken_tool {
            self.drafts.remove(uid);
            return Err(NodeError::Tool {
                tool: "mkfs",
                how: "exit code 1".into(),
                said: "simulated: the tool is broken".into(),
            });
        }
        let Some(draft) = self.drafts.get_mut(uid) else {
            return Err(refusal("formatting: there is no draft"));
        };
        draft.format = Some(format.clone());
        draft.synced = true;
        Ok(())
    }

    fn publish(&mut self, uid: &str) -> Result<(), NodeError> {
        if self.files.contains_key(uid) {
            return Err(refusal("renaming the draft: the file exists"));
        }
        let Some(draft) = self.drafts.remove(uid) else {
            return Err(refusal("renaming the draft: there is none"));
        };
        self.formats += 1;
        let partitioned = draft.format == Some(Format::Partition);
        self.files.insert(
            uid.to_owned(),
            File {
                size: draft.size,
                partitioned,
                made: self.formats,
                unmanaged: false,
                data: None,
            },
        );
        Ok(())
    }

    fn detach(&mut self, uid: &str, device: &str) -> Result<(), NodeError> {
        self.loop_named(device, uid)?;
        let Some(number) = number_of(device) else { return Err(refusal("detaching: not a loop")) };
        let users = self.users_of(number);
        if !users.is_empty() {
            let users = users.iter().map(User::to_string).collect::<Vec<_>>().join(", ");
            return Err(NodeError::InUse { device: device.to_owned(), users });
        }
        self.loops.remove(&number);
        Ok(())
    }

    fn loop_named(&mut self, device: &str, uid: &str) -> Result<&mut Loop, NodeError> {
        let found = number_of(device).and_then(|number| self.loops.get_mut(&number));
        found
            .filter(|found| found.over == uid)
            .ok_or_else(|| refusal("the loop device is not over this volume's file"))
    }
}

fn number_of(device: &str) -> Option<u32> {
    device.strip_prefix("loop")?.parse().ok()
}

fn refusal(attempt: &str) -> NodeError {
    NodeError::Other { attempt: format!("simulated: {attempt}"), retryable: false, source: None }
}
