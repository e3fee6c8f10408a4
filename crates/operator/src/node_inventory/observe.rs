//! Gathers what is known of one node. Decides nothing: which objects must be read live is `device_claim::reads`.

use crate::{Context, controller::Failure, registry::group};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::{Api, ResourceExt, api::ListParams};
use quarry_api::{
    LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, Volume, node_inventory::ClaimOwner,
    node_job::OwnerKind,
};
use quarry_core::{
    device_claim::{
        Demand, NodeWorld, reads,
        world::{demand_of_local_volume, demand_of_set, demands, node_world},
    },
    node_inventory::Observed,
    source::Source,
    unmanaged_pv::{Records, of_node, volume_link},
    volume::is_started,
};
use std::sync::Arc;

pub async fn observe(context: &Context, name: &str) -> Result<Observed, Failure> {
    let caches = context.caches.as_ref();
    let node = caches.get::<Node>(name);
    let inventory = caches.get::<NodeInventory>(name).map(|inventory| (*inventory).clone());
    let unmanaged_pvs = node.as_deref().map(|node| {
        let candidates: Vec<_> = caches
            .unmanaged_pvs()
            .candidates(node)
            .into_iter()
            .filter_map(|pv| caches.pv(pv))
            .collect();
        let records = Records::of(inventory.as_ref());
        // Only where the node does not report the device of a Volume (yet): there may be many jobs.
        let unreported =
            |pv: &Arc<PersistentVolume>| volume_link(pv).is_some() && !records.is_managed(pv);
        let jobs = candidates.iter().any(unreported).then(|| caches.all::<NodeJob>());
        let jobs = jobs.unwrap_or_default();
        let records = records.with_jobs(name, jobs.iter().map(AsRef::as_ref));
        of_node(node, &records, candidates.iter().map(AsRef::as_ref))
    });
    // Device claims are planned only where the kinds that own them are watched: else every owner would seem gone.
    let world = match &inventory {
        Some(inventory) if context.is_on(group::DEVICE_CLAIMS) => {
            Some(observe_world(context, inventory).await?)
        }
        Some(_) | None => None,
    };
    Ok(Observed {
        name: name.to_owned(),
        node_exists: node.is_some(),
        inventory,
        unmanaged_pvs: unmanaged_pvs.unwrap_or_default(),
        elsewhere: caches.elsewhere(name),
        has_volumes: has_volumes(context, name, node.is_some()).await?,
        world,
    })
}

/// Where Volumes are not watched it is unknown, and read only where the Node is gone: that happens rarely.
async fn has_volumes(context: &Context, name: &str, node_exists: bool) -> Result<bool, Failure> {
    let prepared = |volume: &Volume| volume.spec.node_name == name && is_started(volume);
    if context.is_on(group::VOLUME) {
        return Ok(context.caches.store::<Volume>().each().any(|volume| prepared(&volume)));
    }
    if node_exists {
        return Ok(true);
    }
    match Api::<Volume>::all(context.client.clone()).list(&ListParams::default()).await {
        Ok(all) => Ok(all.items.iter().any(prepared)),
        // The kind is not installed.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(Failure::api(format!("listing the Volumes of node {name}"), error)),
    }
}

/// The caches, and the API itself where a device claim would be given up because a cache lacks an object.
pub async fn observe_world(
    context: &Context,
    inventory: &NodeInventory,
) -> Result<NodeWorld, Failure> {
    let caches = context.caches.as_ref();
    let mut world = node_world(caches, inventory, demands(caches), context.now());
    let owners = reads::absent_owners(&world);
    let found = try_join_all(owners.iter().map(|owner| read_owner(context, owner))).await?;
    world.demands.extend(found.into_iter().flatten());
    let pvs: Api<PersistentVolume> = Api::all(context.client.clone());
    let failed =
        |error| Failure::api(format!("reading what is claimed on node {}", world.name), error);
    let absent = reads::absent_pvs(&world);
    let found = try_join_all(absent.iter().map(|name| pvs.get_opt(name))).await.map_err(failed)?;
    world.pvs.extend(found.into_iter().flatten().map(Arc::new));
    let unverified = reads::unverified_pvs(&world);
    let found =
        try_join_all(unverified.iter().map(|name| pvs.get_opt(name))).await.map_err(failed)?;
    world.pvs.retain(|pv| pv.metadata.name.as_ref().is_none_or(|name| !unverified.contains(name)));
    world.pvs.extend(found.into_iter().flatten().map(Arc::new));
    let jobs: Api<NodeJob> = Api::all(context.client.clone());
    let absent = reads::absent_jobs(&world);
    let found = try_join_all(absent.iter().map(|name| jobs.get_opt(name))).await.map_err(failed)?;
    world.jobs.extend(found.into_iter().flatten().map(|job| (job.name_any(), Arc::new(job))));
    Ok(world)
}

/// An owner that the caches lack: really gone, or not seen yet. By UID: one that was recreated under the same name is
/// another owner.
async fn read_owner(context: &Context, owner: &ClaimOwner) -> Result<Option<Demand>, Failure> {
    let (caches, client) = (context.caches.as_ref(), context.client.clone());
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    let failed =
        |error| Failure::api(format!("reading {} {namespace}/{}", owner.kind, owner.name), error);
    let found = match OwnerKind::parse(&owner.kind) {
        Some(OwnerKind::LocalVolumeSet) => {
            let api: Api<LocalVolumeSet> = Api::namespaced(client, namespace);
            let found = api.get_opt(&owner.name).await.map_err(failed)?;
            found.map(|set| demand_of_set(caches, &set))
        }
        Some(OwnerKind::LocalVolume) => {
            let api: Api<LocalVolume> = Api::namespaced(client, namespace);
            let found = api.get_opt(&owner.name).await.map_err(failed)?;
            found.map(|volume| demand_of_local_volume(caches, &volume))
        }
        Some(OwnerKind::Volume) | None => None,
    };
    Ok(found.filter(|demand| demand.owner.uid == owner.uid))
}
