//! Nodes without a machine: the real scheduler binds their PersistentVolumes, and pods end as a test says.

use quarry_tests::{
    ceph::disks::local_class,
    kwok::{Kwok, end_pod},
    lab::{apply, get, try_run, until},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const NAME: &str = "simulated";
const LABEL: &str = "quarry.dev/lab-test=simulated";

/// On drop: no Jobs, PVCs and PersistentVolumes of the test.
struct Tidy;

impl Drop for Tidy {
    fn drop(&mut self) {
        let volumes = format!("quarry.dev/lab-class={NAME}");
        for (kinds, label) in [("jobs,pvc", LABEL), ("pv", volumes.as_str())] {
            try_run("kubectl", &["delete", kinds, "-l", label, "--wait=false"], None);
        }
        try_run("kubectl", &["delete", "storageclass", NAME], None);
    }
}

fn job(name: &str, zone: &str) -> Value {
    let (label, value) = LABEL.split_once('=').expect("the label has a value");
    let metadata = json!({"name": name, "labels": {label: value}});
    let pvc = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": NAME, "volumeMode": "Block",
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
    let pods = get(&["pods", "-l", &format!("job-name={job}")])?;
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
    let begun = Instant::now();
    let kwok = Kwok::start(&[("sim-a1", "a"), ("sim-a2", "a"), ("sim-b1", "b")]);
    eprintln!("figure: three simulated nodes: {:.1} s", begun.elapsed().as_secs_f32());
    let _tidy = Tidy;
    local_class(NAME);
    kwok.block_pvs(NAME, 1, 200);
    apply(&job("ends", "b").to_string());
    apply(&job("hangs", "a").to_string());
    let (ends, hangs) = (running("ends"), running("hangs"));
    assert_eq!(ends["spec"]["nodeName"], "sim-b1", "{ends}");
    assert!(hangs["spec"]["nodeName"].as_str().unwrap().starts_with("sim-a"), "{hangs}");
    let pvc = get(&["pvc", "ends"]).unwrap();
    assert_eq!(pvc["spec"]["volumeName"], "simulated-sim-b1-0", "{pvc}");

    let result = r#"{"id":7}"#;
    end_pod("default", ends["metadata"]["name"].as_str().unwrap(), result);
    until("the Job is complete", LIMIT, || {
        let job = get(&["job", "ends"]).unwrap_or_default();
        if job["status"]["succeeded"] == 1 { Ok(()) } else { Err(job["status"].to_string()) }
    });
    let ended = pod_of("ends").unwrap();
    let state = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(state["message"], result, "{ended}");
    assert_eq!(pod_of("hangs").unwrap()["status"]["phase"], "Running");
}
