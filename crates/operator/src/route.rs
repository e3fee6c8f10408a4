//! Which controllers a change concerns: without I/O, so that the simulator wakes the same keys. Also keeps the caches'
//! indexes in step, which tell whom a change on one node concerns on others.

use crate::{
    cache::{Cached, Caches},
    driver::ControllerName,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::ResourceExt;
use quarry_api::{
    LocalVolume, LocalVolumeDiscovery, LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory,
    NodeInventoryStatus, NodeJob, Volume, names, node_inventory::ClaimOwner, node_job::OwnerKind,
    volume::Phase,
};
use quarry_core::{
    device_claim::{self, pv::NO_PROVISIONER},
    unmanaged_pv::{HOSTNAME_LABEL, Place, places},
};

/// A key for a controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    pub controller: ControllerName,
    pub key: String,
}

/// An object before and after.
pub struct Change<'a, K> {
    pub before: Option<&'a K>,
    pub after: Option<&'a K>,
}

impl<'a, K> Change<'a, K> {
    fn either(&self) -> Option<&'a K> {
        self.after.or(self.before)
    }
}

pub trait Routed: Sized {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route));
}

fn to(controller: ControllerName, key: impl Into<String>) -> Route {
    Route { controller, key: key.into() }
}

/// Volumes that are not at rest and match.
fn wake_unsettled(caches: &Caches, enqueue: &impl Fn(Route), concerns: impl Fn(&Volume) -> bool) {
    for volume in caches.volumes.all() {
        let settled = volume.phase() == Some(Phase::Available)
            && volume.metadata.deletion_timestamp.is_none();
        if !settled && concerns(&volume) {
            enqueue(to(ControllerName::Volume, volume.name_any()));
        }
    }
}

impl Routed for Volume {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
        let Some(volume) = change.either() else { return };
        enqueue(to(ControllerName::Volume, volume.name_any()));
        // A job that a Volume no longer names may be forgotten in time.
        let job = |volume: &Volume| {
            volume
                .status
                .as_ref()
                .and_then(|status| status.job.as_deref())
                .and_then(|handle| handle.split_once('/'))
                .map(|(_, name)| name.to_owned())
        };
        if let Some(old) = change.before.and_then(job)
            && change.after.and_then(job).as_ref() != Some(&old)
            && caches.jobs.get(&old).is_some()
        {
            enqueue(to(ControllerName::NodeJob, old));
        }
    }
}

impl Routed for PersistentVolume {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
        let Some(pv) = change.either() else { return };
        enqueue(to(ControllerName::Volume, pv.name_any()));
        let concerned = caches.unmanaged_pvs().follow(&pv.name_any(), change.after);
        for node in concerned.iter().flat_map(|place| nodes_at(caches, place)) {
            enqueue(to(ControllerName::NodeInventory, node));
        }
        // One of a claim: also that it was bound or released counts.
        if device_claim::pv::is_ours(pv) {
            for node in places(pv).iter().flat_map(|place| nodes_at(caches, place)) {
                let claims = caches
                    .inventories
                    .get(&node)
                    .map(|inventory| inventory.spec.device_claims.clone())
                    .unwrap_or_default();
                claims
                    .iter()
                    .filter(|claim| device_claim::pv::is_of(pv, claim))
                    .for_each(|claim| wake_owner(enqueue, &claim.owner));
                enqueue(to(ControllerName::NodeInventory, node));
            }
        }
    }
}

fn wake_owner(enqueue: &impl Fn(Route), owner: &ClaimOwner) {
    let key = format!("{}/{}", owner.namespace.as_deref().unwrap_or_default(), owner.name);
    match OwnerKind::parse(&owner.kind) {
        Some(OwnerKind::LocalVolumeSet) => enqueue(to(ControllerName::LocalVolumeSet, key)),
        Some(OwnerKind::LocalVolume) => enqueue(to(ControllerName::LocalVolume, key)),
        Some(OwnerKind::Volume) | None => {}
    }
}

/// Everybody who may say something about a node.
fn wake_owners(caches: &Caches, enqueue: &impl Fn(Route)) {
    for set in caches.sets.all() {
        enqueue(to(ControllerName::LocalVolumeSet, LocalVolumeSet::key(&set.metadata)));
    }
    for volume in caches.local_volumes.all() {
        enqueue(to(ControllerName::LocalVolume, LocalVolume::key(&volume.metadata)));
    }
}

/// What a change of an owner means: its own words, and for every node a new question who gets what.
macro_rules! routed_owner {
    ($($kind:ident => $controller:ident),*) => {$(
        impl Routed for $kind {
            fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
                let Some(owner) = change.either() else { return };
                enqueue(to(ControllerName::$controller, $kind::key(&owner.metadata)));
                let selection = |one: &$kind| (one.uid(), one.spec.clone(), one.metadata.deletion_timestamp.is_some(), one.metadata.finalizers.clone(), one.metadata.annotations.clone());
                if let (Some(before), Some(after)) = (change.before, change.after)
                    && selection(before) == selection(after)
                {
                    return;
                }
                enqueue(to(ControllerName::Agent, ""));
                for node in caches.inventories.all() {
                    enqueue(to(ControllerName::NodeInventory, node.name_any()));
                }
                wake_owners(caches, enqueue);
            }
        }
    )*};
}
routed_owner!(LocalVolumeSet => LocalVolumeSet, LocalVolume => LocalVolume);

fn nodes_at(caches: &Caches, place: &Place) -> Vec<String> {
    let is_host = |node: &Node, host: &str| {
        node.labels().get(HOSTNAME_LABEL).is_some_and(|label| label == host)
    };
    match place {
        Place::NodeName(name) => vec![name.clone()],
        // Nearly every node is named as its host: only the others are searched for.
        Place::Host(host) if caches.nodes.get(host).is_some_and(|node| is_host(&node, host)) => {
            vec![host.clone()]
        }
        Place::Host(host) => caches
            .nodes
            .all()
            .iter()
            .filter(|node| is_host(node, host))
            .map(|node| node.name_any())
            .collect(),
        Place::Anywhere => caches.nodes.all().iter().map(|node| node.name_any()).collect(),
    }
}

fn wake_discoveries(caches: &Caches, enqueue: &impl Fn(Route)) {
    for discovery in caches.discoveries.all() {
        enqueue(to(ControllerName::Discovery, LocalVolumeDiscovery::key(&discovery.metadata)));
    }
}

impl Routed for LocalVolumeDiscovery {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
        let selection = |one: &LocalVolumeDiscovery| {
            (one.uid(), one.spec.clone(), one.metadata.deletion_timestamp.is_some())
        };
        if let (Some(before), Some(after)) = (change.before, change.after)
            && selection(before) == selection(after)
        {
            enqueue(to(ControllerName::Discovery, LocalVolumeDiscovery::key(&after.metadata)));
            return;
        }
        // Another one may be in force now, for other nodes. The one in force sees to the agents itself: two that do it
        // at once would only meet each other's conflict.
        wake_discoveries(caches, enqueue);
        if change.after.is_none_or(|after| after.metadata.deletion_timestamp.is_some()) {
            enqueue(to(ControllerName::Agent, ""));
        }
        for node in caches.nodes.all() {
            enqueue(to(ControllerName::DiscoveryResult, node.name_any()));
        }
    }
}

impl Routed for LocalVolumeDiscoveryResult {
    fn route(change: &Change<'_, Self>, _: &Caches, enqueue: &impl Fn(Route)) {
        if let Some(result) = change.either() {
            enqueue(to(ControllerName::DiscoveryResult, result.spec.node_name.clone()));
        }
    }
}

impl Routed for StorageClass {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
        if let Some(class) = change.either() {
            let name = class.name_any();
            wake_unsettled(caches, enqueue, |volume| volume.spec.storage_class_name == name);
            // Of another provisioner it is nobody's here: whoever names it takes nothing, until it goes.
            let provisioner = |class: Option<&StorageClass>| {
                class.map(|class| class.provisioner.clone()).filter(|other| other != NO_PROVISIONER)
            };
            let changes_hands = provisioner(change.before) != provisioner(change.after);
            if changes_hands {
                wake_owners(caches, enqueue);
            }
            for inventory in caches.inventories.all() {
                if changes_hands
                    || inventory
                        .spec
                        .device_claims
                        .iter()
                        .any(|claim| claim.storage_class_name == name)
                {
                    enqueue(to(ControllerName::NodeInventory, inventory.name_any()));
                }
            }
        }
    }
}

impl Routed for Node {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
        let Some(node) = change.either() else { return };
        // Heartbeats change a Node every few seconds; only its coming, going, labels and taints matter here.
        let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
        let same = |a: &Node, b: &Node| {
            a.metadata.uid == b.metadata.uid
                && a.metadata.labels == b.metadata.labels
                && taints(a) == taints(b)
        };
        let same = matches!((change.before, change.after), (Some(a), Some(b)) if same(a, b));
        if same {
            return;
        }
        let name = node.name_any();
        enqueue(to(ControllerName::NodeInventory, name.clone()));
        enqueue(to(ControllerName::DiscoveryResult, name.clone()));
        wake_discoveries(caches, enqueue);
        wake_owners(caches, enqueue);
        wake_unsettled(caches, enqueue, |volume| volume.spec.node_name == name);
    }
}

impl Routed for NodeJob {
    fn route(change: &Change<'_, Self>, _: &Caches, enqueue: &impl Fn(Route)) {
        let Some(job) = change.either() else { return };
        let owner = &job.spec.owner;
        match owner.kind {
            OwnerKind::Volume => enqueue(to(ControllerName::Volume, owner.name.clone())),
            OwnerKind::LocalVolumeSet | OwnerKind::LocalVolume => {
                enqueue(to(ControllerName::NodeInventory, job.spec.node_name.clone()));
                let key =
                    format!("{}/{}", owner.namespace.as_deref().unwrap_or_default(), owner.name);
                let controller = if owner.kind == OwnerKind::LocalVolumeSet {
                    ControllerName::LocalVolumeSet
                } else {
                    ControllerName::LocalVolume
                };
                enqueue(to(controller, key));
            }
        }
        enqueue(to(ControllerName::NodeJob, job.name_any()));
    }
}

impl Routed for NodeInventory {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
        let Some(inventory) = change.either() else { return };
        let name = inventory.name_any();
        fn status<T>(
            inventory: Option<&NodeInventory>,
            part: impl Fn(&NodeInventoryStatus) -> &[T],
        ) -> &[T] {
            inventory.and_then(|inventory| inventory.status.as_ref()).map(part).unwrap_or_default()
        }
        let (before, after) = (
            status(change.before, |status| &status.devices),
            status(change.after, |status| &status.devices),
        );
        fn claims(inventory: Option<&NodeInventory>) -> &[quarry_api::node_inventory::DeviceClaim] {
            inventory.map(|inventory| inventory.spec.device_claims.as_slice()).unwrap_or_default()
        }
        // First the index, then the wakes: whoever looks at once must see what has changed.
        let concerned =
            caches.identities().follow(&name, after, change.after.map(|inventory| &inventory.spec));
        enqueue(to(ControllerName::NodeInventory, name.clone()));
        for other in concerned {
            enqueue(to(ControllerName::NodeInventory, other));
        }
        // The first report counts, even of no device at all.
        if before != after || change.before.is_none_or(|before| before.status.is_none()) {
            enqueue(to(ControllerName::DiscoveryResult, name.clone()));
        }
        let reported = |inventory: Option<&NodeInventory>| {
            inventory
                .and_then(|inventory| inventory.status.as_ref())
                .map(|status| status.node_uid.clone())
        };
        if reported(change.before) != reported(change.after)
            || status(change.before, |status| &status.problems)
                != status(change.after, |status| &status.problems)
        {
            wake_discoveries(caches, enqueue);
        }
        if before != after
            || status(change.before, |status| &status.paths)
                != status(change.after, |status| &status.paths)
        {
            wake_owners(caches, enqueue);
        } else if claims(change.before) != claims(change.after)
            || status(change.before, |status| &status.device_claims)
                != status(change.after, |status| &status.device_claims)
        {
            claims(change.before)
                .iter()
                .chain(claims(change.after))
                .for_each(|claim| wake_owner(enqueue, &claim.owner));
        }
        // A job that a claim no longer names may be forgotten in time.
        for old in claims(change.before).iter().filter_map(|claim| claim.job.as_ref()) {
            if !claims(change.after)
                .iter()
                .any(|claim| claim.job.as_ref().is_some_and(|job| job.name == old.name))
            {
                enqueue(to(ControllerName::NodeJob, old.name.clone()));
            }
        }
        let has_claims = |inventory: &NodeInventory| !inventory.spec.device_claims.is_empty();
        if change.before.is_some_and(has_claims) != change.after.is_some_and(has_claims) {
            enqueue(to(ControllerName::Agent, ""));
        }
        let changed: Vec<&str> = before
            .iter()
            .filter(|device| !after.contains(device))
            .chain(after.iter().filter(|device| !before.contains(device)))
            .filter_map(|device| device.volume_uid.as_deref())
            .collect();
        for volume in caches.volumes.all() {
            if volume.spec.node_name == name
                && volume.uid().is_some_and(|uid| changed.contains(&uid.as_str()))
            {
                enqueue(to(ControllerName::Volume, volume.name_any()));
            }
        }
    }
}

impl Routed for Lease {
    fn route(change: &Change<'_, Self>, caches: &Caches, enqueue: &impl Fn(Route)) {
        let Some(lease) = change.either() else { return };
        // A renewal by the same holder in time is the normal case and concerns nobody.
        let holder =
            |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let renewed = |lease: &Lease| {
            lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0)
        };
        if let (Some(before), Some(after)) = (change.before, change.after)
            && holder(before) == holder(after)
            && let (Some(old), Some(new)) = (renewed(before), renewed(after))
            && new.duration_since(old).as_secs() < 30
        {
            return;
        }
        let name = lease.name_any();
        wake_discoveries(caches, enqueue);
        wake_owners(caches, enqueue);
        for inventory in caches
            .inventories
            .all()
            .iter()
            .filter(|inventory| !inventory.spec.device_claims.is_empty())
        {
            if names::agent_lease(&inventory.name_any()) == name {
                enqueue(to(ControllerName::NodeInventory, inventory.name_any()));
            }
        }
        wake_unsettled(caches, enqueue, |volume| {
            names::agent_lease(&volume.spec.node_name) == name
        });
    }
}
