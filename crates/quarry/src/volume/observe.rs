//! Everything about one volume, read live: the same picture that the operator decides on.

use super::optional;
use crate::connect::Cluster;
use anyhow::anyhow;
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::{Api, Resource, api::ListParams};
use quarry_api::{NodeInventory, NodeJob, names};
use quarry_core::{
    presence::presence,
    volume::{Observed, jobs::parse_handle},
};

pub async fn observe_volume(
    cluster: &Cluster,
    name: &str,
    namespace: &str,
) -> anyhow::Result<Observed> {
    let volume = super::get(cluster, name).await?;
    let node_name = volume.spec.node_name.clone();
    let class_name = volume.spec.storage_class_name.clone();
    let job_name = volume
        .status
        .as_ref()
        .and_then(|status| status.job.as_deref())
        .and_then(parse_handle)
        .map(|(_, job)| job.to_owned());
    let client = || cluster.client.clone();
    let pvs: Api<PersistentVolume> = Api::all(client());
    let classes: Api<StorageClass> = Api::all(client());
    let nodes: Api<Node> = Api::all(client());
    let leases: Api<Lease> = Api::namespaced(client(), namespace);
    let jobs: Api<NodeJob> = Api::all(client());
    let inventories: Api<NodeInventory> = Api::all(client());
    let lease_name = names::agent_lease(&node_name);
    let (pv, class, node, lease, job, inventory) = tokio::try_join!(
        cluster.call("reading its PersistentVolume", optional(pvs.get(name))),
        cluster.call("reading its StorageClass", named(&classes, &class_name)),
        cluster.call("reading its Node", named(&nodes, &node_name)),
        cluster.call("reading the lease of its node's agent", named(&leases, &lease_name)),
        cluster.call("reading its NodeJob", named(&jobs, job_name.as_deref().unwrap_or_default())),
        cluster.call("reading the inventory of its node", named(&inventories, &node_name)),
    )?;
    let uid = volume.metadata.uid.clone();
    let inventory_changed = inventory
        .as_ref()
        .and_then(|found| found.status.as_ref()?.last_change.as_ref().map(|time| time.0));
    let device = inventory.and_then(|found| found.status).and_then(|status| {
        status
            .devices
            .into_iter()
            .find(|device| device.volume_uid.is_some() && device.volume_uid == uid)
    });
    Ok(Observed {
        volume,
        pv,
        class,
        node,
        agent: presence(lease.as_ref(), Timestamp::now()),
        job,
        device,
        inventory_changed,
        other_pv: None,
    })
}

/// An empty name is asked of nobody: it would list the kind instead.
async fn named<K>(api: &Api<K>, name: &str) -> kube::Result<Option<K>>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    if name.is_empty() { Ok(None) } else { optional(api.get(name)).await }
}

/// The Events of an object without a namespace, oldest first. Those of an earlier one of the same name are left out.
pub async fn observe_events<K>(cluster: &Cluster, object: &K) -> anyhow::Result<Vec<Event>>
where
    K: Resource<DynamicType = ()>,
{
    let name =
        object.meta().name.as_deref().ok_or_else(|| anyhow!("the {} has no name", K::kind(&())))?;
    let api: Api<Event> = Api::all(cluster.client.clone());
    let selector = format!("involvedObject.kind={},involvedObject.name={name}", K::kind(&()));
    let mut events = cluster
        .call("reading its Events", api.list(&ListParams::default().fields(&selector)))
        .await?
        .items;
    events.retain(|event| {
        event.involved_object.uid.is_none() || event.involved_object.uid == object.meta().uid
    });
    // Times are whole seconds: within one, the version tells what came first.
    events.sort_by_key(|event| {
        (
            event_time(event),
            event
                .metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse::<u64>().ok()),
        )
    });
    Ok(events)
}

/// When it last happened, whichever of the two APIs wrote it.
pub fn event_time(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref())
        .map(|time| time.0);
    series
        .or(event.last_timestamp.as_ref().map(|time| time.0))
        .or(event.event_time.as_ref().map(|time| time.0))
        .or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}
