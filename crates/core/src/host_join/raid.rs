//! Software RAID of a host, as its node sees it: arrays, members, and to which request they belong.
//!
//! An array and its members are found in the devices of the node alone: a member names the array that it is part of.
//! Physical disks of hardware RAID are not visible on a node, and its volumes are disks like others. Decides nothing: a
//! member is refused because of its holder and its signature. Next to read: `mod.rs`.

use quarry_api::{bare_metal_host::RaidConfig, node_inventory::Device, reason::Reason};
use serde::Serialize;
use std::collections::BTreeSet;

/// The signature of a member.
const MEMBER: &str = "linux_raid_member";

/// An assembled array of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Array {
    /// The kernel's name, which may be another one after a reboot.
    pub name: String,
    /// As in `spec.raid`, where it has such a level: `raid10` is 1+0.
    pub level: String,
    pub size: i64,
    /// Partitions or disks, by name.
    pub members: Vec<String>,
}

/// What a device of a node is in software RAID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// An array: a device like others.
    Array(&'a Array),
    /// A partition or a disk that is part of an array.
    Member(&'a Array),
    /// It has the signature of a member, and no array that is assembled contains it.
    Unassembled,
    /// A disk whose partitions are part of arrays.
    Disk(Vec<&'a Array>),
}

/// The level of an array by its type, as lsblk names it; `None`: not an array.
pub(crate) fn level(kind: &str) -> Option<String> {
    let level = kind.strip_prefix("raid")?;
    if level.is_empty() || !level.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(if level == "10" { "1+0".to_owned() } else { level.to_owned() })
}

fn is_part_of(device: &Device, array: &str) -> bool {
    device.reasons.iter().any(|one| one.reason == Reason::HasHolders && one.detail == array)
}

/// The arrays of a node, by name.
pub fn arrays(devices: &[Device]) -> Vec<Array> {
    let mut found: Vec<Array> = devices
        .iter()
        .filter_map(|device| {
            let members = devices.iter().filter(|one| is_part_of(one, &device.name));
            Some(Array {
                name: device.name.clone(),
                level: level(&device.kind)?,
                size: device.size,
                members: members.map(|one| one.name.clone()).collect(),
            })
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// `None`: it has nothing to do with software RAID.
pub fn role<'a>(devices: &[Device], arrays: &'a [Array], name: &str) -> Option<Role<'a>> {
    let device = devices.iter().find(|one| one.name == name)?;
    if let Some(array) = arrays.iter().find(|array| array.name == name) {
        return Some(Role::Array(array));
    }
    if let Some(array) = arrays.iter().find(|array| is_part_of(device, &array.name)) {
        return Some(Role::Member(array));
    }
    if device.fs_type.as_deref() == Some(MEMBER) {
        return Some(Role::Unassembled);
    }
    let partitions: BTreeSet<&str> = devices
        .iter()
        .filter(|one| one.parent.as_deref() == Some(name))
        .map(|one| one.name.as_str())
        .collect();
    let on_it = |array: &&Array| array.members.iter().any(|one| partitions.contains(one.as_str()));
    let with: Vec<&Array> = arrays.iter().filter(on_it).collect();
    (!with.is_empty()).then_some(Role::Disk(with))
}

/// The entry of `softwareRAIDVolumes` that an array is. Sizes are of no use: an array is smaller than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    Volume(usize),
    /// Several volumes have its level.
    OneOfSeveral,
    No,
}

pub fn requested(config: &RaidConfig, array: &Array) -> Requested {
    let hardware = config.hardware_raid_volumes.requested().unwrap_or_default();
    let software = config.software_raid_volumes.requested().unwrap_or_default();
    // Software RAID beside hardware RAID is ignored.
    let volumes = software.iter().enumerate().filter(|_| hardware.is_empty());
    let mut with: Vec<usize> = volumes
        .filter(|(_, volume)| volume.level.as_str() == array.level)
        .map(|(at, _)| at)
        .collect();
    match (with.len(), with.pop()) {
        (1, Some(at)) => Requested::Volume(at),
        (0, _) | (_, None) => Requested::No,
        (_, Some(_)) => Requested::OneOfSeveral,
    }
}
