//! Quarry in the lab: `quarry up` with its own data directory, against the lab's Ironic, and its API as the tests see it.
//!
//! One per test, at the address of the test's system, so that its requests to Ironic can be counted. Ended when dropped;
//! a failed test prints the end of its log. Read next: `system.rs`.

use super::{Answer, Lab, System, request, until};
use serde_json::{Value, json};
use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A debug build on a busy machine.
const START: Duration = Duration::from_secs(60);

pub struct Quarry {
    dir: tempfile::TempDir,
    arguments: Vec<String>,
    child: Option<Child>,
    url: String,
    token: String,
}

impl Quarry {
    /// With the ramdisk of the lab, and no credentials for Ironic.
    pub fn start(system: &System) -> Self {
        Self::start_with(&system.ironic_url(), &[])
    }

    pub fn start_with(ironic_url: &str, more: &[&str]) -> Self {
        let ironic = ["--ironic-url", ironic_url, "--deploy-iso", &Lab::get().deploy_iso];
        Self::start_as(&[&ironic, more].concat())
    }

    /// The API for an operator of its own: without Ironic this one leaves hosts alone.
    pub fn api_only() -> Self {
        Self::start_as(&[])
    }

    fn start_as(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&one| one.to_owned()).collect();
        let dir = tempfile::tempdir().unwrap();
        let mut quarry =
            Quarry { dir, arguments, child: None, url: String::new(), token: String::new() };
        quarry.run();
        quarry
    }

    /// Starts it again, after `kill`.
    pub fn run(&mut self) {
        self.spawn();
        let kubeconfig = self.dir.path().join("kubeconfig");
        let (url, token) = until("quarry up serves its API", START, || {
            let text = std::fs::read_to_string(&kubeconfig).map_err(|error| error.to_string())?;
            let value = |key: &str| {
                let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
                line.map(|line| line.trim().trim_matches('"').to_owned()).ok_or("no kubeconfig yet")
            };
            let (url, token) = (value("server:")?, value("token:")?);
            send(&url, &token, "GET", "/api/v1/namespaces/default/secrets", None)?;
            Ok((url, token))
        });
        (self.url, self.token) = (url, token);
    }

    /// Without waiting for anything.
    pub fn spawn(&mut self) {
        let data = self.dir.path();
        // Of the last start: its address is out of date.
        if let Err(error) = std::fs::remove_file(data.join("kubeconfig")) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let binary =
            std::env::var_os("QUARRY_BIN").expect("QUARRY_BIN is set by the tier's runner");
        let child = Command::new(binary)
            .args(["up", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// SIGKILL: nothing is written any more.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("quarry.log")
    }

    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        send(&self.url, &self.token, method, path, body)
    }

    #[track_caller]
    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.send("POST", path, Some(object)).unwrap().ok()
    }

    /// A merge patch; while others write at the same time it is repeated.
    #[track_caller]
    pub fn patch(&self, path: &str, changes: &Value) -> Value {
        self.send("PATCH", path, Some(changes)).unwrap().ok()
    }

    /// Creates the Secret of a system with the lab's credentials.
    pub fn create_secret(&self, name: &str, password: &str) {
        let data = json!({"username": Lab::get().bmc_user, "password": password});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        self.create(SECRETS, &secret);
    }

    pub fn create_host(&self, system: &System, extra: &Value) {
        let mut spec = json!({
            "online": true, "bootMACAddress": system.mac,
            "bmc": {"address": system.bmc_address(), "credentialsName": system.name},
        });
        let mut metadata = json!({"name": system.name});
        for (into, key) in [(&mut spec, "spec"), (&mut metadata, "metadata")] {
            for (name, value) in extra[key].as_object().into_iter().flatten() {
                into[name] = value.clone();
            }
        }
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": spec});
        self.create(HOSTS, &host);
    }

    /// Secret and host, with the right credentials.
    pub fn register(&self, system: &System) {
        self.create_secret(&system.name, &Lab::get().bmc_password);
        self.create_host(system, &json!({}));
    }

    /// `None`: there is none.
    pub fn get(&self, path: &str) -> Option<Value> {
        let answer = self.send("GET", path, None).unwrap();
        if answer.status == 404 { None } else { Some(answer.ok()) }
    }

    pub fn host(&self, name: &str) -> Option<Value> {
        self.get(&format!("{HOSTS}/{name}"))
    }

    pub fn hardware_data(&self, name: &str) -> Option<Value> {
        self.get(&format!("{HARDWARE_DATA}/{name}"))
    }

    pub fn annotate(&self, name: &str, annotation: &str, value: impl Into<Value>) {
        let annotations = json!({annotation: value.into()});
        self.patch(&format!("{HOSTS}/{name}"), &json!({"metadata": {"annotations": annotations}}));
    }

    pub fn change(&self, name: &str, spec: &Value) {
        self.patch(&format!("{HOSTS}/{name}"), &json!({"spec": spec}));
    }

    pub fn delete_host(&self, name: &str) {
        self.send("DELETE", &format!("{HOSTS}/{name}"), None).unwrap().ok();
    }

    #[track_caller]
    pub fn wait_gone(&self, name: &str, limit: Duration) {
        until(&format!("host {name} is gone"), limit, || match self.host(name) {
            None => Ok(()),
            Some(host) => Err(host["status"].to_string()),
        });
    }

    /// Polls the host until its status is a wanted one.
    #[track_caller]
    pub fn wait(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&format!("host {name} {what}"), limit, || {
            let host = self.host(name).ok_or("there is no host")?;
            if wanted(&host["status"]) { Ok(host) } else { Err(host["status"].to_string()) }
        })
    }

    #[track_caller]
    pub fn wait_state(&self, name: &str, state: &str, limit: Duration) -> Value {
        self.wait(name, &format!("is {state}"), limit, |status| {
            status["provisioning"]["state"] == state && status["operationalStatus"] == "OK"
        })
    }

    /// The condition of a host's status; null: it has none of this type.
    pub fn condition(status: &Value, kind: &str) -> Value {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.into_iter().find(|one| one["type"] == kind).cloned().unwrap_or_default()
    }

    /// Reasons of all Events about an object.
    pub fn events(&self, name: &str) -> Vec<String> {
        let all = self.get("/api/v1/namespaces/default/events").unwrap();
        let about = all["items"].as_array().unwrap().iter();
        let about = about.filter(|event| event["involvedObject"]["name"] == name);
        about.map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Follows the writes to one kind, from now on.
    pub fn watch(&self, path: &str) -> Watch {
        let file = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
        let child = Command::new("curl")
            .args(["--silent", "--no-buffer", "--insecure", "--noproxy", "*", "--header"])
            .arg(format!("Authorization: Bearer {}", self.token))
            .arg(format!("{}{path}?watch=true&resourceVersion=0", self.url))
            .stdout(file.reopen().unwrap())
            .spawn()
            .unwrap();
        Watch { child, file }
    }
}

pub const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";
pub const HARDWARE_DATA: &str = "/apis/metal3.io/v1alpha1/namespaces/default/hardwaredata";
pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub const EVENTS: &str = "/api/v1/namespaces/default/events";

fn send(
    url: &str,
    token: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Answer, String> {
    let bearer = format!("Authorization: Bearer {token}");
    let mut more = vec!["--insecure", "--header", &bearer];
    if method == "PATCH" {
        more.extend(["--header", "Content-Type: application/merge-patch+json"]);
    }
    request(method, &format!("{url}{path}"), body, &more)
}

/// A watch that runs until it is dropped.
pub struct Watch {
    child: Child,
    file: tempfile::NamedTempFile,
}

impl Watch {
    /// Writes so far, each as the object that resulted.
    pub fn writes(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file.path()).unwrap();
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let events = complete.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        events
            .filter(|event| event["type"] != "BOOKMARK")
            .map(|event| event["object"].clone())
            .collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

impl Drop for Quarry {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = self.log_text();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!(
                "the end of its log:\n{}",
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
        super::restore(|| self.kill());
    }
}
