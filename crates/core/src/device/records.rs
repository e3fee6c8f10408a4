//! Which devices a record of data is about: retained data, a wipe remnant.
//!
//! Data stays where it is when a disk is partitioned, and when its partitions are removed: a record follows a disk to
//! its partitions and to what is built on them, and a partition to its disk and to the partitions that replace it.

use super::group::GroupedDevice;
use quarry_api::node_inventory::{RetainedData, WipeRemnant};

pub trait DataRecord {
    fn identity(&self) -> &str;
    /// The disk of a partition.
    fn disk(&self) -> &Option<String>;
    fn disk_mut(&mut self) -> &mut Option<String>;
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
}

/// Whether a partition of the same disk counts as a new one. One that was there before has its own place on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitions {
    New,
    Known,
}

/// Whether the data of the record is on a device. `is`: the device has this identity; `lies_on`: something below it has
/// it; `is_shown`: some device of the node has it.
pub fn concerns(
    record: &impl DataRecord,
    partitions: Partitions,
    is: impl Fn(&str) -> bool,
    lies_on: impl Fn(&str) -> bool,
    is_shown: impl Fn(&str) -> bool,
) -> bool {
    let identity = record.identity();
    let replaced =
        |disk: &str| partitions == Partitions::New && lies_on(disk) && !is_shown(identity);
    is(identity)
        || lies_on(identity)
        || record.disk().as_deref().is_some_and(|disk| is(disk) || replaced(disk))
}

/// The same, by what the agent knows of the node.
pub fn concerns_grouped(
    record: &impl DataRecord,
    partitions: Partitions,
    device: &GroupedDevice,
    known: &[GroupedDevice],
) -> bool {
    let has = |device: &GroupedDevice, identity: &str| {
        device.identified.candidates.iter().any(|one| one == identity)
    };
    concerns(
        record,
        partitions,
        |identity| has(device, identity),
        |identity| device.disk.iter().any(|one| one == identity),
        |identity| known.iter().any(|other| has(other, identity)),
    )
}
