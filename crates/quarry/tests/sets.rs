//! `quarry sets`, `plan` and `explain` of sets and LocalVolumes, as a process against the embedded API: inventories are
//! written by hand and no operator runs, so that every result is known.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "starts the binary on directories of its own"
)]

use quarry_api::{admission, names};
use quarry_apiserver::{Kubeconfig, Options, Server, ServingIdentity, load_or_create_token};
use serde_json::{Value, json};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const BINARY: &str = env!("CARGO_BIN_EXE_quarry");
const GIB: i64 = 1 << 30;

/// An API with two nodes, worker-0 and worker-1, and what belongs to them.
struct Cluster {
    dir: tempfile::TempDir,
    client: kube::Client,
}

impl Cluster {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(quarry_api::crds());
        options.policies = admission::embedded_policies()
            .into_iter()
            .map(|policy| (policy.policy, policy.binding))
            .collect();
        let server = Server::in_memory(options);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let identity = ServingIdentity::load_or_create(dir.path()).unwrap();
        let token = load_or_create_token(dir.path()).unwrap();
        Kubeconfig { server: &url, ca_pem: identity.ca_pem(), token: &token, namespace: "default" }
            .write(&dir.path().join("kubeconfig"))
            .unwrap();
        let client = server.client("default");
        tokio::spawn(async move {
            server.serve(listener, identity, token, std::future::pending()).await
        });
        let cluster = Cluster { dir, client };
        cluster.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::DEFAULT_NAMESPACE}})).await;
        for node in ["worker-0", "worker-1"] {
            cluster
                .post("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}}))
                .await;
            let now = jiff::Timestamp::now();
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": names::agent_lease(node)}, "spec": {
                "holderIdentity": node, "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}")}});
            cluster
                .post("/apis/coordination.k8s.io/v1/namespaces/quarry-system/leases", lease)
                .await;
        }
        cluster
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Value {
        let kind =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body.to_string().into_bytes())
            .unwrap();
        self.client
            .request(request)
            .await
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.send("POST", path, body).await
    }

    async fn inventory(&self, node: &str, spec: Value, devices: Value) {
        let path = "/apis/quarry.dev/v1alpha1/nodeinventories";
        self.post(path, json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": node}, "spec": spec})).await;
        self.send(
            "PATCH",
            &format!("{path}/{node}/status"),
            json!({"status": {"machineID": "m", "devices": devices}}),
        )
        .await;
    }

    /// With the finalizer of the operator, as if it had seen the set.
    async fn set(&self, name: &str, spec: Value) -> Value {
        let metadata = json!({"name": name, "finalizers": [names::OWNER_FINALIZER]});
        let object = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": metadata, "spec": spec});
        self.post(
            "/apis/local.storage.openshift.io/v1alpha1/namespaces/quarry-system/localvolumesets",
            object,
        )
        .await
    }

    fn quarry(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .env_remove("RUST_LOG")
            .output()
            .unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.quarry(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn fixture(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(name)
        .display()
        .to_string()
}

fn disk(name: &str, size: i64, more: Value) -> Value {
    let mut device = json!({"name": name, "type": "disk", "size": size, "identity": format!("wwn:5000{name}"), "deviceID": format!("/dev/disk/by-id/wwn-0x5000{name}"),
        "state": "Available", "settled": true});
    for (key, value) in more.as_object().unwrap() {
        device[key] = value.clone();
    }
    device
}

/// Six available disks of 50 GiB and a few others; the second node has only two.
async fn two_workers() -> Cluster {
    let cluster = Cluster::new().await;
    let free =
        |name: &str| disk(name, 50 * GIB, json!({"model": "SAMSUNG MZ7LH480", "vendor": "ATA"}));
    let mut devices: Vec<Value> = ["sdb", "sdc", "sdd", "sde", "sdf", "sdg"].map(free).to_vec();
    devices.push(disk(
        "sda",
        100 * GIB,
        json!({"state": "NotAvailable", "reasons": [{"reason": "Mounted", "detail": "/"}]}),
    ));
    devices.push(disk(
        "sdh",
        50 * GIB,
        json!({"state": "NotAvailable", "reasons": [{"reason": "Signature", "detail": "xfs"}]}),
    ));
    devices.push(disk(
        "sdi",
        50 * GIB,
        json!({"state": "Unknown", "reasons": [{"reason": "TooNew"}], "settled": false}),
    ));
    devices.push(disk("sdj", 5 * GIB, json!({"rotational": true})));
    cluster.inventory("worker-0", json!({}), json!(devices)).await;
    cluster
        .inventory(
            "worker-1",
            json!({}),
            json!([disk("vdb", 50 * GIB, json!({})), disk("vdc", 50 * GIB, json!({}))]),
        )
        .await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_example_set_gets_the_documented_devices() {
    let cluster = two_workers().await;
    insta::assert_snapshot!(cluster.stdout(&["plan", "-f", &fixture("set-block.yaml")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_example_set_gets_the_documented_devices() {
    let cluster = two_workers().await;
    insta::assert_snapshot!(cluster.stdout(&[
        "plan",
        "-f",
        &fixture("set-filesystem.yaml"),
        "--node",
        "worker-0"
    ]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_set_replaces_the_live_set_of_its_name() {
    let cluster = two_workers().await;
    cluster.set("a-rival", json!({"storageClassName": "old", "maxDeviceCount": 1})).await;
    cluster
        .set(
            "example-autodetect",
            json!({"storageClassName": "live", "deviceInclusionSpec": {"minSize": "1Ti"}}),
        )
        .await;
    let live = cluster.stdout(&["plan", "set/example-autodetect"]);
    assert!(live.contains("it is smaller than 1Ti") && live.contains("gets 0;"), "{live}");
    let planned: Value = serde_json::from_str(&cluster.stdout(&[
        "plan",
        "-f",
        &fixture("set-block.yaml"),
        "-o",
        "json",
    ]))
    .unwrap();
    let [set] = planned.as_array().unwrap().as_slice() else { panic!("{planned}") };
    assert_eq!(set["classes"], json!(["example-storageclass"]), "{set}");
    let devices = set["nodes"][0]["devices"].as_array().unwrap();
    let eligibility = |name: &str| {
        devices.iter().find(|device| device["device"] == name).unwrap()["eligibility"].clone()
    };
    assert_eq!(
        [eligibility("sdb"), eligibility("sdc"), eligibility("sdh")],
        [json!("Taken"), json!("Selected"), json!("Refused")],
        "created in the same second, the first by name wins: {set}"
    );
    let again = cluster.stdout(&["plan", "set/example-autodetect"]);
    assert_eq!(live, again, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_problems_of_standard_input_are_reported() {
    let cluster = Cluster::new().await;
    let mut child = Command::new(BINARY)
        .args(["plan", "-f", "-"])
        .env("KUBECONFIG", cluster.dir.path().join("kubeconfig"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let file = "\
{apiVersion: local.storage.openshift.io/v1alpha1, kind: LocalVolumeSet, metadata: {name: a}, spec: {storageClassName: No_Class, minDeviceCount: 3, maxDeviceCount: 2, nonsense: 1, fsType: xfs, volumeMode: Block, deviceInclusionSpec: {deviceTypes: [tape], minSize: 2Gi, maxSize: 1Gi}, deviceExclusionSpec: {deviceNameFilter: ['sd[']}}}
---
{apiVersion: local.storage.openshift.io/v1alpha1, kind: LocalVolume, metadata: {name: b}, spec: {}}
---
{apiVersion: local.storage.openshift.io/v1, kind: LocalVolume, metadata: {name: c, namespace: elsewhere}, spec: {storageClassDevices: [{storageClassName: c, devicePaths: [sdb], forceWipeDevicesAndDestroyAllData: true}]}}
---
{apiVersion: local.storage.openshift.io/v1, kind: LocalVolume, metadata: {name: d}, spec: {storageClassDevices: [{storageClassName: c, devicePaths: /dev/sdb}]}}
";
    child.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    insta::assert_snapshot!(text(&output.stderr));
}

/// Refused at admission, and reported when the class appears later.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_of_another_provisioner_is_refused() {
    let cluster = two_workers().await;
    let early = cluster.set("early", json!({"storageClassName": "theirs"})).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "theirs"}, "provisioner": "csi.example.com"});
    cluster.post("/apis/storage.k8s.io/v1/storageclasses", class).await;
    let try_send = async |method: &str, path: &str, body: Value| {
        let kind =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body.to_string().into_bytes())
            .unwrap();
        cluster.client.request::<Value>(request).await.map_err(|error| error.to_string())
    };
    let set = |class: &str| json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "late"}, "spec": {"storageClassName": class}});
    let sets = "/apis/local.storage.openshift.io/v1alpha1/namespaces/quarry-system/localvolumesets";
    let message = "spec.storageClassName: StorageClass theirs belongs to the provisioner csi.example.com; use another name: a StorageClass that does not exist is created";
    let refused = try_send("POST", sets, set("theirs")).await.unwrap_err();
    assert!(refused.contains(message), "{refused}");
    try_send("POST", sets, set("ours")).await.unwrap();
    let refused =
        try_send("PATCH", &format!("{sets}/late"), json!({"spec": {"storageClassName": "theirs"}}))
            .await
            .unwrap_err();
    assert!(refused.contains(message), "{refused}");
    // A set that named it before can still be changed and deleted.
    try_send("PATCH", &format!("{sets}/early"), json!({"spec": {"maxDeviceCount": 1}}))
        .await
        .unwrap();
    let volume = json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "v"}, "spec": {
        "storageClassDevices": [{"storageClassName": "fine"}, {"storageClassName": "theirs", "devicePaths": ["/dev/disk/by-id/x"]}]}});
    let refused = try_send(
        "POST",
        "/apis/local.storage.openshift.io/v1/namespaces/quarry-system/localvolumes",
        volume,
    )
    .await
    .unwrap_err();
    assert!(
        refused
            .contains("spec.storageClassDevices.storageClassName: StorageClass theirs belongs to"),
        "{refused}"
    );
    let planned = cluster.stdout(&["plan", "set/early"]);
    assert!(
        planned.contains(
            "spec.storageClassName: StorageClass theirs belongs to the provisioner csi.example.com"
        ),
        "{planned}\n{early}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_are_listed_with_their_devices_per_node() {
    let cluster = two_workers().await;
    cluster.set("fast", json!({"storageClassName": "fast", "minDeviceCount": 3, "maxDeviceCount": 4, "deviceInclusionSpec": {"minSize": "10Gi"}})).await;
    cluster
        .set("nowhere", json!({"storageClassName": "x", "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "no", "operator": "Exists"}]}]}}))
        .await;
    let volume = json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": "named", "finalizers": [names::OWNER_FINALIZER]}, "spec": {
        "storageClassDevices": [{"storageClassName": "named", "devicePaths": ["/dev/disk/by-id/wwn-0x5000sdj"]}]}});
    cluster
        .post("/apis/local.storage.openshift.io/v1/namespaces/quarry-system/localvolumes", volume)
        .await;
    insta::assert_snapshot!("sets", cluster.stdout(&["sets"]));
    let wide = cluster.stdout(&["sets", "-o", "wide"]);
    assert!(wide.lines().next().unwrap().contains("NAMESPACE") && wide.contains("New"), "{wide}");
    let programs: Value =
        serde_json::from_str(&cluster.stdout(&["sets", "-o", "json", "--node", "worker-0"]))
            .unwrap();
    assert_eq!(
        programs[0]["nodes"][0]["refused"],
        json!({"Mounted": 1, "OverMaximum": 2, "Signature": 1}),
        "{programs}"
    );
    assert!(cluster.stdout(&["sets", "-o", "yaml"]).contains("notMatched: "));
    let unknown = cluster.quarry(&["sets", "--node", "worker-9"]);
    assert_eq!(
        text(&unknown.stderr),
        "error: node worker-9 does not exist\nhint: use one of: worker-0, worker-1\n"
    );
    let planned = cluster.stdout(&["plan", "localvolume/named", "--node", "worker-0"]);
    assert!(
        planned.contains("sdj") && planned.contains("gets it"),
        "a path in the inventory is resolved by the plan: {planned}"
    );
}

/// A confirmed device claim of sdb on worker-0, and its bound PersistentVolume.
async fn claimed() -> Cluster {
    let cluster = Cluster::new().await;
    let uid = cluster.set("fast", json!({"storageClassName": "fast"})).await["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    let owner =
        json!({"kind": "LocalVolumeSet", "namespace": "quarry-system", "name": "fast", "uid": uid});
    let link = "/mnt/local-storage/fast/wwn-0x5000sdb";
    let claim = json!({"identity": "wwn:5000sdb", "owner": owner, "storageClassName": "fast", "volumeMode": "Block", "size": 50 * GIB, "link": link, "round": 1});
    let taken = json!({"state": "NotAvailable", "reasons": [{"reason": "Claimed", "detail": "LocalVolumeSet quarry-system/fast"}]});
    let devices = json!([
        disk("sdb", 50 * GIB, taken),
        disk(
            "sdc",
            50 * GIB,
            json!({"state": "NotAvailable", "reasons": [{"reason": "Signature", "detail": "ext4"}]})
        )
    ]);
    cluster
        .inventory("worker-0", json!({"machineID": "m", "deviceClaims": [claim]}), devices)
        .await;
    let pv = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": names::local_pv("worker-0", "wwn:5000sdb"), "finalizers": [names::PV_FINALIZER],
            "annotations": {names::IDENTITY_ANNOTATION: "wwn:5000sdb", names::ROUND_ANNOTATION: "1"}},
        "spec": {"capacity": {"storage": "50Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block", "persistentVolumeReclaimPolicy": "Delete",
            "local": {"path": link}, "claimRef": {"namespace": "shop", "name": "db", "uid": "c1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-0"]}]}]}}}});
    let name = pv["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.post("/api/v1/persistentvolumes", pv).await;
    cluster
        .send(
            "PATCH",
            &format!("/api/v1/persistentvolumes/{name}/status"),
            json!({"status": {"phase": "Bound"}}),
        )
        .await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_is_explained_with_claims_and_remedies() {
    let cluster = claimed().await;
    let message = cluster.stdout(&["explain", "set/fast"]);
    let pv = names::local_pv("worker-0", "wwn:5000sdb");
    for part in [
        "LocalVolumeSet quarry-system/fast: not seen by the operator yet (1 provisioned, age ",
        "  devices   disks, of any size\n",
        "  ✓ sdb     50Gi  Bound    ",
        &format!("      PersistentVolume {pv} at /mnt/local-storage/fast/wwn-0x5000sdb\n"),
        "  ✗ sdc     50Gi  Refused  contains data: ext4\n",
        "  Signature             ",
        "node worker-1 has no inventory yet",
        "Events: none",
    ] {
        assert!(message.contains(part), "{part:?} in {message}");
    }
    let device = cluster.stdout(&["explain", "worker-0/sdb"]);
    let claim = format!(
        "Device claim: of LocalVolumeSet quarry-system/fast, Bound: PersistentVolume {pv} is bound to PVC shop/db; link /mnt/local-storage/fast/wwn-0x5000sdb\n"
    );
    assert!(
        device.contains(&claim) && device.contains("Owner: LocalVolumeSet quarry-system/fast\n"),
        "{device}"
    );
    assert!(!cluster.stdout(&["explain", "worker-0/sdc"]).contains("Device claim: "));
    let missing = cluster.quarry(&["explain", "set/fats"]);
    assert_eq!(
        text(&missing.stderr),
        "error: namespace quarry-system has no LocalVolumeSet fats\nhint: use one of: fast (or another namespace with -n)\n"
    );
    let planned = cluster.stdout(&["plan", "set/fast", "--node", "worker-0"]);
    assert!(
        planned.contains("has it (Bound)")
            && planned.contains("gets 0, has 1 already; not used: 1"),
        "{planned}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_in_another_namespace_has_no_effect() {
    let cluster = Cluster::new().await;
    let object = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "lost"}, "spec": {"storageClassName": "c"}});
    cluster
        .post(
            "/apis/local.storage.openshift.io/v1alpha1/namespaces/default/localvolumesets",
            object,
        )
        .await;
    let output = cluster.quarry(&["sets"]);
    let message = text(&output.stderr);
    assert!(
        message.contains(
            "LocalVolumeSet default/lost has no effect: the operator acts on namespace quarry-system only"
        ),
        "{message}"
    );
}

#[test]
fn a_plan_for_this_machine_needs_no_cluster() {
    let plan = |file: &str| {
        Command::new(BINARY)
            .args(["plan", "--local", "-f", file])
            .env_remove("KUBECONFIG")
            .env("HOME", "/nonexistent")
            .output()
            .unwrap()
    };
    let output = plan(&fixture("set-block.yaml"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("LocalVolumeSet quarry-system/example-autodetect\n"),
        "{}",
        text(&output.stdout)
    );
    assert!(
        text(&output.stderr)
            .contains("nodeSelector, tolerations and the device claims of a cluster are ignored"),
        "{}",
        text(&output.stderr)
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lv.yaml");
    std::fs::write(
        &file,
        "{apiVersion: local.storage.openshift.io/v1, kind: LocalVolume, metadata: {name: v}, spec: {storageClassDevices: [{storageClassName: c, devicePaths: [/dev/null, /dev/no-such-disk]}]}}",
    )
    .unwrap();
    let message = text(&plan(file.to_str().unwrap()).stdout);
    assert!(
        message.contains("/dev/null is a character device")
            && message.contains("it does not exist on this machine"),
        "{message}"
    );
    assert_eq!(plan("/no/such/file").status.code(), Some(1));
}

#[test]
fn a_missing_ledger_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = |place: &Path| {
        Command::new(BINARY).arg("ledger").arg("--data-dir").arg(place).output().unwrap()
    };
    let output = ledger(dir.path());
    assert!(
        output.status.code() == Some(1)
            && text(&output.stderr).contains("set its data directory with --data-dir"),
        "{}",
        text(&output.stderr)
    );
    std::fs::write(dir.path().join("ledger"), "{\"time\":\"2026-01-01T00:00:00Z\",\"kind\":\"intent\",\"job\":\"wipe-1\",\"action\":\"Wipe\",\"device\":\"wwn:5\",\"pv\":{\"name\":\"pv1\",\"uid\":\"u\"}}\n").unwrap();
    assert!(text(&ledger(dir.path()).stdout).contains("wwn:5, PersistentVolume pv1"));
}
