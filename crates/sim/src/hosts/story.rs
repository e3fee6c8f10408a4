//! The stories of hosts: what people do, to the API, to Ironic and to machines, each when its time has come.

use crate::{
    ironic::{SimIronic, machine::Disks},
    kind::Kind,
    world::World,
};
use quarry_api::names;
use quarry_ironic::{Method, Request};
use serde_json::{Value, json};
use std::time::Duration;

/// What BMCs accept. Neither password may be seen anywhere but in its Secret.
pub const RIGHT: &str = "right-password-5e1f";
pub const WRONG: &str = "wrong-password-5e1f";
/// A node in Ironic that belongs to no host.
pub const BYSTANDER: &str = "other~node";
pub const HOST: &str = "h1";

#[derive(Clone, Debug)]
pub enum Step {
    /// In the cluster of that number.
    Create(usize, Kind, Value),
    Delete(usize, Kind, String),
    Patch(usize, Kind, String, Value),
    Await(&'static str, fn(&View<'_>) -> bool),
    /// Something happens to Ironic, or to a machine.
    Ironic(&'static str, fn(&mut SimIronic)),
    /// The operator of that number is started, or stopped for good.
    Operator(usize, bool),
    /// All hosts are prepared for a move to the second cluster, then moved.
    MoveOut,
    Move,
    Pause(Duration),
}

/// What people see.
pub struct View<'a> {
    pub worlds: Vec<&'a World>,
    pub nodes: Vec<Value>,
    /// Of the machine behind the first host.
    pub disks: Disks,
}

impl View<'_> {
    pub fn host(&self, cluster: usize, name: &str) -> Option<&Value> {
        self.worlds[cluster].get(Kind::Host, name)
    }

    pub fn is(&self, cluster: usize, name: &str, state: &str) -> bool {
        self.host(cluster, name).is_some_and(|host| {
            host["status"]["provisioning"]["state"] == state
                && host["status"]["operationalStatus"] == "OK"
        })
    }

    pub fn node(&self, name: &str) -> Option<&Value> {
        let name = format!("{}~{name}", names::DEFAULT_NAMESPACE);
        self.nodes.iter().find(|node| node["name"] == name.as_str())
    }

    fn is_annotated(&self, name: &str, annotation: &str) -> bool {
        let host = self.host(0, name);
        host.is_some_and(|host| host["metadata"]["annotations"][annotation].is_string())
    }
}

#[derive(Clone, Debug)]
pub struct OperatorOf {
    pub cluster: usize,
    /// How far it is always behind.
    pub lag: Duration,
    /// Until a step starts it.
    pub waits: bool,
}

#[derive(Clone, Debug)]
pub struct Story {
    pub name: &'static str,
    pub clusters: usize,
    pub operators: Vec<OperatorOf>,
    pub steps: Vec<Step>,
    /// How often a host may be inspected.
    pub inspections: u32,
    /// Nodes vanish from Ironic.
    pub loses_nodes: bool,
    /// How often RAID is built and deleted, where no fault strikes.
    pub raid: (u32, u32),
}

pub fn add_bystander(ironic: &mut SimIronic) {
    let body = json!({
        "name": BYSTANDER, "driver": "redfish", "boot_interface": "redfish-virtual-media",
        "inspect_interface": "agent", "automated_clean": true,
        "driver_info": {
            "redfish_address": "https://other-bmc", "redfish_system_id": "/redfish/v1/Systems/9",
            "redfish_password": RIGHT,
        },
    });
    ironic.answer(&Request::new(Method::Post, "/v1/nodes", Some(body)));
    ironic.counts.clear();
}

pub(super) fn secret(name: &str, password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{name}-bmc")},
        "stringData": {"username": "admin", "password": password},
    })
}

pub(super) fn host(name: &str, number: usize) -> Value {
    json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name},
        "spec": {
            "online": true,
            "bootMACAddress": format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256),
            "bmc": {
                "address": format!("redfish-virtualmedia+https://bmc-{number}/redfish/v1/Systems/1"),
                "credentialsName": format!("{name}-bmc"),
            },
        },
    })
}

pub(super) const MACHINE: &str = "https://bmc-1/redfish/v1/Systems/1";

pub(super) fn create(password: &str) -> Vec<Step> {
    vec![
        Step::Create(0, Kind::Secret, secret(HOST, password)),
        Step::Create(0, Kind::Host, host(HOST, 1)),
    ]
}

fn available() -> Vec<Step> {
    let seen = Step::Await("available", |view| view.is(0, HOST, "available"));
    create(RIGHT).into_iter().chain([seen]).collect()
}

pub(super) fn patched(changes: Value) -> Step {
    Step::Patch(0, Kind::Host, HOST.to_owned(), changes)
}

fn annotated(annotation: &str, value: &str) -> Step {
    patched(json!({"metadata": {"annotations": {annotation: value}}}))
}

pub(super) fn removed() -> Vec<Step> {
    vec![
        Step::Delete(0, Kind::Host, HOST.to_owned()),
        Step::Await("gone", |view| {
            let world = view.worlds[0];
            world.get(Kind::Host, HOST).is_none()
                && world.get(Kind::HardwareData, HOST).is_none()
                && view.node(HOST).is_none()
        }),
    ]
}

pub(super) fn one(name: &'static str, steps: Vec<Step>) -> Story {
    let operator = OperatorOf { cluster: 0, lag: Duration::ZERO, waits: false };
    Story {
        name,
        clusters: 1,
        operators: vec![operator],
        steps,
        inspections: 1,
        loses_nodes: false,
        raid: (0, 0),
    }
}

fn power() -> Vec<Step> {
    let powered = |on: bool| patched(json!({"spec": {"online": on}}));
    let off = |view: &View<'_>| {
        let is_off = view.node(HOST).is_some_and(|node| node["power_state"] == "power off");
        is_off && view.host(0, HOST).is_some_and(|host| host["status"]["poweredOn"] == false)
    };
    let on = |view: &View<'_>| {
        let is_on = view.node(HOST).is_some_and(|node| {
            node["power_state"] == "power on" && node["target_power_state"].is_null()
        });
        is_on
            && view.host(0, HOST).is_some_and(|host| host["status"]["poweredOn"] == true)
            && !view.is_annotated(HOST, names::REBOOT_ANNOTATION)
    };
    let mut steps = available();
    steps.extend([powered(false), Step::Await("off", off), powered(true), Step::Await("on", on)]);
    steps.push(annotated(names::REBOOT_ANNOTATION, ""));
    steps.extend([Step::Await("off for a reboot", off), Step::Await("on again", on)]);
    steps
}

fn inspect_again() -> Vec<Step> {
    let mut steps = available();
    steps.extend([
        annotated(names::INSPECT_ANNOTATION, ""),
        Step::Await("inspecting", |view| view.is(0, HOST, "inspecting")),
        Step::Await("available again", |view| {
            view.is(0, HOST, "available") && !view.is_annotated(HOST, names::INSPECT_ANNOTATION)
        }),
    ]);
    steps
}

pub(super) fn failed(kind: &'static str, view: &View<'_>) -> bool {
    view.host(0, HOST).is_some_and(|host| host["status"]["errorType"] == kind)
}

fn wrong_password() -> Vec<Step> {
    let mut steps = create(WRONG);
    steps.extend([
        Step::Await("registration error", |view| failed("registration error", view)),
        Step::Patch(
            0,
            Kind::Secret,
            format!("{HOST}-bmc"),
            json!({"stringData": {"password": RIGHT}}),
        ),
        Step::Await("available", |view| view.is(0, HOST, "available")),
    ]);
    steps
}

fn silent() -> Vec<Step> {
    let mut steps =
        vec![Step::Ironic("the ramdisk hangs", |ironic| ironic.machine(MACHINE).silent = true)];
    steps.extend(create(RIGHT));
    steps.extend([
        Step::Await("inspection error", |view| failed("inspection error", view)),
        Step::Ironic("the ramdisk works", |ironic| ironic.machine(MACHINE).silent = false),
        Step::Await("available", |view| view.is(0, HOST, "available")),
    ]);
    steps
}

fn registered_again(cause: Step) -> Vec<Step> {
    let mut steps = available();
    steps.extend([
        cause,
        Step::Await("registered again", |view| {
            let node = view.node(HOST);
            node.is_some_and(|node| node["provision_state"] == "manageable")
                && view.is(0, HOST, "available")
        }),
    ]);
    steps
}

fn pivot() -> Story {
    let mut steps = available();
    steps.extend([
        Step::MoveOut,
        Step::Move,
        Step::Operator(0, false),
        Step::Operator(1, true),
        Step::Pause(Duration::from_secs(120)),
        Step::Patch(
            1,
            Kind::Host,
            HOST.to_owned(),
            json!({"metadata": {"annotations": {names::PAUSED_ANNOTATION: null}}}),
        ),
        Step::Await("available there", |view| {
            view.is(1, HOST, "available")
                && view.host(1, HOST).is_some_and(|host| {
                    host["status"]["hardware"].is_object()
                        && host["metadata"]["annotations"][names::STATUS_ANNOTATION].is_null()
                })
                && view.worlds[1].get(Kind::HardwareData, HOST).is_some()
                && view.worlds[0].get(Kind::Host, HOST).is_none()
        }),
        Step::Pause(Duration::from_secs(600)),
    ]);
    let operator = |cluster, waits| OperatorOf { cluster, lag: Duration::ZERO, waits };
    Story {
        clusters: 2,
        operators: vec![operator(0, false), operator(1, true)],
        ..one("pivot", steps)
    }
}

pub fn stories() -> Vec<Story> {
    let behind = OperatorOf { cluster: 0, lag: Duration::from_secs(3), waits: false };
    let life = || available().into_iter().chain(removed()).collect::<Vec<_>>();
    let mut two = one("two-leaders", life());
    two.operators.push(behind);
    let lost = Step::Ironic("the database is lost", SimIronic::lose_database);
    let deleted = Step::Ironic("the node is deleted by hand", |ironic| {
        ironic.delete_by_hand(&format!("{}~{HOST}", names::DEFAULT_NAMESPACE));
    });
    let mut all = vec![
        one("life", life()),
        one("power", power()),
        Story { inspections: 2, ..one("inspect-again", inspect_again()) },
        one("wrong-password", wrong_password()),
        Story { inspections: 4, ..one("silent-ramdisk", silent()) },
        Story { loses_nodes: true, ..one("database-lost", registered_again(lost)) },
        Story { loses_nodes: true, ..one("node-deleted", registered_again(deleted)) },
        two,
        pivot(),
    ];
    all.extend(super::raid_story::stories());
    all
}

pub fn find(name: &str) -> Option<Story> {
    stories().into_iter().find(|story| story.name == name)
}
