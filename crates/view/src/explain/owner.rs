//! A set or a LocalVolume: what it requests, every device of every node, its device claims, and what to do.

use super::device::{Remedy, applicable};
use crate::{
    Tone,
    events::{EventView, recent},
    sets::{
        DeviceStatus, NodeSummary, NodeView, OwnerDevice, OwnerSummary, OwnerView,
        describe::{self, ClassView},
        rows::conditions,
    },
    text::Field,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use quarry_api::local_volume_discovery::OperatorCondition;
use quarry_core::{
    device::Reason,
    device_claim::{Eligibility, Row, UNFIT_REMEDY, owner_text, status::NO_ROOM_REMEDY},
    source::Source,
    volume::explain::Verdict,
};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerExplanation {
    /// Kind, namespace and name.
    pub owner: String,
    /// The reason of its condition Available; `None` before the operator has seen it.
    pub status: Option<String>,
    pub provisioned: usize,
    pub created: Option<Timestamp>,
    pub terminating: bool,
    pub selection: Vec<Field>,
    pub classes: Vec<ClassView>,
    pub nodes: Vec<NodeExplanation>,
    pub conditions: Vec<OperatorCondition>,
    /// Empty when nothing blocks it.
    pub remedies: Vec<Remedy>,
    pub events: Vec<EventView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    pub node: String,
    pub matched: usize,
    pub provisioned: usize,
    pub waiting: usize,
    pub note: Option<String>,
    pub devices: Vec<DeviceLine>,
}

/// A device, or several that do not match for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceLine {
    pub device: String,
    /// `None` for several devices or an unknown size.
    pub size: Option<i64>,
    pub verdict: Verdict,
    #[serde(rename = "eligibility")]
    pub status: DeviceStatus,
    pub why: String,
    /// What belongs to its device claim: path, PersistentVolume, link, NodeJob.
    pub details: Vec<String>,
}

pub fn explain(source: &impl Source, summary: &OwnerSummary, events: &[Event]) -> OwnerExplanation {
    let (demand, owner) = (&summary.demand, OwnerView::new(summary));
    let (conditions, created) = conditions(source, &owner);
    let available = conditions.iter().find(|condition| condition.kind == "Available");
    let classes = describe::class_views(source, demand);
    OwnerExplanation {
        owner: owner_text(&demand.owner),
        status: available.and_then(|condition| condition.reason.clone()),
        provisioned: owner.nodes.iter().map(|node| node.provisioned).sum(),
        created,
        terminating: demand.terminating,
        selection: describe::selection(demand),
        nodes: owner.concerned().map(NodeExplanation::new).collect(),
        remedies: remedies(summary, &owner, &classes),
        classes,
        conditions,
        events: recent(events),
    }
}

impl NodeExplanation {
    fn new(node: &NodeView) -> Self {
        NodeExplanation {
            node: node.node.clone(),
            matched: node.matched,
            provisioned: node.provisioned,
            waiting: node.waiting,
            note: node.note.clone(),
            devices: node.folded().iter().map(DeviceLine::new).collect(),
        }
    }
}

impl DeviceLine {
    fn new(device: &OwnerDevice) -> Self {
        let mut details = Vec::new();
        details.extend(device.path.iter().map(|path| format!("requested as {path}")));
        match (&device.persistent_volume, &device.link) {
            (Some(pv), Some(link)) => details.push(format!("PersistentVolume {pv} at {link}")),
            (None, Some(link)) => details.push(format!("no PersistentVolume; its link is {link}")),
            (_, None) => {}
        }
        if let Some(job) = &device.job {
            let progress = device.progress.map_or_else(String::new, |done| format!(", {done} %"));
            details.push(format!("NodeJob {job}{progress}"));
        }
        DeviceLine {
            device: device.device.clone(),
            size: Some(device.size).filter(|size| *size > 0),
            verdict: device.tone().verdict(),
            status: device.status.clone(),
            why: device.why.clone(),
            details,
        }
    }
}

/// Each remedy once. What the line of a device claim says is not repeated.
fn remedies(summary: &OwnerSummary, owner: &OwnerView, classes: &[ClassView]) -> Vec<Remedy> {
    let demand = &summary.demand;
    let mut found: Vec<Remedy> = demand.problems.iter().map(Remedy::new).collect();
    if !demand.protected && !demand.terminating && demand.problems.is_empty() {
        found.push(Remedy::new("it takes no devices before the operator has added its finalizer; check that the operator runs (`kubectl -n quarry-system get pods`; standalone: `quarry up`)"));
    }
    if owner.concerned().next().is_none() {
        found.push(Remedy::new(
            "no node is selected; compare spec.nodeSelector with `kubectl get nodes --show-labels`",
        ));
    }
    found.extend(
        classes.iter().filter(|class| class.problem).map(|class| Remedy::new(class.text.clone())),
    );
    for node in &summary.nodes {
        for claim in &node.claims {
            if Tone::from(claim.stage.health()) == Tone::Bad {
                let device = claim.device.as_deref().unwrap_or(&claim.claim.identity);
                let stage = claim.stage.as_str();
                let text = format!("{}/{device} is {stage}; see its line above", node.node);
                found.push(Remedy::new(text));
            }
        }
        found.extend(node.candidates.iter().flat_map(|row| candidate_remedies(node, row)));
    }
    let mut unique = Vec::new();
    for remedy in found {
        if !unique.contains(&remedy) {
            unique.push(remedy);
        }
    }
    unique
}

fn candidate_remedies(summary: &NodeSummary, row: &Row) -> Vec<Remedy> {
    let (node, device) = (&summary.node, &row.device);
    let text = match &row.eligibility {
        Eligibility::Refused(given) if given.is_empty() => {
            format!("wait until the agent on node {node} has checked {device}")
        }
        Eligibility::Refused(given) => {
            let reasons: Vec<Reason> =
                given.iter().filter_map(|given| given.reason.known()).collect();
            let remedy = |reason: Reason| Remedy::of_reason(reason.as_str(), reason.row().remedy);
            return applicable(&reasons).into_iter().map(remedy).collect();
        }
        Eligibility::Taken(other) => format!(
            "{node}/{device} belongs to {}; run `quarry explain {}` to see its device claim",
            owner_text(other),
            describe::handle(&other.kind, &other.name)
        ),
        Eligibility::BacksPersistentVolume(pv) => format!(
            "{node}/{device} backs PersistentVolume {pv}, which has no device claim; delete it if its data is not needed"
        ),
        Eligibility::NoDevice(why) => format!(
            "{device} on node {node}: {why}; run `quarry devices {node} -o wide` to list the devices and their names"
        ),
        Eligibility::BelowMinimum { .. } => {
            format!("node {node} has too few devices; add some, or lower spec.minDeviceCount")
        }
        Eligibility::UnfitFileSystem(why) => {
            format!("{device} on node {node} {why}; {UNFIT_REMEDY}")
        }
        Eligibility::NoRoom(why) => format!("{device} on node {node}: {why}; {NO_ROOM_REMEDY}"),
        Eligibility::WipeRemnant(why) => format!("{device} of node {node} {why}"),
        Eligibility::Frozen => format!("node {node}: {}", row.eligibility.message()),
        Eligibility::Claimed
        | Eligibility::Selected
        | Eligibility::NotMatched(_)
        | Eligibility::Waiting(_)
        | Eligibility::OverMaximum(_) => return Vec::new(),
    };
    vec![Remedy::new(text)]
}
