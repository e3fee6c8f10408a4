//! Which disks a hardware volume gets, where neither the settings nor the BMC choose.
//!
//! Redfish chooses disks for a volume of a given size. For one that takes all there is, the disks must be named: they are
//! picked from the drives that the BMC lists, and recorded in the snapshot before anything is erased.

use crate::bare_metal_host::raid_rules::disk_count;
use quarry_api::bare_metal_host::{HardwareRaidVolume, RaidConfig, raid::RaidList};
use quarry_ironic::inventory::{Drive, StorageController};
use std::collections::{BTreeMap, BTreeSet};

/// Drives of volumes, with their controller. Without one: of any.
type Taken = BTreeSet<(String, String)>;

/// Two controllers may give their drives the same names.
fn is_taken(taken: &Taken, controller: &str, drive: &str) -> bool {
    [controller, ""].iter().any(|one| taken.contains(&((*one).to_owned(), drive.to_owned())))
}

/// How many disks the volume takes: as few as its level needs, unless the settings say otherwise.
pub fn disks_of(volume: &HardwareRaidVolume) -> usize {
    let named = volume.physical_disks.len();
    let least = disk_count(volume.level.as_str()).map_or(1, |count| count.minimum);
    let asked = volume.number_of_physical_disks.unwrap_or(least);
    if named > 0 { named } else { usize::try_from(asked).unwrap_or(1) }
}

fn is_open(volume: &HardwareRaidVolume) -> bool {
    volume.size_gibibytes.is_none() && volume.physical_disks.is_empty()
}

/// The drives of the BMC must be known before these settings can be recorded.
pub fn is_needed(settings: &RaidConfig) -> bool {
    settings.hardware_raid_volumes.requested().is_some_and(|all| all.iter().any(is_open))
}

/// The settings with the disks of every volume that leaves them open. `Err`: what is missing, and the remedy.
pub fn pick(settings: RaidConfig, controllers: &[StorageController]) -> Result<RaidConfig, String> {
    let Some(volumes) = settings.hardware_raid_volumes.requested() else { return Ok(settings) };
    let named = volumes.iter().flat_map(|volume| {
        volume.physical_disks.iter().map(|disk| (volume.controller.clone(), disk.clone()))
    });
    let mut taken: Taken = named.collect();
    let mut volumes = volumes.to_vec();
    // Those with the most disks first: the others fit beside them more often.
    let mut order: Vec<usize> =
        (0..volumes.len()).filter(|index| is_open(&volumes[*index])).collect();
    order.sort_by_key(|index| std::cmp::Reverse(disks_of(&volumes[*index])));
    for index in order {
        let volume = &mut volumes[index];
        let (controller, disks) = choose(volume, controllers, &taken).ok_or_else(|| {
            format!(
                "spec.raid.hardwareRAIDVolumes[{index}] needs {} {}drives of one controller that no other volume uses, and the BMC lists {}; name controller and physicalDisks, or set sizeGibibytes",
                disks_of(volume),
                match volume.rotational {
                    Some(true) => "rotational ",
                    Some(false) => "solid-state ",
                    None => "",
                },
                listed(controllers)
            )
        })?;
        taken.extend(disks.iter().map(|disk| (controller.clone(), disk.clone())));
        volume.controller = controller;
        volume.physical_disks = disks;
    }
    Ok(RaidConfig { hardware_raid_volumes: RaidList::List(volumes), ..settings })
}

fn listed(controllers: &[StorageController]) -> String {
    let all: Vec<String> = controllers
        .iter()
        .map(|one| format!("{} at controller {:?}", one.drives.len(), one.id))
        .collect();
    if all.is_empty() { "no controller".to_owned() } else { all.join(", ") }
}

/// A drive that fails or is absent is no drive.
fn is_usable(drive: &Drive) -> bool {
    let is = |found: &Option<String>, bad: &[&str]| {
        found.as_deref().is_some_and(|found| bad.iter().any(|bad| found.eq_ignore_ascii_case(bad)))
    };
    drive.size.is_some_and(|size| size > 0)
        && !is(&drive.status.health, &["critical"])
        && !is(&drive.status.state, &["absent", "disabled"])
}

fn has_media(drive: &Drive, rotational: Option<bool>) -> bool {
    match (rotational, drive.media_type.as_deref()) {
        (None, _) => true,
        (Some(turns), Some(media)) => media.eq_ignore_ascii_case("hdd") == turns,
        // Unknown is no.
        (Some(_), None) => false,
    }
}

/// Disks of equal size and media at one controller; if there are not enough of them, the smallest that differ least.
fn choose(
    volume: &HardwareRaidVolume,
    controllers: &[StorageController],
    taken: &Taken,
) -> Option<(String, Vec<String>)> {
    let count = disks_of(volume);
    let mut best: Option<(u64, String, Vec<String>)> = None;
    let allowed = controllers
        .iter()
        .filter(|one| volume.controller.is_empty() || volume.controller == one.id);
    for controller in allowed {
        let mut kinds: BTreeMap<Option<String>, Vec<(u64, String)>> = BTreeMap::new();
        for drive in controller.drives.iter().filter(|drive| is_usable(drive)) {
            let is_free = |id: &String| !is_taken(taken, &controller.id, id);
            let Some(id) = drive.id.clone().filter(is_free) else { continue };
            if has_media(drive, volume.rotational) {
                let media = drive.media_type.as_ref().map(|media| media.to_ascii_lowercase());
                kinds.entry(media).or_default().push((drive.size.unwrap_or_default(), id));
            }
        }
        for drives in kinds.values_mut() {
            drives.sort();
            for window in drives.windows(count) {
                let (Some(first), Some(last)) = (window.first(), window.last()) else { continue };
                let waste = last.0 - first.0;
                let ids = window.iter().map(|(_, id)| id.clone()).collect();
                if best.as_ref().is_none_or(|(least, ..)| waste < *least) {
                    best = Some((waste, controller.id.clone(), ids));
                }
            }
        }
    }
    best.map(|(_, controller, ids)| (controller, ids))
}
