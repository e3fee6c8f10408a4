//! The NodeJob controller: forgets finished jobs by age, never one that an object names.

use crate::{
    Context,
    context::{Failure, Next},
    driver::ControllerName,
};
use kube::{Api, ResourceExt};
use quarry_api::{NodeJob, node_job::OwnerKind};
use quarry_core::{
    job::retention::{Retention, decide_retention},
    volume::jobs::parse_handle,
};

pub async fn reconcile_once(context: &Context, name: &str) -> Result<Next, Failure> {
    let Some(job) = context.caches.jobs.get(name) else { return Ok(Next::AwaitChange) };
    let caches = &context.caches;
    let named = match job.spec.owner.kind {
        // Nobody sees Volumes here: one may name this job.
        OwnerKind::Volume if !context.runs(ControllerName::Volume) => return Ok(Next::AwaitChange),
        OwnerKind::Volume => caches.volumes.get(&job.spec.owner.name).is_some_and(|volume| {
            volume
                .status
                .as_ref()
                .and_then(|status| status.job.as_deref())
                .and_then(parse_handle)
                .is_some_and(|(_, named)| named == name)
        }),
        OwnerKind::LocalVolumeSet | OwnerKind::LocalVolume => {
            caches.inventories.get(&job.spec.node_name).is_some_and(|inventory| {
                inventory
                    .spec
                    .device_claims
                    .iter()
                    .any(|claim| claim.job.as_ref().is_some_and(|job| job.name == name))
            })
        }
    };
    let now = context.now();
    match decide_retention(&job, named, context.job_retention, now) {
        Retention::Keep => Ok(Next::AwaitChange),
        Retention::KeepUntil(due) => Ok(Next::Requeue(due.duration_since(now))),
        Retention::Delete => {
            let api: Api<NodeJob> = Api::all(context.client.clone());
            let (uid, version) = (job.uid().unwrap_or_default(), job.resource_version());
            context
                .writer
                .delete(&api, name, &uid, version.as_deref())
                .await
                .map_err(|error| Failure::api(format!("forgetting job {name}"), error))?;
            Ok(Next::AwaitChange)
        }
    }
}
