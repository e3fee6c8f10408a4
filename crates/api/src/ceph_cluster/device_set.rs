//! A device set: a number of OSDs, each on the devices of its own PVCs.
//!
//! Owns: the fields of a set as upstream has them. Which template is which device of an OSD: `roles.rs`.

use super::{Other, read, roles::TemplateRole, rules, schema};
use crate::{names::ceph, null_as_default};
use k8s_openapi::api::core::v1::{
    NodeAffinity, PersistentVolumeClaimSpec, PodAffinity, PodAffinityTerm, PodAntiAffinity,
    ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Keys of `config` that are known. Any other key is kept and not used.
pub mod config {
    /// Which template is the metadata device: `/dev/rook/device<i>`.
    pub const METADATA_DEVICE: &str = "metadataDevice";
    /// How many OSDs share the devices; only 1 is supported.
    pub const OSDS_PER_DEVICE: &str = "osdsPerDevice";
    /// The CRUSH device class.
    pub const DEVICE_CLASS: &str = "deviceClass";
    /// The CRUSH device class; an alternative name of `deviceClass`.
    pub const CRUSH_DEVICE_CLASS: &str = "crushDeviceClass";
    /// The CRUSH weight of a new OSD.
    pub const INITIAL_WEIGHT: &str = "initialWeight";
    /// The primary affinity of a new OSD, from 0 to 1.
    pub const PRIMARY_AFFINITY: &str = "primaryAffinity";
    /// Encryption, as `encrypted` of the set.
    pub const ENCRYPTED_DEVICE: &str = "encryptedDevice";

    /// The keys that are used.
    pub const KNOWN: [&str; 7] = [
        METADATA_DEVICE,
        OSDS_PER_DEVICE,
        DEVICE_CLASS,
        CRUSH_DEVICE_CLASS,
        INITIAL_WEIGHT,
        PRIMARY_AFFINITY,
        ENCRYPTED_DEVICE,
    ];
}

/// The directory in which the devices of an OSD are found in its pods.
pub const DEVICE_DIRECTORY: &str = "/dev/rook";

/// Where the device of template `index` is in the pods of an OSD.
pub fn device_path(index: usize) -> String {
    format!("{DEVICE_DIRECTORY}/device{index}")
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&["name", "count", "volumeClaimTemplates"]))]
#[x_kube(validation = rules::has_templates())]
#[x_kube(validation = rules::known_roles())]
#[x_kube(validation = rules::has_data())]
#[x_kube(validation = rules::distinct_roles())]
#[x_kube(validation = rules::metadata_device())]
pub struct DeviceSet {
    /// The name of the set, unique in the cluster. Empty: not given.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(max = rules::MAX_NAME))]
    #[x_kube(validation = rules::set_name())]
    pub name: String,
    /// How many OSDs are requested. `None`: not given, which is a problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::count())]
    pub count: Option<i64>,
    /// Resources of the OSDs. Absent: those of the cluster.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read::resources"
    )]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Placement of the OSDs. Absent: that of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Placement of the prepare Jobs. Absent: `placement`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_placement: Option<Placement>,
    /// Configuration of the OSDs; keys in `config`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::map")]
    #[schemars(schema_with = "schema::config")]
    pub config: BTreeMap<String, String>,
    /// Whether the OSDs can move between nodes. `None`: decided from the PersistentVolumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portable: Option<bool>,
    /// Settings of Ceph for slow devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune_device_class: Option<bool>,
    /// Settings of Ceph for fast devices. Not used if `tuneDeviceClass` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune_fast_device_class: Option<bool>,
    /// The scheduler of prepare and OSD pods. Absent or empty: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Encryption of the devices; not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// One PVC per template and OSD.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(max = rules::MAX_TEMPLATES))]
    pub volume_claim_templates: Vec<VolumeClaimTemplate>,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

/// Where pods run.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
pub struct Placement {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_affinity")]
    pub node_affinity: Option<NodeAffinity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pod_affinity")]
    pub pod_affinity: Option<PodAffinity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pod_affinity")]
    pub pod_anti_affinity: Option<PodAntiAffinity>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::spread")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

/// A PVC of each OSD, before it has a name.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&["spec"]))]
pub struct VolumeClaimTemplate {
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: TemplateMetadata,
    #[serde(default, deserialize_with = "read::claim_spec")]
    #[schemars(schema_with = "schema::claim_spec")]
    pub spec: PersistentVolumeClaimSpec,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
pub struct TemplateMetadata {
    /// What the device is for; a part of the name of the PVC. Empty: data.
    #[schemars(length(max = rules::MAX_NAME))]
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::map")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read::map")]
    pub annotations: BTreeMap<String, String>,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

/// The label that separates nodes where a term of affinity has no topology key.
pub const DEFAULT_TOPOLOGY_KEY: &str = "kubernetes.io/hostname";

impl Placement {
    /// Whether anything is requested.
    pub fn is_empty(&self) -> bool {
        *self == Placement::default()
    }

    /// The same, with a topology key in every term of pod affinity and anti-affinity: Kubernetes refuses a pod without
    /// one.
    pub fn with_topology_keys(mut self) -> Placement {
        fn complete<'a>(terms: impl Iterator<Item = &'a mut PodAffinityTerm>) {
            for term in terms.filter(|term| term.topology_key.is_empty()) {
                term.topology_key = DEFAULT_TOPOLOGY_KEY.to_owned();
            }
        }
        if let Some(affinity) = &mut self.pod_affinity {
            complete(
                affinity.required_during_scheduling_ignored_during_execution.iter_mut().flatten(),
            );
            let preferred = &mut affinity.preferred_during_scheduling_ignored_during_execution;
            complete(preferred.iter_mut().flatten().map(|one| &mut one.pod_affinity_term));
        }
        if let Some(affinity) = &mut self.pod_anti_affinity {
            complete(
                affinity.required_during_scheduling_ignored_during_execution.iter_mut().flatten(),
            );
            let preferred = &mut affinity.preferred_during_scheduling_ignored_during_execution;
            complete(preferred.iter_mut().flatten().map(|one| &mut one.pod_affinity_term));
        }
        self
    }
}

impl DeviceSet {
    /// The number of OSDs requested; 0 if it is absent or negative.
    pub fn wanted(&self) -> usize {
        self.count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    }

    /// Keys of `config` that are kept and not used.
    pub fn unknown_config(&self) -> impl Iterator<Item = &str> {
        self.config.keys().map(String::as_str).filter(|key| !config::KNOWN.contains(key))
    }

    /// How many OSDs share the devices of the set; `None` if the value is not a number.
    pub fn osds_per_device(&self) -> Option<u32> {
        match self.config.get(config::OSDS_PER_DEVICE).map(|text| text.trim()) {
            None | Some("") => Some(1),
            Some(text) => text.parse().ok(),
        }
    }

    /// The scheduler of the set's pods. `None`: the default one.
    pub fn scheduler(&self) -> Option<&str> {
        self.scheduler_name.as_deref().filter(|name| !name.is_empty())
    }

    /// A setting of new OSDs, with its path below the set: from the annotation of the data template, as upstream reads
    /// it, else from the first of these keys of `config`.
    fn setting(&self, annotation: &str, keys: &[&str]) -> Option<(String, &str)> {
        let roles = self.roles().ok()?;
        let data = roles.iter().position(|role| *role == TemplateRole::Data)?;
        let template = &self.volume_claim_templates[data];
        let annotated = template.annotation(annotation).map(|value| {
            (format!("volumeClaimTemplates[{data}].metadata.annotations.{annotation}"), value)
        });
        let configured = |key: &&str| {
            let value = self.config.get(*key).filter(|value| !value.is_empty())?;
            Some((format!("config.{key}"), value.as_str()))
        };
        annotated.or_else(|| keys.iter().find_map(configured))
    }

    /// The CRUSH device class of new OSDs, with its path below the set. `None`: Ceph decides.
    pub fn crush_device_class(&self) -> Option<(String, &str)> {
        let keys = [config::CRUSH_DEVICE_CLASS, config::DEVICE_CLASS];
        self.setting(ceph::CRUSH_DEVICE_CLASS_ANNOTATION, &keys)
    }

    /// The CRUSH weight of new OSDs, with its path below the set. `None`: from their size.
    pub fn crush_initial_weight(&self) -> Option<(String, &str)> {
        self.setting(ceph::CRUSH_INITIAL_WEIGHT_ANNOTATION, &[config::INITIAL_WEIGHT])
    }

    /// The primary affinity of new OSDs, with its path below the set. `None`: 1.
    pub fn primary_affinity(&self) -> Option<(String, &str)> {
        self.setting(ceph::CRUSH_PRIMARY_AFFINITY_ANNOTATION, &[config::PRIMARY_AFFINITY])
    }

    pub fn is_encrypted(&self) -> bool {
        let text = self.config.get(config::ENCRYPTED_DEVICE);
        self.encrypted == Some(true) || text.is_some_and(|text| text.trim() == "true")
    }
}

impl VolumeClaimTemplate {
    /// The name that becomes a part of the name of the PVC: `data` if none is given, as upstream.
    pub fn name(&self) -> &str {
        if self.metadata.name.is_empty() { "data" } else { &self.metadata.name }
    }

    /// The StorageClass. `None`: the default one of the cluster, also for an empty name.
    pub fn storage_class(&self) -> Option<&str> {
        self.spec.storage_class_name.as_deref().filter(|name| !name.is_empty())
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}
