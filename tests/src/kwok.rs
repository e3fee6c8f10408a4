//! Nodes without a machine in the cluster of the lab: kwok plays their kubelet, for tests of
//! scheduling and of many pods. Nothing runs in those pods, so they prove nothing about an OSD.
//!
//! A pod on such a node runs at once. It ends when a test gives it a result (`end_pod`), as its
//! termination message; a pod of a Job without one hangs. What kwok does: `tests/fixtures/kwok.yaml`.

use crate::{
    ceph::disks::block_pv,
    lab::{apply, get, kubectl, program, repository, try_run, until},
};
use serde_json::{Value, json};
use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(60);
const LABEL: &str = "quarry.dev/lab-simulated=true";
const RESULT: &str = "quarry.dev/lab-result";

/// On drop kwok ends, and the nodes and their pods are deleted.
pub struct Kwok {
    process: Child,
    pub nodes: Vec<String>,
}

impl Kwok {
    /// Starts nodes with these names and zones, and waits until they are ready. They have no taints:
    /// every pod of the cluster that fits can be scheduled there. So change the operator before, not
    /// after: its new pod could be one without a process.
    pub fn start(nodes: &[(&str, &str)]) -> Kwok {
        let log = crate::ceph::directory().join("log/kwok.log");
        let log = std::fs::File::create(log).expect("the lab's directory can be written");
        let errors = log.try_clone().expect("an open file can be opened twice");
        let process = Command::new(program("kwok", "kwok"))
            .arg("--kubeconfig")
            .arg(std::env::var("KUBECONFIG").expect("kube-lab exec sets KUBECONFIG"))
            .arg("--config")
            .arg(repository().join("tests/fixtures/kwok.yaml"))
            .args(["--manage-nodes-with-label-selector", LABEL])
            .args(["--node-lease-duration-seconds", "40", "--server-address", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("kwok can be started");
        let kwok = Kwok { process, nodes: nodes.iter().map(|(name, _)| (*name).into()).collect() };
        let objects: Vec<Value> = nodes.iter().map(|(name, zone)| node(name, zone)).collect();
        apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
        for (name, _) in nodes {
            until(&format!("node {name} is ready"), LIMIT, || {
                let node = get(&["node", name]).unwrap_or_default();
                let conditions = node["status"]["conditions"].as_array().cloned();
                let ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
                let tainted = node["spec"]["taints"].as_array().is_some_and(|all| !all.is_empty());
                let is_ready = conditions.is_some_and(|all| all.iter().any(ready)) && !tainted;
                if is_ready { Ok(()) } else { Err(node.to_string()) }
            });
        }
        kwok
    }

    /// As many Block PersistentVolumes of a class on each node.
    pub fn block_pvs(&self, class: &str, per_node: usize, mebibytes: u64) {
        for node in &self.nodes {
            for index in 0..per_node {
                let path = format!("/dev/disk/by-id/{class}-{index}");
                block_pv(&format!("{class}-{node}-{index}"), class, node, &path, mebibytes);
            }
        }
    }
}

fn node(name: &str, zone: &str) -> Value {
    let (label, value) = LABEL.split_once('=').expect("the label has a value");
    let labels = json!({
        label: value, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "lab",
        "failure-domain.beta.kubernetes.io/zone": zone,
    });
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// Ends a running pod with success and this termination message.
pub fn end_pod(namespace: &str, pod: &str, result: &str) {
    let annotation = format!("{RESULT}={result}");
    kubectl(&["-n", namespace, "annotate", "--overwrite", "pod", pod, &annotation]);
}

impl Drop for Kwok {
    fn drop(&mut self) {
        // Nodes first: a DaemonSet would replace its pods.
        try_run("kubectl", &["delete", "nodes", "-l", LABEL, "--timeout=30s"], None);
        for node in &self.nodes {
            let there = format!("spec.nodeName={node}");
            let pods = ["delete", "pods", "--all-namespaces", "--field-selector", &there];
            try_run("kubectl", &[&pods[..], &["--force", "--grace-period=0"]].concat(), None);
        }
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("failed to stop kwok: {error}");
        }
    }
}
