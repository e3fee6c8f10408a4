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
}

impl Watch {
    pub fn new(ironic: &mut SimIronic) -> Self {
        Watch { bystander: ironic.node(BYSTANDER), stored: BTreeSet::new() }
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
