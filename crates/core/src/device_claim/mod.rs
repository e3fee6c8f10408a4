//! Device claims: which owner gets which device of one node, and what happens to it. One device, one owner (invariant 3).
//!
//! `plan(&NodeWorld, now)` sees every demand for devices of the node, every PersistentVolume there, and the agent's
//! reports. It is total and deterministic: the older object wins, then the name. `assign.rs` assigns available devices,
//! `state_machine.rs` moves one device claim, `check.rs` finds violations, `confirm.rs` is the agent's half.
//! Next to read: `demand.rs`, `plan.rs`, `state_machine.rs`.

mod assign;
pub mod check;
pub mod confirm;
mod content;
pub mod demand;
pub mod filter;
pub mod glob;
pub mod history;
mod index;
mod messages;
pub mod owner;
mod plan;
pub mod publication;
pub mod pv;
pub mod reads;
mod stage;
mod state_machine;
pub mod status;
mod unpublished;
mod wipe;
pub mod world;

pub use assign::{Eligibility, Row, account};
pub use content::UNFIT_REMEDY;
pub use demand::{Demand, owner_text};
pub use index::{IdentityProblem, Index};
pub use plan::plan;
#[cfg(test)]
use reads::{orphaned, unfamiliar};
pub use stage::{Health, Stage};
pub use state_machine::decide;
pub use wipe::{claim_hash, wipe_policy};

use crate::{
    device::{
        group::published_candidates,
        records::{DataRecord, Partitions, concerns},
    },
    quarantine::RemoteIdentity,
};
use jiff::SignedDuration;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeJob, names,
    node_inventory::{ClaimReport, Device, DeviceClaim, RetainedData, WipeRemnant},
};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// Everything that is known about one node when its devices are assigned.
#[derive(Clone, Debug, Default)]
pub struct NodeWorld {
    pub name: String,
    /// `None`: the Node does not exist.
    pub node: Option<Arc<Node>>,
    pub inventory: NodeInventory,
    /// All demands, also those that do not select this node.
    pub demands: Vec<Demand>,
    /// Every PersistentVolume on this node, and those with the name of one of its device claims, managed or not.
    pub pvs: Vec<Arc<PersistentVolume>>,
    pub classes: BTreeMap<String, Arc<StorageClass>>,
    /// The jobs that device claims name.
    pub jobs: BTreeMap<String, Arc<NodeJob>>,
    /// Devices of other nodes with an identity of this node.
    pub elsewhere: Vec<RemoteIdentity>,
    /// The agent's lease is fresh.
    pub agent_present: bool,
}

/// One write to the API, after that of the NodeInventory.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    CreateClass(Box<StorageClass>),
    CreatePv(Box<PersistentVolume>),
    DeletePv {
        name: String,
        uid: String,
        resource_version: String,
    },
    /// Removes our finalizer.
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
    /// All device claims of the node from now on.
    pub claims: Vec<DeviceClaim>,
    /// The paths that the agent is to resolve.
    pub paths: Vec<String>,
    pub machine_id: Option<String>,
    /// Devices that were used and not wiped.
    pub retained_data: Vec<RetainedData>,
    /// Devices of which only the signatures were erased.
    pub wipe_remnants: Vec<WipeRemnant>,
    pub steps: Vec<Step>,
    pub requeue: Option<SignedDuration>,
}

/// A device claim with everything that concerns it.
#[derive(Clone, Debug)]
pub struct ClaimContext<'a> {
    pub claim: &'a DeviceClaim,
    /// The owner, if it still exists.
    pub demand: Option<&'a Demand>,
    /// The agent's report on this device claim: of this owner, in this round.
    pub report: Option<&'a ClaimReport>,
    /// The device, if it is there.
    pub device: Option<&'a Device>,
    /// The PersistentVolume with the name of the device claim, managed or not.
    pub pv: Option<&'a Arc<PersistentVolume>>,
    /// Why it is not certain which device this is.
    pub quarantine: Option<IdentityProblem>,
    /// Where the device is, if another node shows it and this one does not.
    pub moved: Option<String>,
    /// Another PersistentVolume on the same device, managed or not.
    pub rival: Option<&'a str>,
    /// How many of the owner's devices on this node are confirmed or published.
    pub ready: usize,
}

pub fn claim_contexts(world: &NodeWorld) -> Vec<ClaimContext<'_>> {
    let index = Index::new(world);
    world.inventory.spec.device_claims.iter().map(|claim| index.ctx(claim)).collect()
}

pub fn ctx<'a>(world: &'a NodeWorld, claim: &'a DeviceClaim) -> ClaimContext<'a> {
    Index::new(world).ctx(claim)
}

/// Whether the report is on this device claim, and not on an earlier one on the same device.
fn answers(report: &ClaimReport, claim: &DeviceClaim) -> bool {
    report.identity == claim.identity
        && report.owner_uid == claim.owner.uid
        && report.round == claim.round
}

/// Whether the device has this identity, which may not be its strongest any more.
pub fn is_device(device: &Device, identity: &str) -> bool {
    device.identity.as_deref() == Some(identity) || published_candidates(device).contains(identity)
}

/// An administrator discards the data. By the UID of the PersistentVolume: data that is retained later needs another.
pub fn is_forgotten(world: &NodeWorld, pv_uid: &str) -> bool {
    let annotation = world
        .inventory
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::FORGET_RETAINED_DATA_ANNOTATION));
    annotation.is_some_and(|annotation| annotation.split(',').any(|uid| uid.trim() == pv_uid))
}

/// The data that deleted PersistentVolumes left on this device.
pub fn retained_data_on<'a>(
    world: &'a NodeWorld,
    device: &Device,
    partitions: Partitions,
) -> Vec<&'a RetainedData> {
    records_on(world, &world.inventory.spec.retained_data, device, partitions)
}

/// The data that Quick wipes left on this device.
pub fn wipe_remnants_on<'a>(
    world: &'a NodeWorld,
    device: &Device,
    partitions: Partitions,
) -> Vec<&'a WipeRemnant> {
    records_on(world, &world.inventory.spec.wipe_remnants, device, partitions)
}

/// The records that concern the device. Of what it is built on only the disk of a partition is published; the agent, which
/// knows the rest, compares all of it before it confirms a device claim.
fn records_on<'a, R: DataRecord>(
    world: &NodeWorld,
    records: &'a [R],
    device: &Device,
    partitions: Partitions,
) -> Vec<&'a R> {
    if records.is_empty() {
        return Vec::new();
    }
    let candidates =
        |device: &Device| -> Vec<String> { published_candidates(device).into_iter().collect() };
    let own = candidates(device);
    let below = disk_of(world, device).map(candidates).unwrap_or_default();
    let devices = world.inventory.status.iter().flat_map(|status| &status.devices);
    let on_it = |record: &&R| {
        let all = devices.clone().map(|other| Cow::Owned(candidates(other)));
        concerns(*record, partitions, &own, &below, all)
    };
    records.iter().filter(on_it).collect()
}

/// The disk of a partition, or the multipath map that its disk is a path of.
pub fn disk_of<'a>(world: &'a NodeWorld, device: &Device) -> Option<&'a Device> {
    let parent = device.parent.as_ref()?;
    let mut devices = world.inventory.status.iter().flat_map(|status| &status.devices);
    devices.find(|disk| disk.name == *parent || disk.paths.contains(parent))
}

/// Continues "sdb …".
pub fn wipe_remnant_text(left: &WipeRemnant) -> String {
    format!(
        "contains data of PersistentVolume {} after a Quick wipe, which a Block device would expose; use it as Filesystem, or erase it by hand and annotate the NodeInventory with {}={}",
        left.pv_name,
        names::FORGET_RETAINED_DATA_ANNOTATION,
        left.pv_uid
    )
}

fn machine_id(world: &NodeWorld) -> Option<String> {
    world.inventory.status.as_ref().and_then(|status| status.machine_id.clone())
}

/// Another machine has the name of the node, or its agent has lost its ledger: the device claims are not its own.
pub fn is_frozen(world: &NodeWorld) -> bool {
    is_other_machine_now(world) || other_ledger(&world.inventory).is_some()
}

fn is_other_machine_now(world: &NodeWorld) -> bool {
    is_other_machine(
        &world.inventory.spec,
        world.inventory.status.as_ref().map(|status| status.machine_id.as_deref()),
    )
}

/// `seen`: the reported machine ID, if there is a report. A machine without an ID is another one.
pub fn is_other_machine(spec: &NodeInventorySpec, seen: Option<Option<&str>>) -> bool {
    spec.machine_id.is_some() && seen.is_some_and(|seen| seen != spec.machine_id.as_deref())
}

/// `seen`: the ID of the ledger on the node, if it is known.
pub fn is_other_ledger(spec: &NodeInventorySpec, seen: Option<&str>) -> bool {
    spec.ledger_id.is_some() && seen.is_some() && seen != spec.ledger_id.as_deref()
}

/// The agent reports another ledger than the recorded one: its data directory was lost or replaced. What to do about it.
pub fn other_ledger(inventory: &NodeInventory) -> Option<String> {
    let seen = inventory.status.as_ref()?.ledger_id.as_deref()?;
    is_other_ledger(&inventory.spec, Some(seen)).then(|| {
        format!(
            "the agent on node {0} has lost its data directory, or uses another one: its ledger is {seen}, the recorded one {1}; restore the data directory and restart the agent, or, if it is lost, annotate NodeInventory {0} with {2}={seen}",
            inventory.metadata.name.as_deref().unwrap_or_default(),
            inventory.spec.ledger_id.as_deref().unwrap_or_default(),
            names::ACCEPT_LEDGER_ANNOTATION
        )
    })
}

/// An administrator releases the device claims of a machine that is gone.
pub fn is_released(world: &NodeWorld) -> bool {
    let annotation = world
        .inventory
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::RELEASE_DEVICE_CLAIMS_ANNOTATION));
    let absent = world.node.is_none() || is_other_machine_now(world);
    annotation.is_some_and(|annotation| {
        absent && annotation == world.inventory.spec.machine_id.as_deref().unwrap_or(&world.name)
    })
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
