//! LocalVolumeSets and LocalVolumes: which devices of each node they have, wait for, and are refused.
//!
//! Owns: `OwnerView` (what programs get, counted per node), the rows of `quarry sets` and `quarry plan`, and the
//! wording of a selection. Who gets which device is decided by `quarry_core::device_claim`.
//! Next to read: `summary.rs` (what is known), `rows.rs`, `plan.rs`, `describe.rs`.

pub mod describe;
mod owner;
pub mod plan;
pub mod rows;
pub mod summary;

pub use owner::{OwnerRef, live, missing, outside_namespace};
pub use summary::{ClaimView, NodeSummary, OwnerSummary, summaries};

use crate::Tone;
use jiff::Timestamp;
use quarry_core::{
    device::inventory::natural,
    device_claim::{Eligibility, Row, Stage, demand::NodeMatch, world::demands},
    source::Source,
};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// One set or LocalVolume. What is empty is omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerView {
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub classes: Vec<String>,
    pub volume_modes: Vec<String>,
    /// Why its spec is invalid: it takes no devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    pub nodes: Vec<NodeView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    pub node: String,
    /// `nodeSelector` and `tolerations` match it.
    pub selected: bool,
    /// Why it does not match, or why the rest is out of date or incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Devices that match: provisioned, waiting and refused together.
    pub matched: usize,
    pub provisioned: usize,
    pub waiting: usize,
    /// By reason.
    pub refused: BTreeMap<String, usize>,
    /// Devices that do not match.
    pub not_matched: usize,
    pub devices: Vec<OwnerDevice>,
    /// `selected` and `note` are derived from it.
    #[serde(skip)]
    pub node_match: NodeMatch,
}

/// A device, or a path, as one owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerDevice {
    /// The kernel name; a path that leads to no device; or the identity of an absent device.
    pub device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    pub size: i64,
    #[serde(rename = "eligibility")]
    pub status: DeviceStatus,
    /// The status as text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The path in a LocalVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// In percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<i32>,
}

/// The stage of the owner's device claim, or the device's eligibility without one. Serialized as its word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceStatus {
    Claim(Stage),
    Candidate(Eligibility),
}

impl DeviceStatus {
    pub fn as_str(&self) -> &'static str {
        match self {
            DeviceStatus::Claim(stage) => stage.as_str(),
            DeviceStatus::Candidate(eligibility) => eligibility.as_str(),
        }
    }

    pub fn tone(&self) -> Tone {
        match self {
            DeviceStatus::Claim(stage) => stage.health().into(),
            DeviceStatus::Candidate(eligibility) => match eligibility {
                Eligibility::Claimed | Eligibility::Selected => Tone::Good,
                Eligibility::Waiting(_) => Tone::Waiting,
                Eligibility::NotMatched(_) => Tone::Other,
                Eligibility::Taken(_)
                | Eligibility::Refused(_)
                | Eligibility::BacksPersistentVolume(_)
                | Eligibility::UnfitFileSystem(_)
                | Eligibility::WipeRemnant(_)
                | Eligibility::BelowMinimum { .. }
                | Eligibility::NoDevice(_)
                | Eligibility::NoRoom(_)
                | Eligibility::Frozen => Tone::Bad,
                Eligibility::OverMaximum(_) => Tone::Spare,
            },
        }
    }

    /// The constant under which a refusal is counted.
    fn reason(&self) -> String {
        match self {
            DeviceStatus::Candidate(Eligibility::Refused(given)) if !given.is_empty() => {
                given[0].reason.to_string()
            }
            DeviceStatus::Claim(_) | DeviceStatus::Candidate(_) => self.as_str().to_owned(),
        }
    }
}

impl Serialize for DeviceStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Every set and LocalVolume of the operator's namespace. `node`: only what concerns that node.
pub fn list(source: &impl Source, node: Option<&str>, now: Timestamp) -> Vec<OwnerView> {
    let summaries = summaries(source, demands(source), now);
    let mut owners: Vec<OwnerView> = summaries.iter().map(OwnerView::new).collect();
    if let Some(node) = node {
        owners.iter_mut().for_each(|owner| owner.nodes.retain(|part| part.node == *node));
        owners.retain(|owner| owner.concerned().next().is_some());
    }
    owners
}

impl OwnerView {
    pub fn new(summary: &OwnerSummary) -> Self {
        let owner = &summary.demand.owner;
        let classes = describe::classes(&summary.demand);
        let unique = |words: Vec<&str>| {
            words
                .iter()
                .enumerate()
                .filter(|(at, word)| !words[..*at].contains(word))
                .map(|(_, word)| (*word).to_owned())
                .collect()
        };
        OwnerView {
            kind: owner.kind.clone(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            classes: unique(classes.iter().map(|(class, _)| *class).collect()),
            volume_modes: unique(classes.iter().map(|(_, mode)| mode.as_str()).collect()),
            problems: summary.demand.problems.clone(),
            nodes: summary.nodes.iter().map(NodeView::new).collect(),
        }
    }

    /// As a user types it: `set/fast`.
    pub fn handle(&self) -> String {
        describe::handle(&self.kind, &self.name)
    }

    /// The nodes that are selected, or would be but for a taint, or still have a device claim of it.
    pub fn concerned(&self) -> impl Iterator<Item = &NodeView> {
        self.nodes.iter().filter(|node| {
            node.selected
                || matches!(node.node_match, NodeMatch::KeptAway(_))
                || !node.devices.is_empty()
        })
    }

    /// Something waits, or needs a decision or a fix.
    pub fn needs_attention(&self) -> bool {
        !self.problems.is_empty()
            || self.nodes.iter().any(|node| node.waiting > 0 || node.has_bad_devices())
            || self.concerned().next().is_none()
    }
}

impl NodeView {
    fn new(summary: &NodeSummary) -> Self {
        let claims = summary.claims.iter().map(OwnerDevice::of_claim);
        let candidates = summary.candidates.iter().map(OwnerDevice::of_candidate);
        let mut devices: Vec<OwnerDevice> = claims.chain(candidates).collect();
        devices.sort_by_cached_key(|device| (device.tone(), natural(&device.device)));
        let count = |tone: Tone| devices.iter().filter(|device| device.tone() == tone).count();
        let note = match &summary.node_match {
            NodeMatch::Yes => summary.complaint.clone(),
            NodeMatch::NotSelected => Some("nodeSelector does not select it".to_owned()),
            NodeMatch::KeptAway(taint) => {
                Some(format!("it has the taint {taint}: tolerate it in spec.tolerations"))
            }
        };
        let mut refused = BTreeMap::new();
        let is_refused = |device: &&OwnerDevice| matches!(device.tone(), Tone::Bad | Tone::Spare);
        for device in devices.iter().filter(is_refused) {
            *refused.entry(device.status.reason()).or_insert(0) += 1;
        }
        let is_provisioned = |claim: &&ClaimView| claim.stage.is_provisioned();
        let provisioned = summary.claims.iter().filter(is_provisioned).count();
        let waiting = count(Tone::Good) + count(Tone::Waiting) - provisioned;
        NodeView {
            node: summary.node.clone(),
            selected: summary.node_match == NodeMatch::Yes,
            note,
            matched: provisioned + waiting + count(Tone::Bad) + count(Tone::Spare),
            provisioned,
            waiting,
            refused,
            not_matched: count(Tone::Other),
            devices,
            node_match: summary.node_match.clone(),
        }
    }

    pub fn has_bad_devices(&self) -> bool {
        self.devices.iter().any(|device| device.tone() == Tone::Bad)
    }

    /// For people: devices that do not match for the same reason are one line.
    pub fn folded(&self) -> Vec<OwnerDevice> {
        let mut lines: Vec<(OwnerDevice, usize, String)> = Vec::new();
        for device in &self.devices {
            let same = |line: &&mut (OwnerDevice, usize, String)| {
                device.tone() == Tone::Other
                    && line.0.tone() == Tone::Other
                    && line.0.why == device.why
            };
            match lines.iter_mut().find(same) {
                Some((_, count, last)) => {
                    *count += 1;
                    last.clone_from(&device.device);
                }
                None => lines.push((device.clone(), 1, device.device.clone())),
            }
        }
        let fold = |(device, count, last): (OwnerDevice, usize, String)| {
            let name = match count {
                1 => return device,
                2 => format!("{}, {last}", device.device),
                _ => format!("{} … {last} ({count})", device.device),
            };
            OwnerDevice { device: name, size: 0, ..device }
        };
        lines.into_iter().map(fold).collect()
    }
}

impl OwnerDevice {
    pub fn tone(&self) -> Tone {
        self.status.tone()
    }

    fn of_claim(view: &ClaimView) -> Self {
        let claim = &view.claim;
        let job = view.job.as_ref().and_then(|job| job.status.as_ref());
        OwnerDevice {
            device: view.device.clone().unwrap_or_else(|| claim.identity.clone()),
            identity: Some(claim.identity.clone()),
            size: claim.size,
            status: DeviceStatus::Claim(view.stage.clone()),
            why: view.stage.detail().to_owned(),
            path: claim.path.clone(),
            persistent_volume: view.pv.clone(),
            link: Some(claim.link.clone()).filter(|link| !link.is_empty()),
            job: claim.job.as_ref().map(|job| job.name.clone()),
            progress: job.and_then(|status| status.progress),
        }
    }

    fn of_candidate(row: &Row) -> Self {
        OwnerDevice {
            device: row.device.clone(),
            identity: row.identity.clone(),
            size: row.size,
            status: DeviceStatus::Candidate(row.eligibility.clone()),
            why: row.eligibility.message(),
            path: None,
            persistent_volume: None,
            link: None,
            job: None,
            progress: None,
        }
    }
}

#[cfg(test)]
mod tests;
