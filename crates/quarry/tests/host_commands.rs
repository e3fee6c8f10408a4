//! `quarry hosts`, `host` and `explain` of hosts, as a process against the embedded API: objects are written by hand and no
//! operator runs, so that every result is known.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "starts the binary on directories of its own"
)]

use quarry_api::{admission, names};
use quarry_apiserver::{Kubeconfig, Options, Server, ServingIdentity, load_or_create_token};
use serde_json::{Value, json};
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_quarry");
const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/metal/baremetalhosts";

struct Cluster {
    dir: tempfile::TempDir,
    client: kube::Client,
}

impl Cluster {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(quarry_api::crds());
        let policies = admission::embedded_policies().into_iter();
        options.policies = policies.map(|policy| (policy.policy, policy.binding)).collect();
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
        for name in ["metal", "bmo"] {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster.send("POST", "/api/v1/namespaces", object).await;
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
        let answer = self.client.request(request).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    async fn host(&self, name: &str, status: Value) {
        let spec = json!({"online": true, "bmc": {"address": "redfish://10.0.0.5/redfish/v1/Systems/1", "credentialsName": "bmc"}});
        let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name}, "spec": spec});
        self.send("POST", HOSTS, object).await;
        if !status.is_null() {
            let path = format!("{HOSTS}/{name}/status");
            self.send("PATCH", &path, json!({"status": status})).await;
        }
    }

    async fn annotations(&self, name: &str) -> Value {
        let host = self.send("GET", &format!("{HOSTS}/{name}"), Value::Null).await;
        host["metadata"].get("annotations").cloned().unwrap_or_else(|| json!({}))
    }

    fn quarry(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(arguments).env("KUBECONFIG", self.dir.path().join("kubeconfig"));
        command.env_remove("RUST_LOG").output().unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.quarry(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn stderr_of_failure(&self, arguments: &[&str]) -> String {
        let output = self.quarry(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn storage() -> Value {
    let disk = |name: &str, wwn: &str| json!({"name": name, "wwn": wwn, "sizeBytes": 1000, "rotational": true});
    json!([disk("/dev/sda", "0x5000c500a1b2c3d4"), disk("/dev/sdb", "0x5000c500a1b2c3d5")])
}

fn status(state: &str) -> Value {
    json!({
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
        "lastUpdated": "2026-01-01T00:05:00Z", "provisioning": {"state": state, "ID": "3f7c"},
        "hardware": {"storage": storage(), "ramMebibytes": 1024},
        "operationHistory": {"inspect": {"start": "2026-01-01T00:01:00Z", "end": "2026-01-01T00:05:00Z"}},
    })
}

async fn with_node(cluster: &Cluster) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-0"}});
    cluster.send("POST", "/api/v1/nodes", node).await;
    let path = "/apis/quarry.dev/v1alpha1/nodeinventories";
    let inventory = json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "worker-0"}, "spec": {}});
    cluster.send("POST", path, inventory).await;
    let device = |name: &str, identity: &str| json!({"name": name, "type": "disk", "size": 1000, "identity": identity, "state": "Available", "settled": true});
    let devices = json!([
        device("sda", "wwn:5000c500a1b2c3d4"),
        device("sdb", "wwn:5000c500a1b2c3d5"),
        device("sdx", "wwn:5000c500ffffff01")
    ]);
    let status = json!({"status": {"machineID": "m", "devices": devices}});
    cluster.send("PATCH", &format!("{path}/worker-0/status"), status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_listed_and_explained_with_their_nodes() {
    let cluster = Cluster::new().await;
    let empty = cluster.quarry(&["hosts"]);
    assert!(text(&empty.stderr).contains("no BareMetalHosts in namespace default"));
    cluster.host("rack-1", status("available")).await;
    cluster.host("rack-2", Value::Null).await;
    with_node(&cluster).await;
    let elsewhere = text(&cluster.quarry(&["hosts"]).stderr);
    assert!(elsewhere.contains("hint: run `quarry hosts -A`"), "{elsewhere}");
    let table = cluster.stdout(&["hosts", "-A"]);
    let row = table.lines().find(|line| line.contains("rack-1")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let expected = ["metal", "rack-1", "available", "OK", "on", "true", "worker-0", "2"];
    assert_eq!(cells[..8], expected, "{table}");
    let rows: Value =
        serde_json::from_str(&cluster.stdout(&["hosts", "-n", "metal", "-o", "json"])).unwrap();
    assert_eq!((&rows[0]["node"], &rows[1]["state"]), (&json!("worker-0"), &json!("new")));
    assert!(cluster.stdout(&["hosts", "-n", "metal", "-o", "yaml"]).contains("name: rack-2"));

    let explained = cluster.stdout(&["explain", "bmh/rack-1", "-n", "metal"]);
    for part in [
        "host metal/rack-1: available",
        "Node: worker-0 (by 2 equal disks)",
        "2 seen by both",
        "only node -            sdx",
        "Waits for: nothing",
    ] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let missing = cluster.stderr_of_failure(&["explain", "host/rack-1"]);
    assert!(missing.contains("hint: there is one in namespace metal: add -n metal"), "{missing}");
    let device = cluster.stdout(&["explain", "worker-0/sda"]);
    assert!(
        device.contains("Host: BareMetalHost metal/rack-1: /dev/sda in its inspection"),
        "{device}"
    );
    let other = cluster.stdout(&["explain", "worker-0/sdx"]);
    assert!(other.contains("its inspection did not see this disk"), "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_operator_is_warned_of() {
    let cluster = Cluster::new().await;
    cluster.host("rack-1", status("available")).await;
    let now = jiff::Timestamp::now();
    let spec = json!({"holderIdentity": "bmo-0", "leaseDurationSeconds": 15, "renewTime": format!("{now:.6}")});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "baremetal-operator"}, "spec": spec});
    cluster.send("POST", "/apis/coordination.k8s.io/v1/namespaces/bmo/leases", lease).await;
    let warned = text(&cluster.quarry(&["hosts", "-A"]).stderr);
    assert!(
        warned.contains("warning: baremetal-operator (bmo-0) renews Lease bmo/baremetal-operator"),
        "{warned}"
    );
    let explained = cluster.stdout(&["explain", "host/rack-1", "-n", "metal"]);
    assert!(explained.contains("Waits for: another operator to stop"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_write_the_annotations_that_the_operator_reads() {
    let cluster = Cluster::new().await;
    cluster.host("rack-1", status("available")).await;
    let run = |line: &str| {
        let line = format!("host {line} -n metal");
        cluster.stdout(&line.split_whitespace().collect::<Vec<_>>())
    };
    let refused = |line: &str| {
        let line = format!("host {line} -n metal");
        cluster.stderr_of_failure(&line.split_whitespace().collect::<Vec<_>>())
    };
    assert!(
        refused("attach rack-1")
            .contains("error: host rack-1 is not detached\nhint: run `quarry explain")
    );
    assert!(run("inspect rack-1").contains("requested an inspection of host rack-1"));
    run("reboot rack-1 --hard");
    run("detach rack-1 --delete-action delete --force");
    let again = run("detach rack-1 --force --delete-action delete");
    assert!(again.contains("is to be detached already"), "{again}");
    assert_eq!(
        cluster.annotations("rack-1").await,
        json!({
            names::INSPECT_ANNOTATION: "", names::REBOOT_ANNOTATION: "{\"mode\":\"hard\"}",
            names::DETACHED_ANNOTATION: "{\"deleteAction\":\"delete\",\"force\":true}",
        })
    );
    assert!(
        refused("inspect rack-1").contains("hint: run `quarry host attach rack-1 -n metal` first")
    );
    run("attach rack-1");
    run("detach rack-1");
    let detached = &cluster.annotations("rack-1").await[names::DETACHED_ANNOTATION];
    assert_eq!(*detached, "{\"deleteAction\":\"delay\"}", "a deletion waits, as the help says");
    run("attach rack-1");
    assert!(cluster.annotations("rack-1").await.get(names::DETACHED_ANNOTATION).is_none());
    assert!(refused("inspect rack-9").contains("does not exist in namespace metal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_host_keeps_its_status() {
    let (from, to) = (Cluster::new().await, Cluster::new().await);
    from.host("rack-1", status("available")).await;
    from.host("rack-2", Value::Null).await;
    let printed = from.stdout(&["host", "move-out", "--all", "-n", "metal"]);
    for part in [
        "host rack-1: paused, status saved (available)",
        "host rack-2: paused; it has no status yet",
        "clusterctl move -n metal",
        "quarry host move-in --all -n metal",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let first = from.send("GET", &format!("{HOSTS}/rack-1"), Value::Null).await;
    let saved: Value = serde_json::from_str(
        first["metadata"]["annotations"][names::STATUS_ANNOTATION].as_str().unwrap(),
    )
    .unwrap();
    let mut expected = first["status"].clone();
    expected.as_object_mut().unwrap().remove("hardware");
    assert_eq!(saved, expected);
    from.stdout(&["host", "move-out", "rack-1", "-n", "metal"]);
    let second = from.send("GET", &format!("{HOSTS}/rack-1"), Value::Null).await;
    assert_eq!(
        first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"],
        "repeated without a write"
    );
    let refused = from.stderr_of_failure(&["host", "inspect", "rack-1", "-n", "metal"]);
    assert!(refused.contains("hint: run `quarry host move-in rack-1 -n metal` first"), "{refused}");

    // As clusterctl does: everything but the status, and here without the HardwareData.
    let metadata = json!({"name": "rack-1", "annotations": first["metadata"]["annotations"]});
    let moved = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": first["spec"]});
    to.send("POST", HOSTS, moved).await;
    let refused = to.stderr_of_failure(&["host", "move-in", "--all", "-n", "metal"]);
    assert!(refused.contains("HardwareData rack-1 was not moved along"), "{refused}");
    let data = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": {"name": "rack-1"}, "spec": {"hardware": {"storage": storage()}}});
    to.send("POST", "/apis/metal3.io/v1alpha1/namespaces/metal/hardwaredata", data).await;
    assert!(
        to.stdout(&["host", "move-in", "--all", "-n", "metal"])
            .contains("host rack-1: the operator takes it up")
    );
    let annotations = to.annotations("rack-1").await;
    assert!(annotations.get(names::PAUSED_ANNOTATION).is_none(), "{annotations}");
    assert_eq!(
        annotations[names::STATUS_ANNOTATION],
        first["metadata"]["annotations"][names::STATUS_ANNOTATION]
    );
    assert!(to.stdout(&["host", "move-in", "rack-1", "-n", "metal"]).contains("is not paused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn move_out_saves_the_status_that_was_written_last() {
    let cluster = Cluster::new().await;
    cluster.host("rack-1", status("inspecting")).await;
    let writes = async {
        for count in 1..=8 {
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
            let status = json!({"status": {"errorCount": count}});
            cluster.send("PATCH", &format!("{HOSTS}/rack-1/status"), status).await;
        }
    };
    // The command blocks its thread: the writes need one of their own.
    let handle = tokio::runtime::Handle::current();
    let printed = std::thread::scope(|scope| {
        let writer = scope.spawn(move || handle.block_on(writes));
        let printed = tokio::task::block_in_place(|| {
            cluster.stdout(&["host", "move-out", "rack-1", "-n", "metal"])
        });
        writer.join().unwrap();
        printed
    });
    assert!(printed.contains("status saved (inspecting; Ironic goes on with it"), "{printed}");
    let annotations = cluster.annotations("rack-1").await;
    let saved: Value =
        serde_json::from_str(annotations[names::STATUS_ANNOTATION].as_str().unwrap()).unwrap();
    assert_eq!(saved["errorCount"], json!(8));
}
