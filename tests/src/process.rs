//! Quarry as real processes: the API in this process, operator and agent as child processes.
//!
//! Owns the child processes and kills them on drop. Polls with deadlines and reports the last
//! state.

use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use quarry_api::{NodeInventory, Volume, volume::Phase};
use quarry_apiserver::{Kubeconfig, Options, Server, ServingIdentity, load_or_create_token};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Operator,
    Agent,
}

pub const NODE: &str = "story-node";
const LIMIT: Duration = Duration::from_secs(60);

/// How the processes are started.
#[derive(Clone, Debug)]
pub struct Setup {
    pub controllers: &'static str,
    /// Additional arguments of the agent.
    pub agent: Vec<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { controllers: "volume,nodeinventory,nodejob", agent: Vec::new() }
    }
}

impl Setup {
    /// With LocalVolumeSets and LocalVolumes, and an agent that does not wait a minute for every
    /// disk to settle.
    pub fn claims() -> Self {
        Setup {
            controllers: "nodeinventory,nodejob,deviceclaims",
            agent: vec!["--settling-time=100ms".into()],
        }
    }
}

pub struct Processes {
    dir: PathBuf,
    setup: Setup,
    client: Client,
    operator: Option<Child>,
    agent: Option<Child>,
    api: Served,
}

/// The API, which can be stopped and served again at the same address.
struct Served {
    server: Server,
    address: std::net::SocketAddr,
    stop: tokio_util::sync::CancellationToken,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in [&mut self.operator, &mut self.agent].into_iter().flatten() {
            end(child);
        }
        self.api.stop.cancel();
    }
}

/// The binary under test, a debug build: release builds have no failpoints.
fn binary() -> PathBuf {
    std::env::var_os("QUARRY_BIN")
        .map(PathBuf::from)
        .expect("QUARRY_BIN is set by the tier's runner")
}

fn end(child: &mut Child) {
    // It may have died at its failpoint already; after the wait it has ended in any case.
    if child.kill().is_err() {
        eprintln!("process {} had already ended", child.id());
    }
    child.wait().expect("a child of ours can be waited for");
}

impl Processes {
    pub async fn start(dir: &Path) -> Self {
        Self::start_as(dir, Setup::default()).await
    }

    pub async fn start_as(dir: &Path, setup: Setup) -> Self {
        let mut options = Options::new(quarry_api::crds());
        options.policies = quarry_api::admission::embedded_policies()
            .into_iter()
            .map(|policy| (policy.policy, policy.binding))
            .collect();
        let server = Server::in_memory(options);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("https://{address}");
        let identity = ServingIdentity::load_or_create(dir).unwrap();
        let token = load_or_create_token(dir).unwrap();
        Kubeconfig { server: &url, ca_pem: identity.ca_pem(), token: &token, namespace: "default" }
            .write(&dir.join("kubeconfig"))
            .unwrap();
        let client = server.client("default");
        let api = Served {
            server,
            address,
            stop: tokio_util::sync::CancellationToken::new(),
            serving: None,
        };
        drop((listener, identity, token));
        let mut processes =
            Processes { dir: dir.to_owned(), setup, client, operator: None, agent: None, api };
        processes.api_up().await;
        processes.make_objects().await;
        processes.restart(Role::Operator, None).await;
        processes.restart(Role::Agent, None).await;
        processes
    }

    /// Serves the API again, at the same address.
    pub async fn api_up(&mut self) {
        let deadline = Instant::now() + LIMIT;
        let listener = loop {
            match tokio::net::TcpListener::bind(self.api.address).await {
                Ok(listener) => break listener,
                Err(error) => {
                    assert!(Instant::now() < deadline, "binding {}: {error}", self.api.address)
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let identity = ServingIdentity::load_or_create(&self.dir).unwrap();
        let token = load_or_create_token(&self.dir).unwrap();
        self.api.stop = tokio_util::sync::CancellationToken::new();
        let (server, closed) = (self.api.server.clone(), self.api.stop.clone());
        self.api.serving = Some(tokio::spawn(async move {
            server.serve(listener, identity, token, closed.cancelled_owned()).await.unwrap();
        }));
    }

    /// Stops serving the API; its objects stay.
    pub async fn api_down(&mut self) {
        self.api.stop.cancel();
        if let Some(serving) = self.api.serving.take() {
            serving.await.unwrap();
        }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Number of writes the API has accepted, without Leases.
    pub fn writes(&self) -> u64 {
        self.write_counts().values().sum()
    }

    /// Accepted writes by kind.
    pub fn write_counts(&self) -> BTreeMap<String, u64> {
        self.api
            .server
            .write_counts()
            .into_iter()
            .filter(|(kind, _)| !kind.contains("leases"))
            .collect()
    }

    pub fn operator_pid(&self) -> Option<u32> {
        self.operator.as_ref().map(Child::id)
    }

    pub fn agent_pid(&self) -> Option<u32> {
        self.agent.as_ref().map(Child::id)
    }

    /// Waits until the NodeInventory matches.
    pub async fn wait_inventory(
        &self,
        what: &str,
        wanted: impl Fn(&quarry_api::NodeInventoryStatus) -> bool,
    ) -> quarry_api::NodeInventoryStatus {
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = inventories
                .get_opt(NODE)
                .await
                .unwrap()
                .and_then(|inventory| inventory.status)
                .unwrap_or_default();
            if wanted(&status) {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "NodeInventory: timed out waiting until {what}; last seen: {:?}\n{}",
                status.devices,
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn make_objects(&self) {
        let client = || self.client.clone();
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client());
        let namespace = serde_json::from_value(
            json!({"metadata": {"name": quarry_api::names::DEFAULT_NAMESPACE}}),
        )
        .unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client());
        nodes
            .create(
                &PostParams::default(),
                &serde_json::from_value(
                    json!({"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}}),
                )
                .unwrap(),
            )
            .await
            .unwrap();
        let classes: Api<StorageClass> = Api::all(client());
        let class = json!({"metadata": {"name": "story"}, "provisioner": "kubernetes.io/no-provisioner", "parameters": {"fsType": "ext4"}});
        classes
            .create(&PostParams::default(), &serde_json::from_value(class).unwrap())
            .await
            .unwrap();
    }

    /// Kills the process and starts it again, with or without a failpoint.
    pub async fn restart(&mut self, role: Role, failpoint: Option<&str>) {
        let slot = match role {
            Role::Operator => &mut self.operator,
            Role::Agent => &mut self.agent,
        };
        if let Some(mut child) = slot.take() {
            end(&mut child);
        }
        let kubeconfig = self.dir.join("kubeconfig");
        let mut command = Command::new(binary());
        match role {
            Role::Operator => command.args([
                "operator",
                "--no-leader-election",
                "--controllers",
                self.setup.controllers,
                "--metrics-listen",
                "127.0.0.1:0",
            ]),
            // Report progress immediately: otherwise no job of these tests is slow enough to report
            // any.
            Role::Agent if failpoint.is_some_and(|point| point.starts_with("status.running")) => {
                command
                    .args(["agent", "--progress-after", "0", "--node-name", NODE, "--data-dir"])
                    .arg(self.dir.join("data"))
            }
            Role::Agent => command
                .args(["agent", "--node-name", NODE, "--data-dir"])
                .arg(self.dir.join("data")),
        };
        if role == Role::Agent {
            command.args(&self.setup.agent);
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(format!("{role:?}.log")))
            .unwrap();
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env_remove("QUARRY_FAILPOINT")
            .env("RUST_LOG", "info")
            .stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        if let Some(point) = failpoint {
            command.env("QUARRY_FAILPOINT", point);
        }
        *slot = Some(command.spawn().unwrap());
    }

    /// Detaches the loop device as another process would with `losetup -d`.
    pub fn detach_loop(&self, uid: &str) {
        for entry in std::fs::read_dir("/sys/block").unwrap().filter_map(Result::ok) {
            if std::fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|file| file.contains(uid))
            {
                let device = format!("/dev/{}", entry.file_name().to_string_lossy());
                assert!(
                    Command::new("losetup").args(["--detach", &device]).status().unwrap().success()
                );
            }
        }
    }

    /// A second operator that takes part in the election, as the first one does when `elect` is
    /// set.
    pub fn spawn_operator(&self, identity: &str) -> Child {
        let log =
            File::options().create(true).append(true).open(self.dir.join("Operator.log")).unwrap();
        Command::new(binary())
            .args([
                "operator",
                "--identity",
                identity,
                "--controllers",
                "volume,nodeinventory,nodejob",
                "--metrics-listen",
                "127.0.0.1:0",
                "--kubeconfig",
            ])
            .arg(self.dir.join("kubeconfig"))
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Waits until the holder of the leader Lease matches.
    pub async fn leader(&self, what: &str, wanted: impl Fn(Option<&str>) -> bool) {
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.client.clone(), quarry_api::names::DEFAULT_NAMESPACE);
        let deadline = Instant::now() + LIMIT;
        loop {
            let lease = leases.get_opt(quarry_api::names::LEADER_LEASE).await.unwrap();
            let holder = lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
            if wanted(holder.as_deref()) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: the lease is held by {holder:?}\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn stop_operator(&mut self) {
        if let Some(mut child) = self.operator.take() {
            end(&mut child);
        }
    }

    /// Another holder takes the Lease, as a partitioned rival would.
    pub async fn steal_lease(&self) {
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.client.clone(), quarry_api::names::DEFAULT_NAMESPACE);
        let change = json!({"spec": {"holderIdentity": "thief"}});
        leases
            .patch(
                quarry_api::names::LEADER_LEASE,
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(change),
            )
            .await
            .unwrap();
    }

    /// Stops the agent as a shutdown of the node does: it releases its Lease.
    pub async fn stop_agent(&mut self) {
        let Some(mut child) = self.agent.take() else { return };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let deadline = Instant::now() + LIMIT;
        while child.try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < deadline,
                "the agent does not end on SIGTERM\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn create(&self, name: &str, mode: &str) -> Volume {
        let volumes: Api<Volume> = Api::all(self.client.clone());
        let volume = json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": name},
            "spec": {"nodeName": NODE, "storageClassName": "story", "mode": mode, "sparseLoopDevice": {"size": "64Mi"}},
        });
        volumes
            .create(&PostParams::default(), &serde_json::from_value(volume).unwrap())
            .await
            .unwrap()
    }

    pub async fn delete(&self, name: &str) {
        let volumes: Api<Volume> = Api::all(self.client.clone());
        volumes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the Volume matches; a process that dies in the meantime is restarted.
    pub async fn wait(&mut self, name: &str, what: &str, wanted: impl Fn(Option<&Volume>) -> bool) {
        self.until(name, what, &mut false, wanted).await;
    }

    /// Waits until the last change of its condition is a whole second ago: that is the resolution of
    /// API timestamps, and what changes later must be seen to be later.
    pub async fn wait_a_second_after_change(&mut self, name: &str) {
        self.wait(name, "has not changed for a second", |volume| {
            let since = volume
                .and_then(|volume| volume.ready())
                .and_then(|ready| ready.last_transition_time.as_ref())
                .map(|time| time.0);
            since.is_some_and(|since| {
                jiff::Timestamp::now().duration_since(since).as_millis() > 1100
            })
        })
        .await;
    }

    /// Restarts every process that has died, without the failpoint. `true` when one had.
    pub async fn restart_dead(&mut self) -> bool {
        let dead = |child: &mut Option<Child>| {
            child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some())
        };
        let (operator, agent) = (dead(&mut self.operator), dead(&mut self.agent));
        if operator {
            self.restart(Role::Operator, None).await;
        }
        if agent {
            self.restart(Role::Agent, None).await;
        }
        operator || agent
    }

    /// Creates a Volume, waits for Available, deletes it and checks that nothing is left; returns
    /// whether a process died in the meantime.
    pub async fn story(&mut self, name: &str, mode: &str) -> bool {
        let volumes: Api<Volume> = Api::all(self.client.clone());
        let created = self.create(name, mode).await;
        let uid = created.uid().unwrap();
        let mut died = false;
        self.until(name, "is Available", &mut died, |volume| {
            volume.is_some_and(|volume| volume.phase() == Some(Phase::Available))
        })
        .await;
        let link = if mode == "Block" {
            format!("/dev/disk/by-partlabel/{uid}")
        } else {
            format!("/dev/disk/by-uuid/{uid}")
        };
        assert!(Path::new(&link).exists(), "{name}: {link} exists");
        assert_eq!(loops_over(&uid), 1, "{name}: one loop");
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        assert_eq!(pvs.get(name).await.unwrap().spec.unwrap().local.unwrap().path, link);
        self.inventory(&uid, true, &mut died).await;
        volumes.delete(name, &DeleteParams::default()).await.unwrap();
        self.until(name, "is deleted", &mut died, |volume| volume.is_none()).await;
        assert!(pvs.get_opt(name).await.unwrap().is_none(), "{name}: no PersistentVolume is left");
        assert_eq!(loops_over(&uid), 0, "{name}: no loop is left");
        for path in [
            self.dir.join("data/volumes").join(&uid),
            self.dir.join(format!("data/volumes/{uid}.draft")),
            PathBuf::from(&link),
        ] {
            assert!(path.symlink_metadata().is_err(), "{name}: {} still exists", path.display());
        }
        // The NodeInventory is correct in the end; a failpoint after the last write is reached only
        // now.
        self.inventory(&uid, false, &mut died).await;
        died
    }

    /// Waits until the NodeInventory lists the device of the Volume, or no longer does.
    async fn inventory(&mut self, uid: &str, shown: bool, died: &mut bool) {
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let deadline = Instant::now() + LIMIT;
        loop {
            *died |= self.restart_dead().await;
            let devices = inventories.get(NODE).await.unwrap().status.unwrap_or_default().devices;
            if devices.iter().any(|device| device.volume_uid.as_deref() == Some(uid)) == shown {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "NodeInventory lists {uid}: expected {shown}: {devices:?}\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn until(
        &mut self,
        name: &str,
        what: &str,
        died: &mut bool,
        wanted: impl Fn(Option<&Volume>) -> bool,
    ) {
        let volumes: Api<Volume> = Api::all(self.client.clone());
        let deadline = Instant::now() + LIMIT;
        loop {
            *died |= self.restart_dead().await;
            let seen = volumes.get_opt(name).await.unwrap();
            if wanted(seen.as_ref()) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{name}: timed out waiting until it {what}; last seen: {:?}\n{}",
                seen.and_then(|volume| volume.status),
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Logs of operator and agent.
    pub fn logs(&self) -> String {
        ["Operator", "Agent"]
            .map(|part| {
                std::fs::read_to_string(self.dir.join(format!("{part}.log"))).unwrap_or_default()
            })
            .join("\n---\n")
    }

    pub async fn stop(mut self) {
        for child in [&mut self.operator, &mut self.agent] {
            if let Some(mut child) = child.take() {
                end(&mut child);
            }
        }
    }
}

/// Number of loop devices over a file that is named after the volume.
fn loops_over(uid: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return 0 };
    entries
        .filter_map(Result::ok)
        .filter(|entry| {
            std::fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|file| file.contains(uid))
        })
        .count()
}
