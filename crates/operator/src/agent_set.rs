//! The agents' DaemonSet: made and kept by the operator; outdated agents are replaced one by one when idle.

use crate::{
    Context,
    context::{Failure, Next},
    writer::Written,
};
use jiff::SignedDuration;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};
use quarry_api::names;
use quarry_core::agent_set::{desired, outdated, replaceable};
use serde_json::json;

/// A look at the DaemonSet, at start and now and then: nothing watches it, its changes are rare.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(60);

pub async fn reconcile_once(context: &Context) -> Result<Next, Failure> {
    let Some(wish) = &context.agent_set else { return Ok(Next::Rest) };
    let wanted = desired(wish);
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let failed = |error| Failure::api("the agents' DaemonSet", error);
    match api.get_opt(names::AGENT_DAEMON_SET).await.map_err(failed)? {
        None => {
            if let Written::Changed(_) = context.writer.create(&api, &wanted).await.map_err(failed)? {
                tracing::info!(image = wish.image, "agents' DaemonSet made");
            }
        }
        Some(found) if outdated(&found, &wanted) => {
            // The pod template must go through whole: a merge would keep what is no longer wanted in maps and lists of ours.
            let changes = json!({
                "metadata": {"annotations": wanted.metadata.annotations, "ownerReferences": wanted.metadata.owner_references},
                "spec": {"template": wanted.spec.as_ref().map(|spec| &spec.template)},
            });
            context.writer.patch(&api, names::AGENT_DAEMON_SET, &found.resource_version().unwrap_or_default(), changes).await.map_err(failed)?;
            tracing::info!(image = wish.image, "agents' DaemonSet updated");
        }
        Some(_) => {}
    }
    let replaced = replace_pod(context, &wanted).await?;
    Ok(Next::After(if replaced { SignedDuration::from_secs(5) } else { LOOK_EVERY }))
}

/// One at a time: a bad agent must not reach every node before it is noticed. `true` when one was replaced.
async fn replace_pod(context: &Context, wanted: &DaemonSet) -> Result<bool, Failure> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.namespace);
    let selector = format!("app.kubernetes.io/name={}", names::AGENT_DAEMON_SET);
    let pods = api.list(&ListParams::default().labels(&selector)).await.map_err(|error| Failure::api("listing the agents' pods", error))?.items;
    let busy = |node: &str| {
        context
            .caches
            .jobs
            .all()
            .iter()
            .any(|job| job.spec.node_name == node && !job.status.as_ref().and_then(|status| status.phase).is_some_and(|phase| phase.finished()))
    };
    let candidates = replaceable(&pods, wanted, busy);
    let Some(pod) = candidates.first() else { return Ok(false) };
    // A new agent that is not ready (yet, or in a crash loop) keeps the next one from being replaced.
    let unproven = pods.iter().any(|other| !candidates.iter().any(|old| old.uid() == other.uid()) && !is_ready(other));
    if is_ready(pod) && unproven {
        return Ok(true);
    }
    let name = pod.name_any();
    context.writer.delete(&api, &name, &pod.uid().unwrap_or_default(), None).await.map_err(|error| Failure::api(format!("replacing agent {name}"), error))?;
    tracing::info!(pod = name, "agent replaced");
    Ok(true)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none() && conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
