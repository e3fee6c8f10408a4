//! The operator's half of a NodeInventory: which nodes have one, and what the cluster knows about their devices.
//!
//! It is deleted with its Node, except while it has device claims or records data on its disks: the machine may come
//! back, so a finalizer keeps the inventory. Next to read: `plan.rs`, `quarantine.rs`,
//! `unmanaged_pv.rs`.

mod check;
mod plan;

pub use check::{Violation, check};
pub use plan::{ownerless_message, plan, plan_without_claims};

use crate::{
    device_claim::{self, NodeWorld, Stage},
    event::PendingEvent,
    quarantine::RemoteIdentity,
};
use quarry_api::{
    NodeInventory, NodeInventorySpec,
    node_inventory::{ClaimOwner, UnmanagedPv},
};

#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub name: String,
    pub node_exists: bool,
    pub inventory: Option<NodeInventory>,
    /// The unmanaged PersistentVolumes on this node.
    pub unmanaged_pvs: Vec<UnmanagedPv>,
    /// Devices of other nodes with an identity of this node.
    pub elsewhere: Vec<RemoteIdentity>,
    /// A Volume was prepared on this node, or may have been: its ledger must not be replaced.
    pub has_volumes: bool,
    /// What device claims are planned from; `None` where the kinds that own them are not watched: what is claimed stays.
    pub world: Option<NodeWorld>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The write to the NodeInventory, first of all: what is on record there must be durable before anything else.
    pub inventory: Option<Step>,
    /// `None` where device claims are not planned.
    pub claims: Option<device_claim::Plan>,
    /// Events on owners of new device claims, published once the inventory was written.
    pub new_claims: Vec<(ClaimOwner, PendingEvent)>,
    /// Device claims without an owner that cannot end, by device.
    pub ownerless: Vec<(String, Stage)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(Box<NodeInventory>),
    /// At the version that was read.
    Update(Box<Update>),
    /// By UID and version: a node that comes back in between keeps its inventory.
    Delete {
        uid: String,
        resource_version: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub resource_version: String,
    pub spec: NodeInventorySpec,
    /// The complete list; `None` if it is unchanged.
    pub finalizers: Option<Vec<String>>,
    /// Removes the annotation that releases device claims: it was about a machine that was gone then.
    pub answered: bool,
}

#[cfg(test)]
mod tests;
