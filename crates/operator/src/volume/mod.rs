//! The Volume controller: prepares the storage of Volumes through NodeJobs and publishes it. Decided in
//! `quarry_core::volume`.

mod apply;
mod observe;
mod triggers;

use crate::{
    Context,
    cache::Cached,
    controller::{Controller, Failure, Group, Need, Next},
    events,
    registry::group,
    trigger::Triggers,
    writer::Written,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Resource, ResourceExt};
use quarry_api::Volume;
use quarry_core::volume::{self, Observed, Plan, check::Violation};
use serde_json::json;

impl Cached for Volume {}

pub struct VolumeController;

impl Controller for VolumeController {
    const NAME: &'static str = "volume";
    const GROUP: Group = group::VOLUME;
    const NEEDS: &'static [Need] = &[Need {
        crd: "volumes.storage.metalk8s.scality.com",
        fields: &[
            "spec.nodeName",
            "spec.storageClassName",
            "spec.sparseLoopDevice.size",
            "spec.mode",
            "status.conditions",
            "status.job",
            "status.deviceName",
            "status.phase",
        ],
    }];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers::register(triggers);
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Observed>, Failure> {
        observe::observe(context, key).await
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        volume::plan(observed, now)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        volume::check::check(observed, plan)
    }

    async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        let applied = match apply::apply(context, observed, &plan.steps).await {
            Ok(applied) => applied,
            Err(failure) => {
                report_refusal(context, observed, &plan, &failure).await;
                return Err(failure);
            }
        };
        if let (Some(status), Some(current)) = (&plan.status, &applied) {
            write_status(context, current, status).await?;
        }
        events::publish(context, &observed.volume, &plan.events).await;
        Ok(plan.requeue.into())
    }

    fn subject(observed: &Observed) -> Option<ObjectReference> {
        Some(observed.volume.object_ref(&()))
    }

    fn waiting_since(context: &Context, key: &str) -> Option<Timestamp> {
        let volume = context.caches.get::<Volume>(key)?;
        let updated =
            volume.ready().and_then(|ready| ready.last_update_time.as_ref()).map(|time| time.0);
        updated.or(volume.creation_timestamp().map(|time| time.0))
    }
}

/// The API server refuses what the plan asks for (a policy, a webhook, a missing right): reported in the status, where
/// users look, not only in the operator's log.
async fn report_refusal(context: &Context, observed: &Observed, plan: &Plan, failure: &Failure) {
    let Some((answer, planned)) = failure.refusal().zip(plan.refused.as_ref()) else { return };
    let (attempt, now) = (&failure.attempt, context.now());
    let refusal = volume::status::report_refusal(observed, planned, attempt, answer, now);
    if let Err(error) = write_status(context, &observed.volume, &refusal.status).await {
        let volume = observed.volume.name_any();
        tracing::warn!(volume, %error, "failed to report a refusal");
        return;
    }
    events::publish(context, &observed.volume, &refusal.events).await;
}

/// Writes only what differs, and only if the object is still the one that was applied to.
async fn write_status(
    context: &Context,
    current: &Volume,
    status: &quarry_api::VolumeStatus,
) -> Result<(), Failure> {
    let name = current.name_any();
    let api: Api<Volume> = Api::all(context.client.clone());
    let (old, new) = (json!(current.status.clone().unwrap_or_default()), json!(status));
    let version = current.resource_version().unwrap_or_default();
    let written = context.writer.patch_status(&api, &name, &version, &old, &new).await;
    match written
        .map_err(|error| Failure::api(format!("writing the status of Volume {name}"), error))?
    {
        Written::Changed(_) => {
            let phase = status.phase.map_or("", quarry_api::volume::Phase::as_str);
            tracing::info!(volume = name, phase, "updated status");
        }
        Written::Unchanged => {}
    }
    Ok(())
}
