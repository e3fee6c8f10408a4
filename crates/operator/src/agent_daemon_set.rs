//! The agents' DaemonSet: made, kept and removed by the operator; outdated agents are replaced one by one when idle.

use crate::{
    Context,
    context::{Failure, Next},
    device_claims::observe as claims,
    discovery::active_discovery,
    driver::ControllerName,
    writer::Written,
};
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
};
use kube::{Api, ResourceExt, api::ListParams};
use quarry_api::{NodeJob, names};
use quarry_core::agent_daemon_set::{
    AgentDemand, changes, desired, is_ours, name_taken, outdated, replaceable,
};
use std::{collections::BTreeSet, sync::Arc};

/// A look at the DaemonSet, at start and now and then: nothing watches it, its changes are rare.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(60);

pub async fn reconcile_once(context: &Context) -> Result<Next, Failure> {
    let wanted = match ensure(context).await? {
        Ensured::There(wanted) => wanted,
        Ensured::Unwanted | Ensured::NameTaken => return Ok(Next::Requeue(LOOK_EVERY)),
    };
    let replaced = replace_pod(context, &wanted).await?;
    Ok(Next::Requeue(if replaced { SignedDuration::from_secs(5) } else { LOOK_EVERY }))
}

/// How it stands with the DaemonSet.
pub enum Ensured {
    /// As it should be.
    There(Box<DaemonSet>),
    /// There is none: nobody asks for agents, or they are run by other means.
    Unwanted,
    /// Somebody else's has its name and was left alone.
    NameTaken,
}

/// Makes the DaemonSet as it should be, or removes it. Also called by the discovery controller, which tells the people
/// when that fails.
pub async fn ensure(context: &Context) -> Result<Ensured, Failure> {
    let Some(wish) = &context.agent_daemon_set else { return Ok(Ensured::Unwanted) };
    let wanted = desired(wish, &asked(context));
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let failed = |error| Failure::api("the agents' DaemonSet", error);
    let found = api.get_opt(names::AGENT_DAEMON_SET).await.map_err(failed)?;
    match (found, &wanted) {
        (None, None) => {}
        (None, Some(wanted)) => {
            if let Written::Changed(_) =
                context.writer.create(&api, wanted).await.map_err(failed)?
            {
                tracing::info!(image = wish.image, "agents' DaemonSet made");
            }
        }
        (Some(found), Some(_)) if !is_ours(&found) => {
            tracing::warn!("no agents are run: {}", name_taken(&context.namespace));
            return Ok(Ensured::NameTaken);
        }
        // Its last owner is gone, or somebody deletes it: made anew as soon as it is.
        (Some(found), Some(_)) if found.metadata.deletion_timestamp.is_some() => {
            return Err(Failure::behind("the agents' DaemonSet is being deleted"));
        }
        (Some(found), Some(wanted)) if outdated(&found, wanted) => {
            context
                .writer
                .patch(
                    &api,
                    names::AGENT_DAEMON_SET,
                    &found.resource_version().unwrap_or_default(),
                    changes(wanted),
                )
                .await
                .map_err(failed)?;
            tracing::info!(image = wish.image, "agents' DaemonSet updated");
        }
        (Some(_), Some(_)) => {}
        (Some(found), None) => {
            if is_ours(&found) && found.metadata.deletion_timestamp.is_none() {
                let version = found.resource_version();
                let uid = found.uid().unwrap_or_default();
                context
                    .writer
                    .delete(&api, names::AGENT_DAEMON_SET, &uid, version.as_deref())
                    .await
                    .map_err(failed)?;
                tracing::info!("agents' DaemonSet removed: nobody asks for agents");
            }
        }
    }
    Ok(wanted.map_or(Ensured::Unwanted, |wanted| Ensured::There(Box::new(wanted))))
}

/// Who asks for agents, and which nodes keep theirs whoever asks.
fn asked(context: &Context) -> AgentDemand {
    let everywhere = context.runs(ControllerName::Volume);
    let discovery =
        context.runs(ControllerName::Discovery).then(|| active_discovery(context)).flatten();
    let owners = if claims::is_planned(context) { claims::demands(context) } else { Vec::new() };
    let requesters = discovery
        .as_deref()
        .and_then(quarry_core::discovery::agent_requester)
        .into_iter()
        .chain(owners.iter().filter_map(quarry_core::device_claim::Demand::agent_requester))
        .collect();
    let kept = if everywhere { Vec::new() } else { kept(context) };
    AgentDemand { everywhere, requesters, kept_nodes: kept }
}

fn kept(context: &Context) -> Vec<Arc<Node>> {
    let caches = &context.caches;
    let claimed = caches
        .inventories
        .all()
        .into_iter()
        .filter(|inventory| !inventory.spec.device_claims.is_empty())
        .map(|inventory| inventory.name_any());
    let working = caches
        .jobs
        .all()
        .into_iter()
        .filter(|job| is_unfinished(job))
        .map(|job| job.spec.node_name.clone());
    let names: BTreeSet<String> = claimed.chain(working).collect();
    names.iter().filter_map(|name| caches.nodes.get(name)).collect()
}

fn is_unfinished(job: &NodeJob) -> bool {
    !job.status.as_ref().and_then(|status| status.phase).is_some_and(|phase| phase.finished())
}

/// One at a time: a bad agent must not reach every node before it is noticed. `true` when one was replaced.
async fn replace_pod(context: &Context, wanted: &DaemonSet) -> Result<bool, Failure> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.namespace);
    let selector = format!("app.kubernetes.io/name={}", names::AGENT_DAEMON_SET);
    let pods = api
        .list(&ListParams::default().labels(&selector))
        .await
        .map_err(|error| Failure::api("listing the agents' pods", error))?
        .items;
    let busy = |node: &str| {
        context.caches.jobs.all().iter().any(|job| job.spec.node_name == node && is_unfinished(job))
    };
    let candidates = replaceable(&pods, wanted, busy);
    let Some(pod) = candidates.first() else { return Ok(false) };
    // A new agent that is not ready (yet, or in a crash loop) keeps the next one from being replaced.
    let unproven = pods
        .iter()
        .any(|other| !candidates.iter().any(|old| old.uid() == other.uid()) && !is_ready(other));
    if is_ready(pod) && unproven {
        return Ok(true);
    }
    let name = pod.name_any();
    context
        .writer
        .delete(&api, &name, &pod.uid().unwrap_or_default(), None)
        .await
        .map_err(|error| Failure::api(format!("replacing agent {name}"), error))?;
    tracing::info!(pod = name, "agent replaced");
    Ok(true)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
