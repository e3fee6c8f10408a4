//! The disks of the simulated node that are no volume's file: what is on them, what people do to them, and what must be
//! found on them later.
//!
//! A disk that is pulled goes into a drawer with all that is on it. What a pod or another program wrote is noted beside
//! the disk, so that it is missed when it is gone.

use crate::disk::{Disk, SeededBug};
use quarry_api::node_inventory::Evidence;
use quarry_core::{
    device::{Content, ExclusiveOpen, Facts, Found},
    device_claim::history::History,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawDisk {
    pub wwn: String,
    pub size: u64,
    pub diskseq: u64,
    /// The name that udev gives it below /dev/disk/by-id.
    pub by_id: String,
    /// The signature on it; `None`: it looks blank.
    pub signature: Option<String>,
    /// What was written. Half a wipe takes the signature and leaves this.
    pub data: Option<String>,
    /// Another process has opened it exclusively.
    pub taken: bool,
    /// Writing to it fails half-way.
    pub broken: bool,
    /// As the kernel reports it.
    pub read_only: bool,
}

/// Who will ask for what is on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The PVC with this UID, for as long as it exists.
    Pvc(String),
    /// Another program, for ever.
    Other,
}

/// What must be found on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedContent {
    pub keeper: Keeper,
    pub signature: Option<String>,
    pub data: Option<String>,
}

impl RawDisk {
    pub fn new(number: u64) -> Self {
        let wwn = format!("5000c5000000000{number}");
        RawDisk { by_id: format!("wwn-0x{wwn}"), wwn, size: 1 << 40, ..RawDisk::default() }
    }

    pub fn identity(&self) -> String {
        format!("wwn:{}", self.wwn)
    }

    pub fn is_empty(&self) -> bool {
        self.signature.is_none() && self.data.is_none()
    }

    pub fn facts(&self, name: &str, disk: &Disk) -> Facts {
        let content = match &self.signature {
            Some(signature) if disk.seeded_bug != Some(SeededBug::ConfirmAnything) => {
                Content::Found(Found { fs_type: Some(signature.clone()), ..Found::default() })
            }
            Some(_) | None => Content::Blank,
        };
        Facts {
            name: name.to_owned(),
            number: format!("8:{}", self.diskseq),
            kind: "disk".into(),
            size: self.size,
            read_only: self.read_only,
            diskseq: Some(self.diskseq),
            by_id: vec![self.by_id.clone()],
            evidence: vec![Evidence {
                source: "sysfs:wwid".into(),
                value: format!("naa.{}", self.wwn),
            }],
            mounts: disk
                .mounts
                .iter()
                .filter(|(device, _)| *device == name)
                .map(|(_, at)| at.clone())
                .collect(),
            exclusive_open: if disk.is_held(name) {
                ExclusiveOpen::Exclusively
            } else {
                ExclusiveOpen::Free
            },
            content,
            ..Facts::default()
        }
    }
}

impl Disk {
    /// Plugged in, or in the drawer.
    pub fn every_disk(&self) -> impl Iterator<Item = &RawDisk> {
        self.disks.values().chain(self.drawer.values())
    }

    pub fn with_identity(&self, identity: &str) -> Option<(&String, &RawDisk)> {
        self.disks.iter().find(|(_, disk)| disk.identity() == identity)
    }

    pub fn plug(&mut self, name: &str, disk: RawDisk) {
        self.uevents += 1;
        self.diskseq += 1;
        self.disks.insert(name.to_owned(), RawDisk { diskseq: self.diskseq, ..disk });
    }

    /// Whatever is mounted from it is gone with it.
    pub fn unplug(&mut self, name: &str) {
        self.uevents += 1;
        self.mounts.remove(name);
        if let Some(disk) = self.disks.remove(name) {
            self.drawer.insert(disk.wwn.clone(), RawDisk { taken: false, ..disk });
        }
    }

    /// Out of the drawer; `by_id`: udev calls it something else now.
    pub fn plug_again(&mut self, name: &str, number: u64, by_id: Option<&str>) {
        if let Some(mut disk) = self.drawer.remove(&RawDisk::new(number).wwn) {
            if let Some(by_id) = by_id {
                disk.by_id = by_id.to_owned();
            }
            self.plug(name, disk);
        }
    }

    /// A file system is put on it, or what there is is removed.
    pub fn format_disk(&mut self, name: &str, signature: Option<&str>) {
        self.uevents += 1;
        let Some(disk) = self.disks.get_mut(name) else { return };
        disk.signature = signature.map(str::to_owned);
        disk.data = signature.map(|_| "not ours".to_owned());
        match signature {
            Some(_) => self.keep(name, Keeper::Other),
            None => drop(self.expected.remove(&self.disks[name].wwn)),
        }
    }

    pub fn hide(&mut self, name: &str) {
        self.uevents += 1;
        if let Some(disk) = self.disks.get_mut(name) {
            disk.signature = None;
            self.expected.entry(disk.wwn.clone()).and_modify(|expected| expected.signature = None);
        }
    }

    pub fn keep(&mut self, name: &str, keeper: Keeper) {
        if let Some(disk) = self.disks.get(name) {
            self.expected.insert(
                disk.wwn.clone(),
                ExpectedContent {
                    keeper,
                    signature: disk.signature.clone(),
                    data: disk.data.clone(),
                },
            );
        }
    }

    /// The API forgets what it knew: it is not known any more what may be erased.
    pub fn keep_everything(&mut self) {
        self.expected.values_mut().for_each(|expected| expected.keeper = Keeper::Other);
    }

    /// The machine is replaced; its disks are in the drawer, its directories are gone.
    pub fn other_machine(&mut self) {
        let names: Vec<String> = self.disks.keys().cloned().collect();
        names.iter().for_each(|name| self.unplug(name));
        self.power_cut();
        self.claim_links.clear();
        self.ledger.clear();
        self.history = History::default();
        self.machine += 1;
    }

    pub fn machine_id(&self) -> String {
        machine_id(self.machine)
    }

    /// The disk at the end of a device claim's link.
    pub fn behind(&self, link: &str) -> Option<&str> {
        self.at(self.claim_links.get(link)?)
    }

    /// The disk at the end of a path.
    pub fn at(&self, path: &str) -> Option<&str> {
        let found = match path.strip_prefix("/dev/disk/by-id/") {
            Some(by_id) => self.disks.iter().find(|(_, disk)| disk.by_id == by_id),
            None => path.strip_prefix("/dev/").and_then(|name| self.disks.get_key_value(name)),
        };
        found.map(|(name, _)| name.as_str())
    }
}

pub fn machine_id(number: u32) -> String {
    format!("{number:032x}")
}
