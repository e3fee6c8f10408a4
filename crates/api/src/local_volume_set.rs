//! LocalVolumeSet (local.storage.openshift.io/v1alpha1): devices that fit a description become PersistentVolumes.
//!
//! The seed's fields and the shipped ones, in both spellings where they differ; `quarry_core::claim::want` reads them.
//! What can be known at admission is refused there, with the field and the remedy.

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
    doc = "Turns devices that fit its description into PersistentVolumes of a StorageClass.",
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
#[x_kube(validation = Rule::new("!has(self.minDeviceCount) || !has(self.maxDeviceCount) || self.minDeviceCount <= self.maxDeviceCount").message("minDeviceCount is greater than maxDeviceCount: no node could satisfy both; lower the one or raise the other"))]
#[x_kube(validation = Rule::new("!(has(self.fsType) && self.fsType != '' || has(self.fstype) && self.fstype != '') || !has(self.volumeMode) || !(self.volumeMode in ['Block', 'block'])").message("fsType is for volumeMode Filesystem: leave it out for Block, or set volumeMode to Filesystem"))]
#[x_kube(validation = Rule::new("!has(self.fsType) || !has(self.fstype) || self.fsType == self.fstype").message("fsType and fstype are the same field and differ: set one of them"))]
pub struct LocalVolumeSetSpec {
    /// The nodes whose devices are used. Absent: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "node_selector")]
    pub node_selector: Option<NodeSelector>,
    /// The StorageClass of the PersistentVolumes. Made if it is missing, never changed.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("storageClassName must be a name that a StorageClass can have: lower case letters, digits, '-' and '.'"))]
    pub storage_class_name: String,
    /// On each node: with fewer matching devices than this, none is used there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_device_count: Option<i32>,
    /// On each node: at most this many devices. Lowering it gives nothing back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_device_count: Option<i32>,
    /// Block (the default) or Filesystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['', 'Block', 'Filesystem', 'block', 'filesystem']").message("volumeMode must be Block or Filesystem"))]
    pub volume_mode: Option<String>,
    /// The file system that kubelet makes at the first mount, for volumeMode Filesystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]*$')").message("fsType must be the name of a file system, such as ext4 or xfs"))]
    pub fs_type: Option<String>,
    /// The same as `fsType`, as the design document spells it once.
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
    /// Which of them are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_exclusion_spec: Option<DeviceExclusionSpec>,
}

/// A device must satisfy all of it. What is absent asks for nothing, but for `deviceTypes` (disk) and `minSize` (1Gi).
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minSize) || !has(self.maxSize) || !isQuantity(string(self.minSize)) || !isQuantity(string(self.maxSize)) || quantity(string(self.minSize)).compareTo(quantity(string(self.maxSize))) <= 0").message("minSize is greater than maxSize: no device could satisfy both; lower the one or raise the other"))]
pub struct DeviceInclusionSpec {
    /// disk (or RawDisk), part (or Partition), loop, mpath, lvm. Absent: disk. An empty list: no device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(disk|rawdisk|part|partition|loop|mpath|lvm)$'))").message("deviceTypes knows disk (RawDisk), part (Partition), loop, mpath and lvm"))]
    pub device_types: Option<Vec<String>>,
    /// The same as `deviceTypes`, as the design document names it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(disk|rawdisk|part|partition|loop|mpath|lvm)$'))").message("devices knows disk (RawDisk), part (Partition), loop, mpath and lvm"))]
    pub devices: Option<Vec<String>>,
    /// Rotational, NonRotational, or both. Absent or empty: both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(rotational|nonrotational)$'))").message("deviceMechanicalProperties knows Rotational and NonRotational"))]
    pub device_mechanical_properties: Option<Vec<String>>,
    /// The same as `deviceMechanicalProperties`, as the design document's examples spell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(one, one.matches('^(?i)(rotational|nonrotational)$'))").message("deviceMechanicalProperty knows Rotational and NonRotational"))]
    pub device_mechanical_property: Option<Vec<String>>,
    /// The smallest device, itself included. Absent: 1Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("isQuantity(string(self))").message("minSize must be a quantity, such as 10Gi"))]
    pub min_size: Option<Quantity>,
    /// The largest device, itself included. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("isQuantity(string(self))").message("maxSize must be a quantity, such as 100Gi"))]
    pub max_size: Option<Quantity>,
    /// The device's model contains one of these, in any case. Absent or empty: any model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 256)))]
    pub models: Option<Vec<String>>,
    /// The device's vendor contains one of these, in any case. Absent or empty: any vendor.
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
    #[x_kube(validation = Rule::new(r#"self.all(one, one.matches('^([^\\[\\\\]|\\\\.|\\[(\\^([^\\]\\\\-]|\\\\.)|([^\\]\\\\!^-]|\\\\.))(-([^\\]\\\\-]|\\\\.))?(([^\\]\\\\-]|\\\\.)(-([^\\]\\\\-]|\\\\.))?)*\\])+$'))"#).message("deviceNameFilter knows *, ?, [a-c] and [^a], as in sd[a-c]*: close every [ with a ], put something into it and behind every backslash, and write [^a] where a shell has [!a]"))]
    pub device_name_filter: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeSetStatus {
    /// Available, DaemonSetsAvailable, Progressing and Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<OperatorCondition>,
    /// How many devices of this set are PersistentVolumes now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_provisioned_device_count: Option<i32>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
