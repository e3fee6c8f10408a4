//! How what was seen, what sysfs said and what the probe found become the facts of a device.
//!
//! Facts are changed in place and only where they differ, so that a scan knows whether anything did.

use super::{
    details::{Traits, complete, evidence_of, shown_name},
    node_tables::{NodeTables, shown},
    probe::{LoopFile, ProbeResult},
    relations::DeviceRelations,
    scan::DeviceObservation,
    udev::Stamp,
};
use crate::{
    host_root::HostRoot,
    sys::{DevNumber, blkid},
};
use quarry_core::device::{BackingFile, Content, ExclusiveOpen, Facts, Partition};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

/// What is remembered of a device between scans.
pub struct DeviceRecord {
    pub seen: DeviceObservation,
    pub stamp: Option<Stamp>,
    /// How many of the disk and its partitions were in use when it was probed.
    pub uses: usize,
    pub facts: Facts,
    traits: Traits,
    /// As sysfs and udev said it, before the disk's table and the devices below were asked.
    partition: Option<Partition>,
    not_local: Option<String>,
    loop_file: Option<LoopFile>,
    lines: Vec<blkid::Entry>,
    /// Of a virtio disk.
    serial: Option<String>,
    /// The facts of the scan before, where they were built again.
    before: Option<Facts>,
    /// Where they were not: something in them was changed.
    differs: bool,
    /// sysfs could not be read: it is to be probed, whatever it looks like.
    pub stale: bool,
}

impl DeviceRecord {
    pub fn new(
        seen: &DeviceObservation,
        stamp: Option<Stamp>,
        facts: Facts,
        traits: Traits,
    ) -> Self {
        DeviceRecord {
            seen: seen.clone(),
            stamp,
            uses: 0,
            traits,
            partition: facts.partition.clone(),
            not_local: facts.not_local.clone(),
            facts,
            loop_file: None,
            lines: Vec::new(),
            serial: None,
            before: Some(Facts::default()),
            differs: false,
            stale: false,
        }
    }

    /// Takes over what was read in detail. What others fill in stays until they do so again.
    pub fn renew(
        &mut self,
        seen: &DeviceObservation,
        stamp: Option<Stamp>,
        facts: Facts,
        traits: Traits,
    ) {
        let mut next = DeviceRecord::new(seen, stamp, facts, traits);
        let before = self.facts.clone();
        if (self.seen.number, self.seen.diskseq) == (seen.number, seen.diskseq) {
            next.uses = self.uses;
            (next.loop_file, next.lines, next.serial) =
                (self.loop_file.take(), std::mem::take(&mut self.lines), self.serial.take());
            (next.facts.exclusive_open, next.facts.content) =
                (before.exclusive_open, before.content.clone());
            next.say_more();
        }
        next.before = Some(before);
        *self = next;
    }

    pub fn timed_out(&mut self) {
        self.lines.clear();
        self.set_content(Content::TimedOut);
    }

    /// There is nothing to ask it.
    pub fn unasked(&mut self) {
        self.set_content(Content::Unread);
    }

    /// sysfs does not say what it is now. It is read again as soon as that does.
    pub fn unreadable(&mut self, why: String) {
        self.stale = true;
        self.set_content(Content::Unreadable(why));
    }

    fn set_content(&mut self, content: Content) {
        self.differs |= self.facts.content != content;
        (self.facts.content, self.facts.exclusive_open) = (content, ExclusiveOpen::Unasked);
    }

    pub fn answered(&mut self, probed: ProbeResult) {
        let ProbeResult { gone: _, exclusive_open, content, serial, backing, lines } = probed;
        (self.facts.exclusive_open, self.facts.content, self.stale) =
            (exclusive_open, content, false);
        self.lines = lines;
        self.serial = serial.or(self.serial.take());
        self.loop_file = backing.or(self.loop_file.take());
        self.say_more();
    }

    /// Whether the scan before had it.
    pub fn was_shown(&self) -> bool {
        self.before.as_ref().is_none_or(|before| !before.name.is_empty())
    }

    /// Whether the facts differ from those of the scan before; to be asked once.
    fn has_changed(&mut self) -> bool {
        let differs = std::mem::take(&mut self.differs);
        self.before.take().map_or(differs, |before| before != self.facts)
    }

    /// Evidence that the probe found.
    fn say_more(&mut self) {
        self.facts.evidence.retain(|evidence| {
            evidence.source != "loop:file"
                && !(self.traits.asks_serial && evidence.source == "sysfs:serial")
        });
        self.facts
            .evidence
            .extend(self.serial.clone().map(|serial| evidence_of("sysfs:serial", serial)));
        let file = self.loop_file.as_ref().and_then(|file| file.identity.clone());
        self.facts.evidence.extend(file.map(|identity| evidence_of("loop:file", identity)));
    }

    /// The device that a loop's backing file is.
    fn below(&self, numbers: &HashMap<&str, DevNumber>) -> Option<DevNumber> {
        match &self.loop_file {
            Some(file) => Some(file.backing.rdevice).filter(|number| *number != DevNumber::NONE),
            // It could not be opened: the kernel's name of what it is over has to do.
            None => {
                let (path, _) = self.seen.backing.as_ref()?;
                numbers.get(path.strip_prefix("/dev").ok()?.to_str()?).copied()
            }
        }
    }
}

/// Brings everything that lies between devices up to date; whether any facts differ from those of the scan before.
pub fn merge(
    known: &mut BTreeMap<String, DeviceRecord>,
    seen: &[DeviceObservation],
    relations: &DeviceRelations<'_>,
    tables: &NodeTables,
    host: &HostRoot,
) -> bool {
    let there: HashSet<&str> = seen.iter().map(|device| device.name.as_str()).collect();
    let before = known.len();
    known.retain(|name, _| there.contains(name.as_str()));
    let mut changed = known.len() != before;

    let numbers: HashMap<&str, DevNumber> =
        seen.iter().map(|device| (device.name.as_str(), device.number)).collect();
    let mut loops: HashMap<DevNumber, Vec<String>> = HashMap::new();
    for (name, device) in known.iter() {
        if let Some(number) = device.below(&numbers) {
            loops.entry(number).or_default().push(name.clone());
        }
    }
    for device in seen {
        let Some(known) = known.get_mut(&device.name) else { continue };
        let facts = &mut known.facts;
        // No difference in itself: settling compares it.
        facts.writes = device.writes.map_or(0, |writes| writes.sectors);
        known.differs |= set(&mut facts.mounts, tables.mounts(device.number, &facts.name))
            | set(&mut facts.swap, tables.is_swap(device.number))
            | set(
                &mut facts.partitions,
                relations
                    .partitions(&device.name)
                    .iter()
                    .map(|partition| partition.shown_name())
                    .collect(),
            )
            | set(&mut facts.slaves, device.slaves.iter().map(|slave| shown_name(slave)).collect())
            | set(
                &mut facts.holders,
                relations.holders(&device.name).iter().map(|holder| shown_name(holder)).collect(),
            )
            | set(&mut facts.loops_on_top, loops.remove(&device.number).unwrap_or_default())
            | set(&mut facts.by_id, tables.by_id(&facts.name).to_vec())
            | set(
                &mut facts.backing,
                device.backing.as_ref().map(|(path, deleted)| {
                    backing_file(host, path, *deleted, known.loop_file.as_ref())
                }),
            );
    }
    for device in seen {
        // A file on another machine's file system is no nearer than that.
        let network =
            device.backing.as_ref().and_then(|(path, _)| tables.network_of(&host.on_node(path)));
        if let (Some(known), Some(fs)) = (known.get_mut(&device.name), network) {
            known.not_local = Some(format!("a file on {fs}"));
        }
    }
    partitions(known, seen);
    not_local(known, seen, &numbers);
    for known in known.values_mut() {
        changed |= known.has_changed();
    }
    changed
}

fn backing_file(
    host: &HostRoot,
    path: &Path,
    deleted: bool,
    file: Option<&LoopFile>,
) -> BackingFile {
    let file = file.map(|file| {
        format!(
            "{}:{}:{}",
            file.backing.device.major, file.backing.device.minor, file.backing.inode
        )
    });
    BackingFile { path: shown(&host.on_node(path)), deleted, file }
}

/// What neither udev nor the kernel said of a partition is in its disk's table.
fn partitions(known: &mut BTreeMap<String, DeviceRecord>, seen: &[DeviceObservation]) {
    for device in seen.iter().filter(|device| device.parent.is_some()) {
        let disk = device.parent.as_ref().and_then(|disk| known.get(disk));
        let line = disk
            .and_then(|disk| {
                disk.lines.iter().find(|line| Some(line.number) == device.partition_number)
            })
            .cloned();
        let Some(known) = known.get_mut(&device.name) else { continue };
        let mut partition = known.partition.clone();
        if let (Some(partition), Some(line)) = (&mut partition, &line) {
            complete(partition, line);
        }
        let uuid = partition.as_ref().and_then(|partition| partition.uuid.clone());
        known.differs |= set(&mut known.facts.partition, partition)
            | set(
                &mut known.facts.evidence,
                uuid.map(|uuid| evidence_of("partition:uuid", uuid)).into_iter().collect(),
            );
    }
}

/// A device is as far away as what it is made from.
fn not_local(
    known: &mut BTreeMap<String, DeviceRecord>,
    seen: &[DeviceObservation],
    numbers: &HashMap<&str, DevNumber>,
) {
    let mut away: HashMap<String, String> = known
        .iter()
        .filter_map(|(name, known)| Some((name.clone(), known.not_local.clone()?)))
        .collect();
    let by_number: HashMap<DevNumber, &str> = seen
        .iter()
        .filter(|_| !away.is_empty())
        .map(|device| (device.number, device.name.as_str()))
        .collect();
    // Stacks are a few devices high: as long as something is learnt, once more.
    while !away.is_empty() {
        let mut learnt = Vec::new();
        for device in seen.iter().filter(|device| !away.contains_key(&device.name)) {
            let below = known
                .get(&device.name)
                .and_then(|known| known.below(numbers))
                .and_then(|number| by_number.get(&number).copied());
            let mut bases = device
                .parent
                .as_deref()
                .into_iter()
                .chain(device.slaves.iter().map(String::as_str))
                .chain(below);
            learnt.extend(
                bases
                    .find_map(|base| away.get(base))
                    .map(|reason| (device.name.clone(), reason.clone())),
            );
        }
        if learnt.is_empty() {
            break;
        }
        away.extend(learnt);
    }
    for (name, known) in known.iter_mut() {
        known.differs |= set(&mut known.facts.not_local, away.remove(name));
    }
}

fn set<T: PartialEq>(field: &mut T, value: T) -> bool {
    if *field == value {
        return false;
    }
    *field = value;
    true
}
