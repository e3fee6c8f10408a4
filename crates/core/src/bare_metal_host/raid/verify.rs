//! What is on the host, compared with the snapshot.
//!
//! Hardware: Ironic reads the volumes from the BMC, and that decides. Software: Ironic only repeats the request; what an
//! inspection or a node shows decides.

use super::has_arrays;
use crate::host_join::raid::Array;
use quarry_api::bare_metal_host::{HardwareRaidVolume, RaidConfig, hardware::Storage};
use quarry_ironic::{LogicalDisk, SizeGb};

/// Whether what the BMC reports is what the snapshot has, in any order. `Err`: the difference.
/// A controller may round a size, and may name a volume in its own way.
pub fn compare_hardware(
    volumes: &[HardwareRaidVolume],
    reported: &[LogicalDisk],
) -> Result<(), String> {
    let mut left: Vec<&LogicalDisk> = reported.iter().collect();
    // Those of a given size first: one that takes the rest fits any.
    let mut order: Vec<&HardwareRaidVolume> = volumes.iter().collect();
    order.sort_by_key(|volume| volume.size_gibibytes.is_none());
    let mut missing = Vec::new();
    for volume in order {
        match left.iter().position(|disk| is_volume(volume, disk)) {
            Some(position) => drop(left.remove(position)),
            None => missing.push(describe(volume)),
        }
    }
    let mut parts = Vec::new();
    if !missing.is_empty() {
        parts.push(format!("missing: {}", missing.join(", ")));
    }
    if !left.is_empty() {
        let all: Vec<String> = left.iter().map(|disk| describe_reported(disk)).collect();
        parts.push(format!("not requested: {}", all.join(", ")));
    }
    if parts.is_empty() { Ok(()) } else { Err(parts.join("; ")) }
}

pub fn is_volume(volume: &HardwareRaidVolume, disk: &LogicalDisk) -> bool {
    let fits = match (volume.size_gibibytes, disk.size_gb) {
        (None, SizeGb::Gib(found)) => found > 0,
        (None, SizeGb::Max) => true,
        (Some(wanted), SizeGb::Gib(found)) => {
            let wanted = u64::try_from(wanted).unwrap_or_default();
            wanted.abs_diff(found) <= (wanted / 100).max(1)
        }
        (Some(_), SizeGb::Max) => false,
    };
    fits && disk.raid_level == volume.level.as_str()
}

fn describe(volume: &HardwareRaidVolume) -> String {
    let size = volume.size_gibibytes.map_or("any size".to_owned(), |size| format!("{size} GiB"));
    format!("RAID {} of {size}", volume.level)
}

pub fn describe_reported(disk: &LogicalDisk) -> String {
    let size = match disk.size_gb {
        SizeGb::Gib(size) => format!("{size} GiB"),
        SizeGb::Max => "unknown size".to_owned(),
    };
    let name = disk.name.as_deref().or(disk.volume_name.as_deref());
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    format!("RAID {} of {size}{name}", disk.raid_level)
}

/// Arrays of the kernel, by their names.
pub fn arrays(storage: &[Storage]) -> Vec<&Storage> {
    storage.iter().filter(|disk| is_array(disk)).collect()
}

fn is_array(disk: &Storage) -> bool {
    let names = disk.alternate_names.iter().chain([&disk.name]);
    names.into_iter().any(|name| name.starts_with("/dev/md"))
}

/// Whether an inspection found the arrays of the snapshot: it shows no levels. `None`: the snapshot has none.
pub fn compare_software(snapshot: &RaidConfig, storage: &[Storage]) -> Option<Result<(), String>> {
    if !has_arrays(snapshot) {
        return None;
    }
    let found = arrays(storage).iter().map(|disk| (None, disk.size_bytes)).collect();
    Some(compare(snapshot, found))
}

/// Whether the node of the host has the arrays of the snapshot.
pub fn compare_arrays(snapshot: &RaidConfig, arrays: &[Array]) -> Result<(), String> {
    compare(snapshot, arrays.iter().map(|array| (Some(array.level.as_str()), array.size)).collect())
}

/// Partition table and superblock take less than a GiB of each array.
fn compare(snapshot: &RaidConfig, mut left: Vec<(Option<&str>, i64)>) -> Result<(), String> {
    let wanted = snapshot.software_raid_volumes.requested().unwrap_or_default();
    let mut order: Vec<_> = wanted.iter().collect();
    order.sort_by_key(|volume| volume.size_gibibytes.is_none());
    let found = left.len();
    for volume in order {
        let fits = |(level, bytes): &(Option<&str>, i64)| {
            // The size is that of each member: an array of another level is larger.
            let is_mirror = volume.level.as_str() == "1";
            let sized = volume.size_gibibytes.is_none_or(|size| {
                *bytes > (size - 1) << 30 && (!is_mirror || *bytes <= size << 30)
            });
            sized && level.is_none_or(|level| level == volume.level.as_str())
        };
        let Some(position) = left.iter().position(fits) else {
            let size =
                volume.size_gibibytes.map_or("any size".into(), |size| format!("{size} GiB"));
            return Err(format!(
                "no array of RAID {} and {size} among the {found} that were found",
                volume.level
            ));
        };
        left.remove(position);
    }
    match left.len() {
        0 => Ok(()),
        more => Err(format!("{more} arrays more than were requested")),
    }
}

/// Names of disks that are RAID volumes, as far as an inspection can tell.
pub fn made_by_hand(storage: &[Storage]) -> Vec<String> {
    const MODELS: [&str; 5] = ["perc", "logical volume", "megaraid", "smart array", "raid"];
    let is_volume = |disk: &&Storage| {
        let text = format!("{} {}", disk.vendor, disk.model).to_ascii_lowercase();
        is_array(disk) || MODELS.iter().any(|model| text.contains(model))
    };
    storage.iter().filter(is_volume).map(|disk| disk.name.clone()).collect()
}
