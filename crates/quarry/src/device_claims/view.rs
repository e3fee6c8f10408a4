//! An account as it is shown: counted for tables, complete for programs.

use super::observe::{Account, Held, Part};
use quarry_core::{
    device::inventory::natural,
    device_claim::{Eligibility, Health, Row, Stage, demand::NodeMatch},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// What `-o json` and `-o yaml` print of one set or LocalVolume. What is empty is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub classes: Vec<String>,
    pub volume_modes: Vec<String>,
    /// What is wrong with it: it takes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub node: String,
    /// `nodeSelector` and `tolerations` cover it.
    pub selected: bool,
    /// Why it is not covered, or what keeps this from being true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Devices that are what is asked for: provisioned, waiting and refused together.
    pub matched: usize,
    pub provisioned: usize,
    pub waiting: usize,
    /// By reason.
    pub refused: BTreeMap<String, usize>,
    /// Devices that are not what is asked for.
    pub not_matched: usize,
    pub devices: Vec<Device>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The kernel's name; a path that leads to none; or the identity of one that is not there.
    pub device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    pub size: i64,
    /// How it stands, in a word.
    pub eligibility: String,
    /// And in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The path that a LocalVolume names.
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
    #[serde(skip)]
    pub tone: Tone,
    /// The constants under which a refusal is counted.
    #[serde(skip)]
    pub reasons: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// It has the device, usable, or gets it.
    Good,
    /// It goes on by itself.
    Waiting,
    /// Somebody has to do something, if the device is wanted.
    Bad,
    /// It would do, and is not needed.
    Spare,
    /// It is not what is asked for.
    #[default]
    Other,
}

impl Shown {
    pub fn new(account: &Account) -> Self {
        let owner = &account.demand.owner;
        let classes = super::describe::classes(&account.demand);
        let unique = |words: Vec<&str>| {
            words
                .iter()
                .enumerate()
                .filter(|(at, word)| !words[..*at].contains(word))
                .map(|(_, word)| (*word).to_owned())
                .collect()
        };
        Shown {
            kind: owner.kind.clone(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            classes: unique(classes.iter().map(|(class, _)| *class).collect()),
            volume_modes: unique(classes.iter().map(|(_, mode)| mode.as_str()).collect()),
            problems: account.demand.problems.clone(),
            nodes: account.parts.iter().map(Node::new).collect(),
        }
    }

    /// The nodes that have to do with it: covered, or kept away by a taint, or still with something of it.
    pub fn concerned(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| {
            node.selected || node.note.is_some() && node.is_kept_away() || !node.devices.is_empty()
        })
    }
}

impl Node {
    fn new(part: &Part) -> Self {
        let mut devices: Vec<Device> = part
            .claims
            .iter()
            .map(Device::claimed)
            .chain(part.rows.iter().map(Device::eligibility))
            .collect();
        devices.sort_by_cached_key(|device| (device.tone, natural(&device.device)));
        let count = |tone: Tone| devices.iter().filter(|device| device.tone == tone).count();
        let note = match &part.covers {
            NodeMatch::Yes => part.problem.clone(),
            NodeMatch::NotSelected => Some("nodeSelector does not select it".to_owned()),
            NodeMatch::KeptAway(taint) => {
                Some(format!("{KEPT_AWAY}{taint}: tolerate it in spec.tolerations"))
            }
        };
        let mut refused = BTreeMap::new();
        for reason in devices
            .iter()
            .filter(|device| matches!(device.tone, Tone::Bad | Tone::Spare))
            .flat_map(|device| &device.reasons)
        {
            *refused.entry(reason.clone()).or_insert(0) += 1;
        }
        let provisioned = part.claims.iter().filter(|held| held.stage.is_provisioned()).count();
        let waiting = count(Tone::Good) + count(Tone::Waiting) - provisioned;
        Node {
            node: part.node.clone(),
            selected: part.covers == NodeMatch::Yes,
            note,
            matched: provisioned + waiting + count(Tone::Bad) + count(Tone::Spare),
            provisioned,
            waiting,
            refused,
            not_matched: count(Tone::Other),
            devices,
        }
    }

    /// For people: many devices that are not asked for, for the same reason, are one line.
    pub fn folded(&self) -> Vec<Device> {
        let mut lines: Vec<(Device, usize, String)> = Vec::new();
        for device in &self.devices {
            let same = |line: &&mut (Device, usize, String)| {
                device.tone == Tone::Other && line.0.tone == Tone::Other && line.0.why == device.why
            };
            match lines.iter_mut().find(same) {
                Some((_, count, last)) => {
                    *count += 1;
                    last.clone_from(&device.device);
                }
                None => lines.push((device.clone(), 1, device.device.clone())),
            }
        }
        lines
            .into_iter()
            .map(|(device, count, last)| match count {
                1 => device,
                2 => Device { device: format!("{}, {last}", device.device), size: 0, ..device },
                _ => Device {
                    device: format!("{} … {last} ({count})", device.device),
                    size: 0,
                    ..device
                },
            })
            .collect()
    }

    fn is_kept_away(&self) -> bool {
        self.note.as_ref().is_some_and(|note| note.starts_with(KEPT_AWAY))
    }
}

const KEPT_AWAY: &str = "it has the taint ";

impl Device {
    fn claimed(held: &Held) -> Self {
        let claim = &held.claim;
        let status = held.job.as_ref().and_then(|job| job.status.as_ref());
        Device {
            device: held.device.clone().unwrap_or_else(|| claim.identity.clone()),
            identity: Some(claim.identity.clone()),
            size: claim.size,
            eligibility: held.stage.as_str().to_owned(),
            why: held.stage.detail().to_owned(),
            path: claim.path.clone(),
            persistent_volume: held.pv.clone(),
            link: Some(claim.link.clone()).filter(|link| !link.is_empty()),
            job: claim.job.as_ref().map(|job| job.name.clone()),
            progress: status.and_then(|status| status.progress),
            tone: stage_tone(&held.stage),
            reasons: vec![held.stage.as_str().to_owned()],
        }
    }

    fn eligibility(row: &Row) -> Self {
        let reasons = match &row.eligibility {
            Eligibility::Refused(told) if !told.is_empty() => {
                told.iter().take(1).map(|told| told.reason.to_string()).collect()
            }
            other => vec![other.as_str().to_owned()],
        };
        Device {
            device: row.device.clone(),
            identity: row.identity.clone(),
            size: row.size,
            eligibility: row.eligibility.as_str().to_owned(),
            why: row.eligibility.message(),
            tone: standing_tone(&row.eligibility),
            reasons,
            ..Device::default()
        }
    }
}

pub fn stage_tone(stage: &Stage) -> Tone {
    match stage.health() {
        Health::Good => Tone::Good,
        Health::UnderWay => Tone::Waiting,
        Health::Trouble => Tone::Bad,
    }
}

fn standing_tone(eligibility: &Eligibility) -> Tone {
    match eligibility {
        Eligibility::Claimed | Eligibility::Selected => Tone::Good,
        Eligibility::Waiting(_) => Tone::Waiting,
        Eligibility::NotMatched(_) => Tone::Other,
        Eligibility::Taken(_)
        | Eligibility::Refused(_)
        | Eligibility::BacksPersistentVolume(_)
        | Eligibility::WipeRemnant(_)
        | Eligibility::BelowMinimum { .. }
        | Eligibility::NoDevice(_)
        | Eligibility::Frozen => Tone::Bad,
        Eligibility::OverMaximum(_) => Tone::Spare,
    }
}
