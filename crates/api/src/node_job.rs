//! NodeJob (quarry.dev/v1alpha1): the only way to write to a disk.
//!
//! The spec is immutable and carries its precondition; the agent checks all of it again before it acts. The name is a
//! hash of the spec, so that a second creation fails with AlreadyExists instead of running twice. A failed job is final; a retry is a new job with the next attempt.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "quarry.dev",
    version = "v1alpha1",
    kind = "NodeJob",
    plural = "nodejobs",
    shortname = "njob",
    status = "NodeJobStatus",
    derive = "PartialEq",
    category = "quarry",
    doc = "One change to the storage of one node, with its precondition.",
    selectable = ".spec.nodeName",
    validation = Rule::new("self.spec == oldSelf.spec").message("the spec of a NodeJob is immutable; create another NodeJob"),
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.action"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "For", type_ = "string", json_path = ".spec.owner.name"),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".spec.attempt", priority = 1),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "integer", json_path = ".status.progress"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeJobSpec {
    pub action: Action,
    /// The node whose agent runs the job.
    #[schemars(length(min = 1, max = 253))]
    pub node_name: String,
    /// The object that requested it. Not an owner reference: garbage collection must not delete a running job.
    pub owner: JobOwner,
    pub device: JobDevice,
    pub precondition: Precondition,
    /// What to create. Present for Prepare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
    /// 1 for the first attempt.
    #[schemars(range(min = 1))]
    pub attempt: i32,
    /// The value of the owner's retry annotation that led to this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    Prepare,
    Cleanup,
    /// Erase a claimed device whose PersistentVolume was released.
    Wipe,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Prepare => "Prepare",
            Action::Cleanup => "Cleanup",
            Action::Wipe => "Wipe",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobOwner {
    pub kind: OwnerKind,
    /// Absent for a cluster-scoped owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OwnerKind {
    Volume,
    LocalVolumeSet,
    LocalVolume,
}

impl OwnerKind {
    pub const ALL: [OwnerKind; 3] =
        [OwnerKind::Volume, OwnerKind::LocalVolumeSet, OwnerKind::LocalVolume];

    pub fn as_str(self) -> &'static str {
        match self {
            OwnerKind::Volume => "Volume",
            OwnerKind::LocalVolumeSet => "LocalVolumeSet",
            OwnerKind::LocalVolume => "LocalVolume",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The device, by what identifies it. Exactly one is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.sparseFile) != has(self.claimed)").message("set exactly one of sparseFile, claimed"))]
pub struct JobDevice {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse_file: Option<SparseFile>,
    /// A device that is claimed in the node's NodeInventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<ClaimedDevice>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedDevice {
    pub identity: String,
    /// In bytes: a device of another size is another device.
    #[schemars(range(min = 1))]
    pub size: i64,
    /// The released PersistentVolume whose data is erased.
    pub pv_name: String,
    #[serde(rename = "pvUID")]
    pub pv_uid: String,
    /// The PersistentVolumeClaim whose data is erased; absent if none was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "pvcUID")]
    pub pvc_uid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparseFile {
    /// Names the file in the agent's volume directory, and becomes the file system's UUID or the partition's GUID.
    #[serde(rename = "volumeUID")]
    #[schemars(regex(pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"))]
    pub volume_uid: String,
}

/// What must still be true when the agent acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Precondition {
    /// The UID of the Node: recreating the Node voids the job.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// A hash of the owner's spec fields that the job uses.
    pub spec_hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.filesystem), has(self.partition), has(self.wipe)].filter(x, x).size() == 1").message("set exactly one of filesystem, partition, wipe"))]
pub struct Parameters {
    /// In bytes.
    #[schemars(range(min = 1))]
    pub size: i64,
    /// Create a file system whose UUID is the UID of the Volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<FilesystemParameters>,
    /// Create one partition whose name and GUID are the UID of the Volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionParameters>,
    /// Erase the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wipe: Option<WipeParameters>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WipeParameters {
    pub policy: WipePolicy,
}

/// How thoroughly a device is erased. First and last MiB are always zero afterwards.
///
/// In the order of their thoroughness.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum WipePolicy {
    /// Every signature, the first and the last MiB: the old data stays readable.
    Quick,
    /// All blocks are discarded, which is verified by samples; a device that cannot discard is zeroed.
    Discard,
    /// Every block is overwritten with zeros.
    Zero,
}

impl WipePolicy {
    pub const ALL: [WipePolicy; 3] = [WipePolicy::Quick, WipePolicy::Discard, WipePolicy::Zero];

    pub fn as_str(self) -> &'static str {
        match self {
            WipePolicy::Quick => "Quick",
            WipePolicy::Discard => "Discard",
            WipePolicy::Zero => "Zero",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemParameters {
    #[serde(rename = "type")]
    pub kind: FsType,
    /// Arguments for mkfs, already checked against what is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mkfs_options: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FsType {
    Ext4,
    Xfs,
}

impl FsType {
    pub const ALL: [FsType; 2] = [FsType::Ext4, FsType::Xfs];

    pub fn as_str(self) -> &'static str {
        match self {
            FsType::Ext4 => "ext4",
            FsType::Xfs => "xfs",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fs| fs.as_str() == text)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionParameters {}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeJobStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,
    /// How many times the agent started it: more than once after a crash of the agent.
    #[serde(default)]
    pub runs: i32,
    /// Progress in percent; only for long tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub progress: Option<i32>,
    /// What the job is doing, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum JobPhase {
    Running,
    Succeeded,
    Failed,
}

impl JobPhase {
    pub fn finished(self) -> bool {
        match self {
            JobPhase::Running => false,
            JobPhase::Succeeded | JobPhase::Failed => true,
        }
    }
}

/// What the operator needs to create a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// The persistent path on the node.
    pub path: String,
    /// The kernel's name of the device now.
    pub device_name: String,
    /// Usable bytes at `path`.
    pub capacity: i64,
}

/// SHA-256 over length-prefixed parts, in hex: no two lists of parts run together.
pub fn hex_digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl NodeJobSpec {
    /// The name of the job: the same spec gives the same name.
    ///
    /// 160 bits of the hash keep the name readable in a table; the node and the precondition's node UID are
    /// part of it, so that a recreated Node gets its own job.
    pub fn job_name(&self) -> String {
        let fields = serde_json::to_string(self).unwrap_or_default();
        let digest = hex_digest(&[&fields]);
        format!("{}-{}", self.action.as_str().to_lowercase(), &digest[..40])
    }
}
