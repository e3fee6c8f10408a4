//! The one list of controllers: for driver, `--controllers`, CRD check, simulator, metrics and RBAC.

use crate::{
    Context,
    agent_daemon_set::AgentDaemonSetController,
    bare_metal_host::BareMetalHostController,
    ceph_cluster::CephClusterController,
    controller::{Controller, Failure, Group, Need, Next},
    local_volume::LocalVolumeController,
    local_volume_discovery::LocalVolumeDiscoveryController,
    local_volume_discovery_result::LocalVolumeDiscoveryResultController,
    local_volume_set::LocalVolumeSetController,
    node_inventory::NodeInventoryController,
    node_job::NodeJobController,
    trigger::{self, Triggers, WatchedKind},
    volume::VolumeController,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The groups of `Registry::standard`.
pub mod group {
    use super::Group;

    pub const VOLUME: Group = "volume";
    pub const NODE_INVENTORY: Group = "nodeinventory";
    pub const NODE_JOB: Group = "nodejob";
    pub const AGENT_DAEMON_SET: Group = "agentdaemonset";
    pub const DISCOVERY: Group = "discovery";
    /// LocalVolumeSets and LocalVolumes: device claims are planned only where all their owners are seen.
    pub const DEVICE_CLAIMS: Group = "deviceclaims";
    /// BareMetalHosts: on only where an Ironic is configured.
    pub const HOSTS: Group = "hosts";
    /// CephClusters: on only where it is asked for.
    pub const DEVICE_SETS: Group = "devicesets";
}

/// A controller without its type.
#[derive(Clone)]
pub struct Registration {
    pub name: &'static str,
    pub group: Group,
    pub needs: &'static [Need],
    pub debounce: Duration,
    pub initial_keys: &'static [&'static str],
    triggers: fn(&mut Triggers<'_>),
    reconcile: for<'a> fn(&'a Context, &'a str) -> BoxFuture<'a, Result<Next, Failure>>,
    waiting_since: fn(&Context, &str) -> Option<Timestamp>,
}

impl Registration {
    pub fn of<C: Controller>() -> Self {
        Registration {
            name: C::NAME,
            group: C::GROUP,
            needs: C::NEEDS,
            debounce: C::DEBOUNCE,
            initial_keys: C::INITIAL_KEYS,
            triggers: C::triggers,
            reconcile: |context, key| Box::pin(C::reconcile(context, key)),
            waiting_since: C::waiting_since,
        }
    }

    pub async fn reconcile(&self, context: &Context, key: &str) -> Result<Next, Failure> {
        (self.reconcile)(context, key).await
    }

    pub fn waiting_since(&self, context: &Context, key: &str) -> Option<Timestamp> {
        (self.waiting_since)(context, key)
    }
}

/// Controllers, each with a name of its own.
#[derive(Clone)]
pub struct Registry {
    controllers: Vec<Registration>,
}

impl Registry {
    /// Every controller of Quarry.
    pub fn standard() -> Self {
        Registry { controllers: Vec::new() }
            .with::<VolumeController>()
            .with::<NodeInventoryController>()
            .with::<NodeJobController>()
            .with::<AgentDaemonSetController>()
            .with::<LocalVolumeDiscoveryController>()
            .with::<LocalVolumeDiscoveryResultController>()
            .with::<LocalVolumeSetController>()
            .with::<LocalVolumeController>()
            .with::<BareMetalHostController>()
            .with::<CephClusterController>()
    }

    pub fn with<C: Controller>(mut self) -> Self {
        assert!(self.get(C::NAME).is_none(), "two controllers are named {}", C::NAME);
        self.controllers.push(Registration::of::<C>());
        self
    }

    pub fn controllers(&self) -> &[Registration] {
        &self.controllers
    }

    pub fn get(&self, name: &str) -> Option<&Registration> {
        self.controllers.iter().find(|controller| controller.name == name)
    }

    /// In the order of registration.
    pub fn groups(&self) -> Vec<Group> {
        let mut seen = BTreeSet::new();
        let all = self.controllers.iter().map(|controller| controller.group);
        all.filter(|group| seen.insert(*group)).collect()
    }

    /// Only the controllers of these groups.
    pub fn select(mut self, groups: &[impl AsRef<str>]) -> Self {
        self.controllers
            .retain(|controller| groups.iter().any(|group| group.as_ref() == controller.group));
        self
    }

    pub fn without(mut self, group: Group) -> Self {
        self.controllers.retain(|controller| controller.group != group);
        self
    }

    pub fn has(&self, group: Group) -> bool {
        self.controllers.iter().any(|controller| controller.group == group)
    }

    /// The kinds that these controllers watch, with their triggers.
    pub fn watched_kinds(&self) -> Vec<Arc<dyn WatchedKind>> {
        trigger::collect(
            self.controllers.iter().map(|controller| (controller.name, controller.triggers)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_goes_as_a_whole() {
        let left = Registry::standard().without(group::DISCOVERY).without(group::DEVICE_CLAIMS);
        let left = left.without(group::HOSTS).without(group::DEVICE_SETS);
        let names: Vec<&str> = left.controllers().iter().map(|one| one.name).collect();
        assert_eq!(names, ["volume", "nodeinventory", "nodejob", "agentdaemonset"]);
        assert!(!left.has(group::DISCOVERY) && left.has(group::VOLUME));
    }

    #[test]
    fn a_kind_is_watched_once_and_only_when_needed() {
        let kinds = |registry: &Registry| {
            registry.watched_kinds().iter().map(|kind| kind.kind()).collect::<Vec<_>>()
        };
        let all = kinds(&Registry::standard());
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
        let few = kinds(&Registry::standard().select(&[group::NODE_INVENTORY, group::NODE_JOB]));
        assert!(!few.contains(&"LocalVolumeDiscovery".to_owned()), "{few:?}");
    }
}
