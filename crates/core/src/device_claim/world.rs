//! Builds the `NodeWorld` of one node from a `Source`. Decides nothing.

use super::{Demand, NodeWorld, demand::of_local_volume, demand::of_set};
use crate::{presence::Presence, source::Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{LocalVolume, LocalVolumeSet, NodeInventory, names};
use std::{collections::BTreeSet, sync::Arc};

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

/// The agent's Lease is fresh.
pub fn is_agent_present(source: &impl Source, node: &str, now: Timestamp) -> bool {
    matches!(source.agent_presence(node, now), Presence::Present { .. })
}

/// Everything that `source` knows of the node.
pub fn node_world(
    source: &impl Source,
    inventory: &NodeInventory,
    demands: Vec<Demand>,
    now: Timestamp,
) -> NodeWorld {
    let name = inventory.metadata.name.clone().unwrap_or_default();
    let node = source.node(&name);
    let mut pvs: Vec<Arc<PersistentVolume>> =
        node.as_deref().map(|node| source.pvs_on(node)).unwrap_or_default();
    let claims = &inventory.spec.device_claims;
    for claimed in claims.iter().map(|claim| names::local_pv(&name, &claim.identity)) {
        if !pvs.iter().any(|pv| pv.metadata.name.as_ref() == Some(&claimed)) {
            pvs.extend(source.pv(&claimed));
        }
    }
    let classes: BTreeSet<&String> = claims.iter().map(|claim| &claim.storage_class_name).collect();
    let jobs = claims.iter().filter_map(|claim| claim.job.as_ref()).map(|job| &job.name);
    NodeWorld {
        node,
        demands,
        pvs,
        classes: classes
            .into_iter()
            .filter_map(|class| Some((class.clone(), source.class(class)?)))
            .collect(),
        jobs: jobs.filter_map(|job| Some((job.clone(), source.job(job)?))).collect(),
        elsewhere: source.elsewhere(&name),
        agent_present: is_agent_present(source, &name, now),
        inventory: inventory.clone(),
        name,
    }
}
