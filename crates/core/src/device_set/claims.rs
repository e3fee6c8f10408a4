//! The PVCs of device sets: their names, labels and indices.
//!
//! Labels and indices are upstream's. Names are not: upstream generates them, and its identifiers of sets `a.b` and `a-b`
//! are equal. Here a name follows from cluster, set, template and index, so that creating it twice is refused by the API
//! server, and ends with a hash of all four. Next to read: `osd.rs`.

use super::{Observed, index::Index};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use quarry_api::{
    CephCluster,
    ceph_cluster::{DeviceSet, TemplateRole},
    names::ceph,
    node_job::hex_digest,
};
use serde_json::json;
use std::collections::BTreeMap;

/// A PVC's name is also the value of a label.
const LONGEST: usize = 63;
const HASH: usize = 8;

/// `<set>-<template>-<index>-<hash>`, shortened where it would be too long: the hash is that of all parts.
pub fn claim_name(cluster: &CephCluster, set: &str, template: &str, index: u32) -> String {
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    let hash = &hex_digest(&[uid, set, template, &index.to_string()])[..HASH];
    let rest = format!("-{index}-{hash}");
    let start = format!("{set}-{template}").to_ascii_lowercase().replace('.', "-");
    let mut start: String = start.chars().take(LONGEST - rest.len()).collect();
    while start.ends_with('-') {
        start.pop();
    }
    start + &rest
}

/// The part of a name that stands for a template: upstream's roles where it has no name.
pub fn template_part(set: &DeviceSet, template: usize, role: TemplateRole) -> String {
    let given = set.volume_claim_templates.get(template).map(|one| one.metadata.name.as_str());
    let given = given.filter(|name| !name.is_empty()).map(str::to_owned);
    given.unwrap_or_else(|| role.as_str().to_owned())
}

/// A value of a label, as upstream makes it of an image; empty if it cannot be one.
fn image_label(image: &str) -> String {
    let text = image.replace(['/', ':'], "_");
    let is_valid = text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_valid { text } else { String::new() }
}

/// The PVC of one template of one OSD.
pub fn claim(
    cluster: &CephCluster,
    set: &DeviceSet,
    index: u32,
    template: usize,
    role: TemplateRole,
) -> PersistentVolumeClaim {
    let part = template_part(set, template, role);
    let id = format!("{}-{part}-{index}", set.name).replace('.', "-");
    let given = set.volume_claim_templates.get(template).cloned().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = [
        (ceph::DEVICE_SET_LABEL, set.name.clone()),
        (ceph::SET_INDEX_LABEL, index.to_string()),
        (ceph::DEVICE_SET_PVC_ID_LABEL, id),
        (ceph::IMAGE_AT_CREATION_LABEL, image_label(&cluster.spec.ceph_version.image)),
        (TEMPLATE_LABEL, template.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    // Those that a PVC is found by are not the user's.
    for (key, value) in given.metadata.labels {
        labels.entry(key).or_insert(value);
    }
    let mut spec = given.spec;
    spec.volume_mode = Some("Block".to_owned());
    spec.access_modes.get_or_insert_with(|| vec!["ReadWriteOnce".to_owned()]);
    // An empty name would mean no class at all.
    spec.storage_class_name = spec.storage_class_name.filter(|name| !name.is_empty());
    let mut made = PersistentVolumeClaim { spec: Some(spec), ..Default::default() };
    made.metadata.name = Some(claim_name(cluster, &set.name, &part, index));
    made.metadata.namespace = cluster.namespace();
    made.metadata.labels = Some(labels);
    let annotations = given.metadata.annotations;
    made.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    // Not the controller's owner reference of upstream: PVCs outlive the cluster object, and with them the data.
    made
}

/// On a PVC: the position of its template. Upstream has the template's name in the identifier only.
pub const TEMPLATE_LABEL: &str = "quarry.dev/device-set-template";

/// The PVCs of one OSD, by template.
#[derive(Clone, Debug, Default)]
pub struct Claims<'a>(pub BTreeMap<usize, &'a PersistentVolumeClaim>);

/// The set and index that a PVC belongs to.
pub fn place(claim: &PersistentVolumeClaim) -> Option<(&str, u32)> {
    let labels = claim.labels();
    labels.get(ceph::DEVICE_SET_PVC_ID_LABEL)?;
    let set = labels.get(ceph::DEVICE_SET_LABEL)?;
    Some((set, labels.get(ceph::SET_INDEX_LABEL)?.parse().ok()?))
}

/// Which template a PVC was made from: ours say so, upstream's by their identifier.
fn template_of(claim: &PersistentVolumeClaim, set: &DeviceSet, index: u32) -> Option<usize> {
    let labels = claim.labels();
    if let Some(position) = labels.get(TEMPLATE_LABEL) {
        return position.parse().ok();
    }
    let id = labels.get(ceph::DEVICE_SET_PVC_ID_LABEL)?;
    let roles = set.roles().ok()?;
    let of = |template: usize, role: TemplateRole| {
        let part = template_part(set, template, role);
        format!("{}-{part}-{index}", set.name).replace('.', "-")
    };
    let named = roles.iter().enumerate().find(|(at, role)| of(*at, **role) == *id);
    // Of upstream's first version: `<set>-<index>` is the data device.
    let legacy = format!("{}-{index}", set.name).replace('.', "-") == *id;
    named
        .map(|(at, _)| at)
        .or_else(|| legacy.then(|| roles.iter().position(|role| *role == TemplateRole::Data))?)
}

/// The indices of a set that exist, by their PVCs; and those of which only a Job, a result or a Deployment is left.
pub fn of_set<'a>(index: &Index<'a>, set: &DeviceSet) -> BTreeMap<u32, Claims<'a>> {
    let mut found: BTreeMap<u32, Claims<'a>> = BTreeMap::new();
    for (at, claim) in index.claims_of(&set.name) {
        if let Some(template) = template_of(claim, set, *at) {
            found.entry(*at).or_default().0.insert(template, claim);
        }
    }
    for at in index.begun_indices(&set.name) {
        found.entry(at).or_default();
    }
    found
}

/// Indices for OSDs that are to be added: above the highest that exists. Holes stay: what was there may come back.
pub fn new_indices(existing: &BTreeMap<u32, Claims<'_>>, wanted: usize) -> Vec<u32> {
    let missing = wanted.saturating_sub(existing.len());
    let first = existing.keys().next_back().map_or(0, |highest| highest + 1);
    (first..).take(missing).collect()
}

/// The default class: the newest of several, as the API server chooses.
pub fn default_class(observed: &Observed) -> Option<&str> {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let marked = observed
        .classes
        .iter()
        .filter(|class| class.annotations().get(DEFAULT).is_some_and(|value| value == "true"));
    let newest =
        marked.max_by_key(|class| class.metadata.creation_timestamp.as_ref().map(|time| time.0));
    newest.and_then(|class| class.metadata.name.as_deref())
}

/// For a merge of objects that differ.
pub fn owner(cluster: &CephCluster) -> serde_json::Value {
    json!([{
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "name": cluster.name_any(), "uid": cluster.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}
