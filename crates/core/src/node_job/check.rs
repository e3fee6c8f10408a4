//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{Observed, Plan};
use quarry_api::node_job::JobPhase;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("NodeJob {0} is deleted although an object names it (rule 4)")]
    Named(String),
    #[error("NodeJob {0} is deleted although it may still run (invariant 2)")]
    Unfinished(String),
    #[error("NodeJob {0} is deleted without its UID and resourceVersion (rule 3)")]
    Unconditional(String),
}

/// What may never be deleted, whatever `plan` decided.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let Plan::Delete { uid, resource_version } = plan else { return Vec::new() };
    let name = || seen.job.metadata.name.clone().unwrap_or_default();
    let phase = seen.job.status.as_ref().and_then(|status| status.phase);
    let ended = matches!(phase, Some(JobPhase::Succeeded | JobPhase::Failed));
    let mut found = Vec::new();
    if seen.named {
        found.push(Violation::Named(name()));
    }
    if !ended {
        found.push(Violation::Unfinished(name()));
    }
    if uid.is_empty() || resource_version.is_empty() {
        found.push(Violation::Unconditional(name()));
    }
    found
}
