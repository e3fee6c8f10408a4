//! Claims: who gets which device of one node, and what becomes of it. One device, one owner (invariant 3).
//!
//! `plan(&NodeWorld, now)` sees everybody who wants a device of the node, every PersistentVolume there, and what the
//! agent says. It is total and deterministic: the older object wins, then the name. `assign.rs` gives away what is free,
//! `life.rs` is the state machine of one claim, `check.rs` refuses what must never be, `confirm.rs` is the agent's half.
//! Next to read: `want.rs` (who asks), `life.rs`.

mod assign;
pub mod check;
pub mod confirm;
mod content;
pub mod demand;
pub mod filter;
pub mod glob;
mod index;
mod messages;
pub mod owner;
mod plan;
pub mod pv;
pub mod reads;
mod stage;
mod state_machine;
pub mod status;
mod unpublished;
mod wipe;
pub mod world;

pub use assign::{Eligibility, Row, account};
pub use demand::{Demand, owner_text};
pub use index::Index;
pub use plan::plan;
#[cfg(test)]
use reads::{orphaned, unfamiliar};
pub use stage::{Health, Stage};
pub use state_machine::decide;
pub use wipe::{claim_hash, wipe_policy};

use crate::{device::group::published_candidates, quarantine::RemoteIdentity};
use jiff::SignedDuration;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeJob, names,
    node_inventory::{ClaimReport, Device, DeviceClaim, RetainedData, WipeRemnant},
};
use std::{collections::BTreeMap, sync::Arc};

/// Everything that is known of one node when its devices are given away.
#[derive(Clone, Debug, Default)]
pub struct NodeWorld {
    pub name: String,
    /// `None`: the Node object is gone.
    pub node: Option<Arc<Node>>,
    pub inventory: NodeInventory,
    /// Everybody who exists, also those who are not for this node.
    pub demands: Vec<Demand>,
    /// Every PersistentVolume on this node, and those with the name of one of its claims, whoever made them.
    pub pvs: Vec<Arc<PersistentVolume>>,
    pub classes: BTreeMap<String, Arc<StorageClass>>,
    /// The jobs that claims name.
    pub jobs: BTreeMap<String, Arc<NodeJob>>,
    /// Devices of other nodes with an identity of this node's.
    pub elsewhere: Vec<RemoteIdentity>,
    /// The agent's lease is fresh.
    pub agent_present: bool,
}

/// One write to the API, after the inventory's own.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    CreateClass(Box<StorageClass>),
    CreatePv(Box<PersistentVolume>),
    DeletePv {
        name: String,
        uid: String,
        resource_version: String,
    },
    /// Takes our finalizer off.
    ReleasePv {
        name: String,
        resource_version: String,
        finalizers: Vec<String>,
    },
    CreateJob(Box<NodeJob>),
}

impl Step {
    pub fn name(&self) -> &'static str {
        match self {
            Step::CreateClass(_) => "CreateClass",
            Step::CreatePv(_) => "CreatePv",
            Step::DeletePv { .. } => "DeletePv",
            Step::ReleasePv { .. } => "ReleasePv",
            Step::CreateJob(_) => "CreateJob",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// All claims of the node from now on.
    pub claims: Vec<DeviceClaim>,
    /// The paths that the agent is to look up.
    pub paths: Vec<String>,
    pub machine_id: Option<String>,
    /// What is on devices that nobody has erased since they were used.
    pub retained_data: Vec<RetainedData>,
    /// What was erased by its signatures alone.
    pub wipe_remnants: Vec<WipeRemnant>,
    pub steps: Vec<Step>,
    pub requeue: Option<SignedDuration>,
}

/// A claim with everything that concerns it.
#[derive(Clone, Debug)]
pub struct ClaimContext<'a> {
    pub claim: &'a DeviceClaim,
    /// The owner, if it still exists.
    pub demand: Option<&'a Demand>,
    /// What the agent says to this very claim: of this owner, in this round.
    pub report: Option<&'a ClaimReport>,
    /// The device, if it is there.
    pub device: Option<&'a Device>,
    /// The PersistentVolume of the claim's name, whoever made it.
    pub pv: Option<&'a Arc<PersistentVolume>>,
    /// Why it is not certain which device this is.
    pub doubt: Option<String>,
    /// Where the device is, if another node shows it and this one does not.
    pub moved: Option<String>,
    /// Another PersistentVolume on the same device, whoever made it.
    pub rival: Option<&'a str>,
    /// How many of the owner's devices on this node are proven.
    pub ready: usize,
}

pub fn claim_contexts(world: &NodeWorld) -> Vec<ClaimContext<'_>> {
    let index = Index::new(world);
    world.inventory.spec.device_claims.iter().map(|claim| index.ctx(claim)).collect()
}

pub fn ctx<'a>(world: &'a NodeWorld, claim: &'a DeviceClaim) -> ClaimContext<'a> {
    Index::new(world).ctx(claim)
}

/// Whether the agent's answer is to this claim, and not to an earlier one on the same device.
fn answers(report: &ClaimReport, claim: &DeviceClaim) -> bool {
    report.identity == claim.identity
        && report.owner_uid == claim.owner.uid
        && report.round == claim.round
}

/// Whether the device goes by this identity, which may not be its strongest any more.
pub fn is_device(device: &Device, identity: &str) -> bool {
    device.identity.as_deref() == Some(identity) || published_candidates(device).contains(identity)
}

/// An administrator does not need it any more. By the PersistentVolume's UID: what is kept later is another thing.
pub fn is_forgotten(world: &NodeWorld, pv_uid: &str) -> bool {
    let annotation = world
        .inventory
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::FORGET_RETAINED_DATA_ANNOTATION));
    annotation.is_some_and(|annotation| annotation.split(',').any(|uid| uid.trim() == pv_uid))
}

/// What a volume that is gone left on this device, if anything.
pub fn retained_data_on<'a>(world: &'a NodeWorld, device: &Device) -> Option<&'a RetainedData> {
    world.inventory.spec.retained_data.iter().find(|kept| is_device(device, &kept.identity))
}

/// What is left of a volume whose signatures alone were erased.
pub fn wipe_remnant_on<'a>(world: &'a NodeWorld, device: &Device) -> Option<&'a WipeRemnant> {
    world.inventory.spec.wipe_remnants.iter().find(|left| is_device(device, &left.identity))
}

/// For people: continues "sdb …".
pub fn wipe_remnant_text(left: &WipeRemnant) -> String {
    format!(
        "holds what PersistentVolume {} left behind its signatures, which were all that was erased (Quick), and a Block device would show it: use it as a Filesystem; or erase it by hand, then annotate the NodeInventory with {}={}",
        left.pv_name,
        names::FORGET_RETAINED_DATA_ANNOTATION,
        left.pv_uid
    )
}

fn machine_id(world: &NodeWorld) -> Option<String> {
    world.inventory.status.as_ref().and_then(|status| status.machine_id.clone())
}

/// Another machine answers under the node's name: what was claimed is not its.
pub fn is_frozen(world: &NodeWorld) -> bool {
    is_other_machine(
        &world.inventory.spec,
        world.inventory.status.as_ref().map(|status| status.machine_id.as_deref()),
    )
}

/// `seen`: what the machine says, if it has said anything. One that cannot say which it is, is another one.
pub fn is_other_machine(spec: &NodeInventorySpec, seen: Option<Option<&str>>) -> bool {
    spec.machine_id.is_some() && seen.is_some_and(|seen| seen != spec.machine_id.as_deref())
}

/// An administrator gives up what was claimed on a machine that is gone.
pub fn is_released(world: &NodeWorld) -> bool {
    let annotation = world
        .inventory
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::RELEASE_DEVICE_CLAIMS_ANNOTATION));
    let absent = world.node.is_none() || is_frozen(world);
    annotation.is_some_and(|annotation| {
        absent && annotation == world.inventory.spec.machine_id.as_deref().unwrap_or(&world.name)
    })
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
