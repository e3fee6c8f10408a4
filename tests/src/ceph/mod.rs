//! A real Ceph in the cluster of `scripts/kube-lab`: one monitor and one manager as pods, and the
//! ConfigMaps and Secrets that Rook keeps for a cluster. It has no OSDs: those are Quarry's to make.
//!
//! `Ceph::shared` starts it once; every later test of the lab uses the same one. Objects:
//! `manifests.rs`; devices for OSDs: `disks.rs`.

pub mod disks;
mod manifests;

use crate::lab::{NODE, apply, get, kubectl, run, text, try_run, until};
use serde_json::Value;
use std::{
    path::PathBuf,
    process::Output,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Built by `scripts/image ceph`.
pub const IMAGE: &str = "quarry.dev/ceph:lab";
pub const NAMESPACE: &str = "rook-ceph";
/// The user that Rook creates for each preparation and deletes after it.
pub const BOOTSTRAP_USER: &str = "client.bootstrap-osd";
const LIMIT: Duration = Duration::from_secs(90);

static SHARED: Mutex<Option<Arc<Ceph>>> = Mutex::new(None);

pub struct Ceph {
    pub fsid: String,
    /// Of the monitor, which is in the network of the node.
    pub address: String,
    keys: manifests::Keys,
}

impl Ceph {
    /// The Ceph of this lab. Starts it unless it runs, also when another process has started it.
    pub fn shared() -> Arc<Ceph> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.get_or_insert_with(|| Arc::new(Ceph::start())).clone()
    }

    fn start() -> Ceph {
        let begun = Instant::now();
        let node = get(&["node", NODE]).expect("the lab has one node");
        let addresses = node["status"]["addresses"].as_array().expect("a node has addresses");
        let address = addresses.iter().find(|one| one["type"] == "InternalIP");
        let address = address.and_then(|one| one["address"].as_str()).expect("an IP address");
        let ceph = Ceph::running(address).unwrap_or_else(|| {
            std::fs::create_dir_all(monitor_data()).expect("the lab's directory can be written");
            let ceph = Ceph {
                fsid: uuid::Uuid::new_v4().to_string(),
                address: address.to_owned(),
                keys: manifests::Keys::random(),
            };
            apply(&manifests::namespace(NAMESPACE, "privileged").to_string());
            apply(&manifests::cluster(&ceph, NAMESPACE, &ceph.fsid).to_string());
            apply(&manifests::daemons(&ceph, &monitor_data()).to_string());
            ceph
        });
        until("the monitor responds", LIMIT, || {
            let output = ceph.try_ceph(&["mon", "stat"]);
            if output.status.success() { Ok(()) } else { Err(ceph.state(&output)) }
        });
        // The module would create a pool. Forced: the option is unknown until a manager runs.
        let option = "mgr/devicehealth/enable_monitoring";
        ceph.ceph(&["config", "set", "mgr", option, "false", "--force"]);
        eprintln!("figure: Ceph monitor: {:.1} s", begun.elapsed().as_secs_f32());
        ceph
    }

    /// What an earlier process of this lab has started.
    fn running(address: &str) -> Option<Ceph> {
        get(&["-n", NAMESPACE, "deployment", "rook-ceph-tools"])?;
        let mon = secret("rook-ceph-mon");
        let keys = secret("rook-ceph-mons-keyring");
        Some(Ceph {
            fsid: mon("fsid"),
            address: address.to_owned(),
            keys: manifests::Keys::parse(&keys("keyring")),
        })
    }

    /// Waits for the manager: placement groups and `safe-to-destroy` need it, OSDs do not.
    pub fn wait_manager(&self) {
        until("the manager is active", LIMIT, || {
            let seen = self.ceph(&["mgr", "stat"]);
            if seen["available"] == true { Ok(()) } else { Err(seen.to_string()) }
        });
    }

    /// The ConfigMaps and Secrets of a cluster in another namespace, for the same monitor. That
    /// namespace admits only pods of Pod Security level `restricted`. With another fsid than the
    /// monitor's, it is a cluster whose devices belong to this one.
    pub fn join(&self, namespace: &str, fsid: &str) {
        apply(&manifests::namespace(namespace, "restricted").to_string());
        apply(&manifests::cluster(self, namespace, fsid).to_string());
    }

    /// Runs `ceph` as its administrator. It would wait five minutes for a monitor.
    pub fn try_ceph(&self, arguments: &[&str]) -> Output {
        let base = ["ceph", "--connect-timeout", "10", "--format", "json"];
        self.try_tool(&[&base, arguments].concat())
    }

    /// What `ceph` prints as JSON; null if it prints nothing.
    #[track_caller]
    pub fn ceph(&self, arguments: &[&str]) -> Value {
        let output = self.try_ceph(arguments);
        assert!(output.status.success(), "ceph {arguments:?}\n{}", text(&output.stderr));
        let printed = text(&output.stdout);
        if printed.trim().is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&printed)
            .unwrap_or_else(|error| panic!("ceph {arguments:?}: {error}\n{printed}"))
    }

    /// Writes an object of random content; returns its SHA-256 sum.
    #[track_caller]
    pub fn put_object(&self, pool: &str, name: &str, bytes: u64) -> String {
        let script = r#"head -c "$3" /dev/urandom > /run/ceph/object
            timeout 60 rados -p "$1" put "$2" /run/ceph/object
            sha256sum < /run/ceph/object; rm /run/ceph/object"#;
        self.script(script, &[pool, name, &bytes.to_string()])
    }

    /// Reads an object; returns the SHA-256 sum of its content.
    #[track_caller]
    pub fn get_object(&self, pool: &str, name: &str) -> String {
        let script = r#"timeout 60 rados -p "$1" get "$2" - | sha256sum"#;
        self.script(script, &[pool, name])
    }

    /// Deletes the user for new OSDs, as Rook does after each successful reconcile.
    pub fn delete_bootstrap_user(&self) {
        self.ceph(&["auth", "rm", BOOTSTRAP_USER]);
    }

    /// Removes everything, so that the next `shared` starts a new Ceph.
    pub fn stop() {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s"]);
        if monitor_data().exists() {
            std::fs::remove_dir_all(monitor_data()).expect("no process uses it any more");
        }
        *shared = None;
    }

    /// Runs a command where Ceph's tools are.
    pub fn try_tool(&self, command: &[&str]) -> Output {
        let base = ["-n", NAMESPACE, "exec", "-i", "deploy/rook-ceph-tools", "--"];
        try_run("kubectl", &[&base, command].concat(), None)
    }

    /// The first word that a shell script prints.
    #[track_caller]
    fn script(&self, script: &str, arguments: &[&str]) -> String {
        let base = ["bash", "-euo", "pipefail", "-c", script, "script"];
        let output = self.try_tool(&[&base, arguments].concat());
        assert!(output.status.success(), "{script} {arguments:?}\n{}", text(&output.stderr));
        text(&output.stdout).split_whitespace().next().unwrap_or_default().to_owned()
    }

    fn state(&self, output: &Output) -> String {
        let pods = run("kubectl", &["-n", NAMESPACE, "get", "pods", "-o", "wide"]);
        let log = ["-n", NAMESPACE, "logs", "deploy/rook-ceph-mon-a", "--all-containers"];
        let log = try_run("kubectl", &[&log[..], &["--tail=20"]].concat(), None);
        format!("{}{pods}{}", text(&output.stderr), text(&log.stdout))
    }
}

/// A host path below the lab's directory: it stays when the pod is replaced, and goes with the lab.
fn monitor_data() -> PathBuf {
    directory().join("ceph/mon-a")
}

pub(crate) fn directory() -> PathBuf {
    std::env::var("QUARRY_LAB_DIR").expect("QUARRY_LAB_DIR is set by the tier's runner").into()
}

/// Reads the fields of a Secret.
fn secret(name: &str) -> impl Fn(&str) -> String {
    move |field| {
        let template = format!("{{{{index .data {field:?} | base64decode}}}}");
        let output = format!("go-template={template}");
        kubectl(&["-n", NAMESPACE, "get", "secret", name, "-o", &output])
    }
}
