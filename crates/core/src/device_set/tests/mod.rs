//! A modelled cluster: objects in, plan out, and what the cluster makes of it.

mod claims;
mod objects;
mod random;
mod states;

use super::{Access, Observed, Plan, Settings, Step, check, plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

const FSID: &str = "11111111-2222-4333-8444-555555555555";

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn set(name: &str, count: i64) -> Value {
    json!({"name": name, "count": count, "volumeClaimTemplates": [template("", "disks")]})
}

fn template(name: &str, class: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"storageClassName": class, "resources": {"requests": {"storage": "1"}}},
    })
}

struct World {
    seen: Observed,
    uids: u64,
    /// What Ceph has registered: an ID for each UUID.
    registered: BTreeMap<String, u32>,
}

impl World {
    fn new(sets: Value) -> Self {
        World::of(json!({"storage": {"storageClassDeviceSets": sets}}))
    }

    fn of(spec: Value) -> Self {
        let mut cluster = json!({
            "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
            "metadata": {"name": "c1", "namespace": "ceph", "uid": "cluster", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"cephVersion": {"image": "ceph/ceph:v19"}},
        });
        for (key, value) in spec.as_object().unwrap() {
            cluster["spec"][key] = value.clone();
        }
        let node = |name: &str| {
            Arc::new(from(json!({"metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z1",
            }}})))
        };
        World {
            seen: Observed {
                cluster: from(cluster),
                others: Vec::new(),
                rook: None,
                access: Ok(Access {
                    fsid: FSID.parse().unwrap(),
                    mon_host: "10.0.0.1".into(),
                    keyring_secret: "rook-ceph-admin-keyring".into(),
                    config_override: String::new(),
                }),
                claims: Vec::new(),
                volumes: Vec::new(),
                jobs: Vec::new(),
                pods: Vec::new(),
                results: Vec::new(),
                config: None,
                deployments: Vec::new(),
                classes: vec![from(json!({"metadata": {"name": "disks"}, "provisioner": "none"}))],
                nodes: vec![node("n1"), node("n2")],
                settings: Settings { image: "quarry".into(), image_pull_policy: "Always".into() },
            },
            uids: 0,
            registered: BTreeMap::new(),
        }
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012}", self.uids)
    }

    /// The plan, which the check must find nothing in.
    fn plan(&self) -> Plan {
        let plan = plan(&self.seen, now());
        assert_eq!(check(&self.seen, &plan), Vec::new(), "{plan:#?}");
        plan
    }

    fn steps(&self) -> Vec<&'static str> {
        self.plan().steps.iter().map(Step::name).collect()
    }

    /// What the condition says: status, reason, message.
    fn report(&mut self) -> (String, String, String) {
        self.apply(0);
        let status = self.seen.cluster.status.clone().unwrap_or_default();
        let found = status.condition(quarry_api::names::ceph::DEVICE_SETS_READY).cloned();
        found.map(|one| (one.status, one.reason, one.message)).unwrap_or_default()
    }

    fn message(&mut self) -> String {
        self.report().2
    }

    /// Carries out the first steps of a plan; the operator ends after them. The status is written in any case.
    fn apply(&mut self, first: usize) {
        let plan = self.plan();
        for step in plan.steps.into_iter().take(first) {
            match step {
                Step::CreateClaim(claim) => {
                    let mut claim = *claim;
                    claim.metadata.uid = Some(self.uid());
                    assert!(!self.seen.claims.iter().any(|one| one.name_any() == claim.name_any()));
                    self.seen.claims.push(claim);
                }
                Step::ApplyConfig(map) => self.seen.config = Some(*map),
                Step::CreateJob(job) => {
                    let mut job = *job;
                    job.metadata.uid = Some(self.uid());
                    assert!(!self.seen.jobs.iter().any(|one| one.name_any() == job.name_any()));
                    self.seen.jobs.push(job);
                }
                Step::DeleteJob { uid, .. } => self.delete_job(&uid),
                Step::RecordResult(map) => {
                    self.seen.results.retain(|one| one.name_any() != map.name_any());
                    self.seen.results.push(*map);
                }
                Step::CreateDeployment(made) => self.seen.deployments.push(*made),
            }
        }
        if let Some(status) = plan.status {
            self.seen.cluster.status = Some(*status);
        }
    }

    fn delete_job(&mut self, uid: &str) {
        self.seen.jobs.retain(|job| job.uid().as_deref() != Some(uid));
        self.seen.pods.retain(|pod| !pod.owner_references().iter().any(|owner| owner.uid == uid));
    }

    /// The scheduler chooses a node, and the PVCs of the Job are bound to local volumes there.
    fn bind(&mut self, job: usize) {
        let names = claims_of(&self.seen.jobs[job]);
        for claim in self.seen.claims.iter_mut().filter(|one| names.contains(&one.name_any())) {
            let name = format!("pv-{}", claim.name_any());
            let spec = claim.spec.as_mut().unwrap();
            if spec.volume_name.is_none() {
                spec.volume_name = Some(name.clone());
                self.seen.volumes.push(from(json!({
                    "metadata": {"name": name},
                    "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]},
                    ]}]}}},
                })));
            }
        }
    }

    /// A pod of the Job ends with this text.
    fn end_pod(&mut self, job: usize, text: &str) {
        let (owner, uid) = (self.seen.jobs[job].uid().unwrap(), self.uid());
        self.seen.pods.push(from(json!({
            "metadata": {
                "name": uid, "uid": uid, "creationTimestamp": format!("2026-01-01T00:{:02}:00Z", self.uids % 60),
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner}],
            },
            "status": {"containerStatuses": [{
                "name": "prepare", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "message": text}},
            }]},
        })));
    }

    fn job_is(&mut self, job: usize, condition: &str) {
        self.seen.jobs[job].status = Some(from(json!({"conditions": [
            {"type": condition, "status": "True", "lastTransitionTime": "2026-01-01T11:59:00Z"},
        ]})));
    }

    /// `quarry osd prepare` succeeds: the same UUID always gets the same ID.
    fn prepare(&mut self, job: usize) {
        self.bind(job);
        let claim = self.seen.jobs[job].labels()["ceph.rook.io/pvc"].clone();
        let found = self.seen.claims.iter().find(|one| one.name_any() == claim);
        let uuid = found.and_then(ResourceExt::uid).unwrap_or_default();
        let next = u32::try_from(self.registered.len()).unwrap();
        let id = *self.registered.entry(uuid.clone()).or_insert(next);
        self.end_pod(job, &completed(id, &uuid));
        self.job_is(job, "Complete");
    }

    fn refuse(&mut self, job: usize, reason: &str) {
        self.end_pod(job, &failed(reason));
        self.job_is(job, "Failed");
    }

    fn start(&mut self) {
        for deployment in &mut self.seen.deployments {
            deployment.status = Some(from(json!({"conditions": [
                {"type": "Available", "status": "True"},
            ]})));
        }
    }

    /// Until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.apply(usize::MAX);
            for job in 0..self.seen.jobs.len() {
                if self.seen.jobs[job].status.is_none() {
                    self.prepare(job);
                }
            }
            self.start();
        }
    }

    fn claim(&self, at: usize) -> &PersistentVolumeClaim {
        &self.seen.claims[at]
    }
}

fn completed(id: u32, uuid: &str) -> String {
    json!({"osds": [{"id": id, "uuid": uuid}], "status": "completed", "pvc-backed-osd": true})
        .to_string()
}

fn failed(reason: &str) -> String {
    json!({"status": "failed", "message": "the reason in words", "reason": reason}).to_string()
}

fn claims_of(job: &k8s_openapi::api::batch::v1::Job) -> Vec<String> {
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let volumes = pod.volumes.iter().flatten();
    volumes
        .filter_map(|one| Some(one.persistent_volume_claim.as_ref()?.claim_name.clone()))
        .collect()
}
