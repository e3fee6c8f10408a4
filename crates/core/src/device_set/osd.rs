//! One OSD of a device set: what exists of it, and in which state it is.
//!
//! Computed from the objects alone, the same for the planner and for people (`quarry osds`). Next to read: `plan.rs`.

use super::{
    Observed,
    claims::{self, Claims},
    pods,
    provider::{Failed, Prepared, Provider},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Node, PersistentVolumeClaim, Pod},
};
use kube::ResourceExt;
use quarry_api::{
    ceph_cluster::{DeviceSet, TemplateRole},
    names::ceph,
};
use serde::Serialize;

/// The devices of one OSD, and what was made of them.
pub struct Osd<'a> {
    pub set: &'a DeviceSet,
    pub index: u32,
    /// Of each template.
    pub roles: Vec<TemplateRole>,
    pub claims: Claims<'a>,
    pub job: Option<&'a Job>,
    pub deployment: Option<&'a Deployment>,
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
    let Ok(roles) = set.roles() else { return Vec::new() };
    let found = claims::of_set(observed, set);
    found
        .into_iter()
        .map(|(index, claims)| of(observed, provider, set, &roles, index, claims))
        .collect()
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
        result: None,
        unrecorded: None,
        state: OsdState::New,
    }
}

fn of<'a>(
    observed: &'a Observed,
    provider: &dyn Provider,
    set: &'a DeviceSet,
    roles: &[TemplateRole],
    index: u32,
    claims: Claims<'a>,
) -> Osd<'a> {
    let mut osd = Osd { claims, ..new(set, roles, index) };
    let claim = osd.data_claim();
    let named = |labels: &std::collections::BTreeMap<String, String>| {
        let by_claim =
            labels.get(ceph::PVC_LABEL).is_some_and(|one| !claim.is_empty() && one == claim);
        let by_index = labels.get(ceph::DEVICE_SET_LABEL) == Some(&set.name)
            && labels.get(ceph::SET_INDEX_LABEL).is_some_and(|one| *one == index.to_string());
        by_claim || by_index
    };
    osd.job = observed.jobs.iter().find(|job| named(job.labels()));
    osd.deployment = observed.deployments.iter().find(|one| named(one.labels()));
    read_result(&mut osd, observed, provider);
    osd.state = state(&osd, observed);
    osd
}

/// Of the Job's newest pod that has ended, else what was recorded of an earlier one.
fn read_result(osd: &mut Osd<'_>, observed: &Observed, provider: &dyn Provider) {
    let recorded =
        observed.results.iter().find(|one| one.name_any() == pods::result_name(osd.data_claim()));
    let recorded = recorded.and_then(|one| one.data.as_ref()?.get("status").cloned());
    let text = osd.job.and_then(|job| {
        let ended = observed.pods.iter().filter(|pod| is_of_job(pod, job)).filter_map(|pod| {
            let text = termination(pod)?;
            Some((pod.metadata.creation_timestamp.as_ref().map(|time| time.0), text))
        });
        ended.max_by_key(|(time, _)| *time).map(|(_, text)| text)
    });
    if let Some(text) = &text
        && provider.parse_result(text).is_ok()
        && recorded.as_ref() != Some(text)
    {
        osd.unrecorded = Some(text.clone());
    }
    // A success that was recorded stays one.
    let known = recorded.as_deref().map(|text| provider.parse_result(text));
    let known =
        known.filter(|known| known.as_ref().is_ok_and(|one| one.uuid.as_str() == osd.data_uid()));
    osd.result = text
        .as_deref()
        .map(|text| provider.parse_result(text))
        .filter(|found| found.is_ok() || known.is_none());
    osd.result = osd.result.take().or(known);
}

fn is_of_job(pod: &Pod, job: &Job) -> bool {
    pod.owner_references().iter().any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
}

fn termination(pod: &Pod) -> Option<String> {
    let all = pod.status.as_ref()?.container_statuses.as_ref()?;
    let ended = all.iter().find_map(|one| one.state.as_ref()?.terminated.as_ref())?;
    ended.message.clone().filter(|text| !text.trim().is_empty())
}

fn state(osd: &Osd<'_>, observed: &Observed) -> OsdState {
    let missing: Vec<String> = (0..osd.roles.len())
        .filter(|at| !osd.claims.0.contains_key(at))
        .map(|at| {
            format!("{} ({})", claims::template_part(osd.set, at, osd.roles[at]), osd.roles[at])
        })
        .collect();
    let begun = osd.job.is_some() || osd.deployment.is_some() || osd.result.is_some();
    if !missing.is_empty() {
        // A PVC is made with its data PVC first: others without it are what a lost one has left.
        let lost = begun || osd.data().is_none() && !osd.claims.0.is_empty();
        return match lost {
            false => OsdState::New,
            true => OsdState::ClaimLost(format!(
                "the PVC of {} is gone; its data cannot be recreated: remove the OSD from Ceph and delete its Deployment and other PVCs, then a new OSD is made",
                missing.join(" and ")
            )),
        };
    }
    if let Some(deployment) = osd.deployment {
        return deployed(osd, deployment);
    }
    match &osd.result {
        Some(Ok(prepared)) if prepared.uuid.as_str() != osd.data_uid() => {
            OsdState::ClaimLost(format!(
                "osd.{} was prepared on another PVC of this name; delete ConfigMap {} to prepare this one",
                prepared.id,
                pods::result_name(osd.data_claim())
            ))
        }
        Some(Ok(prepared)) => taken(osd, observed, prepared).unwrap_or(OsdState::Prepared),
        found => not_prepared(osd, observed, found.as_ref().and_then(|one| one.as_ref().err())),
    }
}

/// Another OSD's Deployment has the name that this one would get.
fn taken(osd: &Osd<'_>, observed: &Observed, prepared: &Prepared) -> Option<OsdState> {
    let name = pods::deployment_name(prepared.id);
    let other = observed.deployments.iter().find(|one| one.name_any() == name)?;
    let of = other.labels().get(ceph::PVC_LABEL).map_or("no PVC", String::as_str);
    Some(OsdState::Conflict(format!(
        "Deployment {name} exists and uses {of}, not {}; two OSDs cannot have one ID: check which of them Ceph knows, and remove the other",
        osd.data_claim()
    )))
}

fn not_prepared(osd: &Osd<'_>, observed: &Observed, failed: Option<&Failed>) -> OsdState {
    let Some(job) = osd.job else { return OsdState::Unprepared };
    let has = |kind: &str| {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions
            .is_some_and(|all| all.iter().any(|one| one.type_ == kind && one.status == "True"))
    };
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
    if let Some(waiting) = unscheduled(job, observed) {
        return OsdState::Unscheduled(waiting);
    }
    match failed {
        Some(_) => OsdState::PrepareFailed(text("")),
        None => OsdState::Preparing,
    }
}

/// What the scheduler says of the Job's pod, if it has found no node.
fn unscheduled(job: &Job, observed: &Observed) -> Option<String> {
    let mut pods = observed.pods.iter().filter(|pod| is_of_job(pod, job));
    pods.find_map(|pod| {
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

/// The node that the volumes of an OSD are on. `None`: they can be used on several.
pub fn node_of<'a>(osd: &Osd<'_>, observed: &'a Observed) -> Option<&'a Node> {
    let name = osd.data()?.spec.as_ref()?.volume_name.as_deref()?;
    let volume = observed.volumes.iter().find(|one| one.name_any() == name)?;
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let mut fitting =
        observed.nodes.iter().filter(|node| crate::node_selector::selects(Some(required), node));
    match (fitting.next(), fitting.next()) {
        (Some(node), None) => Some(node.as_ref()),
        _ => None,
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
