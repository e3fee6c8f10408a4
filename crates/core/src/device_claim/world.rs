//! Builds the `NodeWorld` of one node from a `Source`. Decides nothing.

use super::{Demand, NodeWorld, demand::of_local_volume, demand::of_set};
use crate::{
    packed::Packed, presence::Presence, quarantine::RemoteIdentity, source::Source, unmanaged_pv,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use quarry_api::{LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, names};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The demand of a set, with the problems that its StorageClass causes.
pub fn demand_of_set(source: &impl Source, set: &LocalVolumeSet) -> Demand {
    of_set(set).with_classes(|class| provisioner(source, class))
}

/// The demand of a LocalVolume, with the problems that its StorageClasses cause.
pub fn demand_of_local_volume(source: &impl Source, volume: &LocalVolume) -> Demand {
    of_local_volume(volume).with_classes(|class| provisioner(source, class))
}

fn provisioner(source: &impl Source, class: &str) -> Option<String> {
    source.class(class).map(|class| class.provisioner.clone())
}

/// The demands of the operator's namespace: all that compete for devices.
pub fn demands(source: &impl Source) -> Vec<Demand> {
    let here = |namespace: &Option<String>| namespace.as_deref() == Some(source.namespace());
    let sets = source.sets().into_iter().filter(|set| here(&set.metadata.namespace));
    let volumes = source.local_volumes().into_iter();
    let volumes = volumes.filter(|volume| here(&volume.metadata.namespace));
    sets.map(|set| demand_of_set(source, &set))
        .chain(volumes.map(|volume| demand_of_local_volume(source, &volume)))
        .collect()
}

/// What a source knows of one node. Objects are shared and PersistentVolumes stay packed, so that the facts of all nodes
/// fit in memory at once; a `NodeWorld` is built for one node after the other.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub name: String,
    /// `None`: the Node does not exist.
    pub node: Option<Arc<Node>>,
    pub inventory: Arc<NodeInventory>,
    /// Those that may be on the node, and those with the name of one of its device claims.
    pub pvs: Vec<Packed<PersistentVolume>>,
    /// The classes and jobs that device claims name.
    pub classes: BTreeMap<String, Arc<StorageClass>>,
    pub jobs: BTreeMap<String, Arc<NodeJob>>,
    /// Devices of other nodes with an identity of this node.
    pub elsewhere: Vec<RemoteIdentity>,
    pub agent: Presence,
}

pub fn node_facts(
    source: &impl Source,
    inventory: Arc<NodeInventory>,
    now: Timestamp,
) -> NodeFacts {
    let name = inventory.metadata.name.clone().unwrap_or_default();
    let node = source.node(&name);
    let claims = &inventory.spec.device_claims;
    let classes: BTreeSet<&String> = claims.iter().map(|claim| &claim.storage_class_name).collect();
    let jobs = claims.iter().filter_map(|claim| claim.job.as_ref()).map(|job| &job.name);
    NodeFacts {
        pvs: source.packed_pvs(node.as_deref(), &claimed_pvs(&name, &inventory)),
        classes: classes
            .into_iter()
            .filter_map(|class| Some((class.clone(), source.class(class)?)))
            .collect(),
        jobs: jobs.filter_map(|job| Some((job.clone(), source.job(job)?))).collect(),
        elsewhere: source.elsewhere(&name),
        agent: source.agent_presence(&name, now),
        node,
        name,
        inventory,
    }
}

/// The names of the PersistentVolumes of its device claims.
fn claimed_pvs(node: &str, inventory: &NodeInventory) -> Vec<String> {
    let claims = inventory.spec.device_claims.iter();
    claims.map(|claim| names::local_pv(node, &claim.identity)).collect()
}

impl NodeFacts {
    /// `demands`: all that compete for devices.
    pub fn into_world(self, demands: Vec<Demand>) -> NodeWorld {
        let NodeFacts { name, node, inventory, pvs, classes, jobs, elsewhere, agent } = self;
        let claimed: BTreeSet<String> = claimed_pvs(&name, &inventory).into_iter().collect();
        let is_here = |pv: &Arc<PersistentVolume>| {
            node.as_deref().is_some_and(|node| unmanaged_pv::is_on(pv, node))
                || pv.metadata.name.as_ref().is_some_and(|name| claimed.contains(name))
        };
        let pvs = pvs.iter().map(Packed::open).filter(is_here).collect();
        NodeWorld {
            pvs,
            name,
            node,
            inventory: Arc::unwrap_or_clone(inventory),
            demands,
            classes,
            jobs,
            elsewhere,
            agent_present: matches!(agent, Presence::Present { .. }),
        }
    }
}

/// Everything that `source` knows of the node.
pub fn node_world(
    source: &impl Source,
    inventory: &NodeInventory,
    demands: Vec<Demand>,
    now: Timestamp,
) -> NodeWorld {
    node_facts(source, Arc::new(inventory.clone()), now).into_world(demands)
}
