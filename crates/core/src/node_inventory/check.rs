//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{Observed, Plan, Step};
use crate::device_claim;
use quarry_api::{NodeInventorySpec, names};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("device claims: {0}")]
    DeviceClaims(device_claim::check::Violation),
    #[error(
        "a NodeInventory is deleted that has device claims, knows of data, or has the ledger of Volumes (invariants 3 and 10)"
    )]
    DeletedWithRecords,
    #[error("device claims or records of data change without a plan for them (invariant 3)")]
    UnplannedRecords,
    #[error("a NodeInventory loses its finalizer while it has device claims (invariant 9)")]
    Unprotected,
}

/// What may never be in a plan.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found: Vec<Violation> = match (&seen.world, &plan.claims) {
        (Some(world), Some(claims)) => device_claim::check::check(world, claims)
            .into_iter()
            .map(Violation::DeviceClaims)
            .collect(),
        (None, Some(_)) => vec![Violation::UnplannedRecords],
        (_, None) => Vec::new(),
    };
    let Some(old) = &seen.inventory else { return found };
    let records = |spec: &NodeInventorySpec| {
        (spec.device_claims.clone(), spec.retained_data.clone(), spec.wipe_remnants.clone())
    };
    let has_records = |spec: &NodeInventorySpec| {
        !spec.device_claims.is_empty()
            || !spec.retained_data.is_empty()
            || !spec.wipe_remnants.is_empty()
    };
    match &plan.inventory {
        Some(Step::Delete { .. })
            if has_records(&old.spec) || (old.spec.ledger_id.is_some() && seen.has_volumes) =>
        {
            found.push(Violation::DeletedWithRecords);
        }
        Some(Step::Update(update)) => {
            if plan.claims.is_none() && records(&update.spec) != records(&old.spec) {
                found.push(Violation::UnplannedRecords);
            }
            let kept = update.finalizers.as_ref().is_none_or(|finalizers| {
                finalizers.iter().any(|one| one == names::DEVICE_CLAIMS_FINALIZER)
            });
            if !kept && !update.spec.device_claims.is_empty() {
                found.push(Violation::Unprotected);
            }
        }
        Some(Step::Create(_) | Step::Delete { .. }) | None => {}
    }
    found
}
