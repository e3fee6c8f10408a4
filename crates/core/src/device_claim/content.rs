//! What a device contains and what uses it, as far as the last status shows: facts for the planner and for `check.rs`.

use super::{ClaimContext, NodeWorld, retained_data_on, wipe_remnants_on};
use crate::device::{Reason, records::Partitions};
use quarry_api::{
    node_inventory::{ClaimContent, Device, DeviceClaim, DeviceReason, WipeRemnant},
    reason::Meaning,
    volume::VolumeMode,
};

/// A PersistentVolume of this device claim has existed: data on the device may be of its user.
pub fn was_published(claim: &DeviceClaim) -> bool {
    claim.last_pv.is_some()
}

/// Whether the last scan found data on the device.
pub fn shows_data(device: &Device) -> bool {
    device.means(Meaning::Data)
}

/// The file systems that are mounted as they are where no fsType is given.
const MOUNTABLE: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "btrfs"];

/// What to do about a device with another content.
pub const UNFIT_REMEDY: &str = "set fsType to the file system on the device, set volumeMode to Block to publish the device as it is, or name another device";

/// Why these signatures are not one file system that fits `fs_type`: continues "sdb …". A blank device has none and fits.
///
/// Mounting a member of an array or of a volume group would show an old or partial state of it, and change it.
pub fn unfit_file_system(signatures: &[&str], fs_type: Option<&str>) -> Option<String> {
    let fits = |found: &str| fs_type.map_or(MOUNTABLE.contains(&found), |wanted| wanted == found);
    match signatures {
        [] => None,
        [one] if fits(one) => None,
        found => {
            let found = found.join(", ");
            Some(match fs_type {
                Some(wanted) => format!("contains {found}, and fsType is {wanted}"),
                None => format!(
                    "contains {found}; without fsType only {} are mounted as they are",
                    MOUNTABLE.join(", ")
                ),
            })
        }
    }
}

/// The same of a device in the NodeInventory that would be published in this mode.
pub fn unfit_device(device: &Device, mode: VolumeMode, fs_type: Option<&str>) -> Option<String> {
    let signatures = device.reasons.iter().filter(|found| found.reason == Reason::Signature);
    let signatures: Vec<&str> = signatures.map(|found| found.detail.as_str()).collect();
    match mode {
        VolumeMode::Block => None,
        VolumeMode::Filesystem => unfit_file_system(&signatures, fs_type),
    }
}

/// What uses the device besides a PersistentVolume of the device claim, as text.
pub fn user(ctx: &ClaimContext<'_>) -> Option<String> {
    let device = ctx.device?;
    if let Some(rival) = ctx.rival {
        return Some(format!("PersistentVolume {rival} is on {}", device.name));
    }
    let used = device.reasons.iter().find(|found| found.reason.means(Meaning::InUse))?;
    Some(format!("{} {}", device.name, used.message()))
}

/// Why no data can be stored on the device, as text: it is dead, read-only or unreadable. At once, because a disk that fails
/// now and then never stays the same for the settling time; only what may pass in a moment gets that time.
pub fn unusable(device: &Device) -> Option<String> {
    let may_pass = [Reason::TimedOut, Reason::Suspended, Reason::AmbiguousIdentity];
    let counts = |found: &&DeviceReason| {
        found.reason.means(Meaning::Unusable)
            && (device.settled || !may_pass.iter().any(|one| found.reason == *one))
    };
    let found = device.reasons.iter().find(counts)?;
    Some(format!("{} {}", device.name, found.message()))
}

/// Retained data blocks its device, except for a path that was named after the data was retained.
pub fn blocks_reuse(world: &NodeWorld, claim: &DeviceClaim, device: &Device) -> bool {
    !retained_data_on(world, device, partitions(claim)).is_empty()
        && (claim.content == ClaimContent::Blank || was_published(claim))
}

/// The data of another device claim that a Block PersistentVolume of this one would expose. Its own class may ask for
/// Quick.
pub fn exposed_remnant<'a>(
    world: &'a NodeWorld,
    claim: &DeviceClaim,
    device: &Device,
) -> Option<&'a WipeRemnant> {
    let own =
        |left: &&WipeRemnant| claim.last_pv.as_ref().is_some_and(|last| last.uid == left.pv_uid);
    let left = wipe_remnants_on(world, device, partitions(claim));
    left.into_iter().find(|left| claim.volume_mode == VolumeMode::Block && !own(left))
}

/// A partition that was claimed before another one was removed has its own place on the disk.
pub fn partitions(claim: &DeviceClaim) -> Partitions {
    if was_published(claim) { Partitions::Known } else { Partitions::New }
}
