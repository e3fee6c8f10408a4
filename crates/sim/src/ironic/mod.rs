//! A simulated Ironic that answers only what a real one answered when it was recorded: status, body, and what becomes of
//! the node, in the recorded order and in virtual time.
//!
//! Owns nodes, ports and the machines behind them. Has no rules of its own: a request that was not recorded in the
//! situation at hand is noted in `unknown`, and fails the run. Next to read: `recording.rs`, `proxy.rs` (faults).

pub mod changes;
pub mod machine;
pub mod proxy;
pub mod recording;
mod work;

use changes::merge;
use jiff::{SignedDuration, Timestamp};
use quarry_ironic::{Method, Request, Response, secret::is_secret_path};
use recording::{EVENT, Key, Reaction, Situation, Words, index, parse, relevant, shapes};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, LazyLock},
};
use work::Change;

static REACTIONS: LazyLock<BTreeMap<Key, Reaction>> = LazyLock::new(|| {
    let all = parse(include_str!("../../fixtures/ironic/reactions.jsonl"));
    let all = all.unwrap_or_else(|why| panic!("the fixture cannot be read: {why}"));
    index(all).unwrap_or_else(|wrong| panic!("the fixture contradicts itself: {wrong:?}"))
});

/// How long Ironic takes for a step. A ramdisk boots for much longer.
const STEP: SignedDuration = SignedDuration::from_secs(1);
const RAMDISK: SignedDuration = SignedDuration::from_secs(30);
/// Shorter than in any lab: each poll is a point at which a run can fail.
const CLEANING: SignedDuration = SignedDuration::from_secs(5);
/// As in the lab: long enough to be polled often.
const TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

pub use machine::Machine;
pub use work::Cleaning;

struct SimNode {
    body: Value,
    /// As it was sent; the body shows asterisks.
    password: String,
    /// The interface of the last inspection.
    inspected: Option<String>,
    /// Errors, the oldest first.
    history: Vec<String>,
    pending: VecDeque<(Timestamp, Change)>,
}

pub struct SimIronic {
    nodes: Vec<SimNode>,
    ports: Vec<Value>,
    /// By address and path of the system.
    machines: BTreeMap<String, Machine>,
    made: u32,
    clock: Clock,
    /// Requests by method, and lists of all nodes.
    pub counts: BTreeMap<&'static str, u64>,
    /// Inspections that began, by the name of the node.
    pub inspections: BTreeMap<String, u32>,
    /// Nodes that were inspected at the same time, at most.
    pub busiest: usize,
    /// Cleanings since they were last read.
    pub cleanings: Vec<Cleaning>,
    /// Requests that the recording does not have, and what no machine does.
    pub unknown: Vec<String>,
    /// Of new machines.
    pub default_password: String,
}

impl SimIronic {
    pub fn new(clock: Clock, default_password: &str) -> Self {
        SimIronic {
            nodes: Vec::new(),
            ports: Vec::new(),
            machines: BTreeMap::new(),
            made: 0,
            clock,
            counts: BTreeMap::new(),
            inspections: BTreeMap::new(),
            busiest: 0,
            cleanings: Vec::new(),
            unknown: Vec::new(),
            default_password: default_password.to_owned(),
        }
    }

    /// Every node as it is now.
    pub fn nodes(&mut self) -> Vec<Value> {
        self.advance();
        self.nodes.iter().map(|node| node.body.clone()).collect()
    }

    pub fn node(&mut self, name: &str) -> Option<Value> {
        self.nodes().into_iter().find(|node| node["name"] == name)
    }

    pub fn ports(&self) -> &[Value] {
        &self.ports
    }

    pub fn machine(&mut self, system: &str) -> &mut Machine {
        let made = Machine { password: self.default_password.clone(), ..Machine::default() };
        self.machines.entry(system.to_owned()).or_insert(made)
    }

    /// As with the command line client, past the operator.
    pub fn delete_by_hand(&mut self, name: &str) {
        self.nodes.retain(|node| node.body["name"] != name);
        self.forget_ports();
    }

    pub fn change_by_hand(&mut self, name: &str, changes: &Value) {
        let found = self.nodes.iter_mut().find(|node| node.body["name"] == name);
        found.into_iter().for_each(|node| merge(&mut node.body, changes));
    }

    pub fn lose_database(&mut self) {
        self.nodes.clear();
        self.ports.clear();
    }

    fn forget_ports(&mut self) {
        let known: Vec<Value> = self.nodes.iter().map(|node| node.body["uuid"].clone()).collect();
        self.ports.retain(|port| known.contains(&port["node_uuid"]));
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// What is due by now has happened.
    fn advance(&mut self) {
        let now = self.now();
        for at in 0..self.nodes.len() {
            while let Some((due, step)) = self.nodes[at].pending.pop_front() {
                if due > now {
                    self.nodes[at].pending.push_front((due, step));
                    break;
                }
                match step {
                    Change::Node(step) => self.change(at, &step, due),
                    Change::Machine(step) => self.work(at, step),
                }
            }
        }
    }

    /// A ramdisk that never calls is given up.
    fn give_up_later(&mut self, at: usize, now: Timestamp) {
        let node = &self.nodes[at];
        let waiting = ["inspect wait", "clean wait"];
        let waits = waiting.iter().any(|state| node.body["provision_state"] == *state)
            && node.pending.is_empty();
        if !waits || !self.situation(Some(at), false).silent {
            return;
        }
        let request = format!("{EVENT} timeout");
        if let Some(known) = self.lookup(&request, &self.situation(Some(at), false)) {
            let words = self.words(at);
            self.schedule(at, &known.then, &words, now + TIMEOUT);
        } else {
            self.unknown.push(self.describe(&request, Some(at)));
        }
    }

    fn system_of(body: &Value) -> String {
        let info = &body["driver_info"];
        let part = |key: &str| info[key].as_str().unwrap_or_default();
        format!("{}{}", part("redfish_address"), part("redfish_system_id"))
    }

    fn words(&self, at: usize) -> Words {
        let body = &self.nodes[at].body;
        let info = &body["driver_info"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let system = text(&info["redfish_system_id"]);
        let port = self.ports.iter().find(|port| port["node_uuid"] == body["uuid"]);
        Words {
            name: text(&body["name"]),
            mac: port.map(|port| text(&port["address"])).unwrap_or_default(),
            bmc: text(&info["redfish_address"]),
            system: system.rsplit('/').next().unwrap_or_default().to_owned(),
            uuid: text(&body["uuid"]),
        }
    }

    fn situation(&self, at: Option<usize>, taken: bool) -> Situation {
        let mut about = Situation { taken, ..Situation::default() };
        let Some(node) = at.map(|at| &self.nodes[at]) else { return about };
        let machine = self.machines.get(&Self::system_of(&node.body));
        let password = machine.map_or(&self.default_password, |machine| &machine.password);
        about.bmc_refuses = *password != node.password;
        about.silent = machine.is_some_and(|machine| machine.silent);
        about.fails = machine.and_then(|machine| machine.fails).map(str::to_owned);
        about.inspected.clone_from(&node.inspected);
        recording::situation(Some(&node.body), &about)
    }

    fn lookup(&self, request: &str, now: &Situation) -> Option<&'static Reaction> {
        REACTIONS.get(&(request.to_owned(), relevant(request, now)))
    }

    fn describe(&self, request: &str, at: Option<usize>) -> String {
        format!(
            "no recording of \"{request}\" in {:?}; add it to tests/tests/services/record.rs and run scripts/record-ironic",
            relevant(request, &self.situation(at, false))
        )
    }

    /// The answer of the real Ironic. `None`: it was not recorded.
    pub fn answer(&mut self, request: &Request) -> Option<Response> {
        self.advance();
        *self.counts.entry(request.method.as_str()).or_default() += 1;
        let path = request.path.split('?').next().unwrap_or_default();
        if path == "/v1/nodes" && request.method == Method::Get {
            *self.counts.entry("list").or_default() += 1;
        }
        let body = request.body.clone().unwrap_or_default();
        let id = match path.strip_prefix("/v1/nodes/") {
            Some(rest) => rest.split('/').next().map(decoded),
            None => body["node_uuid"].as_str().map(str::to_owned),
        };
        let at = self.nodes.iter().position(|node| {
            let body = &node.body;
            id.as_deref().is_some_and(|id| body["uuid"] == id || body["name"] == id)
        });
        let words = self.words_of(request, at, id.as_deref());
        let taken = match path {
            "/v1/nodes" => self.nodes.iter().any(|node| node.body["name"] == body["name"]),
            "/v1/ports" => self.ports.iter().any(|port| port["address"] == body["address"]),
            _ => false,
        };
        let now = self.situation(at, taken);
        let mut found: Option<&Reaction> = None;
        for shape in shapes(request, &words) {
            let Some(known) = self.lookup(&shape, &now) else {
                self.unknown.push(self.describe(&shape, at));
                return None;
            };
            // One operation that is refused refuses the whole patch.
            if found.is_none_or(|found| found.status < 300) {
                found = Some(known);
            }
        }
        let known = found?;
        let absent = |op: &&Value| {
            let path = op["path"].as_str().unwrap_or_default();
            op["op"] == "remove" && at.is_some_and(|at| self.nodes[at].body.pointer(path).is_none())
        };
        if let Some(op) = body.as_array().into_iter().flatten().find(absent) {
            self.unknown.push(format!("{} is removed and is not there", op["path"]));
        }
        let at = if known.status < 300 { self.perform(request, at, known, &words) } else { at };
        let body = self.body(request, known, at, &words);
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Some(Response { status: known.status, body })
    }

    /// The answer while Ironic works on the node: recorded of another request.
    pub fn locked(&self, request: &Request) -> Option<Response> {
        let locked =
            |one: &&Reaction| one.when.locked && one.body.to_string().contains("locked by");
        let known = REACTIONS.values().find(locked)?;
        let id = decoded(request.path.strip_prefix("/v1/nodes/")?.split('/').next()?);
        let words = Words { uuid: id, ..Words::default() };
        let body = words.show(&known.body).to_string().into_bytes();
        Some(Response { status: known.status, body })
    }

    fn words_of(&self, request: &Request, at: Option<usize>, id: Option<&str>) -> Words {
        let body = request.body.as_ref();
        let text = |key: &str| body.and_then(|body| body[key].as_str()).unwrap_or_default();
        let mut words = at.map(|at| self.words(at)).unwrap_or_default();
        if at.is_none() {
            let id = id.unwrap_or_default().to_owned();
            let is_uuid = id.len() == 36 && !id.contains('~');
            let name = text("name").to_owned();
            (words.uuid, words.name) = if is_uuid { (id, name) } else { (String::new(), id) };
            if words.name.is_empty() {
                words.name = text("name").to_owned();
            }
        }
        let asked = request.path.split_once("address=").map(|(_, rest)| rest);
        let asked = asked.map(|rest| decoded(rest.split('&').next().unwrap_or_default()));
        if let Some(mac) =
            asked.or_else(|| Some(text("address").to_owned())).filter(|mac| !mac.is_empty())
        {
            words.mac = mac;
        }
        words
    }

    fn perform(
        &mut self,
        request: &Request,
        at: Option<usize>,
        known: &'static Reaction,
        words: &Words,
    ) -> Option<usize> {
        let now = self.now();
        let path = request.path.split('?').next().unwrap_or_default();
        let sent = request.body.clone().unwrap_or_default();
        match (request.method, path) {
            (Method::Post, "/v1/nodes") => return Some(self.create(&sent, known, words, now)),
            (Method::Post, "/v1/ports") => {
                self.made += 1;
                let uuid = format!("00000000-0000-4000-9000-{:012}", self.made);
                let mut port = echoed(&known.body, &sent);
                port["uuid"] = json!(uuid);
                self.ports.push(filled(&words.show(&port), now));
                return at;
            }
            _ => {}
        }
        let at = at?;
        match request.method {
            Method::Delete if path.ends_with("/maintenance") => {}
            Method::Delete => {
                self.nodes.remove(at);
                self.forget_ports();
                return None;
            }
            Method::Patch => {
                for op in sent.as_array().into_iter().flatten() {
                    patch(&mut self.nodes[at], op);
                }
            }
            Method::Get | Method::Post | Method::Put => {}
        }
        if sent["target"] == "inspect" {
            let node = &mut self.nodes[at];
            node.inspected = node.body["inspect_interface"].as_str().map(str::to_owned);
            *self.inspections.entry(words.name.clone()).or_default() += 1;
        }
        let mut steps = known.then.clone();
        for step in &mut steps {
            if step["maintenance_reason"] == "{reason}" {
                step["maintenance_reason"] = sent["reason"].clone();
            }
            if step["target_raid_config"]["logical_disks"] == "{request}" {
                step["target_raid_config"] = sent.clone();
            }
        }
        // What a patch is for is in the patch; the rest follows from it.
        let others: Vec<Value> = if request.method == Method::Patch { Vec::new() } else { steps };
        self.schedule(at, &others, words, now);
        self.schedule_work(at, &sent);
        self.advance();
        self.give_up_later(at, now);
        if sent["target"] == "inspect" {
            let busy = ["inspecting", "inspect wait"];
            let state =
                |node: &&SimNode| busy.iter().any(|one| node.body["provision_state"] == *one);
            self.busiest = self.busiest.max(self.nodes.iter().filter(state).count());
        }
        Some(at)
    }

    fn create(&mut self, sent: &Value, known: &Reaction, words: &Words, now: Timestamp) -> usize {
        self.made += 1;
        let uuid = format!("00000000-0000-4000-a000-{:012}", self.made);
        let words = Words { uuid, ..words.clone() };
        let shown = quarry_ironic::secret::redacted(sent);
        let body = filled(&words.show(&echoed(&known.body, &shown)), now);
        let password = sent["driver_info"]["redfish_password"].as_str().unwrap_or_default();
        let password = password.to_owned();
        self.nodes.push(SimNode {
            body,
            password,
            inspected: None,
            history: Vec::new(),
            pending: VecDeque::new(),
        });
        self.nodes.len() - 1
    }

    /// The first step is there with the answer.
    fn schedule(&mut self, at: usize, steps: &[Value], words: &Words, begin: Timestamp) {
        let node = &mut self.nodes[at];
        let moves = |step: &Value| step.get("provision_state").is_some();
        if steps.iter().any(moves) {
            node.pending.clear();
        }
        let mut due = begin;
        for step in steps.iter().map(|step| words.show(step)) {
            let takes = match step["provision_state"].as_str() {
                Some("inspect wait") => RAMDISK,
                Some("clean wait") => CLEANING,
                _ => STEP,
            };
            node.pending.push_back((due, Change::Node(step)));
            due += takes;
        }
        node.pending.make_contiguous().sort_by_key(|(due, _)| *due);
    }

    fn body(&self, request: &Request, known: &Reaction, at: Option<usize>, words: &Words) -> Value {
        let fields: Option<Vec<String>> = request.path.split_once("fields=").map(|(_, rest)| {
            let rest = rest.split('&').next().unwrap_or_default();
            rest.split(',').map(str::to_owned).collect()
        });
        let shown = |body: &Value| match &fields {
            Some(fields) => {
                Value::Object(fields.iter().map(|key| (key.clone(), body[key].clone())).collect())
            }
            None => body.clone(),
        };
        if request.method == Method::Post && known.status < 300 {
            return match (request.path.as_str(), at) {
                ("/v1/ports", _) => self.ports.last().cloned().unwrap_or_default(),
                (_, Some(at)) => self.nodes[at].body.clone(),
                (_, None) => Value::Null,
            };
        }
        let ports = || -> Vec<Value> {
            let uuid = at.map(|at| &self.nodes[at].body["uuid"]);
            let of_node = |port: &&Value| uuid.is_some_and(|uuid| port["node_uuid"] == *uuid);
            let by_mac = |port: &&Value| port["address"] == words.mac.as_str();
            let by_node = request.path.starts_with("/v1/nodes/");
            self.ports
                .iter()
                .filter(|port| if by_node { of_node(port) } else { by_mac(port) })
                .map(shown)
                .collect()
        };
        if request.path.contains("/history") && known.status < 300 {
            let events = at.map(|at| self.nodes[at].history.as_slice()).unwrap_or_default();
            let entry = |(number, event): (usize, &String)| {
                let mut entry = filled(&words.show(&known.body["history"][0]), self.now());
                entry["uuid"] = json!(format!("00000000-0000-4000-b000-{number:012}"));
                entry["event"] = json!(event);
                entry
            };
            let all: Vec<Value> = events.iter().enumerate().map(entry).collect();
            return json!({ "history": all });
        }
        match &known.body {
            Value::String(name) if name == "{node}" => {
                at.map(|at| shown(&self.nodes[at].body)).unwrap_or_default()
            }
            Value::Object(whole) => {
                let mut whole: Map<String, Value> = whole.clone();
                for (_, value) in &mut whole {
                    if *value == "{nodes}" {
                        *value = self.nodes.iter().map(|node| shown(&node.body)).collect();
                    } else if *value == "{ports}" {
                        *value = Value::Array(ports());
                    }
                }
                filled(&words.show(&Value::Object(whole)), self.now())
            }
            other => words.show(other),
        }
    }
}

/// Times of the recording are now.
fn filled(value: &Value, now: Timestamp) -> Value {
    match value {
        Value::String(text) if text == "{now}" => json!(now.to_string()),
        Value::Array(items) => items.iter().map(|item| filled(item, now)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, field)| (key.clone(), filled(field, now))).collect()
        }
        other => other.clone(),
    }
}

/// What repeats the request.
fn echoed(template: &Value, sent: &Value) -> Value {
    let mut body = template.clone();
    for (key, value) in body.as_object_mut().into_iter().flatten() {
        if *value == "{request}" {
            *value = sent.get(key).cloned().unwrap_or_else(|| json!({}));
        }
    }
    body
}

fn patch(node: &mut SimNode, op: &Value) {
    let path = op["path"].as_str().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if path.ends_with("/redfish_password") {
        node.password = op["value"].as_str().unwrap_or_default().to_owned();
    }
    let value = if is_secret_path(path) { json!("******") } else { op["value"].clone() };
    let Some((last, above)) = parts.split_last() else { return };
    let target = above.iter().fold(&mut node.body, |target, part| &mut target[*part]);
    match (op["op"].as_str(), target.as_object_mut()) {
        (Some("remove"), Some(fields)) => {
            fields.remove(*last);
        }
        (_, Some(fields)) => {
            fields.insert((*last).to_owned(), value);
        }
        (_, None) => {}
    }
}

fn decoded(text: &str) -> String {
    text.replace("%3A", ":").replace("%7E", "~")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
