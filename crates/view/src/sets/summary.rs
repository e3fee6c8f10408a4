//! What an owner has and would get on every node: typed, before it is counted and worded.
//!
//! Who gets which device is decided by `quarry_core::device_claim`, over the same `NodeWorld` as the operator's.

use jiff::Timestamp;
use kube::ResourceExt;
use quarry_api::{NodeJob, node_inventory::DeviceClaim};
use quarry_core::{
    device_claim::{
        Demand, Eligibility, NodeWorld, Row, Stage, account, claim_contexts, decide,
        demand::NodeMatch,
        world::{demands, node_world},
    },
    source::Source,
};
use std::sync::Arc;

/// One set or LocalVolume, with what concerns it on every node.
pub struct OwnerSummary {
    pub demand: Demand,
    pub nodes: Vec<NodeSummary>,
}

pub struct NodeSummary {
    pub node: String,
    pub node_match: NodeMatch,
    /// Why the rest is out of date or incomplete.
    pub complaint: Option<String>,
    pub claims: Vec<ClaimView>,
    /// Devices and paths that the owner has not claimed.
    pub candidates: Vec<Row>,
}

/// A device claim and its stage.
pub struct ClaimView {
    pub claim: DeviceClaim,
    pub stage: Stage,
    /// The kernel name; `None` while the device is absent.
    pub device: Option<String>,
    /// The PersistentVolume, if there is one.
    pub pv: Option<String>,
    pub job: Option<Arc<NodeJob>>,
}

/// The world of every node that has an inventory.
pub fn node_worlds(source: &impl Source, now: Timestamp) -> Vec<NodeWorld> {
    let demands = demands(source);
    let inventories = source.inventories();
    inventories
        .iter()
        .map(|inventory| node_world(source, inventory, demands.clone(), now))
        .collect()
}

/// What each of these has on each node, would get, and why not the rest.
pub fn summaries(source: &impl Source, demands: Vec<Demand>, now: Timestamp) -> Vec<OwnerSummary> {
    let worlds = node_worlds(source, now);
    let summary = |demand: Demand| OwnerSummary {
        nodes: node_summaries(source, &worlds, &demand, now),
        demand,
    };
    demands.into_iter().map(summary).collect()
}

fn node_summaries(
    source: &impl Source,
    worlds: &[NodeWorld],
    demand: &Demand,
    now: Timestamp,
) -> Vec<NodeSummary> {
    let has_world = |name: &str| worlds.iter().any(|world| world.name == name);
    let unseen = source.nodes().into_iter().filter(|node| !has_world(&node.name_any()));
    let unseen = unseen.map(|node| NodeSummary {
        node: node.name_any(),
        node_match: demand.match_node(&node),
        complaint: Some(format!(
            "node {} has no inventory yet: check that the operator runs",
            node.name_any()
        )),
        claims: Vec::new(),
        candidates: Vec::new(),
    });
    let seen = worlds.iter().map(|world| node_summary(source, world, demand, now));
    let mut nodes: Vec<NodeSummary> = seen.chain(unseen).collect();
    nodes.sort_by(|a, b| a.node.cmp(&b.node));
    nodes
}

fn node_summary(
    source: &impl Source,
    world: &NodeWorld,
    demand: &Demand,
    now: Timestamp,
) -> NodeSummary {
    let mut candidates = account(world, &demand.owner.uid);
    // What it has is shown with its device claim.
    candidates.retain(|row| row.eligibility != Eligibility::Claimed);
    let absent = source.agent_presence(&world.name, now).problem(&world.name);
    let complaint = match &world.inventory.status {
        Some(_) => absent,
        None => Some(absent.unwrap_or_else(|| {
            format!("the agent on node {} has not published its devices yet", world.name)
        })),
    };
    let node = world.node.as_deref();
    NodeSummary {
        node: world.name.clone(),
        node_match: node.map_or(NodeMatch::NotSelected, |node| demand.match_node(node)),
        complaint,
        claims: claims(world, |claim| claim.owner.uid == demand.owner.uid, now),
        candidates,
    }
}

/// The device claims of a node that `which` selects, each with its stage.
pub fn claims(
    world: &NodeWorld,
    which: impl Fn(&DeviceClaim) -> bool,
    now: Timestamp,
) -> Vec<ClaimView> {
    let selected = claim_contexts(world).into_iter().filter(|ctx| which(ctx.claim));
    selected
        .map(|ctx| ClaimView {
            claim: ctx.claim.clone(),
            stage: decide(world, &ctx, now).stage,
            device: ctx.device.map(|device| device.name.clone()),
            pv: ctx.pv.and_then(|pv| pv.metadata.name.clone()),
            job: ctx.claim.job.as_ref().and_then(|job| world.jobs.get(&job.name).cloned()),
        })
        .collect()
}
