//! What a device contains and what uses it, as far as the last status shows: facts for the planner and for `check.rs`.

use super::{ClaimContext, NodeWorld, retained_data_on, wipe_remnants_on};
use crate::device::records::Partitions;
use quarry_api::{
    node_inventory::{ClaimContent, Device, DeviceClaim, WipeRemnant},
    reason::Meaning,
    volume::VolumeMode,
};

/// The round of a device claim that was never published.
pub const FIRST_ROUND: i64 = 1;

/// Whether the last scan found data on the device.
pub fn shows_data(device: &Device) -> bool {
    device.means(Meaning::Data)
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

/// Why no data can be stored on the device, as text: it is dead, read-only or unreadable. Only once it has been so for the
/// settling time: a disk that answers slowly for a moment is not withdrawn.
pub fn unusable(device: &Device) -> Option<String> {
    let found = device.reasons.iter().find(|found| found.reason.means(Meaning::Unusable))?;
    device.settled.then(|| format!("{} {}", device.name, found.message()))
}

/// Retained data blocks its device, except for a path that was named after the data was retained.
pub fn blocks_reuse(world: &NodeWorld, claim: &DeviceClaim, device: &Device) -> bool {
    !retained_data_on(world, device, partitions(claim)).is_empty()
        && (claim.content == ClaimContent::Blank || claim.round > FIRST_ROUND)
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
    if claim.round > FIRST_ROUND { Partitions::Known } else { Partitions::New }
}
