use super::*;
use quarry_ironic::{
    Call, CleanStep, Client, Guarded, LogicalDisk, Meaning, NewNode, Performed, ProvisionState,
    ProvisionTarget, RaidConfig, SizeGb,
};
use std::sync::Mutex;

struct World {
    ironic: Arc<Mutex<SimIronic>>,
    now: Arc<Mutex<Timestamp>>,
    client: Client,
}

fn world() -> World {
    let now = Arc::new(Mutex::new("2026-01-01T00:00:00Z".parse().unwrap()));
    let time = now.clone();
    let clock: Clock = Arc::new(move || *time.lock().unwrap());
    let ironic = Arc::new(Mutex::new(SimIronic::new(clock, "right-password")));
    let client = Client::with_transport(Arc::new(proxy::Direct(ironic.clone())));
    World { ironic, now, client }
}

impl World {
    async fn create(&self, password: &str) -> Result<String, quarry_ironic::Error> {
        let mut driver_info = Guarded::default();
        driver_info.insert("redfish_address", "https://bmc-1");
        driver_info.insert("redfish_system_id", "/redfish/v1/Systems/1");
        driver_info.insert("redfish_password", password);
        let new = NewNode {
            name: Some("ns~a".to_owned()),
            driver: "redfish".to_owned(),
            driver_info,
            boot_interface: Some("redfish-virtual-media".to_owned()),
            inspect_interface: Some("agent".to_owned()),
            automated_clean: Some(true),
            ..NewNode::default()
        };
        match self.client.perform(&Call::CreateNode(Box::new(new))).await? {
            Performed::Node(node) => Ok(node.uuid),
            other => panic!("{other:?}"),
        }
    }

    async fn provision(&self, id: &str, target: ProvisionTarget) -> Result<(), Meaning> {
        let call = Call::SetProvisionState { id: id.to_owned(), target };
        self.client.perform(&call).await.map(|_| ()).map_err(|error| error.meaning)
    }

    async fn state_after(&self, id: &str, seconds: i64) -> (ProvisionState, Option<String>) {
        *self.now.lock().unwrap() += SignedDuration::from_secs(seconds);
        let node = self.client.node(id).await.unwrap().unwrap();
        (node.provision_state, node.last_error)
    }
}

#[tokio::test]
async fn a_node_lives_in_virtual_time() {
    let world = world();
    let id = world.create("right-password").await.unwrap();
    let again = world.create("right-password").await.unwrap_err();
    assert_eq!(again.meaning, Meaning::Conflict, "{again}");
    assert!(again.message.contains("ns~a"), "{again}");
    world.provision(&id, ProvisionTarget::Manage).await.unwrap();
    assert_eq!(world.state_after(&id, 0).await.0, ProvisionState::Verifying);
    assert_eq!(world.provision(&id, ProvisionTarget::Inspect).await, Err(Meaning::Locked));
    assert_eq!(world.state_after(&id, 5).await.0, ProvisionState::Manageable);
    world.provision(&id, ProvisionTarget::Inspect).await.unwrap();
    assert_eq!(world.state_after(&id, 10).await.0, ProvisionState::InspectWait);
    assert_eq!(world.state_after(&id, 60).await.0, ProvisionState::Manageable);
    let inventory = world.client.inventory(&id).await.unwrap().expect("an inventory");
    assert_eq!(inventory.disks.len(), 4);
    world.client.perform(&Call::DeleteNode { id: id.clone() }).await.unwrap();
    assert_eq!(world.client.node(&id).await.unwrap(), None);
    assert_eq!(world.client.nodes().await.unwrap(), []);
    assert_eq!(world.ironic.lock().unwrap().unknown, Vec::<String>::new());
}

#[tokio::test]
async fn a_wrong_password_is_found_by_verification() {
    let world = world();
    let id = world.create("wrong-password").await.unwrap();
    world.provision(&id, ProvisionTarget::Manage).await.unwrap();
    let (state, error) = world.state_after(&id, 5).await;
    assert_eq!(state, ProvisionState::Enroll);
    let error = error.expect("an error");
    assert!(error.contains("401") && error.contains("https://bmc-1"), "{error}");
    let names = ["{bmc}", "{system}", "{uuid}", "wrong-password"];
    assert!(!names.iter().any(|name| error.contains(name)), "{error}");
}

#[tokio::test]
async fn a_silent_ramdisk_is_given_up() {
    let world = world();
    let id = world.create("right-password").await.unwrap();
    world.ironic.lock().unwrap().machine("https://bmc-1/redfish/v1/Systems/1").silent = true;
    world.provision(&id, ProvisionTarget::Manage).await.unwrap();
    world.state_after(&id, 5).await;
    world.provision(&id, ProvisionTarget::Inspect).await.unwrap();
    assert_eq!(world.state_after(&id, 40).await.0, ProvisionState::InspectWait);
    let (state, error) = world.state_after(&id, 400).await;
    assert_eq!(state, ProvisionState::InspectFailed);
    assert!(error.is_some_and(|error| error.to_lowercase().contains("timeout")));
}

fn clean(steps: &[&str]) -> ProvisionTarget {
    let step = |name: &&str| CleanStep::new("raid", *name);
    ProvisionTarget::Clean { steps: steps.iter().map(step).collect() }
}

#[tokio::test]
async fn volumes_are_those_of_the_machine() {
    let world = world();
    let id = world.create("right-password").await.unwrap();
    world.provision(&id, ProvisionTarget::Manage).await.unwrap();
    world.state_after(&id, 5).await;
    let disks = vec![LogicalDisk::new("1", SizeGb::Gib(70))];
    let config = RaidConfig { logical_disks: disks };
    world.client.perform(&Call::SetRaid { id: id.clone(), config: config.clone() }).await.unwrap();
    let before = world.client.node(&id).await.unwrap().unwrap();
    assert_eq!(before.target_raid().unwrap(), config);
    let steps = ["delete_configuration", "create_configuration"];
    world.provision(&id, clean(&steps)).await.unwrap();
    let begun = world.client.node(&id).await.unwrap().unwrap();
    assert_eq!(begun.provision_state, ProvisionState::Cleaning);
    assert!(begun.provision_updated_at > before.provision_updated_at, "also at the same time");
    let machine = "https://bmc-1/redfish/v1/Systems/1";
    assert_eq!(world.ironic.lock().unwrap().machine(machine).disks.built, 0);
    assert_eq!(world.state_after(&id, 60).await.0, ProvisionState::Manageable);
    let built = world.client.node(&id).await.unwrap().unwrap().raid().unwrap().logical_disks;
    assert_eq!((built.len(), built[0].size_gb), (1, SizeGb::Gib(70)));
    world.provision(&id, clean(&steps[..1])).await.unwrap();
    world.state_after(&id, 60).await;
    let node = world.client.node(&id).await.unwrap().unwrap();
    assert!(node.raid().unwrap().logical_disks.is_empty(), "{node:?}");
    let mut ironic = world.ironic.lock().unwrap();
    let disks = ironic.machine(machine).disks.clone();
    assert_eq!((disks.built, disks.erased, disks.is_empty()), (1, 2, true));
    assert_eq!(ironic.unknown, Vec::<String>::new());
}

#[tokio::test]
async fn a_step_that_fails_leaves_the_ones_before_it_done() {
    let world = world();
    let id = world.create("right-password").await.unwrap();
    world.provision(&id, ProvisionTarget::Manage).await.unwrap();
    world.state_after(&id, 5).await;
    let machine = "https://bmc-1/redfish/v1/Systems/1";
    world.ironic.lock().unwrap().machine(machine).fails = Some(machine::CREATE);
    let steps = ["delete_configuration", "create_configuration"];
    world.provision(&id, clean(&steps)).await.unwrap();
    let (state, error) = world.state_after(&id, 60).await;
    assert_eq!(state, ProvisionState::CleanFailed);
    assert!(error.is_some_and(|error| error.contains("create_configuration")));
    let history = world.client.history(&id).await.unwrap();
    assert!(history.iter().any(|entry| entry.is_error() && entry.event.contains("failed step")));
    let disks = world.ironic.lock().unwrap().machine(machine).disks.clone();
    assert_eq!((disks.built, disks.erased), (0, 1));
}

#[tokio::test]
async fn an_unknown_request_is_named() {
    let world = world();
    let id = world.create("right-password").await.unwrap();
    world.provision(&id, ProvisionTarget::Deleted).await.unwrap_err();
    let unknown = world.ironic.lock().unwrap().unknown.clone();
    assert!(unknown[0].contains("target=deleted") && unknown[0].contains("record-ironic"));
}
