//! Which disk the image is written to.
//!
//! Names of arrays change with every boot, and the mark of a root volume is known only to the agent that built it. What
//! lasts is that an array is one (`/dev/md…`), and whether it is the smaller or the larger of two. Ironic compares sizes
//! as fractions of a GiB, and knows no range: one bound is all that a hint can have. Where no bound selects one volume
//! alone, the image is not deployed.

use super::{phases::hint, pick::disks_of, verify};
use crate::bare_metal_host::raid_rules::has_hints;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        HardwareRaidVolume, RaidConfig, RootDeviceHints, SoftwareRaidVolume, hardware::Storage,
    },
};
use quarry_ironic::{LogicalDisk, SizeGb};
use serde_json::{Map, Value, json};

/// The array that the image is written to: the one that is marked, else the first.
pub fn root_array(volumes: &[SoftwareRaidVolume]) -> usize {
    volumes.iter().position(|volume| volume.root_volume).unwrap_or_default()
}

/// Recorded when provisioning begins. `None`: no hint of the spec.
pub fn spec_hints(host: &BareMetalHost) -> Option<RootDeviceHints> {
    host.spec.root_device_hints.clone().filter(|_| has_hints(host))
}

/// `root_device` of the node. Empty: Ironic takes the smallest disk of 4 GiB or more. `Err`: no hint selects the
/// volume alone. `reported`: the hardware volumes that Ironic read from the BMC; `disks`: what the last inspection found.
pub fn root_device(
    hints: Option<&RootDeviceHints>,
    snapshot: Option<&RaidConfig>,
    reported: &[LogicalDisk],
    disks: &[Storage],
) -> Result<Map<String, Value>, String> {
    if let Some(hints) = hints {
        return Ok(hint(hints));
    }
    let Some(snapshot) = snapshot else { return Ok(Map::new()) };
    let arrays = snapshot.software_raid_volumes.requested().unwrap_or_default();
    let volumes = snapshot.hardware_raid_volumes.requested().unwrap_or_default();
    match (volumes.first(), arrays) {
        (Some(root), _) => volume_hint(root, volumes, reported, disks),
        (None, []) => Ok(Map::new()),
        (None, [_]) => Ok(map(json!({"name": ARRAY}))),
        (None, arrays) => array_hint(arrays, disks),
    }
}

/// The name of every array contains this, and that of no other disk.
const ARRAY: &str = "<in> /dev/md";

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

/// Between which sizes an array is, in GiB: partition tables and superblocks take less than one GiB of each member.
fn bounds(arrays: &[SoftwareRaidVolume], index: usize, disks: &[Storage]) -> Option<(f64, f64)> {
    let array = arrays.get(index)?;
    let members = members(array, disks)?;
    let share = match array.size_gibibytes {
        Some(size) => size as f64,
        // What the other arrays leave of the smallest member.
        None => {
            let taken = |disk: &&Storage| -> f64 {
                let others = arrays.iter().enumerate().filter(|(other, _)| *other != index);
                let on_it = others.filter(|(_, other)| {
                    members_of(other, disks).iter().any(|one| std::ptr::eq(*one, *disk))
                });
                on_it.map(|(_, other)| other.size_gibibytes.unwrap_or_default() as f64).sum()
            };
            let of_all = members_of(array, disks);
            let left = of_all.iter().map(|disk| disk.size_bytes as f64 / GIB - taken(disk));
            left.fold(f64::INFINITY, f64::min)
        }
    };
    if !share.is_finite() || share <= 0.0 {
        return None;
    }
    let factor = match array.level.as_str() {
        "0" => members as f64,
        "1+0" => (members / 2) as f64,
        _ => 1.0,
    };
    Some((factor * (share - 1.0), factor * share))
}

/// How many members an array has. `None`: nothing says so.
fn members(array: &SoftwareRaidVolume, disks: &[Storage]) -> Option<usize> {
    let named = array.physical_disks.len();
    let count = if named > 0 { named } else { members_of(array, disks).len() };
    (count > 1).then_some(count)
}

/// The disks that an inspection found for the hints of an array: all of them without hints.
fn members_of<'a>(array: &SoftwareRaidVolume, disks: &'a [Storage]) -> Vec<&'a Storage> {
    let plain = disks.iter().filter(|disk| !disk.name.starts_with("/dev/md"));
    let hints = &array.physical_disks;
    plain.filter(|disk| hints.is_empty() || hints.iter().any(|one| is_meant(one, disk))).collect()
}

fn is_meant(hints: &RootDeviceHints, disk: &Storage) -> bool {
    let exact = [
        (&hints.hctl, &disk.hctl),
        (&hints.serial_number, &disk.serial_number),
        (&hints.wwn, &disk.wwn),
        (&hints.wwn_with_extension, &disk.wwn_with_extension),
        (&hints.wwn_vendor_extension, &disk.wwn_vendor_extension),
    ];
    let part =
        |hint: &str, found: &str| found.to_ascii_lowercase().contains(&hint.to_ascii_lowercase());
    let named = disk.alternate_names.iter().chain([&disk.name]);
    exact.iter().all(|(hint, found)| hint.is_empty() || hint.eq_ignore_ascii_case(found))
        && (hints.device_name.is_empty() || named.into_iter().any(|one| *one == hints.device_name))
        && part(&hints.model, &disk.model)
        && part(&hints.vendor, &disk.vendor)
        && disk.size_bytes as f64 / GIB >= hints.min_size_gigabytes as f64
        && hints.rotational.is_none_or(|turns| turns == disk.rotational)
}

/// Of two arrays, by the one bound that only the root array is within.
fn array_hint(
    arrays: &[SoftwareRaidVolume],
    disks: &[Storage],
) -> Result<Map<String, Value>, String> {
    let root = root_array(arrays);
    let other = usize::from(root == 0);
    let found = bounds(arrays, root, disks).zip(bounds(arrays, other, disks));
    let size = found.and_then(|((low, high), (other_low, other_high))| {
        if high.ceil() <= other_low {
            return Some(format!("<= {}", high.ceil()));
        }
        (other_high.ceil() <= low).then(|| format!(">= {}", other_high.ceil()))
    });
    let size = size.ok_or(
        "the arrays of spec.raid.softwareRAIDVolumes cannot be distinguished by their sizes after a reboot; set spec.rootDeviceHints, or other sizes",
    )?;
    Ok(map(json!({"name": ARRAY, "size": size})))
}

fn gib(disk: &Storage) -> f64 {
    disk.size_bytes as f64 / GIB
}

/// The disks that an inspection found before the volumes took some of them, and that are of a size for it; and whether
/// the volumes took them all, so that none of them is shown to an image.
fn members_by_size<'a>(
    volumes: &[HardwareRaidVolume],
    reported: &[LogicalDisk],
    disks: &'a [Storage],
) -> (Vec<&'a Storage>, bool) {
    let is_member = |disk: &Storage, volume: &HardwareRaidVolume| {
        let found = reported.iter().find(|found| verify::is_volume(volume, found));
        let Some(SizeGb::Gib(size)) = found.map(|found| found.size_gb) else { return false };
        let count = disks_of(volume) as f64;
        let parts = match volume.level.as_str() {
            "0" | "JBOD" => count,
            "5" => count - 1.0,
            "6" => count - 2.0,
            "1+0" | "5+0" | "6+0" => count / 2.0,
            _ => 1.0,
        };
        let share = size as f64 / parts.max(1.0);
        // A volume without a size takes all of its disks, which are equal or nearly so.
        let most = if volume.size_gibibytes.is_some() { f64::INFINITY } else { share * 1.1 + 1.0 };
        (share * 0.9..=most).contains(&gib(disk))
    };
    let fits = |disk: &&Storage| volumes.iter().any(|volume| is_member(disk, volume));
    let members: Vec<&Storage> = disks.iter().filter(fits).collect();
    let taken: usize = volumes.iter().map(disks_of).sum();
    let all_taken = members.len() <= taken;
    (members, all_taken)
}

/// The first volume, as large as the BMC reports it, in whole GiB. A bound must select neither another volume nor a disk
/// that is no volume, which the inspection shows.
fn volume_hint(
    root: &HardwareRaidVolume,
    volumes: &[HardwareRaidVolume],
    reported: &[LogicalDisk],
    disks: &[Storage],
) -> Result<Map<String, Value>, String> {
    let size = |disk: &LogicalDisk| match disk.size_gb {
        SizeGb::Gib(size) => size as f64,
        SizeGb::Max => 0.0,
    };
    let named = |disk: &&LogicalDisk| {
        let shown = disk.name.as_deref().or(disk.volume_name.as_deref());
        !root.name.is_empty() && shown == Some(root.name.as_str())
    };
    let same = |disk: &&LogicalDisk| verify::is_volume(root, disk);
    let found = reported.iter().filter(same).find(named).or_else(|| reported.iter().find(same));
    let Some(found) = found else {
        return Err("Ironic does not know the volumes of status.provisioning.raid, so that the root disk cannot be found; set spec.rootDeviceHints".to_owned());
    };
    let own = size(found);
    let others: Vec<f64> =
        reported.iter().filter(|disk| !std::ptr::eq(*disk, found)).map(size).collect();
    let (members, all_taken) = members_by_size(volumes, reported, disks);
    let selects_one = |fits: &dyn Fn(f64) -> bool| {
        let mut shown = disks.iter().filter(|disk| fits(gib(disk)));
        !others.iter().any(|size| fits(*size))
            && shown.all(|disk| all_taken && members.iter().any(|one| std::ptr::eq(*one, disk)))
    };
    if selects_one(&|size| size >= own) {
        return Ok(map(json!({"size": format!(">= {own}")})));
    }
    if selects_one(&|size| size <= own + 1.0) {
        return Ok(map(json!({"size": format!("<= {}", own + 1.0)})));
    }
    Err("the root volume of spec.raid.hardwareRAIDVolumes cannot be distinguished from the other volumes and disks by its size; set spec.rootDeviceHints".to_owned())
}
