//! OSDs of device sets: the rows of `quarry osds`, and explanations.
//!
//! Owns: `OsdRow` and its wording. The state of an OSD is `quarry_core::device_set::osd`, the same that the planner acts
//! on. Never talks to Ceph: what Ceph says of a running OSD is not shown.
//! Next to read: `objects.rs` (what is read), `explain.rs` (one OSD), `advice.rs` (what it waits for and what to do).

mod advice;
pub mod explain;
pub mod objects;

pub use explain::{OsdExplanation, Which};
pub use objects::Objects;

use crate::{Tone, text::split_remedy};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use quarry_api::{
    CephCluster,
    ceph_cluster::{CephCondition, DeviceSet, problems},
    names::{self, ceph},
    quantity::Quantity,
};
use quarry_core::device_set::{CephProvider, Observed, Osd, OsdState, claims, index::Index, osd};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of OSDs of one set that do not exist yet: more would not be read.
const MOST_NEW: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OsdRow {
    pub namespace: String,
    pub cluster: String,
    pub set: String,
    pub index: u32,
    /// The ID in Ceph; `None` until it is prepared.
    pub id: Option<u32>,
    /// The word of `OsdState`.
    pub state: &'static str,
    /// The node of its pod, or the one that its device is on; `None`: not chosen yet.
    pub node: Option<String>,
    /// The PVC of its data device.
    pub pvc: Option<String>,
    /// Bytes of the data device; `None` until the PVC is bound.
    pub size: Option<i64>,
    /// When it got into this state, as far as objects say so.
    pub since: Option<Timestamp>,
    /// Why it does not get further, in one line and without the remedy.
    pub message: Option<String>,
    pub device_class: Option<String>,
    /// The PersistentVolume of its data device.
    pub volume: Option<String>,
    pub tone: Tone,
}

/// The OSDs, and what concerns more than one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OsdList {
    pub rows: Vec<OsdRow>,
    /// Of a cluster or a set, each with its remedy.
    pub notes: Vec<String>,
}

/// The OSDs of all clusters, sorted by namespace, cluster, set (as in the spec) and index.
pub fn list(objects: &Objects) -> OsdList {
    let mut found = OsdList::default();
    for cluster in objects.clusters.values() {
        let observed = objects.observed(cluster);
        found.rows.extend(each(&observed, |osd| OsdRow::new(&observed, osd)));
        found.notes.extend(notes(&observed));
    }
    found
}

/// The one place where OSDs are computed: those that exist, and those that the sets request.
fn each<T>(observed: &Observed, mut view: impl FnMut(&Osd<'_>) -> T) -> Vec<T> {
    let invalid: BTreeSet<usize> =
        problems(&observed.cluster.spec).iter().map(|one| one.set).collect();
    let index = Index::new(observed);
    let mut found = Vec::new();
    for (at, set) in observed.cluster.spec.device_sets().enumerate() {
        found.extend(osd::of_set(observed, &CephProvider, set).iter().map(&mut view));
        // Nothing is created for a set with a problem.
        let Some(roles) = set.roles().ok().filter(|_| !invalid.contains(&at)) else { continue };
        let new = claims::new_indices(&claims::of_set(&index, set), set.wanted());
        for index in new.into_iter().take(MOST_NEW) {
            found.push(view(&osd::new(set, &roles, index)));
        }
    }
    found
}

impl OsdRow {
    fn new(observed: &Observed, osd: &Osd<'_>) -> Self {
        let cluster = &observed.cluster;
        let data = osd.data();
        let message = osd.state.message().map(|text| {
            let line = text.lines().next().unwrap_or_default();
            split_remedy(line).0.to_owned()
        });
        OsdRow {
            namespace: cluster.namespace().unwrap_or_default(),
            cluster: cluster.name_any(),
            set: osd.set.name.clone(),
            index: osd.index,
            id: id(osd),
            state: osd.state.word(),
            node: node(observed, osd),
            pvc: data.map(ResourceExt::name_any),
            size: data.and_then(size),
            since: osd.since(),
            message,
            device_class: device_class(osd),
            volume: data.and_then(volume_name).map(str::to_owned),
            tone: tone(&osd.state),
        }
    }

    /// Its place among all OSDs.
    pub fn key(&self) -> (String, String, String, u32) {
        (self.namespace.clone(), self.cluster.clone(), self.set.clone(), self.index)
    }

    /// The row of an OSD whose objects were deleted while it was watched.
    pub fn deleted(self) -> Self {
        OsdRow { state: "Deleted", message: None, tone: Tone::Other, ..self }
    }
}

fn tone(state: &OsdState) -> Tone {
    match state {
        OsdState::Running => Tone::Good,
        state if state.is_problem() => Tone::Bad,
        _ => Tone::Waiting,
    }
}

/// Of its Deployment, else of its prepare result.
fn id(osd: &Osd<'_>) -> Option<u32> {
    let deployed = osd.deployment.and_then(|one| one.labels().get(ceph::OSD_ID_LABEL));
    let prepared = || osd.result.as_ref()?.as_ref().ok().map(|prepared| prepared.id);
    deployed.and_then(|text| text.parse().ok()).or_else(prepared)
}

fn device_class(osd: &Osd<'_>) -> Option<String> {
    let deployed = osd.deployment.and_then(|one| one.labels().get(ceph::DEVICE_CLASS_LABEL));
    let prepared = || osd.result.as_ref()?.as_ref().ok().map(|one| one.device_class.clone());
    deployed.cloned().or_else(prepared).filter(|class| !class.is_empty())
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn size(claim: &PersistentVolumeClaim) -> Option<i64> {
    let capacity = claim.status.as_ref()?.capacity.as_ref()?.get("storage")?;
    i64::try_from(Quantity(capacity.0.clone()).bytes().ok()?.0).ok()
}

/// Pods of the OSD's Deployment and of its prepare Job, the newest first.
fn pods<'a>(observed: &'a Observed, osd: &Osd<'_>) -> Vec<&'a Pod> {
    let claim = osd.data_claim();
    let mut found: Vec<&Pod> = observed
        .pods
        .iter()
        .filter(|pod| {
            let labels = pod.labels();
            let by_claim = !claim.is_empty()
                && labels.get(ceph::PVC_LABEL).is_some_and(|label| label == claim);
            let by_job = osd.job.is_some_and(|job| {
                let owners = pod.metadata.owner_references.iter().flatten();
                owners.into_iter().any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
            });
            by_claim || by_job
        })
        .collect();
    found.sort_by_key(|pod| {
        std::cmp::Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
    });
    found
}

/// Where its pod runs, else where its PVC was placed.
fn node(observed: &Observed, osd: &Osd<'_>) -> Option<String> {
    const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    let pods = pods(observed, osd);
    let running = pods.iter().find_map(|pod| pod.spec.as_ref()?.node_name.clone());
    let selected = || osd.data()?.annotations().get(SELECTED_NODE).cloned();
    let pinned = || {
        let pod = osd.deployment?.spec.as_ref()?.template.spec.as_ref()?;
        pod.node_selector.as_ref()?.get("kubernetes.io/hostname").cloned()
    };
    running.or_else(pinned).or_else(selected)
}

/// The condition of the cluster about its device sets.
fn condition(cluster: &CephCluster) -> Option<&CephCondition> {
    cluster.status.as_ref()?.condition(ceph::DEVICE_SETS_READY)
}

/// Why nothing is done for the whole cluster, or for some of its sets; `None`: each OSD is worked on.
fn blocked(cluster: &CephCluster) -> Option<&CephCondition> {
    const PER_OSD: [&str; 2] = ["OSDsFailing", "Progressing"];
    condition(cluster).filter(|one| one.status != "True" && !PER_OSD.contains(&one.reason.as_str()))
}

fn notes(observed: &Observed) -> Vec<String> {
    let cluster = &observed.cluster;
    let place =
        format!("CephCluster {}/{}", cluster.namespace().unwrap_or_default(), cluster.name_any());
    let mut notes = Vec::new();
    let has_sets = cluster.spec.device_sets().next().is_some();
    if has_sets && condition(cluster).is_none() {
        notes.push(format!(
            "{place}: no operator has reported on its device sets; start one with `quarry operator --device-sets` (component deploy/ceph)"
        ));
    }
    notes.extend(blocked(cluster).map(|one| format!("{place}: {}: {}", one.reason, one.message)));
    if blocked(cluster).is_none() {
        let invalid = problems(&cluster.spec);
        notes.extend(invalid.iter().map(|problem| format!("{place}: {problem}")));
    }
    for set in cluster.spec.device_sets() {
        notes.extend(count_note(observed, set).map(|note| format!("{place}: {note}")));
    }
    for (set, count) in removed_sets(observed) {
        notes.push(format!(
            "{place}: set {set} is not in spec.storage any more, and {count} of its OSDs stay; remove them from Ceph first, then their Deployments and PVCs"
        ));
    }
    notes
}

fn count_note(observed: &Observed, set: &DeviceSet) -> Option<String> {
    let (exist, wanted) = (claims::of_set(&Index::new(observed), set).len(), set.wanted());
    if exist > wanted {
        return Some(format!(
            "set {} has {exist} OSDs, and its count is {wanted}: they stay; remove an OSD from Ceph first, then its Deployment and PVCs",
            set.name
        ));
    }
    let hidden = wanted.saturating_sub(exist).saturating_sub(MOST_NEW);
    (hidden > 0).then(|| format!("set {}: {hidden} more OSDs follow", set.name))
}

/// Sets that have Deployments and are not in the spec, with the number of those.
fn removed_sets(observed: &Observed) -> BTreeMap<&str, usize> {
    let known: BTreeSet<&str> =
        observed.cluster.spec.device_sets().map(|set| set.name.as_str()).collect();
    let name = observed.cluster.name_any();
    let mut found = BTreeMap::new();
    for deployment in &observed.deployments {
        let Some(labels) = &deployment.metadata.labels else { continue };
        // A namespace may have two clusters.
        if labels.get(ceph::CLUSTER_LABEL).is_some_and(|of| *of != names::label_value(&name)) {
            continue;
        }
        let set = labels.get(ceph::DEVICE_SET_LABEL);
        if let Some(set) = set.filter(|set| !known.contains(set.as_str())) {
            *found.entry(set.as_str()).or_default() += 1;
        }
    }
    found
}

#[cfg(any(test, feature = "samples"))]
pub mod samples;
#[cfg(test)]
mod tests;
