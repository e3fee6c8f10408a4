//! Operations on a node, as an executor of jobs asks for them: volumes, devices, ledger.
//!
//! Flow: `JobRunner` and the agent call them on workers; `LinuxNode` is the machine, the simulator has its own.
//! Guarantees: every operation is complete when it returns, none decides whether it may be done. Caveat: calls block,
//! and may block for as long as a disk does. An executor asks for the traits that it needs; `NodeOps` is all of them.
//! Next to read: `linux/mod.rs`, `quarry_core::storage` (which steps), `act/mod.rs` (how).

use crate::{
    device_claim::{
        ConfirmRequest, Confirmation, HeldDevice, HoldRequest, LinkState, LinkTask, Spare,
    },
    error::NodeError,
};
use quarry_api::{
    ids::Uid,
    node_inventory::{DeviceClaim, PathReport, RetainedData, UnmanagedPv},
};
use quarry_core::{
    device::Facts,
    job::{Intent, Outcome},
    storage::{Backend, sparse::Sparse},
};
use std::{collections::BTreeSet, time::Duration};

/// The volumes of one backend.
pub trait VolumeOps<B: Backend>: Send + Sync + 'static {
    /// Everything about one volume, users included.
    fn observe(&self, uid: &Uid) -> Result<B::Observed, NodeError>;

    /// As `observe`, without opening any device exclusively: for a volume that a pod may be about to mount.
    fn observe_shared(&self, uid: &Uid) -> Result<B::Observed, NodeError>;

    fn apply(&self, uid: &Uid, step: &B::Step) -> Result<(), NodeError>;

    /// Finished volumes that the ledger knows.
    fn known_volumes(&self) -> Result<Vec<Uid>, NodeError>;
}

/// Block devices, and the device claims on them.
pub trait DeviceOps: Send + Sync + 'static {
    /// Every block device of the node, and which node it is.
    fn scan_node(&self, request: &ScanRequest) -> Result<NodeScan, NodeError>;

    /// Reads devices while they are held, and links those that are as claimed. Never for one that was confirmed
    /// before: it may be in use.
    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError>;

    /// In the order of the tasks.
    fn follow_links(&self, tasks: &[LinkTask]) -> Result<Vec<LinkState>, NodeError>;

    /// Which devices these paths of the node are.
    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError>;

    /// Opens a device exclusively, to be erased, and verifies all that can be seen on the node while it is held.
    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError>;
}

/// The node's own memory of what was done on it. Each record is durable when its call returns.
pub trait LedgerOps: Send + Sync + 'static {
    /// Only for a plan that is not a refusal: an intent makes the volume's files ours.
    fn record_intent(&self, entry: &Intent) -> Result<(), NodeError>;

    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError>;

    /// That this data stays is known on the node from now on, even if an older API asks for a wipe later.
    fn record_retained(&self, retained: &[RetainedData]) -> Result<(), NodeError>;

    /// These device claims have ended here: none of them is confirmed again, even if an older API has it.
    fn record_released(&self, claims: &[DeviceClaim]) -> Result<(), NodeError>;

    /// In the order of the device claims: why each is over, as far as the ledger knows; `None` if it is not.
    fn outdated(&self, claims: &[DeviceClaim]) -> Result<Vec<Option<String>>, NodeError>;

    /// The ID of this ledger: another data directory has another.
    fn ledger_id(&self) -> Result<String, NodeError>;
}

/// All operations on a node.
pub trait NodeOps: VolumeOps<Sparse> + DeviceOps + LedgerOps {}

impl<T: VolumeOps<Sparse> + DeviceOps + LedgerOps> NodeOps for T {}

/// What has to be read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanRequest {
    /// Read every device again, whether it seems to have changed or not.
    pub everything: bool,
    /// Devices that the kernel has sent an event about, by kernel name.
    pub touched: BTreeSet<String>,
    /// Whose devices are to be found.
    pub unmanaged_pvs: Vec<UnmanagedPv>,
    /// Devices that are not opened exclusively, not even for a moment.
    pub spare: Vec<Spare>,
    /// The devices are held, and the result decides: every byte that counts is read, and slow ones are waited for.
    pub proves: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeScan {
    pub devices: Vec<Facts>,
    /// What kept us from seeing everything, for people.
    pub problems: Vec<String>,
    /// When to scan again, because a device has not answered yet.
    pub again_in: Option<Duration>,
    pub boot_id: Option<String>,
    pub machine_id: Option<String>,
    pub ledger_id: Option<String>,
}
