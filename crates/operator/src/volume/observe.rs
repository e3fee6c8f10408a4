//! Gathers what a decision about one Volume needs. Decides nothing.

use crate::{Context, context::Failure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt};
use quarry_api::{NodeJob, Volume, names, node_inventory::Device};
use quarry_core::{
    presence::presence,
    volume::{self, Observed, jobs},
};

/// `None` when there is no such Volume.
pub async fn observe(context: &Context, name: &str) -> Result<Option<Observed>, Failure> {
    let caches = &context.caches;
    let Some(volume) = caches.volumes.get(name) else { return Ok(None) };
    let node_name = &volume.spec.node_name;
    Ok(Some(Observed {
        pv: find_pv(context, &volume).await?,
        class: caches.classes.get(&volume.spec.storage_class_name).map(|class| (*class).clone()),
        node: caches.nodes.get(node_name).map(|node| (*node).clone()),
        agent: presence(
            caches.leases.get(&names::agent_lease(node_name)).as_deref(),
            context.now(),
        ),
        job: find_job(context, &volume).await?,
        device: find_device(context, &volume),
        inventory_changed: caches.inventories.get(node_name).and_then(|inventory| {
            inventory.status.as_ref()?.last_change.as_ref().map(|time| time.0)
        }),
        other_pv: find_other_pv(context, &volume),
        volume: (*volume).clone(),
    }))
}

/// "There is none" is a strong word: it is asked of the API itself, unless nothing can have been made yet.
async fn find_pv(context: &Context, volume: &Volume) -> Result<Option<PersistentVolume>, Failure> {
    let name = volume.name_any();
    if let Some(pv) = context.caches.pvs.get(&name) {
        return Ok(Some((*pv).clone()));
    }
    if volume.status.is_none() {
        return Ok(None);
    }
    let api: Api<PersistentVolume> = Api::all(context.client.clone());
    api.get_opt(&name)
        .await
        .map_err(|error| Failure::api(format!("reading PersistentVolume {name}"), error))
}

/// The job that the status names, for the same reason never declared absent from a cache.
async fn find_job(context: &Context, volume: &Volume) -> Result<Option<NodeJob>, Failure> {
    let handle = volume.status.as_ref().and_then(|status| status.job.as_deref());
    let Some((_, name)) = handle.and_then(jobs::parse_handle) else { return Ok(None) };
    if let Some(job) = context.caches.jobs.get(name) {
        return Ok(Some((*job).clone()));
    }
    let api: Api<NodeJob> = Api::all(context.client.clone());
    api.get_opt(name).await.map_err(|error| Failure::api(format!("reading NodeJob {name}"), error))
}

fn find_device(context: &Context, volume: &Volume) -> Option<Device> {
    let inventory = context.caches.inventories.get(&volume.spec.node_name)?;
    let uid = volume.uid()?;
    inventory
        .status
        .as_ref()?
        .devices
        .iter()
        .find(|device| device.volume_uid.as_deref() == Some(uid.as_str()))
        .cloned()
}

/// Asked only of a volume that goes: nothing else depends on it.
fn find_other_pv(context: &Context, volume: &Volume) -> Option<String> {
    volume.metadata.deletion_timestamp.as_ref()?;
    volume::pv::published_elsewhere(context.caches.pvs.each(), volume)
}
