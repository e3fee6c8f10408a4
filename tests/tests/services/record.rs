//! The conversation that the simulated Ironic answers from: every request of the host controller in every state of a
//! node that it meets, against the real Ironic.
//!
//! Compared with `crates/sim/fixtures/ironic/reactions.jsonl`, so that the simulator cannot drift away from Ironic;
//! `scripts/record-ironic` (`QUARRY_RECORD=1`) writes that file instead. Next to read: `crates/sim/src/ironic/`.

use super::record_raid;
use futures::future::join_all;
use quarry_ironic::*;
use quarry_sim::ironic::recording::{self, Reaction, Situation, Words};
use quarry_tests::services::{Lab, System};
use serde_json::json;
use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const FIXTURE: &str = "../crates/sim/fixtures/ironic/reactions.jsonl";
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One part of the conversation, about one node.
pub struct Talk {
    pub client: Client,
    lines: Lines,
    pub system: System,
    words: Words,
    about: Situation,
    pub id: String,
}

impl Talk {
    pub fn new(part: &str) -> Self {
        let lab = Lab::get();
        let system = lab.system();
        let settings = Settings { url: lab.ironic_url.clone(), ..Settings::default() };
        let transport = http_transport(&settings.load().unwrap()).unwrap();
        let lines = Lines::default();
        let recorder = Recorder::new(transport, Box::new(lines.clone()));
        let words = Words {
            // A system is handed out without the nodes that a killed run has left.
            name: format!("recorded~{part}-{}", system.name),
            mac: system.mac.clone(),
            bmc: system.redfish.clone(),
            ..Words::default()
        };
        let client = Client::with_transport(Arc::new(recorder));
        Talk { client, lines, system, words, about: Situation::default(), id: String::new() }
    }

    /// What Ironic does not show, from here on.
    pub fn situation(&mut self, change: impl FnOnce(&mut Situation)) {
        change(&mut self.about);
        writeln!(self.lines, "{}", json!({ "situation": self.about })).unwrap();
    }

    /// What the node becomes next has no request.
    pub fn event(&mut self, event: &str) {
        writeln!(self.lines, "{}", json!({ "event": event })).unwrap();
    }

    fn new_node(&self, password: &str) -> NewNode {
        let lab = Lab::get();
        let mut info = Guarded::default();
        info.insert("deploy_iso", lab.deploy_iso.as_str());
        info.insert("redfish_address", self.system.redfish.as_str());
        info.insert("redfish_system_id", format!("/redfish/v1/Systems/{}", self.system.uuid));
        info.insert("redfish_username", lab.bmc_user.as_str());
        info.insert("redfish_password", password);
        info.insert("redfish_verify_ca", true);
        NewNode {
            name: Some(self.words.name.clone()),
            driver: "redfish".to_owned(),
            driver_info: info,
            boot_interface: Some("redfish-virtual-media".to_owned()),
            inspect_interface: Some("agent".to_owned()),
            automated_clean: Some(true),
            properties: [("capabilities".to_owned(), json!("boot_mode:uefi"))]
                .into_iter()
                .collect(),
            ..NewNode::default()
        }
    }

    pub async fn create(&mut self, password: &str) {
        let call = Call::CreateNode(Box::new(self.new_node(password)));
        let Performed::Node(node) = self.client.perform(&call).await.unwrap() else {
            panic!("no node")
        };
        self.id = node.uuid;
        self.node().await;
    }

    pub async fn node(&self) -> Option<Node> {
        self.client.node(&self.id).await.unwrap()
    }

    pub fn patch(&self, ops: Vec<PatchOp>) -> Call {
        Call::PatchNode { id: self.id.clone(), ops }
    }

    fn password(&self, password: &str) -> Call {
        self.patch(vec![PatchOp::add("/driver_info/redfish_password", password)])
    }

    pub fn provision(&self, target: ProvisionTarget) -> Call {
        Call::SetProvisionState { id: self.id.clone(), target }
    }

    pub fn power(&self, target: PowerTarget) -> Call {
        Call::SetPower { id: self.id.clone(), target }
    }

    pub fn delete(&self) -> Call {
        Call::DeleteNode { id: self.id.clone() }
    }

    pub fn maintenance(&self) -> Call {
        Call::SetMaintenance { id: self.id.clone(), reason: "recorded".to_owned() }
    }

    pub fn end_maintenance(&self) -> Call {
        Call::ClearMaintenance { id: self.id.clone() }
    }

    fn port(&self) -> Call {
        let address = self.system.mac.clone();
        Call::CreatePort(NewPort { node_uuid: self.id.clone(), address, pxe_enabled: true })
    }

    /// The node as it is, then one request, whatever the answer, then the node until Ironic is done with it.
    pub async fn ask(&self, call: Call) -> Option<Node> {
        // A change of power, or of maintenance, removes the last error.
        let fails = matches!(call, Call::SetProvisionState { .. });
        self.ask_until(call, if fails { is_done } else { is_idle }).await
    }

    pub async fn ask_until(&self, call: Call, done: impl Fn(&Node) -> bool) -> Option<Node> {
        self.wait("a lock of a moment", |node| node.reservation.is_none()).await;
        // A refusal is part of the conversation.
        match self.client.perform(&call).await {
            Ok(_) => self.wait(&call.to_string(), done).await,
            Err(_) => self.node().await,
        }
    }

    pub async fn wait(&self, what: &str, done: impl Fn(&Node) -> bool) -> Option<Node> {
        let end = Instant::now() + LIMIT;
        loop {
            let node = self.node().await?;
            if done(&node) {
                return Some(node);
            }
            assert!(Instant::now() < end, "{what}: {node:?}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Requests that Ironic refuses, or that change nothing.
    pub async fn ask_all(&self, calls: Vec<Call>) {
        for call in calls {
            self.ask(call).await;
        }
    }

    /// While Ironic works on the node it answers only after seconds: all at the same time.
    async fn ask_at_once(&self, calls: Vec<Call>) {
        self.node().await;
        join_all(calls.iter().map(|call| self.client.perform(call))).await;
        self.node().await;
    }

    /// Patches of the planner; each changes something and is undone by the next.
    pub async fn patches(&self) {
        for clean in [false, true] {
            self.ask(self.patch(vec![PatchOp::add("/automated_clean", clean)])).await;
        }
        let other = PatchOp::add("/driver_info/redfish_verify_ca", false);
        self.ask(self.patch(vec![other])).await;
        self.ask(self.patch(vec![PatchOp::remove("/driver_info/redfish_verify_ca")])).await;
        self.ask(self.patch(vec![PatchOp::add("/boot_interface", "redfish-virtual-media")])).await;
        self.ask(self.patch(vec![PatchOp::add("/name", self.words.name.as_str())])).await;
        self.ask(self.patch(vec![PatchOp::add("/driver", "redfish")])).await;
    }

    /// Everything that is not meant for this state, and maintenance by hand.
    pub async fn others(&self, targets: &[ProvisionTarget]) {
        self.ask_all(targets.iter().map(|target| self.provision(target.clone())).collect()).await;
        self.ask_all(vec![self.maintenance(), self.maintenance(), self.end_maintenance()]).await;
        self.ask(self.end_maintenance()).await;
    }

    pub fn end(self) -> Vec<Reaction> {
        let lines = String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap();
        if let Ok(dir) = std::env::var("QUARRY_RECORD_RAW") {
            let file = format!("{dir}/{}.jsonl", self.words.name.replace('~', "-"));
            std::fs::write(file, &lines).unwrap();
        }
        recording::reactions(&lines, &self.words).unwrap()
    }
}

fn has_failed(node: &Node) -> bool {
    let failed = [
        ProvisionState::InspectFailed,
        ProvisionState::AdoptFailed,
        ProvisionState::CleanFailed,
        ProvisionState::DeployFailed,
    ];
    failed.contains(&node.provision_state)
}

/// Ironic works on it no longer. The error of a failed inspection follows its state.
fn is_done(node: &Node) -> bool {
    is_idle(node) && (!has_failed(node) || node.last_error.is_some())
}

pub fn is_idle(node: &Node) -> bool {
    let busy = [
        ProvisionState::Verifying,
        ProvisionState::Inspecting,
        ProvisionState::InspectWait,
        ProvisionState::Adopting,
        ProvisionState::Cleaning,
        ProvisionState::CleanWait,
        ProvisionState::Deploying,
        ProvisionState::DeployWait,
        ProvisionState::Deleting,
    ];
    node.reservation.is_none()
        && node.target_power_state.is_none()
        && !busy.contains(&node.provision_state)
}

use ProvisionTarget::{Abort, Adopt, Deleted, Inspect, Manage, Provide};

/// From creation to deletion, without a failure.
async fn life() -> Vec<Reaction> {
    let mut talk = Talk::new("life");
    let right = Lab::get().bmc_password.clone();
    talk.client.version().await.unwrap();
    talk.client.nodes().await.unwrap();
    talk.client.node(&talk.words.name).await.unwrap();
    assert_eq!(talk.client.port_by_mac(&talk.system.mac).await.unwrap(), None);
    talk.create(&right).await;
    talk.client.node(&talk.words.name).await.unwrap();
    talk.client.ports_of(&talk.id).await.unwrap();
    assert_eq!(talk.client.inventory(&talk.id).await.unwrap(), None);
    talk.situation(|about| about.taken = true);
    let again = Call::CreateNode(Box::new(talk.new_node(&right)));
    talk.client.perform(&again).await.unwrap_err();
    talk.situation(|about| about.taken = false);
    talk.client.perform(&talk.port()).await.unwrap();
    talk.client.ports_of(&talk.id).await.unwrap();
    talk.client.port_by_mac(&talk.system.mac).await.unwrap().unwrap();
    talk.situation(|about| about.taken = true);
    talk.client.perform(&talk.port()).await.unwrap_err();
    talk.situation(|about| about.taken = false);
    talk.patches().await;
    talk.raid_patches().await;
    talk.ask(talk.password(&right)).await;
    talk.others(&[Provide, Inspect, Abort, Adopt]).await;
    let node = talk.ask(talk.provision(Manage)).await.unwrap();
    assert_eq!(node.provision_state, ProvisionState::Manageable);

    talk.patches().await;
    talk.raid_patches().await;
    talk.ask(talk.password(&right)).await;
    talk.others(&[Manage, Abort]).await;
    for target in [PowerTarget::Off, PowerTarget::SoftOff { timeout: Some(180) }] {
        talk.ask(talk.power(target)).await;
    }
    talk.ask(talk.power(PowerTarget::On)).await;
    talk.ask(talk.power(PowerTarget::On)).await;
    talk.ask(talk.power(PowerTarget::Reboot)).await;
    talk.ask(talk.power(PowerTarget::SoftOff { timeout: Some(180) })).await;
    let node = talk.ask(talk.provision(Inspect)).await.unwrap();
    assert!(node.inspection_finished_at.is_some(), "{node:?}");
    talk.client.inventory(&talk.id).await.unwrap().unwrap();
    talk.client.ports_of(&talk.id).await.unwrap();
    talk.patches().await;
    talk.ask(talk.provision(Inspect)).await;
    talk.ask(talk.power(PowerTarget::Off)).await;
    talk.ask(talk.delete()).await;
    gone(&talk).await;
    talk.end()
}

/// Requests about a node that was deleted.
pub async fn gone(talk: &Talk) {
    talk.client.node(&talk.id).await.unwrap();
    talk.client.inventory(&talk.id).await.unwrap_err();
    let _ = talk.client.ports_of(&talk.id).await;
    let mut calls = vec![
        talk.delete(),
        talk.password("other-password"),
        talk.maintenance(),
        talk.end_maintenance(),
        talk.port(),
        talk.patch(vec![PatchOp::add("/automated_clean", true)]),
        talk.patch(vec![PatchOp::remove("/driver_info/redfish_verify_ca")]),
        talk.some_raid(),
    ];
    calls.extend(all_targets(talk));
    calls.extend(about_raid(talk));
    let soft = PowerTarget::SoftOff { timeout: Some(180) };
    calls.extend([PowerTarget::On, PowerTarget::Off, soft].map(|target| talk.power(target)));
    for call in calls {
        talk.client.perform(&call).await.unwrap_err();
    }
}

/// A BMC that does not accept the password, before and after the node was verified.
async fn wrong_password() -> Vec<Reaction> {
    let mut talk = Talk::new("refused");
    let right = Lab::get().bmc_password.clone();
    talk.situation(|about| about.bmc_refuses = true);
    talk.create("wrong-password").await;
    let node = talk.ask(talk.provision(Manage)).await.unwrap();
    assert_eq!(node.provision_state, ProvisionState::Enroll);
    assert!(node.last_error.is_some());
    talk.ask(talk.provision(Manage)).await;
    talk.patches().await;
    talk.others(&[]).await;
    talk.ask(talk.password(&right)).await;
    talk.situation(|about| about.bmc_refuses = false);
    talk.ask(talk.provision(Manage)).await;
    talk.system.change_password("another-password");
    talk.situation(|about| about.bmc_refuses = true);
    talk.ask(talk.provision(Inspect)).await;
    talk.ask(talk.provision(Inspect)).await;
    talk.ask(talk.password("another-password")).await;
    talk.situation(|about| about.bmc_refuses = false);
    talk.ask(talk.provision(Inspect)).await;
    talk.system.heal();
    talk.situation(|about| about.bmc_refuses = true);
    talk.ask(talk.power(PowerTarget::Off)).await;
    talk.ask(talk.power(PowerTarget::SoftOff { timeout: Some(1) })).await;
    talk.ask(talk.password(&right)).await;
    talk.situation(|about| about.bmc_refuses = false);
    talk.ask(talk.power(PowerTarget::Off)).await;
    talk.ask(talk.delete()).await;
    // Deleted before it was verified.
    talk.create("wrong-password").await;
    talk.situation(|about| about.bmc_refuses = true);
    talk.ask(talk.provision(Manage)).await;
    talk.ask(talk.delete()).await;
    talk.end()
}

/// A ramdisk that never calls: aborted, and left alone until Ironic gives up.
async fn silent() -> Vec<Reaction> {
    let mut talk = Talk::new("silent");
    let right = Lab::get().bmc_password.clone();
    talk.system.silent_ramdisk();
    talk.situation(|about| about.silent = true);
    talk.create(&right).await;
    talk.ask(talk.provision(Manage)).await;
    let waits = |node: &Node| {
        node.provision_state == ProvisionState::InspectWait && node.reservation.is_none()
    };
    talk.ask_until(talk.provision(Inspect), waits).await;
    for call in [Manage, Inspect, Adopt, Provide].map(|target| talk.provision(target)) {
        talk.ask_until(call, waits).await;
    }
    for clean in [false, true] {
        let call = talk.patch(vec![PatchOp::add("/automated_clean", clean)]);
        talk.ask_until(call, waits).await;
    }
    talk.ask_until(talk.password(&right), waits).await;
    talk.ask_until(talk.delete(), waits).await;
    talk.ask_until(talk.maintenance(), waits).await;
    talk.ask_until(talk.end_maintenance(), waits).await;
    let node = talk.ask(talk.provision(Abort)).await.unwrap();
    assert_eq!(node.provision_state, ProvisionState::InspectFailed);
    talk.patches().await;
    talk.raid_patches().await;
    talk.ask(talk.password(&right)).await;
    talk.others(&[Abort, Adopt, Provide]).await;
    talk.ask(talk.power(PowerTarget::On)).await;
    talk.ask(talk.power(PowerTarget::Off)).await;
    talk.ask_until(talk.provision(Inspect), waits).await;
    talk.event("timeout");
    let node = talk.wait("Ironic gives up", is_done).await.unwrap();
    assert_eq!(node.provision_state, ProvisionState::InspectFailed);
    talk.system.heal();
    talk.situation(|about| about.silent = false);
    talk.ask(talk.provision(Inspect)).await;
    talk.ask(talk.delete()).await;
    talk.end()
}

/// What is left of a failed inspection, and deletion without a ramdisk's answer.
async fn failed() -> Vec<Reaction> {
    let mut talk = Talk::new("failed");
    let right = Lab::get().bmc_password.clone();
    talk.create(&right).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask(talk.power(PowerTarget::On)).await;
    talk.system.silent_ramdisk();
    talk.situation(|about| about.silent = true);
    let waits = |node: &Node| {
        node.provision_state == ProvisionState::InspectWait && node.reservation.is_none()
    };
    talk.ask_until(talk.provision(Inspect), waits).await;
    talk.ask(talk.provision(Abort)).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask_until(talk.provision(Inspect), waits).await;
    talk.ask(talk.provision(Abort)).await;
    talk.ask_until(talk.provision(Inspect), waits).await;
    talk.ask_until(talk.maintenance(), waits).await;
    talk.ask(talk.delete()).await;

    talk.create(&right).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask_until(talk.provision(Inspect), waits).await;
    talk.ask(talk.provision(Abort)).await;
    talk.ask(talk.delete()).await;
    if talk.node().await.is_some() {
        talk.ask(talk.maintenance()).await;
        talk.ask(talk.delete()).await;
    }
    talk.end()
}

/// While Ironic talks to a slow BMC the node is locked.
async fn locked() -> Vec<Reaction> {
    let mut talk = Talk::new("locked");
    let right = Lab::get().bmc_password.clone();
    talk.create(&right).await;
    talk.system.set("delay", 5);
    let locked = |node: &Node| node.reservation.is_some();
    let clean = record_raid::clean(&["raid.delete_configuration"]);
    for target in [Manage, Inspect, clean] {
        talk.ask_until(talk.provision(target), locked).await;
        talk.ask_at_once(everything(&talk)).await;
        talk.system.set("delay", 0);
        talk.wait("the lock ends", is_done).await;
        talk.system.set("delay", 5);
    }
    talk.ask_until(talk.power(PowerTarget::Off), locked).await;
    talk.ask_at_once(everything(&talk)).await;
    talk.system.heal();
    talk.wait("the lock ends", is_done).await;
    talk.ask(talk.delete()).await;
    talk.end()
}

/// All that the controller requests.
fn everything(talk: &Talk) -> Vec<Call> {
    let mut calls = vec![
        talk.delete(),
        talk.password("other-password"),
        talk.patch(vec![PatchOp::add("/automated_clean", true)]),
        talk.patch(vec![PatchOp::remove("/driver_info/redfish_verify_ca")]),
        talk.some_raid(),
    ];
    calls.extend(all_targets(talk));
    calls.extend(about_raid(talk));
    let soft = PowerTarget::SoftOff { timeout: Some(180) };
    calls.extend([PowerTarget::On, PowerTarget::Off, soft].map(|target| talk.power(target)));
    calls
}

fn all_targets(talk: &Talk) -> Vec<Call> {
    let targets = [Manage, Inspect, Abort, Adopt, Provide, Deleted, record_raid::active()];
    let all = targets.into_iter().chain(record_raid::cleanings());
    all.map(|target| talk.provision(target)).collect()
}

fn about_raid(talk: &Talk) -> Vec<Call> {
    let interfaces = [
        ("/raid_interface", "agent"),
        ("/inspect_interface", "agent"),
        ("/deploy_interface", "direct"),
    ];
    let mut calls: Vec<Call> =
        interfaces.iter().map(|(path, value)| talk.add(path, *value)).collect();
    calls.push(talk.add("/extra/quarry", json!({})));
    calls.push(talk.patch(vec![PatchOp::remove("/extra/quarry")]));
    calls.push(talk.add("/instance_uuid", talk.instance()));
    calls.push(talk.add("/instance_info", json!({})));
    calls
}

/// A machine with an operating system of its own, and what maintenance refuses.
async fn adopted() -> Vec<Reaction> {
    let mut talk = Talk::new("adopted");
    let right = Lab::get().bmc_password.clone();
    talk.create(&right).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask(talk.maintenance()).await;
    talk.patches().await;
    talk.ask(talk.password(&right)).await;
    talk.ask_all([Manage, Abort].map(|target| talk.provision(target)).to_vec()).await;
    talk.ask(talk.end_maintenance()).await;
    talk.ask(talk.provision(Adopt)).await;
    talk.patches().await;
    talk.ask(talk.provision(Adopt)).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask(talk.power(PowerTarget::On)).await;
    talk.ask(talk.provision(Adopt)).await;
    talk.ask(talk.power(PowerTarget::SoftOff { timeout: Some(180) })).await;
    talk.ask(talk.power(PowerTarget::On)).await;
    talk.ask(talk.power(PowerTarget::Off)).await;
    talk.ask(talk.delete()).await;
    talk.ask(talk.maintenance()).await;
    talk.ask(talk.delete()).await;

    // Deleted while it is on, and from maintenance.
    talk.create(&right).await;
    talk.ask(talk.maintenance()).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask(talk.end_maintenance()).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask(talk.power(PowerTarget::On)).await;
    talk.ask(talk.maintenance()).await;
    talk.ask(talk.delete()).await;
    talk.end()
}

/// All of it, each part with a machine of its own.
fn conversation() -> Vec<Reaction> {
    fn part<F: Future<Output = Vec<Reaction>>>(
        talk: impl FnOnce() -> F + Send + 'static,
    ) -> std::thread::JoinHandle<Vec<Reaction>> {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(talk())
        })
    }
    // Short ones share a thread, and other tests find a system.
    let parts = [
        part(life),
        part(|| async { [wrong_password().await, record_raid::hardware().await].concat() }),
        part(silent),
        part(|| async { [failed().await, record_raid::software().await].concat() }),
        part(locked),
        part(|| async { [adopted().await, record_raid::provisioned().await].concat() }),
        part(record_raid::failing),
    ];
    parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
}

fn is_locked(reaction: &Reaction) -> bool {
    reaction.status == 409 && reaction.body.to_string().contains("is locked by host")
}

#[test]
fn the_simulated_ironic_reacts_like_the_real_one() {
    let begun = Instant::now();
    let found = recording::index(conversation()).unwrap_or_else(|wrong| {
        panic!("requests that seem equal have different answers:\n{}", wrong.join("\n"))
    });
    println!("services: {} reactions of Ironic in {:?}", found.len(), begun.elapsed());
    if std::env::var_os("QUARRY_RECORD").is_some() {
        std::fs::write(FIXTURE, recording::print(&found).unwrap()).unwrap();
        return;
    }
    let known = recording::parse(&std::fs::read_to_string(FIXTURE).unwrap()).unwrap();
    let known = recording::index(known).unwrap();
    let mut wrong = Vec::new();
    for (key, known) in &known {
        match found.get(key) {
            None => wrong.push(format!("not seen again: {} in {:?}", key.0, key.1)),
            // The server's own: a busy machine did not read or send a request in time.
            Some(found) if found.status == 408 => {}
            // A lock of a moment, of which a node shows nothing: the same request may meet it or not.
            Some(found) if !key.1.locked && (is_locked(found) || is_locked(known)) => {}
            Some(found) if recording::outcome(found) != recording::outcome(known) => {
                wrong.push(format!(
                    "{} in {:?}:\n  fixture {:?}\n  Ironic  {:?}",
                    key.0,
                    key.1,
                    recording::outcome(known),
                    recording::outcome(found)
                ));
            }
            Some(_) => {}
        }
    }
    let new = found.keys().filter(|key| !known.contains_key(*key));
    wrong.extend(new.map(|key| format!("not in the fixture: {} in {:?}", key.0, key.1)));
    let wrong = wrong.join("\n");
    assert!(wrong.is_empty(), "{wrong}\nrecord it again with scripts/record-ironic");
}
