//! What may never be seen of hosts, in whatever order things happen and fail.

use super::story::{BYSTANDER, RIGHT, Story, WRONG};
use crate::{ironic::SimIronic, kind::Kind, report::normal, world::World};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What was seen before.
pub struct Watch {
    bystander: Option<Value>,
    /// Hosts whose HardwareData existed.
    stored: BTreeSet<String>,
    /// The last state of each host.
    states: BTreeMap<String, String>,
}

impl Watch {
    pub fn new(ironic: &mut SimIronic) -> Self {
        Watch {
            bystander: ironic.node(BYSTANDER),
            stored: BTreeSet::new(),
            states: BTreeMap::new(),
        }
    }

    pub fn check(
        &mut self,
        story: &Story,
        worlds: &[&World],
        ironic: &mut SimIronic,
    ) -> Vec<String> {
        let mut wrong = nodes_of_machines(ironic);
        if ironic.node(BYSTANDER) != self.bystander && !story.loses_nodes {
            wrong.push("the node of no host was changed".to_owned());
        }
        for (name, count) in &ironic.inspections {
            if *count > story.inspections {
                wrong.push(format!("{name} was inspected {count} times"));
            }
        }
        wrong.extend(self.lost_hardware(worlds));
        wrong.extend(cleaned_without_reason(worlds, ironic));
        wrong.extend(self.left_behind(worlds, ironic));
        for world in worlds {
            let objects = world.all(Kind::Host).chain(world.all(Kind::HardwareData));
            for object in objects {
                let shown = shows_credential(object);
                let name = &object["metadata"]["name"];
                wrong.extend(shown.map(|shown| format!("{} {name} shows {shown}", object["kind"])));
            }
        }
        wrong
    }

    /// Nothing is left once a host is deprovisioned.
    fn left_behind(&mut self, worlds: &[&World], ironic: &mut SimIronic) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut states = BTreeMap::new();
        for host in worlds.iter().flat_map(|world| world.all(Kind::Host)) {
            let name = host["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let state = host["status"]["provisioning"]["state"].as_str().unwrap_or_default();
            let ended = self.states.get(&name).is_some_and(|last| last == "deprovisioning");
            let disks = &ironic.machine(&system_of(host)).disks;
            if ended && state != "deprovisioning" && (!disks.is_empty() || disks.image.is_some()) {
                wrong.push(format!("{name} is {state} and left {disks:?}"));
            }
            states.insert(name, state.to_owned());
        }
        self.states = states;
        wrong
    }

    /// Once stored it is there until its host is deleted, or while an inspection replaces it.
    fn lost_hardware(&mut self, worlds: &[&World]) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        let all = |kind: Kind| worlds.iter().flat_map(move |world| world.all(kind));
        let stored: BTreeSet<String> = all(Kind::HardwareData).filter_map(name).collect();
        self.stored.extend(stored.iter().cloned());
        let hosts: BTreeMap<String, &Value> =
            all(Kind::Host).filter_map(|host| Some((name(host)?, host))).collect();
        let mut wrong = Vec::new();
        for name in &self.stored {
            let Some(host) = hosts.get(name) else { continue };
            let deleted = host["metadata"]["deletionTimestamp"].is_string();
            let replaced = host["status"]["provisioning"]["state"] == "inspecting";
            if !deleted && !replaced && !stored.contains(name) {
                wrong.push(format!("the HardwareData of {name} is lost"));
            }
        }
        self.stored.retain(|name| hosts.contains_key(name));
        wrong
    }
}

/// A cleaning was requested: of a host that is prepared, with its settings recorded before, or at the end of its use.
fn cleaned_without_reason(worlds: &[&World], ironic: &mut SimIronic) -> Vec<String> {
    let mut wrong = Vec::new();
    for cleaning in std::mem::take(&mut ironic.cleanings) {
        let name = cleaning.node.rsplit('~').next().unwrap_or_default();
        let what = format!("{name} was cleaned with {}", cleaning.steps.join(","));
        let Some(host) = worlds.iter().find_map(|world| world.get(Kind::Host, name)) else {
            wrong.push(format!("{what}, and does not exist"));
            continue;
        };
        let provisioning = &host["status"]["provisioning"];
        match provisioning["state"].as_str() {
            Some("deprovisioning") => {}
            Some("preparing") if provisioning["raid"].is_object() => {
                if let Some(image) = &ironic.machine(&cleaning.system).disks.image {
                    wrong.push(format!("{what} while it runs {image}"));
                }
            }
            Some("preparing") => wrong.push(format!("{what} before its settings were recorded")),
            state => wrong.push(format!("{what} in the state {state:?}")),
        }
    }
    wrong
}

fn system_of(host: &Value) -> String {
    let address = host["spec"]["bmc"]["address"].as_str().unwrap_or_default();
    address.split_once('+').map_or(address, |(_, rest)| rest).to_owned()
}

/// One machine has one node, and a node one name.
fn nodes_of_machines(ironic: &mut SimIronic) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut machines, mut names) = (BTreeSet::new(), BTreeSet::new());
    for node in ironic.nodes() {
        let info = &node["driver_info"];
        let machine = format!("{}{}", info["redfish_address"], info["redfish_system_id"]);
        if !machines.insert(machine.clone()) {
            wrong.push(format!("two nodes for {machine}"));
        }
        if !names.insert(node["name"].to_string()) {
            wrong.push(format!("two nodes with the name {}", node["name"]));
        }
    }
    wrong
}

pub fn shows_credential(object: &Value) -> Option<&'static str> {
    let text = object.to_string();
    [RIGHT, WRONG].into_iter().find(|password| text.contains(password))
}

/// Besides those of other runs. A node that was registered before the architecture was known is created without it.
const FLEETING: [&str; 6] =
    ["credentialsVersion", "observedGeneration", "uuid", "ID", "errorCount", "cpu_arch"];

/// Without what differs between equal runs.
pub fn comparable(object: &Value) -> Value {
    fn without(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|key, _| !FLEETING.contains(&key.as_str()));
                fields.values_mut().for_each(without);
            }
            Value::Array(items) => items.iter_mut().for_each(without),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut object = normal(object);
    without(&mut object);
    object
}
