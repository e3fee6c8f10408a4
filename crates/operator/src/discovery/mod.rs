//! The LocalVolumeDiscovery controller: sees to the agents, then says how discovery stands. Results: `result.rs`.

pub mod result;

use crate::{
    Context,
    agent_daemon_set::{self, Ensured},
    context::{Failure, Next},
    driver::ControllerName,
    events,
    writer::Written,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use quarry_api::{LocalVolumeDiscovery, NodeInventoryStatus, names};
use quarry_core::{
    discovery::{self, Agents, NodeSeen, Observed},
    presence::presence,
};
use serde_json::json;
use std::sync::Arc;

/// The one in force, if there is one.
pub fn active_discovery(context: &Context) -> Option<Arc<LocalVolumeDiscovery>> {
    let all = context.caches.discoveries.all();
    let active = discovery::active(all.iter().map(AsRef::as_ref), &context.namespace)?.uid();
    all.into_iter().find(|one| one.uid() == active)
}

pub async fn reconcile_once(context: &Context, key: &str) -> Result<Next, Failure> {
    let Some(found) = context.caches.discoveries.get(key) else { return Ok(Next::AwaitChange) };
    let active = active_discovery(context);
    let in_force = active.as_ref().is_some_and(|active| active.uid() == found.uid());
    // The agents first: what the API server says to them is part of what is observed.
    let agents = if in_force { ensure_agents(context).await? } else { Agents::Elsewhere };
    let seen = observe(context, &found, active.as_deref(), agents);
    let plan = discovery::plan(&seen, context.now());
    if let Some(status) = &plan.status {
        let (name, namespace) = (found.name_any(), found.namespace().unwrap_or_default());
        let api: Api<LocalVolumeDiscovery> = Api::namespaced(context.client.clone(), &namespace);
        let old = found.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
        let written = context
            .writer
            .patch_status(
                &api,
                &name,
                &found.resource_version().unwrap_or_default(),
                &old,
                &json!(status),
            )
            .await;
        match written.map_err(|error| {
            Failure::api(format!("writing the status of LocalVolumeDiscovery {key}"), error)
        })? {
            Written::Changed(_) => tracing::info!(
                discovery = key,
                phase = status.phase.map_or("", |phase| phase.as_str()),
                "status"
            ),
            Written::Unchanged => {}
        }
    }
    events::tell(context, found.as_ref(), &plan.notes).await;
    Ok(plan.requeue.map_or(Next::AwaitChange, Next::Requeue))
}

async fn ensure_agents(context: &Context) -> Result<Agents, Failure> {
    if context.agent_daemon_set.is_none() || !context.runs(ControllerName::Agent) {
        return Ok(Agents::Elsewhere);
    }
    match agent_daemon_set::ensure(context).await {
        Ok(Ensured::There(_) | Ensured::Unwanted) => Ok(Agents::Deployed),
        Ok(Ensured::NameTaken) => Ok(Agents::NameTaken),
        Err(failure) => match failure.refusal() {
            Some(answer) => {
                tracing::warn!(answer, "the agents' DaemonSet is refused");
                Ok(Agents::Refused(answer.to_owned()))
            }
            None => Err(failure),
        },
    }
}

/// What a machine that had this name before reported does not count.
fn is_of(status: &NodeInventoryStatus, node: &Node) -> bool {
    status.node_uid.is_none() || status.node_uid == node.metadata.uid
}

fn observe(
    context: &Context,
    discovery: &LocalVolumeDiscovery,
    active: Option<&LocalVolumeDiscovery>,
    agents: Agents,
) -> Observed {
    let (caches, now) = (&context.caches, context.now());
    let nodes = caches.nodes.all().into_iter().map(|node| {
        let name = node.name_any();
        let inventory = caches.inventories.get(&name);
        NodeSeen {
            agent: presence(caches.leases.get(&names::agent_lease(&name)).as_deref(), now),
            reported: inventory
                .as_ref()
                .and_then(|inventory| inventory.status.as_ref())
                .is_some_and(|status| is_of(status, &node)),
            problems: inventory
                .and_then(|inventory| Some(inventory.status.as_ref()?.problems.clone()))
                .unwrap_or_default(),
            node,
        }
    });
    Observed {
        discovery: discovery.clone(),
        namespace: context.namespace.clone(),
        active: active.map(ResourceExt::name_any),
        nodes: nodes.collect(),
        agents,
    }
}
