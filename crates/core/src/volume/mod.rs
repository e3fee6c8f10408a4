//! The decisions of the Volume controller: deploy, steady state, finalization, deletion criteria.
//!
//! `plan(&Observed, now)` is total: bad input becomes a condition, not an error. `check` finds every
//! invariant that a plan breaks. Nothing here waits or writes; `crates/operator/src/volume` does.
//! Next to read: `plan.rs`, `deploy.rs`, `finalize.rs`, then `deletion.rs` (what the CLI and the console ask).

pub mod check;
pub mod deletion;
mod deploy;
pub mod explain;
pub mod finalize;
pub mod jobs;
pub mod observed;
mod plan;
pub mod pv;
pub mod request;
pub mod status;
pub mod usage;

pub use plan::plan;

use crate::{event::PendingEvent, presence::Presence};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use quarry_api::{
    NodeJob, Volume, VolumeSpec, VolumeStatus, names, node_inventory::Device, node_job::hex_digest,
};

/// Everything that a decision about one Volume needs, gathered beforehand.
#[derive(Clone, Debug)]
pub struct Observed {
    pub volume: Volume,
    /// The PersistentVolume of the same name, managed or not.
    pub pv: Option<PersistentVolume>,
    pub class: Option<StorageClass>,
    pub node: Option<Node>,
    pub agent: Presence,
    /// The job that `status.job` names. `None`: it does not exist, also by a live read.
    pub job: Option<NodeJob>,
    /// The device of this volume in its node's inventory.
    pub device: Option<Device>,
    /// Another device of the node with the UUID of this volume, by kernel name: the volume's link may lead to it.
    pub rival_device: Option<String>,
    /// When the node's inventory last changed.
    pub inventory_changed: Option<Timestamp>,
    /// Why nothing may be done on its node: the agent's ledger is not the recorded one.
    pub other_ledger: Option<String>,
    /// The agent has attached the devices of its Volumes since the node booted, as far as it could.
    pub restored: bool,
    /// Another PersistentVolume that publishes this volume's storage: a copy made by hand or by a restore.
    pub other_pv: Option<String>,
}

/// One write, in the order in which it must happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    AddFinalizer,
    /// Intent: `status.job` is recorded before the job exists.
    RecordJob(VolumeStatus),
    CreateJob(Box<NodeJob>),
    CreatePv(Box<PersistentVolume>),
    /// The template's labels and annotations, where the PersistentVolume lacks them.
    UpdatePvMetadata(Box<pv::MetadataPatch>),
    DeletePv {
        uid: String,
        resource_version: String,
    },
    ReleasePv {
        uid: String,
        resource_version: String,
    },
    ReleaseVolume,
}

impl Step {
    /// The word used in logs, metrics and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Step::AddFinalizer => "AddFinalizer",
            Step::RecordJob(_) => "RecordJob",
            Step::CreateJob(_) => "CreateJob",
            Step::CreatePv(_) => "CreatePv",
            Step::UpdatePvMetadata(_) => "UpdatePvMetadata",
            Step::DeletePv { .. } => "DeletePv",
            Step::ReleasePv { .. } => "ReleasePv",
            Step::ReleaseVolume => "ReleaseVolume",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// The status once every step has been applied; `None` if the object is gone then.
    pub status: Option<VolumeStatus>,
    /// Reconcile again after this time even if nothing changes.
    pub requeue: Option<SignedDuration>,
    pub events: Vec<PendingEvent>,
    /// Reported instead if the API server refuses a step, with its answer; `None`: there are no steps.
    pub refused: Option<status::StatusUpdate>,
}

/// Something of it is on its node, or may be. Not by its status: what an agent without its ledger does not find is
/// reported as missing there.
pub fn is_started(volume: &Volume) -> bool {
    volume
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == names::VOLUME_FINALIZER)
}

/// A hash of the spec fields that a job uses: not the template, which only the PersistentVolume uses.
pub fn spec_hash(spec: &VolumeSpec) -> String {
    let VolumeSpec {
        node_name,
        storage_class_name,
        mode,
        template: _,
        sparse_loop_device,
        raw_block_device,
        lvm_logical_volume,
    } = spec;
    let types =
        serde_json::json!([sparse_loop_device, raw_block_device, lvm_logical_volume]).to_string();
    hex_digest(&[node_name, storage_class_name, mode.as_str(), &types])[..32].to_owned()
}

impl Observed {
    fn uid(&self) -> &str {
        self.volume.metadata.uid.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.volume.metadata.name.as_deref().unwrap_or_default()
    }

    fn has_finalizer(&self) -> bool {
        is_started(&self.volume)
    }

    /// The PersistentVolume, if it is this Volume's.
    fn own_pv(&self) -> Option<&PersistentVolume> {
        self.pv.as_ref().filter(|pv| pv::is_owned_by(pv, self.uid()))
    }

    fn job_handle(&self) -> Option<&str> {
        self.volume.status.as_ref().and_then(|status| status.job.as_deref())
    }
}

#[cfg(test)]
mod tests;
