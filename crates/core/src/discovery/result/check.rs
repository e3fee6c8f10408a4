//! What may never be in a plan, whatever the planner decided. Written apart from it.

use super::{Observed, Plan, Step};
use crate::discovery::{Coverage, coverage};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a result is written for a node that no LocalVolumeDiscovery selects")]
    NotAsked,
    #[error("a result of another node is written")]
    OtherNode,
    #[error("a result is written from the report of another machine that had the node's name")]
    OtherMachine,
    #[error("a result has an owner: it would be deleted with it")]
    Owned,
    #[error("a write that the API server may refuse would not be reported (invariant 9)")]
    SilentRefusal,
}

/// Every violation; empty: the plan may be applied.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut forbid = |broken: bool, violation: Violation| {
        if broken {
            found.push(violation);
        }
    };
    let writes = !plan.steps.is_empty() || plan.status.is_some();
    let covered = seen
        .active()
        .zip(seen.node.as_deref())
        .is_some_and(|(discovery, node)| coverage(discovery, node) == Coverage::Covered);
    forbid(writes && !covered, Violation::NotAsked);
    let other_node = |node: &String| *node != seen.name;
    let created = plan.steps.iter().filter_map(|step| match step {
        Step::Create(made) => Some(made),
        Step::Label { .. } => None,
    });
    let existing = seen.result.as_ref().map(|result| &result.spec.node_name);
    forbid(
        (writes && existing.is_some_and(other_node))
            || created.clone().any(|made| other_node(&made.spec.node_name)),
        Violation::OtherNode,
    );
    let reporter = seen.inventory.as_ref().and_then(|inventory| inventory.status.as_ref());
    let reporter = reporter.and_then(|status| status.node_uid.as_deref());
    let node = seen.node.as_ref().and_then(|node| node.metadata.uid.as_deref());
    forbid(
        plan.status.is_some() && reporter.is_some() && reporter != node,
        Violation::OtherMachine,
    );
    forbid(created.clone().any(|made| made.metadata.owner_references.is_some()), Violation::Owned);
    let reported = plan.refused.as_ref().is_some_and(|event| event.warning);
    forbid(writes && !reported, Violation::SilentRefusal);
    found
}
