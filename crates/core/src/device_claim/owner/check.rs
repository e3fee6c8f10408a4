//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{ClassUse, Observed, OwnerFields, OwnerStatus, Plan, Report, Step};
use crate::device_claim::world::NodeFacts;
use quarry_api::names;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("the finalizer of an owner that has device claims is removed (invariant 9)")]
    ReleasedWithClaims,
    #[error("the finalizer of an owner that is not deleted is removed (invariant 9)")]
    ReleasedAlive,
    #[error("a finalizer of another controller is removed")]
    OtherFinalizer,
    #[error("a finalizer is added to an owner that is being deleted")]
    HeldWhileDeleted,
    #[error("StorageClass {0} is deleted although it is used (invariant 5)")]
    UsedClass(String),
    #[error("the status is of another kind or generation, or loses a field that others write")]
    OtherStatus,
    #[error("more devices are reported as provisioned than are claimed")]
    TooManyProvisioned,
    #[error("the condition {0} needs attention and does not report why (invariant 9)")]
    Unexplained(String),
}

/// What may never be in a plan.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let terminating = seen.demand.terminating;
    let keeps_others = |finalizers: &[String]| {
        seen.finalizers
            .iter()
            .filter(|one| *one != names::OWNER_FINALIZER)
            .all(|other| finalizers.contains(other))
    };
    match &plan.step {
        Step::SetFinalizers(finalizers) => {
            if terminating {
                found.push(Violation::HeldWhileDeleted);
            }
            if !keeps_others(finalizers) {
                found.push(Violation::OtherFinalizer);
            }
        }
        Step::Release { delete_classes, finalizers } => {
            if !terminating {
                found.push(Violation::ReleasedAlive);
            }
            if claimed(seen) > 0 {
                found.push(Violation::ReleasedWithClaims);
            }
            if !keeps_others(finalizers) {
                found.push(Violation::OtherFinalizer);
            }
            let used = |class: &&ClassUse| {
                let observed = seen.classes.iter().find(|one| one.uid == class.uid);
                observed
                    .is_none_or(|one| one.claimed || one.demanded || one.published || one.requested)
            };
            let classes = delete_classes.iter().filter(used);
            found.extend(classes.map(|class| Violation::UsedClass(class.name.clone())));
        }
        Step::Report(report) => found.extend(check_report(seen, report)),
    }
    found
}

/// How many device claims of the owner are left on nodes of the operator's namespace.
fn claimed(seen: &Observed) -> usize {
    let here = seen.demand.owner.namespace.as_ref() == Some(&seen.namespace);
    let claims = |facts: &NodeFacts| {
        let claims = facts.inventory.spec.device_claims.iter();
        claims.filter(|claim| claim.owner.uid == seen.demand.owner.uid).count()
    };
    seen.nodes.iter().filter(|_| here).map(claims).sum()
}

fn check_report(seen: &Observed, report: &Report) -> Vec<Violation> {
    let mut found = Vec::new();
    let same = match (&report.status, &seen.fields) {
        (OwnerStatus::LocalVolumeSet(_), OwnerFields::LocalVolumeSet) => true,
        (OwnerStatus::LocalVolume(status), OwnerFields::LocalVolume { generations, .. }) => {
            status.generations == *generations
        }
        (OwnerStatus::LocalVolumeSet(_), OwnerFields::LocalVolume { .. })
        | (OwnerStatus::LocalVolume(_), OwnerFields::LocalVolumeSet) => false,
    };
    if !same || report.status.observed_generation() != seen.generation {
        found.push(Violation::OtherStatus);
    }
    if usize::try_from(report.status.provisioned()).is_ok_and(|count| count > claimed(seen)) {
        found.push(Violation::TooManyProvisioned);
    }
    for condition in report.status.conditions() {
        let holds = condition.status == "True";
        let needs_attention = match condition.kind.as_str() {
            "Available" | "DaemonSetsAvailable" => !holds,
            _ => holds,
        };
        if needs_attention && (condition.message.is_none() || condition.reason.is_none()) {
            found.push(Violation::Unexplained(condition.kind.clone()));
        }
    }
    found
}
