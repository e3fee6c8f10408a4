//! LocalVolumeDiscovery: which one is in force, which nodes it covers, and its status.
//!
//! One LocalVolumeDiscovery is in force: the oldest of the operator's namespace. It covers the nodes that its selector
//! selects and whose taints it tolerates, so that the results do not depend on which other controllers are on. Next to
//! read: `plan.rs`, `status.rs`, `result/` (the projection of one inventory).

mod check;
mod plan;
pub mod result;
mod status;

pub use check::{Violation, check};
pub use plan::{plan, report_refusal};
pub use status::StatusUpdate;

use crate::{
    agent_daemon_set::{AgentRequester, DaemonSetObserved, DaemonSetPlan, confinement::Gap},
    event::PendingEvent,
    node_selector::{problems, selects, toleration_problems, untolerated},
    presence::Presence,
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Resource;
use quarry_api::{
    LocalVolumeDiscovery, NodeInventory, NodeInventoryStatus,
    local_volume_discovery::LocalVolumeDiscoveryStatus,
};
use std::sync::Arc;

/// Everything that a decision about one LocalVolumeDiscovery needs.
#[derive(Clone, Debug)]
pub struct Observed {
    pub discovery: LocalVolumeDiscovery,
    /// The operator's.
    pub namespace: String,
    /// Every LocalVolumeDiscovery, this one included, of all namespaces.
    pub discoveries: Vec<Arc<LocalVolumeDiscovery>>,
    pub nodes: Vec<NodeObservation>,
    /// The agents' DaemonSet; `None` where agents are started by other means.
    pub daemon_set: Option<DaemonSetObserved>,
}

impl Observed {
    /// The one in force, possibly this one.
    fn active(&self) -> Option<&LocalVolumeDiscovery> {
        active(self.discoveries.iter().map(AsRef::as_ref), &self.namespace)
    }
}

#[derive(Clone, Debug)]
pub struct NodeObservation {
    pub node: Arc<Node>,
    pub agent: Presence,
    /// The inventory has a status of this Node.
    pub reported: bool,
    /// Problems that keep the agent from reading everything.
    pub problems: Vec<String>,
}

impl NodeObservation {
    /// `inventory`: of this node, also one that another machine reported.
    pub fn new(node: Arc<Node>, agent: Presence, inventory: Option<&NodeInventory>) -> Self {
        let status = inventory.and_then(|inventory| inventory.status.as_ref());
        NodeObservation {
            agent,
            reported: status.is_some_and(|status| is_report_of(status, &node)),
            problems: status.map(|status| status.problems.clone()).unwrap_or_default(),
            node,
        }
    }
}

/// Whether this Node reported it, and not another machine that had its name before.
pub fn is_report_of(status: &NodeInventoryStatus, node: &Node) -> bool {
    status.node_uid.is_none() || status.node_uid == node.metadata.uid
}

/// How agents are deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agents {
    /// By the DaemonSet, which is up to date.
    Deployed,
    /// By other means: standalone, or agents that an administrator runs.
    Elsewhere,
    /// The API server refuses the DaemonSet.
    Refused,
    /// An unmanaged DaemonSet has its name.
    NameTaken,
    /// None is started: what the admission policy on agents leaves open.
    NotConfined(Vec<Gap>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What is done about the agents' DaemonSet before the status is written.
    pub daemon_set: Option<DaemonSetPlan>,
    /// Published once that is done.
    pub report: Report,
    /// Reported instead if the API server refuses the DaemonSet, with its answer; `None`: no DaemonSet is applied.
    pub refused: Option<StatusUpdate>,
}

/// What is published once the plan was applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// `None` when nothing is reported: the object is being deleted.
    pub status: Option<LocalVolumeDiscoveryStatus>,
    pub requeue: Option<SignedDuration>,
    pub events: Vec<PendingEvent>,
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

/// The request for agents of the one in force; `None` if there is none, or it is invalid.
pub fn agent_requester_in_force(
    all: &[Arc<LocalVolumeDiscovery>],
    namespace: &str,
) -> Option<AgentRequester> {
    active(all.iter().map(AsRef::as_ref), namespace).and_then(agent_requester)
}

/// Its request for agents; `None` if it is invalid.
fn agent_requester(discovery: &LocalVolumeDiscovery) -> Option<AgentRequester> {
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

#[cfg(test)]
mod tests;
