//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{Observed, Plan};
use quarry_api::node_job::{JobPhase, OwnerKind};

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
    if is_named(seen, &name()) {
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

/// By anything that was seen, whatever owns the job; a Volume that was not looked for may name it.
fn is_named(seen: &Observed, name: &str) -> bool {
    let unseen = seen.job.spec.owner.kind == OwnerKind::Volume && !seen.volumes_watched;
    let status = seen.volume.as_ref().and_then(|volume| volume.status.as_ref());
    let handle = status.and_then(|status| status.job.as_deref());
    let by_volume = handle.is_some_and(|handle| handle.rsplit('/').next() == Some(name));
    let mut claims = seen.inventory.iter().flat_map(|inventory| &inventory.spec.device_claims);
    let by_claim = claims.any(|claim| claim.job.as_ref().is_some_and(|job| job.name == name));
    unseen || by_volume || by_claim
}
