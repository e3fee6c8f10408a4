//! OSDs for tests, here and in crates that render views: one of every state.

#![expect(clippy::unwrap_used, reason = "a sample that cannot be read fails its test")]

use super::objects::{Objects, by_key};
use serde_json::{Value, json};

const NAMESPACE: &str = "rook-ceph";
const TIME: &str = "2026-01-01T00:00:00Z";

fn read<K: serde::de::DeserializeOwned>(objects: Vec<Value>) -> Vec<K> {
    objects.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect()
}

/// The UUID of an OSD.
fn uid(index: u32) -> String {
    format!("00000000-0000-4000-8000-{index:012}")
}

pub fn cluster(sets: &Value, condition: Option<(&str, &str)>) -> Value {
    let conditions = condition.map(|(reason, message)| {
        json!([{"type": "quarry.dev/DeviceSetsReady", "status": "False", "reason": reason, "message": message}])
    });
    json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": {"name": "store", "namespace": NAMESPACE, "uid": "c", "creationTimestamp": TIME},
        "spec": {"cephVersion": {"image": "ceph:v19"}, "storage": {"storageClassDeviceSets": sets}},
        "status": {"conditions": conditions.unwrap_or_else(|| json!([]))},
    })
}

pub fn set(name: &str, count: i64, templates: &[&str]) -> Value {
    let template = |name: &&str| json!({"metadata": {"name": name}, "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "10Gi"}}}});
    let templates: Vec<Value> = templates.iter().map(template).collect();
    json!({"name": name, "count": count, "volumeClaimTemplates": templates})
}

/// What a test adds to the objects of one OSD.
struct Sample {
    index: u32,
    /// `None`: the PVC is not bound.
    node: Option<&'static str>,
    job: Option<Value>,
    pod: Option<Value>,
    result: Option<Value>,
    deployment: Option<Value>,
}

impl Sample {
    fn new(index: u32) -> Self {
        let node = Some("worker-1");
        Sample { index, node, job: None, pod: None, result: None, deployment: None }
    }

    fn claim_name(&self) -> String {
        format!("fast-data-{}", self.index)
    }

    fn labels(&self) -> Value {
        json!({
            "ceph.rook.io/DeviceSet": "fast", "ceph.rook.io/setIndex": self.index.to_string(),
            "ceph.rook.io/pvc": self.claim_name(), "rook.io/cluster": "store",
        })
    }

    fn claim(&self) -> Value {
        let mut labels = self.labels();
        labels["ceph.rook.io/DeviceSetPVCId"] = self.claim_name().into();
        labels["quarry.dev/device-set-template"] = "0".into();
        let bound = self.node.is_some();
        json!({
            "metadata": {"name": self.claim_name(), "namespace": NAMESPACE, "uid": uid(self.index),
                "creationTimestamp": TIME, "labels": labels},
            "spec": {"storageClassName": "local", "volumeMode": "Block",
                "volumeName": bound.then(|| format!("local-pv-{}", self.index))},
            "status": {"phase": if bound { "Bound" } else { "Pending" },
                "capacity": bound.then(|| json!({"storage": "100Gi"}))},
        })
    }

    fn job(&self) -> Option<Value> {
        let mut labels = self.labels();
        labels["app"] = "rook-ceph-osd-prepare".into();
        Some(json!({
            "metadata": {"name": format!("rook-ceph-osd-prepare-{}", self.claim_name()), "namespace": NAMESPACE,
                "uid": format!("job-{}", self.index), "creationTimestamp": "2026-01-01T00:01:00Z", "labels": labels},
            "status": self.job.as_ref()?,
        }))
    }

    fn pod(&self) -> Option<Value> {
        let mut labels = self.labels();
        let of_job = self.deployment.is_none();
        labels["app"] = if of_job { "rook-ceph-osd-prepare" } else { "rook-ceph-osd" }.into();
        let owners = of_job.then(|| json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": format!("job-{}", self.index)}]));
        let start = if of_job { "rook-ceph-osd-prepare" } else { "rook-ceph-osd" };
        Some(json!({
            "metadata": {"name": format!("{start}-{}-x", self.claim_name()), "namespace": NAMESPACE,
                "uid": format!("pod-{}", self.index), "creationTimestamp": "2026-01-01T00:01:30Z",
                "labels": labels, "ownerReferences": owners},
            "spec": {"containers": [], "nodeName": self.node},
            "status": self.pod.as_ref()?,
        }))
    }

    fn result(&self) -> Option<Value> {
        let mut labels = self.labels();
        labels["app"] = "rook-ceph-osd".into();
        labels["status"] = "provisioning".into();
        Some(json!({
            "metadata": {"name": format!("rook-ceph-osd-{}-status", self.claim_name()), "namespace": NAMESPACE, "labels": labels},
            "data": {"status": self.result.as_ref()?.to_string()},
        }))
    }

    fn deployment(&self) -> Option<Value> {
        let mut labels = self.labels();
        labels["app"] = "rook-ceph-osd".into();
        labels["ceph-osd-id"] = self.index.to_string().into();
        labels["device-class"] = "ssd".into();
        let status = self.deployment.as_ref()?;
        let volumes =
            json!([{"name": "device0", "persistentVolumeClaim": {"claimName": self.claim_name()}}]);
        Some(json!({
            "metadata": {"name": format!("rook-ceph-osd-{}", self.index), "namespace": NAMESPACE,
                "uid": format!("deployment-{}", self.index), "creationTimestamp": "2026-01-01T00:02:00Z", "labels": labels},
            "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [], "volumes": volumes}}},
            "status": status,
        }))
    }
}

/// A result of a prepare run that has made an OSD.
fn completed(index: u32) -> Value {
    json!({
        "status": "completed", "pvc-backed-osd": true, "message": "",
        "osds": [{"id": index, "uuid": uid(index), "device-class": "ssd", "location": "root=default host=worker-1"}],
    })
}

fn failed(reason: &str, message: &str) -> Value {
    let text = json!({"status": "failed", "osds": [], "reason": reason, "message": message});
    json!({"phase": "Failed", "containerStatuses": [{
        "name": "prepare", "ready": false, "restartCount": 0, "image": "", "imageID": "",
        "state": {"terminated": {"exitCode": 3, "message": text.to_string()}},
    }]})
}

fn job_condition(kind: &str) -> Value {
    json!({"failed": i32::from(kind == "Failed"), "conditions": [{"type": kind, "status": "True",
        "lastTransitionTime": "2026-01-01T00:03:00Z", "message": if kind == "Failed" { "Container prepare exited with 3" } else { "" }}]})
}

fn available(status: &str, message: &str) -> Value {
    json!({"observedGeneration": 1, "availableReplicas": i32::from(status == "True"), "conditions": [
        {"type": "Available", "status": status, "message": message, "lastTransitionTime": "2026-01-01T00:04:00Z"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]})
}

/// OSDs 0 to 8 of set `fast`, in the order of `OsdState`; 9 and 10 do not exist yet.
pub fn objects() -> Objects {
    let running = json!({"phase": "Running", "containerStatuses": [
        {"name": "osd", "ready": true, "restartCount": 2, "image": "", "imageID": ""}]});
    let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "message": "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind."}]});
    let no_image = json!({"phase": "Pending", "containerStatuses": [{"name": "prepare", "ready": false,
        "restartCount": 0, "image": "", "imageID": "",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]});
    let not_blank = failed(
        "NotBlank",
        "/dev/rook/device0 contains an ext4 file system; wipe it if its data is not needed",
    );
    let unreachable =
        failed("MonitorsUnreachable", "no monitor of 10.0.0.9:6789 answered; check that they run");
    let samples = [
        Sample { deployment: Some(available("True", "")), pod: Some(running), ..Sample::new(0) },
        Sample {
            node: None,
            job: Some(json!({"active": 1})),
            pod: Some(unscheduled),
            ..Sample::new(1)
        },
        Sample { job: Some(json!({"active": 1})), pod: Some(no_image), ..Sample::new(2) },
        Sample { job: Some(job_condition("Failed")), pod: Some(not_blank), ..Sample::new(3) },
        Sample {
            job: Some(json!({"active": 1, "failed": 2})),
            pod: Some(unreachable),
            ..Sample::new(4)
        },
        Sample { job: Some(job_condition("Complete")), ..Sample::new(5) },
        Sample { result: Some(completed(6)), ..Sample::new(6) },
        Sample {
            result: Some(completed(7)),
            deployment: Some(json!({"observedGeneration": 1})),
            ..Sample::new(7)
        },
        Sample {
            deployment: Some(available("False", "Deployment does not have minimum availability.")),
            ..Sample::new(8)
        },
        Sample { node: None, ..Sample::new(9) },
    ];
    let sets = json!([set("fast", 12, &["data"])]);
    let of = |part: fn(&Sample) -> Option<Value>| samples.iter().filter_map(part).collect();
    Objects {
        clusters: by_key(read(vec![cluster(
            &sets,
            Some(("OSDsFailing", "OSDs: 1 Running, 1 Refused")),
        )])),
        claims: by_key(read(samples.iter().map(Sample::claim).collect())),
        jobs: by_key(read(of(Sample::job))),
        pods: by_key(read(of(Sample::pod))),
        results: by_key(read(of(Sample::result))),
        deployments: by_key(read(of(Sample::deployment))),
        volumes: Default::default(),
    }
}

/// A PVC that is gone, and what remains: the Deployment of OSD 0.
pub fn lost() -> Objects {
    let mut objects = objects();
    objects.claims.remove(&(NAMESPACE.to_owned(), "fast-data-0".to_owned()));
    objects
}

/// The cluster with other sets and another condition, and the same OSDs.
pub fn with_cluster(sets: &Value, condition: Option<(&str, &str)>) -> Objects {
    Objects { clusters: by_key(read(vec![cluster(sets, condition)])), ..objects() }
}
