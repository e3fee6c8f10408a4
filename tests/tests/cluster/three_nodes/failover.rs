//! The network of the leading operator's node is cut while a job runs: the other operator takes
//! over, and nothing is done twice, neither then nor when the first one is back.

use quarry_tests::{
    lab::{apply, get, kubectl, phase_is, quarry, text, until, wait_deleted},
    nodes::{
        CutNetwork, LIMIT, NAMESPACE, StoppedAgent, agents_ready, directory, installed, jobs_of,
        leader, other_nodes,
    },
};
use serde_json::Value;

fn volume(name: &str, node: &str) {
    apply(&format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: failover}}\nprovisioner: kubernetes.io/no-provisioner\nparameters: {{fsType: ext4}}\n---\n\
         apiVersion: storage.metalk8s.scality.com/v1alpha1\nkind: Volume\nmetadata: {{name: {name}}}\nspec: {{nodeName: {node}, storageClassName: failover, sparseLoopDevice: {{size: 64Mi}}}}\n"
    ));
}

/// What the ledger of a node has about a Volume.
fn ledger(node: &str, uid: &str) -> Vec<Value> {
    let data = directory().join(node).join("fs/quarry");
    let output = quarry(&["ledger", "--data-dir", &data.to_string_lossy(), "-o", "json"]);
    let all: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let all = all.as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|entry| entry.to_string().contains(uid)).collect()
}

// invariant: 8, 10
#[test]
fn operator_takes_over_when_the_leaders_network_is_cut() {
    installed();
    let (first, cut_node) = leader();
    let node = other_nodes()[0];
    let agent = StoppedAgent::at(node, "publish-draft.before");
    volume("before-cut", node);
    agent.reached();
    let network = CutNetwork::of(&cut_node);
    volume("after-cut", node);
    let second = until("another operator leads", LIMIT, || {
        let lease = get(&["-n", NAMESPACE, "lease", "quarry-operator"]).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        if holder.is_empty() || holder == first {
            Err(lease["spec"].to_string())
        } else {
            Ok(holder)
        }
    });
    agent.resume();
    let names = ["before-cut", "after-cut"];
    let made = names.map(|name| phase_is(name, "Available"));
    let pvs = names.map(|name| get(&["pv", name]).unwrap_or_default()["metadata"]["uid"].clone());
    drop(network);
    until(&format!("node {cut_node} is Ready"), LIMIT, || {
        let node = get(&["node", &cut_node]).unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
        if conditions.iter().any(ready) { Ok(()) } else { Err(node["status"].to_string()) }
    });
    agents_ready();
    assert_eq!(leader().0, second, "the first one does not take the Lease back");
    for ((name, volume), pv) in names.iter().zip(&made).zip(&pvs) {
        let uid = volume["metadata"]["uid"].as_str().unwrap_or_default();
        let jobs = jobs_of(uid);
        assert_eq!(jobs.len(), 1, "{name}: {jobs:?}");
        let entries = ledger(node, uid);
        assert_eq!(entries.len(), 2, "{name}: one intent and one outcome: {entries:?}");
        let now = get(&["pv", name]).unwrap_or_default();
        assert_eq!(now["metadata"]["uid"], *pv, "{name}: the PersistentVolume was created once");
        kubectl(&["delete", "volume", name, "--wait=false"]);
    }
    for name in names {
        wait_deleted("volume", name);
    }
}
