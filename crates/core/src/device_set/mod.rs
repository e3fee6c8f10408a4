//! Device sets: OSDs on PVCs, from a CephCluster to running daemons.
//!
//! Owns: what exists of each OSD and what is done next for it. Each OSD is planned alone: one that fails or hangs stops no
//! other. Nothing is ever deleted here but a prepare Job that has failed: a lower count, a removed set and a lost PVC are
//! reported. Never looks at a device: the prepare Job does, and refuses what is not blank or not ours.
//! Next to read: `plan.rs` (the order), `osd.rs` (the state of one OSD), `claims.rs` (names and indices), `provider.rs`.

pub mod check;
pub mod claims;
pub mod index;
pub mod osd;
pub mod placement;
pub mod plan;
pub mod pods;
pub mod provider;
pub mod report;

pub use check::{Violation, check};
pub use osd::{Osd, OsdState};
pub use plan::plan;
pub use provider::{CephProvider, Prepared, Provider};

use crate::event::PendingEvent;
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use quarry_api::{CephCluster, CephClusterStatus};
use quarry_ceph::Uuid;
use std::{collections::BTreeMap, sync::Arc};

/// Everything that the OSDs of one cluster depend on, read at once.
#[derive(Clone, Debug)]
pub struct Observed {
    pub cluster: CephCluster,
    /// The other CephClusters of its namespace: objects are found by label, so only the oldest is served.
    pub others: Vec<Arc<CephCluster>>,
    /// The operator of upstream that serves this cluster, as `namespace/name`.
    pub rook: Option<String>,
    /// `Err`: which object or key is missing, and the remedy.
    pub access: Result<Access, String>,
    /// All of the namespace that have the label of device sets.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Those that the claims are bound to.
    pub volumes: Vec<PersistentVolume>,
    pub jobs: Vec<Job>,
    /// Of the prepare Jobs and of the OSDs.
    pub pods: Vec<Pod>,
    /// Results of prepare Jobs.
    pub results: Vec<ConfigMap>,
    /// `ceph.conf` of the OSDs.
    pub config: Option<ConfigMap>,
    pub deployments: Vec<Deployment>,
    pub classes: Vec<StorageClass>,
    pub nodes: Vec<Arc<Node>>,
    pub settings: Settings,
}

/// How the daemons of a cluster reach it: from the objects that upstream keeps in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub fsid: Uuid,
    pub mon_host: String,
    /// The Secret whose key `keyring` registers OSDs.
    pub keyring_secret: String,
    /// The text of `rook-config-override`.
    pub config_override: String,
}

/// Of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The image whose binary prepares devices, in the container of the Ceph image.
    pub image: String,
    pub image_pull_policy: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    CreateClaim(Box<PersistentVolumeClaim>),
    /// `ceph.conf` of the OSDs; replaced where it differs.
    ApplyConfig(Box<ConfigMap>),
    CreateJob(Box<Job>),
    DeleteJob {
        name: String,
        uid: String,
    },
    /// The result of a prepare Job, which outlives its pod.
    RecordResult(Box<ConfigMap>),
    CreateDeployment(Box<Deployment>),
}

impl Step {
    /// For logs.
    pub fn name(&self) -> &'static str {
        match self {
            Step::CreateClaim(_) => "CreateClaim",
            Step::ApplyConfig(_) => "ApplyConfig",
            Step::CreateJob(_) => "CreateJob",
            Step::DeleteJob { .. } => "DeleteJob",
            Step::RecordResult(_) => "RecordResult",
            Step::CreateDeployment(_) => "CreateDeployment",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// `None`: it is as it should be.
    pub status: Option<Box<CephClusterStatus>>,
    pub events: Vec<PendingEvent>,
    /// OSDs by state, for metrics.
    pub counts: BTreeMap<&'static str, usize>,
    pub requeue: Option<SignedDuration>,
}

#[cfg(test)]
mod tests;
