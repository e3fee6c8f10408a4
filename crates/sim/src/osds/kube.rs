//! The rest of a cluster, as far as OSDs need it: Job controller, scheduler with its binder, kubelet, Deployment controller.
//!
//! One act at a time, each a single write as the real ones make it, in their order.

use super::{machine::Machine, prepare::Prepare};
use crate::{
    admin_client::{AdminClient, Refused},
    kind::Kind,
    world::World,
};
use quarry_api::names::ceph;
use quarry_ceph::result::REFUSED;
use serde_json::{Value, json};
use std::{fmt, time::Duration};
use tokio::time::Instant;

pub enum Act {
    Create(Kind, Value),
    Patch(String, Value),
    /// A process has ended, and its pod is gone.
    Remove(String),
    /// The prepare process of a pod.
    Run(String, Box<Prepare>),
    Kill(String),
    /// The Deployment by its UID, the ID, and the PVs.
    StartOsd(String, u32, Vec<String>),
    StopOsd(String),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Create(kind, object) => {
                write!(f, "create {kind:?} {}", object["metadata"]["name"])
            }
            Act::Patch(path, changes) => write!(f, "patch {path} {changes}"),
            Act::Remove(path) => write!(f, "remove {path}"),
            Act::Run(pod, _) => write!(f, "run {pod}"),
            Act::Kill(pod) => write!(f, "kill {pod}"),
            Act::StartOsd(_, id, volumes) => write!(f, "start osd.{id} on {volumes:?}"),
            Act::StopOsd(deployment) => write!(f, "stop the OSD of Deployment {deployment}"),
        }
    }
}

/// What these controllers see.
pub struct Kube<'a> {
    pub world: &'a World,
    pub machine: &'a Machine,
    /// For conditions.
    pub time: String,
}

fn text<'v>(value: &'v Value, at: &str) -> &'v str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn is_true(object: &Value, kind: &str) -> bool {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().any(|one| one["type"] == kind && one["status"] == "True")
}

fn status(kind: Kind, object: &Value, changes: &Value) -> Act {
    Act::Patch(format!("{}/status", kind.object_path(name(object))), json!({"status": changes}))
}

/// Volume names of a pod, and the PVCs behind them.
fn claims_of(spec: &Value) -> Vec<(&str, &str)> {
    let all = spec["volumes"].as_array().into_iter().flatten();
    all.filter_map(|volume| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        Some((volume["name"].as_str()?, claim))
    })
    .collect()
}

impl<'a> Kube<'a> {
    /// The next thing that some controller would do; `None` at rest.
    pub fn next(&self) -> Option<Act> {
        self.ended()
            .or_else(|| self.world.all(Kind::PrepareJob).find_map(|job| self.job(job)))
            .or_else(|| self.world.all(Kind::Pod).find_map(|pod| self.schedule(pod)))
            .or_else(|| self.world.all(Kind::Pod).find_map(|pod| self.run(pod)))
            .or_else(|| self.world.all(Kind::Deployment).find_map(|one| self.deployment(one)))
    }

    /// The moments at which a kubelet ends a pod that takes too long.
    pub fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.machine.prepares.iter().filter_map(|(pod, run)| {
            let pod = self.world.get(Kind::Pod, pod)?;
            let limit = pod["spec"]["activeDeadlineSeconds"].as_u64()?;
            Some(run.since + Duration::from_secs(limit))
        })
    }

    /// What follows from a process that has ended, or from a pod that is deleted.
    fn ended(&self) -> Option<Act> {
        for pod in self.machine.prepares.keys() {
            let found = self.world.get(Kind::Pod, pod);
            if found.is_none_or(is_deleting) {
                return Some(Act::Kill(pod.clone()));
            }
        }
        for pod in self.world.all(Kind::Pod) {
            if is_deleting(pod) && !self.machine.prepares.contains_key(name(pod)) {
                let path = format!("{}?gracePeriodSeconds=0", Kind::Pod.object_path(name(pod)));
                return Some(Act::Remove(path));
            }
        }
        for deployment in self.machine.running.keys() {
            let mut all = self.world.all(Kind::Deployment);
            if !all.any(|one| one["metadata"]["uid"] == deployment.as_str()) {
                return Some(Act::StopOsd(deployment.clone()));
            }
        }
        let now = Instant::now();
        self.world.all(Kind::Pod).find_map(|pod| {
            if pod["status"]["phase"] != "Running" {
                return None;
            }
            if let Some(run) = self.machine.prepares.get(name(pod)) {
                let limit = pod["spec"]["activeDeadlineSeconds"].as_u64()?;
                let is_over = now >= run.since + Duration::from_secs(limit);
                return is_over.then(|| Act::Kill(name(pod).to_owned()));
            }
            let ended = self.machine.ended.get(name(pod));
            let (code, message) = match ended {
                Some(ended) => (ended.code, ended.message.as_deref()),
                None => (137, None),
            };
            let terminated = json!({"exitCode": code, "message": message, "finishedAt": self.time});
            let phase = if code == 0 { "Succeeded" } else { "Failed" };
            let container = json!({
                "name": "prepare", "image": "x", "imageID": "x", "ready": false, "restartCount": 0,
                "state": {"terminated": terminated},
            });
            Some(status(Kind::Pod, pod, &json!({"phase": phase, "containerStatuses": [container]})))
        })
    }

    fn job(&self, job: &Value) -> Option<Act> {
        if is_deleting(job) || is_true(job, "Complete") || is_true(job, "Failed") {
            return None;
        }
        let uid = text(job, "/metadata/uid");
        let pods: Vec<&Value> = self
            .world
            .all(Kind::Pod)
            .filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == uid)
            .collect();
        let in_phase =
            |phase: &str| pods.iter().filter(|pod| pod["status"]["phase"] == phase).count();
        let condition = |kind: &str, reason: &str| {
            let condition = json!({
                "type": kind, "status": "True", "reason": reason, "lastTransitionTime": self.time,
            });
            status(Kind::PrepareJob, job, &json!({"conditions": [condition]}))
        };
        if in_phase("Succeeded") > 0 {
            return Some(condition("Complete", "CompletionsReached"));
        }
        let refused = |pod: &&Value| {
            let code = pod.pointer("/status/containerStatuses/0/state/terminated/exitCode");
            code.and_then(Value::as_u64) == Some(u64::from(REFUSED))
        };
        let failed = in_phase("Failed");
        if pods.iter().any(refused) {
            return Some(condition("Failed", "PodFailurePolicy"));
        }
        if failed as u64 > job["spec"]["backoffLimit"].as_u64().unwrap_or(6) {
            return Some(condition("Failed", "BackoffLimitExceeded"));
        }
        if pods.len() > failed {
            return None;
        }
        let template = &job["spec"]["template"];
        // A name is not given twice, whatever became of the pods before.
        let short = &uid[uid.len().saturating_sub(5)..];
        let made = format!("{}-{short}-{failed}", name(job));
        Some(Act::Create(
            Kind::Pod,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": made, "labels": template["metadata"]["labels"],
                    "ownerReferences": [{
                        "apiVersion": "batch/v1", "kind": "Job", "name": name(job), "uid": uid,
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": template["spec"],
            }),
        ))
    }

    /// All volumes of a pod on one node, chosen when the first of them is bound.
    fn schedule(&self, pod: &Value) -> Option<Act> {
        if is_deleting(pod) || pod["spec"]["nodeName"].is_string() {
            return None;
        }
        let claims: Option<Vec<&Value>> = claims_of(&pod["spec"])
            .into_iter()
            .map(|(_, claim)| self.world.get(Kind::OsdClaim, claim))
            .collect();
        let claims = claims?;
        let volume_of = |claim: &Value| {
            let uid = &claim["metadata"]["uid"];
            self.world.all(Kind::Pv).find(|pv| pv["spec"]["claimRef"]["uid"] == *uid)
        };
        let bound: Vec<&Value> = claims.iter().filter_map(|claim| volume_of(claim)).collect();
        let Some(node) = bound.first().map(|pv| node_of(pv)).or_else(|| self.node_for(&claims))
        else {
            let is_said = pod["status"]["conditions"][0]["type"] == "PodScheduled";
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/2 nodes are available: no PersistentVolume to bind",
            });
            let said = || status(Kind::Pod, pod, &json!({"conditions": [condition]}));
            return (!is_said).then(said);
        };
        for claim in claims {
            let Some(pv) = volume_of(claim) else {
                let pv = self.free(claim, node)?;
                let claim_ref = json!({
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name(claim),
                    "namespace": text(claim, "/metadata/namespace"), "uid": text(claim, "/metadata/uid"),
                });
                let path = Kind::Pv.object_path(name(pv));
                return Some(Act::Patch(path, json!({"spec": {"claimRef": claim_ref}})));
            };
            if pv["status"]["phase"] != "Bound" {
                return Some(status(Kind::Pv, pv, &json!({"phase": "Bound"})));
            }
            if claim["spec"]["volumeName"] != pv["metadata"]["name"] {
                let path = Kind::OsdClaim.object_path(name(claim));
                return Some(Act::Patch(path, json!({"spec": {"volumeName": name(pv)}})));
            }
            if claim["status"]["phase"] != "Bound" {
                return Some(status(Kind::OsdClaim, claim, &json!({"phase": "Bound"})));
            }
        }
        let path = Kind::Pod.object_path(name(pod));
        Some(Act::Patch(path, json!({"spec": {"nodeName": node}})))
    }

    fn free(&self, claim: &Value, node: &str) -> Option<&'a Value> {
        self.world.all(Kind::Pv).find(|pv| {
            pv["spec"]["claimRef"].is_null()
                && pv["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
                && node_of(pv) == node
        })
    }

    /// The first that has a volume for each; two of one class are not in the stories.
    fn node_for(&self, claims: &[&Value]) -> Option<&'a str> {
        let mut nodes = self.world.all(Kind::Node).map(name);
        nodes.find(|node| claims.iter().all(|claim| self.free(claim, node).is_some()))
    }

    fn run(&self, pod: &Value) -> Option<Act> {
        let begun = pod["status"]["phase"].as_str().is_some_and(|phase| phase != "Pending");
        let known = name(pod);
        if is_deleting(pod) || begun || !pod["spec"]["nodeName"].is_string() {
            return None;
        }
        if self.machine.prepares.contains_key(known) || self.machine.ended.contains_key(known) {
            return Some(status(Kind::Pod, pod, &json!({"phase": "Running", "conditions": null})));
        }
        let run = Prepare::start(pod, |path| self.volume_behind(&pod["spec"], path))?;
        Some(Act::Run(known.to_owned(), Box::new(run)))
    }

    /// Path in the container, name of the volume, PVC, PV.
    fn volume_behind(&self, spec: &Value, path: &str) -> Option<String> {
        let devices = spec["containers"][0]["volumeDevices"].as_array()?;
        let device = devices.iter().find(|device| device["devicePath"] == path)?;
        let (_, claim) =
            claims_of(spec).into_iter().find(|(volume, _)| device["name"] == *volume)?;
        let claim = self.world.get(Kind::OsdClaim, claim)?;
        claim["spec"]["volumeName"].as_str().map(str::to_owned)
    }

    fn deployment(&self, deployment: &Value) -> Option<Act> {
        let labels = &deployment["metadata"]["labels"];
        if labels[ceph::APP_LABEL] != ceph::OSD_APP {
            return None;
        }
        let uid = text(deployment, "/metadata/uid");
        if self.machine.running.contains_key(uid) {
            if is_true(deployment, "Available") {
                return None;
            }
            let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "lastTransitionTime": self.time});
            let conditions = json!([
                condition("Available", "MinimumReplicasAvailable"),
                condition("Progressing", "NewReplicaSetAvailable"),
            ]);
            return Some(status(
                Kind::Deployment,
                deployment,
                &json!({"conditions": conditions, "readyReplicas": 1, "observedGeneration": 1}),
            ));
        }
        let spec = &deployment["spec"]["template"]["spec"];
        let volumes: Option<Vec<String>> = spec["containers"][0]["volumeDevices"]
            .as_array()?
            .iter()
            .map(|device| self.volume_behind(spec, device["devicePath"].as_str()?))
            .collect();
        let id = labels[ceph::OSD_ID_LABEL].as_str()?.parse().ok()?;
        Some(Act::StartOsd(uid.to_owned(), id, volumes?))
    }
}

fn node_of(pv: &Value) -> &str {
    let terms = "/spec/nodeAffinity/required/nodeSelectorTerms";
    text(pv, &format!("{terms}/0/matchExpressions/0/values/0"))
}

/// Carries it out; `Some` says what is wrong.
pub async fn carry_out(act: Act, raw: &AdminClient, machine: &mut Machine) -> Option<String> {
    let done = match act {
        Act::Create(kind, object) => raw.create(kind.path(), &object).await.map(drop),
        Act::Patch(path, changes) => raw.patch(&path, &changes).await.map(drop),
        Act::Remove(path) => raw.delete(&path).await.map(drop),
        Act::Run(pod, run) => {
            machine.prepares.insert(pod, *run);
            Ok(())
        }
        Act::Kill(pod) => {
            machine.prepares.remove(&pod);
            Ok(())
        }
        Act::StartOsd(deployment, id, volumes) => {
            machine.start_osd(&deployment, id, &volumes);
            Ok(())
        }
        Act::StopOsd(deployment) => {
            machine.running.remove(&deployment);
            Ok(())
        }
    };
    match done {
        Ok(()) | Err(Refused { code: 404 | 409, .. }) => None,
        Err(refused) => Some(format!("the cluster's own write was refused: {refused}")),
    }
}
