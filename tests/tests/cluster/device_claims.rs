//! LocalVolumeSets and LocalVolumes on the real cluster: loop disks become PersistentVolumes, pods
//! use them, and released ones are wiped and offered again.

use quarry_tests::lab::{
    LoopDisk, NAMESPACE, NODE, apply, create_pvc, get, installed, kubectl, kubectl_refused, pod,
    pod_output, quarry, text, try_run, until, wait_condition, wait_deleted,
};
use quarry_tests::volume_sets::{ShortSettlingTime, pvs_of, set};
use serde_json::{Value, json};
use std::{io::Read, path::Path, time::Duration};

const LIMIT: Duration = Duration::from_secs(90);

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
    wait_condition(&[NAMESPACE, kind, name], condition, status, words, LIMIT)
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

// invariant: 3
#[test]
fn disks_of_a_set_are_used_wiped_and_offered_again() {
    installed();
    let _settings = ShortSettlingTime::set();
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
    let set_object = condition("localvolumeset", "lab-block", "Available", "True", "1 provisioned");
    assert_eq!(set_object["status"]["totalProvisionedDeviceCount"], 1);
    assert_eq!(set_object["status"]["observedGeneration"], set_object["metadata"]["generation"]);

    // A second LocalVolumeSet finds no disks and reports who has them.
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

    // A LocalVolumeSet in use is not deleted, and reports what it waits for.
    kubectl(&["-n", NAMESPACE, "delete", "localvolumeset", "lab-file", "--wait=false"]);
    condition("localvolumeset", "lab-file", "Degraded", "True", "bound to PVC default/set-file");

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

    wait_deleted("localvolumeset", "lab-file");
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
    assert!(std::fs::symlink_metadata(&path).is_err(), "the link is removed");
    for class in ["lab-block", "lab-file"] {
        assert!(
            get(&["storageclass", class]).is_none(),
            "StorageClass {class} was ours and is deleted with its LocalVolumeSet"
        );
    }
}

#[test]
fn local_volume_keeps_data_and_reports_invalid_paths() {
    installed();
    let _settings = ShortSettlingTime::set();
    let disk = LoopDisk::attach("lv", 96 << 20);
    let device = format!("/dev/{}", disk.name());
    let mkfs = try_run("mkfs.ext4", &["-q", "-L", "precious", &device], None);
    assert!(mkfs.status.success(), "{}", text(&mkfs.stderr));
    let object = json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "lab-lv", "namespace": NAMESPACE},
        "spec": {"storageClassDevices": [{"storageClassName": "lab-lv", "fsType": "ext4", "devicePaths": [device, "/dev/no-such-disk", "/dev/null"]}]}});
    let set_object = apply(&object.to_string());
    assert!(
        set_object.contains("a kernel name such as /dev/sdb may be another disk after a reboot"),
        "{set_object}"
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
    assert_eq!(text(&label.stdout).trim(), "precious", "its data stays");
    let explained = quarry(&["explain", "localvolume/lab-lv", "-n", NAMESPACE]);
    assert!(
        text(&explained.stdout).contains("/dev/no-such-disk"),
        "{}{}",
        text(&explained.stdout),
        text(&explained.stderr)
    );
    kubectl(&["-n", NAMESPACE, "delete", "localvolume", "lab-lv", "--timeout=60s"]);
    wait_deleted("pv", pv["metadata"]["name"].as_str().unwrap());
    let label = try_run(
        "blkid",
        &["-p", "-s", "LABEL", "-o", "value", &format!("/dev/{}", disk.name())],
        None,
    );
    assert_eq!(text(&label.stdout).trim(), "precious", "it was never bound: nothing is wiped");
}

#[test]
fn invalid_specs_are_refused_with_field_and_remedy() {
    installed();
    let refused = |spec: Value| {
        let object = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": spec});
        kubectl_refused(&["apply", "-f", "-"], Some(&object.to_string()))
    };
    for (spec, set_object) in [
        (
            json!({"storageClassName": "c", "minDeviceCount": 3, "maxDeviceCount": 2}),
            "minDeviceCount is greater than maxDeviceCount",
        ),
        (
            json!({"storageClassName": "c", "deviceInclusionSpec": {"deviceTypes": ["tape"]}}),
            "deviceTypes must be disk (RawDisk)",
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
        assert!(answer.contains(set_object), "{spec}: {answer}");
    }
    // Accepted with a warning; explicit nulls are as absent fields.
    let warned = [
        json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "warned", "namespace": NAMESPACE},
            "spec": {"storageClassName": "c", "volumeMode": "Block", "fsType": "xfs", "fstype": null, "minDeviceCount": null, "maxDeviceCount": 2,
                "nodeSelector": null, "tolerations": null, "deviceInclusionSpec": {"minSize": null, "maxSize": "1Ti", "deviceTypes": null}}}),
        json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "warned", "namespace": NAMESPACE},
        "spec": {"managementState": null, "logLevel": null, "storageClassDevices": [
            {"storageClassName": "c", "volumeMode": "Block", "fsType": "xfs", "devicePaths": null, "forceWipeDevicesAndDestroyAllData": null},
        ]}}),
    ];
    for object in warned {
        let dry_run = ["apply", "--dry-run=server", "-f", "-"];
        let output = try_run("kubectl", &dry_run, Some(&object.to_string()));
        let answer = text(&output.stderr);
        assert!(output.status.success(), "{answer}");
        assert!(answer.contains("fsType is ignored with volumeMode Block"), "{answer}");
    }
    let lv = json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "bad", "namespace": NAMESPACE},
        "spec": {"storageClassDevices": [{"storageClassName": "c", "devicePaths": ["/dev/sdb"], "forceWipeDevicesAndDestroyAllData": true}]}});
    let answer = kubectl_refused(&["apply", "-f", "-"], Some(&lv.to_string()));
    assert!(answer.contains("Quarry erases no device without a consent"), "{answer}");
    // The name of another provisioner's StorageClass. The API server sees a new class after a
    // delay: until then the request is accepted, so it is a dry run.
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "theirs"}, "provisioner": "csi.example.com"});
    apply(&class.to_string());
    let objects = [
        json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": {"storageClassName": "theirs"}}),
        json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "bad", "namespace": NAMESPACE},
            "spec": {"storageClassDevices": [{"storageClassName": "theirs", "devicePaths": ["/dev/disk/by-id/x"]}]}}),
    ];
    for object in objects {
        let set_object =
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
            if answer.contains(set_object) { Ok(()) } else { Err(answer) }
        });
    }
    kubectl(&["delete", "storageclass", "theirs"]);
}
