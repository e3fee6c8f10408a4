//! The decision before anything is written: may these devices become, or are they already, this OSD?
//!
//! Default is refusal. A device is written only if all of it that is read is blank, or if its label names this very
//! OSD and mkfs has not ended; one that is ready is never written. Labels of another cluster or OSD, other data, and
//! devices that do not belong together are refused with a remedy. Next to read: `label.rs`, `result.rs`.

use crate::{Label, Uuid, result::Reason};
use std::fmt;

/// Below this, mkfs fails half-way, after the cluster has registered the OSD (256 MiB fails, 512 MiB works).
pub const MIN_DATA_BYTES: u64 = 512 << 20;

/// Where Ceph 19 and later keep copies of the label of a data device. A device whose beginning was erased still has
/// them, and is not blank.
pub const LABEL_COPIES: [u64; 4] = [1 << 30, 10 << 30, 100 << 30, 1000 << 30];
/// The first bytes of every label.
pub const LABEL_MAGIC: &[u8] = b"bluestore block device\n";

/// What a device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Data,
    /// `block.db`.
    Metadata,
    /// `block.wal`.
    Wal,
}

impl Role {
    /// The link in the OSD's directory.
    pub fn link(self) -> &'static str {
        match self {
            Role::Data => "block",
            Role::Metadata => "block.db",
            Role::Wal => "block.wal",
        }
    }

    /// What its label says.
    fn description(self) -> &'static str {
        match self {
            Role::Data => "main",
            Role::Metadata => "bluefs db",
            Role::Wal => "bluefs wal",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Data => "data",
            Role::Metadata => "metadata",
            Role::Wal => "wal",
        })
    }
}

/// One device, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub role: Role,
    pub path: String,
    pub size: u64,
    pub access: Access,
    pub content: Content,
}

/// Whether mkfs could write to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Free,
    /// Another process has it open exclusively: a running OSD, or a mount.
    Busy,
    /// The kernel refuses writes to it.
    ReadOnly,
    /// The user of this process may not write to it.
    NotPermitted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No signature, no partition table, first and last MiB zero, no copy of a label.
    Blank,
    Label(Label),
    /// In words, such as `ext4 file system`.
    Other(String),
    /// With the cause.
    Unreadable(String),
}

/// Which OSD the devices are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The UID of the PVC of the data device.
    pub osd: Uuid,
    pub fsid: Uuid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The OSD is ready on these devices.
    Adopt {
        id: u32,
    },
    /// All devices are blank.
    Prepare,
    /// mkfs of this OSD began and did not end: it may be run again.
    FinishHalfDone,
    Refuse(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// Device, what is on it, and the remedy.
    pub message: String,
}

fn refuse(reason: Reason, message: impl Into<String>) -> Refusal {
    Refusal { reason, message: message.into() }
}

/// What a device is to this OSD, if it may be used at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing<'a> {
    Blank,
    Ours(&'a Label),
}

const WIPE: &str =
    "wipe the device if its data is not needed, or give the PVC another PersistentVolume";

/// `others`: metadata and wal device, in any order.
pub fn judge(target: &Target, data: &Device, others: &[Device]) -> Verdict {
    decide(target, data, others).unwrap_or_else(Verdict::Refuse)
}

fn decide(target: &Target, data: &Device, others: &[Device]) -> Result<Verdict, Refusal> {
    let main = standing(target, data)?;
    let mut rest = Vec::new();
    for device in others {
        rest.push((device, standing(target, device)?));
    }
    match main {
        Standing::Ours(label) if label.ready => adopt(data, label, &rest),
        Standing::Ours(_) => {
            all_free(data, others)?;
            Ok(Verdict::FinishHalfDone)
        }
        Standing::Blank => {
            if let Some((device, _)) = rest.iter().find(|(_, one)| *one != Standing::Blank) {
                return Err(refuse(
                    Reason::DeviceMismatch,
                    format!(
                        "{} device {} belongs to OSD {}, but data device {} is blank: its data is lost or on another device; attach the old data device, or delete the PVCs of this OSD",
                        device.role, device.path, target.osd, data.path
                    ),
                ));
            }
            if data.size < MIN_DATA_BYTES {
                return Err(refuse(
                    Reason::TooSmall,
                    format!(
                        "data device {} has {} MiB; use one of at least {} MiB",
                        data.path,
                        data.size >> 20,
                        MIN_DATA_BYTES >> 20
                    ),
                ));
            }
            all_free(data, others)?;
            Ok(Verdict::Prepare)
        }
    }
}

fn adopt(
    data: &Device,
    label: &Label,
    rest: &[(&Device, Standing<'_>)],
) -> Result<Verdict, Refusal> {
    if let Some((device, _)) = rest.iter().find(|(_, one)| *one == Standing::Blank) {
        return Err(refuse(
            Reason::DeviceMismatch,
            format!(
                "{} device {} is blank, but the OSD on {} is ready: it was prepared without this device or with another one; attach the device that it was prepared with",
                device.role, device.path, data.path
            ),
        ));
    }
    let Some(id) = label.whoami else {
        return Err(refuse(
            Reason::DeviceMismatch,
            format!("data device {} has a label that is ready but has no ID; {WIPE}", data.path),
        ));
    };
    if label.osd_key.is_none() {
        return Err(refuse(
            Reason::DeviceMismatch,
            format!(
                "the label of data device {} has no osd_key, without which osd.{id} cannot be activated; add it with `ceph-bluestore-tool set-label-key`",
                data.path
            ),
        ));
    }
    if label.ceph_fsid.is_none() {
        return Err(refuse(
            Reason::DeviceMismatch,
            format!("data device {} is ready but names no cluster; {WIPE}", data.path),
        ));
    }
    Ok(Verdict::Adopt { id })
}

fn standing<'a>(target: &Target, device: &'a Device) -> Result<Standing<'a>, Refusal> {
    let Device { role, path, size: _, access: _, content } = device;
    match content {
        Content::Blank => Ok(Standing::Blank),
        Content::Unreadable(cause) => Err(refuse(
            Reason::DeviceUnreadable,
            format!(
                "{role} device {path} cannot be read: {cause}; check the device and its PersistentVolume"
            ),
        )),
        Content::Other(found) => {
            Err(refuse(Reason::NotBlank, format!("{role} device {path} contains {found}; {WIPE}")))
        }
        Content::Label(label) => {
            let id = label.whoami.map_or_else(|| "an OSD".to_owned(), |id| format!("osd.{id}"));
            match &label.ceph_fsid {
                Some(fsid) if *fsid != target.fsid => Err(refuse(
                    Reason::OtherCluster,
                    format!(
                        "{role} device {path} contains {id} ({}) of another cluster, fsid {fsid}; {WIPE}",
                        label.osd_uuid
                    ),
                )),
                _ if label.osd_uuid != target.osd => Err(refuse(
                    Reason::OtherOsd,
                    format!(
                        "{role} device {path} contains {id} with UUID {}, not the OSD of this PVC ({}); {WIPE}",
                        label.osd_uuid, target.osd
                    ),
                )),
                _ if label.description != role.description() => Err(refuse(
                    Reason::DeviceMismatch,
                    format!(
                        "{role} device {path} is the {:?} device of this OSD; attach it in that place",
                        label.description
                    ),
                )),
                _ => Ok(Standing::Ours(label)),
            }
        }
    }
}

/// mkfs writes to all of them.
fn all_free(data: &Device, others: &[Device]) -> Result<(), Refusal> {
    for Device { role, path, access, .. } in std::iter::once(data).chain(others) {
        let (reason, problem) = match access {
            Access::Free => continue,
            Access::Busy => (
                Reason::DeviceBusy,
                "is mounted or opened exclusively by another process; stop that process",
            ),
            Access::ReadOnly => {
                (Reason::NotWritable, "is read-only; make it writable, or use another device")
            }
            Access::NotPermitted => (
                Reason::NotWritable,
                "is not writable for the user of this pod; add the group of the device to supplementalGroups, or run as user 0",
            ),
        };
        return Err(refuse(reason, format!("{role} device {path} {problem}")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
