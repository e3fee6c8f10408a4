//! How the devices of one scan relate to each other: partitions, holders, uses, loop files.

use super::{node_tables::NodeTables, scan::DeviceObservation};
use crate::sys::DevNumber;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::PathBuf,
};

/// Looked up by kernel name.
pub struct DeviceRelations<'a> {
    partitions: HashMap<&'a str, Vec<&'a DeviceObservation>>,
    holders: HashMap<&'a str, Vec<&'a str>>,
    uses: HashMap<&'a str, usize>,
    pub(super) used: HashSet<&'a str>,
    loops: HashMap<&'a str, &'a PathBuf>,
    /// Of those that have partitions.
    numbers: HashMap<&'a str, DevNumber>,
}

impl<'a> DeviceRelations<'a> {
    pub fn new(seen: &'a [DeviceObservation], tables: &NodeTables) -> Self {
        let mut relations = DeviceRelations {
            partitions: HashMap::new(),
            holders: HashMap::new(),
            uses: HashMap::new(),
            used: HashSet::new(),
            loops: HashMap::new(),
            numbers: HashMap::new(),
        };
        for device in seen {
            if let Some(parent) = &device.parent {
                relations.partitions.entry(parent.as_str()).or_default().push(device);
            }
            if let Some((path, _)) = &device.backing {
                relations.loops.insert(&device.name, path);
            }
            for slave in &device.slaves {
                relations.holders.entry(slave.as_str()).or_default().push(device.name.as_str());
            }
        }
        relations.numbers = seen
            .iter()
            .filter(|device| relations.partitions.contains_key(device.name.as_str()))
            .map(|device| (device.name.as_str(), device.number))
            .collect();
        for device in seen {
            let used = tables.is_used(device.number, &device.name)
                || relations.holders.contains_key(device.name.as_str());
            if used {
                relations
                    .used
                    .extend([device.name.as_str()].into_iter().chain(device.parent.as_deref()));
            }
            // A partition in use means the disk in use, and the other way round.
            *relations.uses.entry(device.parent.as_deref().unwrap_or(&device.name)).or_default() +=
                usize::from(used);
        }
        for partition in relations.partitions.values().flatten() {
            let uses = partition
                .parent
                .as_deref()
                .and_then(|disk| relations.uses.get(disk))
                .copied()
                .unwrap_or_default();
            relations.uses.insert(&partition.name, uses);
        }
        relations
    }

    pub fn partitions(&self, disk: &str) -> &[&'a DeviceObservation] {
        self.partitions.get(disk).map(Vec::as_slice).unwrap_or_default()
    }

    /// Itself, its disk, or one of its partitions: an exclusive open of one of them blocks all.
    pub fn is_among(&self, device: &DeviceObservation, numbers: &BTreeSet<DevNumber>) -> bool {
        let disk = device.parent.as_deref().and_then(|disk| self.numbers.get(disk));
        let partitions = self.partitions(&device.name).iter().map(|partition| &partition.number);
        std::iter::once(&device.number)
            .chain(disk)
            .chain(partitions)
            .any(|number| numbers.contains(number))
    }

    /// The file behind a loop device or its partition.
    pub fn backing(&self, device: &DeviceObservation) -> Option<&'a PathBuf> {
        self.loops.get(device.parent.as_deref().unwrap_or(&device.name)).copied()
    }

    pub fn holders(&self, name: &str) -> &[&'a str] {
        self.holders.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// It is mounted, swapped to or held by another device, or a partition of it is.
    pub fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    /// How many of the disk and its partitions are in use.
    pub fn uses(&self, name: &str) -> usize {
        self.uses.get(name).copied().unwrap_or_default()
    }
}
