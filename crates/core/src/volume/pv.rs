//! The PersistentVolume of a Volume: its content, and which one is its own.

use super::{Observed, request::Request};
use k8s_openapi::{
    api::core::v1::{
        LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
        ObjectReference, PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};
use kube::Resource;
use quarry_api::{Volume, names, node_job::JobResult};
use std::collections::BTreeMap;

/// Labels and annotations of the template that the PersistentVolume lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataPatch {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub resource_version: String,
}

/// Controlled by the Volume with this UID.
pub fn is_owned_by(pv: &PersistentVolume, uid: &str) -> bool {
    !uid.is_empty()
        && pv
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Its path on the node.
pub fn path(pv: &PersistentVolume) -> Option<&str> {
    pv.spec.as_ref()?.local.as_ref().map(|local| local.path.as_str())
}

/// The name of a PersistentVolume other than the volume's own whose path ends in the volume's UID.
pub fn published_elsewhere(
    pvs: impl IntoIterator<Item = impl AsRef<PersistentVolume>>,
    volume: &Volume,
) -> Option<String> {
    let ending = format!("/{}", volume.metadata.uid.as_deref()?);
    let publishes = |pv: &PersistentVolume| {
        pv.spec
            .as_ref()
            .and_then(|spec| spec.local.as_ref())
            .is_some_and(|local| local.path.ends_with(&ending))
    };
    let other = pvs
        .into_iter()
        .find(|pv| pv.as_ref().metadata.name != volume.metadata.name && publishes(pv.as_ref()))?;
    other.as_ref().metadata.name.clone()
}

pub fn build_pv(seen: &Observed, request: &Request, result: &JobResult) -> PersistentVolume {
    let volume = &seen.volume;
    let (labels, annotations) = template_metadata(volume);
    let managed = (quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned());
    PersistentVolume {
        metadata: ObjectMeta {
            name: volume.metadata.name.clone(),
            labels: Some(labels.into_iter().chain([managed]).collect()),
            annotations: Some(annotations).filter(|map| !map.is_empty()),
            finalizers: Some(vec![names::VOLUME_FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: Volume::api_version(&()).into_owned(),
                kind: Volume::kind(&()).into_owned(),
                name: seen.name().to_owned(),
                uid: seen.uid().to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            capacity: Some(
                [(
                    "storage".to_owned(),
                    Quantity(
                        quarry_api::Quantity::from(quarry_api::Bytes(
                            result.capacity.unsigned_abs(),
                        ))
                        .0,
                    ),
                )]
                .into(),
            ),
            claim_ref: template_claim(volume),
            local: Some(LocalVolumeSource {
                path: result.path.clone(),
                fs_type: request.fs().map(|fs| fs.as_str().to_owned()),
            }),
            mount_options: Some(request.mount_options.clone())
                .filter(|options| !options.is_empty()),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector {
                    node_selector_terms: vec![NodeSelectorTerm {
                        match_expressions: Some(vec![NodeSelectorRequirement {
                            key: "kubernetes.io/hostname".to_owned(),
                            operator: "In".to_owned(),
                            values: Some(vec![hostname(seen)]),
                        }]),
                        ..NodeSelectorTerm::default()
                    }],
                }),
            }),
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            storage_class_name: Some(volume.spec.storage_class_name.clone()),
            volume_mode: Some(volume.spec.mode.as_str().to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// The value of the node's hostname label, which is not always the node's name.
fn hostname(seen: &Observed) -> String {
    let label = seen
        .node
        .as_ref()
        .and_then(|node| node.metadata.labels.as_ref())
        .and_then(|labels| labels.get("kubernetes.io/hostname"));
    label.unwrap_or(&seen.volume.spec.node_name).clone()
}

fn template_metadata(volume: &Volume) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let metadata = volume
        .spec
        .template
        .as_ref()
        .and_then(|template| template.metadata.clone())
        .unwrap_or_default();
    (metadata.labels, metadata.annotations)
}

/// A claimRef in the template reserves the PersistentVolume for that PVC.
fn template_claim(volume: &Volume) -> Option<ObjectReference> {
    let spec = volume.spec.template.as_ref()?.spec.as_ref()?;
    serde_json::from_value(spec.get("claimRef")?.clone()).ok()
}

/// What the template has and the PersistentVolume lacks; `None` if nothing is missing.
pub fn metadata_patch(volume: &Volume, pv: &PersistentVolume) -> Option<MetadataPatch> {
    let missing = |wanted: BTreeMap<String, String>,
                   found: Option<&BTreeMap<String, String>>|
     -> BTreeMap<String, String> {
        wanted
            .into_iter()
            .filter(|(key, value)| found.and_then(|found| found.get(key)) != Some(value))
            .collect()
    };
    let (labels, annotations) = template_metadata(volume);
    let labels = missing(labels, pv.metadata.labels.as_ref());
    let annotations = missing(annotations, pv.metadata.annotations.as_ref());
    if labels.is_empty() && annotations.is_empty() {
        return None;
    }
    Some(MetadataPatch {
        labels,
        annotations,
        resource_version: pv.metadata.resource_version.clone()?,
    })
}
