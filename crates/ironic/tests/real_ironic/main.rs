//! The client against a real Ironic: `QUARRY_IRONIC_URL=http://127.0.0.1:6385 cargo test -p
//! quarry-ironic --test real_ironic`. Needs the drivers `fake-hardware` (with the interfaces `agent`
//! and `fake` for inspection) and `redfish`, and an agent that reports for nodes in `inspect wait`.
//!
//! Each test has its own nodes and removes them. `QUARRY_IRONIC_AUTH` names a file with credentials,
//! `QUARRY_IRONIC_RECORD` a file to which the conversation of `whole_life` is appended.

use quarry_ironic::*;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// None: no Ironic is named, and the tests are skipped. In the tier that starts one, that is a failure.
fn config() -> Option<Config> {
    let Ok(url) = std::env::var("QUARRY_IRONIC_URL") else {
        let tier = std::env::var("QUARRY_TIER").unwrap_or_default();
        assert_ne!(tier, "services", "QUARRY_IRONIC_URL is not set");
        println!("skipped: QUARRY_IRONIC_URL is not set");
        return None;
    };
    let auth = std::env::var_os("QUARRY_IRONIC_AUTH").map(PathBuf::from);
    Some(Settings { url, auth, ..Settings::default() }.load().expect("usable settings"))
}

fn client() -> Option<Client> {
    config().map(|config| Client::new(&config).expect("a client"))
}

/// Removes what an earlier, failed run of the same test left behind.
async fn remove(client: &Client, name: &str) {
    let Some(node) = client.node(name).await.expect("readable node") else { return };
    let id = node.uuid;
    client
        .perform(&Call::SetMaintenance { id: id.clone(), reason: "removed by a test".to_owned() })
        .await
        .expect("maintenance");
    if node.instance_uuid.is_some() {
        let ops = vec![PatchOp::remove("/instance_uuid")];
        client.perform(&Call::PatchNode { id: id.clone(), ops }).await.expect("no instance");
    }
    client.perform(&Call::DeleteNode { id }).await.expect("deletion");
}

async fn create(client: &Client, name: &str) -> Node {
    remove(client, name).await;
    let mut driver_info = Guarded::default();
    driver_info.insert("redfish_password", "correct-horse");
    let new = NewNode {
        name: Some(name.to_owned()),
        driver: "fake-hardware".to_owned(),
        driver_info,
        inspect_interface: Some("agent".to_owned()),
        raid_interface: Some("agent".to_owned()),
        deploy_interface: Some("direct".to_owned()),
        ..NewNode::default()
    };
    match client.perform(&Call::CreateNode(Box::new(new))).await.expect("creation") {
        Performed::Node(node) => *node,
        other => panic!("{other:?}"),
    }
}

/// Waits until an unlocked node satisfies a condition.
async fn wait(client: &Client, id: &str, what: &str, done: impl Fn(&Node) -> bool) -> Node {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let node = client.node(id).await.expect("readable node").expect("existing node");
        if node.reservation.is_none() && done(&node) {
            return node;
        }
        assert!(Instant::now() < end, "{what}: {node:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn wait_state(client: &Client, id: &str, state: ProvisionState) -> Node {
    wait(client, id, state.as_str(), |node| node.provision_state == state).await
}

fn provision(id: &str, target: ProvisionTarget) -> Call {
    Call::SetProvisionState { id: id.to_owned(), target }
}

async fn meaning(client: &Client, call: Call) -> (Meaning, String) {
    let error = client.perform(&call).await.expect_err("a refusal");
    assert!(!error.to_string().contains("correct-horse"), "{error}");
    (error.meaning, error.message)
}

async fn manageable(client: &Client, name: &str) -> String {
    let id = create(client, name).await.uuid;
    client.perform(&provision(&id, ProvisionTarget::Manage)).await.expect("manage");
    wait_state(client, &id, ProvisionState::Manageable).await;
    id
}

#[tokio::test]
async fn whole_life() {
    let Some(config) = config() else { return };
    let client = match std::env::var_os("QUARRY_IRONIC_RECORD").map(PathBuf::from) {
        Some(path) => {
            let transport = http_transport(&config).expect("a transport");
            let recorder = Recorder::append(transport, &path).expect("a writable file");
            Client::with_transport(Arc::new(recorder))
        }
        None => Client::new(&config).expect("a client"),
    };
    let version = client.version().await.expect("a version");
    assert!(version >= Microversion::new(1, 89) && version <= Microversion::new(1, 109));
    let drivers = client.drivers().await.expect("drivers");
    assert!(drivers.contains(&"redfish".to_owned()), "{drivers:?}");

    let created = create(&client, "real~life").await;
    let id = created.uuid.clone();
    assert_eq!(created.provision_state, ProvisionState::Enroll);
    assert_eq!(created.driver_info.get_str("redfish_password"), Some("******"));
    assert_eq!(client.inventory(&id).await.expect("an answer"), None);

    client.perform(&provision(&id, ProvisionTarget::Manage)).await.expect("manage");
    wait_state(&client, &id, ProvisionState::Manageable).await;
    assert_eq!(client.node("real~life").await.unwrap().unwrap().uuid, id, "found by its name");

    let ops = vec![
        PatchOp::add("/extra/owner", "quarry"),
        PatchOp::add("/driver_info/redfish_password", "correct-horse"),
        PatchOp::add("/automated_clean", false),
    ];
    let patched = client.perform(&Call::PatchNode { id: id.clone(), ops }).await.expect("patch");
    let Performed::Node(patched) = patched else { panic!("{patched:?}") };
    assert_eq!(patched.extra["owner"], "quarry");
    assert_eq!(patched.automated_clean, Some(false));

    client.perform(&provision(&id, ProvisionTarget::Inspect)).await.expect("inspect");
    let inspected = wait(&client, &id, "inspected", |node| {
        node.provision_state == ProvisionState::Manageable && node.inspection_finished_at.is_some()
    })
    .await;
    assert_eq!(inspected.last_error, None);
    let inventory = client.inventory(&id).await.unwrap().expect("an inventory");
    assert!(inventory.cpu.count.is_some_and(|count| count > 0), "{inventory:?}");
    assert!(inventory.disks.iter().all(|disk| disk.size.is_some()), "{inventory:?}");
    assert!(!inventory.disks.is_empty() && !inventory.interfaces.is_empty());
    assert!(inventory.plugin_data.is_object());

    client.perform(&Call::SetPower { id: id.clone(), target: PowerTarget::On }).await.expect("on");
    wait(&client, &id, "power on", |node| node.power_state == Some(PowerState::On)).await;
    let soft = PowerTarget::SoftOff { timeout: Some(30) };
    client.perform(&Call::SetPower { id: id.clone(), target: soft }).await.expect("soft off");
    wait(&client, &id, "power off", |node| node.power_state == Some(PowerState::Off)).await;

    let disk = LogicalDisk {
        controller: Some("software".to_owned()),
        ..LogicalDisk::new("1", SizeGb::Gib(50))
    };
    let config = RaidConfig { logical_disks: vec![disk] };
    let set = Call::SetRaid { id: id.clone(), config: config.clone() };
    client.perform(&set).await.expect("RAID");
    assert_eq!(client.node(&id).await.unwrap().unwrap().target_raid().unwrap(), config);
    let steps = vec![
        CleanStep::new("raid", "delete_configuration"),
        CleanStep::new("raid", "create_configuration"),
    ];
    client.perform(&provision(&id, ProvisionTarget::Clean { steps })).await.expect("clean");
    let cleaned = wait(&client, &id, "cleaned", |node| {
        node.provision_state == ProvisionState::Manageable && !node.raid_config.is_empty()
    })
    .await;
    assert_eq!(cleaned.raid().unwrap().logical_disks.len(), 1);
    let set = Call::SetRaid { id: id.clone(), config: RaidConfig::default() };
    client.perform(&set).await.expect("cleared RAID");
    assert!(client.node(&id).await.unwrap().unwrap().target_raid_config.is_empty());

    let validation = client.validate(&id).await.expect("a validation");
    assert_eq!(validation.failure(&["power", "inspect"]), None);
    assert!(validation.failure(&["deploy"]).is_some_and(|why| why.contains("image_source")));
    let history = client.history(&id).await.expect("a history");
    assert!(history.iter().all(|entry| !entry.is_error()), "{history:?}");

    client.perform(&provision(&id, ProvisionTarget::Provide)).await.expect("provide");
    wait_state(&client, &id, ProvisionState::Available).await;
    client.perform(&Call::DeleteNode { id: id.clone() }).await.expect("deletion");
    assert_eq!(client.node(&id).await.expect("an answer"), None);
}

#[tokio::test]
async fn a_list_shows_what_single_reads_show() {
    let Some(client) = client() else { return };
    let names = ["real~list-1", "real~list-2"];
    for name in names {
        create(&client, name).await;
    }
    let nodes = client.nodes().await.expect("a list");
    for name in names {
        let listed = nodes.iter().find(|node| node.name.as_deref() == Some(name)).expect(name);
        let read = client.node(name).await.unwrap().unwrap();
        assert_eq!(*listed, read);
        assert!(read.deploy_interface.is_some() && read.raid_interface.is_some());
        assert!(read.disable_power_off.is_some(), "offered since 1.95");
        remove(&client, name).await;
    }
}

#[tokio::test]
async fn conflicts_are_not_locks() {
    let Some(client) = client() else { return };
    let id = create(&client, "real~conflict").await.uuid;
    let duplicate = NewNode {
        name: Some("real~conflict".to_owned()),
        driver: "fake-hardware".to_owned(),
        ..NewNode::default()
    };
    let (found, message) = meaning(&client, Call::CreateNode(Box::new(duplicate))).await;
    assert_eq!(found, Meaning::Conflict, "{message}");
    let mac = "0a:5c:52:31:3a:77";
    if let Some(port) = client.port_by_mac(mac).await.expect("an answer") {
        client.perform(&Call::DeletePort { id: port.uuid }).await.expect("deletion");
    }
    let port = NewPort { node_uuid: id.clone(), address: mac.to_owned(), pxe_enabled: true };
    let created = client.perform(&Call::CreatePort(port.clone())).await.expect("a port");
    let Performed::Port(created) = created else { panic!("{created:?}") };
    let (found, message) = meaning(&client, Call::CreatePort(port)).await;
    assert_eq!(found, Meaning::Conflict, "{message}");
    let upper = client.port_by_mac(&mac.to_ascii_uppercase()).await.unwrap();
    assert_eq!(upper.as_ref(), Some(&created));
    assert_eq!(client.ports_of(&id).await.unwrap(), std::slice::from_ref(&created));
    client.perform(&Call::DeletePort { id: created.uuid }).await.expect("deletion");
    assert_eq!(client.port_by_mac(mac).await.unwrap(), None);
    let lost = NewPort {
        node_uuid: "00000000-0000-0000-0000-00000000ffff".to_owned(),
        address: mac.to_owned(),
        pxe_enabled: true,
    };
    assert_eq!(meaning(&client, Call::CreatePort(lost)).await.0, Meaning::NotFound);
    remove(&client, "real~conflict").await;
}

#[tokio::test]
async fn states_and_locks_are_distinguished() {
    let Some(client) = client() else { return };
    let id = create(&client, "real~state").await.uuid;
    let (found, message) = meaning(&client, provision(&id, ProvisionTarget::Provide)).await;
    assert_eq!(found, Meaning::WrongState, "{message}");
    client.perform(&provision(&id, ProvisionTarget::Manage)).await.expect("manage");
    wait_state(&client, &id, ProvisionState::Manageable).await;

    let ops = vec![PatchOp::add("/extra/lab", json!({"silent": true}))];
    client.perform(&Call::PatchNode { id: id.clone(), ops }).await.expect("patch");
    client.perform(&provision(&id, ProvisionTarget::Inspect)).await.expect("inspect");
    let (found, message) = meaning(&client, provision(&id, ProvisionTarget::Inspect)).await;
    assert!([Meaning::Locked, Meaning::WrongState].contains(&found), "{message}");
    wait_state(&client, &id, ProvisionState::InspectWait).await;
    let (found, message) = meaning(&client, Call::DeleteNode { id: id.clone() }).await;
    assert_eq!(found, Meaning::WrongState, "{message}");
    client.perform(&provision(&id, ProvisionTarget::Abort)).await.expect("abort");
    let failed = wait(&client, &id, "aborted", |node| {
        node.provision_state == ProvisionState::InspectFailed && node.last_error.is_some()
    })
    .await;
    let history = client.history(&id).await.expect("a history");
    assert_eq!(history.last().map(|entry| entry.event.clone()), failed.last_error);
    remove(&client, "real~state").await;
}

#[tokio::test]
async fn maintenance_refuses_cleaning() {
    let Some(client) = client() else { return };
    let id = manageable(&client, "real~maintenance").await;
    let set = Call::SetMaintenance { id: id.clone(), reason: "disk change".to_owned() };
    client.perform(&set).await.expect("maintenance");
    let node = client.node(&id).await.unwrap().unwrap();
    assert_eq!(node.maintenance_reason.as_deref(), Some("disk change"));
    let steps = vec![CleanStep::new("raid", "delete_configuration")];
    let (found, message) = meaning(&client, provision(&id, ProvisionTarget::Clean { steps })).await;
    assert_eq!(found, Meaning::Maintenance, "{message}");
    client.perform(&Call::ClearMaintenance { id: id.clone() }).await.expect("cleared");
    assert!(!client.node(&id).await.unwrap().unwrap().maintenance);
    remove(&client, "real~maintenance").await;
}

#[tokio::test]
async fn what_is_missing_or_invalid_is_refused() {
    let Some(client) = client() else { return };
    let missing = "00000000-0000-0000-0000-00000000ffff";
    assert_eq!(client.node(missing).await.expect("an answer"), None);
    let gone = meaning(&client, Call::DeleteNode { id: missing.to_owned() }).await.0;
    assert_eq!(gone, Meaning::NotFound);
    let error = client.inventory(missing).await.expect_err("no node");
    assert_eq!(error.meaning, Meaning::NotFound, "a missing node is not an empty inventory");
    let new = NewNode { driver: "no-such-driver".to_owned(), ..NewNode::default() };
    assert_eq!(meaning(&client, Call::CreateNode(Box::new(new))).await.0, Meaning::Refused);

    let id = create(&client, "real~refused").await.uuid;
    let ops = vec![PatchOp::add("/driver_info/no/such_password", "correct-horse")];
    let (found, message) = meaning(&client, Call::PatchNode { id: id.clone(), ops }).await;
    assert_eq!(found, Meaning::Refused);
    assert!(message.contains("******"), "Ironic quotes the value, we do not: {message}");
    let config = RaidConfig { logical_disks: vec![LogicalDisk::new("7", SizeGb::Max)] };
    assert_eq!(meaning(&client, Call::SetRaid { id, config }).await.0, Meaning::Refused);
    remove(&client, "real~refused").await;
}

#[tokio::test]
async fn an_unreachable_bmc_is_in_the_history() {
    let Some(client) = client() else { return };
    remove(&client, "real~bmc").await;
    let mut driver_info = Guarded::default();
    driver_info.insert("redfish_address", "http://127.0.0.1:1");
    driver_info.insert("redfish_username", "admin");
    driver_info.insert("redfish_password", "correct-horse");
    let new = NewNode {
        name: Some("real~bmc".to_owned()),
        driver: "redfish".to_owned(),
        driver_info,
        ..NewNode::default()
    };
    let Performed::Node(node) =
        client.perform(&Call::CreateNode(Box::new(new))).await.expect("creation")
    else {
        panic!("no node")
    };
    client.perform(&provision(&node.uuid, ProvisionTarget::Manage)).await.expect("manage");
    let failed = wait(&client, &node.uuid, "failed", |node| {
        node.provision_state == ProvisionState::Enroll && node.last_error.is_some()
    })
    .await;
    let error = failed.last_error.unwrap();
    assert!(error.contains("Connection refused") && !error.contains("correct-horse"), "{error}");
    let history = client.history(&node.uuid).await.unwrap();
    assert_eq!(history[0].event_type, "verify");
    remove(&client, "real~bmc").await;
}
