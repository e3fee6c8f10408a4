//! Every reason why a device is not Available: one table, which feeds status, Events, metrics, CLI and docs.

use quarry_api::node_inventory::DeviceState;
use std::fmt;

/// What a reason is made of.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub reason: Reason,
    /// What the verdict is when nothing else speaks.
    pub state: DeviceState,
    /// Who says so.
    pub source: Source,
    /// For people: continues "sdb …".
    pub sentence: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Seen on the node.
    Node,
    /// Known to the cluster.
    Cluster,
}

macro_rules! reasons {
    ($($name:ident $state:ident $source:ident $sentence:literal $remedy:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($name),* }

        /// In the order in which reasons are told.
        pub const TABLE: &[Row] = &[$(Row {
            reason: Reason::$name, state: DeviceState::$state, source: Source::$source, sentence: $sentence, remedy: $remedy,
        }),*];

        impl Reason {
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name)),* }
            }
        }
    };
}

reasons! {
    IdentityElsewhere NotAvailable Cluster "has the same identity as a device on another node"
        "a disk that two nodes share cannot be local storage: unmap it from all nodes but one, or, if one of them was copied, give it an identity of its own; one that was moved here goes back, or the claim on the other node is given up first";
    DuplicateIdentity NotAvailable Node "has the same identity as another device of this node"
        "if they are paths to one disk, set up dm-multipath; if they are copies, give one of them a new identity (new partition or volume UUID, other serial)";
    IdentityChanged NotAvailable Node "shows another identity than before, without having been unplugged"
        "check which disk this is; if it is right, annotate the NodeInventory with quarry.dev/accept-identity=<identity>";
    AmbiguousIdentity NotAvailable Node "says contradictory things about its identity"
        "compare the evidence with the disk's label; update its firmware, or udev's database with `udevadm trigger`";
    NoIdentity NotAvailable Node "has nothing that would identify it after a reboot: no WWN, no serial, no UUID"
        "give it a serial (a virtual disk: in the hypervisor), or, if it is empty, a GPT: its partitions have UUIDs";
    Claimed NotAvailable Cluster "already has an owner"
        "delete the owner, or exclude this device from the other one";
    BacksVolume NotAvailable Node "is the storage of a Volume"
        "delete the Volume first: quarry volumes shows it";
    BacksPersistentVolume NotAvailable Node "is behind a PersistentVolume"
        "delete the PersistentVolume first, and whatever made it";
    RetainedData NotAvailable Cluster "keeps the data of a PersistentVolume that was deleted without being erased"
        "if nobody needs the data, annotate the NodeInventory with quarry.dev/forget-retained-data=<UID of that PersistentVolume>: the device is looked at anew, and taken if it is blank; to have the data as it is, annotate the LocalVolume that names the device with quarry.dev/adopt-retained-data=<that UID>";
    UnlistedPersistentVolumes Unknown Cluster "may be behind a PersistentVolume: the node has more of them than its NodeInventory can list"
        "delete PersistentVolumes of this node that nobody needs; those without node affinity count on every node";
    Mounted NotAvailable Node "is mounted"
        "leave it alone if the node runs from it (/, /boot, /usr, /var); otherwise unmount it, and remove it from /etc/fstab";
    Swap NotAvailable Node "is used as swap"
        "swapoff it, and remove it from /etc/fstab";
    HasHolders NotAvailable Node "is part of another device"
        "take it out of that device first (lvm, mdadm, cryptsetup, multipath)";
    HasChildren NotAvailable Node "has partitions"
        "use the partitions instead, or remove them if nobody needs their data";
    LoopOnTop NotAvailable Node "has a loop device on top of it"
        "detach that loop device: losetup -d";
    HeldExclusively NotAvailable Node "is held exclusively by somebody"
        "see who has it open: fuser -v, dmsetup table, cat /proc/mdstat";
    BootLabel NotAvailable Node "is a boot partition"
        "leave it alone: the node boots from it";
    Signature NotAvailable Node "holds data"
        "if nobody needs it, erase its signatures (`wipefs -a`), then zero its first and last MiB: docs/operations/devices.md, \"erase a disk by hand\"";
    PartitionTable NotAvailable Node "has a partition table"
        "use its partitions, or, if nobody needs them, `wipefs -a` them and the disk, then zero its first and last MiB: docs/operations/devices.md, \"erase a disk by hand\"";
    UnknownData NotAvailable Node "holds bytes that nothing explains, in its first or last MiB"
        "find out whose they are; if nobody needs them, zero the first and the last MiB";
    ReadOnly NotAvailable Node "is read-only"
        "make it writable: a switch on the disk, blockdev --setrw, the hypervisor's setting";
    Removable NotAvailable Node "is removable"
        "removable disks are not taken: attach it as a fixed one";
    Suspended NotAvailable Node "is suspended"
        "resume it: dmsetup resume";
    NotLocal NotAvailable Node "is not a local device"
        "leave it to a driver for network storage (CSI): Quarry takes only what is built into or attached to the node itself";
    ObservedOnly NotAvailable Node "is only observed by this Quarry: it is not over a file of its own"
        "start it with `quarry up --allow-real-disks` if it may use the disks of this machine";
    NoMedium NotAvailable Node "has no medium"
        "insert one";
    ZeroSize NotAvailable Node "has no size"
        "the device is not ready or broken: see the kernel's log";
    TooNew Unknown Node "has been there, unchanged, for less than the settling time"
        "wait a minute: somebody else may be about to format it";
    TimedOut Unknown Node "does not answer"
        "see the kernel's log (dmesg) for I/O errors, and check its cable, controller or backing server";
    Unreadable Unknown Node "cannot be read"
        "see the kernel's log (dmesg), replace the disk if it is broken";
    NotPermitted Unknown Node "may not be opened by this process"
        "run it as root, and in a container privileged, to see what is on it";
}

impl Reason {
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    pub fn parse(text: &str) -> Option<Reason> {
        TABLE.iter().map(|row| row.reason).find(|reason| reason.as_str() == text)
    }

    /// It is not certain which device this is: nobody may take it, whoever asks.
    pub fn quarantines(self) -> bool {
        matches!(
            self,
            Reason::IdentityElsewhere | Reason::DuplicateIdentity | Reason::IdentityChanged
        )
    }

    /// The device has an owner.
    pub fn claims(self) -> bool {
        matches!(self, Reason::Claimed | Reason::BacksVolume | Reason::BacksPersistentVolume)
    }

    /// The sentence with what it is about: `is mounted: /mnt/a`.
    pub fn message(self, detail: &str) -> String {
        let sentence = self.row().sentence;
        if detail.is_empty() { sentence.to_owned() } else { format!("{sentence}: {detail}") }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_constants_and_complete() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.reason as usize, at);
            assert_eq!(Reason::parse(row.reason.as_str()), Some(row.reason));
            assert_ne!(row.state, DeviceState::Available, "{}", row.reason);
            assert!(row.sentence.len() > 8 && row.remedy.len() > 5, "{}", row.reason);
            assert!(!row.sentence.ends_with('.') && !row.remedy.ends_with('.'), "{}", row.reason);
        }
    }

    #[test]
    fn remedies_help_today_and_to_the_end() {
        for row in TABLE {
            // What is left of a superblock without its signature is unknown data.
            assert!(
                !row.remedy.contains("wipefs")
                    || row.remedy.contains("zero its first and last MiB"),
                "{}",
                row.reason
            );
            assert!(!row.sentence.contains(" you"), "{}: also said of an agent", row.reason);
        }
    }

    #[test]
    fn the_detail_follows_the_sentence() {
        assert_eq!(Reason::Mounted.message("/mnt/a"), "is mounted: /mnt/a");
        assert_eq!(Reason::Swap.message(""), "is used as swap");
    }
}
