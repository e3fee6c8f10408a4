//! How a real Ironic reacted: one line of the fixture per (situation, request), and how such lines are made of a recorded
//! conversation.
//!
//! Owns the form of the fixture. Knows nothing about Ironic's rules: what follows a request is what followed it when it
//! was recorded. Next to read: `mod.rs` (who answers from it), `tests/tests/services/record.rs` (the conversation).

use super::changes::{NOTHING, difference, merge};
use quarry_ironic::{Method, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Everything that can be different about a node, its machine and the request's names when a request arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Situation {
    /// Of the node; `None`: Ironic does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub maintenance: bool,
    /// Ironic works on it.
    #[serde(skip_serializing_if = "is_default")]
    pub locked: bool,
    /// The interface that inspected it; `None`: none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspected: Option<String>,
    /// The interfaces that carry out a cleaning, an inspection and a deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspect: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deploy: Option<String>,
    /// It has an instance.
    #[serde(skip_serializing_if = "is_default")]
    pub instance: bool,
    /// The step of a cleaning that fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<String>,
    /// The BMC does not accept the node's credentials.
    #[serde(skip_serializing_if = "is_default")]
    pub bmc_refuses: bool,
    /// The ramdisk never calls.
    #[serde(skip_serializing_if = "is_default")]
    pub silent: bool,
    /// Another object has the name, or the MAC address.
    #[serde(skip_serializing_if = "is_default")]
    pub taken: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One line of the fixture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reaction {
    /// Only what the answer depends on.
    pub when: Situation,
    pub request: String,
    pub status: u16,
    /// `{node}` and the like stand for what the answer shows of the objects then; null: no body.
    pub body: Value,
    /// What the node became afterwards, as merge patches, in order. The first was there with the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Value>,
    /// Where that ended. A poll may have missed steps on the way.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub end: Value,
}

/// Fields of the situation that the answer to a request depends on. That requests with equal ones have equal answers is
/// a test of the fixture.
pub fn relevant(request: &str, all: &Situation) -> Situation {
    let node = Situation {
        state: all.state.clone(),
        maintenance: all.maintenance,
        locked: all.locked,
        ..Situation::default()
    };
    let is = |part: &str| request.contains(part);
    if request.starts_with("GET") {
        let state = all.state.as_ref().filter(|_| is("/v1/nodes/{")).map(|_| "any".to_owned());
        let inspected = all.inspected.clone().filter(|_| is("/inventory"));
        Situation { state, inspected, ..Situation::default() }
    } else if request.starts_with("POST /v1/nodes") {
        Situation { taken: all.taken, ..Situation::default() }
    } else if request.starts_with("POST /v1/ports") {
        let state = all.state.as_ref().map(|_| "any".to_owned());
        Situation { state, taken: all.taken, ..Situation::default() }
    } else if is("/states/power") {
        Situation { power: all.power.clone(), bmc_refuses: all.bmc_refuses, ..node }
    } else if is("/states/provision target=inspect") {
        let (power, silent, inspect) = (all.power.clone(), all.silent, all.inspect.clone());
        Situation { power, silent, inspect, bmc_refuses: all.bmc_refuses, ..node }
    } else if let Some(begun) = begins(request, all) {
        Situation { silent: all.silent, ..begun }
    } else if request.starts_with("DELETE") && !is("/maintenance") {
        Situation { instance: all.instance, ..node }
    } else if is("/states/raid") {
        Situation { raid: all.raid.clone(), ..node }
    } else if is("/states/provision target=manage") {
        Situation { bmc_refuses: all.bmc_refuses, ..node }
    } else if is("/states/provision target=adopt") {
        Situation { power: all.power.clone(), bmc_refuses: all.bmc_refuses, ..node }
    } else {
        node
    }
}

/// Of a cleaning or a deployment that begins: what it depends on besides the state.
fn begins(request: &str, all: &Situation) -> Option<Situation> {
    let target = request.split_once("/states/provision target=")?.1;
    let state = all.state.clone().filter(|_| !all.maintenance && !all.locked);
    let begun = Situation { state: state.clone(), ..Situation::default() };
    match (target.split(' ').next()?, state?.as_str()) {
        ("clean", "manageable") => {
            let fails = all.fails.clone().filter(|step| target.contains(step));
            Some(Situation { raid: all.raid.clone(), fails, ..begun })
        }
        ("active", "available" | "deploy failed") => {
            Some(Situation { deploy: all.deploy.clone(), ..begun })
        }
        ("provide", "manageable") | ("deleted", "active" | "deploy failed") => Some(begun),
        _ => None,
    }
}

/// The words of one conversation that differ in every other one, and their names in the fixture.
#[derive(Clone, Debug, Default)]
pub struct Words {
    pub name: String,
    pub mac: String,
    pub bmc: String,
    /// The UUID that Redfish has for the machine.
    pub system: String,
    pub uuid: String,
}

impl Words {
    fn pairs(&self) -> [(&str, &str); 5] {
        [
            (&self.uuid, "{uuid}"),
            (&self.system, "{system}"),
            (&self.name, "{name}"),
            (&self.mac, "{mac}"),
            (&self.bmc, "{bmc}"),
        ]
    }

    /// Words to names.
    pub fn hide(&self, value: &Value) -> Value {
        self.map(value, |text, word, name| text.replace(word, name))
    }

    /// Names to words.
    pub fn show(&self, value: &Value) -> Value {
        self.map(value, |text, word, name| text.replace(name, word))
    }

    fn map(&self, value: &Value, change: impl Fn(String, &str, &str) -> String + Copy) -> Value {
        match value {
            Value::String(text) => {
                let pairs = self.pairs();
                let known = pairs.iter().filter(|(word, _)| !word.is_empty());
                Value::String(
                    known.fold(text.clone(), |text, (word, name)| change(text, word, name)),
                )
            }
            Value::Array(items) => items.iter().map(|item| self.map(item, change)).collect(),
            // Ironic lists interfaces by their addresses.
            Value::Object(fields) => {
                let named = |key: &String| match self.map(&Value::String(key.clone()), change) {
                    Value::String(key) => key,
                    _ => key.clone(),
                };
                fields.iter().map(|(key, field)| (named(key), self.map(field, change))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// The requests that a JSON patch stands for: one per operation, so that a patch of several is known once each is.
pub fn shapes(request: &Request, words: &Words) -> Vec<String> {
    let method = request.method.as_str();
    // Neither of these is in a path, and either may be as short as a digit.
    let named = Words { system: String::new(), bmc: String::new(), ..words.clone() };
    let path = match named.hide(&Value::String(request.path.replace("%3A", ":"))) {
        Value::String(path) => path,
        _ => request.path.clone(),
    };
    let body = request.body.as_ref();
    let field = |name: &str| body.and_then(|body| body[name].as_str()).unwrap_or_default();
    if path.contains("/states/") {
        let target = Some(field("target")).filter(|target| !target.is_empty());
        let target = target.map_or_else(String::new, |target| format!(" target={target}"));
        let steps = body.map(clean_steps).unwrap_or_default().join(",");
        return vec![format!("{method} {path}{target} {steps}").trim_end().to_owned()];
    }
    match (request.method, body) {
        (Method::Patch, Some(Value::Array(ops))) => {
            let mut all: Vec<String> = ops
                .iter()
                .map(|op| {
                    let of = op["path"].as_str().unwrap_or_default();
                    let first = of.split('/').nth(1).unwrap_or_default();
                    format!("{method} {path} {} /{first}", op["op"].as_str().unwrap_or_default())
                })
                .collect();
            all.sort();
            all.dedup();
            all
        }
        (Method::Post, Some(Value::Object(fields))) => {
            let keys: Vec<&str> =
                fields.keys().map(String::as_str).filter(|key| *key != "properties").collect();
            vec![format!("{method} {path} with {}", keys.join(","))]
        }
        _ => vec![format!("{method} {path}")],
    }
}

/// The steps of a manual cleaning.
pub fn clean_steps(body: &Value) -> Vec<String> {
    let steps = body["clean_steps"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    steps.map(|one| format!("{}.{}", text(&one["interface"]), text(&one["step"]))).collect()
}

/// The method of what happens without a request.
pub const EVENT: &str = "EVENT";

pub fn situation(node: Option<&Value>, about: &Situation) -> Situation {
    let Some(node) = node else { return Situation { taken: about.taken, ..Situation::default() } };
    let text = |field: &str| node[field].as_str().map(str::to_owned);
    Situation {
        state: text("provision_state"),
        power: text("power_state"),
        maintenance: node["maintenance"] == true,
        locked: node["reservation"].is_string(),
        inspected: about.inspected.clone().filter(|_| node["inspection_finished_at"].is_string()),
        raid: text("raid_interface"),
        inspect: text("inspect_interface"),
        deploy: text("deploy_interface"),
        instance: node["instance_uuid"].is_string(),
        ..about.clone()
    }
}

/// Lines of a `Recorder`; between them lines `{"situation": …}`, which say what Ironic does not show, and
/// `{"event": …}` before something that happens without a request.
pub fn reactions(lines: &str, words: &Words) -> Result<Vec<Reaction>, String> {
    let mut words = Words { uuid: String::new(), system: String::new(), ..words.clone() };
    let mut about = Situation::default();
    let mut node: Option<Value> = None;
    let mut all: Vec<Reaction> = Vec::new();
    // What became of the node, and the fields that a request to change its state always sets.
    let mut steps: Vec<Vec<(Value, Value)>> = Vec::new();
    // The reactions that what the node becomes next belongs to: several for a patch of several operations.
    let mut last = 0..0;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        if let Some(now) = line.get("situation") {
            let inspected = about.inspected.take();
            about = serde_json::from_value(now.clone()).map_err(|error| error.to_string())?;
            about.inspected = inspected;
            continue;
        }
        if let Some(event) = line["event"].as_str() {
            let request = format!("{EVENT} {event}");
            let when = relevant(&request, &situation(node.as_ref(), &about));
            last = all.len()..all.len() + 1;
            all.push(Reaction {
                when,
                request,
                status: 0,
                body: Value::Null,
                then: Vec::new(),
                end: Value::Null,
            });
            steps.push(Vec::new());
            continue;
        }
        let (sent, answer) = (&line["request"], &line["response"]);
        let status = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.ok_or_else(|| format!("no answer: {line}"))?;
        let request = request(sent)?;
        let body = &answer["body"];
        let creates = request.method == Method::Post && request.path == "/v1/nodes";
        if creates && status == 201 {
            words.uuid = body["uuid"].as_str().unwrap_or_default().to_owned();
            let system = body["driver_info"]["redfish_system_id"].as_str().unwrap_or_default();
            words.system = system.rsplit('/').next().unwrap_or_default().to_owned();
        }
        let reads_node = request.method == Method::Get
            && request.path.starts_with(&format!("/v1/nodes/{}?", words.uuid));
        let before = situation(node.as_ref(), &about);
        if reads_node && status == 200 {
            let then = node.as_ref().map(|node| difference(node, body));
            if let Some(then) = then.filter(|then| *then != json!({})) {
                let mut then = words.hide(&without_ids(&then));
                // Its own words: those of the request, unless Ironic did it.
                let by_request = last.clone().any(|at| all[at].request.contains("/maintenance"));
                if by_request && then["maintenance_reason"].is_string() {
                    then["maintenance_reason"] = json!("{reason}");
                }
                name_volumes(&mut then, body);
                for at in last.clone() {
                    steps[at].push((then.clone(), words.hide(&set_by(&all[at].request, body))));
                }
            }
            all[last.clone()].iter_mut().for_each(|one| one.end = end(body));
            node = Some(body.clone());
        }
        let now = if reads_node { situation(node.as_ref(), &about) } else { before };
        // A refusal changes nothing: what comes next still follows from the request before it.
        let changes = request.method != Method::Get && status < 300;
        let begin = all.len();
        for shape in shapes(&request, &words) {
            all.push(Reaction {
                when: relevant(&shape, &now),
                request: shape,
                status,
                body: template(&request, status, body, &words),
                then: Vec::new(),
                end: Value::Null,
            });
            steps.push(Vec::new());
        }
        if changes {
            last = begin..all.len();
            if all[begin].request.ends_with("target=inspect") {
                about.inspected = now.inspect.clone();
            }
        }
        if creates && status == 201 {
            node = Some(body.clone());
            last = 0..0;
        }
        if request.method == Method::Delete
            && status == 204
            && request.path == format!("/v1/nodes/{}", words.uuid)
        {
            node = None;
        }
    }
    for (one, steps) in all.iter_mut().zip(steps) {
        one.then = without_moments(steps);
    }
    Ok(all)
}

/// Volumes are those of the machine, or those that were requested.
fn name_volumes(then: &mut Value, node: &Value) {
    let filled =
        |config: &Value| config["logical_disks"].as_array().is_some_and(|all| !all.is_empty());
    if filled(&then["target_raid_config"]) {
        then["target_raid_config"] = json!({"logical_disks": "{request}"});
    }
    if filled(&then["raid_config"]) {
        let repeated =
            node["raid_config"]["logical_disks"] == node["target_raid_config"]["logical_disks"];
        let name = if repeated { "{target}" } else { "{volumes}" };
        then["raid_config"]["logical_disks"] = json!(name);
    }
}

/// Fields that a request sets whatever they were: that they were so already shows in no difference.
fn set_by(request: &str, node: &Value) -> Value {
    let keys: &[&str] = if request.contains("/states/") || request.starts_with(EVENT) {
        &["provision_state", "target_provision_state", "target_power_state", "last_error"]
    } else if request.contains("/maintenance") {
        &["maintenance", "last_error"]
    } else {
        &[]
    };
    let mut set: Value = keys.iter().map(|key| ((*key).to_owned(), node[*key].clone())).collect();
    // What a cleaning built or deleted, also where that was so before.
    if request.contains("clean raid.") && node["provision_state"] == "manageable" {
        set["raid_config"] = match &node["raid_config"] {
            config if *config == json!({}) => json!(NOTHING),
            config => without_ids(config),
        };
        name_volumes(&mut set, node);
    }
    set
}

/// Ironic locks a node for moments, whenever a ramdisk calls or a power state is read: whether a poll sees one is chance.
fn without_moments(steps: Vec<(Value, Value)>) -> Vec<Value> {
    let only_lock = |step: &Value| {
        let fields = step.as_object();
        fields.is_some_and(|fields| fields.len() == 1) && step.get("reservation").is_some()
    };
    let mut kept: Vec<(Value, Value)> = Vec::new();
    let mut lock = None;
    for (mut step, set) in steps {
        if only_lock(&step) && step["reservation"].is_string() {
            lock = Some(step);
            continue;
        }
        if let Some(mut lock) = lock.take() {
            merge(&mut lock, &step);
            step = lock;
        }
        match kept.last_mut().filter(|_| only_lock(&step)) {
            Some((last, _)) => merge(last, &step),
            None => kept.push((step, set)),
        }
    }
    kept.retain(|(step, _)| !only_lock(step));
    let merged = kept.into_iter().map(|(step, mut set)| {
        merge(&mut set, &step);
        set
    });
    merged.collect()
}

fn request(sent: &Value) -> Result<Request, String> {
    let method = match sent["method"].as_str() {
        Some("GET") => Method::Get,
        Some("POST") => Method::Post,
        Some("PUT") => Method::Put,
        Some("PATCH") => Method::Patch,
        Some("DELETE") => Method::Delete,
        other => return Err(format!("a request with the method {other:?}")),
    };
    let body = Some(sent["body"].clone()).filter(|body| !body.is_null());
    Ok(Request::new(method, sent["path"].as_str().unwrap_or_default(), body))
}

/// Objects become names, because the answer shows them as they are then; what repeats the request becomes `{request}`.
fn template(request: &Request, status: u16, body: &Value, words: &Words) -> Value {
    if status >= 300 {
        return words.hide(&without_ids(body));
    }
    let path = request.path.split('?').next().unwrap_or_default();
    match request.method {
        Method::Get if body["nodes"].is_array() && path == "/v1/nodes" => {
            with(body, "nodes", "{nodes}")
        }
        Method::Get if body["ports"].is_array() && path != "/v1" => with(body, "ports", "{ports}"),
        Method::Get if body["provision_state"].is_string() => json!("{node}"),
        Method::Get if path.ends_with("/history") => {
            // One entry as an example: those of a node are what happened to it.
            let all = body["history"].as_array();
            let error = all.and_then(|all| all.iter().find(|one| one["severity"] == "ERROR"));
            let example = error.map(|error| words.hide(&without_ids(&without_links(error))));
            let mut example = example.unwrap_or_default();
            for key in ["uuid", "event", "event_type"] {
                example[key] = json!(format!("{{{key}}}"));
            }
            json!({"history": [example]})
        }
        Method::Patch => json!("{node}"),
        Method::Post => {
            let mut body = body.clone();
            let echoed = request.body.as_ref().and_then(Value::as_object);
            for (key, sent) in echoed.into_iter().flatten() {
                if body[key] == *sent {
                    body[key] = json!("{request}");
                }
            }
            words.hide(&without_ids(&without_links(&body)))
        }
        _ if path == "/v1" => json!({"version": {
            "min_version": body["version"]["min_version"], "version": body["version"]["version"]
        }}),
        _ => words.hide(&without_ids(body)),
    }
}

/// `links` name the address of the lab.
fn without_links(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| {
            let list = value.as_array().and_then(|list| list.first());
            list.is_none_or(|first| first.get("href").is_none())
        });
    }
    body
}

fn with(body: &Value, key: &str, name: &str) -> Value {
    let mut body = body.clone();
    body[key] = json!(name);
    body
}

/// Numbers of the recorder for other UUIDs, and its times.
fn without_ids(value: &Value) -> Value {
    match value {
        Value::String(text) if is_time(text) => json!("{now}"),
        Value::Array(items) => items.iter().map(without_ids).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, field)| (key.clone(), without_ids(field))).collect()
        }
        other => other.clone(),
    }
}

fn is_time(text: &str) -> bool {
    text.starts_with("2026-01-01T") && text.ends_with("+00:00")
}

pub type Key = (String, Situation);

/// One reaction per situation and request. Of several that agree, the one with the most steps: a poll misses some.
/// `Err`: two that do not agree, so that the situation lacks something.
pub fn index(all: Vec<Reaction>) -> Result<BTreeMap<Key, Reaction>, Vec<String>> {
    let mut known: BTreeMap<Key, Reaction> = BTreeMap::new();
    let mut wrong = Vec::new();
    for one in all {
        let key = (one.request.clone(), one.when.clone());
        match known.get(&key) {
            Some(other) if outcome(other) != outcome(&one) => wrong.push(format!(
                "{} in {:?}:\n  {:?}\n  {:?}",
                one.request,
                one.when,
                outcome(other),
                outcome(&one)
            )),
            Some(other) if other.then.len() >= one.then.len() => {}
            _ => {
                known.insert(key, one);
            }
        }
    }
    if wrong.is_empty() { Ok(known) } else { Err(wrong) }
}

/// What two recordings of the same must have in common: status, form of the body, and where the node ended.
pub fn outcome(one: &Reaction) -> (u16, String, Value) {
    (one.status, form(&one.body), one.end.clone())
}

fn end(node: &Value) -> Value {
    let shown = ["provision_state", "target_provision_state", "target_power_state", "maintenance"];
    shown.iter().map(|key| ((*key).to_owned(), node[*key].clone())).collect()
}

/// Ironic names a node by its number in the database, which counts the nodes before it.
fn without_numbers(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for at in 1..words.len() {
        if words[at - 1] == "node" && words[at].bytes().all(|byte| byte.is_ascii_digit()) {
            words[at] = "NUMBER";
        }
    }
    words.join(" ")
}

/// Keys and types; of a refusal its words, because the client reads those.
fn form(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(text) if text.contains("faultstring") => without_numbers(text),
        Value::String(text) if text.starts_with('{') && text.ends_with('}') => text.clone(),
        Value::String(_) => "text".to_owned(),
        Value::Array(items) => format!("[{}]", items.first().map(form).unwrap_or_default()),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", form(value))).collect();
            format!("{{{}}}", fields.join(","))
        }
    }
}

pub fn parse(fixture: &str) -> Result<Vec<Reaction>, String> {
    let lines = fixture.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| serde_json::from_str(line).map_err(|why| format!("{why}: {line}"))).collect()
}

pub fn print(all: &BTreeMap<Key, Reaction>) -> Result<String, serde_json::Error> {
    let mut text = String::from(
        "# Reactions of a real Ironic. Written by scripts/record-ironic; do not edit.\n",
    );
    for one in all.values() {
        text.push_str(&serde_json::to_string(one)?);
        text.push('\n');
    }
    Ok(text)
}
