//! What a scan read of one block device. Facts only: `verdict.rs` and `group.rs` decide what they mean.
//!
//! Text from a device (model, serial, labels) is untrusted and already printable here (`sanitize.rs`). `None` means that
//! no source reports it; an empty string never means that.

use quarry_api::node_inventory::Evidence;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The kernel's name: `sda1`, `dm-3`.
    pub name: String,
    /// lsblk's NAME where it differs: the name of a device-mapper device.
    pub mapped_name: Option<String>,
    /// `8:17`
    pub number: String,
    /// lsblk's TYPE: disk, part, loop, lvm, mpath, crypt, raid1, rom, dm.
    pub kind: String,
    /// In bytes.
    pub size: u64,
    pub read_only: bool,
    pub removable: bool,
    pub rotational: bool,
    pub model: Option<String>,
    pub vendor: Option<String>,
    pub serial: Option<String>,
    /// lsblk's TRAN.
    pub transport: Option<String>,
    /// lsblk's STATE: running, suspended, live, offline.
    pub state: Option<String>,
    /// The kernel's disk sequence number, also for a partition: that of its disk.
    pub diskseq: Option<u64>,
    /// The sectors ever written to it, from its `stat`.
    pub writes: u64,
    /// The disk of a partition.
    pub parent: Option<String>,
    /// Its partitions, as the kernel knows them.
    pub partitions: Vec<String>,
    /// The devices that it is built from (multipath paths, md and LVM members).
    pub slaves: Vec<String>,
    /// The devices that are built on it.
    pub holders: Vec<String>,
    pub partition: Option<Partition>,
    /// The file behind a loop device.
    pub backing: Option<BackingFile>,
    /// Loop devices whose backing file is this device.
    pub loops_on_top: Vec<String>,
    /// Mount points in the node's own mount table, those of bind mounts of the device node included.
    pub mounts: Vec<String>,
    pub swap: bool,
    /// The names below /dev/disk/by-id that resolve to it.
    pub by_id: Vec<String>,
    /// Everything that sources report about its identity.
    pub evidence: Vec<Evidence>,
    /// Why it is not a local device (`iscsi`, `rbd`); absent for a local one.
    pub not_local: Option<String>,
    pub exclusive_open: ExclusiveOpen,
    /// Standalone without `--allow-real-disks`: it was not opened exclusively and must not be used.
    pub observed_only: bool,
    pub content: Content,
    /// The Volume whose storage this is.
    pub volume_uid: Option<String>,
    /// The link of that Volume which resolves to this device.
    pub link: Option<String>,
    /// The unmanaged PersistentVolumes whose path resolves to it.
    pub backs: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    pub number: u32,
    /// In bytes, from the start of the disk.
    pub start: u64,
    pub uuid: Option<String>,
    /// lsblk's PARTTYPE.
    pub type_id: Option<String>,
    pub label: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackingFile {
    /// As a path on the node.
    pub path: String,
    pub deleted: bool,
    /// The file itself, whatever its path: file system and inode, for as long as the node runs.
    pub file: Option<String>,
}

/// Whether the device could be opened exclusively.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExclusiveOpen {
    /// Not tried: without root privileges, or the device was not opened at all.
    #[default]
    Unasked,
    Free,
    Exclusively,
}

/// The content of the device, as far as it could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Not read: the device has no size, no medium, or is suspended.
    #[default]
    Unread,
    /// No signature, no partition table, first and last MiB zero.
    Blank,
    Found(Found),
    /// Unrecognized data.
    UnknownData,
    NoMedium,
    /// With the text of the error.
    Unreadable(String),
    /// It did not respond in time.
    TimedOut,
    /// The caller may not open it.
    NotPermitted,
}

/// At least one of the two types is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// lsblk's FSTYPE.
    pub fs_type: Option<String>,
    pub uuid: Option<String>,
    pub label: Option<String>,
    /// `gpt`, `dos`.
    pub table: Option<String>,
    /// All signatures, where there is more than one and libblkid does not choose.
    pub ambivalent: Vec<String>,
}
