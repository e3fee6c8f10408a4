//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{Observed, Plan, StatusUpdate};
use crate::agent_daemon_set;
use quarry_api::{LocalVolumeDiscovery, local_volume_discovery::LocalVolumeDiscoveryStatus};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the agents' DaemonSet: {0}")]
    DaemonSet(agent_daemon_set::check::Violation),
    #[error("agents are deployed although they are started by other means")]
    NotDeployedHere,
    #[error("a LocalVolumeDiscovery that is not in force deploys agents")]
    NotInForce,
    #[error("a LocalVolumeDiscovery that is not in force is reported as Available")]
    AvailableNotInForce,
    #[error("the status of a LocalVolumeDiscovery that is being deleted is written")]
    StatusOfDeleted,
    #[error("the condition {0} needs attention and does not report why (invariant 9)")]
    Unexplained(String),
    #[error("a DaemonSet that the API server refuses would not be reported (invariant 9)")]
    SilentRefusal,
}

/// What may never be in a plan.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let in_force = is_in_force(seen);
    if let Some(planned) = &plan.daemon_set {
        match &seen.daemon_set {
            Some(observed) => {
                let violations = agent_daemon_set::check::check_daemon_set(observed, planned);
                found.extend(violations.into_iter().map(Violation::DaemonSet));
            }
            None => found.push(Violation::NotDeployedHere),
        }
        if !in_force {
            found.push(Violation::NotInForce);
        }
        let reported = plan.refused.as_ref().is_some_and(|update| match update {
            StatusUpdate::Refused { message } | StatusUpdate::Failed { message, .. } => {
                !message.is_empty()
            }
            StatusUpdate::Waiting { .. } | StatusUpdate::Running { .. } => false,
        });
        if !reported {
            found.push(Violation::SilentRefusal);
        }
    }
    if let Some(status) = &plan.report.status {
        found.extend(check_status(seen, status, in_force));
    }
    found
}

fn check_status(
    seen: &Observed,
    status: &LocalVolumeDiscoveryStatus,
    in_force: bool,
) -> Vec<Violation> {
    let mut found = Vec::new();
    if seen.discovery.metadata.deletion_timestamp.is_some() {
        found.push(Violation::StatusOfDeleted);
    }
    for condition in &status.conditions {
        let holds = condition.status == "True";
        if condition.kind == "Available" && holds && !in_force {
            found.push(Violation::AvailableNotInForce);
        }
        let needs_attention = match condition.kind.as_str() {
            "Available" => !holds,
            _ => holds,
        };
        let explained = condition.message.is_some() && condition.reason.is_some();
        if needs_attention && !explained {
            found.push(Violation::Unexplained(condition.kind.clone()));
        }
    }
    found
}

/// In the operator's namespace, not being deleted, and none there is older, or of the same age and before it by name.
fn is_in_force(seen: &Observed) -> bool {
    let candidate = |one: &LocalVolumeDiscovery| {
        one.metadata.namespace.as_ref() == Some(&seen.namespace)
            && one.metadata.deletion_timestamp.is_none()
    };
    let age = |one: &LocalVolumeDiscovery| {
        (one.metadata.creation_timestamp.as_ref().map(|time| time.0), one.metadata.name.clone())
    };
    let own = age(&seen.discovery);
    candidate(&seen.discovery)
        && !seen.discoveries.iter().any(|other| candidate(other) && age(other) < own)
}
