//! One Volume, from a few lines of YAML to a pod's data and complete removal.

use quarry_tests::lab::{
    NAMESPACE, NODE, apply, create_pvc, get, installed, kubectl, phase_is, pod, pod_output, quarry,
    text, until, wait_deleted,
};
use serde_json::Value;
use std::{path::Path, time::Duration};

fn class(name: &str, fs: &str, options: &str) {
    apply(&format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}}}\nprovisioner: kubernetes.io/no-provisioner\n\
         volumeBindingMode: WaitForFirstConsumer\nreclaimPolicy: Retain\nmountOptions: [noatime]\nparameters: {{fsType: {fs}, mkfsOptions: '{options}'}}\n"
    ));
}

fn volume(name: &str, class: &str, mode: &str) {
    apply(&format!(
        "apiVersion: storage.metalk8s.scality.com/v1alpha1\nkind: Volume\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {NODE}\n  storageClassName: {class}\n  \
         mode: {mode}\n  sparseLoopDevice: {{size: 1Gi}}\n  template: {{metadata: {{labels: {{tier: gold}}, annotations: {{note: kept}}}}}}\n"
    ));
}

/// Loop devices over the volume's file, as listed by the kernel.
fn loops_of(uid: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| {
            std::fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|file| file.contains(uid))
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn assert_no_trace(uid: &str) {
    assert_eq!(loops_of(uid), Vec::<String>::new(), "no loop is left");
    for path in
        [format!("/var/lib/quarry/volumes/{uid}"), format!("/var/lib/quarry/volumes/{uid}.draft")]
    {
        assert!(!Path::new(&path).exists(), "{path} still exists");
    }
    for link in [format!("/dev/disk/by-uuid/{uid}"), format!("/dev/disk/by-partlabel/{uid}")] {
        assert!(std::fs::symlink_metadata(&link).is_err(), "{link} still exists");
    }
}

fn ready_message(object: &Value) -> String {
    object["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned()
}

// invariant: 5
#[test]
fn filesystem_volume_is_used_and_removed_without_a_trace() {
    installed();
    class("story-xfs", "xfs", "[\"-m\", \"reflink=0\"]");
    volume("story-fs", "story-xfs", "Filesystem");
    let object = phase_is("story-fs", "Available");
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(vec![object["status"]["deviceName"].as_str().unwrap().to_owned()], loops_of(&uid));
    assert!(object["status"]["job"].is_null(), "the job is cleared at Available");

    let pv = get(&["pv", "story-fs"]).unwrap();
    assert_eq!(pv["spec"]["local"]["path"], format!("/dev/disk/by-uuid/{uid}"));
    assert_eq!(pv["metadata"]["labels"]["tier"], "gold");
    assert_eq!(pv["metadata"]["annotations"]["note"], "kept");
    assert_eq!(pv["spec"]["mountOptions"][0], "noatime");
    assert_eq!(pv["metadata"]["ownerReferences"][0]["uid"], uid);

    create_pvc("story-fs", "story-xfs", "Filesystem", "1Gi");
    pod(
        "writer",
        "story-fs",
        false,
        "dd if=/dev/urandom of=/data/blob bs=1M count=64 2>/dev/null && sync && sha256sum < /data/blob",
    );
    let written = pod_output("writer");
    kubectl(&["delete", "pod", "writer"]);
    pod("reader", "story-fs", false, "sha256sum < /data/blob; grep ' /data ' /proc/mounts");
    let read = pod_output("reader");
    assert_eq!(read.lines().next().unwrap(), written);
    assert!(read.contains(" xfs ") && read.contains("noatime"), "{read}");

    let refused = quarry(&["volume", "delete", "story-fs"]);
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("bound to PVC default/story-fs"),
        "{}",
        text(&refused.stderr)
    );
    assert!(
        get(&["volume", "story-fs"]).unwrap()["metadata"]["deletionTimestamp"].is_null(),
        "the CLI deleted nothing"
    );

    kubectl(&["delete", "volume", "story-fs", "--wait=false"]);
    let waits = until("the deletion waits and reports why", Duration::from_secs(30), || {
        let object = get(&["volume", "story-fs"]).ok_or("deleted")?;
        if ready_message(&object).contains("bound to PVC default/story-fs") {
            Ok(object)
        } else {
            Err(object["status"].to_string())
        }
    });
    assert_eq!(waits["status"]["phase"], "Terminating");
    assert_eq!(loops_of(&uid).len(), 1, "nothing is changed while it is bound");
    kubectl(&["delete", "pod", "reader"]);
    kubectl(&["delete", "pvc", "story-fs"]);
    wait_deleted("volume", "story-fs");
    wait_deleted("pv", "story-fs");
    assert_no_trace(&uid);
}

#[test]
fn block_volume_is_one_partition_found_by_its_label() {
    installed();
    class("story-block", "ext4", "[]");
    volume("story-block", "story-block", "Block");
    let object = phase_is("story-block", "Available");
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let pv = get(&["pv", "story-block"]).unwrap();
    assert_eq!(pv["spec"]["local"]["path"], format!("/dev/disk/by-partlabel/{uid}"));
    assert_eq!(pv["spec"]["volumeMode"], "Block");
    create_pvc("story-block", "story-block", "Block", "1000Mi");
    pod(
        "block-writer",
        "story-block",
        true,
        "dd if=/dev/urandom of=/tmp/blob bs=1M count=64 2>/dev/null && dd if=/tmp/blob of=/dev/data bs=1M conv=fsync 2>/dev/null && sha256sum < /tmp/blob",
    );
    let written = pod_output("block-writer");
    kubectl(&["delete", "pod", "block-writer"]);
    pod(
        "block-reader",
        "story-block",
        true,
        "dd if=/dev/data bs=1M count=64 2>/dev/null | sha256sum",
    );
    assert_eq!(pod_output("block-reader"), written);
    kubectl(&["delete", "pod", "block-reader"]);
    kubectl(&["delete", "pvc", "story-block"]);
    kubectl(&["delete", "volume", "story-block", "--wait=false"]);
    wait_deleted("volume", "story-block");
    wait_deleted("pv", "story-block");
    assert_no_trace(&uid);
}

#[test]
fn volume_survives_restarts_of_agent_and_operator() {
    installed();
    class("story-ext4", "ext4", "[\"-m\", \"0\"]");
    volume("story-restart", "story-ext4", "Filesystem");
    let before = phase_is("story-restart", "Available");
    let uid = before["metadata"]["uid"].as_str().unwrap().to_owned();
    let uids = |selector: &str| {
        kubectl(&[
            "-n",
            NAMESPACE,
            "get",
            "pods",
            "-l",
            selector,
            "-o",
            "jsonpath={.items[*].metadata.uid}",
        ])
    };
    let old = uids("app.kubernetes.io/name=quarry-agent");
    kubectl(&["-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=0", "--force"]);
    until("another agent is running", Duration::from_secs(90), || {
        let pods = get(&["pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=quarry-agent"])
            .unwrap_or_default();
        let ready = pods["items"].as_array().is_some_and(|items| {
            items
                .iter()
                .any(|pod| pod["metadata"]["uid"] != old && pod["status"]["phase"] == "Running")
        });
        if ready { Ok(()) } else { Err(pods["items"].to_string()) }
    });
    assert_eq!(loops_of(&uid).len(), 1, "still one loop");
    let after = phase_is("story-restart", "Available");
    assert_eq!(after["status"]["deviceName"], loops_of(&uid)[0].as_str());
    kubectl(&["delete", "volume", "story-restart", "--wait=false"]);
    wait_deleted("volume", "story-restart");
    assert_no_trace(&uid);
}

#[test]
fn cli_creates_explains_and_deletes_a_volume() {
    installed();
    class("story-cli", "xfs", "[]");
    let created = quarry(&[
        "volume",
        "create",
        "story-cli",
        "--node",
        NODE,
        "--class",
        "story-cli",
        "--size",
        "512Mi",
        "--wait",
    ]);
    assert!(created.status.success(), "{}{}", text(&created.stdout), text(&created.stderr));
    let uid =
        get(&["volume", "story-cli"]).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let listed = text(&quarry(&["volumes"]).stdout);
    assert!(listed.contains("story-cli") && listed.contains("Available"), "{listed}");
    let explained = text(&quarry(&["explain", "volume/story-cli"]).stdout);
    assert!(
        explained.contains("can be deleted now")
            && explained.contains(&format!("/dev/disk/by-uuid/{uid}")),
        "{explained}"
    );
    let deleted = quarry(&["volume", "delete", "story-cli", "--wait"]);
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    assert!(get(&["volume", "story-cli"]).is_none());
    assert_no_trace(&uid);
}

#[test]
fn operator_serves_metrics_and_health() {
    installed();
    let pod = kubectl(&[
        "-n",
        NAMESPACE,
        "get",
        "pods",
        "-l",
        "app.kubernetes.io/name=quarry-operator",
        "-o",
        "jsonpath={.items[0].metadata.name}",
    ]);
    let fetch = |path: &str| {
        kubectl(&[
            "get",
            "--raw",
            &format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8080/proxy/{path}"),
        ])
    };
    assert_eq!(fetch("healthz"), "ok");
    until("the operator is ready", Duration::from_secs(30), || {
        if fetch("readyz") == "ok" { Ok(()) } else { Err("not ready".into()) }
    });
    let metrics = fetch("metrics");
    for name in [
        "quarry_reconciles_total",
        "quarry_reconcile_seconds_bucket",
        "quarry_api_writes_total",
        "quarry_volumes",
        "quarry_devices{state=",
        "quarry_leader 1",
    ] {
        assert!(metrics.contains(name), "{name} in\n{metrics}");
    }
}
