//! What may never be done to the agents' DaemonSet or to an agent, whatever the planner decided.

use super::{DaemonSetObserved, DaemonSetPlan, DaemonSetStep, Observed, Plan};
use quarry_api::{NodeJob, crds::MANAGED_BY_LABEL, names, node_job::JobPhase};

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
                let runs = |job: &NodeJob| may_run(job) && Some(&job.spec.node_name) == node;
                let jobs = seen.daemon_set.iter().flat_map(|seen| &seen.jobs);
                if jobs.into_iter().any(|job| runs(job)) {
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
    let mut found = Vec::new();
    let mut forbid = |broken: bool, violation: Violation| {
        if broken {
            found.push(violation);
        }
    };
    match &plan.step {
        DaemonSetStep::Nothing | DaemonSetStep::LeaveAlone | DaemonSetStep::AwaitDeletion => {}
        DaemonSetStep::Create(_) => forbid(seen.found.is_some(), Violation::NotOurs),
        DaemonSetStep::Update { .. } => forbid(!ours, Violation::NotOurs),
        DaemonSetStep::Delete { .. } => {
            forbid(!ours, Violation::NotOurs);
            forbid(is_needed(seen), Violation::NeededAgents);
        }
    }
    found
}

/// A Volume may be on any node, an object requests agents everywhere, or a node still needs its own.
fn is_needed(seen: &DaemonSetObserved) -> bool {
    let exists =
        |name: &str| seen.nodes.iter().any(|node| node.metadata.name.as_deref() == Some(name));
    let claims = seen.inventories.iter().any(|inventory| {
        !inventory.spec.device_claims.is_empty()
            && inventory.metadata.name.as_deref().is_some_and(exists)
    });
    let works = seen.jobs.iter().any(|job| may_run(job) && exists(&job.spec.node_name));
    let requested = seen.requesters.iter().any(|requester| requester.selector.is_none());
    seen.volumes || claims || works || requested
}

fn may_run(job: &NodeJob) -> bool {
    let phase = job.status.as_ref().and_then(|status| status.phase);
    !matches!(phase, Some(JobPhase::Succeeded | JobPhase::Failed))
}
