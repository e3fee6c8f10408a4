//! Which controllers a change concerns: pure, so that the simulator wakes the same keys.

use crate::{cache::Caches, driver::ControllerName};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::ResourceExt;
use quarry_api::{NodeInventory, NodeJob, Volume, names, volume::Phase};

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
    fn route(change: &Change<'_, Self>, caches: &Caches, wake: &impl Fn(Route));
}

fn to(controller: ControllerName, key: impl Into<String>) -> Route {
    Route { controller, key: key.into() }
}

/// Volumes that are not at rest and match.
fn wake_unsettled(caches: &Caches, wake: &impl Fn(Route), concerns: impl Fn(&Volume) -> bool) {
    for volume in caches.volumes.all() {
        let settled = volume.phase() == Some(Phase::Available) && volume.metadata.deletion_timestamp.is_none();
        if !settled && concerns(&volume) {
            wake(to(ControllerName::Volume, volume.name_any()));
        }
    }
}

impl Routed for Volume {
    fn route(change: &Change<'_, Self>, caches: &Caches, wake: &impl Fn(Route)) {
        let Some(volume) = change.either() else { return };
        wake(to(ControllerName::Volume, volume.name_any()));
        // A job that a Volume no longer names may be forgotten in time.
        let job = |volume: &Volume| {
            volume.status.as_ref().and_then(|status| status.job.as_deref()).and_then(|handle| handle.split_once('/')).map(|(_, name)| name.to_owned())
        };
        if let Some(old) = change.before.and_then(job)
            && change.after.and_then(job).as_ref() != Some(&old)
            && caches.jobs.get(&old).is_some()
        {
            wake(to(ControllerName::NodeJob, old));
        }
    }
}

impl Routed for PersistentVolume {
    fn route(change: &Change<'_, Self>, _: &Caches, wake: &impl Fn(Route)) {
        if let Some(pv) = change.either() {
            wake(to(ControllerName::Volume, pv.name_any()));
        }
    }
}

impl Routed for StorageClass {
    fn route(change: &Change<'_, Self>, caches: &Caches, wake: &impl Fn(Route)) {
        if let Some(class) = change.either() {
            let name = class.name_any();
            wake_unsettled(caches, wake, |volume| volume.spec.storage_class_name == name);
        }
    }
}

impl Routed for Node {
    fn route(change: &Change<'_, Self>, caches: &Caches, wake: &impl Fn(Route)) {
        let Some(node) = change.either() else { return };
        // Heartbeats change a Node every few seconds; only its coming, going and labels matter here.
        let same = matches!((change.before, change.after), (Some(a), Some(b)) if a.metadata.uid == b.metadata.uid && a.metadata.labels == b.metadata.labels);
        if same {
            return;
        }
        wake(to(ControllerName::NodeInventory, node.name_any()));
        let name = node.name_any();
        wake_unsettled(caches, wake, |volume| volume.spec.node_name == name);
    }
}

impl Routed for NodeJob {
    fn route(change: &Change<'_, Self>, _: &Caches, wake: &impl Fn(Route)) {
        if let Some(job) = change.either() {
            wake(to(ControllerName::Volume, job.spec.owner.name.clone()));
            wake(to(ControllerName::NodeJob, job.name_any()));
        }
    }
}

impl Routed for NodeInventory {
    fn route(change: &Change<'_, Self>, caches: &Caches, wake: &impl Fn(Route)) {
        let Some(inventory) = change.either() else { return };
        let name = inventory.name_any();
        wake(to(ControllerName::NodeInventory, name.clone()));
        let devices =
            |inventory: Option<&NodeInventory>| inventory.and_then(|inventory| inventory.status.clone()).map(|status| status.devices).unwrap_or_default();
        let (before, after) = (devices(change.before), devices(change.after));
        let changed: Vec<&str> = before
            .iter()
            .filter(|device| !after.contains(device))
            .chain(after.iter().filter(|device| !before.contains(device)))
            .filter_map(|device| device.volume_uid.as_deref())
            .collect();
        for volume in caches.volumes.all() {
            if volume.spec.node_name == name && volume.uid().is_some_and(|uid| changed.contains(&uid.as_str())) {
                wake(to(ControllerName::Volume, volume.name_any()));
            }
        }
    }
}

impl Routed for Lease {
    fn route(change: &Change<'_, Self>, caches: &Caches, wake: &impl Fn(Route)) {
        let Some(lease) = change.either() else { return };
        // A renewal by the same holder in time is the normal case and concerns nobody.
        let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        if let (Some(before), Some(after)) = (change.before, change.after)
            && holder(before) == holder(after)
            && let (Some(old), Some(new)) = (renewed(before), renewed(after))
            && new.duration_since(old).as_secs() < 30
        {
            return;
        }
        let name = lease.name_any();
        wake_unsettled(caches, wake, |volume| names::agent_lease(&volume.spec.node_name) == name);
    }
}
