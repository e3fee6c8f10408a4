//! LocalVolumeSet (local.storage.openshift.io/v1alpha1): publishes devices that match a filter as
//! PersistentVolumes.
//!
//! The fields of the specification and of upstream, in both spellings where they differ;
//! `quarry_core::device_claim::demand` parses them. Admission refuses what it can, with the field and the remedy.

use crate::{
    local_volume_discovery::{OperatorCondition, conditions, node_selector, tolerations},
    quantity::Quantity,
};
use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "local.storage.openshift.io",
    version = "v1alpha1",
    kind = "LocalVolumeSet",
    plural = "localvolumesets",
    shortname = "lvset",
    namespaced,
    status = "LocalVolumeSetStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "Publishes devices that match its filter as PersistentVolumes of a StorageClass.",
    printcolumn(name = "Class", type_ = "string", json_path = ".spec.storageClassName"),
    printcolumn(
        name = "Provisioned",
        type_ = "integer",
        json_path = ".status.totalProvisionedDeviceCount"
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].message"#,
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minDeviceCount) || !has(self.maxDeviceCount) || self.minDeviceCount <= self.maxDeviceCount").message("minDeviceCount is greater than maxDeviceCount; lower minDeviceCount or raise maxDeviceCount"))]
#[x_kube(validation = Rule::new("!has(self.fsType) || !has(self.fstype) || self.fsType == self.fstype").message("fsType and fstype are the same field and differ; set only one of them"))]
pub struct LocalVolumeSetSpec {
    /// The nodes whose devices are used. Absent: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "node_selector")]
    pub node_selector: Option<NodeSelector>,
    /// The StorageClass of the PersistentVolumes. Created if it is missing, never changed.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("storageClassName must be a valid name of a StorageClass: lower case letters, digits, '-' and '.'"))]
    pub storage_class_name: String,
    /// The minimum per node: with fewer matching devices, none is used on that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_device_count: Option<i32>,
    /// The maximum per node. Lowering it releases nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_device_count: Option<i32>,
    /// Block (the default) or Filesystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['', 'Block', 'Filesystem', 'block', 'filesystem']").message("volumeMode must be Block or Filesystem"))]
    pub volume_mode: Option<String>,
    /// The file system that kubelet creates at the first mount. Ignored with volumeMode Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]*$')").message("fsType must be the name of a file system, such as ext4 or xfs"))]
    pub fs_type: Option<String>,
    /// An alternative spelling of `fsType`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "fstype")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]*$')").message("fstype must be the name of a file system, such as ext4 or xfs"))]
    pub fstype: Option<String>,
    /// The taints that do not keep the agent away from a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tolerations")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Which devices are used. Absent: disks of any size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_inclusion_spec: Option<DeviceInclusionSpec>,
    /// Which of them are excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_exclusion_spec: Option<DeviceExclusionSpec>,
}

/// A device must match all of it. Absent fields match any device, except `deviceTypes` (disk) and `minSize` (1Gi).
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minSize) || !has(self.maxSize) || !isQuantity(string(self.minSize)) || !isQuantity(string(self.maxSize)) || quantity(string(self.minSize)).compareTo(quantity(string(self.maxSize))) <= 0").message("minSize is greater than maxSize; lower minSize or raise maxSize"))]
pub struct DeviceInclusionSpec {
    /// disk (or RawDisk), part (or Partition), loop, mpath, lvm, raid (an md array of any level). Absent: disk. An empty list: no device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(disk|rawdisk|part|partition|loop|mpath|lvm|raid)$'))").message("deviceTypes must be disk (RawDisk), part (Partition), loop, mpath, lvm or raid"))]
    pub device_types: Option<Vec<String>>,
    /// An alternative name of `deviceTypes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(disk|rawdisk|part|partition|loop|mpath|lvm|raid)$'))").message("devices must be disk (RawDisk), part (Partition), loop, mpath, lvm or raid"))]
    pub devices: Option<Vec<String>>,
    /// Rotational, NonRotational, or both. Absent or empty: both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(rotational|nonrotational)$'))").message("deviceMechanicalProperties must be Rotational or NonRotational"))]
    pub device_mechanical_properties: Option<Vec<String>>,
    /// An alternative spelling of `deviceMechanicalProperties`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(rotational|nonrotational)$'))").message("deviceMechanicalProperty must be Rotational or NonRotational"))]
    pub device_mechanical_property: Option<Vec<String>>,
    /// The minimum size, inclusive. Absent: 1Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("isQuantity(string(self))").message("minSize must be a quantity, such as 10Gi"))]
    pub min_size: Option<Quantity>,
    /// The maximum size, inclusive. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("isQuantity(string(self))").message("maxSize must be a quantity, such as 100Gi"))]
    pub max_size: Option<Quantity>,
    /// The model of the device contains one of these, ignoring case. Absent or empty: any model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 256)))]
    pub models: Option<Vec<String>>,
    /// The vendor of the device contains one of these, ignoring case. Absent or empty: any vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 256)))]
    pub vendors: Option<Vec<String>>,
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceExclusionSpec {
    /// Patterns for kernel names that are never used, such as `rbd*` or `sd[a-c]`: `*`, `?`, `[a-c]` and `[^a]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    #[x_kube(validation = Rule::new(r#"self.all(one, one.matches('^([^\\[\\\\]|\\\\.|\\[(\\^([^\\]\\\\-]|\\\\.)|([^\\]\\\\!^-]|\\\\.))(-([^\\]\\\\-]|\\\\.))?(([^\\]\\\\-]|\\\\.)(-([^\\]\\\\-]|\\\\.))?)*\\])+$'))"#).message("deviceNameFilter supports *, ?, [a-c] and [^a], as in sd[a-c]*; close every [ with a ], put a character into it and after every backslash, and write [^a] instead of [!a]"))]
    pub device_name_filter: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeSetStatus {
    /// Available, DaemonSetsAvailable, Progressing and Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<OperatorCondition>,
    /// How many devices of this set are published as PersistentVolumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_provisioned_device_count: Option<i32>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
