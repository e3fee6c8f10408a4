//! Hosts move to another cluster: the real `clusterctl move` between two real API servers, the real Ironic behind both.

use quarry_tests::{
    lab::{program, repository, run, try_run},
    services::{LIMIT, Lab, Request, System},
};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

const NAMESPACE: &str = "metal";

/// An API server of its own, on loopback; stopped on drop.
struct ApiServer {
    process: Child,
    directory: tempfile::TempDir,
}

impl ApiServer {
    fn start(port: u16) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let process = Command::new(repository().join("scripts/api-server"))
            .arg(directory.path())
            .arg(port.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("scripts/api-server can be started");
        ApiServer { process, directory }
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        while !self.directory.path().join("ready").exists() {
            assert!(begun.elapsed() < LIMIT, "the API server does not start");
            let ended = self.process.try_wait().expect("the process can be waited for");
            assert!(ended.is_none(), "scripts/api-server ended: {ended:?}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("admin.kubeconfig")
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig().display());
        run(&program("kube", "kubectl"), &[&[kubeconfig.as_str()], arguments].concat())
    }

    fn apply(&self, yaml: &str) {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig().display());
        let arguments = [kubeconfig.as_str(), "apply", "-f", "-"];
        let output = try_run(&program("kube", "kubectl"), &arguments, Some(yaml));
        assert!(output.status.success(), "{output:?}");
    }

    fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let text =
            self.kubectl(&["get", kind, name, "-n", NAMESPACE, "-o", "json", "--ignore-not-found"]);
        if text.trim().is_empty() {
            return None;
        }
        Some(serde_json::from_str(&text).expect("kubectl prints JSON"))
    }

    fn host(&self, name: &str) -> Value {
        self.get("baremetalhost", name).unwrap_or_default()
    }

    /// What clusterctl expects of a management cluster, and Quarry's kinds.
    fn prepare(&mut self, quarry: &str) {
        self.wait();
        self.apply(include_str!("../../fixtures/cluster-api.yaml"));
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig().display());
        run(quarry, &[&kubeconfig, "crds", "apply"]);
        self.kubectl(&["create", "namespace", NAMESPACE]);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Its trap ends the parts.
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().ok();
        self.process.wait().ok();
    }
}

/// An operator that drives hosts of a real API server; killed on drop.
struct Operator(Child);

impl Operator {
    fn start(quarry: &str, kubeconfig: &Path, system: &System) -> Self {
        let lab = Lab::get();
        let child = Command::new(quarry)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["operator", "--controllers=hosts", "--no-leader-election"])
            .args(["--metrics-listen=127.0.0.1:0", "--ironic-url", &system.ironic_url()])
            .args(["--deploy-iso", &lab.deploy_iso])
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("quarry can be started");
        Operator(child)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A host with its Secret, `NAME-bmc`.
fn host_yaml(namespace: &str, name: &str, system: &System, external: bool) -> String {
    let lab = Lab::get();
    let mac = &system.mac;
    let address =
        format!("redfish-virtualmedia+{}/redfish/v1/Systems/{}", system.redfish, system.uuid);
    let (user, password) = (&lab.bmc_user, &lab.bmc_password);
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}-bmc, namespace: {namespace}}}\nstringData: {{username: {user}, password: {password}}}\n---\n\
         apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  online: true\n  externallyProvisioned: {external}\n  bootMACAddress: \"{mac}\"\n  bmc: {{address: \"{address}\", credentialsName: {name}-bmc}}\n"
    )
}

fn until<T>(what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    quarry_tests::lab::until(what, LIMIT, &mut probe)
}

/// What must not change by a move.
fn essence(host: &Value) -> Value {
    let status = &host["status"];
    serde_json::json!({
        "spec": host["spec"],
        "provisioning": status["provisioning"],
        "operationHistory": status["operationHistory"],
        "hardware": status["hardware"],
        "goodCredentials": status["goodCredentials"]["credentials"],
        "poweredOn": status["poweredOn"],
    })
}

#[test]
fn clusterctl_moves_hosts_without_loss() {
    let lab = Lab::get();
    let quarry = std::env::var("QUARRY_BIN").expect("the tier sets QUARRY_BIN");
    let mut source = ApiServer::start(21000);
    let mut target = ApiServer::start(21010);
    source.prepare(&quarry);
    target.prepare(&quarry);
    let systems: [System; 3] = std::array::from_fn(|_| lab.system());
    let names = ["first", "second", "external"];
    let operator = Operator::start(&quarry, &source.kubeconfig(), &systems[0]);
    for (name, system) in names.iter().zip(&systems) {
        let external = *name == "external";
        source.apply(&host_yaml(NAMESPACE, name, system, external));
    }
    let settled = |cluster: &ApiServer| {
        until("all hosts are in their state", || {
            let states = names.map(|name| {
                let host = cluster.host(name);
                let state = host["status"]["provisioning"]["state"].as_str().map(str::to_owned);
                (state.unwrap_or_default(), host["status"]["poweredOn"] == true)
            });
            let wanted = ["available", "available", "externally provisioned"];
            let done =
                states.iter().zip(wanted).all(|((state, on), wanted)| state == wanted && *on);
            if done { Ok(()) } else { Err(format!("{states:?}")) }
        });
    };
    settled(&source);
    let before = names.map(|name| source.host(name));
    let data = ["first", "second"].map(|name| source.get("hardwaredata", name).expect(name));

    let kubeconfig = source.kubeconfig().display().to_string();
    let moved = format!("--kubeconfig={kubeconfig}");
    run(&quarry, &[&moved, "host", "move-out", "--all", "-n", NAMESPACE]);
    drop(operator);
    let changes = || -> Vec<Request> {
        systems[0].requests().into_iter().filter(|request| request.method != "GET").collect()
    };
    let changes_before = changes().len();
    let to = format!("--to-kubeconfig={}", target.kubeconfig().display());
    run(&program("clusterctl", "clusterctl"), &["move", "-n", NAMESPACE, &moved, &to]);
    for name in names {
        assert!(source.get("baremetalhost", name).is_none(), "{name} is gone from the source");
        let arrived = target.host(name);
        assert!(arrived["status"].is_null(), "clusterctl takes no status along: {arrived}");
        assert_eq!(target.get("hardwaredata", name).is_some(), name != "external");
        assert!(target.get("secret", &format!("{name}-bmc")).is_some(), "the Secret moved, too");
    }

    let operator = Operator::start(&quarry, &target.kubeconfig(), &systems[0]);
    let there = format!("--kubeconfig={}", target.kubeconfig().display());
    run(&quarry, &[&there, "host", "move-in", "--all", "-n", NAMESPACE]);
    settled(&target);
    let after = names.map(|name| target.host(name));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(essence(before), essence(after));
        assert_eq!(after["metadata"]["annotations"]["baremetalhost.metal3.io/status"], Value::Null);
    }
    for (name, before) in ["first", "second"].iter().zip(&data) {
        let after = target.get("hardwaredata", name).expect(name);
        assert_eq!(before["spec"], after["spec"]);
        let owner = &after["metadata"]["ownerReferences"][0]["uid"];
        assert_eq!(*owner, target.host(name)["metadata"]["uid"], "owned by the host that moved");
    }
    // The credentials are sent again, because the Secret has another version; nothing else.
    let all = changes();
    let harmful: Vec<_> =
        all[changes_before..].iter().filter(|request| request.method != "PATCH").collect();
    assert!(harmful.is_empty(), "not inspected, provisioned or switched again: {harmful:?}");
    drop(operator);
}
