//! The status of a LocalVolumeDiscovery: its phase and the conditions Available, Progressing and Degraded.

use super::{Agents, Coverage, NodeObservation, Observed, coverage, spec_problems};
use crate::{
    agent_daemon_set::{
        confinement::{NOT_CONFINED, not_confined},
        name_taken,
    },
    event::PendingEvent,
    node_selector::{known_values, selector_text, taint_text},
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Time};
use quarry_api::{
    LocalVolumeDiscovery,
    local_volume_discovery::{DiscoveryPhase, LocalVolumeDiscoveryStatus, OperatorCondition},
};

/// How many nodes, labels or taints a message lists.
const NAMED: usize = 3;

/// Reasons of the conditions.
pub const OUTSIDE_NAMESPACE: &str = "OutsideOperatorNamespace";
pub const NOT_IN_FORCE: &str = "AnotherDiscoveryIsInForce";
pub const INVALID_SPEC: &str = "InvalidSpec";
pub const NO_NODE: &str = "NoNodeSelected";
pub const NODES_TAINTED: &str = "NodesTainted";
pub const DAEMON_SET_FAILED: &str = "DaemonSetFailed";
pub const AGENTS_MISSING: &str = "AgentsMissing";
pub const NOT_REPORTED: &str = "DevicesNotReported";
pub const NODE_PROBLEMS: &str = "NodeProblems";
pub const DISCOVERING: &str = "Discovering";
const AS_EXPECTED: &str = "AsExpected";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusUpdate {
    /// Nothing is discovered for it.
    Failed { reason: &'static str, message: String },
    /// Nothing is discovered for it, because the API server refuses the agents' DaemonSet; its answer follows.
    Refused { message: String },
    /// Not every node has its agent, or not every agent has reported its devices.
    Waiting { reason: &'static str, message: String },
    /// Everything is reported; `problems` are what agents cannot read.
    Running { message: String, problems: Option<String> },
}

pub fn decide(seen: &Observed, agents: &Agents) -> StatusUpdate {
    let failed = |reason, message| StatusUpdate::Failed { reason, message };
    let discovery = &seen.discovery;
    let namespace = &seen.namespace;
    if discovery.metadata.namespace.as_ref() != Some(namespace) {
        return failed(
            OUTSIDE_NAMESPACE,
            format!(
                "this operator serves only its own namespace; delete this LocalVolumeDiscovery and create it in namespace {namespace}"
            ),
        );
    }
    let active = seen.active().and_then(|active| active.metadata.name.as_ref());
    if let Some(active) = active.filter(|active| Some(*active) != discovery.metadata.name.as_ref())
    {
        return failed(
            NOT_IN_FORCE,
            format!(
                "the older LocalVolumeDiscovery {active} is in force, and only one can be; change {active} and delete this one"
            ),
        );
    }
    let problems = spec_problems(discovery);
    if !problems.is_empty() {
        return failed(INVALID_SPEC, problems.join("; "));
    }
    match agents {
        Agents::Deployed | Agents::Elsewhere => nodes(seen, agents),
        Agents::Refused => StatusUpdate::Refused {
            message: "the API server refuses the DaemonSet of the agents, and it is retried".into(),
        },
        Agents::NameTaken => {
            failed(DAEMON_SET_FAILED, format!("no agents run: {}", name_taken(namespace)))
        }
        Agents::NotConfined(gaps) => failed(NOT_CONFINED, not_confined(namespace, gaps)),
    }
}

fn nodes(seen: &Observed, agents: &Agents) -> StatusUpdate {
    let total =
        |count: usize| if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") };
    let mut covered: Vec<&NodeObservation> = Vec::new();
    let mut kept_away: Vec<(&str, &Taint)> = Vec::new();
    for one in &seen.nodes {
        match coverage(&seen.discovery, &one.node) {
            Coverage::Covered => covered.push(one),
            Coverage::KeptAway(taint) => kept_away.push((name_of(one), taint)),
            Coverage::NotSelected => {}
        }
    }
    if covered.is_empty() {
        return nothing_covered(seen, &kept_away);
    }
    let left_out = if kept_away.is_empty() {
        String::new()
    } else {
        format!("; not covered: {}", tainted(&kept_away))
    };
    let (missing, look) = missing_agents(seen, agents, &covered);
    if !missing.is_empty() {
        let message = format!(
            "no agent on {} of {}: {}; {look}{left_out}",
            missing.len(),
            total(covered.len()),
            some(&missing, "; ")
        );
        return StatusUpdate::Waiting { reason: AGENTS_MISSING, message };
    }
    let silent: Vec<String> =
        covered.iter().filter(|one| !one.reported).map(|one| name_of(one).to_owned()).collect();
    if !silent.is_empty() {
        let (verb, whose) = if silent.len() == 1 {
            ("has not reported its", "its agent")
        } else {
            ("have not reported their", "their agents")
        };
        let message = format!(
            "{} of {} {verb} devices yet: {}; if this persists, check the log of {whose}{left_out}",
            silent.len(),
            total(covered.len()),
            some(&silent, ", ")
        );
        return StatusUpdate::Waiting { reason: NOT_REPORTED, message };
    }
    let problems: Vec<String> = covered
        .iter()
        .flat_map(|one| {
            one.problems.iter().map(|problem| format!("node {}: {problem}", name_of(one)))
        })
        .collect();
    StatusUpdate::Running {
        message: format!("the devices of {} are listed{left_out}", total(covered.len())),
        problems: (!problems.is_empty()).then(|| some(&problems, "; ")),
    }
}

/// Who has no agent, and where to look: agents are pods only where we deploy them.
fn missing_agents(
    seen: &Observed,
    agents: &Agents,
    covered: &[&NodeObservation],
) -> (Vec<String>, String) {
    match agents {
        Agents::Deployed => (
            covered.iter().filter_map(|one| one.agent.problem(name_of(one))).collect(),
            format!("run `kubectl -n {} describe daemonset quarry-agent` to see why pods are not created", seen.namespace),
        ),
        Agents::Elsewhere | Agents::Refused | Agents::NameTaken | Agents::NotConfined(_) => (
            covered.iter().filter_map(|one| one.agent.finding(name_of(one))).collect(),
            "this operator deploys no agents; check that the node is up, and run `quarry agent` on it".to_owned(),
        ),
    }
}

fn nothing_covered(seen: &Observed, kept_away: &[(&str, &Taint)]) -> StatusUpdate {
    if !kept_away.is_empty() {
        return StatusUpdate::Failed {
            reason: NODES_TAINTED,
            message: format!("every selected node is tainted: {}", tainted(kept_away)),
        };
    }
    let message = match &seen.discovery.spec.node_selector {
        None => "the cluster has no nodes yet; discovery starts with the first one".to_owned(),
        Some(selector) => {
            let known =
                known_values(selector, seen.nodes.iter().map(|one| one.node.as_ref()), NAMED);
            let known =
                if known.is_empty() { String::new() } else { format!(" ({})", known.join("; ")) };
            format!(
                "spec.nodeSelector matches no node: {}{known}; change the selector, or label nodes",
                selector_text(selector)
            )
        }
    };
    StatusUpdate::Failed { reason: NO_NODE, message }
}

fn tainted(kept_away: &[(&str, &Taint)]) -> String {
    let each: Vec<String> =
        kept_away.iter().map(|(node, taint)| format!("{node} ({})", taint_text(taint))).collect();
    format!("{}; add a toleration to spec.tolerations to cover the node", some(&each, ", "))
}

fn some(all: &[String], separator: &str) -> String {
    let named = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(separator);
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}{separator}and {more} more"),
    }
}

fn name_of(one: &NodeObservation) -> &str {
    one.node.metadata.name.as_deref().unwrap_or_default()
}

impl StatusUpdate {
    /// With the API server's answer, which is known only after the plan.
    pub(super) fn with_answer(self, answer: &str) -> Self {
        match self {
            StatusUpdate::Refused { message } => {
                StatusUpdate::Refused { message: format!("{message}: {answer}") }
            }
            StatusUpdate::Failed { .. }
            | StatusUpdate::Waiting { .. }
            | StatusUpdate::Running { .. } => self,
        }
    }

    /// The status, and an Event when its main condition changes.
    pub fn into_status(
        self,
        discovery: &LocalVolumeDiscovery,
        now: Timestamp,
    ) -> (LocalVolumeDiscoveryStatus, Vec<PendingEvent>) {
        let fine = || (false, AS_EXPECTED, String::new());
        let failed = |reason: &'static str, message: String| {
            (
                DiscoveryPhase::DiscoveryFailed,
                (false, reason, message.clone()),
                (true, reason, message),
                (false, reason, String::new()),
            )
        };
        let (phase, available, degraded, progressing) = match self {
            StatusUpdate::Failed { reason, message } => failed(reason, message),
            StatusUpdate::Refused { message } => failed(DAEMON_SET_FAILED, message),
            StatusUpdate::Waiting { reason, message } => (
                DiscoveryPhase::Discovering,
                (false, reason, message.clone()),
                fine(),
                (true, reason, message),
            ),
            StatusUpdate::Running { message, problems } => {
                let degraded =
                    problems.map_or_else(fine, |problems| (true, NODE_PROBLEMS, problems));
                (DiscoveryPhase::Discovering, (true, DISCOVERING, message), degraded, fine())
            }
        };
        let main = if degraded.0 { ("Degraded", &degraded) } else { ("Available", &available) };
        let warning = degraded.0 || !available.0;
        let old = |kind: &str| {
            discovery
                .status
                .iter()
                .flat_map(|status| &status.conditions)
                .find(move |condition| condition.kind == kind)
        };
        let reported = old(main.0).is_some_and(|old| {
            old.reason.as_deref() == Some(main.1.1)
                && old.message.as_deref() == Some(main.1.2.as_str())
        });
        let events = if reported {
            Vec::new()
        } else {
            vec![PendingEvent { warning, reason: main.1.1, message: main.1.2.clone() }]
        };
        let conditions =
            [("Available", available), ("Degraded", degraded), ("Progressing", progressing)].map(
                |(kind, (holds, reason, message))| {
                    condition(kind, holds, reason, message, old(kind), now)
                },
            );
        let status = LocalVolumeDiscoveryStatus {
            phase: Some(phase),
            conditions: conditions.into(),
            observed_generation: discovery.metadata.generation,
        };
        (status, events)
    }
}

/// Its time changes with its status only, by the API conventions.
fn condition(
    kind: &str,
    holds: bool,
    reason: &str,
    message: String,
    old: Option<&OperatorCondition>,
    now: Timestamp,
) -> OperatorCondition {
    let status = if holds { "True" } else { "False" };
    let since =
        old.filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
    // Kubernetes stores whole seconds.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    OperatorCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message).filter(|message| !message.is_empty()),
        last_transition_time: since.or(Some(now)),
    }
}
