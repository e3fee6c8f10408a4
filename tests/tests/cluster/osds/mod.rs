//! OSDs of device sets, with an operator that serves CephClusters.
//!
//! `real.rs`: a real Ceph and the real kubelet. `simulated.rs`: many nodes without a machine, which show where pods are
//! scheduled and how many writes it takes, and nothing about an OSD.

mod real;
mod simulated;

use quarry_tests::{
    ceph::Ceph,
    lab::{NAMESPACE, apply, get, installed, kubectl, repository, try_run, wait_condition},
    volume_sets::ShortSettlingTime,
};
use serde_json::{Value, json};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(150);
const CONDITION: &str = "quarry.dev/DeviceSetsReady";

/// Tests that use `DeviceSets`. The operator is restarted before the first and after the last of them.
const TESTS: usize = 4;
static OPERATOR: Mutex<(usize, Option<ShortSettlingTime>)> = Mutex::new((0, None));

fn binding() -> String {
    repository().join("deploy/ceph/binding.yaml").to_string_lossy().into_owned()
}

/// The rights of device sets, and an operator that uses them. On drop the namespaces and the OSDs are removed.
struct DeviceSets {
    namespaces: Vec<String>,
}

impl DeviceSets {
    fn on(namespaces: &[&str]) -> Self {
        installed();
        let mut operator = OPERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        operator.1.get_or_insert_with(|| {
            kubectl(&["apply", "-f", &binding()]);
            ShortSettlingTime::with(&["--device-sets"])
        });
        DeviceSets { namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect() }
    }
}

impl Drop for DeviceSets {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            try_run("kubectl", &["-n", namespace, "delete", "cephclusters", "--all"], None);
        }
        // At once: each waits for its pods.
        let names = self.namespaces.iter().map(String::as_str);
        let delete = ["delete", "namespace", "--timeout=90s"];
        try_run("kubectl", &delete.into_iter().chain(names).collect::<Vec<_>>(), None);
        let sets = ["-n", NAMESPACE, "delete", "localvolumesets", "--all", "--timeout=60s"];
        try_run("kubectl", &sets, None);
        let mut operator = OPERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        operator.0 += 1;
        if operator.0 == TESTS {
            operator.1 = None;
            try_run("kubectl", &["delete", "-f", &binding()], None);
        }
        let ceph = Ceph::shared();
        let listed = ceph.try_ceph(&["osd", "ls"]).stdout;
        let ids: Vec<u32> = serde_json::from_slice(&listed).unwrap_or_default();
        for id in ids {
            let purge = ["osd", "purge", &id.to_string(), "--force", "--yes-i-really-mean-it"];
            ceph.try_ceph(&purge);
        }
    }
}

fn cluster(namespace: &str, image: &str, storage: Value) {
    let cluster = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": {"name": "cluster1", "namespace": namespace},
        "spec": {
            "cephVersion": {"image": image}, "dataDirHostPath": "/var/lib/rook", "storage": storage,
        },
    });
    apply(&cluster.to_string());
}

fn template(name: &str, class: &str) -> Value {
    let spec = json!({"resources": {"requests": {"storage": "1"}}, "storageClassName": class});
    match name {
        "" => json!({"spec": spec}),
        name => json!({"metadata": {"name": name}, "spec": spec}),
    }
}

#[track_caller]
fn reports(namespace: &str, status: &str, words: &str) -> Value {
    wait_condition(&[namespace, "cephcluster", "cluster1"], CONDITION, status, words, LIMIT)
}

fn list(namespace: &str, kind: &str, selector: &str) -> Vec<Value> {
    let mut arguments = vec!["-n", namespace, kind];
    if !selector.is_empty() {
        arguments.extend(["-l", selector]);
    }
    get(&arguments).and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
}
