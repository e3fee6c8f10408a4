//! Which devices a record of data is about: retained data, a wipe remnant.
//!
//! Data stays where it is when a disk is partitioned, and when its partitions are removed: a record follows a disk to
//! its partitions and to what is built on them, and a partition to its disk and to the partitions that replace it.

use super::{group::GroupedDevice, identity::same_identity};
use quarry_api::node_inventory::{RetainedData, WipeRemnant};
use std::borrow::Cow;

pub trait DataRecord {
    fn identity(&self) -> &str;
    /// The disk of a partition.
    fn disk(&self) -> &Option<String>;
    fn disk_mut(&mut self) -> &mut Option<String>;
    /// Everything that identified the device; empty: only its identity is known.
    fn identifiers(&self) -> &[String];
    fn identifiers_mut(&mut self) -> &mut Vec<String>;

    /// Whether a device with these candidates is the one that the data is on, by the strongest form that both have.
    fn is_device(&self, candidates: &[String]) -> bool {
        match self.identifiers() {
            [] => candidates.iter().any(|one| one == self.identity()),
            known => same_identity(known, candidates),
        }
    }
}

impl DataRecord for RetainedData {
    fn identity(&self) -> &str {
        &self.identity
    }
    fn disk(&self) -> &Option<String> {
        &self.disk
    }
    fn disk_mut(&mut self) -> &mut Option<String> {
        &mut self.disk
    }
    fn identifiers(&self) -> &[String] {
        &self.identifiers
    }
    fn identifiers_mut(&mut self) -> &mut Vec<String> {
        &mut self.identifiers
    }
}

impl DataRecord for WipeRemnant {
    fn identity(&self) -> &str {
        &self.identity
    }
    fn disk(&self) -> &Option<String> {
        &self.disk
    }
    fn disk_mut(&mut self) -> &mut Option<String> {
        &mut self.disk
    }
    fn identifiers(&self) -> &[String] {
        &self.identifiers
    }
    fn identifiers_mut(&mut self) -> &mut Vec<String> {
        &mut self.identifiers
    }
}

/// Whether a partition of the same disk counts as a new one. One that was there before has its own place on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitions {
    New,
    Known,
}

/// Whether the data of the record is on a device: the one with the candidates `own`, on a disk with the candidates
/// `below`. `all`: the candidates of every device of the node.
pub fn concerns<'a>(
    record: &impl DataRecord,
    partitions: Partitions,
    own: &[String],
    below: &[String],
    mut all: impl Iterator<Item = Cow<'a, [String]>>,
) -> bool {
    let has = |candidates: &[String], disk: &String| candidates.contains(disk);
    record.is_device(own)
        || record.is_device(below)
        || record.disk().as_ref().is_some_and(|disk| {
            has(own, disk)
                || (partitions == Partitions::New
                    && has(below, disk)
                    && !all.any(|candidates| record.is_device(&candidates)))
        })
}

/// The same, by what the agent knows of the node.
pub fn concerns_grouped(
    record: &impl DataRecord,
    partitions: Partitions,
    device: &GroupedDevice,
    known: &[GroupedDevice],
) -> bool {
    let all = known.iter().map(|other| Cow::Borrowed(other.identified.candidates.as_slice()));
    concerns(record, partitions, &device.identified.candidates, &device.disk, all)
}
