//! From a device that is new or changed to the question for its probe: sysfs and udev are read in detail on the way.
//!
//! One device at a time, when a thread is free for the next probe (`pool.rs`): the first scan of many devices reads
//! sysfs while the devices themselves are being read. Next to read: `details.rs`.

use super::{
    details::{self, Traits},
    merge::DeviceRecord,
    pool::Key,
    probe::{Certainty, Question},
    relations::DeviceRelations,
    scan::{DeviceObservation, Reach},
    sysfs::Sysfs,
    udev::Database,
};
use crate::{host_root::HostRoot, sys::DevNumber};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, btree_map::Entry},
    path::PathBuf,
    sync::Arc,
};

pub struct DetailReader<'a> {
    pub host: &'a Arc<HostRoot>,
    pub reach: Reach,
    pub certainty: Certainty,
    pub known: &'a mut BTreeMap<String, DeviceRecord>,
    pub relations: &'a DeviceRelations<'a>,
    pub udev: &'a Database,
    /// Devices whose last probe has not come back.
    pub stuck: &'a HashSet<Key>,
    /// Devices that are not opened exclusively: a process that mounts them now must not fail.
    pub spared: &'a BTreeSet<DevNumber>,
}

impl DetailReader<'_> {
    /// Reads in detail what is `fresh` or of which udev says something new; gives back what is to be asked of it.
    pub fn detail(
        &mut self,
        sysfs: &mut Sysfs,
        device: &DeviceObservation,
        fresh: bool,
    ) -> Option<Question> {
        let stamp = self.udev.stamp(device.number);
        if !fresh && self.known.get(&device.name).is_some_and(|known| known.stamp == stamp) {
            return None;
        }
        let directory = sysfs.device(&device.name)?;
        let properties = stamp.and_then(|_| self.udev.read(device.number));
        let (mut facts, traits) =
            details::read(self.host, sysfs, &directory, device, properties.as_ref());
        facts.observed_only = !self.may_hold(device);
        let question = fresh.then(|| self.question(device, traits)).flatten();
        let stuck = question.is_some() && self.stuck.contains(&device.key());
        let known = match self.known.entry(device.name.clone()) {
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                known.renew(device, stamp, facts, traits);
                known
            }
            Entry::Vacant(entry) => entry.insert(DeviceRecord::new(device, stamp, facts, traits)),
        };
        known.uses = self.relations.uses(&device.name);
        if stuck {
            known.timed_out();
        } else if fresh && question.is_none() {
            known.unasked();
        }
        question.filter(|_| !stuck)
    }

    /// `None` for a device that has nothing to read or would only wait.
    fn question(&self, device: &DeviceObservation, traits: Traits) -> Option<Question> {
        let maybe_without_medium = device.size == 0 && device.place.contains("/host");
        if traits.suspended || (device.size == 0 && !maybe_without_medium) {
            return None;
        }
        let partitions = self.relations.partitions(&device.name);
        Some(Question {
            host: Arc::clone(self.host),
            name: device.name.clone(),
            number: device.number,
            diskseq: device.diskseq,
            size: device.size,
            traits,
            exclusively: self.may_hold(device)
                && (self.spared.is_empty() || !self.relations.is_among(device, self.spared)),
            backing: device.backing.as_ref().map(|(path, _)| path.clone()),
            certainty: self.certainty,
            lines: partitions.iter().any(|partition| self.udev.stamp(partition.number).is_none()),
        })
    }

    fn may_hold(&self, device: &DeviceObservation) -> bool {
        let is_own =
            |path: &PathBuf| self.host.at(self.host.on_node(path)).starts_with(self.host.data());
        match self.reach {
            Reach::Everything => true,
            Reach::OwnLoops => self.relations.backing(device).is_some_and(is_own),
        }
    }
}
