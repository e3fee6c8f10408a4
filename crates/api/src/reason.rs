//! Every reason why a device is not Available: one table, which feeds verdicts, status, Events, metrics, CLI and docs.
//!
//! A new reason is one row here, one line in `core/src/device/verdict.rs` (or `core/src/device/group.rs`), and one decision in
//! `core/src/device_claim/confirm.rs`. What a reason means is asked of its row (`class`, `transient`, `means`), never
//! of a list of reasons elsewhere.

use crate::node_inventory::DeviceState;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Cow, cmp::Ordering, fmt};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub reason: Reason,
    pub class: Class,
    /// The verdict, if this is the only reason.
    pub state: DeviceState,
    pub source: Source,
    /// It may pass without intervention, and is waited for.
    pub transient: bool,
    pub means: &'static [Meaning],
    /// Continues "sdb …".
    pub text: &'static str,
    /// What holds when the reason does not apply; continues "sdb …".
    pub absent: &'static str,
    /// What to do about it, imperative.
    pub remedy: &'static str,
}

/// Where a reason comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Read on the node.
    Node,
    /// Known to the cluster.
    Cluster,
}

/// What a reason is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Which device it is.
    Identity,
    /// Which object owns it.
    Owner,
    /// What uses it on the node.
    Use,
    /// What is stored on it.
    Content,
    /// What kind of device it is.
    Nature,
    /// Whether it could be read.
    Probe,
}

impl Class {
    pub const ALL: [Class; 6] =
        [Class::Identity, Class::Owner, Class::Use, Class::Content, Class::Nature, Class::Probe];
}

/// A consequence that decisions ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It is not certain which device this is: no demand may take it.
    Quarantine,
    /// An object of the cluster owns the device.
    Owned,
    /// Something outside the device claim works with the device.
    InUse,
    /// The device was found to contain data.
    Data,
    /// The content of the device could not be read.
    Unread,
    /// No data can be stored on the device, or nothing is certain about it: a PersistentVolume on it is not offered.
    Unusable,
}

macro_rules! duration {
    (Transient) => {
        true
    };
    (Lasting) => {
        false
    };
}

macro_rules! reasons {
    ($($name:ident $class:ident $state:ident $source:ident $duration:ident [$($meaning:ident)*]
        $text:literal $absent:literal $remedy:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($name),* }

        /// In the order in which reasons are reported.
        pub const TABLE: &[Row] = &[$(Row {
            reason: Reason::$name,
            class: Class::$class,
            state: DeviceState::$state,
            source: Source::$source,
            transient: duration!($duration),
            means: &[$(Meaning::$meaning),*],
            text: $text,
            absent: $absent,
            remedy: $remedy,
        }),*];

        impl Reason {
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name)),* }
            }
        }
    };
}

reasons! {
    IdentityElsewhere Identity NotAvailable Cluster Lasting [Quarantine]
        "has the same identity as a device on another node"
        "has an identity that no other node shows"
        "unmap a shared disk from all nodes but one; give a copied disk its own identity; move a relocated disk back, or release the device claim on the other node first";
    DuplicateIdentity Identity NotAvailable Node Lasting [Quarantine]
        "has the same identity as another device of this node"
        "has an identity that no other device of this node shows"
        "set up dm-multipath if the devices are paths to one disk; give a copy a new identity (partition UUID, volume UUID or serial)";
    IdentityChanged Identity NotAvailable Node Lasting [Quarantine]
        "shows a different identity than before, without having been unplugged"
        "shows the same identity as before"
        "check which disk this is; to accept it, annotate the NodeInventory with quarry.dev/accept-identity=<identity>";
    AmbiguousIdentity Identity NotAvailable Node Lasting [Unusable]
        "reports contradictory identities"
        "reports no contradictory identities"
        "compare the evidence with the label of the disk; update its firmware, or refresh the udev database with `udevadm trigger`";
    NoIdentity Identity NotAvailable Node Lasting []
        "has nothing that identifies it after a reboot: no WWN, serial or UUID"
        "can be identified after a reboot"
        "assign a serial (for a virtual disk, in the hypervisor), or create a GPT if the disk is empty: partitions have UUIDs";
    Claimed Owner NotAvailable Cluster Transient [Owned]
        "already has an owner"
        "has no device claim"
        "delete the owner, or exclude the device from the owner's selection";
    BacksVolume Owner NotAvailable Node Lasting [Owned InUse]
        "is the storage of a Volume"
        "is not the storage of a Volume"
        "delete the Volume first; `quarry volumes` lists it";
    BacksPersistentVolume Owner NotAvailable Cluster Lasting [Owned InUse]
        "backs a PersistentVolume"
        "backs no PersistentVolume"
        "delete the PersistentVolume and the object that created it first";
    RetainedData Owner NotAvailable Cluster Lasting []
        "retains the data of a PersistentVolume that was deleted without a wipe"
        "retains no data of a deleted PersistentVolume"
        "to discard the data, annotate the NodeInventory with quarry.dev/forget-retained-data=<UID of the PersistentVolume>: the device is used again once it is blank; to use the data, annotate the LocalVolume that names the device with quarry.dev/adopt-retained-data=<the same UID>";
    UnlistedPersistentVolumes Owner Unknown Cluster Lasting []
        "may back a PersistentVolume: the node has more PersistentVolumes than its NodeInventory can list"
        "is on a node whose PersistentVolumes are all listed"
        "delete unused PersistentVolumes of this node; those without node affinity count on every node";
    Mounted Use NotAvailable Node Lasting [InUse]
        "is mounted"
        "is not mounted"
        "leave it alone if the node runs from it (/, /boot, /usr, /var); otherwise unmount it and remove it from /etc/fstab";
    Swap Use NotAvailable Node Lasting [InUse]
        "is used as swap"
        "is not used as swap"
        "run `swapoff` on it and remove it from /etc/fstab";
    HasHolders Use NotAvailable Node Lasting [InUse]
        "is part of another device"
        "is not part of another device"
        "remove it from that device first (lvm, mdadm, cryptsetup, multipath)";
    HasChildren Use NotAvailable Node Lasting [Data]
        "has partitions"
        "has no partitions"
        "use the partitions instead, or remove them if their data is not needed";
    LoopOnTop Use NotAvailable Node Lasting [InUse]
        "has a loop device on top of it"
        "has no loop device on top of it"
        "detach the loop device with `losetup -d`";
    HeldExclusively Use NotAvailable Node Transient []
        "is opened exclusively by another process"
        "is not opened exclusively by another process"
        "find the process or device that has it open: `fuser -v`, `dmsetup table`, `cat /proc/mdstat`";
    BootLabel Use NotAvailable Node Lasting []
        "is a boot partition"
        "is not a boot partition"
        "leave it alone: the node boots from it";
    Signature Content NotAvailable Node Lasting [Data]
        "contains data"
        "contains no file system or other known data"
        "if the data is not needed, erase its signatures with `wipefs -a`, then zero its first and last MiB: docs/operations/devices.md, \"erase a disk by hand\"";
    PartitionTable Content NotAvailable Node Lasting [Data]
        "has a partition table"
        "has no partition table"
        "use its partitions; or, if they are not needed, run `wipefs -a` on them and on the disk, then zero its first and last MiB: docs/operations/devices.md, \"erase a disk by hand\"";
    UnknownData Content NotAvailable Node Lasting [Data]
        "contains unrecognized data in its first or last MiB"
        "contains no unrecognized data"
        "find out what the data is; if it is not needed, zero the first and the last MiB";
    ReadOnly Nature NotAvailable Node Lasting [Unusable]
        "is read-only"
        "is writable"
        "make it writable: the switch on the disk, `blockdev --setrw`, or the setting of the hypervisor";
    Removable Nature NotAvailable Node Lasting []
        "is removable"
        "is not removable"
        "attach it as a fixed disk: removable disks are not used";
    Suspended Nature NotAvailable Node Lasting [Unread Unusable]
        "is suspended"
        "is not suspended"
        "resume it with `dmsetup resume`";
    NotLocal Nature NotAvailable Node Lasting []
        "is not a local device"
        "is a local device"
        "use a CSI driver for network storage; Quarry uses only devices that are built into or attached to the node";
    ObservedOnly Nature NotAvailable Node Lasting []
        "is observed only: it is not backed by a file in the data directory"
        "may be used by this process"
        "run `quarry up --allow-real-disks` to use the disks of this machine";
    NoMedium Nature NotAvailable Node Lasting [Unread Unusable]
        "has no medium"
        "has a medium"
        "insert a medium";
    ZeroSize Nature NotAvailable Node Lasting [Unread Unusable]
        "has no size"
        "has a size"
        "check the kernel log (dmesg): the device is not ready or is broken";
    TooNew Probe Unknown Node Transient []
        "has been unchanged for less than the settling time"
        "has been unchanged for the settling time"
        "wait a minute: another process may be about to format it";
    TimedOut Probe Unknown Node Transient [Unread Unusable]
        "does not answer"
        "answers in time"
        "check the kernel log (dmesg) for I/O errors, and the cable, controller or backing server";
    Unreadable Probe Unknown Node Transient [Unread Unusable]
        "cannot be read"
        "can be read"
        "check the kernel log (dmesg); replace the disk if it is broken";
    NotPermitted Probe Unknown Node Lasting [Unread]
        "may not be opened by this process"
        "may be opened by this process"
        "run as root (in a container: privileged) to read the content of the device";
}

impl Reason {
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    pub fn parse(text: &str) -> Option<Reason> {
        TABLE.iter().map(|row| row.reason).find(|reason| reason.as_str() == text)
    }

    pub fn class(self) -> Class {
        self.row().class
    }

    pub fn is_transient(self) -> bool {
        self.row().transient
    }

    pub fn means(self, meaning: Meaning) -> bool {
        self.row().means.contains(&meaning)
    }

    /// The text with its detail: `is mounted: /mnt/a`.
    pub fn message(self, detail: &str) -> String {
        let text = self.row().text;
        if detail.is_empty() { text.to_owned() } else { format!("{text}: {detail}") }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reason as it is stored: one of the table, or one of a later version. On the wire it is a plain string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReasonCode {
    Known(Reason),
    Other(String),
}

impl ReasonCode {
    pub fn as_str(&self) -> &str {
        match self {
            ReasonCode::Known(reason) => reason.as_str(),
            ReasonCode::Other(text) => text,
        }
    }

    /// `None`: this version does not know the reason.
    pub fn known(&self) -> Option<Reason> {
        match self {
            ReasonCode::Known(reason) => Some(*reason),
            ReasonCode::Other(_) => None,
        }
    }

    /// An unknown reason has no known class.
    pub fn class(&self) -> Option<Class> {
        self.known().map(Reason::class)
    }

    /// An unknown reason is taken to last.
    pub fn is_transient(&self) -> bool {
        self.known().is_some_and(Reason::is_transient)
    }

    /// An unknown reason means nothing but that the device is not Available.
    pub fn means(&self, meaning: Meaning) -> bool {
        self.known().is_some_and(|reason| reason.means(meaning))
    }

    pub fn message(&self, detail: &str) -> String {
        match self {
            ReasonCode::Known(reason) => reason.message(detail),
            ReasonCode::Other(text) if detail.is_empty() => text.clone(),
            ReasonCode::Other(text) => format!("{text}: {detail}"),
        }
    }

    pub fn remedy(&self) -> &'static str {
        self.known().map_or("use a newer version of quarry to explain this reason", |reason| {
            reason.row().remedy
        })
    }
}

impl From<Reason> for ReasonCode {
    fn from(reason: Reason) -> Self {
        ReasonCode::Known(reason)
    }
}

impl From<&str> for ReasonCode {
    fn from(text: &str) -> Self {
        Reason::parse(text).map_or_else(|| ReasonCode::Other(text.to_owned()), ReasonCode::Known)
    }
}

impl PartialEq<Reason> for ReasonCode {
    fn eq(&self, other: &Reason) -> bool {
        self.known() == Some(*other)
    }
}

/// By name: the order does not depend on which reasons a version knows.
impl Ord for ReasonCode {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for ReasonCode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ReasonCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ReasonCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(ReasonCode::from(String::deserialize(deserializer)?.as_str()))
    }
}

impl JsonSchema for ReasonCode {
    fn schema_name() -> Cow<'static, str> {
        "ReasonCode".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_and_in_enum_order() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.reason as usize, at);
            assert_eq!(Reason::parse(row.reason.as_str()), Some(row.reason));
            assert_ne!(row.state, DeviceState::Available, "{}", row.reason);
            for text in [row.text, row.absent, row.remedy] {
                assert!(text.len() > 5 && !text.ends_with('.'), "{}: {text}", row.reason);
            }
        }
        for class in Class::ALL {
            assert!(TABLE.iter().any(|row| row.class == class), "{class:?}");
        }
    }

    #[test]
    fn meanings_are_consistent_with_classes() {
        for row in TABLE {
            let name = row.reason;
            if row.means.contains(&Meaning::Quarantine) {
                assert_eq!(row.class, Class::Identity, "{name}");
            }
            if row.means.contains(&Meaning::Owned) {
                assert_eq!(row.class, Class::Owner, "{name}");
            }
            if row.class == Class::Content {
                assert!(row.means.contains(&Meaning::Data), "{name}");
            }
            // What passes without intervention must not end a device claim or withdraw a PersistentVolume. Unusable
            // withdraws one, but only after the settling time.
            let severe = [Meaning::Quarantine, Meaning::InUse, Meaning::Data];
            assert!(!row.transient || !row.means.iter().any(|one| severe.contains(one)), "{name}");
        }
    }

    #[test]
    fn remedies_are_complete() {
        for row in TABLE {
            // What is left of a superblock without its signature is unknown data.
            assert!(
                !row.remedy.contains("wipefs")
                    || row.remedy.contains("zero its first and last MiB"),
                "{}",
                row.reason
            );
            assert!(!row.text.contains(" you"), "{}: also said of an agent", row.reason);
        }
    }

    #[test]
    fn the_detail_follows_the_text() {
        assert_eq!(Reason::Mounted.message("/mnt/a"), "is mounted: /mnt/a");
        assert_eq!(Reason::Swap.message(""), "is used as swap");
    }

    #[test]
    fn a_reason_of_a_later_version_survives_the_wire() {
        let read = |text: &str| serde_json::from_str::<ReasonCode>(text).unwrap();
        assert_eq!(read("\"Mounted\""), Reason::Mounted);
        let other = read("\"OnFire\"");
        assert_eq!(other, ReasonCode::Other("OnFire".into()));
        assert_eq!(serde_json::to_string(&other).unwrap(), "\"OnFire\"");
        assert!(!other.is_transient() && other.class().is_none());
        assert_eq!(other.message("hot"), "OnFire: hot");
    }
}
