//! What is done about the owner of device claims (LocalVolumeSet, LocalVolume) itself: its finalizer, its
//! StorageClasses, its status. The device claims are planned per node.

mod check;

pub use check::{Violation, check};

use super::{
    Demand, NodeWorld, account, claim_contexts, decide,
    demand::NodeMatch,
    status::{self, NodePart, StatusUpdate},
};
use crate::{event::PendingEvent, presence::Presence};
use jiff::{SignedDuration, Timestamp};
use quarry_api::names;

/// One owner, with its part on every node that concerns it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub status: status::Observed,
    pub finalizers: Vec<String>,
    pub resource_version: String,
    /// When the first Lease of a concerned agent expires.
    pub first_lapse: Option<Timestamp>,
    /// StorageClasses that Quarry created for it; read only once it is released.
    pub classes: Vec<ClassUse>,
}

/// A StorageClass that was created for the owner, and who else uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassUse {
    pub name: String,
    pub uid: String,
    pub resource_version: Option<String>,
    /// A device claim of any owner names it.
    pub claimed: bool,
    /// Another owner demands it.
    pub demanded: bool,
    /// A PersistentVolume of this class exists.
    pub published: bool,
    /// A PVC names it.
    pub requested: bool,
}

impl ClassUse {
    fn is_unused(&self) -> bool {
        !self.claimed && !self.demanded && !self.published && !self.requested
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// First of all: nothing is claimed for an owner that could vanish. The watch returns it, then it is reported on.
    SetFinalizers(Vec<String>),
    /// Nothing is left of it on any node.
    Release {
        delete_classes: Vec<ClassUse>,
        finalizers: Vec<String>,
    },
    Report(Box<Report>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub update: StatusUpdate,
    /// How the devices of each node stand, by node: published when it is new.
    pub summaries: Vec<(String, PendingEvent)>,
    pub requeue: Option<SignedDuration>,
}

/// The part of one node. Computed while observing: a node's PersistentVolumes are not kept in memory for all nodes.
pub fn node_part(
    world: &NodeWorld,
    demand: &Demand,
    agent: Presence,
    now: Timestamp,
) -> Option<NodePart> {
    let covers =
        world.node.as_deref().map_or(NodeMatch::NotSelected, |node| demand.match_node(node));
    let is_own = |uid: &str| uid == demand.owner.uid;
    let has_claims =
        world.inventory.spec.device_claims.iter().any(|claim| is_own(&claim.owner.uid));
    if covers == NodeMatch::NotSelected && !has_claims {
        return None;
    }
    let contexts = claim_contexts(world);
    let own = || contexts.iter().filter(|ctx| is_own(&ctx.claim.owner.uid));
    let device = |ctx: &super::ClaimContext<'_>| {
        ctx.device.map_or_else(|| ctx.claim.identity.clone(), |device| device.name.clone())
    };
    let is_outdated = |ctx: &&super::ClaimContext<'_>| {
        ctx.pv.is_some() && !demand.terminating && !demand.makes(ctx.claim)
    };
    Some(NodePart {
        problem: agent.problem(&world.name),
        claims: own().map(|ctx| (device(ctx), decide(world, ctx, now).stage)).collect(),
        outdated: own().filter(is_outdated).map(device).collect(),
        rows: account(world, &demand.owner.uid),
        covers,
        node: world.name.clone(),
    })
}

fn is_held(finalizers: &[String]) -> bool {
    finalizers.iter().any(|finalizer| finalizer == names::OWNER_FINALIZER)
}

/// It is deleted, and nothing of it is left on any node.
pub fn is_released(seen: &status::Observed, finalizers: &[String]) -> bool {
    seen.demand.terminating
        && is_held(finalizers)
        && seen.parts.iter().all(|part| part.claims.is_empty())
}

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let (demand, held) = (&seen.status.demand, is_held(&seen.finalizers));
    if seen.status.in_namespace && !demand.terminating && !held {
        let own = [names::OWNER_FINALIZER.to_owned()];
        return Plan::SetFinalizers(seen.finalizers.iter().cloned().chain(own).collect());
    }
    if is_released(&seen.status, &seen.finalizers) {
        let others = seen.finalizers.iter().filter(|one| *one != names::OWNER_FINALIZER);
        return Plan::Release {
            delete_classes: seen
                .classes
                .iter()
                .filter(|class| class.is_unused())
                .cloned()
                .collect(),
            finalizers: others.cloned().collect(),
        };
    }
    // An agent that stops renewing its Lease causes no event: requeued for when the first Lease expires.
    let due = |until: Timestamp| until.duration_since(now).max(SignedDuration::from_secs(1));
    Plan::Report(Box::new(Report {
        update: status::decide(&seen.status, now),
        summaries: status::accounts(&seen.status),
        requeue: seen.first_lapse.map(due),
    }))
}
