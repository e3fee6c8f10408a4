//! NodeInventory (quarry.dev/v1alpha1): one for each node, named as the node.
//!
//! `spec` belongs to the operator, `status` to the agent of that node. What it shows grows with the
//! kinds that need it; today: who the node is, and the loop volumes on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "quarry.dev",
    version = "v1alpha1",
    kind = "NodeInventory",
    plural = "nodeinventories",
    shortname = "ninv",
    status = "NodeInventoryStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "What a node has. Made by the operator, filled in by the node's agent.",
    printcolumn(name = "Devices", type_ = "integer", json_path = ".status.deviceCount"),
    printcolumn(name = "Agent", type_ = "string", json_path = ".status.agentVersion"),
    printcolumn(name = "Changed", type_ = "date", json_path = ".status.lastChange"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeInventorySpec {}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInventoryStatus {
    /// The UID of the Node object that the agent runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "nodeUID")]
    pub node_uid: Option<String>,
    /// /etc/machine-id of the node: the same machine keeps it when its Node object is made anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "machineID")]
    pub machine_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// How many devices are listed, for the table.
    #[serde(default)]
    pub device_count: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// When anything in this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The kernel's name, such as `loop3`. Never an identity: it changes with every attach.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: DeviceType,
    /// In bytes.
    pub size: i64,
    /// The UID of the Volume whose storage this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "volumeUID")]
    pub volume_uid: Option<String>,
    /// The file behind a loop device, as a path on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
    /// The persistent link that resolves to this device; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DeviceType {
    #[serde(rename = "loop")]
    Loop,
}
