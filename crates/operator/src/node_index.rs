//! The indexes of the caches: which nodes a PersistentVolume or another node's devices concern.

use crate::cache::Caches;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::ResourceExt;
use quarry_api::NodeInventory;
use quarry_core::unmanaged_pv::{HOSTNAME_LABEL, Place};

/// Other nodes that show or claim an identity which this inventory gained or lost.
pub fn follow_inventory(
    before: Option<&NodeInventory>,
    after: Option<&NodeInventory>,
    caches: &Caches,
) -> Vec<String> {
    let Some(name) = after.or(before).map(ResourceExt::name_any) else { return Vec::new() };
    let status = after.and_then(|inventory| inventory.status.as_ref());
    let devices = status.map(|status| status.devices.as_slice()).unwrap_or_default();
    let spec = after.map(|inventory| &inventory.spec);
    caches.identities().follow(&name, devices, spec).into_iter().collect()
}

/// The nodes that the PersistentVolume is on, before and after, where that changes what they must know.
pub fn follow_pv(
    before: Option<&PersistentVolume>,
    after: Option<&PersistentVolume>,
    caches: &Caches,
) -> Vec<String> {
    let Some(name) = after.or(before).map(ResourceExt::name_any) else { return Vec::new() };
    let places = caches.unmanaged_pvs().follow(&name, after);
    places.iter().flat_map(|place| nodes_at(caches, place)).collect()
}

pub fn nodes_at(caches: &Caches, place: &Place) -> Vec<String> {
    let is_host = |node: &Node, host: &str| {
        node.labels().get(HOSTNAME_LABEL).is_some_and(|label| label == host)
    };
    match place {
        Place::NodeName(name) => vec![name.clone()],
        // Nearly every node is named like its host: only the others are searched for.
        Place::Host(host) if caches.get::<Node>(host).is_some_and(|node| is_host(&node, host)) => {
            vec![host.clone()]
        }
        Place::Host(host) => caches
            .all::<Node>()
            .iter()
            .filter(|node| is_host(node, host))
            .map(|node| node.name_any())
            .collect(),
        Place::Anywhere => caches.all::<Node>().iter().map(|node| node.name_any()).collect(),
    }
}
