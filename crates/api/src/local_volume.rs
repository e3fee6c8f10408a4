//! LocalVolume (local.storage.openshift.io/v1): publishes devices that are named by their paths as PersistentVolumes.
//!
//! The upstream fields. What destroys data needs consent, which does not exist yet: it is refused at admission.

use crate::{
    local_volume_discovery::{OperatorCondition, conditions, node_selector, tolerations},
    null_as_default,
};
use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "local.storage.openshift.io",
    version = "v1",
    kind = "LocalVolume",
    plural = "localvolumes",
    shortname = "lvol",
    namespaced,
    status = "LocalVolumeStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "Publishes the devices at the given paths as PersistentVolumes.",
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
pub struct LocalVolumeSpec {
    /// Managed (the default) or Force: devices are claimed. Unmanaged or Removed: no new devices are claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['', 'Managed', 'Unmanaged', 'Force', 'Removed']").message("managementState must be Managed, Unmanaged, Force or Removed"))]
    pub management_state: Option<String>,
    /// Accepted for compatibility and not used: the environment variable RUST_LOG of the operator sets what it logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['', 'Normal', 'Debug', 'Trace', 'TraceAll']").message("logLevel must be Normal, Debug, Trace or TraceAll"))]
    pub log_level: Option<String>,
    /// The nodes whose devices are used. Absent: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "node_selector")]
    pub node_selector: Option<NodeSelector>,
    /// The taints that do not keep the agent away from a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tolerations")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Which devices, and what they are published as: at most 1,000 paths altogether.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.map(one, has(one.devicePaths) ? one.devicePaths.size() : 0).sum() <= 1000").message("storageClassDevices names more than 1000 devicePaths; create several LocalVolumes, each with a nodeSelector for its nodes"))]
    pub storage_class_devices: Vec<StorageClassDevice>,
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageClassDevice {
    /// The StorageClass of the PersistentVolumes. Created if it is missing, never changed.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("storageClassName must be a valid name of a StorageClass: lower case letters, digits, '-' and '.'"))]
    pub storage_class_name: String,
    /// Filesystem (the default) or Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['', 'Block', 'Filesystem']").message("volumeMode must be Block or Filesystem"))]
    pub volume_mode: Option<String>,
    /// The file system that kubelet creates at the first mount of a blank device. Ignored with volumeMode Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]*$')").message("fsType must be the name of a file system, such as ext4 or xfs"))]
    pub fs_type: Option<String>,
    /// Paths of devices on the nodes, preferably below /dev/disk/by-id: they are resolved once, then the device is known by its identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(length(max = 256), inner(length(max = 1024)))]
    #[x_kube(validation = Rule::new("self.all(path, path.startsWith('/dev/') && !path.contains('/../') && !path.endsWith('/..'))").message("devicePaths must be absolute paths below /dev, such as /dev/disk/by-id/wwn-0x5000c500a1b2c3d4"))]
    pub device_paths: Vec<String>,
    /// Refused: erasing a device that contains data needs a consent that names the device, which does not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("!self").message("forceWipeDevicesAndDestroyAllData is refused, because Quarry erases no device without a consent that names it; erase the device by hand (docs/operations/devices.md) and remove this field"))]
    pub force_wipe_devices_and_destroy_all_data: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The management state that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_state: Option<String>,
    /// Available, Progressing and Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<OperatorCondition>,
    /// How many devices of this LocalVolume are published as PersistentVolumes.
    #[serde(default)]
    pub ready_replicas: i32,
    /// DaemonSets of the upstream operator; Quarry leaves it empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generations: Vec<GenerationStatus>,
}

/// As OpenShift's operators record what they applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GenerationStatus {
    #[serde(default)]
    pub group: String,
    #[serde(default)]
    pub resource: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub last_generation: i64,
    #[serde(default)]
    pub hash: String,
}
