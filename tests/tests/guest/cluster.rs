//! The cluster around the guests: the API in this process, the operator as a child process, an
//! agent in every guest.

use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use quarry_api::{
    LocalVolumeDiscoveryResult, NodeInventory, NodeInventoryStatus,
    local_volume_discovery::DiscoveredDevice,
    names::{self, DEFAULT_NAMESPACE},
    node_inventory::{Device, DeviceState},
};
use quarry_apiserver::{Kubeconfig, Options, Server, ServingIdentity, load_or_create_token};
use quarry_tests::guest::{AGENT_DATA, Guest, until};
use serde_json::json;
use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Its methods block, as those of the guests do; the API keeps running.
pub struct Cluster {
    runtime: Runtime,
    client: Client,
    operator: Child,
    dir: TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have exited already; after the wait it has ended in any case.
        let _ = self.operator.kill();
        self.operator.wait().expect("a child process can be waited for");
    }
}

impl Cluster {
    /// With these nodes, all of them selected by a LocalVolumeDiscovery.
    pub fn start(nodes: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(serve(&dir));
        runtime.block_on(make_objects(&client, nodes));
        let log = File::create(dir.path().join("operator.log")).unwrap();
        let binary =
            std::env::var_os("QUARRY_BIN").expect("QUARRY_BIN is set by the tier's runner");
        let operator = Command::new(binary)
            .args([
                "operator",
                "--no-leader-election",
                "--metrics-listen",
                "127.0.0.1:0",
                "--kubeconfig",
            ])
            .arg(dir.path().join("kubeconfig"))
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Cluster { runtime, client, operator, dir }
    }

    /// Copies the binary into the guest and starts the agent of the node with the guest's name.
    #[track_caller]
    pub fn start_agent(&self, guest: &mut Guest, settling_time: &str) {
        let (quarry, kubeconfig) =
            (guest.bring_quarry(), guest.join(&self.dir.path().join("kubeconfig")));
        let name = guest.name().to_owned();
        guest.spawn("agent", &format!("{quarry} agent --node-name {name} --data-dir {AGENT_DATA} --settling-time {settling_time} --kubeconfig {kubeconfig}"));
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Runs an API request to completion.
    pub fn block_on<F: Future>(&self, request: F) -> F::Output {
        self.runtime.block_on(request)
    }

    /// Lets the guest reach the API again.
    pub fn rejoin(&self, guest: &Guest) {
        guest.join(&self.dir.path().join("kubeconfig"));
    }

    pub fn status(&self, node: &str) -> NodeInventoryStatus {
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        self.runtime
            .block_on(inventories.get_opt(node))
            .unwrap()
            .and_then(|inventory| inventory.status)
            .unwrap_or_default()
    }

    /// Waits until the NodeInventory of the guest's node matches.
    #[track_caller]
    pub fn inventory<T>(
        &self,
        guest: &Guest,
        what: &str,
        mut wanted: impl FnMut(&NodeInventoryStatus) -> Option<T>,
    ) -> T {
        until(&format!("the NodeInventory of {}: {what}", guest.name()), || {
            let status = self.status(guest.name());
            wanted(&status).ok_or_else(|| {
                format!("{}\n{}\n{}", lines(&status), self.log(), tail(&guest.log_of("agent")))
            })
        })
    }

    /// The only device with this serial, once it matches.
    #[track_caller]
    pub fn device(
        &self,
        guest: &Guest,
        serial: &str,
        what: &str,
        wanted: impl Fn(&Device) -> bool,
    ) -> Device {
        self.inventory(guest, &format!("{serial} {what}"), |status| {
            of(status, serial).filter(|device| wanted(device)).cloned()
        })
    }

    #[track_caller]
    pub fn wait_absent(&self, guest: &Guest, serial: &str) {
        self.inventory(guest, &format!("{serial} is no longer listed"), |status| {
            of(status, serial).is_none().then_some(())
        });
    }

    /// Waits until the discovery result of the node matches.
    #[track_caller]
    pub fn result(&self, node: &str, what: &str, wanted: impl Fn(&[DiscoveredDevice]) -> bool) {
        let results: Api<LocalVolumeDiscoveryResult> =
            Api::namespaced(self.client.clone(), DEFAULT_NAMESPACE);
        until(&format!("the discovery result of {node}: {what}"), || {
            let found =
                self.runtime.block_on(results.get_opt(&names::discovery_result(node))).unwrap();
            let devices =
                found.and_then(|result| result.status).unwrap_or_default().discovered_devices;
            if wanted(&devices) { Ok(()) } else { Err(format!("{devices:?}\n{}", self.log())) }
        });
    }

    /// Waits until an Event with this reason contains all of these words.
    #[track_caller]
    pub fn wait_event(&self, reason: &str, words: &[&str]) {
        let events: Api<Event> = Api::all(self.client.clone());
        until(&format!("an Event {reason} with {words:?}"), || {
            let all = self.runtime.block_on(events.list(&ListParams::default())).unwrap().items;
            let matching = |event: &&Event| event.reason.as_deref() == Some(reason);
            let messages: Vec<String> =
                all.iter().filter(matching).filter_map(|event| event.message.clone()).collect();
            let found =
                messages.iter().any(|message| words.iter().all(|word| message.contains(word)));
            if found { Ok(()) } else { Err(messages.join("\n")) }
        });
    }

    pub fn log(&self) -> String {
        tail(&fs::read_to_string(self.dir.path().join("operator.log")).unwrap_or_default())
    }
}

async fn serve(dir: &TempDir) -> Client {
    let mut options = Options::new(quarry_api::crds());
    options.policies = quarry_api::admission::embedded_policies()
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
        server.serve(listener, identity, token, std::future::pending::<()>()).await
    });
    client
}

async fn make_objects(client: &Client, nodes: &[&str]) {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let namespace =
        serde_json::from_value(json!({"metadata": {"name": DEFAULT_NAMESPACE}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    for node in nodes {
        let labels = json!({"kubernetes.io/hostname": node});
        api.create(
            &PostParams::default(),
            &serde_json::from_value(json!({"metadata": {"name": node, "labels": labels}})).unwrap(),
        )
        .await
        .unwrap();
    }
    let discoveries: Api<quarry_api::LocalVolumeDiscovery> =
        Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let discovery = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscovery",
        "metadata": {"name": "auto-discover-devices", "namespace": DEFAULT_NAMESPACE}, "spec": {},
    });
    discoveries
        .create(&PostParams::default(), &serde_json::from_value(discovery).unwrap())
        .await
        .unwrap();
}

pub fn of<'a>(status: &'a NodeInventoryStatus, serial: &str) -> Option<&'a Device> {
    status.devices.iter().find(|device| device.serial.as_deref() == Some(serial))
}

pub fn is_available(device: &Device) -> bool {
    device.state == DeviceState::Available
}

pub fn has(device: &Device, reason: &str) -> bool {
    device.reasons.iter().any(|entry| entry.reason.as_str() == reason)
}

fn lines(status: &NodeInventoryStatus) -> String {
    let line = |device: &Device| {
        format!(
            "{} {:?} {} {} {:?}",
            device.name,
            device.identity,
            device.size,
            device.state.as_str(),
            device.reasons
        )
    };
    status.devices.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
