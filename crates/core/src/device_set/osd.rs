//! One OSD of a device set: what exists of it, and in which state it is.
//!
//! Computed from the objects alone, the same for the planner and for people (`quarry osds`). Next to read: `plan.rs`.

use super::{
    Observed,
    claims::{self, Claims},
    index::Index,
    pods,
    provider::{Failed, Prepared, Provider},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::{Job, JobCondition},
    core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod},
};
use kube::ResourceExt;
use quarry_api::{
    ceph_cluster::{DeviceSet, TemplateRole},
    names::ceph,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The devices of one OSD, and what was made of them.
pub struct Osd<'a> {
    pub set: &'a DeviceSet,
    pub index: u32,
    /// Of each template.
    pub roles: Vec<TemplateRole>,
    pub claims: Claims<'a>,
    pub job: Option<&'a Job>,
    pub deployment: Option<&'a Deployment>,
    /// The ConfigMap with a result, whichever PVC it is of.
    pub recorded: Option<&'a ConfigMap>,
    /// The last result that can be read: of the Job's pods, else of the ConfigMap.
    pub result: Option<Result<Prepared, Failed>>,
    /// The text of a result that no ConfigMap has yet.
    pub unrecorded: Option<String>,
    pub state: OsdState,
}

/// What an OSD waits for, or why it does not get further. One word each for counts, and a text for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "message")]
pub enum OsdState {
    /// PVCs are missing, and nothing was made of the others yet.
    New,
    /// No prepare Job exists.
    Unprepared,
    /// The prepare pod has no node: no device, no room.
    Unscheduled(String),
    Preparing,
    /// The result of a prepare Job that has ended is gone: prepared again, which adopts.
    ResultLost,
    /// It may pass: the Job, or the next one, tries again.
    PrepareFailed(String),
    /// A person must change something.
    Refused(String),
    /// Ready to be started.
    Prepared,
    Starting,
    Running,
    /// It ran, and does not now.
    NotReady(String),
    /// PVCs of an OSD that was prepared are gone, or are others than it was prepared on.
    ClaimLost(String),
    /// Another object is in the way.
    Conflict(String),
}

impl OsdState {
    /// All of them.
    pub const WORDS: [&'static str; 13] = [
        "New",
        "Unprepared",
        "Unscheduled",
        "Preparing",
        "ResultLost",
        "PrepareFailed",
        "Refused",
        "Prepared",
        "Starting",
        "Running",
        "NotReady",
        "ClaimLost",
        "Conflict",
    ];

    pub fn word(&self) -> &'static str {
        match self {
            OsdState::New => "New",
            OsdState::Unprepared => "Unprepared",
            OsdState::Unscheduled(_) => "Unscheduled",
            OsdState::Preparing => "Preparing",
            OsdState::ResultLost => "ResultLost",
            OsdState::PrepareFailed(_) => "PrepareFailed",
            OsdState::Refused(_) => "Refused",
            OsdState::Prepared => "Prepared",
            OsdState::Starting => "Starting",
            OsdState::Running => "Running",
            OsdState::NotReady(_) => "NotReady",
            OsdState::ClaimLost(_) => "ClaimLost",
            OsdState::Conflict(_) => "Conflict",
        }
    }

    pub fn message(&self) -> Option<&str> {
        match self {
            OsdState::Unscheduled(text)
            | OsdState::PrepareFailed(text)
            | OsdState::Refused(text)
            | OsdState::NotReady(text)
            | OsdState::ClaimLost(text)
            | OsdState::Conflict(text) => Some(text),
            OsdState::New
            | OsdState::Unprepared
            | OsdState::Preparing
            | OsdState::ResultLost
            | OsdState::Prepared
            | OsdState::Starting
            | OsdState::Running => None,
        }
    }

    /// A person has to look at it.
    pub fn is_problem(&self) -> bool {
        self.message().is_some()
    }
}

impl<'a> Osd<'a> {
    /// The PVC of the data device.
    pub fn data(&self) -> Option<&'a PersistentVolumeClaim> {
        let at = self.roles.iter().position(|role| *role == TemplateRole::Data)?;
        self.claims.0.get(&at).copied()
    }

    pub fn data_claim(&self) -> &'a str {
        self.data().and_then(|claim| claim.metadata.name.as_deref()).unwrap_or_default()
    }

    pub fn data_uid(&self) -> &'a str {
        self.data().and_then(|claim| claim.metadata.uid.as_deref()).unwrap_or_default()
    }

    /// What exists besides PVCs: an OSD that has any of it was begun.
    fn left(&self) -> Vec<String> {
        let deployment = self.deployment.map(|one| format!("Deployment {}", one.name_any()));
        let job = self.job.map(|one| format!("Job {}", one.name_any()));
        let recorded = self.recorded.map(|one| format!("ConfigMap {}", one.name_any()));
        deployment.into_iter().chain(job).chain(recorded).collect()
    }

    fn claim_names(&self) -> impl Iterator<Item = String> {
        self.claims.0.values().map(|claim| format!("PVC {}", claim.name_any()))
    }

    /// Since when it has been in its state, as far as objects say so.
    pub fn since(&self) -> Option<Timestamp> {
        let time = |object: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
            object.map(|time| time.0)
        };
        let deployment = self.deployment.and_then(|one| {
            let conditions = one.status.as_ref()?.conditions.as_ref()?;
            let available = conditions.iter().find(|one| one.type_ == "Available")?;
            time(available.last_transition_time.as_ref())
        });
        let job = self.job.and_then(|one| time(one.metadata.creation_timestamp.as_ref()));
        let claim = self.data().and_then(|one| time(one.metadata.creation_timestamp.as_ref()));
        deployment.or(job).or(claim)
    }
}

/// Every OSD of a set that exists, by index.
pub fn of_set<'a>(
    observed: &'a Observed,
    provider: &dyn Provider,
    set: &'a DeviceSet,
) -> Vec<Osd<'a>> {
    let index = Index::new(observed);
    of_claims(&index, provider, set, claims::of_set(&index, set))
}

/// The same for many sets, from one index.
pub fn of_claims<'a>(
    index: &Index<'a>,
    provider: &dyn Provider,
    set: &'a DeviceSet,
    existing: BTreeMap<u32, Claims<'a>>,
) -> Vec<Osd<'a>> {
    let Ok(roles) = set.roles() else { return Vec::new() };
    let each = existing.into_iter();
    each.map(|(at, claims)| of(index, provider, set, &roles, at, claims)).collect()
}

/// An OSD that does not exist yet.
pub fn new<'a>(set: &'a DeviceSet, roles: &[TemplateRole], index: u32) -> Osd<'a> {
    Osd {
        set,
        index,
        roles: roles.to_vec(),
        claims: Claims::default(),
        job: None,
        deployment: None,
        recorded: None,
        result: None,
        unrecorded: None,
        state: OsdState::New,
    }
}

fn of<'a>(
    index: &Index<'a>,
    provider: &dyn Provider,
    set: &'a DeviceSet,
    roles: &[TemplateRole],
    at: u32,
    claims: Claims<'a>,
) -> Osd<'a> {
    let mut osd = Osd { claims, ..new(set, roles, at) };
    let claim = osd.data_claim();
    osd.job = index.job(claim, &set.name, at);
    osd.deployment = index.deployment(claim, &set.name, at);
    osd.recorded = index.result(claim, &set.name, at);
    read_result(&mut osd, index, provider);
    osd.state = state(&osd, index);
    osd
}

/// Of the Job's newest pod that has ended, else what was recorded of an earlier one.
fn read_result(osd: &mut Osd<'_>, index: &Index<'_>, provider: &dyn Provider) {
    let recorded = osd.recorded.and_then(|one| one.data.as_ref()?.get("status"));
    let text = osd.job.and_then(|job| {
        let ended = index.pods_of(job).iter().filter_map(|pod| {
            let text = termination(pod)?;
            Some((pod.metadata.creation_timestamp.as_ref().map(|time| time.0), text))
        });
        ended.max_by_key(|(time, _)| *time).map(|(_, text)| text)
    });
    let uuid = osd.data_uid();
    let is_own = |found: &Result<Prepared, Failed>| {
        found.as_ref().is_ok_and(|one| one.uuid.as_str() == uuid)
    };
    let found = text.map(|text| provider.parse_result(text));
    // A result of another PVC of this name is no result of this one.
    if found.as_ref().is_some_and(is_own) && recorded.map(String::as_str) != text {
        osd.unrecorded = text.map(str::to_owned);
    }
    // A success that was recorded stays one.
    let known = recorded.map(|text| provider.parse_result(text)).filter(is_own);
    osd.result = found.filter(|found| found.is_ok() || known.is_none()).or(known);
}

fn termination(pod: &Pod) -> Option<&str> {
    let all = pod.status.as_ref()?.container_statuses.as_ref()?;
    let ended = all.iter().find_map(|one| one.state.as_ref()?.terminated.as_ref())?;
    ended.message.as_deref().filter(|text| !text.trim().is_empty())
}

fn state(osd: &Osd<'_>, index: &Index<'_>) -> OsdState {
    let missing: Vec<String> = (0..osd.roles.len())
        .filter(|at| !osd.claims.0.contains_key(at))
        .map(|at| {
            format!("{} ({})", claims::template_part(osd.set, at, osd.roles[at]), osd.roles[at])
        })
        .collect();
    let left = osd.left();
    if !missing.is_empty() {
        // A PVC is made with its data PVC first: others without it are what a lost one has left.
        let lost = !left.is_empty() || osd.data().is_none() && !osd.claims.0.is_empty();
        return match lost {
            false => OsdState::New,
            true => OsdState::ClaimLost(format!(
                "the PVC of {} is gone; its data cannot be recreated: remove the OSD from Ceph and delete what is left of it ({}), then a new OSD is made",
                missing.join(" and "),
                left.into_iter().chain(osd.claim_names()).collect::<Vec<_>>().join(", ")
            )),
        };
    }
    if let Some(deployment) = osd.deployment {
        return deployed(osd, deployment);
    }
    match &osd.result {
        Some(Ok(prepared)) if prepared.uuid.as_str() != osd.data_uid() => {
            OsdState::ClaimLost(format!(
                "osd.{} was prepared on another PVC of this name; delete {} to prepare this one",
                prepared.id,
                left.join(" and ")
            ))
        }
        Some(Ok(prepared)) => taken(osd, index, prepared).unwrap_or(OsdState::Prepared),
        found => not_prepared(osd, index, found.as_ref().and_then(|one| one.as_ref().err())),
    }
}

/// Another OSD's Deployment has the name that this one would get.
fn taken(osd: &Osd<'_>, index: &Index<'_>, prepared: &Prepared) -> Option<OsdState> {
    let name = pods::deployment_name(prepared.id);
    let other = index.deployment_named(&name)?;
    let of = other.labels().get(ceph::PVC_LABEL).map_or("no PVC", String::as_str);
    Some(OsdState::Conflict(format!(
        "Deployment {name} exists and uses {of}, not {}; two OSDs cannot have one ID: check which of them Ceph knows, and remove the other",
        osd.data_claim()
    )))
}

fn not_prepared(osd: &Osd<'_>, index: &Index<'_>, failed: Option<&Failed>) -> OsdState {
    let Some(job) = osd.job else { return OsdState::Unprepared };
    let has = |kind: &str| condition(job, kind).is_some();
    if let Some(failed) = failed.filter(|failed| failed.is_refusal) {
        return OsdState::Refused(format!("{}: {}", failed.reason, failed.message));
    }
    if has("Complete") {
        return OsdState::ResultLost;
    }
    let text = |default: &str| match failed {
        Some(failed) => format!("{}: {}", failed.reason, failed.message),
        None => default.to_owned(),
    };
    if has("Failed") || has("FailureTarget") {
        return OsdState::PrepareFailed(text(
            "the prepare Job has failed without a result; see the log of its pods",
        ));
    }
    if let Some(waiting) = unscheduled(job, index) {
        return OsdState::Unscheduled(waiting);
    }
    match failed {
        Some(_) => OsdState::PrepareFailed(text("")),
        None => OsdState::Preparing,
    }
}

/// A condition of the Job that is true.
pub fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let mut all = job.status.as_ref()?.conditions.as_ref()?.iter();
    all.find(|one| one.type_ == kind && one.status == "True")
}

/// What the scheduler says of the Job's pod, if it has found no node.
fn unscheduled(job: &Job, index: &Index<'_>) -> Option<String> {
    index.pods_of(job).iter().find_map(|pod| {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let found =
            conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
        Some(found.message.clone().unwrap_or_else(|| "no node was found".to_owned()))
    })
}

fn deployed(osd: &Osd<'_>, deployment: &Deployment) -> OsdState {
    // Only the claims of its own pods count: a label may be of another time.
    let used =
        deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()?.volumes.as_ref());
    let used: Vec<&str> = used
        .into_iter()
        .flatten()
        .filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
        .collect();
    let names: Vec<String> = osd.claims.0.values().map(|claim| claim.name_any()).collect();
    if let Some(missing) = names.iter().find(|name| !used.contains(&name.as_str())) {
        return OsdState::ClaimLost(format!(
            "Deployment {} does not use PVC {missing}; it is left as it is, because replacing it could start an OSD on other devices: delete it to have it made again",
            deployment.name_any()
        ));
    }
    let status = deployment.status.as_ref();
    let condition = status.and_then(|status| {
        status.conditions.as_ref()?.iter().find(|one| one.type_ == "Available").cloned()
    });
    match condition {
        Some(found) if found.status == "True" => OsdState::Running,
        // It has been available before, or has had the time for it.
        Some(found)
            if status.and_then(|status| status.observed_generation).is_some()
                && has_run(deployment) =>
        {
            OsdState::NotReady(found.message.unwrap_or_else(|| "its pod is not ready".to_owned()))
        }
        _ => OsdState::Starting,
    }
}

fn has_run(deployment: &Deployment) -> bool {
    let conditions = deployment.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| {
        all.iter().any(|one| {
            one.type_ == "Progressing"
                && (one.reason.as_deref() == Some("NewReplicaSetAvailable")
                    || one.reason.as_deref() == Some("ProgressDeadlineExceeded"))
        })
    })
}

/// Where the volumes of an OSD can be used.
#[derive(Clone, Copy, Debug)]
pub enum Nodes<'a> {
    One(&'a Node),
    Several,
    /// The PV, or its node, is not known: it could be either of them.
    Unseen,
}

pub fn nodes_of<'a>(osd: &Osd<'_>, index: &Index<'a>) -> Nodes<'a> {
    let bound = osd.data().and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref());
    let Some(volume) = bound.and_then(|name| index.volume(name)) else { return Nodes::Unseen };
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    match affinity.and_then(|affinity| affinity.required.as_ref()) {
        Some(required) => index.nodes_of(required),
        None => Nodes::Several,
    }
}

/// Levels of the CRUSH map that a node is in, from the lowest; a level that repeats the value of a lower one is left out.
pub fn levels(node: &Node) -> Vec<(&'static str, String)> {
    const ROOK: [&str; 7] = ["chassis", "rack", "row", "pdu", "pod", "room", "datacenter"];
    let labels = node.labels();
    let rook = ROOK.iter().filter_map(|level| {
        Some((*level, labels.get(&format!("{}{level}", ceph::NODE_TOPOLOGY_PREFIX))?.clone()))
    });
    let zones = ["zone", "region"].into_iter().filter_map(|level| {
        Some((level, labels.get(&format!("topology.kubernetes.io/{level}"))?.clone()))
    });
    let mut found: Vec<(&'static str, String)> = Vec::new();
    for (level, value) in rook.chain(zones) {
        if !found.iter().any(|(_, known)| *known == value) {
            found.push((level, value));
        }
    }
    found
}
