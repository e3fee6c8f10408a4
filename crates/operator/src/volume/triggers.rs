//! Which changes enqueue which Volumes.

use crate::{
    cache::Caches,
    trigger::{Change, Triggers},
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::ResourceExt;
use quarry_api::{NodeInventory, NodeJob, Volume, names, node_job::OwnerKind, volume::Phase};
use quarry_core::presence::is_renewal;

pub fn register(triggers: &mut Triggers<'_>) {
    triggers
        .on::<Volume>(|change, _, enqueue| enqueue(change.object().name_any()))
        .on::<PersistentVolume>(|change, _, enqueue| enqueue(change.object().name_any()))
        .on::<NodeJob>(|change, _, enqueue| {
            let owner = &change.object().spec.owner;
            if owner.kind == OwnerKind::Volume {
                enqueue(owner.name.clone());
            }
        })
        .on::<StorageClass>(|change, caches, enqueue| {
            let name = change.object().name_any();
            unsettled(caches, enqueue, |volume| volume.spec.storage_class_name == name);
        })
        .on::<Node>(|change, caches, enqueue| {
            if crate::node_inventory::node_differs(change) {
                let name = change.object().name_any();
                unsettled(caches, enqueue, |volume| volume.spec.node_name == name);
            }
        })
        .on::<Lease>(|change, caches, enqueue| {
            if !is_renewal(change.before, change.after) {
                let name = change.object().name_any();
                unsettled(caches, enqueue, |volume| {
                    names::agent_lease(&volume.spec.node_name) == name
                });
            }
        })
        .on::<NodeInventory>(inventory);
}

/// Volumes that are not at rest and match.
fn unsettled(caches: &Caches, enqueue: &mut dyn FnMut(String), concerns: impl Fn(&Volume) -> bool) {
    for volume in caches.store::<Volume>().each() {
        let settled = volume.phase() == Some(Phase::Available)
            && volume.metadata.deletion_timestamp.is_none();
        if !settled && concerns(&volume) {
            enqueue(volume.name_any());
        }
    }
}

/// Volumes whose device changed; all of the node when it has restored those that it could after a boot.
fn inventory(change: &Change<'_, NodeInventory>, caches: &Caches, enqueue: &mut dyn FnMut(String)) {
    let devices = |inventory: Option<&'_ NodeInventory>| {
        let status = inventory.and_then(|inventory| inventory.status.as_ref());
        status.map(|status| status.devices.clone()).unwrap_or_default()
    };
    let (before, after) = (devices(change.before), devices(change.after));
    let changed: Vec<&str> = before
        .iter()
        .filter(|device| !after.contains(device))
        .chain(after.iter().filter(|device| !before.contains(device)))
        .filter_map(|device| device.volume_uid.as_deref())
        .collect();
    let restored = change.differs(|inventory| {
        inventory.status.as_ref().map(|status| status.restored_boot_id == status.boot_id)
    });
    if changed.is_empty() && !restored {
        return;
    }
    let node = change.object().name_any();
    for volume in caches.store::<Volume>().each() {
        let concerned = restored || volume.uid().is_some_and(|uid| changed.contains(&uid.as_str()));
        if volume.spec.node_name == node && concerned {
            enqueue(volume.name_any());
        }
    }
}
