//! The finalizer, the release or the status of one owner, from its part on every node. Checked in `check.rs`.

use super::{ClassUse, Observed, OwnerFields, OwnerStatus, Plan, Report, Step};
use crate::{
    device_claim::{
        ClaimContext, Demand, NodeWorld, Stage, account, claim_contexts, decide,
        demand::NodeMatch,
        status::{self, NodePart, StatusUpdate},
        world::NodeFacts,
    },
    presence::Presence,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use quarry_api::{LocalVolumeSetStatus, LocalVolumeStatus, names};

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let (in_namespace, held) = (seen.in_namespace(), is_held(&seen.finalizers));
    let mut parts: Vec<NodePart> = Vec::new();
    let mut first_lapse = None;
    for facts in seen.nodes.iter().filter(|facts| in_namespace && concerns(facts, &seen.demand)) {
        if let Presence::Present { until } = facts.agent {
            first_lapse = [first_lapse, Some(until)].into_iter().flatten().min();
        }
        let world = facts.clone().into_world(seen.demands.clone());
        parts.push(node_part(&world, &seen.demand, facts.agent, now));
    }
    let claims = parts.iter().flat_map(|part| &part.claims);
    let stages: Vec<Stage> = claims.map(|(_, stage)| stage.clone()).collect();
    if in_namespace && !seen.demand.terminating && !held {
        let own = [names::OWNER_FINALIZER.to_owned()];
        let finalizers = seen.finalizers.iter().cloned().chain(own).collect();
        return Plan { stages, step: Step::SetFinalizers(finalizers) };
    }
    if seen.demand.terminating && held && stages.is_empty() {
        return Plan { stages, step: release(seen) };
    }
    let counted = status::Observed {
        demand: seen.demand.clone(),
        in_namespace,
        namespace: seen.namespace.clone(),
        parts,
        conditions: seen.conditions.clone(),
    };
    // An agent that stops renewing its Lease causes no event: requeued for when the first Lease expires.
    let due = |until: Timestamp| until.duration_since(now).max(SignedDuration::from_secs(1));
    let update = status::decide(&counted, now);
    let report = Report {
        status: status_of(seen, &update),
        notes: update.notes,
        summaries: status::accounts(&counted),
        requeue: first_lapse.map(due),
    };
    Plan { stages, step: Step::Report(Box::new(report)) }
}

fn is_held(finalizers: &[String]) -> bool {
    finalizers.iter().any(|finalizer| finalizer == names::OWNER_FINALIZER)
}

fn release(seen: &Observed) -> Step {
    let is_unused = |class: &&ClassUse| {
        !class.claimed && !class.demanded && !class.published && !class.requested
    };
    let others = seen.finalizers.iter().filter(|one| *one != names::OWNER_FINALIZER);
    Step::Release {
        delete_classes: seen.classes.iter().filter(is_unused).cloned().collect(),
        finalizers: others.cloned().collect(),
    }
}

/// The node is selected, or still has a device claim of the owner.
fn concerns(facts: &NodeFacts, demand: &Demand) -> bool {
    let claims = &facts.inventory.spec.device_claims;
    match_of(facts.node.as_deref(), demand) != NodeMatch::NotSelected
        || claims.iter().any(|claim| claim.owner.uid == demand.owner.uid)
}

fn match_of(node: Option<&Node>, demand: &Demand) -> NodeMatch {
    node.map_or(NodeMatch::NotSelected, |node| demand.match_node(node))
}

fn node_part(world: &NodeWorld, demand: &Demand, agent: Presence, now: Timestamp) -> NodePart {
    let contexts = claim_contexts(world);
    let own = || contexts.iter().filter(|ctx| ctx.claim.owner.uid == demand.owner.uid);
    let device = |ctx: &ClaimContext<'_>| {
        ctx.device.map_or_else(|| ctx.claim.identity.clone(), |device| device.name.clone())
    };
    let is_outdated = |ctx: &&ClaimContext<'_>| {
        ctx.pv.is_some() && !demand.terminating && !demand.makes(ctx.claim)
    };
    NodePart {
        problem: agent.problem(&world.name),
        claims: own().map(|ctx| (device(ctx), decide(world, ctx, now).stage)).collect(),
        outdated: own().filter(is_outdated).map(device).collect(),
        rows: account(world, &demand.owner.uid),
        covers: match_of(world.node.as_deref(), demand),
        node: world.name.clone(),
    }
}

fn status_of(seen: &Observed, update: &StatusUpdate) -> OwnerStatus {
    let (conditions, observed_generation) = (update.conditions.clone(), seen.generation);
    match &seen.fields {
        OwnerFields::LocalVolumeSet => OwnerStatus::LocalVolumeSet(LocalVolumeSetStatus {
            conditions,
            total_provisioned_device_count: Some(update.provisioned),
            observed_generation,
        }),
        OwnerFields::LocalVolume { management_state, generations } => {
            let state = management_state.clone().filter(|state| !state.is_empty());
            OwnerStatus::LocalVolume(LocalVolumeStatus {
                observed_generation,
                management_state: state.or_else(|| Some("Managed".to_owned())),
                conditions,
                ready_replicas: update.provisioned,
                generations: generations.clone(),
            })
        }
    }
}
