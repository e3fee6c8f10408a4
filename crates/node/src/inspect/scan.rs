//! Every block device of the node, as facts.
//!
//! A scan lists sysfs, reads a few short files of each device, and compares them with what it saw last time: only a
//! device that is new or changed is read in detail and probed. What changes without an event (mounts, swaps, links)
//! is read every time, once for all. Idle loop devices and RAM disks are left out, as in lsblk.
//! Next to read: `detail_reader.rs` (what is asked), `details.rs` (what sysfs says), `probe.rs` (what is on it), `merge.rs` (how both become facts).

use super::{
    detail_reader::DetailReader,
    details,
    loops::parse_backing_file,
    merge::{DeviceRecord, merge},
    node_tables::NodeTables,
    open_attrs::{self, OpenAttrs},
    pool::{Outcome, Pool},
    probe::Certainty,
    relations::DeviceRelations,
    sysfs::{Sysfs, Writes, parse_diskstats, parse_partitions, parse_stat, parse_uevent},
    udev::{Database, Stamp},
};
use crate::{error::NodeError, host_root::HostRoot, sys::DevNumber};
use quarry_core::device::Facts;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

#[derive(Clone, Debug)]
pub struct Limits {
    /// A device that is silent for longer has timed out.
    pub answer_within: Duration,
    /// A scan waits no longer than this for any device: one that is silent must not keep the others from being seen.
    pub patience: Duration,
    pub probes_at_once: usize,
    pub reach: Reach,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            answer_within: Duration::from_secs(5),
            patience: Duration::MAX,
            probes_at_once: 8,
            reach: Reach::Everything,
        }
    }
}

/// Which devices are opened exclusively for a moment, to learn whether they are held. A process that wants to mount
/// one in that moment is turned away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    #[default]
    Everything,
    /// Loops over files in the data directory alone. Whether another device is held is not known then.
    OwnLoops,
}

/// Which devices are probed.
#[derive(Clone, Copy, Debug)]
pub enum Scan<'a> {
    Everything,
    /// Those that are new, look different, or were named by an event.
    Changed {
        touched: &'a BTreeSet<String>,
    },
}

#[derive(Clone, Debug, Default)]
pub struct ScanResult {
    pub devices: Arc<[Facts]>,
    /// Partial trouble, in sentences for people.
    pub problems: Vec<String>,
    /// How many devices were opened.
    pub probed: usize,
    pub boot_id: Option<String>,
    /// When to look again, because a device has not answered yet.
    pub again_in: Option<Duration>,
    /// Whether `devices` differ from those of the scan before.
    pub changed: bool,
    /// Devices that have not answered yet, by their shown name: what is said of them is from before.
    pub silent: Vec<String>,
}

/// What is read of every device on every scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceObservation {
    /// As in sysfs.
    pub name: String,
    pub number: DevNumber,
    pub diskseq: Option<u64>,
    pub size: u64,
    pub read_only: bool,
    pub writes: Option<Writes>,
    /// The disk of a partition.
    pub parent: Option<String>,
    pub partition_number: Option<u32>,
    pub slaves: Vec<String>,
    /// Where it hangs in the kernel's tree of devices.
    pub place: String,
    /// lsblk's STATE: it changes without an event.
    pub state: Option<String>,
    /// The file behind a loop device, and whether it was unlinked.
    pub backing: Option<(PathBuf, bool)>,
}

impl DeviceObservation {
    pub fn shown_name(&self) -> String {
        details::shown_name(&self.name)
    }

    pub fn key(&self) -> (String, DevNumber, Option<u64>) {
        (self.name.clone(), self.number, self.diskseq)
    }

    /// But for what was written to it.
    fn is_like(&self, other: &DeviceObservation) -> bool {
        let DeviceObservation {
            name,
            number,
            diskseq,
            size,
            read_only,
            writes: _,
            parent,
            partition_number,
            slaves,
            place,
            state,
            backing,
        } = self;
        let sizes = (number, diskseq, size, read_only, partition_number)
            == (
                &other.number,
                &other.diskseq,
                &other.size,
                &other.read_only,
                &other.partition_number,
            );
        sizes
            && (name, parent, slaves, place, state, backing)
                == (
                    &other.name,
                    &other.parent,
                    &other.slaves,
                    &other.place,
                    &other.state,
                    &other.backing,
                )
    }
}

/// Remembers what each device looked like, and what was found on it.
pub struct Scanner {
    host: Arc<HostRoot>,
    limits: Limits,
    known: BTreeMap<String, DeviceRecord>,
    /// Of devices that have been there for two scans.
    attrs: HashMap<String, OpenAttrs>,
    most_gauges: usize,
    pool: Pool,
    /// Not opened exclusively: a process that is about to mount one must not fail.
    spared: BTreeSet<DevNumber>,
    /// Spared until now: to be asked.
    unspared: BTreeSet<DevNumber>,
    last: Option<Last>,
}

/// What the last scan saw, and what it made of it: the same again is the same answer.
struct Last {
    names: Vec<String>,
    tables: NodeTables,
    udev: Option<Stamp>,
    /// These are in use and written to all the time: that changes nothing.
    used: HashSet<String>,
    devices: Arc<[Facts]>,
}

impl Scanner {
    pub fn new(host: HostRoot, limits: Limits) -> Self {
        Scanner {
            host: Arc::new(host),
            pool: Pool::new(limits.answer_within),
            limits,
            known: BTreeMap::new(),
            attrs: HashMap::new(),
            most_gauges: open_attrs::affordable(),
            spared: BTreeSet::new(),
            unspared: BTreeSet::new(),
            last: None,
        }
    }

    /// From now on these, their disks and their partitions are not opened exclusively.
    pub fn spare(&mut self, devices: BTreeSet<DevNumber>) {
        let no_longer: Vec<DevNumber> = self.spared.difference(&devices).copied().collect();
        self.unspared.extend(no_longer);
        self.spared = devices;
    }

    pub fn scan(&mut self, scan: Scan<'_>) -> Result<ScanResult, NodeError> {
        self.scan_with(scan, Certainty::Look)
    }

    /// To prove something waits for a device as long as one may take at all; to look, as long as the limits say.
    pub fn scan_with(
        &mut self,
        scan: Scan<'_>,
        certainty: Certainty,
    ) -> Result<ScanResult, NodeError> {
        let patience = match certainty {
            Certainty::Look => self.limits.patience,
            Certainty::Prove => Duration::MAX,
        };
        let mut scanned = ScanResult::default();
        let mut sysfs = Sysfs::open(&self.host)?;
        let names = sysfs.names(&self.host)?;
        let stats = fs::read(self.host.diskstats()).unwrap_or_else(|error| {
            let path = self.host.diskstats();
            scanned.problems.push(format!(
                "reading {}: {error}; writes are counted per device instead",
                path.display()
            ));
            Vec::new()
        });
        let counters: HashMap<&str, Writes> = parse_diskstats(&stats).collect();
        // Idle loop devices are many, and have no size: one file shows all of them. Read one by one
        // when everything is, because an empty file may be behind one.
        let sizes = fs::read(self.host.partitions()).unwrap_or_default();
        let sized: HashSet<&str> = parse_partitions(&sizes).collect();
        let idle = |name: &String| match scan {
            Scan::Everything => false,
            Scan::Changed { touched } => {
                is_loop(name)
                    && !sized.is_empty()
                    && !sized.contains(name.as_str())
                    && !self.known.contains_key(name)
                    && !touched.contains(name)
            }
        };
        let names: Vec<String> = names.into_iter().filter(|name| !idle(name)).collect();
        let tables = NodeTables::read(&self.host)?;
        let udev = Database::open(&self.host);
        scanned.boot_id = self.host.boot_id();
        if let Some(devices) = self.same_as_before(scan, &names, &counters, &tables, &udev) {
            return Ok(ScanResult { devices, ..scanned });
        }
        // Whatever goes wrong from here on: the next scan is a full one.
        self.last = None;
        let calm = udev.calm();
        let mut seen = Vec::with_capacity(names.len());
        let mut unreadable = Vec::new();
        for name in &names {
            sysfs.take_trouble();
            let observed = self.observe_cached(&mut sysfs, name.clone(), &counters);
            let Some(trouble) = sysfs.take_trouble() else {
                seen.extend(observed);
                continue;
            };
            // Not gone, and not to be believed: one that is known is listed as it was, and cannot be claimed.
            let shown = details::shown_name(name);
            scanned.problems.push(format!(
                "{shown} cannot be read: {trouble} (of {})",
                self.host.sys_block(name).display()
            ));
            seen.extend(self.known.get(name).map(|known| known.seen.clone()));
            unreadable.push((name.clone(), trouble));
        }
        let relations = DeviceRelations::new(&seen, &tables);

        let touched = self.touched(scan, &seen, &relations, &udev);
        let stuck = self.pool.stuck();
        let mut reader = DetailReader {
            host: &self.host,
            reach: self.limits.reach,
            certainty,
            known: &mut self.known,
            relations: &relations,
            udev: &udev,
            stuck: &stuck,
            spared: &self.spared,
        };
        let questions = seen.iter().filter_map(|device| {
            reader.detail(&mut sysfs, device, touched.contains(device.name.as_str()))
        });
        let questions = questions.inspect(|_| scanned.probed += 1);
        let outcomes = self.pool.run(questions, patience, self.limits.probes_at_once);
        let lost = self.take(outcomes);
        scanned.again_in = self.wait_for_silent();
        scanned.silent = self.pool.silent().map(|(key, _)| details::shown_name(&key.0)).collect();

        let whole = unreadable.is_empty();
        for (name, trouble) in unreadable {
            if let Some(known) = self.known.get_mut(&name) {
                known.unreadable(trouble);
            }
        }
        scanned.changed = lost | merge(&mut self.known, &seen, &relations, &tables, &self.host);
        self.attrs.retain(|name, _| self.known.contains_key(name));
        scanned.devices = self.known.values().map(|known| known.facts.clone()).collect();
        let used = relations.used.iter().map(|name| (*name).to_owned()).collect();
        self.last = whole.then(|| Last {
            used,
            names,
            tables,
            udev: calm,
            devices: Arc::clone(&scanned.devices),
        });
        Ok(scanned)
    }

    /// The answer of the scan before, if nothing at all has changed since and no new scan is asked for.
    fn same_as_before(
        &self,
        scan: Scan<'_>,
        names: &[String],
        counters: &HashMap<&str, Writes>,
        tables: &NodeTables,
        udev: &Database,
    ) -> Option<Arc<[Facts]>> {
        let asked = match scan {
            Scan::Everything => true,
            Scan::Changed { touched } => {
                !touched.is_empty() || !self.unspared.is_empty() || !self.pool.is_quiet()
            }
        };
        let last = self.last.as_ref().filter(|_| !asked)?;
        let agree = |name: &String| {
            let known = self.known.get(name).map(|known| &known.seen).zip(self.attrs.get(name));
            let quiet = |before: &DeviceObservation| {
                last.used.contains(name)
                    || counters
                        .get(name.as_str())
                        .is_some_and(|writes| before.writes == Some(*writes))
            };
            known.is_some_and(|(before, attrs)| quiet(before) && attrs.agree(before))
        };
        let same = last.names == names
            && last.udev.is_some()
            && last.udev == udev.calm()
            && last.tables == *tables
            && names.iter().all(agree);
        same.then(|| Arc::clone(&last.devices))
    }

    /// A device that is known by what is kept open of it, any other in full.
    fn observe_cached(
        &mut self,
        sysfs: &mut Sysfs,
        name: String,
        counters: &HashMap<&str, Writes>,
    ) -> Option<DeviceObservation> {
        let known = self.known.get(&name).map(|known| &known.seen);
        let writes = counters.get(name.as_str()).copied();
        if let (Some(attrs), Some(before)) = (self.attrs.get(&name), known)
            && let Some(seen) = attrs.read(before, writes)
        {
            return Some(seen);
        }
        self.attrs.remove(&name);
        // One attribute shows that there is nothing behind it: idle loop devices are many.
        if known.is_none() && is_loop(&name) && !sysfs.is_attached(&name) {
            return None;
        }
        let seen = self.observe(sysfs, name, counters)?;
        if is_plain(&seen.name)
            && self.known.contains_key(&seen.name)
            && self.attrs.len() < self.most_gauges
        {
            let attrs =
                sysfs.device(&seen.name).and_then(|device| OpenAttrs::open(sysfs, &device, &seen));
            self.attrs.extend(attrs.map(|attrs| (seen.name.clone(), attrs)));
        }
        Some(seen)
    }

    /// `None` for what is not shown: idle loops, RAM disks, hidden paths of NVMe multipath, what is gone.
    fn observe(
        &self,
        sysfs: &mut Sysfs,
        name: String,
        counters: &HashMap<&str, Writes>,
    ) -> Option<DeviceObservation> {
        let device = sysfs.device(&name)?;
        let is_loop = is_loop(&name);
        let backing = if is_loop {
            Some(parse_backing_file(sysfs.bytes(&device, "loop/backing_file")?))
        } else {
            None
        };
        let uevent = parse_uevent(sysfs.bytes(&device, "uevent")?);
        let number = uevent.number.filter(|number| number.major != RAM_DISK)?;
        let size = sysfs.number(&device, "size")?.saturating_mul(512);
        let read_only = sysfs.flag(&device, "ro");
        let writes = match counters.get(name.as_str()) {
            Some(writes) => Some(*writes),
            None => sysfs.bytes(&device, "stat").and_then(parse_stat),
        };
        let before = self
            .known
            .get(&name)
            .map(|known| &known.seen)
            .filter(|seen| seen.number == number && seen.diskseq == uevent.diskseq);
        let place = match before {
            Some(seen) => seen.place.clone(),
            None => sysfs.place(&name)?,
        };
        let parent =
            if uevent.is_partition { place.rsplit('/').nth(1).map(str::to_owned) } else { None };
        let slaves = if uevent.is_partition || is_plain(&name) {
            Vec::new()
        } else {
            sysfs.list(&device, "slaves")
        };
        let state = if is_loop || uevent.is_partition {
            None
        } else {
            details::state(sysfs, &device, &name)
        };
        let partition_number = uevent.partition_number;
        Some(DeviceObservation {
            name,
            number,
            diskseq: uevent.diskseq,
            size,
            read_only,
            writes,
            parent,
            partition_number,
            slaves,
            place,
            state,
            backing,
        })
    }

    /// Kernel names of those to be probed.
    fn touched<'s>(
        &mut self,
        scan: Scan<'_>,
        seen: &'s [DeviceObservation],
        relations: &DeviceRelations<'_>,
        udev: &Database,
    ) -> HashSet<&'s str> {
        let returned = self.take_returned();
        let unspared = std::mem::take(&mut self.unspared);
        let mut touched = HashSet::new();
        for device in seen {
            let named = match scan {
                Scan::Everything => true,
                Scan::Changed { touched } => {
                    touched.contains(&device.name) || touched.contains(&device.shown_name())
                }
            };
            let same = self.known.get(&device.name).is_some_and(|known| {
                // A device in use is written to all the time: it is read again when that use ends.
                let written =
                    known.seen.writes != device.writes && !relations.is_used(&device.name);
                !known.stale
                    && !written
                    && known.seen.is_like(device)
                    && known.uses == relations.uses(&device.name)
            });
            if named
                || !same
                || returned.contains(&device.name)
                || (!unspared.is_empty() && relations.is_among(device, &unspared))
            {
                touched.insert(device.name.as_str());
                // Without udev its type, name and UUID are in the disk's table alone.
                if let Some(parent) = &device.parent
                    && udev.stamp(device.number).is_none()
                {
                    touched.insert(parent.as_str());
                }
            }
        }
        touched
    }

    /// Takes the answers that came in time after all; returns the names of devices to be asked again.
    fn take_returned(&mut self) -> HashSet<String> {
        let mut ask_again = HashSet::new();
        for (key, probed) in self.pool.returned() {
            match (self.known.get_mut(&key.0).filter(|known| known.seen.key() == key), probed) {
                (Some(known), Some(probed)) if !probed.gone => known.answered(probed),
                _ => drop(ask_again.insert(key.0)),
            }
        }
        ask_again
    }

    /// Says of every device that is still being read what that means by now.
    fn wait_for_silent(&mut self) -> Option<Duration> {
        let mut again = None;
        for (key, outcome) in self.pool.silent() {
            let Some(known) = self.known.get_mut(&key.0).filter(|known| known.seen.key() == *key)
            else {
                continue;
            };
            let soon = match outcome {
                Outcome::TimedOut => {
                    known.timed_out();
                    ASK_HUNG_AGAIN
                }
                Outcome::Slow | Outcome::Answered(_) => ASK_SLOW_AGAIN,
            };
            again = Some(again.map_or(soon, |again: Duration| again.min(soon)));
        }
        again
    }

    /// Whether a device that was shown before is not any more.
    fn take(&mut self, outcomes: HashMap<String, Outcome>) -> bool {
        let mut lost = false;
        for (name, outcome) in outcomes {
            let Some(known) = self.known.get_mut(&name) else { continue };
            match outcome {
                // What was known of it stays until it answers or has timed out: a disk that spins up must not flap.
                Outcome::Slow => {}
                Outcome::TimedOut => known.timed_out(),
                Outcome::Answered(probed) if probed.gone => {
                    // Left out; if it is there after all, the next scan finds it new.
                    lost |= known.was_shown();
                    self.known.remove(&name);
                }
                Outcome::Answered(probed) => known.answered(*probed),
            }
        }
        lost
    }
}

/// A device that is slow is asked about soon, one that hangs seldom: neither shows when it is back.
const ASK_SLOW_AGAIN: Duration = Duration::from_millis(500);
const ASK_HUNG_AGAIN: Duration = Duration::from_secs(30);

const RAM_DISK: u32 = 1;

/// A loop device itself, not a partition of one.
fn is_loop(name: &str) -> bool {
    name.strip_prefix("loop").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Drivers whose devices are never built from others: their `slaves` directory is not worth reading.
fn is_plain(name: &str) -> bool {
    ["loop", "sd", "nvme", "vd", "xvd", "sr", "mmcblk", "zram", "nbd", "rbd", "pmem"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}
