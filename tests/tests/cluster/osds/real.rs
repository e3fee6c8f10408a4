//! From a LocalVolumeSet to an object that is written and read, on the real kubelet and a real Ceph.
//!
//! The namespaces of the clusters enforce Pod Security `restricted`.

use super::{DeviceSets, LIMIT, cluster, list, reports, template};
use quarry_sim::osds::recording::{self, Exchange};
use quarry_tests::{
    ceph::{
        Ceph, IMAGE,
        disks::{HandMade, OSD_MEBIBYTES, set_disks},
    },
    lab::{NAMESPACE, kubectl, quarry, repository, run, text, until},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const OSD_PODS: &str = "app=rook-ceph-osd";

/// OSDs of the PVCs of a namespace that are up and in.
fn osds(ceph: &Ceph, namespace: &str) -> Vec<Value> {
    let claims = list(namespace, "pvc", "");
    let uids: Vec<&Value> = claims.iter().map(|claim| &claim["metadata"]["uid"]).collect();
    let dump = ceph.ceph(&["osd", "dump"]);
    let all = dump["osds"].as_array().cloned().unwrap_or_default();
    let ours = |osd: &Value| osd["up"] == 1 && osd["in"] == 1 && uids.contains(&&osd["uuid"]);
    all.into_iter().filter(ours).collect()
}

fn wait_osds(ceph: &Ceph, namespace: &str, count: usize) {
    until(&format!("{count} OSDs are up and in"), LIMIT, || {
        let found = osds(ceph, namespace);
        if found.len() == count { Ok(()) } else { Err(json!(found).to_string()) }
    });
}

fn available(namespace: &str) -> usize {
    let all = list(namespace, "deployments", OSD_PODS);
    all.iter().filter(|one| one["status"]["availableReplicas"] == 1).count()
}

/// Ends the operator without a word. Its Lease would keep the next one waiting for as long as it is valid.
fn kill_operator() {
    let pods = ["delete", "pods", "-l", "app.kubernetes.io/name=quarry-operator"];
    kubectl(&[&["-n", NAMESPACE], &pods[..], &["--grace-period=0", "--force"]].concat());
    kubectl(&["-n", NAMESPACE, "delete", "leases", "quarry-operator", "--ignore-not-found"]);
}

/// The fourth example of the design, with the operator killed after each kind of object is first seen.
#[test]
fn disks_of_a_set_become_osds_that_store_objects() {
    let ceph = Ceph::shared();
    let (namespace, class) = ("osds", "cluster1-local-storage");
    let device_sets = DeviceSets::on(&[namespace]);
    ceph.join(namespace, &ceph.fsid);
    let (disks, _) = set_disks(class, 3, OSD_MEBIBYTES);
    let set =
        json!({"name": "cluster1-set1", "count": 3, "volumeClaimTemplates": [template("", class)]});
    cluster(namespace, IMAGE, json!({"storageClassDeviceSet": [set]}));
    for (kind, selector) in [
        ("pvc", ""),
        ("jobs", ""),
        ("configmaps", "app=rook-ceph-osd,status=provisioning"),
        ("deployments", OSD_PODS),
        ("pods", OSD_PODS),
    ] {
        until(&format!("there are {kind} {selector}"), LIMIT, || {
            let found = list(namespace, kind, selector);
            if found.is_empty() { Err("none".to_owned()) } else { Ok(()) }
        });
        kill_operator();
    }
    reports(namespace, "True", "3 Running");
    wait_osds(&ceph, namespace, 3);
    assert_eq!(ceph.ceph(&["osd", "ls"]), json!([0, 1, 2]), "no ID was used and given up");
    let tree = ceph.ceph(&["osd", "tree"]);
    assert!(tree.to_string().contains("lab-node"), "the CRUSH host is the node: {tree}");

    ceph.wait_manager();
    ceph.ceph(&["osd", "pool", "create", "lab", "1"]);
    let sum = ceph.put_object("lab", "object", 4 << 20);
    assert_eq!(ceph.get_object("lab", "object"), sum);

    let up = osds(&ceph, namespace);
    compare_with_recording(&ceph, up[0]["uuid"].as_str().expect("an OSD has a UUID"));

    let shown = text(&quarry(&["osds", "-n", namespace]).stdout);
    assert_eq!(shown.matches("Running").count(), 3, "{shown}");

    // At rest nothing is made again; an OSD that is deleted comes back with its data.
    let made = ["jobs", "deployments", "pvc"].map(|kind| list(namespace, kind, "").len());
    assert_eq!(made, [3, 3, 3]);
    kubectl(&["-n", namespace, "delete", "pod", "-l", OSD_PODS, "--wait=false"]);
    until("the OSDs are up again", LIMIT, || {
        match (available(namespace), osds(&ceph, namespace).len()) {
            (3, 3) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    });
    assert_eq!(ceph.get_object("lab", "object"), sum);
    drop(device_sets);
    drop(disks);
    // A set may leave its class, and another test has one of this name.
    kubectl(&["delete", "storageclass", class, "--ignore-not-found"]);
}

/// What a prepare run asks, in every state of an OSD. `up`: the UUID of one that runs.
fn conversation(ceph: &Ceph, up: &str) -> Vec<Exchange> {
    let uuid = uuid::Uuid::new_v4().to_string();
    let seen = |what: (&str, &str), uuid: &str, script: &str| {
        let output = ceph.try_tool(&["bash", "-c", script, "script", uuid]);
        let code = output.status.code().unwrap_or_default();
        recording::exchange(what, uuid, code, &output.stdout, &output.stderr)
    };
    let new = |options: &str, key: &str| {
        format!(
            r#"echo '{{"cephx_secret": "{key}"}}' | ceph {options} --connect-timeout 10 osd new "$1" -i -"#
        )
    };
    let (first, second) =
        ("AQAAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==", "AQAAAAAAAAAAABAADw4NDAsKCQgHBgUEAwIBAA==");
    let dump =
        |options: &str| format!("ceph {options} --connect-timeout 10 osd dump --format json");
    // Neither the configuration nor the environment may name the monitor.
    let nowhere = "--conf /dev/null -m 127.0.0.1:1 --connect-timeout 3";
    let found = recording::ALL.map(|(request, when)| {
        let options = if when == recording::UNREACHABLE { nowhere } else { "" };
        let key = if when == recording::OTHER_KEY { second } else { first };
        let script = if request == recording::DUMP { dump(options) } else { new(options, key) };
        // The last option of a name counts.
        let script = match options {
            "" => script,
            _ => format!(
                "export CEPH_ARGS='--keyring /keys/keyring'; {}",
                script.replace("--connect-timeout 10 ", "")
            ),
        };
        seen((request, when), if when == recording::UP { up } else { &uuid }, &script)
    });
    let purge = "ceph osd purge-new $(ceph osd new \"$1\") --yes-i-really-mean-it";
    let output = ceph.try_tool(&["bash", "-c", purge, "script", &uuid]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    found.into()
}

/// The simulated Ceph answers only what is recorded: here the real one says whether it is still so.
fn compare_with_recording(ceph: &Ceph, up: &str) {
    let found = conversation(ceph, up);
    if std::env::var_os("QUARRY_RECORD").is_some() {
        let file = repository().join("crates/sim/src/osds/recording.json");
        let printed = serde_json::to_string_pretty(&found).expect("it is JSON");
        std::fs::write(file, printed + "\n").expect("the repository can be written");
        return;
    }
    for (found, recorded) in found.iter().zip(recording::recorded()) {
        assert_eq!(*found, recorded, "record it again with QUARRY_RECORD=1");
    }
}

fn hash(device: &str) -> String {
    run(
        "sh",
        &["-c", &format!("dd if={device} bs=1M count=4 iflag=direct status=none | sha256sum")],
    )
}

/// Devices with data are refused by name of what is on them, stay as they are, and stop no other OSD.
#[test]
fn devices_with_data_or_of_other_clusters_are_refused() {
    let ceph = Ceph::shared();
    let (ours, other) = ("osds-ours", "osds-other");
    let device_sets = DeviceSets::on(&[ours, other]);
    ceph.join(ours, &ceph.fsid);
    let data = HandMade::new("lab-data", 1, OSD_MEBIBYTES);
    let metadata = HandMade::new("lab-metadata", 1, OSD_MEBIBYTES);
    let used = HandMade::new("lab-used", 1, OSD_MEBIBYTES);
    run("mkfs.ext4", &["-q", &used.disks[0].device]);
    let before = hash(&used.disks[0].device);
    let two = [template("osd-data", &data.class), template("osd-metadata", &metadata.class)];
    let sets = json!([
        {"name": "used", "count": 1, "volumeClaimTemplates": [template("", &used.class)]},
        {"name": "two", "count": 1, "config": {"metadataDevice": "/dev/rook/device1"}, "volumeClaimTemplates": two},
    ]);
    cluster(ours, IMAGE, json!({"storageClassDeviceSets": sets}));
    reports(ours, "False", "1 Running");
    reports(ours, "False", "ext4");
    wait_osds(&ceph, ours, 1);
    let id = osds(&ceph, ours)[0]["osd"].to_string();
    let made = ceph.ceph(&["osd", "metadata", &id]);
    assert_eq!(made["bluefs_dedicated_db"], "1", "{made}");
    assert_eq!(hash(&used.disks[0].device), before, "the file system is as it was");

    // A device of the first cluster, and a blank one of a cluster whose Secrets are of another.
    let fsid = "11111111-2222-4333-8444-555555555555";
    ceph.join(other, fsid);
    let foreign = HandMade::new("lab-foreign", 1, OSD_MEBIBYTES);
    let blank = HandMade::new("lab-blank", 1, OSD_MEBIBYTES);
    let (from, to) = (&data.disks[0].device, &foreign.disks[0].device);
    run(
        "dd",
        &[
            &format!("if={from}"),
            &format!("of={to}"),
            "bs=1M",
            "count=4",
            "conv=fsync",
            "status=none",
        ],
    );
    let before = [hash(to), hash(&blank.disks[0].device)];
    let sets = json!([
        {"name": "foreign", "count": 1, "volumeClaimTemplates": [template("", &foreign.class)]},
        {"name": "blank", "count": 1, "volumeClaimTemplates": [template("", &blank.class)]},
    ]);
    cluster(other, IMAGE, json!({"storageClassDeviceSets": sets}));
    let seen = reports(other, "False", "2 Refused");
    let message = seen["status"]["conditions"].to_string();
    for words in ["OtherCluster", ceph.fsid.as_str(), "FsidMismatch", "rook-ceph-mon"] {
        assert!(message.contains(words), "{words} in {message}");
    }
    assert_eq!([hash(to), hash(&blank.disks[0].device)], before, "both are as they were");
    let ids: BTreeSet<String> =
        ceph.ceph(&["osd", "ls"]).as_array().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(ids, BTreeSet::from([id]), "nothing was registered for them");
    drop(device_sets);
    drop((data, metadata, used, foreign, blank));
}
