//! Sets and LocalVolumes on the real cluster: loop disks become PersistentVolumes, pods use them, and what is released
//! comes back wiped.

use quarry_tests::lab::{
    LoopDisk, NAMESPACE, NODE, apply, create_pvc, get, gone, installed, kubectl, kubectl_refused,
    pod, pod_output, quarry, repository, text, try_run, until,
};
use serde_json::{Value, json};
use std::{io::Read, path::Path, time::Duration};

const LIMIT: Duration = Duration::from_secs(90);

/// Agents that do not wait a minute for every disk; as it was afterwards, and nothing of the tests left.
struct Hurry;

impl Hurry {
    fn up() -> Self {
        let value = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": ["operator", "--agent-settling-time=1s"]}]);
        kubectl(&[
            "-n",
            NAMESPACE,
            "patch",
            "deploy",
            "quarry-operator",
            "--type=json",
            "-p",
            &value.to_string(),
        ]);
        kubectl(&["-n", NAMESPACE, "rollout", "status", "deploy/quarry-operator", "--timeout=60s"]);
        until("the agent is in a hurry", LIMIT, || {
            let pods = get(&["-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/name=quarry-agent"])
                .unwrap_or_default();
            let hurried = |pod: &Value| {
                pod["spec"]["containers"][0]["args"].to_string().contains("--settling-time=1s")
                    && pod["status"]["containerStatuses"][0]["ready"] == true
            };
            if pods["items"].as_array().is_some_and(|pods| pods.len() == 1 && hurried(&pods[0])) {
                Ok(())
            } else {
                Err(pods.to_string())
            }
        });
        Hurry
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        try_run(
            "kubectl",
            &["delete", "pods,pvc", "--all", "--wait=false", "--grace-period=0"],
            None,
        );
        try_run(
            "kubectl",
            &["-n", NAMESPACE, "delete", "localvolumesets,localvolumes", "--all", "--timeout=60s"],
            None,
        );
        let deploy = repository().join("deploy");
        try_run("kubectl", &["apply", "-k", &deploy.to_string_lossy()], None);
        try_run(
            "kubectl",
            &["-n", NAMESPACE, "rollout", "status", "deploy/quarry-operator", "--timeout=60s"],
            None,
        );
    }
}

/// A set for loop disks of one size in MiB: the machine may have others.
fn set(name: &str, mebibytes: u64, more: Value) {
    let size = format!("{mebibytes}Mi");
    let mut spec = json!({"storageClassName": name, "deviceInclusionSpec": {"deviceTypes": ["loop"], "minSize": size, "maxSize": size}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    apply(&json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}).to_string());
}

/// The PersistentVolumes of an owner, found as consumers of the shipped ones find them.
fn pvs_of(owner: &str) -> Vec<Value> {
    let label = format!(
        "storage.openshift.com/owner-name={owner},storage.openshift.com/owner-namespace={NAMESPACE}"
    );
    get(&["pv", "-l", &label])
        .and_then(|list| list["items"].as_array().cloned())
        .unwrap_or_default()
}

fn pv_in_phase(owner: &str, phase: &str) -> Value {
    until(&format!("{owner} has a PersistentVolume that is {phase}"), LIMIT, || {
        let pvs = pvs_of(owner);
        match pvs.as_slice() {
            [pv] if pv["status"]["phase"] == phase
                && pv["metadata"]["deletionTimestamp"].is_null() =>
            {
                Ok(pv.clone())
            }
            other => Err(json!(other).to_string()),
        }
    })
}

fn condition(kind: &str, name: &str, condition: &str, status: &str, words: &str) -> Value {
    until(&format!("{name} says {condition}={status} {words:?}"), LIMIT, || {
        let object = get(&["-n", NAMESPACE, kind, name]).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told = |one: &Value| {
            one["type"] == condition
                && one["status"] == status
                && one["message"].as_str().unwrap_or_default().contains(words)
        };
        if conditions.iter().any(told) { Ok(object) } else { Err(object["status"].to_string()) }
    })
}

/// Whether these bytes are anywhere on the disk.
fn holds(disk: &LoopDisk, secret: &str) -> bool {
    let mut bytes = Vec::new();
    std::fs::File::open(&disk.file)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .expect("the file behind the loop can be read");
    bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
}

fn claims() -> Vec<Value> {
    get(&["nodeinventory", NODE])
        .and_then(|inventory| inventory["spec"]["deviceClaims"].as_array().cloned())
        .unwrap_or_default()
}

#[test]
fn disks_of_a_set_are_used_by_pods_wiped_and_offered_again() {
    installed();
    let _hurry = Hurry::up();
    let block_disk = LoopDisk::attach("set-block", 160 << 20);
    let file_disk = LoopDisk::attach("set-file", 352 << 20);
    set("lab-block", 160, json!({"volumeMode": "Block"}));
    set("lab-file", 352, json!({"volumeMode": "Filesystem", "fsType": "ext4"}));
    let block = pv_in_phase("lab-block", "Available");
    let file = pv_in_phase("lab-file", "Available");
    assert_eq!(
        (
            &block["spec"]["volumeMode"],
            &file["spec"]["volumeMode"],
            &file["spec"]["local"]["fsType"]
        ),
        (&json!("Block"), &json!("Filesystem"), &json!("ext4"))
    );
    assert_eq!(block["spec"]["capacity"]["storage"], "160Mi");
    let path = block["spec"]["local"]["path"].as_str().unwrap().to_owned();
    assert!(path.starts_with("/mnt/local-storage/lab-block/"), "{path}");
    assert_eq!(std::fs::canonicalize(&path).unwrap(), Path::new("/dev").join(block_disk.name()));
    let class = get(&["storageclass", "lab-block"]).unwrap();
    assert_eq!(
        (&class["provisioner"], &class["volumeBindingMode"]),
        (&json!("kubernetes.io/no-provisioner"), &json!("WaitForFirstConsumer"))
    );
    let said = condition("localvolumeset", "lab-block", "Available", "True", "1 provisioned");
    assert_eq!(said["status"]["totalProvisionedDeviceCount"], 1);
    assert_eq!(said["status"]["observedGeneration"], said["metadata"]["generation"]);

    // A second set finds nothing and says who has the disks.
    set("lab-late", 160, json!({}));
    condition(
        "localvolumeset",
        "lab-late",
        "Available",
        "False",
        &format!("LocalVolumeSet {NAMESPACE}/lab-block has it"),
    );

    create_pvc("set-block", "lab-block", "Block", "100Mi");
    create_pvc("set-file", "lab-file", "Filesystem", "100Mi");
    pod(
        "block-writer",
        "set-block",
        true,
        "printf block-secret-begin | dd of=/dev/data 2>/dev/null && printf block-secret-middle | dd of=/dev/data bs=1M seek=80 2>/dev/null && sync && echo done",
    );
    pod(
        "file-writer",
        "set-file",
        false,
        "echo file-secret > /data/kept && sync && cat /data/kept",
    );
    assert_eq!(
        (pod_output("block-writer").as_str(), pod_output("file-writer").as_str()),
        ("done", "file-secret")
    );
    kubectl(&["delete", "pod", "file-writer"]);
    pod("file-reader", "set-file", false, "cat /data/kept");
    assert_eq!(pod_output("file-reader"), "file-secret");
    assert!(holds(&block_disk, "block-secret-middle"));

    // A set in use is not deleted, and says what it waits for.
    kubectl(&["-n", NAMESPACE, "delete", "localvolumeset", "lab-file", "--wait=false"]);
    condition("localvolumeset", "lab-file", "Degraded", "True", "bound to claim default/set-file");

    kubectl(&["delete", "pod", "block-writer", "file-reader"]);
    kubectl(&["delete", "pvc", "set-block", "set-file"]);
    let again = until(
        "the disk is offered again, as another PersistentVolume of the same name",
        LIMIT,
        || {
            let pvs = pvs_of("lab-block");
            match pvs.as_slice() {
                [pv] if pv["status"]["phase"] == "Available"
                    && pv["metadata"]["uid"] != block["metadata"]["uid"]
                    && pv["metadata"]["deletionTimestamp"].is_null() =>
                {
                    Ok(pv.clone())
                }
                other => Err(json!(other).to_string()),
            }
        },
    );
    assert_eq!(again["metadata"]["name"], block["metadata"]["name"]);
    assert!(
        !holds(&block_disk, "block-secret-middle") && !holds(&block_disk, "block-secret-begin"),
        "nothing of the old data is readable"
    );

    gone("localvolumeset", "lab-file");
    let blkid = try_run("blkid", &["-p", &format!("/dev/{}", file_disk.name())], None);
    assert_eq!(text(&blkid.stdout), "", "no signature is left");
    kubectl(&[
        "-n",
        NAMESPACE,
        "delete",
        "localvolumeset",
        "lab-block",
        "lab-late",
        "--timeout=60s",
    ]);
    until("nothing is left", LIMIT, || {
        if claims().is_empty() && pvs_of("lab-block").is_empty() {
            Ok(())
        } else {
            Err(json!(claims()).to_string())
        }
    });
    assert!(std::fs::symlink_metadata(&path).is_err(), "the link is gone");
    for class in ["lab-block", "lab-file"] {
        assert!(
            get(&["storageclass", class]).is_none(),
            "the StorageClass {class} was ours and goes with its set"
        );
    }
}

#[test]
fn a_local_volume_keeps_what_is_on_its_disk_and_says_which_paths_are_none() {
    installed();
    let _hurry = Hurry::up();
    let disk = LoopDisk::attach("lv", 96 << 20);
    let device = format!("/dev/{}", disk.name());
    let made = try_run("mkfs.ext4", &["-q", "-L", "precious", &device], None);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let object = json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "lab-lv", "namespace": NAMESPACE},
        "spec": {"storageClassDevices": [{"storageClassName": "lab-lv", "fsType": "ext4", "devicePaths": [device, "/dev/no-such-disk", "/dev/null"]}]}});
    let said = apply(&object.to_string());
    assert!(
        said.contains("a kernel name such as /dev/sdb may be another disk after a reboot"),
        "{said}"
    );
    let pv = pv_in_phase("lab-lv", "Available");
    assert_eq!(pv["metadata"]["labels"]["storage.openshift.com/local-volume-owner-name"], "lab-lv");
    condition("localvolume", "lab-lv", "Degraded", "True", "/dev/no-such-disk");
    condition("localvolume", "lab-lv", "Degraded", "True", "/dev/null");
    let label = try_run(
        "blkid",
        &["-p", "-s", "LABEL", "-o", "value", &format!("/dev/{}", disk.name())],
        None,
    );
    assert_eq!(text(&label.stdout).trim(), "precious", "what was on it stays");
    let explained = quarry(&["explain", "localvolume/lab-lv", "-n", NAMESPACE]);
    assert!(
        text(&explained.stdout).contains("/dev/no-such-disk"),
        "{}{}",
        text(&explained.stdout),
        text(&explained.stderr)
    );
    kubectl(&["-n", NAMESPACE, "delete", "localvolume", "lab-lv", "--timeout=60s"]);
    gone("pv", pv["metadata"]["name"].as_str().unwrap());
    let label = try_run(
        "blkid",
        &["-p", "-s", "LABEL", "-o", "value", &format!("/dev/{}", disk.name())],
        None,
    );
    assert_eq!(text(&label.stdout).trim(), "precious", "it was never bound: nothing is wiped");
}

#[test]
fn what_cannot_be_is_refused_with_the_field_and_the_remedy() {
    installed();
    let refused = |spec: Value| {
        let object = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": spec});
        kubectl_refused(&["apply", "-f", "-"], Some(&object.to_string()))
    };
    for (spec, said) in [
        (
            json!({"storageClassName": "c", "minDeviceCount": 3, "maxDeviceCount": 2}),
            "minDeviceCount is greater than maxDeviceCount",
        ),
        (
            json!({"storageClassName": "c", "deviceInclusionSpec": {"deviceTypes": ["tape"]}}),
            "deviceTypes must be disk (RawDisk)",
        ),
        (
            json!({"storageClassName": "c", "volumeMode": "Block", "fsType": "xfs"}),
            "fsType requires volumeMode Filesystem",
        ),
        (
            json!({"storageClassName": "c", "deviceInclusionSpec": {"minSize": "2Ti", "maxSize": "1Ti"}}),
            "minSize is greater than maxSize",
        ),
        (json!({"storageClassName": "No Such"}), "storageClassName must be a valid name"),
        (
            json!({"storageClassName": "c", "deviceExclusionSpec": {"deviceNameFilter": ["rbd*", "sd[a"]}}),
            "deviceNameFilter supports *, ?, [a-c] and [^a]",
        ),
        (json!({}), "storageClassName"),
    ] {
        let answer = refused(spec.clone());
        assert!(answer.contains(said), "{spec}: {answer}");
    }
    let lv = json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "bad", "namespace": NAMESPACE},
        "spec": {"storageClassDevices": [{"storageClassName": "c", "devicePaths": ["/dev/sdb"], "forceWipeDevicesAndDestroyAllData": true}]}});
    let answer = kubectl_refused(&["apply", "-f", "-"], Some(&lv.to_string()));
    assert!(answer.contains("Quarry erases no device without a consent"), "{answer}");
    // A name that is somebody else's. The server learns of a class in its own time: until then it is taken, and tried dry.
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "theirs"}, "provisioner": "csi.example.com"});
    apply(&class.to_string());
    let objects = [
        json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": {"storageClassName": "theirs"}}),
        json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "bad", "namespace": NAMESPACE},
            "spec": {"storageClassDevices": [{"storageClassName": "theirs", "devicePaths": ["/dev/disk/by-id/x"]}]}}),
    ];
    for object in objects {
        let said =
            "StorageClass theirs belongs to the provisioner csi.example.com; use another name";
        until("the class of another provisioner is refused", LIMIT, || {
            let answer = text(
                &try_run(
                    "kubectl",
                    &["apply", "--dry-run=server", "-f", "-"],
                    Some(&object.to_string()),
                )
                .stderr,
            );
            if answer.contains(said) { Ok(()) } else { Err(answer) }
        });
    }
    kubectl(&["delete", "storageclass", "theirs"]);
}
