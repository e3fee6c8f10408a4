//! The part of the conversation with Ironic that is about RAID and images. Next to read: `record.rs`.

use super::record::{Talk, gone, is_idle};
use quarry_ironic::{
    Call, CleanStep, Guarded, LogicalDisk, Node, PatchOp, PhysicalDisks, PowerTarget,
    ProvisionState,
    ProvisionTarget::{self, Abort, Active, Adopt, Deleted, Inspect, Manage, Provide},
    RaidConfig, SizeGb,
    call::ConfigDrive,
};
use quarry_sim::ironic::recording::Reaction;
use quarry_tests::services::Lab;
use serde_json::json;

const DELETE: &str = "raid.delete_configuration";
const ERASE: &str = "deploy.erase_devices_metadata";
const CREATE: &str = "raid.create_configuration";

pub fn clean(steps: &[&str]) -> ProvisionTarget {
    let step = |name: &&str| {
        let (interface, step) = name.split_once('.').unwrap();
        CleanStep::new(interface, step)
    };
    ProvisionTarget::Clean { steps: steps.iter().map(step).collect() }
}

/// Every list of steps that the planner requests.
pub fn cleanings() -> [ProvisionTarget; 5] {
    [
        clean(&[DELETE, CREATE]),
        clean(&[DELETE, ERASE, CREATE]),
        clean(&[DELETE, ERASE]),
        clean(&[DELETE]),
        clean(&[ERASE]),
    ]
}

pub fn active() -> ProvisionTarget {
    let mut parts = Guarded::default();
    parts.insert("meta_data", json!({"name": "recorded"}));
    Active { configdrive: Some(ConfigDrive::Parts(parts)) }
}

impl Talk {
    pub fn raid(&self, disks: Vec<LogicalDisk>) -> Call {
        Call::SetRaid { id: self.id.clone(), config: RaidConfig { logical_disks: disks } }
    }

    pub fn some_raid(&self) -> Call {
        self.raid(vec![LogicalDisk::new("1", SizeGb::Gib(50))])
    }

    pub fn add(&self, path: &str, value: impl Into<serde_json::Value>) -> Call {
        self.patch(vec![PatchOp::add(path, value)])
    }

    /// Patches about RAID and images; each changes something.
    pub async fn raid_patches(&self) {
        for raid in ["agent", "redfish"] {
            self.set_interface("raid", raid).await;
        }
        for inspect in ["redfish", "agent"] {
            self.set_interface("inspect", inspect).await;
        }
        self.mark().await;
        self.instance_patches().await;
        // A node with an instance is not deleted.
        self.ask(self.patch(vec![PatchOp::remove("/instance_uuid")])).await;
    }

    /// Of this system alone.
    pub fn instance(&self) -> String {
        format!("7a8e0c5e-0b1f-4b0e-9a57{}", &self.system.uuid[23..])
    }

    /// Only a change: Ironic refuses nothing else.
    pub async fn set_interface(&self, kind: &str, value: &str) {
        let node = self.node().await.unwrap();
        let known = match kind {
            "raid" => node.raid_interface,
            "inspect" => node.inspect_interface,
            _ => node.deploy_interface,
        };
        if known.as_deref() != Some(value) {
            self.ask(self.add(&format!("/{kind}_interface"), value)).await;
        }
    }

    async fn mark(&self) {
        self.ask(self.add("/extra/quarry", json!({"phase": "recorded", "since": null}))).await;
        self.ask(self.patch(vec![PatchOp::remove("/extra/quarry")])).await;
    }

    async fn instance_patches(&self) {
        for deploy in ["direct", "ramdisk"] {
            self.set_interface("deploy", deploy).await;
        }
        self.ask(self.add("/instance_uuid", self.instance())).await;
        let info =
            json!({"boot_iso": Lab::get().deploy_iso, "capabilities": {"boot_mode": "uefi"}});
        self.ask(self.add("/instance_info", info)).await;
    }

    async fn clean(&self, steps: &[&str]) -> Node {
        let node = self.ask(self.provision(clean(steps))).await.unwrap();
        assert_eq!(node.provision_state, ProvisionState::Manageable, "{node:?}");
        node
    }

    async fn managed(&mut self) {
        let right = Lab::get().bmc_password.clone();
        self.create(&right).await;
        self.ask(self.provision(Manage)).await;
    }

    /// A node that failed to be cleaned: everything that may be requested, then it is managed again.
    async fn recover(&self) {
        self.client.history(&self.id).await.unwrap();
        self.patches().await;
        self.raid_patches().await;
        self.ask(self.provision(Abort)).await;
        self.ask(self.power(PowerTarget::On)).await;
        self.ask(self.power(PowerTarget::Off)).await;
        self.ask(self.power(PowerTarget::Off)).await;
        let node = self.node().await.unwrap();
        if node.maintenance {
            self.ask(self.end_maintenance()).await;
            self.client.history(&self.id).await.unwrap();
        }
        self.patches().await;
        self.raid_patches().await;
        self.ask(self.delete()).await;
        self.ask(self.power(PowerTarget::On)).await;
        self.ask(self.power(PowerTarget::SoftOff { timeout: Some(180) })).await;
        self.ask(self.maintenance()).await;
        self.ask(self.end_maintenance()).await;
        let node = self.ask(self.provision(Manage)).await.unwrap();
        assert_eq!(node.provision_state, ProvisionState::Manageable);
    }
}

fn cleaning_waits(node: &Node) -> bool {
    node.provision_state == ProvisionState::CleanWait && node.reservation.is_none()
}

/// Volumes of the BMC: listed drives, built, built again, erased.
pub async fn hardware() -> Vec<Reaction> {
    let mut talk = Talk::new("hardware");
    talk.managed().await;
    talk.set_interface("raid", "redfish").await;
    talk.set_interface("inspect", "redfish").await;
    for power in [PowerTarget::Off, PowerTarget::On] {
        talk.ask(talk.power(power)).await;
        talk.ask(talk.provision(Inspect)).await;
        let found = talk.client.inventory(&talk.id).await.unwrap().unwrap();
        assert_eq!(found.storage_controllers[0].drives.len(), 4, "{found:?}");
    }
    talk.set_interface("inspect", "agent").await;
    let mut sized = LogicalDisk::new("1", SizeGb::Gib(100));
    sized.number_of_physical_disks = Some(2);
    sized.is_root_volume = Some(true);
    talk.ask(talk.raid(vec![sized.clone()])).await;
    let node = talk.clean(&[DELETE, CREATE]).await;
    assert_eq!(node.raid().unwrap().logical_disks.len(), 1, "{node:?}");
    let mut picked = LogicalDisk::new("1", SizeGb::Max);
    picked.controller = Some("1".to_owned());
    picked.physical_disks = Some(PhysicalDisks::Names(vec!["d1".to_owned(), "d2".to_owned()]));
    talk.ask(talk.raid(vec![picked, sized])).await;
    let node = talk.clean(&[DELETE, CREATE]).await;
    assert_eq!(node.raid().unwrap().logical_disks.len(), 2, "{node:?}");
    talk.raid_patches().await;
    for steps in [&[DELETE][..], &[DELETE, ERASE], &[ERASE]] {
        talk.clean(steps).await;
    }
    // As an inspection finds it.
    talk.set_interface("deploy", "direct").await;
    talk.ask(talk.provision(Inspect)).await;
    talk.clean(&[DELETE, CREATE]).await;
    talk.clean(&[DELETE, ERASE]).await;
    talk.ask(talk.power(PowerTarget::Off)).await;
    talk.ask(talk.delete()).await;
    gone(&talk).await;
    talk.end()
}

/// Arrays: Ironic repeats what was requested.
pub async fn software() -> Vec<Reaction> {
    let mut talk = Talk::new("software");
    talk.managed().await;
    talk.ask(talk.provision(Inspect)).await;
    talk.set_interface("raid", "agent").await;
    let array = |level: &str, size, root| {
        let mut disk = LogicalDisk::new(level, size);
        disk.controller = Some("software".to_owned());
        disk.is_root_volume = Some(root);
        disk
    };
    let arrays = vec![array("1", SizeGb::Gib(10), true), array("0", SizeGb::Max, false)];
    talk.ask(talk.raid(arrays)).await;
    let node = talk.clean(&[DELETE, ERASE, CREATE]).await;
    assert_eq!(node.raid().unwrap().logical_disks.len(), 2, "{node:?}");
    talk.ask(talk.raid(vec![array("1", SizeGb::Max, true)])).await;
    talk.clean(&[DELETE, ERASE, CREATE]).await;
    talk.clean(&[DELETE, ERASE]).await;
    talk.clean(&[ERASE]).await;
    // The node of a host whose BMC has no volumes.
    talk.set_interface("raid", "redfish").await;
    talk.clean(&[DELETE]).await;
    talk.ask(talk.delete()).await;
    talk.end()
}

/// A step that fails, and a cleaning that is aborted.
pub async fn failing() -> Vec<Reaction> {
    let mut talk = Talk::new("failing");
    talk.managed().await;
    let failed = |node: &Node| assert_eq!(node.provision_state, ProvisionState::CleanFailed);
    talk.set_interface("raid", "redfish").await;
    talk.ask(talk.some_raid()).await;
    talk.system.set("volumes", "the lab lets this fail");
    talk.situation(|about| about.fails = Some(CREATE.to_owned()));
    failed(&talk.ask(talk.provision(clean(&[DELETE, CREATE]))).await.unwrap());
    talk.recover().await;
    talk.system.heal();
    talk.situation(|about| about.fails = None);
    talk.clean(&[DELETE, CREATE]).await;
    talk.system.set("volumes", "the lab lets this fail");
    talk.situation(|about| about.fails = Some(DELETE.to_owned()));
    for steps in [&[DELETE][..], &[DELETE, ERASE]] {
        failed(&talk.ask(talk.provision(clean(steps))).await.unwrap());
        talk.ask(talk.end_maintenance()).await;
        talk.ask(talk.provision(Manage)).await;
    }
    talk.system.heal();
    talk.situation(|about| about.fails = None);
    talk.set_interface("raid", "agent").await;
    let mut array = LogicalDisk::new("1", SizeGb::Max);
    array.controller = Some("software".to_owned());
    talk.ask(talk.raid(vec![array])).await;
    talk.system.set("fail_step", "create_configuration");
    talk.situation(|about| about.fails = Some(CREATE.to_owned()));
    failed(&talk.ask(talk.provision(clean(&[DELETE, ERASE, CREATE]))).await.unwrap());
    talk.recover().await;
    talk.system.heal();
    talk.system.silent_ramdisk();
    talk.situation(|about| (about.fails, about.silent) = (None, true));
    talk.set_interface("raid", "agent").await;
    talk.ask_until(talk.provision(clean(&[DELETE, ERASE, CREATE])), cleaning_waits).await;
    for call in [Manage, Inspect, Adopt, Provide].map(|target| talk.provision(target)) {
        talk.ask_until(call, cleaning_waits).await;
    }
    talk.ask_until(talk.delete(), cleaning_waits).await;
    talk.ask_until(talk.maintenance(), cleaning_waits).await;
    talk.ask_until(talk.end_maintenance(), cleaning_waits).await;
    failed(&talk.ask(talk.provision(Abort)).await.unwrap());
    talk.recover().await;
    talk.set_interface("raid", "redfish").await;
    for steps in [&[DELETE, CREATE][..], &[DELETE, ERASE]] {
        talk.ask_until(talk.provision(clean(steps)), cleaning_waits).await;
        failed(&talk.ask(talk.provision(Abort)).await.unwrap());
        talk.ask(talk.provision(Manage)).await;
    }
    talk.ask_until(talk.provision(clean(&[DELETE])), cleaning_waits).await;
    talk.event("timeout");
    failed(&talk.wait("Ironic gives up", is_idle_and_failed).await.unwrap());
    talk.ask(talk.end_maintenance()).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask_until(talk.provision(clean(&[DELETE])), cleaning_waits).await;
    failed(&talk.ask(talk.provision(Abort)).await.unwrap());
    talk.ask(talk.delete()).await;
    talk.ask(talk.maintenance()).await;
    talk.ask(talk.delete()).await;
    talk.end()
}

fn is_idle_and_failed(node: &Node) -> bool {
    is_idle(node) && node.last_error.is_some()
}

/// An image that is booted, and removed again.
pub async fn provisioned() -> Vec<Reaction> {
    let mut talk = Talk::new("provisioned");
    talk.managed().await;
    talk.ask(talk.provision(Inspect)).await;
    talk.set_interface("raid", "redfish").await;
    for _ in 0..2 {
        let node = talk.ask(talk.provision(Provide)).await.unwrap();
        assert_eq!(node.provision_state, ProvisionState::Available, "{node:?}");
        talk.patches().await;
        talk.raid_patches().await;
        talk.others(&[Provide, Abort, Adopt]).await;
        talk.ask(talk.power(PowerTarget::On)).await;
        talk.ask(talk.power(PowerTarget::SoftOff { timeout: Some(180) })).await;
        talk.ask(talk.power(PowerTarget::On)).await;
        talk.ask(talk.power(PowerTarget::Off)).await;
        talk.instance_patches().await;
        let node = talk.ask(talk.provision(active())).await.unwrap();
        assert_eq!(node.provision_state, ProvisionState::Active, "{node:?}");
        talk.patches().await;
        talk.others(&[Provide, Manage, Abort]).await;
        talk.ask_all(cleanings().map(|target| talk.provision(target)).into()).await;
        talk.ask(talk.power(PowerTarget::Off)).await;
        talk.ask(talk.power(PowerTarget::On)).await;
        talk.ask(talk.power(PowerTarget::On)).await;
        let node = talk.ask(talk.provision(Deleted)).await.unwrap();
        assert_eq!(node.provision_state, ProvisionState::Available, "{node:?}");
        talk.ask(talk.provision(Manage)).await;
        talk.clean(&[DELETE, ERASE]).await;
    }
    // Ironic does not delete a node with an instance.
    talk.ask(talk.provision(Provide)).await;
    talk.instance_patches().await;
    talk.ask(talk.delete()).await;
    talk.ask(talk.provision(Manage)).await;
    talk.ask(talk.delete()).await;
    talk.ask(talk.maintenance()).await;
    talk.ask(talk.delete()).await;
    talk.managed().await;
    talk.ask(talk.provision(Provide)).await;
    talk.instance_patches().await;
    talk.ask(talk.maintenance()).await;
    talk.ask(talk.delete()).await;
    talk.managed().await;
    talk.ask(talk.provision(Provide)).await;
    talk.ask(talk.delete()).await;
    talk.end()
}
