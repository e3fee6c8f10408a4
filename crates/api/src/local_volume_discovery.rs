//! LocalVolumeDiscovery and LocalVolumeDiscoveryResult (local.storage.openshift.io/v1alpha1), as the
//! Local Storage Operator and the specification define them.
//!
//! The first requests discovery on some nodes, the second lists the devices of one of them. Consumers of the upstream
//! kinds read these unchanged: every field of a device is always present, `size` is a number of bytes.
//! Next to read: `quarry_core::discovery`.

use crate::{node_inventory::DeviceState, quantity::Quantity};
use k8s_openapi::{
    api::core::v1::{NodeSelector, Toleration},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::borrow::Cow;

#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "local.storage.openshift.io",
    version = "v1alpha1",
    kind = "LocalVolumeDiscovery",
    plural = "localvolumediscoveries",
    namespaced,
    status = "LocalVolumeDiscoveryStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "Lists the devices of nodes, in one LocalVolumeDiscoveryResult per node.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
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
pub struct LocalVolumeDiscoverySpec {
    /// The nodes whose devices are listed. Absent: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "node_selector")]
    pub node_selector: Option<NodeSelector>,
    /// The taints that do not keep discovery away from a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tolerations")]
    pub tolerations: Option<Vec<Toleration>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeDiscoveryStatus {
    /// Discovering or DiscoveryFailed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DiscoveryPhase>,
    /// Available, Progressing and Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<OperatorCondition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiscoveryPhase {
    Discovering,
    DiscoveryFailed,
}

impl DiscoveryPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            DiscoveryPhase::Discovering => "Discovering",
            DiscoveryPhase::DiscoveryFailed => "DiscoveryFailed",
        }
    }
}

/// The condition of OpenShift's operators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

#[derive(
    CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize,
)]
#[kube(
    group = "local.storage.openshift.io",
    version = "v1alpha1",
    kind = "LocalVolumeDiscoveryResult",
    plural = "localvolumediscoveryresults",
    namespaced,
    status = "LocalVolumeDiscoveryResultStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "The devices of one node. It stays when discovery ends, without updates; delete it when it is not needed any more.",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Discovered", type_ = "date", json_path = ".status.discoveredTimeStamp"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeDiscoveryResultSpec {
    /// The node whose devices these are.
    pub node_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeDiscoveryResultStatus {
    /// When the list of devices last changed, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub discovered_time_stamp: String,
    /// Written even when empty.
    #[serde(default)]
    pub discovered_devices: Vec<DiscoveredDevice>,
}

/// One device. Every field is present: unknown values are empty strings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredDevice {
    /// The persistent name, such as /dev/disk/by-id/wwn-0x5000c500a1b2c3d4.
    #[serde(rename = "deviceID")]
    pub device_id: String,
    /// The path at the time of the discovery, such as /dev/sdb. It may change between boots.
    pub path: String,
    pub model: String,
    /// disk, part, lvm, mpath or loop.
    #[serde(rename = "type")]
    pub kind: String,
    pub vendor: String,
    pub serial: String,
    /// In bytes.
    pub size: DeviceSize,
    /// Rotational or NonRotational.
    pub property: String,
    /// The file system or other signature on it.
    pub fstype: String,
    pub status: DeviceStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceStatus {
    /// Available, NotAvailable or Unknown.
    pub state: DeviceState,
}

/// Bytes: written as a number, as upstream; a quantity is also read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DeviceSize(pub i64);

impl<'de> Deserialize<'de> for DeviceSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(DeviceSize(bytes)),
            Written::Text(text) => {
                let bytes = Quantity(text).bytes().map_err(de::Error::custom)?;
                i64::try_from(bytes.0).map(DeviceSize).map_err(de::Error::custom)
            }
        }
    }
}

impl JsonSchema for DeviceSize {
    fn schema_name() -> Cow<'static, str> {
        "DeviceSize".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}

/// As in a pod's node affinity. Operators are not enumerated: a wrong one is reported in a condition, as upstream.
pub(crate) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    let requirements = json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": {"type": "string"},
                "operator": {"type": "string", "description": "In, NotIn, Exists, DoesNotExist, Gt or Lt."},
                "values": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
            },
        },
    });
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-map-type": "atomic",
        "required": ["nodeSelectorTerms"],
        "properties": {
            "nodeSelectorTerms": {
                "type": "array",
                "description": "A node is selected when one of the terms matches it. An empty term matches no node.",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"matchExpressions": requirements, "matchFields": requirements},
                },
            },
        },
    })
}

pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "items": {
            "type": "object",
            "properties": {
                "key": {"type": "string"},
                "operator": {"type": "string", "description": "Exists or Equal (the default)."},
                "value": {"type": "string"},
                "effect": {"type": "string", "description": "NoSchedule, PreferNoSchedule or NoExecute; absent: all of them."},
                "tolerationSeconds": {"type": "integer", "format": "int64"},
            },
        },
    })
}

pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<OperatorCondition>();
    json_schema!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a consumer of the upstream kind reads: every field required, the size a number.
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "reading it is the test")]
    struct Upstream {
        #[serde(rename = "deviceID")]
        device_id: String,
        path: String,
        model: String,
        r#type: String,
        vendor: String,
        serial: String,
        size: i64,
        property: String,
        fstype: String,
        status: UpstreamStatus,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct UpstreamStatus {
        state: String,
    }

    #[test]
    fn upstream_consumers_can_read_a_device_without_findings() {
        let written = serde_json::to_value(DiscoveredDevice {
            size: DeviceSize(1 << 40),
            ..DiscoveredDevice::default()
        })
        .unwrap();
        let read: Upstream = serde_json::from_value(written).unwrap();
        assert_eq!((read.size, read.status.state.as_str()), (1 << 40, "Unknown"));
        let status = serde_json::to_value(LocalVolumeDiscoveryResultStatus::default()).unwrap();
        assert_eq!(status, json!({"discoveredDevices": []}));
    }

    #[test]
    fn a_size_is_a_number_or_a_quantity() {
        for (written, bytes) in
            [(json!(512), 512), (json!("477G"), 477_000_000_000), (json!("1024"), 1024)]
        {
            assert_eq!(serde_json::from_value::<DeviceSize>(written).unwrap(), DeviceSize(bytes));
        }
        assert!(serde_json::from_value::<DeviceSize>(json!("much")).is_err());
        assert_eq!(serde_json::to_value(DeviceSize(5)).unwrap(), json!(5));
    }

    #[test]
    fn every_field_of_a_device_is_required_by_the_schema() {
        use kube::CustomResourceExt;
        let crd = serde_json::to_value(LocalVolumeDiscoveryResult::crd()).unwrap();
        let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
            ["properties"];
        let device = &status["discoveredDevices"]["items"];
        let required: Vec<&str> = device["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| field.as_str().unwrap())
            .collect();
        let fields: Vec<&String> = device["properties"].as_object().unwrap().keys().collect();
        assert_eq!(required.len(), 10);
        assert!(fields.iter().all(|field| required.contains(&field.as_str())), "{fields:?}");
        assert_eq!(device["properties"]["size"]["x-kubernetes-int-or-string"], true);
    }
}
