//! Everything about one OSD: its objects, its state, what it waits for, what to do, the last result of its prepare Job.
//! Pure: the caller read it all.

use super::{OsdRow, advice, each, objects::Objects, pods, size, volume_name};
use crate::{
    events::{EventView, recent, sort},
    explain::device::Remedy,
    reader::Reader,
    text::{Field, size as size_text},
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Event, PersistentVolumeClaim, Pod},
};
use kube::{Resource, ResourceExt};
use quarry_core::device_set::{Observed, Osd, claims::template_part, pods::result_name};
use serde::Serialize;
use std::fmt;

/// How an OSD is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Its ID in Ceph.
    Id(u32),
    /// The PVC of its data device.
    Claim(String),
}

impl Which {
    /// `3` and `osd.3` are IDs, everything else is the name of a PVC.
    pub fn parse(text: &str) -> Self {
        let number = text.strip_prefix("osd.").unwrap_or(text).parse();
        number.map_or_else(|_| Which::Claim(text.to_owned()), Which::Id)
    }

    pub fn is(&self, row: &OsdRow) -> bool {
        match self {
            Which::Id(id) => row.id == Some(*id),
            Which::Claim(name) => row.pvc.as_ref() == Some(name),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Id(id) => write!(f, "osd.{id}"),
            Which::Claim(name) => write!(f, "OSD of PVC {name}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OsdExplanation {
    #[serde(flatten)]
    pub row: OsdRow,
    /// PVCs, prepare Job, Deployment and pods, each with its state.
    pub objects: Vec<Field>,
    /// The last result of the prepare Job.
    pub result: ResultView,
    /// `None`: nothing went wrong.
    pub problem: Option<String>,
    /// `None`: it waits for nothing.
    pub waits_for: Option<String>,
    /// Empty when there is nothing to do.
    pub remedies: Vec<Remedy>,
    pub events: Vec<EventView>,
    /// Objects whose Events belong to it: kind, name and UID.
    #[serde(skip)]
    pub subjects: Vec<Subject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: String,
    pub name: String,
    pub uid: Option<String>,
}

/// What a prepare run reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum ResultView {
    /// There is none, or it cannot be read any more.
    None,
    Succeeded {
        id: u32,
        uuid: String,
        location: String,
        device_class: String,
        /// The ConfigMap that keeps it; `None`: only the pod has it.
        recorded: Option<String>,
    },
    Failed {
        reason: String,
        message: String,
        /// Trying again ends the same way.
        is_refusal: bool,
    },
}

/// Every OSD of the namespace that is named so: more than one if two claim the same ID.
pub fn find(objects: &Objects, namespace: &str, which: &Which) -> Vec<OsdExplanation> {
    let mut found = Vec::new();
    for cluster in objects.clusters.values() {
        if cluster.namespace().as_deref() != Some(namespace) {
            continue;
        }
        let observed = objects.observed(cluster);
        let matching = each(&observed, |osd| {
            let row = OsdRow::new(&observed, osd);
            which.is(&row).then(|| OsdExplanation::new(&observed, osd, row))
        });
        found.extend(matching.into_iter().flatten());
    }
    found
}

impl OsdExplanation {
    fn new(observed: &Observed, osd: &Osd<'_>, row: OsdRow) -> Self {
        OsdExplanation {
            row,
            objects: objects(observed, osd),
            result: result(observed, osd),
            problem: advice::problem(observed, osd),
            waits_for: advice::waits_for(observed, osd),
            remedies: advice::remedies(observed, osd),
            events: Vec::new(),
            subjects: subjects(observed, osd),
        }
    }

    /// PersistentVolumes of its PVCs, which `Objects` does not list.
    pub fn volumes(&self, objects: &Objects) -> Vec<String> {
        let claims = self.subjects.iter().filter(|one| one.kind == "PersistentVolumeClaim");
        claims
            .filter_map(|one| {
                let key = (self.row.namespace.clone(), one.name.clone());
                volume_name(objects.claims.get(&key)?).map(str::to_owned)
            })
            .collect()
    }

    pub fn with_events(mut self, mut events: Vec<Event>) -> Self {
        sort(&mut events);
        // They are of several objects: each line names its own.
        for event in &mut events {
            let object = &event.involved_object;
            let (kind, name) = (object.kind.as_deref(), object.name.as_deref());
            let text = event.message.take().unwrap_or_default();
            event.message =
                Some(format!("{} {}: {text}", kind.unwrap_or_default(), name.unwrap_or_default()));
        }
        self.events = recent(&events);
        self
    }
}

/// The Events of all its objects.
pub async fn read_events<R: Reader>(
    reader: &R,
    explanation: &OsdExplanation,
) -> Result<Vec<Event>, R::Error> {
    let namespace = &explanation.row.namespace;
    let requests = explanation.subjects.iter().map(|one| {
        crate::events::read_in(reader, namespace, &one.kind, &one.name, one.uid.as_ref())
    });
    Ok(futures::future::try_join_all(requests).await?.into_iter().flatten().collect())
}

fn subjects(observed: &Observed, osd: &Osd<'_>) -> Vec<Subject> {
    fn subject<K: Resource<DynamicType = ()>>(object: &K) -> Subject {
        Subject {
            kind: K::kind(&()).into_owned(),
            name: object.name_any(),
            uid: object.meta().uid.clone(),
        }
    }
    let mut found: Vec<Subject> = osd.claims.0.values().map(|claim| subject(*claim)).collect();
    found.extend(osd.job.map(subject));
    found.extend(osd.deployment.map(subject));
    // The newest of each: a Job that was tried often has many.
    found.extend(pods(observed, osd).into_iter().take(2).map(subject));
    found
}

fn objects(observed: &Observed, osd: &Osd<'_>) -> Vec<Field> {
    let mut fields = Vec::new();
    for (at, role) in osd.roles.iter().enumerate() {
        let text = match osd.claims.0.get(&at) {
            Some(claim) => claim_text(observed, claim),
            None => format!("none for template {}", template_part(osd.set, at, *role)),
        };
        fields.push(Field::new(
            match role.as_str() {
                "metadata" => "PVC (metadata)",
                "wal" => "PVC (wal)",
                _ => "PVC (data)",
            },
            text,
        ));
    }
    let none = || "none".to_owned();
    fields.push(Field::new("prepare Job", osd.job.map_or_else(none, job_text)));
    fields.push(Field::new("Deployment", osd.deployment.map_or_else(none, deployment_text)));
    fields.extend(
        pods(observed, osd).into_iter().take(3).map(|pod| Field::new("Pod", pod_text(pod))),
    );
    fields
}

fn claim_text(observed: &Observed, claim: &PersistentVolumeClaim) -> String {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let spec = claim.spec.as_ref();
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or("none");
    let mut words = vec![phase.unwrap_or("Pending").to_owned()];
    if let Some(volume) = volume_name(claim) {
        let bytes = size(claim).map_or_else(String::new, |bytes| format!(", {}", size_text(bytes)));
        words.push(format!("PersistentVolume {volume}{bytes}"));
        let known = observed.volumes.iter().find(|one| one.name_any() == volume);
        let path = known.and_then(|one| Some(one.spec.as_ref()?.local.as_ref()?.path.as_str()));
        words.extend(path.map(|path| format!("path {path}")));
    }
    words.push(format!("StorageClass {class}"));
    if claim.metadata.deletion_timestamp.is_some() {
        words.push("being deleted".to_owned());
    }
    format!("{}: {}", claim.name_any(), words.join(", "))
}

fn job_text(job: &Job) -> String {
    let status = job.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ended = conditions.and_then(|all| {
        let done = |kind: &str| kind == "Complete" || kind == "Failed";
        all.iter().find(|one| one.status == "True" && done(&one.type_))
    });
    let failed = status.and_then(|status| status.failed).unwrap_or_default();
    let state = match ended {
        Some(one) => match one.message.as_deref().filter(|text| !text.is_empty()) {
            Some(message) if one.type_ == "Failed" => format!("Failed ({message})"),
            _ => one.type_.clone(),
        },
        None => "Running".to_owned(),
    };
    let failed = match failed {
        0 => String::new(),
        1 => ", 1 pod has failed".to_owned(),
        more => format!(", {more} pods have failed"),
    };
    format!("{}: {state}{failed}", job.name_any())
}

fn deployment_text(deployment: &Deployment) -> String {
    let status = deployment.status.as_ref();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = status.and_then(|status| status.available_replicas).unwrap_or_default();
    format!("{}: {available} of {wanted} available", deployment.name_any())
}

fn pod_text(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let node = node.map_or_else(|| "no node yet".to_owned(), |node| format!("node {node}"));
    let restarts: i32 = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .map(|one| one.restart_count)
        .sum();
    let restarts = if restarts > 0 { format!(", {restarts} restarts") } else { String::new() };
    format!("{}: {}, {node}{restarts}", pod.name_any(), phase.unwrap_or("Unknown"))
}

fn result(observed: &Observed, osd: &Osd<'_>) -> ResultView {
    match &osd.result {
        None => ResultView::None,
        Some(Ok(prepared)) => {
            let name = result_name(osd.data_claim());
            let is_recorded = observed.results.iter().any(|one| one.name_any() == name);
            ResultView::Succeeded {
                id: prepared.id,
                uuid: prepared.uuid.to_string(),
                location: prepared.location.clone(),
                device_class: prepared.device_class.clone(),
                recorded: is_recorded.then_some(name),
            }
        }
        Some(Err(failed)) => ResultView::Failed {
            reason: failed.reason.clone(),
            message: failed.message.clone(),
            is_refusal: failed.is_refusal,
        },
    }
}
