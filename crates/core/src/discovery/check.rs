//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{Observed, Plan};
use crate::agent_daemon_set;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the agents' DaemonSet: {0}")]
    DaemonSet(agent_daemon_set::check::Violation),
    #[error("a LocalVolumeDiscovery that is not in force deploys agents")]
    NotInForce,
}

/// What may never be in a plan.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let Some(planned) = &plan.daemon_set else { return Vec::new() };
    let Some(observed) = &seen.daemon_set else { return vec![Violation::NotInForce] };
    let found = agent_daemon_set::check::check_daemon_set(observed, planned);
    let mut found: Vec<Violation> = found.into_iter().map(Violation::DaemonSet).collect();
    if seen.active != seen.discovery.metadata.name {
        found.push(Violation::NotInForce);
    }
    found
}
