//! CephCluster (ceph.rook.io/v1): a Ceph cluster whose OSDs are requested as device sets.
//!
//! Owns: the fields that device sets need, as types; every other field of upstream is accepted and kept as it is.
//! Quarry writes only `status.conditions`. Never decides what to do with a set.
//! Next to read: `device_set.rs`, `roles.rs` (which template is what), `problems.rs` (what is refused), `status.rs`.

pub mod device_set;
pub mod fields;
pub mod problems;
mod read;
pub mod roles;
mod rules;
mod schema;
pub mod status;

pub use device_set::{DeviceSet, Placement, TemplateMetadata, VolumeClaimTemplate};
pub use problems::{SetProblem, problems};
pub use roles::{RoleProblem, TemplateRole};
pub use status::{CephClusterStatus, CephCondition};

use crate::null_as_default;
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Fields that are kept as they are.
pub type Other = BTreeMap<String, Value>;

/// Keys of `spec.resources`, `spec.placement` and `spec.priorityClassNames`.
pub mod daemon {
    /// Every daemon; a key of placement and priority classes only.
    pub const ALL: &str = "all";
    pub const OSD: &str = "osd";
    pub const PREPARE_OSD: &str = "prepareosd";
    /// Followed by a CRUSH device class: resources of the OSDs of that class.
    pub const OSD_CLASS_PREFIX: &str = "osd-";
}

#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ceph.rook.io",
    version = "v1",
    kind = "CephCluster",
    plural = "cephclusters",
    shortname = "ceph",
    namespaced,
    status = "CephClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "A Ceph cluster. Quarry runs the OSDs of its device sets.",
    printcolumn(
        name = "DataDirHostPath",
        type_ = "string",
        json_path = ".spec.dataDirHostPath",
        description = "Directory of the daemons on each node"
    ),
    printcolumn(
        name = "MonCount",
        type_ = "string",
        json_path = ".spec.mon.count",
        description = "Number of mons"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Phase"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        description = "Message"
    ),
    printcolumn(
        name = "Health",
        type_ = "string",
        json_path = ".status.ceph.health",
        description = "Health of Ceph"
    ),
    printcolumn(name = "External", type_ = "boolean", json_path = ".spec.external.enable"),
    printcolumn(
        name = "FSID",
        type_ = "string",
        json_path = ".status.ceph.fsid",
        description = "ID of the Ceph cluster"
    ),
    printcolumn(
        name = "DeviceSets",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="quarry.dev/DeviceSetsReady")].status"#,
        description = "Whether the device sets have their OSDs",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
pub struct CephClusterSpec {
    /// The Ceph image of every pod.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ceph_version: CephVersion,
    /// The directory on each node for the files of daemons. Empty: not given.
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub data_dir_host_path: String,
    /// A cluster that runs elsewhere: it has no device sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Resources per daemon: `osd`, `osd-<class>`, `prepareosd`, ….
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "read::resource_map"
    )]
    #[schemars(schema_with = "schema::resource_map")]
    pub resources: BTreeMap<String, ResourceRequirements>,
    /// Placement per daemon: `all`, `osd`, `prepareosd`, ….
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::map")]
    pub placement: BTreeMap<String, Placement>,
    /// Priority class per daemon: `all`, `osd`, ….
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::map")]
    pub priority_class_names: BTreeMap<String, String>,
    /// Where OSDs store data.
    #[serde(default, deserialize_with = "null_as_default")]
    pub storage: Storage,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
pub struct CephVersion {
    /// The image, with its tag. Empty: not given.
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub image: String,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
pub struct External {
    #[serde(default, deserialize_with = "null_as_default")]
    pub enable: bool,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
#[x_kube(validation = rules::distinct_names())]
pub struct Storage {
    /// Device sets, under the upstream key.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(length(max = rules::MAX_SETS))]
    pub storage_class_device_sets: Vec<DeviceSet>,
    /// Device sets, under the key without a plural.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(length(max = rules::MAX_SETS))]
    pub storage_class_device_set: Vec<DeviceSet>,
    /// All devices of hosts. Not used for device sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_all_devices: Option<bool>,
    /// Whether the placement of a set replaces `spec.placement.all`, instead of being merged over it.
    #[serde(default, rename = "onlyApplyOSDPlacement", skip_serializing_if = "Option::is_none")]
    pub only_apply_osd_placement: Option<bool>,
    /// Configuration of OSDs on hosts. Not used for device sets, which have their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::map")]
    pub config: BTreeMap<String, String>,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

/// The two keys under which device sets are given, in the order in which they are joined.
pub const DEVICE_SET_KEYS: [&str; 2] = ["storageClassDeviceSets", "storageClassDeviceSet"];

impl Storage {
    /// The sets under both keys, those under the upstream key first.
    pub fn device_sets(&self) -> impl Iterator<Item = &DeviceSet> {
        self.storage_class_device_sets.iter().chain(&self.storage_class_device_set)
    }

    /// The sets in the same order, each with its path from the object's root.
    pub fn device_sets_with_paths(&self) -> impl Iterator<Item = (String, &DeviceSet)> {
        let with_paths = |key: &'static str, sets: &'_ [DeviceSet]| {
            (0..sets.len())
                .map(move |index| format!("spec.storage.{key}[{index}]"))
                .collect::<Vec<_>>()
        };
        let [plural, singular] = DEVICE_SET_KEYS;
        let mut paths = with_paths(plural, &self.storage_class_device_sets);
        paths.extend(with_paths(singular, &self.storage_class_device_set));
        paths.into_iter().zip(self.device_sets())
    }
}

impl CephClusterSpec {
    /// Whether the cluster runs elsewhere.
    pub fn is_external(&self) -> bool {
        self.external.as_ref().is_some_and(|external| external.enable)
    }

    /// The sets under both keys, those under the upstream key first.
    pub fn device_sets(&self) -> impl Iterator<Item = &DeviceSet> {
        self.storage.device_sets()
    }

    /// The priority class of a daemon: its own, or that of `all`.
    pub fn priority_class(&self, daemon: &str) -> Option<&str> {
        let given = |key: &str| self.priority_class_names.get(key).filter(|name| !name.is_empty());
        given(daemon).or_else(|| given(daemon::ALL)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
