//! What to do about the agents' DaemonSet and about outdated agent pods. Checked in `check.rs`.

use super::{
    AgentDemand, AgentRequester, DaemonSetSettings, changes,
    confinement::{Gap, InstalledPolicy, gaps},
    desired, is_ours, outdated, replaceable,
};
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
};
use quarry_api::{NodeInventory, NodeJob, node_job::JobPhase};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// The DaemonSet of the agents, and everything that may need it.
#[derive(Clone, Debug)]
pub struct DaemonSetObserved {
    pub settings: DaemonSetSettings,
    /// The Volume controller is on.
    pub volumes: bool,
    pub requesters: Vec<AgentRequester>,
    /// Every Node, NodeInventory and NodeJob.
    pub nodes: Vec<Arc<Node>>,
    pub inventories: Vec<Arc<NodeInventory>>,
    pub jobs: Vec<Arc<NodeJob>>,
    pub found: Option<DaemonSet>,
    /// The admission policy on agents, read live.
    pub installed: InstalledPolicy,
}

#[derive(Clone, Debug)]
pub struct Observed {
    /// `None`: agents are started by other means.
    pub daemon_set: Option<DaemonSetObserved>,
    pub pods: Vec<Pod>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DaemonSetStep {
    /// It is as it should be, or nothing needs it.
    Nothing,
    Create(Box<DaemonSet>),
    Update {
        resource_version: String,
        changes: Box<Value>,
    },
    Delete {
        uid: String,
        resource_version: String,
    },
    /// Another project's DaemonSet has its name.
    LeaveAlone,
    /// It is being deleted, and is recreated afterwards.
    AwaitDeletion,
    /// No admission policy confines the agents: none is started, updated or replaced. Those that run are left, because a
    /// removed agent would leave jobs and device claims behind.
    Withhold(Vec<Gap>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct DaemonSetPlan {
    pub step: DaemonSetStep,
    /// The DaemonSet as it should be; `None`: no agent is needed.
    pub wanted: Option<Box<DaemonSet>>,
}

impl DaemonSetPlan {
    pub fn is_name_taken(&self) -> bool {
        self.step == DaemonSetStep::LeaveAlone
    }

    /// What the admission policy leaves open, if that keeps agents from being started.
    pub fn gaps(&self) -> Option<&[Gap]> {
        match &self.step {
            DaemonSetStep::Withhold(gaps) => Some(gaps),
            DaemonSetStep::Nothing
            | DaemonSetStep::Create(_)
            | DaemonSetStep::Update { .. }
            | DaemonSetStep::Delete { .. }
            | DaemonSetStep::LeaveAlone
            | DaemonSetStep::AwaitDeletion => None,
        }
    }
}

/// A pod, by name and UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodId {
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub daemon_set: Option<DaemonSetPlan>,
    /// The outdated agent that is deleted, so that the DaemonSet controller starts a new one.
    pub replace: Option<PodId>,
    pub requeue: SignedDuration,
}

/// The DaemonSet is not watched, its changes are rare: it is read at the start and every minute.
const INTERVAL: SignedDuration = SignedDuration::from_secs(60);
const WHILE_REPLACING: SignedDuration = SignedDuration::from_secs(5);
/// The policy is not watched either, and an administrator who has just installed it waits for agents.
const WHILE_WITHHELD: SignedDuration = SignedDuration::from_secs(5);

pub fn plan(seen: &Observed) -> Plan {
    let daemon_set = seen.daemon_set.as_ref().map(plan_daemon_set);
    let wanted = daemon_set.as_ref().and_then(|plan| plan.wanted.as_deref());
    let withheld = daemon_set.as_ref().is_some_and(|plan| plan.gaps().is_some());
    let left_alone = withheld || daemon_set.as_ref().is_some_and(DaemonSetPlan::is_name_taken);
    let replacement = match seen.daemon_set.as_ref().zip(wanted).filter(|_| !left_alone) {
        Some((observed, wanted)) => decide_replacement(&seen.pods, observed, wanted),
        None => Replacement::None,
    };
    let (replace, requeue) = match replacement {
        Replacement::None if withheld => (None, WHILE_WITHHELD),
        Replacement::None => (None, INTERVAL),
        Replacement::Await => (None, WHILE_REPLACING),
        Replacement::Replace(pod) => (Some(pod), WHILE_REPLACING),
    };
    Plan { daemon_set, replace, requeue }
}

/// Also used by the LocalVolumeDiscovery controller, whose status reports the API server's answer.
pub fn plan_daemon_set(seen: &DaemonSetObserved) -> DaemonSetPlan {
    let wanted = desired(&seen.settings, &demand(seen)).map(Box::new);
    let deleting = |found: &DaemonSet| found.metadata.deletion_timestamp.is_some();
    let version = |found: &DaemonSet| found.metadata.resource_version.clone().unwrap_or_default();
    let gaps = gaps(&seen.settings.namespace, &seen.installed);
    let step = match (&seen.found, &wanted) {
        (None, None) => DaemonSetStep::Nothing,
        (Some(found), Some(_)) if !is_ours(found) => DaemonSetStep::LeaveAlone,
        (_, Some(_)) if !gaps.is_empty() => DaemonSetStep::Withhold(gaps),
        (None, Some(wanted)) => DaemonSetStep::Create(wanted.clone()),
        (Some(found), Some(_)) if deleting(found) => DaemonSetStep::AwaitDeletion,
        (Some(found), Some(wanted)) if outdated(found, wanted) => DaemonSetStep::Update {
            resource_version: version(found),
            changes: Box::new(changes(wanted)),
        },
        (Some(found), None) if is_ours(found) && !deleting(found) => DaemonSetStep::Delete {
            uid: found.metadata.uid.clone().unwrap_or_default(),
            resource_version: version(found),
        },
        (Some(_), Some(_) | None) => DaemonSetStep::Nothing,
    };
    DaemonSetPlan { step, wanted }
}

/// Who needs agents, and which nodes keep theirs in any case.
fn demand(seen: &DaemonSetObserved) -> AgentDemand {
    let kept_nodes = if seen.volumes { Vec::new() } else { nodes_in_use(seen) };
    AgentDemand { everywhere: seen.volumes, requesters: seen.requesters.clone(), kept_nodes }
}

/// Nodes with device claims or unfinished jobs.
fn nodes_in_use(seen: &DaemonSetObserved) -> Vec<Arc<Node>> {
    let claimed = seen.inventories.iter().filter(|one| !one.spec.device_claims.is_empty());
    let claimed = claimed.filter_map(|inventory| inventory.metadata.name.as_deref());
    let used: BTreeSet<&str> = claimed.chain(busy_nodes(seen)).collect();
    let is_used =
        |node: &&Arc<Node>| node.metadata.name.as_deref().is_some_and(|name| used.contains(name));
    seen.nodes.iter().filter(is_used).cloned().collect()
}

/// Nodes with an unfinished job.
fn busy_nodes(seen: &DaemonSetObserved) -> impl Iterator<Item = &str> {
    let is_finished = |job: &NodeJob| {
        job.status.as_ref().and_then(|status| status.phase).is_some_and(JobPhase::finished)
    };
    let unfinished = seen.jobs.iter().filter(move |job| !is_finished(job));
    unfinished.map(|job| job.spec.node_name.as_str())
}

enum Replacement {
    None,
    /// A new agent is not ready yet.
    Await,
    Replace(PodId),
}

/// One at a time: a bad agent must not reach every node before it is noticed.
fn decide_replacement(pods: &[Pod], seen: &DaemonSetObserved, wanted: &DaemonSet) -> Replacement {
    let busy: BTreeSet<&str> = busy_nodes(seen).collect();
    let outdated = replaceable(pods, wanted, |node| busy.contains(node));
    let Some(pod) = outdated.first() else { return Replacement::None };
    // A new agent that is not ready (yet, or in a crash loop) keeps the next one from being replaced.
    let is_new = |pod: &Pod| !outdated.iter().any(|old| old.metadata.uid == pod.metadata.uid);
    let unproven = pods.iter().any(|pod| is_new(pod) && !is_ready(pod));
    if is_ready(pod) && unproven {
        return Replacement::Await;
    }
    Replacement::Replace(PodId {
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
