//! LocalVolumeDiscoveryResult: the devices of a node's inventory, as consumers of the upstream kind read them.
//!
//! Written for nodes that the LocalVolumeDiscovery in force covers, and only when a row differs. A result has no owner:
//! when discovery ends it stays unchanged until it is deleted by hand.

mod check;
mod plan;

pub use check::{Violation, check};
pub use plan::{plan, rows};

use crate::event::PendingEvent;
use k8s_openapi::api::core::v1::Node;
use quarry_api::{
    LocalVolumeDiscovery, LocalVolumeDiscoveryResult, NodeInventory,
    local_volume_discovery::LocalVolumeDiscoveryResultStatus,
};
use std::{collections::BTreeMap, sync::Arc};

/// The upstream reasons of Events.
pub const CREATED: &str = "CreatedDiscoveryResultObject";
pub const UPDATED: &str = "UpdatedDiscoveredDeviceList";
pub const CREATE_FAILED: &str = "ErrorCreatingDiscoveryResultObject";
pub const UPDATE_FAILED: &str = "ErrorUpdatingDiscoveryResultObject";

#[derive(Clone, Debug)]
pub struct Observed {
    pub name: String,
    /// The namespace of the operator and of results.
    pub namespace: String,
    /// Every LocalVolumeDiscovery, in force or not, of all namespaces.
    pub discoveries: Vec<Arc<LocalVolumeDiscovery>>,
    /// `None`: the Node does not exist.
    pub node: Option<Arc<Node>>,
    /// As it is, perhaps with the report of another machine that had the node's name.
    pub inventory: Option<Arc<NodeInventory>>,
    pub result: Option<LocalVolumeDiscoveryResult>,
}

impl Observed {
    /// The LocalVolumeDiscovery in force.
    pub fn active(&self) -> Option<&LocalVolumeDiscovery> {
        super::active(self.discoveries.iter().map(AsRef::as_ref), &self.namespace)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(Box<LocalVolumeDiscoveryResult>),
    /// The labels that it lacks.
    Label {
        resource_version: String,
        labels: BTreeMap<String, String>,
    },
}

impl Step {
    pub fn name(&self) -> &'static str {
        match self {
            Step::Create(_) => "Create",
            Step::Label { .. } => "Label",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// The new status; `None` when the rows are the same.
    pub status: Option<LocalVolumeDiscoveryResultStatus>,
    pub events: Vec<PendingEvent>,
    /// Published on the LocalVolumeDiscovery in force if the API server refuses a write, with its answer; `None`:
    /// nothing is written.
    pub refused: Option<PendingEvent>,
}
