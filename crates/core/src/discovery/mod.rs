//! LocalVolumeDiscovery: which one is in force, which nodes it covers, and its status.
//!
//! One LocalVolumeDiscovery is in force: the oldest of the operator's namespace. It covers the nodes that its selector
//! selects and whose taints it tolerates, so that the results do not depend on which other controllers are on. Next to read: `result.rs` (the projection of one inventory), `status.rs`.

mod check;
pub mod result;
mod status;

pub use check::{Violation, check};

use crate::{
    agent_daemon_set::{
        AgentRequester, DaemonSetObserved, DaemonSetPlan,
        confinement::{Gap, NOT_CONFINED},
        plan_daemon_set,
    },
    event::PendingEvent,
    node_selector::{problems, selects, toleration_problems, untolerated},
    presence::Presence,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Resource;
use quarry_api::{LocalVolumeDiscovery, local_volume_discovery::LocalVolumeDiscoveryStatus};
use std::sync::Arc;

/// Everything that a decision about one LocalVolumeDiscovery needs.
#[derive(Clone, Debug)]
pub struct Observed {
    pub discovery: LocalVolumeDiscovery,
    /// The operator's.
    pub namespace: String,
    /// The one in force there, by name; possibly this one.
    pub active: Option<String>,
    pub nodes: Vec<NodeSeen>,
    /// The agents' DaemonSet; `None` where this object is not in force, or agents are started by other means.
    pub daemon_set: Option<DaemonSetObserved>,
}

#[derive(Clone, Debug)]
pub struct NodeSeen {
    pub node: Arc<Node>,
    pub agent: Presence,
    /// The inventory has a status of this Node.
    pub reported: bool,
    /// Problems that keep the agent from reading everything.
    pub problems: Vec<String>,
}

/// How agents are deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agents {
    /// By the DaemonSet, which is up to date.
    Deployed,
    /// By other means: standalone, or agents that an administrator runs.
    Elsewhere,
    /// The API server refuses the DaemonSet, with its answer.
    Refused(String),
    /// An unmanaged DaemonSet has its name.
    NameTaken,
    /// None is started: what the admission policy on agents leaves open.
    NotConfined(Vec<Gap>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What is done about the agents' DaemonSet before the status is written.
    pub daemon_set: Option<DaemonSetPlan>,
}

/// What is published once the plan was applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// `None` when nothing is reported: the object is being deleted.
    pub status: Option<LocalVolumeDiscoveryStatus>,
    pub requeue: Option<SignedDuration>,
    pub notes: Vec<PendingEvent>,
}

/// Of all that exist, the one in force: in the operator's namespace, not being deleted, the oldest, then by name.
pub fn active<'a>(
    all: impl IntoIterator<Item = &'a LocalVolumeDiscovery>,
    namespace: &str,
) -> Option<&'a LocalVolumeDiscovery> {
    all.into_iter()
        .filter(|one| {
            one.metadata.namespace.as_deref() == Some(namespace)
                && one.metadata.deletion_timestamp.is_none()
        })
        .min_by_key(|one| {
            (one.metadata.creation_timestamp.as_ref().map(|time| time.0), one.metadata.name.clone())
        })
}

/// Whether discovery covers a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Coverage<'a> {
    Covered,
    NotSelected,
    /// Selected, but this taint is not tolerated.
    KeptAway(&'a Taint),
}

/// An invalid selector covers nothing.
pub fn coverage<'a>(discovery: &LocalVolumeDiscovery, node: &'a Node) -> Coverage<'a> {
    if !spec_problems(discovery).is_empty() || !selects(discovery.spec.node_selector.as_ref(), node)
    {
        return Coverage::NotSelected;
    }
    match untolerated(node, discovery.spec.tolerations.as_deref().unwrap_or_default()) {
        Some(taint) => Coverage::KeptAway(taint),
        None => Coverage::Covered,
    }
}

fn spec_problems(discovery: &LocalVolumeDiscovery) -> Vec<String> {
    let selector = discovery
        .spec
        .node_selector
        .as_ref()
        .map(|selector| problems(selector, "spec.nodeSelector"))
        .unwrap_or_default();
    let tolerations = toleration_problems(
        discovery.spec.tolerations.as_deref().unwrap_or_default(),
        "spec.tolerations",
    );
    selector.into_iter().chain(tolerations).collect()
}

/// Its request for agents; `None` if it is invalid.
pub fn agent_requester(discovery: &LocalVolumeDiscovery) -> Option<AgentRequester> {
    if !spec_problems(discovery).is_empty() {
        return None;
    }
    Some(AgentRequester {
        api_version: LocalVolumeDiscovery::api_version(&()).into_owned(),
        kind: LocalVolumeDiscovery::kind(&()).into_owned(),
        name: discovery.metadata.name.clone()?,
        uid: discovery.metadata.uid.clone()?,
        selector: discovery.spec.node_selector.clone(),
        tolerations: discovery.spec.tolerations.clone().unwrap_or_default(),
    })
}

/// The delay before a DaemonSet that was refused or withheld is tried again.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

pub fn plan(seen: &Observed, _now: Timestamp) -> Plan {
    Plan { daemon_set: seen.daemon_set.as_ref().map(plan_daemon_set) }
}

/// The status, given how the agents got onto nodes.
pub fn report(seen: &Observed, agents: Agents, now: Timestamp) -> Report {
    if seen.discovery.metadata.deletion_timestamp.is_some() {
        return Report::default();
    }
    let update = status::decide(seen, &agents);
    let requeue = match &update {
        status::StatusUpdate::Failed { reason, .. } => {
            [status::DAEMON_SET_FAILED, NOT_CONFINED].contains(reason).then_some(ASK_AGAIN)
        }
        // An agent that stops renewing its Lease causes no event: requeued for when the first Lease expires.
        status::StatusUpdate::Waiting { .. } | status::StatusUpdate::Running { .. } => {
            first_lapse(seen)
                .map(|until| until.duration_since(now).max(SignedDuration::from_secs(1)))
        }
    };
    let (status, notes) = update.into_status(&seen.discovery, now);
    Report { status: Some(status), requeue, notes }
}

fn first_lapse(seen: &Observed) -> Option<Timestamp> {
    let covered =
        seen.nodes.iter().filter(|one| coverage(&seen.discovery, &one.node) == Coverage::Covered);
    let until = |one: &NodeSeen| match one.agent {
        Presence::Present { until } => Some(until),
        Presence::Never | Presence::Absent { .. } => None,
    };
    covered.filter_map(until).min()
}

#[cfg(test)]
mod tests;
