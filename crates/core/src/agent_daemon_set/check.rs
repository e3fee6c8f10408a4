//! What may never be done to the agents' DaemonSet or to an agent, whatever the planner decided.

use super::{DaemonSetObserved, DaemonSetPlan, DaemonSetStep, Observed, Plan};
use quarry_api::{crds::MANAGED_BY_LABEL, names};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a DaemonSet that Quarry did not create is changed")]
    NotOurs,
    #[error("the agents are removed although a device claim, a job or an object needs them")]
    NeededAgents,
    #[error("an agent is replaced while a job runs on its node (invariant 2)")]
    BusyAgent,
    #[error("a pod is deleted that is no agent's, or without its UID")]
    NoAgent,
}

pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = match (&seen.daemon_set, &plan.daemon_set) {
        (Some(seen), Some(plan)) => check_daemon_set(seen, plan),
        (None, Some(_)) => vec![Violation::NotOurs],
        (_, None) => Vec::new(),
    };
    if let Some(pod) = &plan.replace {
        let known = seen.pods.iter().find(|one| {
            !pod.uid.is_empty()
                && one.metadata.uid.as_ref() == Some(&pod.uid)
                && one.metadata.name.as_ref() == Some(&pod.name)
        });
        match known {
            None => found.push(Violation::NoAgent),
            Some(one) => {
                let node = one.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
                if node.is_some_and(|node| seen.busy_nodes.contains(node)) {
                    found.push(Violation::BusyAgent);
                }
            }
        }
    }
    found
}

pub fn check_daemon_set(seen: &DaemonSetObserved, plan: &DaemonSetPlan) -> Vec<Violation> {
    let labels = seen.found.as_ref().and_then(|found| found.metadata.labels.as_ref());
    let label = labels.and_then(|labels| labels.get(MANAGED_BY_LABEL));
    let ours = label.is_some_and(|by| by == names::MANAGED_BY);
    let needed = seen.demand.everywhere
        || !seen.demand.kept_nodes.is_empty()
        || seen.demand.requesters.iter().any(|requester| requester.selector.is_none());
    match &plan.step {
        DaemonSetStep::Nothing | DaemonSetStep::LeaveAlone | DaemonSetStep::AwaitDeletion => {
            Vec::new()
        }
        DaemonSetStep::Create(_) if seen.found.is_some() => vec![Violation::NotOurs],
        DaemonSetStep::Create(_) => Vec::new(),
        DaemonSetStep::Update { .. } if ours => Vec::new(),
        DaemonSetStep::Delete { .. } if ours && !needed => Vec::new(),
        DaemonSetStep::Delete { .. } if ours => vec![Violation::NeededAgents],
        DaemonSetStep::Update { .. } | DaemonSetStep::Delete { .. } => vec![Violation::NotOurs],
    }
}
