//! What is done about the owner of device claims (LocalVolumeSet, LocalVolume) itself: its finalizer, its
//! StorageClasses, its status. The device claims are planned per node.

mod check;
mod plan;

pub use check::{Violation, check};
pub use plan::plan;

use super::{Demand, Stage, status::NodeSummary, world::NodeFacts};
use crate::event::PendingEvent;
use jiff::SignedDuration;
use quarry_api::{
    LocalVolumeSetStatus, LocalVolumeStatus, local_volume::GenerationStatus,
    local_volume_discovery::OperatorCondition,
};
use serde::Serialize;

/// One owner, and the nodes that it may have devices on.
#[derive(Clone, Debug)]
pub struct Observed {
    pub demand: Demand,
    /// The operator's.
    pub namespace: String,
    pub conditions: Vec<OperatorCondition>,
    pub generation: Option<i64>,
    pub fields: OwnerFields,
    pub finalizers: Vec<String>,
    pub resource_version: String,
    /// All demands that compete for devices, this one included.
    pub demands: Vec<Demand>,
    /// Every node with a NodeInventory.
    pub nodes: Vec<NodeFacts>,
    /// StorageClasses that Quarry created for it; read only once it is deleted and no device claim is left.
    pub classes: Vec<ClassUse>,
}

impl Observed {
    /// Owners elsewhere are not acted on.
    fn in_namespace(&self) -> bool {
        self.demand.owner.namespace.as_deref() == Some(self.namespace.as_str())
    }
}

/// What the status takes over from the object, by its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerFields {
    LocalVolumeSet,
    LocalVolume { management_state: Option<String>, generations: Vec<GenerationStatus> },
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

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Of each of its device claims, for the metrics.
    pub stages: Vec<Stage>,
    pub step: Step,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
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
    pub status: OwnerStatus,
    pub notes: Vec<PendingEvent>,
    pub summaries: Vec<NodeSummary>,
    pub requeue: Option<SignedDuration>,
}

/// The status, in the form of its kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OwnerStatus {
    LocalVolumeSet(LocalVolumeSetStatus),
    LocalVolume(LocalVolumeStatus),
}

impl OwnerStatus {
    pub fn provisioned(&self) -> i32 {
        match self {
            OwnerStatus::LocalVolumeSet(status) => {
                status.total_provisioned_device_count.unwrap_or_default()
            }
            OwnerStatus::LocalVolume(status) => status.ready_replicas,
        }
    }

    pub fn conditions(&self) -> &[OperatorCondition] {
        match self {
            OwnerStatus::LocalVolumeSet(status) => &status.conditions,
            OwnerStatus::LocalVolume(status) => &status.conditions,
        }
    }

    pub fn observed_generation(&self) -> Option<i64> {
        match self {
            OwnerStatus::LocalVolumeSet(status) => status.observed_generation,
            OwnerStatus::LocalVolume(status) => status.observed_generation,
        }
    }
}
