//! Which changes enqueue which nodes.

use crate::{
    cache::Caches,
    device_claim_owner::{demand_differs, provisioner_differs},
    node_index::nodes_at,
    trigger::{Change, Triggers},
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::ResourceExt;
use quarry_api::{
    LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, Volume, names, node_inventory::Device,
    node_job::OwnerKind,
};
use quarry_core::{device_claim::pv, presence::is_renewal, unmanaged_pv::places};

/// Heartbeats change a Node every few seconds; only its coming, going, labels and taints matter here.
pub fn node_differs(change: &Change<'_, Node>) -> bool {
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
    change.differs(|node| (node.uid(), node.metadata.labels.clone(), taints(node)))
}

/// Whether the reported devices differ. An inventory without devices equals none at all.
pub fn inventory_devices_differ(change: &Change<'_, NodeInventory>) -> bool {
    devices(change.before) != devices(change.after)
}

fn devices(inventory: Option<&NodeInventory>) -> &[Device] {
    let status = inventory.and_then(|inventory| inventory.status.as_ref());
    status.map(|status| status.devices.as_slice()).unwrap_or_default()
}

pub fn register(triggers: &mut Triggers<'_>) {
    triggers
        .on::<Node>(|change, _, enqueue| {
            if node_differs(change) {
                enqueue(change.object().name_any());
            }
        })
        .on::<NodeInventory>(|change, _, enqueue| {
            enqueue(change.object().name_any());
            change.concerned_nodes.iter().cloned().for_each(enqueue);
        })
        .on::<PersistentVolume>(|change, caches, enqueue| {
            change.concerned_nodes.iter().cloned().for_each(&mut *enqueue);
            // That one of ours was bound or released counts, too.
            let found = change.object();
            if pv::is_ours(found) {
                let nodes = places(found);
                nodes.iter().flat_map(|place| nodes_at(caches, place)).for_each(enqueue);
            }
        })
        .on::<StorageClass>(|change, caches, enqueue| {
            let (name, differs) = (change.object().name_any(), provisioner_differs(change));
            for inventory in caches.store::<NodeInventory>().each() {
                let claims = &inventory.spec.device_claims;
                if differs || claims.iter().any(|claim| claim.storage_class_name == name) {
                    enqueue(inventory.name_any());
                }
            }
        })
        .on::<NodeJob>(|change, _, enqueue| {
            let spec = &change.object().spec;
            match spec.owner.kind {
                OwnerKind::Volume => {}
                OwnerKind::LocalVolumeSet | OwnerKind::LocalVolume => {
                    enqueue(spec.node_name.clone());
                }
            }
        })
        .on::<Lease>(|change, caches, enqueue| {
            if is_renewal(change.before, change.after) {
                return;
            }
            let lease = change.object().name_any();
            for inventory in caches.store::<NodeInventory>().each() {
                let name = inventory.name_any();
                let claims = &inventory.spec.device_claims;
                if !claims.is_empty() && names::agent_lease(&name) == lease {
                    enqueue(name);
                }
            }
        })
        .also_on::<Volume>(|change, _, enqueue| {
            // The ledger of a node that is gone is remembered until its last Volume is gone.
            if change.after.is_none() {
                enqueue(change.object().spec.node_name.clone());
            }
        })
        .also_on::<LocalVolumeSet>(|change, caches, enqueue| {
            if demand_differs(change) {
                enqueue_all(caches, enqueue);
            }
        })
        .also_on::<LocalVolume>(|change, caches, enqueue| {
            if demand_differs(change) {
                enqueue_all(caches, enqueue);
            }
        });
}

fn enqueue_all(caches: &Caches, enqueue: &mut dyn FnMut(String)) {
    caches.store::<NodeInventory>().keys().into_iter().for_each(enqueue);
}
