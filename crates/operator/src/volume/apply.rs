//! Carries out the steps of a plan, in order. Each is idempotent; the first that fails ends the run.

use crate::{
    Context,
    controller::Failure,
    writer::{Written, is_code},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt};
use quarry_api::{NodeJob, Volume, names};
use quarry_core::volume::{Observed, Step, pv};
use serde_json::json;

/// The Volume as it is after the steps; `None` when it may be gone.
pub async fn apply(
    context: &Context,
    seen: &Observed,
    steps: &[Step],
) -> Result<Option<Volume>, Failure> {
    let mut current = Some(seen.volume.clone());
    for step in steps {
        let Some(volume) = current.take() else { break };
        let name = volume.name_any();
        let after = apply_one(context, seen, volume, step).await?;
        tracing::info!(volume = name, step = step.name(), "applied");
        current = after;
    }
    Ok(current)
}

async fn apply_one(
    context: &Context,
    seen: &Observed,
    volume: Volume,
    step: &Step,
) -> Result<Option<Volume>, Failure> {
    let name = volume.name_any();
    let version = volume.resource_version().unwrap_or_default();
    let volumes: Api<Volume> = Api::all(context.client.clone());
    let pvs: Api<PersistentVolume> = Api::all(context.client.clone());
    let failed =
        |error: kube::Error| Failure::api(format!("Volume {name}: {}", step.name()), error);
    match step {
        Step::AddFinalizer => {
            let finalizers: Vec<String> = volume
                .finalizers()
                .iter()
                .cloned()
                .chain([names::VOLUME_FINALIZER.to_owned()])
                .collect();
            let changes = json!({"metadata": {"finalizers": finalizers}});
            context.writer.patch(&volumes, &name, &version, changes).await.map(Some).map_err(failed)
        }
        Step::RecordJob(status) => {
            let (old, new) = (json!(volume.status.clone().unwrap_or_default()), json!(status));
            match context
                .writer
                .patch_status(&volumes, &name, &version, &old, &new)
                .await
                .map_err(failed)?
            {
                Written::Changed(volume) => Ok(Some(volume)),
                Written::Unchanged => Ok(Some(volume)),
            }
        }
        Step::CreateJob(job) => {
            let jobs: Api<NodeJob> = Api::all(context.client.clone());
            // The name is a hash of the spec: one of that name is the same job, created by an earlier run.
            context.writer.create(&jobs, job).await.map_err(failed)?;
            Ok(Some(volume))
        }
        Step::CreatePv(pv) => {
            // A create carries no version of the Volume. A cache that is far behind (a list from a lagging API server)
            // may show a preparation whose storage has been cleaned up since: nothing is published without asking.
            let live = volumes.get_opt(&name).await.map_err(failed)?;
            if !live.is_some_and(|live| {
                live.uid() == volume.uid() && live.resource_version() == volume.resource_version()
            }) {
                return Err(Failure::stale(format!(
                    "Volume {name}: it has changed since it was read"
                )));
            }
            if context.writer.create(&pvs, pv).await.map_err(failed)? == Written::Unchanged {
                let found = pvs.get_opt(&name).await.map_err(failed)?;
                if !found.is_some_and(|found| {
                    pv::is_owned_by(&found, &seen.volume.uid().unwrap_or_default())
                }) {
                    return Err(Failure::stale(format!(
                        "Volume {name}: a PersistentVolume of that name has appeared"
                    )));
                }
            }
            Ok(Some(volume))
        }
        Step::UpdatePvMetadata(patch) => {
            let changes =
                json!({"metadata": {"labels": patch.labels, "annotations": patch.annotations}});
            context
                .writer
                .patch(&pvs, &name, &patch.resource_version, changes)
                .await
                .map_err(failed)?;
            Ok(Some(volume))
        }
        Step::DeletePv { uid, resource_version } => {
            context
                .writer
                .delete(&pvs, &name, uid, Some(resource_version))
                .await
                .map_err(failed)?;
            Ok(Some(volume))
        }
        Step::ReleasePv { uid: _, resource_version } => {
            let kept: Vec<&String> = seen
                .pv
                .as_ref()
                .map(|pv| pv.finalizers())
                .unwrap_or_default()
                .iter()
                .filter(|finalizer| *finalizer != names::VOLUME_FINALIZER)
                .collect();
            let changes = json!({"metadata": {"finalizers": kept}});
            gone_is_fine(
                context.writer.patch(&pvs, &name, resource_version, changes).await.map(|_| ()),
            )
            .map_err(failed)?;
            Ok(Some(volume))
        }
        Step::ReleaseVolume => {
            let kept: Vec<&String> = volume
                .finalizers()
                .iter()
                .filter(|finalizer| *finalizer != names::VOLUME_FINALIZER)
                .collect();
            let changes = json!({"metadata": {"finalizers": kept}});
            gone_is_fine(
                context.writer.patch(&volumes, &name, &version, changes).await.map(|_| ()),
            )
            .map_err(failed)?;
            Ok(None)
        }
    }
}

fn gone_is_fine(answer: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(error) if is_code(&error, 404) => Ok(()),
        other => other,
    }
}
