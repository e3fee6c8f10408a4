//! Nodes without a machine: the real scheduler binds their PersistentVolumes, and pods end as a test says.

use quarry_tests::{
    ceph::disks::local_class,
    kwok::{Kwok, end_pod},
    lab::{apply, get, kubectl, try_run, until},
};
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "simulated";

struct Tidy;

impl Drop for Tidy {
    fn drop(&mut self) {
        try_run("kubectl", &["delete", "namespace", NAMESPACE, "--timeout=60s"], None);
        let label = "quarry.dev/lab-class=simulated";
        try_run("kubectl", &["delete", "pv", "-l", label, "--timeout=30s"], None);
        try_run("kubectl", &["delete", "storageclass", "simulated"], None);
    }
}

fn job(name: &str, zone: &str) -> Value {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let pvc = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "simulated", "volumeMode": "Block",
            "resources": {"requests": {"storage": "100Mi"}},
        },
    });
    let container = json!({
        "name": "prepare", "image": "lab.local/shell:1", "imagePullPolicy": "Never",
        "volumeDevices": [{"name": "data", "devicePath": "/dev/data"}],
    });
    let pod = json!({
        "restartPolicy": "Never", "containers": [container],
        "nodeSelector": {"topology.kubernetes.io/zone": zone},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
    });
    let spec = json!({"template": {"spec": pod}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
    json!({"apiVersion": "v1", "kind": "List", "items": [pvc, job]})
}

fn pod_of(job: &str) -> Option<Value> {
    let pods = get(&["-n", NAMESPACE, "pods", "-l", &format!("job-name={job}")])?;
    pods["items"].as_array()?.first().cloned()
}

fn running(job: &str) -> Value {
    until(&format!("the pod of {job} runs"), LIMIT, || match pod_of(job) {
        Some(pod) if pod["status"]["phase"] == "Running" => Ok(pod),
        other => Err(json!(other).to_string()),
    })
}

#[test]
fn jobs_on_simulated_nodes_end_or_hang() {
    let kwok = Kwok::start(&[("sim-a1", "a"), ("sim-a2", "a"), ("sim-b1", "b")]);
    let _tidy = Tidy;
    kubectl(&["create", "namespace", NAMESPACE]);
    local_class("simulated");
    kwok.block_pvs("simulated", 1, 200);
    apply(&job("ends", "b").to_string());
    apply(&job("hangs", "a").to_string());
    let (ends, hangs) = (running("ends"), running("hangs"));
    assert_eq!(ends["spec"]["nodeName"], "sim-b1", "{ends}");
    assert!(hangs["spec"]["nodeName"].as_str().unwrap().starts_with("sim-a"), "{hangs}");
    let pvc = get(&["-n", NAMESPACE, "pvc", "ends"]).unwrap();
    assert_eq!(pvc["spec"]["volumeName"], "simulated-sim-b1-0", "{pvc}");

    let result = r#"{"id":7}"#;
    end_pod(NAMESPACE, ends["metadata"]["name"].as_str().unwrap(), result);
    until("the Job is complete", LIMIT, || {
        let job = get(&["-n", NAMESPACE, "job", "ends"]).unwrap_or_default();
        if job["status"]["succeeded"] == 1 { Ok(()) } else { Err(job["status"].to_string()) }
    });
    let ended = pod_of("ends").unwrap();
    let state = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(state["message"], result, "{ended}");
    assert_eq!(pod_of("hangs").unwrap()["status"]["phase"], "Running");
}
