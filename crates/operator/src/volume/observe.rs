//! Gathers what a decision about one Volume needs. Decides nothing.

use crate::{Context, controller::Failure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt};
use quarry_api::{NodeJob, Volume};
use quarry_core::volume::{
    self, Observed,
    observed::{job_name, observed},
};

/// `None` when there is no such Volume.
pub async fn observe(context: &Context, name: &str) -> Result<Option<Observed>, Failure> {
    let caches = context.caches.as_ref();
    let Some(volume) = caches.get::<Volume>(name) else { return Ok(None) };
    let mut seen = observed(caches, &volume, context.now());
    if seen.pv.is_none() {
        seen.pv = read_pv(context, &volume).await?;
    }
    if seen.job.is_none() {
        seen.job = read_job(context, &volume).await?;
    }
    // Read only for a Volume that is deleted: nothing else depends on it.
    if volume.metadata.deletion_timestamp.is_some() {
        let pvs = caches.store::<PersistentVolume>().each();
        seen.other_pv = volume::pv::published_elsewhere(pvs, &volume);
    }
    Ok(Some(seen))
}

/// Absence counts, so the API is asked, unless nothing can have been created yet.
async fn read_pv(context: &Context, volume: &Volume) -> Result<Option<PersistentVolume>, Failure> {
    let name = volume.name_any();
    if volume.status.is_none() {
        return Ok(None);
    }
    let api: Api<PersistentVolume> = Api::all(context.client.clone());
    api.get_opt(&name)
        .await
        .map_err(|error| Failure::api(format!("reading PersistentVolume {name}"), error))
}

/// The job that the status names, for the same reason never declared absent from a cache.
async fn read_job(context: &Context, volume: &Volume) -> Result<Option<NodeJob>, Failure> {
    let Some(name) = job_name(volume) else { return Ok(None) };
    let api: Api<NodeJob> = Api::all(context.client.clone());
    api.get_opt(&name).await.map_err(|error| Failure::api(format!("reading NodeJob {name}"), error))
}
