//! The Volume controller: observe → plan → check → apply → status.

mod apply;
mod observe;

pub use observe::observe;

use crate::{
    Context,
    context::{Failure, Next},
    events,
    writer::Written,
};
use kube::{Api, ResourceExt};
use quarry_api::Volume;
use quarry_core::{violation::joined, volume};
use serde_json::json;

/// One look at one Volume, and everything that follows from it.
pub async fn reconcile_once(context: &Context, name: &str) -> Result<Next, Failure> {
    let Some(seen) = observe(context, name).await? else { return Ok(Next::AwaitChange) };
    let plan = volume::plan(&seen, context.now());
    if let Some(violation) = joined(&volume::check::check(&seen, &plan)) {
        // A bug in the planner: nothing of the plan is applied, and it is said loudly.
        tracing::error!(volume = name, %violation, steps = ?plan.steps.iter().map(volume::Step::name).collect::<Vec<_>>(), "a plan was refused");
        return Err(Failure {
            attempt: format!("volume {name}: the plan was refused: {violation}"),
            source: None,
            at_once: false,
        });
    }
    let applied = match apply::apply(context, &seen, &plan.steps).await {
        Ok(applied) => applied,
        Err(failure) => return Err(tell_refusal(context, &seen, failure).await),
    };
    if let (Some(status), Some(current)) = (&plan.status, &applied) {
        write_status(context, current, status).await?;
    }
    events::tell(context, &seen.volume, &plan.notes).await;
    Ok(plan.requeue.map_or(Next::AwaitChange, Next::Requeue))
}

/// The API server refuses what we ask for (a policy, a webhook, a missing right): nobody should have to read our
/// log to learn that. The work is tried again; the failure is handed back for that.
async fn tell_refusal(context: &Context, seen: &volume::Observed, failure: Failure) -> Failure {
    let Some(answer) = failure.refusal() else { return failure };
    let refused = volume::status::refused(seen, &failure.attempt, answer, context.now());
    if let Err(error) = write_status(context, &seen.volume, &refused.status).await {
        tracing::warn!(volume = seen.volume.name_any(), %error, "a refusal could not be told");
        return failure;
    }
    events::tell(context, &seen.volume, &refused.notes).await;
    failure
}

/// Only what differs is written, and only if the object is still the one that was applied to.
async fn write_status(
    context: &Context,
    current: &Volume,
    status: &quarry_api::VolumeStatus,
) -> Result<(), Failure> {
    let name = current.name_any();
    let api: Api<Volume> = Api::all(context.client.clone());
    let (old, new) = (json!(current.status.clone().unwrap_or_default()), json!(status));
    let written = context
        .writer
        .patch_status(&api, &name, &current.resource_version().unwrap_or_default(), &old, &new)
        .await;
    match written
        .map_err(|error| Failure::api(format!("writing the status of volume {name}"), error))?
    {
        Written::Changed(_) => tracing::info!(
            volume = name,
            phase = status.phase.map_or("", quarry_api::volume::Phase::as_str),
            "status"
        ),
        Written::Unchanged => {}
    }
    Ok(())
}
