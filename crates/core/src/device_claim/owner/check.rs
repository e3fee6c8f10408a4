//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{ClassUse, Observed, Plan};
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
}

/// What may never be in a plan.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let terminating = seen.status.demand.terminating;
    let keeps_others = |finalizers: &[String]| {
        seen.finalizers
            .iter()
            .filter(|one| *one != names::OWNER_FINALIZER)
            .all(|other| finalizers.contains(other))
    };
    match plan {
        Plan::SetFinalizers(finalizers) => {
            if terminating {
                found.push(Violation::HeldWhileDeleted);
            }
            if !keeps_others(finalizers) {
                found.push(Violation::OtherFinalizer);
            }
        }
        Plan::Release { delete_classes, finalizers } => {
            if !terminating {
                found.push(Violation::ReleasedAlive);
            }
            if seen.status.parts.iter().any(|part| !part.claims.is_empty()) {
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
        Plan::Report(_) => {}
    }
    found
}
