//! Which devices each node would give to an owner, and why not the others. Changes nothing.
//!
//! The decision is `quarry_core::device_claim::account`, as in the operator. An object of a file replaces the live one
//! of its name, or joins the others as the youngest.

use super::{NodeView, OwnerDevice, OwnerSummary, OwnerView, describe, summaries};
use crate::{
    Snapshot, Tone,
    devices::{find, of_inventory},
    sets::DeviceStatus,
    text::Field,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use quarry_api::{LocalVolume, LocalVolumeSet, names, node_inventory::PathReport};
use quarry_core::{
    device_claim::{Demand, Eligibility, demand::DeviceSelection, owner_text, world::demands},
    source::Source,
};
use serde::Serialize;
use std::sync::Arc;

/// An object to plan for that the API need not have.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerObject {
    Set(Box<LocalVolumeSet>),
    LocalVolume(Box<LocalVolume>),
}

impl OwnerObject {
    /// The device paths that it names.
    pub fn paths(&self) -> Vec<String> {
        match self {
            OwnerObject::Set(_) => Vec::new(),
            OwnerObject::LocalVolume(volume) => {
                let entries = volume.spec.storage_class_devices.iter();
                entries.flat_map(|entry| entry.device_paths.clone()).collect()
            }
        }
    }

    /// For a plan of this machine alone, which has neither labels nor taints.
    pub fn without_node_selector(mut self) -> Self {
        match &mut self {
            OwnerObject::Set(set) => {
                (set.spec.node_selector, set.spec.tolerations) = (None, None);
            }
            OwnerObject::LocalVolume(volume) => {
                (volume.spec.node_selector, volume.spec.tolerations) = (None, None);
            }
        }
        self
    }
}

/// Adds an object that the API need not have; its UID in the snapshot.
pub fn adopt(snapshot: &mut Snapshot, object: OwnerObject, now: Timestamp) -> String {
    match object {
        OwnerObject::Set(set) => replace(&mut snapshot.sets, *set, now),
        OwnerObject::LocalVolume(volume) => replace(&mut snapshot.local_volumes, *volume, now),
    }
}

/// Replaces the live object of its name and keeps its age; without one it is the youngest of all.
fn replace<K: Resource<DynamicType = ()>>(
    all: &mut Vec<Arc<K>>,
    mut object: K,
    now: Timestamp,
) -> String {
    let meta = object.meta().clone();
    let same =
        |other: &Arc<K>| other.meta().name == meta.name && other.meta().namespace == meta.namespace;
    let live = all.iter().position(same).map(|at| all.swap_remove(at));
    *object.meta_mut() = match live {
        Some(live) => {
            ObjectMeta { annotations: meta.annotations, labels: meta.labels, ..live.meta().clone() }
        }
        None => ObjectMeta {
            uid: Some(format!("planned {} {}", K::kind(&()), object.name_any())),
            creation_timestamp: Some(Time(now)),
            ..meta
        },
    };
    let uid = object.uid().unwrap_or_default();
    all.push(Arc::new(object));
    uid
}

/// The plans of the owners with these UIDs.
pub fn summaries_of(snapshot: &mut Snapshot, uids: &[String], now: Timestamp) -> Vec<OwnerSummary> {
    expect_finalizers(snapshot);
    resolve_paths(snapshot);
    let mut planned = demands(snapshot);
    planned.retain(|demand| uids.contains(&demand.owner.uid));
    summaries(snapshot, planned, now)
}

/// The operator adds its finalizer before an owner takes anything: a plan shows what comes after.
fn expect_finalizers(snapshot: &mut Snapshot) {
    let sets = snapshot.sets.iter_mut().map(|set| Arc::make_mut(set).meta_mut());
    let volumes = snapshot.local_volumes.iter_mut().map(|volume| Arc::make_mut(volume).meta_mut());
    for meta in sets.chain(volumes).filter(|meta| meta.deletion_timestamp.is_none()) {
        let finalizers = meta.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|one| one == names::OWNER_FINALIZER) {
            finalizers.push(names::OWNER_FINALIZER.to_owned());
        }
    }
}

/// Resolves paths that no agent has resolved yet, as far as the inventories know their names.
fn resolve_paths(snapshot: &mut Snapshot) {
    let paths = |demand: &Demand| match &demand.selection {
        DeviceSelection::Set(_) => Vec::new(),
        DeviceSelection::Paths(paths) => paths.iter().map(|one| one.path.clone()).collect(),
    };
    let requested: Vec<String> = demands(snapshot).iter().flat_map(paths).collect();
    if requested.is_empty() {
        return;
    }
    for inventory in snapshot.inventories_mut().values_mut() {
        let devices = of_inventory(inventory);
        let Some(status) = &mut Arc::make_mut(inventory).status else { continue };
        for path in &requested {
            if status.paths.iter().any(|report| report.path == *path) {
                continue;
            }
            if let Ok(found) = find::find(&devices, path) {
                status.paths.push(PathReport {
                    path: path.clone(),
                    device: Some(found.device.name.clone()),
                    problem: None,
                });
            }
        }
    }
}

/// What `quarry plan` shows of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    /// Kind, namespace and name.
    pub owner: String,
    pub selection: Vec<Field>,
    pub problems: Vec<String>,
    /// It is being deleted and takes nothing new.
    pub terminating: bool,
    pub rows: Vec<PlanRow>,
    pub total: PlanTotal,
    pub nodes: usize,
    /// Nodes without rows.
    pub not_selected: usize,
    pub classes: Vec<describe::ClassView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRow {
    pub node: String,
    /// `None` for a note about the node.
    pub device: Option<String>,
    /// `None` for several devices or an unknown size.
    pub size: Option<i64>,
    pub result: Option<String>,
    pub why: String,
    pub tone: Tone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanTotal {
    pub selected: usize,
    pub claimed: usize,
    pub waiting: usize,
    pub not_used: usize,
}

/// The plan of one owner, of all nodes or of one.
pub fn plan(source: &impl Source, summary: &OwnerSummary, node: Option<&str>) -> PlanView {
    let (demand, owner) = (&summary.demand, OwnerView::new(summary));
    let nodes: Vec<&NodeView> = match node {
        Some(node) => owner.nodes.iter().filter(|one| one.node == node).collect(),
        None => owner.concerned().collect(),
    };
    PlanView {
        owner: owner_text(&demand.owner),
        selection: describe::selection(demand),
        problems: demand.problems.clone(),
        terminating: demand.terminating,
        rows: nodes.iter().flat_map(|node| rows(node)).collect(),
        total: total(&nodes),
        nodes: owner.nodes.len(),
        not_selected: if node.is_none() { owner.nodes.len() - nodes.len() } else { 0 },
        classes: describe::class_views(source, demand),
    }
}

fn rows(node: &NodeView) -> Vec<PlanRow> {
    let note = node.note.as_ref().map(|note| PlanRow {
        node: node.node.clone(),
        device: None,
        size: None,
        result: None,
        why: note.clone(),
        tone: Tone::Bad,
    });
    let devices = node.folded().into_iter().map(|device| PlanRow {
        node: node.node.clone(),
        size: Some(device.size).filter(|size| *size > 0),
        result: Some(result(&device)),
        why: why(&device),
        tone: device.tone(),
        device: Some(device.device),
    });
    note.into_iter().chain(devices).collect()
}

/// Who gets it, rather than its stage.
fn result(device: &OwnerDevice) -> String {
    let has = device.persistent_volume.is_some() || device.link.is_some();
    match &device.status {
        status if has => format!("has it ({})", status.as_str()),
        DeviceStatus::Candidate(Eligibility::Selected) => "gets it".to_owned(),
        status => status.as_str().to_owned(),
    }
}

/// For a device that it gets, which one that is: kernel names change.
fn why(device: &OwnerDevice) -> String {
    match (&device.status, &device.identity) {
        (DeviceStatus::Candidate(Eligibility::Selected), Some(identity)) => identity.clone(),
        _ => device.why.clone(),
    }
}

fn total(nodes: &[&NodeView]) -> PlanTotal {
    let all = || nodes.iter().flat_map(|node| &node.devices);
    let new =
        |tone: Tone| all().filter(|device| device.link.is_none() && device.tone() == tone).count();
    let claimed = all().filter(|device| device.link.is_some()).count();
    let (selected, waiting) = (new(Tone::Good), new(Tone::Waiting));
    let not_used = all().count() - claimed - selected - waiting;
    PlanTotal { selected, claimed, waiting, not_used }
}
