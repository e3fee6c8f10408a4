//! The results of discovery, one node at a time: observe → plan → check → apply → status.

use super::active_discovery;
use crate::{
    Context,
    context::{Failure, Next},
    events,
    writer::Written,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use quarry_api::{LocalVolumeDiscoveryResult, NodeInventory, names};
use quarry_core::{
    discovery::{
        Coverage, coverage,
        result::{CREATE_FAILED, Observed, Step, UPDATE_FAILED, check, plan},
    },
    event::PendingEvent,
    violation::joined,
};
use serde_json::json;

pub async fn reconcile_once(context: &Context, node: &str) -> Result<Next, Failure> {
    let seen = observe(context, node);
    let plan = plan(&seen, context.now());
    if let Some(violation) = joined(&check(&seen, &plan)) {
        // A bug in the planner: nothing of the plan is applied, and it is said loudly.
        tracing::error!(node, %violation, steps = ?plan.steps.iter().map(Step::name).collect::<Vec<_>>(), "a plan was refused");
        return Err(Failure {
            attempt: format!("discovery result of {node}: the plan was refused: {violation}"),
            source: None,
            at_once: false,
        });
    }
    match apply(context, &seen, &plan).await {
        Ok(Some(result)) => events::tell(context, &result, &plan.notes).await,
        Ok(None) => {}
        Err(failure) => return Err(tell_refusal(context, &seen, failure).await),
    }
    Ok(Next::AwaitChange)
}

fn observe(context: &Context, node: &str) -> Observed {
    let caches = &context.caches;
    let covered = match (active_discovery(context), caches.nodes.get(node)) {
        (Some(discovery), Some(node)) => coverage(&discovery, &node) == Coverage::Covered,
        _ => false,
    };
    Observed {
        node: node.to_owned(),
        namespace: context.namespace.clone(),
        covered,
        // What a machine that had this name before reported is not this one's.
        inventory: caches
            .inventories
            .get(node)
            .filter(|inventory| is_current(inventory, caches.nodes.get(node).as_deref()))
            .map(|inventory| (*inventory).clone()),
        result: caches.results.get(&names::discovery_result(node)).map(|result| (*result).clone()),
    }
}

fn is_current(inventory: &NodeInventory, node: Option<&Node>) -> bool {
    inventory.status.as_ref().zip(node).is_none_or(|(status, node)| super::is_of(status, node))
}

/// The result as it is afterwards.
async fn apply(
    context: &Context,
    seen: &Observed,
    plan: &quarry_core::discovery::result::Plan,
) -> Result<Option<LocalVolumeDiscoveryResult>, Failure> {
    let api: Api<LocalVolumeDiscoveryResult> =
        Api::namespaced(context.client.clone(), &context.namespace);
    let name = names::discovery_result(&seen.node);
    let failed = |error| Failure::api(format!("discovery result of {}", seen.node), error);
    let mut current = seen.result.clone();
    for step in &plan.steps {
        current = match step {
            Step::Create(made) => match context.writer.create(&api, made).await.map_err(failed)? {
                Written::Changed(made) => Some(made),
                Written::Unchanged => {
                    return Err(Failure::behind(format!(
                        "discovery result of {}: it has appeared",
                        seen.node
                    )));
                }
            },
            Step::Label { resource_version, labels } => Some(
                context
                    .writer
                    .patch(&api, &name, resource_version, json!({"metadata": {"labels": labels}}))
                    .await
                    .map_err(failed)?,
            ),
        };
        tracing::info!(node = seen.node, step = step.name(), "discovery result");
    }
    if let (Some(status), Some(result)) = (&plan.status, &mut current) {
        // Against nothing at first: an empty list is written, too.
        let old = result.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
        let version = result.resource_version().unwrap_or_default();
        if let Written::Changed(written) = context
            .writer
            .patch_status(&api, &name, &version, &old, &json!(status))
            .await
            .map_err(failed)?
        {
            tracing::info!(
                node = seen.node,
                devices = status.discovered_devices.len(),
                "discovery result written"
            );
            *result = written;
        }
    }
    Ok(current)
}

/// The API server refuses the object itself: told on the LocalVolumeDiscovery, where people look first.
async fn tell_refusal(context: &Context, seen: &Observed, failure: Failure) -> Failure {
    if let (Some(answer), Some(discovery)) = (failure.refusal(), active_discovery(context)) {
        let reason = if seen.result.is_some() { UPDATE_FAILED } else { CREATE_FAILED };
        let message = format!(
            "{}: the API server refuses the result, it is tried again by itself: {answer}",
            seen.node
        );
        events::tell(
            context,
            discovery.as_ref(),
            &[PendingEvent { warning: true, reason, message }],
        )
        .await;
    }
    failure
}
