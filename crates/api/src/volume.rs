//! Volume (storage.metalk8s.scality.com/v1alpha1), as upstream, plus `status.phase`.
//!
//! The upstream schema, made strict: exactly one type, a positive size, no change of what has been prepared.
//! `template` stays open (unknown fields are kept, as upstream); an admission policy warns about fields that are not
//! used (`admission.rs`).

use crate::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storage.metalk8s.scality.com",
    version = "v1alpha1",
    kind = "Volume",
    plural = "volumes",
    status = "VolumeStatus",
    derive = "PartialEq",
    shortname = "qvol",
    category = "quarry",
    doc = "Storage on one node and the PersistentVolume created from it.",
    selectable = ".spec.nodeName",
    selectable = ".spec.storageClassName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "StorageClass", type_ = "string", json_path = ".spec.storageClassName"),
    printcolumn(name = "Size", type_ = "string", json_path = ".spec.sparseLoopDevice.size"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Device", type_ = "string", json_path = ".status.deviceName"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.sparseLoopDevice), has(self.rawBlockDevice), has(self.lvmLogicalVolume)].filter(x, x).size() == 1").message("set exactly one of sparseLoopDevice, rawBlockDevice, lvmLogicalVolume"))]
#[x_kube(validation = Rule::new("has(self.sparseLoopDevice) == has(oldSelf.sparseLoopDevice) && has(self.rawBlockDevice) == has(oldSelf.rawBlockDevice) && has(self.lvmLogicalVolume) == has(oldSelf.lvmLogicalVolume)").message("the type of a Volume is immutable; delete the Volume and create another"))]
pub struct VolumeSpec {
    /// The node that holds the storage, by its Kubernetes name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("nodeName is immutable, because storage does not move; delete the Volume and create another"))]
    pub node_name: String,
    /// The StorageClass of the PersistentVolume. Its parameters `fsType` (ext4 or xfs) and `mkfsOptions` (a JSON list) define how to format; its mountOptions are copied to the PersistentVolume.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("storageClassName is immutable, because the Volume was formatted for it; delete the Volume and create another"))]
    pub storage_class_name: String,
    /// Filesystem (formatted, mounted by kubelet) or Block (one raw partition).
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("mode is immutable; delete the Volume and create another"))]
    pub mode: VolumeMode,
    /// Labels and annotations for the PersistentVolume, and a claimRef to reserve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PersistentVolumeTemplate>,
    /// A sparse file on the node behind a loop device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse_loop_device: Option<SparseLoopDevice>,
    /// A whole disk, a partition or a logical volume that exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_block_device: Option<RawBlockDevice>,
    /// A logical volume to be created in an existing volume group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lvm_logical_volume: Option<LvmLogicalVolume>,
}

#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum VolumeMode {
    #[default]
    Filesystem,
    Block,
}

impl VolumeMode {
    pub fn as_str(self) -> &'static str {
        match self {
            VolumeMode::Filesystem => "Filesystem",
            VolumeMode::Block => "Block",
        }
    }
}

#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SparseLoopDevice {
    /// The size of the file, exact to the byte.
    #[x_kube(validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))").message("size must be greater than 0, such as 10Gi"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("size is immutable; delete the Volume and create another"))]
    pub size: Quantity,
}

#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawBlockDevice {
    /// The path of the device on the node.
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("devicePath is immutable; delete the Volume and create another"))]
    pub device_path: String,
}

#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LvmLogicalVolume {
    /// The volume group on the node.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("vgName is immutable; delete the Volume and create another"))]
    pub vg_name: String,
    /// The size of the logical volume.
    #[x_kube(validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))").message("size must be greater than 0, such as 10Gi"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("size is immutable; delete the Volume and create another"))]
    pub size: Quantity,
}

/// What the PersistentVolume inherits. Unknown fields are kept, as upstream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PersistentVolumeTemplate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "template_metadata")]
    pub metadata: Option<TemplateMetadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub spec: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateMetadata {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Other fields: kept, and warned about.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Open as upstream, except for fields that are used: `true` instead of `"true"` is refused at admission.
fn template_metadata(_: &mut SchemaGenerator) -> Schema {
    let texts = json_schema!({"type": "object", "additionalProperties": {"type": "string"}});
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"labels": texts, "annotations": texts}})
}

fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Available, Pending, Failed or Terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// `<Step>/<NodeJob>` while a job is under way, and after it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The kernel's name of the device behind the volume, such as `loop3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
}

/// Keyed by type, so that a strategic merge or an apply replaces one condition and not the list.
fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<Condition>();
    json_schema!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    Available,
    Pending,
    Failed,
    Terminating,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Available => "Available",
            Phase::Pending => "Pending",
            Phase::Failed => "Failed",
            Phase::Terminating => "Terminating",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The only condition.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    pub status: ConditionStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// The upstream reasons. The cause is in the message of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    Pending,
    Terminating,
    InternalError,
    CreationError,
    DestructionError,
    UnavailableError,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Pending => "Pending",
            Reason::Terminating => "Terminating",
            Reason::InternalError => "InternalError",
            Reason::CreationError => "CreationError",
            Reason::DestructionError => "DestructionError",
            Reason::UnavailableError => "UnavailableError",
        }
    }
}

impl Volume {
    pub fn phase(&self) -> Option<Phase> {
        self.status.as_ref().and_then(|status| status.phase)
    }

    pub fn ready(&self) -> Option<&Condition> {
        self.status.as_ref().and_then(|status| status.conditions.first())
    }
}
