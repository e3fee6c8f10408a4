//! Invalid input on the real API server: refused at admission, or reported in the condition, an
//! Event and `quarry explain`.

use quarry_tests::lab::{
    NODE, apply, get, installed, kubectl, kubectl_refused, quarry, text, until, wait_deleted,
};
use std::time::Duration;

fn volume(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: storage.metalk8s.scality.com/v1alpha1\nkind: Volume\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

#[test]
fn invalid_specs_are_refused_at_admission() {
    installed();
    for (spec, words) in [
        (
            format!("{{nodeName: {NODE}, storageClassName: c, sparseLoopDevice: {{size: 0}}}}"),
            "size must be greater than 0",
        ),
        (
            format!("{{nodeName: {NODE}, storageClassName: c, sparseLoopDevice: {{size: -1Gi}}}}"),
            "size must be greater than 0",
        ),
        (
            format!(
                "{{nodeName: {NODE}, storageClassName: c, sparseLoopDevice: {{size: plenty}}}}"
            ),
            "spec.sparseLoopDevice.size",
        ),
        (
            format!("{{nodeName: {NODE}, storageClassName: c}}"),
            "set exactly one of sparseLoopDevice",
        ),
        (
            format!(
                "{{nodeName: {NODE}, storageClassName: c, sparseLoopDevice: {{size: 1Gi}}, rawBlockDevice: {{devicePath: /dev/sdb}}}}"
            ),
            "set exactly one of sparseLoopDevice",
        ),
        (
            "{storageClassName: c, sparseLoopDevice: {size: 1Gi}}".to_owned(),
            "spec.nodeName: Required value",
        ),
        (
            format!(
                "{{nodeName: {NODE}, storageClassName: c, mode: Tape, sparseLoopDevice: {{size: 1Gi}}}}"
            ),
            "spec.mode: Unsupported value",
        ),
    ] {
        let message = kubectl_refused(&["create", "-f", "-"], Some(&volume("bad", &spec)));
        assert!(message.contains(words), "{spec}: {message}");
    }
}

#[test]
fn immutable_fields_are_refused_and_unused_ones_warned() {
    installed();
    let good = "{nodeName: nowhere, storageClassName: c, sparseLoopDevice: {size: 1Gi}, template: {spec: {capacity: {storage: 5Gi}}}}";
    let message = apply(&volume("fixed", good));
    assert!(message.contains("of spec.template.spec only claimRef is used"), "{message}");
    for (change, words) in [
        ("{\"spec\":{\"sparseLoopDevice\":{\"size\":\"2Gi\"}}}", "size is immutable"),
        ("{\"spec\":{\"nodeName\":\"other\"}}", "nodeName is immutable"),
        ("{\"spec\":{\"storageClassName\":\"other\"}}", "storageClassName is immutable"),
        ("{\"spec\":{\"mode\":\"Block\"}}", "mode is immutable"),
        (
            "{\"spec\":{\"sparseLoopDevice\":null,\"rawBlockDevice\":{\"devicePath\":\"/dev/sdb\"}}}",
            "the type of a Volume is immutable",
        ),
    ] {
        let message =
            kubectl_refused(&["patch", "volume", "fixed", "--type=merge", "-p", change], None);
        assert!(message.contains(words), "{change}: {message}");
    }
    kubectl(&["delete", "volume", "fixed", "--wait=false"]);
    wait_deleted("volume", "fixed");
}

// invariant: 9
#[test]
fn invalid_references_are_reported_in_three_places() {
    installed();
    let class = |name: &str, parameters: &str| {
        apply(&format!(
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}}}\nprovisioner: kubernetes.io/no-provisioner\nparameters: {parameters}\n"
        ))
    };
    class("bad-nofs", "{other: x}");
    class("bad-zfs", "{fsType: zfs}");
    class("bad-options", "{fsType: xfs, mkfsOptions: '[\"-N\"]'}");
    class("bad-mkfs", "{fsType: xfs, mkfsOptions: '[\"-b\", \"size=7\"]'}");
    class("good", "{fsType: xfs}");
    apply(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: bad-taken}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: x, hostPath: {path: /tmp/x}}\n",
    );
    let sparse = |class: &str, size: &str| {
        format!(
            "{{nodeName: {NODE}, storageClassName: {class}, sparseLoopDevice: {{size: {size}}}}}"
        )
    };
    for (name, spec, phase, words) in [
        (
            "bad-node",
            "{nodeName: nowhere, storageClassName: good, sparseLoopDevice: {size: 1Gi}}".to_owned(),
            "Pending",
            "node nowhere does not exist",
        ),
        ("bad-class", sparse("missing", "1Gi"), "Pending", "StorageClass missing does not exist"),
        ("bad-nofs", sparse("bad-nofs", "1Gi"), "Failed", "has no parameter fsType"),
        ("bad-zfs", sparse("bad-zfs", "1Gi"), "Failed", "\"zfs\", which is not supported"),
        ("bad-options", sparse("bad-options", "1Gi"), "Failed", "\"-N\""),
        ("bad-mkfs", sparse("bad-mkfs", "1Gi"), "Failed", "mkfs.xfs"),
        ("bad-huge", sparse("good", "7Ei"), "Failed", "even sparsely"),
        ("bad-tiny", sparse("good", "1Mi"), "Failed", "mkfs.xfs"),
        ("bad-taken", sparse("good", "1Gi"), "Failed", "is not managed by this Volume"),
        (
            "bad-raw",
            format!(
                "{{nodeName: {NODE}, storageClassName: good, rawBlockDevice: {{devicePath: /dev/sdb}}}}"
            ),
            "Failed",
            "only sparseLoopDevice",
        ),
    ] {
        apply(&volume(name, &spec));
        let object =
            until(&format!("{name} reports what is wrong"), Duration::from_secs(30), || {
                let object = get(&["volume", name]).unwrap_or_default();
                let message =
                    object["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
                if object["status"]["phase"] == phase && message.contains(words) {
                    Ok(object.clone())
                } else {
                    Err(object["status"].to_string())
                }
            });
        until(&format!("{name} has an event"), Duration::from_secs(10), || {
            let events = kubectl(&[
                "get",
                "events",
                "--field-selector",
                &format!("involvedObject.name={name}"),
                "-o",
                "jsonpath={.items[*].message}",
            ]);
            if events.contains(words) { Ok(()) } else { Err(events) }
        });
        let explained = text(&quarry(&["explain", &format!("volume/{name}")]).stdout);
        assert!(explained.contains(words), "{name}: {explained}");
        let uid = object["metadata"]["uid"].as_str().unwrap();
        kubectl(&["delete", "volume", name, "--wait=false"]);
        wait_deleted("volume", name);
        let left: Vec<_> = std::fs::read_dir("/var/lib/quarry/volumes")
            .map(|dir| {
                dir.filter_map(Result::ok)
                    .filter(|entry| entry.file_name().to_string_lossy().starts_with(uid))
                    .collect()
            })
            .unwrap_or_default();
        assert!(left.is_empty(), "{name} left {left:?}");
    }
    assert!(get(&["pv", "bad-taken"]).is_some(), "the unmanaged PersistentVolume still exists");
    kubectl(&["delete", "pv", "bad-taken"]);
}
