//! The simulated node's storage: files, drafts, loop devices, links, mounts, the ledger.
//!
//! Files and ledger survive everything; loops, links and mounts survive the agent but not the node; what was not
//! synced may be lost with the node. Behaves as the kernel does and decides nothing: refusals here are the kernel's.
//! Next to read: `node_ops.rs` (the agent's way to it), `invariant/mod.rs` (what must never be seen here).

use crate::raw_disks::{ExpectedContent, RawDisk};
use quarry_api::{
    node_inventory::{DeviceClaim, Evidence},
    quantity::Bytes,
};
use quarry_core::{
    device::{BackingFile, Content, ExclusiveOpen, Facts},
    device_claim::{
        confirm::Remembered,
        history::{DataOf, History},
    },
    job::{Format, OutcomeResult, Task},
    storage::sparse::{self, Link, Observed, User, link_path},
};
use std::collections::{BTreeMap, BTreeSet};

/// A GPT takes the first and the last MiB.
const TABLE: u64 = 2 << 20;
pub const DIRECTORY: &str = "/var/lib/quarry/volumes";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub size: Bytes,
    pub partitioned: bool,
    /// Counts formats, so that a second one is seen.
    pub made: u64,
    /// Not ours.
    pub unmanaged: bool,
    /// What a pod wrote.
    pub data: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub size: Bytes,
    pub format: Option<Format>,
    pub synced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The file's UID.
    pub over: String,
    pub partition: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub task: Task,
    /// `None`: an intent.
    pub outcome: Option<OutcomeResult>,
}

/// Deliberate mistakes of the simulated node, so that the checks themselves are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Nothing is seen on the disk once a pod has used it.
    Blind,
    /// Intents are not written down.
    ForgetIntents,
    /// A second loop is attached beside the first.
    AttachTwice,
    /// What pods wrote is lost when a loop is attached.
    LoseData,
    /// Nothing is seen on a disk, and a device claim confirmed whatever there is.
    ConfirmAnything,
    /// A device is held for a wipe although it is in use.
    HoldAnything,
    /// A wipe removes the signature and nothing else.
    WipeHalf,
    /// The ledger is not asked whether a device was erased before.
    ForgetOutcomes,
    /// Links lead to the first disk there is.
    MislinkAnything,
    /// Links of device claims that end stay.
    KeepLinks,
    /// A confirmation erases what it finds on other disks.
    EraseNeighbours,
}

#[derive(Clone, Debug)]
pub struct Disk {
    pub files: BTreeMap<String, File>,
    pub drafts: BTreeMap<String, Draft>,
    pub loops: BTreeMap<u32, Loop>,
    pub links: BTreeMap<String, String>,
    /// Where each device is mounted.
    pub mounts: BTreeMap<String, String>,
    pub disks: BTreeMap<String, RawDisk>,
    /// The disks that were pulled, by WWN.
    pub drawer: BTreeMap<String, RawDisk>,
    /// What must be found on which disk, by WWN.
    pub expected: BTreeMap<String, ExpectedContent>,
    /// The kernel's last sequence number.
    pub diskseq: u64,
    /// Which machine this is.
    pub machine: u32,
    /// The API is older than the disks, and has not learned yet what is on them.
    pub outdated: bool,
    /// The links of device claims and where they lead. On the node's own file system: they outlive a boot.
    pub claim_links: BTreeMap<String, String>,
    /// The disks that the agent holds exclusively.
    pub held: BTreeSet<String>,
    /// How many events the kernel has sent about them.
    pub uevents: u64,
    pub ledger: Vec<Record>,
    /// Of the ledger, too: what it records about claimed disks.
    pub history: History,
    pub udev: bool,
    /// The kernel reads partition tables without udev.
    pub parser: bool,
    /// mkfs fails as long as this is true.
    pub broken_tool: bool,
    pub boots: u32,
    pub formats: u64,
    /// A pod has written its data: from now on it must be found.
    pub pod_wrote: bool,
    pub seeded_bug: Option<SeededBug>,
}

impl Disk {
    pub fn new(udev: bool, parser: bool) -> Self {
        // An unrelated file and loop, to be found untouched at the end.
        let unmanaged = File {
            size: Bytes(4096),
            partitioned: false,
            made: 0,
            unmanaged: true,
            data: Some("not ours".into()),
        };
        Disk {
            files: [("unmanaged".to_owned(), unmanaged)].into(),
            drafts: BTreeMap::new(),
            loops: [(0, Loop { over: "unmanaged".into(), partition: false })].into(),
            links: [("/dev/disk/by-uuid/unmanaged".to_owned(), "loop0".to_owned())].into(),
            mounts: BTreeMap::new(),
            disks: BTreeMap::new(),
            drawer: BTreeMap::new(),
            expected: BTreeMap::new(),
            diskseq: 0,
            machine: 1,
            outdated: false,
            claim_links: BTreeMap::new(),
            held: BTreeSet::new(),
            uevents: 0,
            ledger: Vec::new(),
            history: History::default(),
            udev,
            parser,
            broken_tool: false,
            boots: 0,
            formats: 0,
            pod_wrote: false,
            seeded_bug: None,
        }
    }

    pub fn knows(&self, uid: &str) -> bool {
        self.ledger.iter().any(|record| match &record.task {
            Task::Volume(task) => *task.uid() == *uid && record.outcome.is_none(),
            Task::Wipe(_) => false,
        })
    }

    /// Another one after the machine was replaced: its directories were.
    pub fn ledger_id(&self) -> String {
        format!("ledger-{}", self.machine)
    }

    pub fn record(&mut self, record: Record) {
        if let Task::Wipe(wipe) = &record.task {
            let identity = wipe.identity.as_str();
            let pvc = wipe.pvc_uid.as_ref().map(|uid| uid.as_str());
            let data = DataOf::new(wipe.pv_uid.as_str(), pvc);
            match record.outcome {
                None => self.history.begin_erase(&data),
                Some(OutcomeResult::Succeeded) => self.history.erase(identity, data, wipe.policy),
                Some(OutcomeResult::Failed) => {}
            }
        }
        self.ledger.push(record);
    }

    pub fn outdated(&self, claims: &[DeviceClaim]) -> Vec<Option<String>> {
        let asked = self.seeded_bug != Some(SeededBug::ForgetOutcomes);
        claims.iter().map(|claim| self.history.outdated(claim).filter(|_| asked)).collect()
    }

    /// What the ledger says about a disk and the PersistentVolume that was on it.
    pub fn remembered(&self, identity: &str, data: &DataOf) -> Remembered {
        if self.seeded_bug == Some(SeededBug::ForgetOutcomes) {
            return Remembered::default();
        }
        self.history.remembered(identity, data)
    }

    /// The loops over a volume's file.
    pub fn loops_over(&self, uid: &str) -> Vec<u32> {
        self.loops
            .iter()
            .filter(|(_, device)| device.over == uid)
            .map(|(number, _)| *number)
            .collect()
    }

    /// Everything of this volume that is on the node.
    pub fn remains(&self, uid: &str) -> Vec<String> {
        let mut found = Vec::new();
        found.extend(self.files.contains_key(uid).then(|| "file".to_owned()));
        found.extend(self.drafts.contains_key(uid).then(|| "draft".to_owned()));
        found.extend(self.loops_over(uid).iter().map(|number| format!("loop{number}")));
        found.extend(self.links.keys().filter(|link| link.ends_with(uid)).cloned());
        found
    }

    /// The device that the volume's link leads to, if it is attached.
    pub fn device_of(&self, uid: &str) -> Option<String> {
        let file = self.files.get(uid)?;
        let target = self.links.get(&link_of(uid, file.partitioned))?;
        self.exists(target).then(|| target.clone())
    }

    pub fn power_cut(&mut self) {
        self.boots += 1;
        self.mounts.clear();
        self.held.clear();
        self.disks.values_mut().for_each(|disk| disk.taken = false);
        self.loops.retain(|_, device| device.over == "unmanaged");
        self.links.retain(|link, _| link.ends_with("unmanaged"));
        // Either may happen to a file that was not synced; which one must not matter.
        let keep = (self.boots as usize + self.ledger.len()).is_multiple_of(2);
        self.drafts.retain(|_, draft| draft.synced || keep);
    }

    /// Whether an exclusive open of this disk fails.
    pub fn is_held(&self, name: &str) -> bool {
        self.held.contains(name)
            || self.mounts.contains_key(name)
            || self.disks.get(name).is_some_and(|disk| disk.taken)
    }

    fn exists(&self, device: &str) -> bool {
        self.loops.iter().any(|(number, found)| {
            let whole = format!("loop{number}");
            device == whole || (found.partition && device == format!("{whole}p1"))
        })
    }

    pub fn users_of(&self, number: u32) -> Vec<User> {
        let (whole, part) = (format!("loop{number}"), format!("loop{number}p1"));
        self.mounts
            .iter()
            .filter(|(device, _)| **device == whole || **device == part)
            .map(|(_, at)| User::Mount(at.clone()))
            .collect()
    }

    pub fn observe(&self, uid: &str) -> Observed {
        if self.seeded_bug == Some(SeededBug::Blind) && self.pod_wrote && self.mounts.is_empty() {
            return Observed { in_ledger: true, ..Observed::default() };
        }
        let file = self.files.get(uid);
        let loops = self.loops_over(uid).into_iter().map(|number| sparse::Loop {
            name: format!("loop{number}"),
            partition: self.partition_of(number).map(|size| (format!("loop{number}p1"), size)),
            users: self.users_of(number),
        });
        let link = match file {
            Some(file) => self.links.get(&link_of(uid, file.partitioned)),
            // Without the file, only a link that leads nowhere is ours.
            None => both_links(uid)
                .iter()
                .find_map(|link| self.links.get(link))
                .filter(|target| !self.exists(target)),
        };
        Observed {
            in_ledger: self.knows(uid),
            file: file.map(|file| sparse::File { size: file.size, partitioned: file.partitioned }),
            draft: self.drafts.contains_key(uid),
            loops: loops.collect(),
            link: link.map_or(Link::Absent, |target| Link::To(target.clone())),
            udev: self.udev,
        }
    }

    fn partition_of(&self, number: u32) -> Option<Bytes> {
        let device = self.loops.get(&number).filter(|device| device.partition)?;
        let file = self.files.get(&device.over)?;
        Some(Bytes(file.size.0.saturating_sub(TABLE)))
    }

    pub fn known_volumes(&self) -> Vec<String> {
        self.files.keys().filter(|uid| self.knows(uid)).cloned().collect()
    }

    /// What the inspector would see.
    pub fn scan_node(&self) -> Vec<Facts> {
        let mut devices: Vec<Facts> =
            self.loops.iter().map(|(number, device)| self.loop_facts(*number, device)).collect();
        devices.extend(self.disks.iter().map(|(name, disk)| disk.facts(name, self)));
        devices
    }

    fn loop_facts(&self, number: u32, device: &Loop) -> Facts {
        let (name, uid) = (format!("loop{number}"), &device.over);
        let file = self.files.get(uid);
        let partitioned = file.is_some_and(|file| file.partitioned);
        let wanted = if partitioned { format!("{name}p1") } else { name.clone() };
        let link = link_of(uid, partitioned);
        let ours = self.knows(uid);
        let path = format!("{DIRECTORY}/{uid}");
        Facts {
            number: format!("7:{number}"),
            kind: "loop".into(),
            size: file.map_or(0, |file| file.size.0),
            evidence: vec![Evidence { source: "loop:file".into(), value: path.clone() }],
            backing: Some(BackingFile { path, deleted: file.is_none(), file: None }),
            mounts: self
                .mounts
                .iter()
                .filter(|(device, _)| **device == name)
                .map(|(_, at)| at.clone())
                .collect(),
            exclusive_open: ExclusiveOpen::Free,
            content: Content::UnknownData,
            volume_uid: ours.then(|| uid.clone()),
            link: (ours && self.links.get(&link) == Some(&wanted)).then_some(link),
            name,
            ..Facts::default()
        }
    }

    /// A free number; other ones after each boot, so that nothing can rely on them.
    pub fn free_loop(&self) -> u32 {
        (3 + self.boots..).find(|number| !self.loops.contains_key(number)).unwrap_or(u32::MAX)
    }
}

pub fn both_links(uid: &str) -> [String; 2] {
    [link_of(uid, false), link_of(uid, true)]
}

pub fn link_of(uid: &str, partitioned: bool) -> String {
    link_path(uid, partitioned)
}
