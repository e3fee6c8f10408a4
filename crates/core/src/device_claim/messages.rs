//! Texts about a device claim that more than one decision uses.

use super::{ClaimContext, NodeWorld, Stage, is_other_machine_now, other_ledger, pv};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::names;

/// A PersistentVolume with the name of the device claim's that was not created from it.
pub fn conflicting_pv(found: &PersistentVolume) -> String {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    if pv::is_ours(found) && found.metadata.deletion_timestamp.is_some() {
        let key = names::IDENTITY_ANNOTATION;
        return format!(
            "deletion of PersistentVolume {name} is blocked: its annotation {key} or spec.local.path was changed after it was created; restore the original value"
        );
    }
    format!(
        "PersistentVolume {name} exists and was not created from this device claim; delete it if it is not needed"
    )
}

/// "PersistentVolume local-pv-1: ", where there is one.
fn pv_prefix(ctx: &ClaimContext<'_>) -> String {
    ctx.pv
        .and_then(|found| found.metadata.name.as_ref())
        .map_or_else(String::new, |name| format!("PersistentVolume {name}: "))
}

pub fn node_gone(world: &NodeWorld, ctx: &ClaimContext<'_>) -> String {
    format!(
        "{}node {} does not exist; its device claims and PersistentVolumes are kept until it returns; {}",
        pv_prefix(ctx),
        world.name,
        release(world)
    )
}

pub fn frozen(world: &NodeWorld, ctx: &ClaimContext<'_>) -> String {
    // Another machine has another ledger, too.
    let lost = other_ledger(&world.inventory).filter(|_| !is_other_machine_now(world));
    if let Some(why) = lost {
        return format!("{}{why}", pv_prefix(ctx));
    }
    format!(
        "{}node {} is not the machine whose devices were claimed; nothing is assumed about its disks; {}",
        pv_prefix(ctx),
        world.name,
        release(world)
    )
}

fn release(world: &NodeWorld) -> String {
    let value = world.inventory.spec.machine_id.as_deref().unwrap_or(&world.name);
    format!(
        "to release them, annotate NodeInventory {} with {}={value}",
        world.name,
        names::RELEASE_DEVICE_CLAIMS_ANNOTATION
    )
}

/// How to release a device that a LocalVolume names.
pub fn remove_path(path: &str) -> String {
    format!("to release it, remove {path} from spec.storageClassDevices.devicePaths")
}

/// `None`: the device is there. `more`: what else to say if it is not.
pub fn missing(ctx: &ClaimContext<'_>, more: &str) -> Option<Stage> {
    let identity = &ctx.claim.identity;
    let place = ctx.moved.as_ref().map(|place| format!(" (it is now {place})")).unwrap_or_default();
    ctx.device.is_none().then(|| {
        Stage::Missing(format!(
            "device {identity} is missing{place}; reconnect it, and it is used again; {more}"
        ))
    })
}
