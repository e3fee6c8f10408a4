//! The machine itself, with a test's hooks right before and after it takes hold of a device.

use quarry_api::{
    ids::Uid,
    node_inventory::{DeviceClaim, PathReport, RetainedData},
};
use quarry_core::{
    job::{Intent, Outcome},
    storage::sparse::{Observed, Sparse, Step},
};
use quarry_node::{
    ConfirmRequest, Confirmation, DeviceOps, HeldDevice, HoldRequest, LedgerOps, LinkState,
    LinkTask, LinuxNode, NodeError, NodeScan, ScanRequest, VolumeOps,
};
use std::sync::Arc;

/// What a test does at these points; by default nothing.
pub trait Hooks: Send + Sync + 'static {
    fn before_confirm(&self) {}

    fn before_hold(&self) {}

    /// The device that was held, or another in its place.
    fn after_hold(&self, held: Box<dyn HeldDevice>) -> Box<dyn HeldDevice> {
        held
    }
}

pub struct HookedNode<T> {
    pub ops: Arc<LinuxNode>,
    pub hooks: T,
}

impl<T: Hooks> VolumeOps<Sparse> for HookedNode<T> {
    fn observe(&self, uid: &Uid) -> Result<Observed, NodeError> {
        self.ops.observe(uid)
    }
    fn observe_shared(&self, uid: &Uid) -> Result<Observed, NodeError> {
        self.ops.observe_shared(uid)
    }
    fn apply(&self, uid: &Uid, step: &Step) -> Result<(), NodeError> {
        self.ops.apply(uid, step)
    }
    fn known_volumes(&self) -> Result<Vec<Uid>, NodeError> {
        self.ops.known_volumes()
    }
}

impl<T: Hooks> DeviceOps for HookedNode<T> {
    fn scan_node(&self, request: &ScanRequest) -> Result<NodeScan, NodeError> {
        self.ops.scan_node(request)
    }
    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        self.hooks.before_confirm();
        self.ops.confirm(request)
    }
    fn follow_links(&self, tasks: &[LinkTask]) -> Result<Vec<LinkState>, NodeError> {
        self.ops.follow_links(tasks)
    }
    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError> {
        self.ops.resolve(paths)
    }
    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        self.hooks.before_hold();
        Ok(self.hooks.after_hold(self.ops.hold(request)?))
    }
}

impl<T: Hooks> LedgerOps for HookedNode<T> {
    fn record_intent(&self, entry: &Intent) -> Result<(), NodeError> {
        self.ops.record_intent(entry)
    }
    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError> {
        self.ops.record_outcome(entry)
    }
    fn record_retained(&self, retained: &[RetainedData]) -> Result<(), NodeError> {
        self.ops.record_retained(retained)
    }
    fn record_released(&self, claims: &[DeviceClaim]) -> Result<(), NodeError> {
        self.ops.record_released(claims)
    }
    fn outdated(&self, claims: &[DeviceClaim]) -> Result<Vec<Option<String>>, NodeError> {
        self.ops.outdated(claims)
    }
    fn ledger_id(&self) -> Result<String, NodeError> {
        self.ops.ledger_id()
    }
}
