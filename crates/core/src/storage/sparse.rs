//! Storage in a sparse file behind a loop device: a step function over what is seen on the node.
//!
//! Owns the order of steps and every refusal; observes and applies nothing itself (`VolumeOps` in `crates/node`, or the
//! simulator's).
//!
//! A finished file is distinguished from an unfinished one by its name alone: it is built as a draft and renamed when
//! mkfs has ended and everything is on disk. Its content proves nothing: an XFS superblock is readable long
//! before mkfs.xfs ends.

use super::{Backend, Done, Next};
use crate::job::{Format, PrepareVolume, VolumeTask};
use quarry_api::{ids::Uid, node_job::JobResult, quantity::Bytes};
use std::fmt;

/// The backend of `sparseLoopDevice` Volumes.
#[derive(Clone, Copy, Debug)]
pub struct Sparse;

impl Backend for Sparse {
    type Observed = Observed;
    type Step = Step;
    type Refusal = Refusal;

    fn next(task: &VolumeTask, seen: &Observed) -> Plan {
        match task {
            VolumeTask::Prepare(task) => plan_prepare(task, seen),
            VolumeTask::Cleanup(_) => plan_cleanup(seen),
        }
    }

    fn next_restore(uid: &Uid, seen: &Observed) -> Plan {
        match &seen.file {
            Some(file) => plan_attached(uid, file, seen),
            None => Next::Done(Done::Removed),
        }
    }

    fn discard(seen: &Observed) -> Option<Step> {
        (seen.draft && seen.in_ledger).then_some(Step::DiscardDraft)
    }

    fn describe(step: &Step) -> &'static str {
        match step {
            Step::DiscardDraft => "removing an unfinished file",
            Step::MakeDraft { .. } => "making the file",
            Step::FormatDraft(Format::Filesystem { .. }) => "making the file system",
            Step::FormatDraft(Format::Partition) => "making the partition table",
            Step::PublishDraft => "finishing the file",
            Step::Attach { .. } => "attaching the loop device",
            Step::AddPartition { .. } => "adding the partition",
            Step::MakeLink { .. } => "making the persistent link",
            Step::AwaitLink { .. } => "waiting for udev to make the persistent link",
            Step::Detach { .. } => "detaching the loop device",
            Step::RemoveLink => "removing the persistent link",
            Step::AwaitNoLink => "waiting for udev to remove the persistent link",
            Step::RemoveFile => "removing the file",
        }
    }
}

type Plan = Next<Step, Refusal>;

/// The persistent path: by partition label, or by file system UUID.
pub fn link_path(uid: &str, partitioned: bool) -> String {
    if partitioned {
        format!("/dev/disk/by-partlabel/{uid}")
    } else {
        format!("/dev/disk/by-uuid/{uid}")
    }
}

/// What is seen of one volume on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The ledger has an intent for this volume: files named after it are our work.
    pub in_ledger: bool,
    /// The finished file.
    pub file: Option<File>,
    /// A draft: the remains of an interrupted build.
    pub draft: bool,
    /// Loop devices whose backing file is the finished file.
    pub loops: Vec<Loop>,
    /// Whether the persistent link exists, and where it leads.
    pub link: Link,
    /// A udev daemon makes and removes the links of this node.
    pub udev: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub size: Bytes,
    /// The file holds a partition table of ours (its partition carries the volume's GUID).
    pub partitioned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// `loop3`
    pub name: String,
    /// The partition's kernel name (`loop3p1`) and size, once the kernel knows it.
    pub partition: Option<(String, Bytes)>,
    /// Who uses it now: mounts, swap, holders, loops on top.
    pub users: Vec<User>,
}

/// A user of a device; displayed for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    Mount(String),
    Swap,
    Holder(String),
    LoopOnTop(String),
    Exclusive,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Mount(at) => write!(f, "mounted at {at}"),
            User::Swap => f.write_str("used as swap"),
            User::Holder(name) => write!(f, "held by {name}"),
            User::LoopOnTop(name) => write!(f, "backing {name}"),
            User::Exclusive => f.write_str("opened exclusively by another process"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    #[default]
    Absent,
    /// Resolves to this kernel name.
    To(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    DiscardDraft,
    MakeDraft {
        size: Bytes,
    },
    /// mkfs or partition table, into the draft, synced.
    FormatDraft(Format),
    /// Rename the draft to its final name, synced: the proof that it is finished.
    PublishDraft,
    Attach {
        partitioned: bool,
    },
    /// Tell the kernel about the partition: for kernels without a parser of their own.
    AddPartition {
        device: String,
    },
    /// Without a udev daemon: make the link.
    MakeLink {
        device: String,
    },
    /// With one: ask it to look again, and wait for the link.
    AwaitLink {
        device: String,
    },
    /// Exclusively opened, checked again while held, then detached.
    Detach {
        device: String,
    },
    RemoveLink,
    /// With a udev daemon: wait until it has removed the link.
    AwaitNoLink,
    RemoveFile,
}

/// Why nothing is done. None of these resolves by trying the same again at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "a file of this volume's name exists that the ledger does not know: it was not made by this agent and is left alone; move it away from the volume directory"
    )]
    UnknownFile,
    #[error(
        "the file exists with {found} instead of {wanted}: it is left alone; delete the volume and create another"
    )]
    OtherSize { found: Bytes, wanted: Bytes },
    #[error("the file exists with {0}: it is left alone; delete the volume and create another")]
    OtherContent(&'static str),
    #[error("the file is attached to {0}: detach all but one of them")]
    SeveralLoops(String),
    #[error(
        "{link} leads to {found}, not to {wanted}: another device carries this volume's UUID; remove it or change its UUID"
    )]
    OtherDeviceLink { link: String, found: String, wanted: String },
    #[error("{device} is {users}: end that use; the cleanup is retried")]
    InUse { device: String, users: String },
}

/// The next steps of a Prepare job.
fn plan_prepare(task: &PrepareVolume, seen: &Observed) -> Plan {
    if !seen.in_ledger && (seen.file.is_some() || seen.draft) {
        return Next::Refused(Refusal::UnknownFile);
    }
    let partitioned = matches!(task.format, Format::Partition);
    let Some(file) = &seen.file else {
        let mut steps = Vec::new();
        if seen.draft {
            steps.push(Step::DiscardDraft);
        }
        steps.extend([
            Step::MakeDraft { size: task.size },
            Step::FormatDraft(task.format.clone()),
            Step::PublishDraft,
        ]);
        return Next::Steps(steps);
    };
    if file.size != task.size {
        return Next::Refused(Refusal::OtherSize { found: file.size, wanted: task.size });
    }
    if file.partitioned != partitioned {
        let found = if file.partitioned {
            "a partition table instead of a file system"
        } else {
            "a file system instead of a partition table"
        };
        return Next::Refused(Refusal::OtherContent(found));
    }
    plan_attached(&task.uid, file, seen)
}

/// A finished file of ours: bring it up to a device with its link. Also what the agent does at its start.
fn plan_attached(uid: &Uid, file: &File, seen: &Observed) -> Plan {
    let partitioned = file.partitioned;
    let link = link_path(uid.as_str(), partitioned);
    let attached = match seen.loops.as_slice() {
        [] => return Next::Steps(vec![Step::Attach { partitioned }]),
        [one] => one,
        several => {
            return Next::Refused(Refusal::SeveralLoops(
                several.iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join(", "),
            ));
        }
    };
    let (device, capacity) = match (partitioned, &attached.partition) {
        (false, _) => (attached.name.clone(), file.size),
        (true, Some((name, size))) => (name.clone(), *size),
        (true, None) => {
            return Next::Steps(vec![Step::AddPartition { device: attached.name.clone() }]);
        }
    };
    match (&seen.link, seen.udev) {
        (Link::To(found), _) if *found == device => Next::Done(Done::Prepared(JobResult {
            path: link,
            device_name: attached.name.clone(),
            capacity: i64::try_from(capacity.0).unwrap_or(i64::MAX),
        })),
        // A loop that was attached before under another number leaves a stale link behind only without udev: replace it.
        (Link::To(found), false) if !is_loop(found) => {
            Next::Refused(Refusal::OtherDeviceLink { link, found: found.clone(), wanted: device })
        }
        (Link::To(_) | Link::Absent, false) => Next::Steps(vec![Step::MakeLink { device }]),
        (Link::To(_) | Link::Absent, true) => Next::Steps(vec![Step::AwaitLink { device }]),
    }
}

fn is_loop(kernel_name: &str) -> bool {
    kernel_name
        .strip_prefix("loop")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The next steps of a Cleanup job.
fn plan_cleanup(seen: &Observed) -> Plan {
    let anything = seen.file.is_some() || seen.draft;
    if anything && !seen.in_ledger {
        return Next::Refused(Refusal::UnknownFile);
    }
    if let Some(busy) = seen.loops.iter().find(|l| !l.users.is_empty()) {
        let users = busy.users.iter().map(User::to_string).collect::<Vec<_>>().join(", ");
        return Next::Refused(Refusal::InUse { device: busy.name.clone(), users });
    }
    let mut steps: Vec<Step> =
        seen.loops.iter().map(|l| Step::Detach { device: l.name.clone() }).collect();
    if !steps.is_empty() {
        // Observed again before the file goes: it must not be removed under a loop that would not detach.
        return Next::Steps(steps);
    }
    if seen.link != Link::Absent {
        steps.push(if seen.udev { Step::AwaitNoLink } else { Step::RemoveLink });
    }
    if seen.draft {
        steps.push(Step::DiscardDraft);
    }
    if seen.file.is_some() {
        steps.push(Step::RemoveFile);
    }
    if steps.is_empty() { Next::Done(Done::Removed) } else { Next::Steps(steps) }
}

#[cfg(test)]
mod tests;
