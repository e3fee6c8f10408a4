//! OSDs of device sets on the real kubelet and a real Ceph: from a LocalVolumeSet to an object that is written and read.
//!
//! The namespace of the cluster enforces Pod Security `restricted`.

use quarry_tests::{
    ceph::{
        Ceph, IMAGE,
        disks::{OSD_MEBIBYTES, set_disks},
    },
    lab::{apply, get, installed, kubectl, repository, try_run, until, wait_condition},
    volume_sets::ShortSettlingTime,
};
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(150);
const CONDITION: &str = "quarry.dev/DeviceSetsReady";

/// The rights of device sets, and an operator that uses them. Gone on drop.
struct DeviceSets {
    namespace: &'static str,
    _settings: ShortSettlingTime,
}

impl DeviceSets {
    fn on(namespace: &'static str) -> Self {
        installed();
        let binding = repository().join("deploy/ceph/binding.yaml");
        kubectl(&["apply", "-f", &binding.to_string_lossy()]);
        DeviceSets { namespace, _settings: ShortSettlingTime::with(&["--device-sets"]) }
    }
}

impl Drop for DeviceSets {
    fn drop(&mut self) {
        let namespace = ["delete", "namespace", self.namespace, "--timeout=90s"];
        let first = ["-n", self.namespace, "delete", "cephclusters", "--all", "--timeout=60s"];
        try_run("kubectl", &first, None);
        try_run("kubectl", &namespace, None);
        let binding = repository().join("deploy/ceph/binding.yaml");
        try_run("kubectl", &["delete", "-f", &binding.to_string_lossy()], None);
    }
}

fn cluster(namespace: &str, sets: Value) {
    let cluster = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
        "metadata": {"name": "cluster1", "namespace": namespace},
        "spec": {
            "cephVersion": {"image": IMAGE}, "dataDirHostPath": "/var/lib/rook",
            "storage": {"storageClassDeviceSets": sets},
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

fn ready(namespace: &str, words: &str) -> Value {
    wait_condition(&[namespace, "cephcluster", "cluster1"], CONDITION, "True", words, LIMIT)
}

fn not_ready(namespace: &str, words: &str) -> Value {
    wait_condition(&[namespace, "cephcluster", "cluster1"], CONDITION, "False", words, LIMIT)
}

fn count(namespace: &str, kind: &str) -> usize {
    let list = get(&["-n", namespace, kind]).unwrap_or_default();
    list["items"].as_array().map_or(0, Vec::len)
}

/// OSDs that are up and in.
fn osds(ceph: &Ceph) -> Vec<Value> {
    let dump = ceph.ceph(&["osd", "dump"]);
    let all = dump["osds"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|osd| osd["up"] == 1 && osd["in"] == 1).collect()
}

#[test]
fn disks_of_a_set_become_osds_that_store_objects() {
    let ceph = Ceph::shared();
    let namespace = "osds";
    let device_sets = DeviceSets::on(namespace);
    ceph.join(namespace, &ceph.fsid);
    let (disks, _) = set_disks("osd-disks", 3, OSD_MEBIBYTES);
    cluster(
        namespace,
        json!([{"name": "set1", "count": 3, "volumeClaimTemplates": [template("", "osd-disks")]}]),
    );
    ready(namespace, "3 Running");
    until("three OSDs are up and in", LIMIT, || {
        let found = osds(&ceph);
        if found.len() == 3 { Ok(()) } else { Err(json!(found).to_string()) }
    });
    let uids: Vec<Value> = get(&["-n", namespace, "pvc"]).unwrap()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| claim["metadata"]["uid"].clone())
        .collect();
    for osd in osds(&ceph) {
        assert!(uids.contains(&osd["uuid"]), "the UUID is the UID of a PVC: {osd}");
    }
    let tree = ceph.ceph(&["osd", "tree"]);
    assert!(tree.to_string().contains("lab-node"), "the CRUSH host is the node: {tree}");

    ceph.ceph(&["osd", "pool", "create", "lab", "1"]);
    let sum = ceph.put_object("lab", "object", 4 << 20);
    assert_eq!(ceph.get_object("lab", "object"), sum);

    // At rest nothing is made again; an OSD that is deleted comes back with its data.
    let made = (count(namespace, "jobs"), count(namespace, "deployments"), count(namespace, "pvc"));
    assert_eq!(made, (3, 3, 3));
    kubectl(&["-n", namespace, "delete", "pod", "-l", "app=rook-ceph-osd", "--wait=false"]);
    until("the OSDs are up again", LIMIT, || {
        let found = get(&["-n", namespace, "deployments"]).unwrap_or_default();
        let available = found["items"].as_array().map_or(0, |all| {
            all.iter().filter(|one| one["status"]["availableReplicas"] == 1).count()
        });
        match (available, osds(&ceph).len()) {
            (3, 3) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    });
    assert_eq!(ceph.get_object("lab", "object"), sum);
    drop(device_sets);
    drop(disks);
}
