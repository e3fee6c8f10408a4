//! What an agent does next for a volume in a sparse file: a step function over what it sees on the node.
//!
//! Owns the order of steps and every refusal. The hands (`crates/node`, or the simulator's) look and carry
//! out one step at a time; after each look the plan is made anew, so a crash anywhere needs no memory.
//!
//! A finished file is told from an unfinished one by its name alone: it is built as a draft and renamed when
//! mkfs has ended and everything is on disk. Looking at the content would not do: an XFS superblock is
//! readable long before mkfs.xfs ends.

use quarry_api::{
    node_job::{FsType, JobResult, Parameters},
    quantity::Bytes,
};
use std::fmt;

/// What to put into the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    Filesystem { fs: FsType, options: Vec<String> },
    Partition,
}

/// The volume that a Prepare job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub uid: String,
    pub size: Bytes,
    pub format: Format,
}

impl Target {
    /// `None` when the parameters name no format, which the schema refuses already.
    pub fn from_parameters(uid: &str, parameters: &Parameters) -> Option<Self> {
        let format = match (&parameters.filesystem, &parameters.partition) {
            (Some(fs), None) => {
                Format::Filesystem { fs: fs.kind, options: fs.mkfs_options.clone() }
            }
            (None, Some(_)) => Format::Partition,
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(Target {
            uid: uid.to_owned(),
            size: Bytes(u64::try_from(parameters.size).ok()?),
            format,
        })
    }

    /// The persistent link of this volume, on the node.
    pub fn link(&self) -> String {
        link_path(&self.uid, &self.format)
    }
}

/// The persistent path: by file system UUID, or by partition label.
pub fn link_path(uid: &str, format: &Format) -> String {
    match format {
        Format::Filesystem { .. } => format!("/dev/disk/by-uuid/{uid}"),
        Format::Partition => format!("/dev/disk/by-partlabel/{uid}"),
    }
}

/// What the hands see on the node for one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The ledger holds an intent of ours for this volume: files named after it are our work.
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

/// Somebody who uses a device, in words for people.
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

/// One thing for the hands to do. Each is atomic or harmless to repeat.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Carry these out in order, then look again.
    Steps(Vec<Step>),
    /// Nothing is left to do. Prepare has a result, cleanup has none.
    Done(Option<JobResult>),
    Refused(Refusal),
}

/// Why nothing is done. None of these resolves by trying the same again at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "a file of this volume's name exists that the ledger does not know: it was not made by this agent and is left alone; move it away from the volume folder"
    )]
    ForeignFile,
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
    ForeignLink { link: String, found: String, wanted: String },
    #[error("{device} is {users}: end that use, the cleanup is tried again by itself")]
    InUse { device: String, users: String },
}

/// The next steps of a Prepare job.
pub fn plan_prepare(target: &Target, seen: &Observed) -> Plan {
    if !seen.in_ledger && (seen.file.is_some() || seen.draft) {
        return Plan::Refused(Refusal::ForeignFile);
    }
    let partitioned = matches!(target.format, Format::Partition);
    let Some(file) = &seen.file else {
        let mut steps = Vec::new();
        if seen.draft {
            steps.push(Step::DiscardDraft);
        }
        steps.extend([
            Step::MakeDraft { size: target.size },
            Step::FormatDraft(target.format.clone()),
            Step::PublishDraft,
        ]);
        return Plan::Steps(steps);
    };
    if file.size != target.size {
        return Plan::Refused(Refusal::OtherSize { found: file.size, wanted: target.size });
    }
    if file.partitioned != partitioned {
        let found = if file.partitioned {
            "a partition table instead of a file system"
        } else {
            "a file system instead of a partition table"
        };
        return Plan::Refused(Refusal::OtherContent(found));
    }
    plan_attached(&target.uid, partitioned, file, seen)
}

/// A finished file of ours: bring it up to a device with its link. Also what the agent does at its start.
pub fn plan_attached(uid: &str, partitioned: bool, file: &File, seen: &Observed) -> Plan {
    let format = if partitioned {
        Format::Partition
    } else {
        Format::Filesystem { fs: FsType::Ext4, options: Vec::new() }
    };
    let link = link_path(uid, &format);
    let attached = match seen.loops.as_slice() {
        [] => return Plan::Steps(vec![Step::Attach { partitioned }]),
        [one] => one,
        several => {
            return Plan::Refused(Refusal::SeveralLoops(
                several.iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join(", "),
            ));
        }
    };
    let (device, capacity) = match (partitioned, &attached.partition) {
        (false, _) => (attached.name.clone(), file.size),
        (true, Some((name, size))) => (name.clone(), *size),
        (true, None) => {
            return Plan::Steps(vec![Step::AddPartition { device: attached.name.clone() }]);
        }
    };
    match (&seen.link, seen.udev) {
        (Link::To(found), _) if *found == device => Plan::Done(Some(JobResult {
            path: link,
            device_name: attached.name.clone(),
            capacity: i64::try_from(capacity.0).unwrap_or(i64::MAX),
        })),
        // A loop that was attached before under another number leaves a stale link behind only without udev: replace it.
        (Link::To(found), false) if !is_loop(found) => {
            Plan::Refused(Refusal::ForeignLink { link, found: found.clone(), wanted: device })
        }
        (Link::To(_) | Link::Absent, false) => Plan::Steps(vec![Step::MakeLink { device }]),
        (Link::To(_) | Link::Absent, true) => Plan::Steps(vec![Step::AwaitLink { device }]),
    }
}

fn is_loop(kernel_name: &str) -> bool {
    kernel_name
        .strip_prefix("loop")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The next steps of a Cleanup job.
pub fn plan_cleanup(seen: &Observed) -> Plan {
    let anything = seen.file.is_some() || seen.draft;
    if anything && !seen.in_ledger {
        return Plan::Refused(Refusal::ForeignFile);
    }
    if let Some(busy) = seen.loops.iter().find(|l| !l.users.is_empty()) {
        let users = busy.users.iter().map(User::to_string).collect::<Vec<_>>().join(", ");
        return Plan::Refused(Refusal::InUse { device: busy.name.clone(), users });
    }
    let mut steps: Vec<Step> =
        seen.loops.iter().map(|l| Step::Detach { device: l.name.clone() }).collect();
    if !steps.is_empty() {
        // Look again before the file goes: it must not be removed under a loop that would not detach.
        return Plan::Steps(steps);
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
    if steps.is_empty() { Plan::Done(None) } else { Plan::Steps(steps) }
}

#[cfg(test)]
mod tests;
