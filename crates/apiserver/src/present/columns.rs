//! Owns the table columns of each kind: those of a CRD, and kubectl's usual ones for built-in
//! kinds.

use super::age::since;
use super::jsonpath::JsonPath;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A column defined in a CRD.
#[derive(Clone, Debug)]
pub struct CustomColumn {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub path: JsonPath,
}

#[derive(Clone, Debug)]
pub enum Columns {
    Custom(Vec<CustomColumn>),
    NameAndAge,
    /// Name and creation time, as for definitions.
    Definition,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Secret,
    ConfigMap,
    Event,
    StorageClass,
    Lease,
}

/// Name, type, priority (above 0: only with `-o wide`).
type Head = (&'static str, &'static str, i32);

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

impl Columns {
    pub fn definitions(&self) -> Value {
        let mut out = Vec::new();
        let plain = |(name, kind, priority): &Head| {
            let format = if *name == "Name" { "name" } else { "" };
            let description = if *name == "Name" { NAME } else { "" };
            json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
        };
        match self {
            Columns::Custom(columns) => {
                out.push(plain(&("Name", "string", 0)));
                for column in columns {
                    out.push(json!({
                        "name": column.name, "type": column.kind, "format": column.format,
                        "description": column.description, "priority": column.priority,
                    }));
                }
                if columns.is_empty() {
                    out.push(plain(&("Age", "date", 0)));
                }
            }
            other => out.extend(other.heads().iter().map(plain)),
        }
        out.into()
    }

    fn heads(&self) -> &'static [Head] {
        match self {
            Columns::Custom(_) => &[],
            Columns::NameAndAge => &[("Name", "string", 0), ("Age", "string", 0)],
            Columns::Definition => &[("Name", "string", 0), ("Created At", "date", 0)],
            Columns::Namespace => {
                &[("Name", "string", 0), ("Status", "string", 0), ("Age", "string", 0)]
            }
            Columns::Node => &[
                ("Name", "string", 0),
                ("Status", "string", 0),
                ("Roles", "string", 0),
                ("Age", "string", 0),
                ("Version", "string", 0),
                ("Internal-IP", "string", 1),
                ("External-IP", "string", 1),
                ("OS-Image", "string", 1),
                ("Kernel-Version", "string", 1),
                ("Container-Runtime", "string", 1),
            ],
            Columns::PersistentVolume => &[
                ("Name", "string", 0),
                ("Capacity", "string", 0),
                ("Access Modes", "string", 0),
                ("Reclaim Policy", "string", 0),
                ("Status", "string", 0),
                ("Claim", "string", 0),
                ("StorageClass", "string", 0),
                ("VolumeAttributesClass", "string", 0),
                ("Reason", "string", 0),
                ("Age", "string", 0),
                ("VolumeMode", "string", 1),
            ],
            Columns::PersistentVolumeClaim => &[
                ("Name", "string", 0),
                ("Status", "string", 0),
                ("Volume", "string", 0),
                ("Capacity", "string", 0),
                ("Access Modes", "string", 0),
                ("StorageClass", "string", 0),
                ("VolumeAttributesClass", "string", 0),
                ("Age", "string", 0),
                ("VolumeMode", "string", 1),
            ],
            Columns::Secret => &[
                ("Name", "string", 0),
                ("Type", "string", 0),
                ("Data", "string", 0),
                ("Age", "string", 0),
            ],
            Columns::ConfigMap => {
                &[("Name", "string", 0), ("Data", "string", 0), ("Age", "string", 0)]
            }
            Columns::Event => &[
                ("Last Seen", "string", 0),
                ("Type", "string", 0),
                ("Reason", "string", 0),
                ("Object", "string", 0),
                ("Subobject", "string", 1),
                ("Source", "string", 1),
                ("Message", "string", 0),
                ("First Seen", "string", 1),
                ("Count", "string", 1),
                ("Name", "string", 1),
            ],
            Columns::StorageClass => &[
                ("Name", "string", 0),
                ("Provisioner", "string", 0),
                ("ReclaimPolicy", "string", 0),
                ("VolumeBindingMode", "string", 0),
                ("AllowVolumeExpansion", "string", 0),
                ("Age", "string", 0),
            ],
            Columns::Lease => {
                &[("Name", "string", 0), ("Holder", "string", 0), ("Age", "string", 0)]
            }
        }
    }

    /// The cells of one object in its stored form.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Value {
        let name = object["metadata"]["name"].clone();
        let age: Value = since(&object["metadata"]["creationTimestamp"], now).into();
        let (spec, status) = (&object["spec"], &object["status"]);
        match self {
            Columns::Custom(columns) => {
                let mut cells = vec![name];
                cells.extend(columns.iter().map(|column| custom_cell(column, object, now)));
                if columns.is_empty() {
                    cells.push(age);
                }
                cells.into()
            }
            Columns::NameAndAge => json!([name, age]),
            Columns::Definition => json!([name, object["metadata"]["creationTimestamp"]]),
            Columns::Namespace => json!([name, text(&status["phase"]), age]),
            Columns::Node => node_cells(object, &name, &age),
            Columns::PersistentVolume => {
                let claim_ref = &spec["claimRef"];
                let pvc = match claim_ref["name"].as_str() {
                    Some(name) => format!("{}/{name}", text(&claim_ref["namespace"])),
                    None => String::new(),
                };
                json!([
                    name,
                    text(&spec["capacity"]["storage"]),
                    access_modes(&spec["accessModes"]),
                    text(&spec["persistentVolumeReclaimPolicy"]),
                    phase(object),
                    pvc,
                    text(&spec["storageClassName"]),
                    unset(&spec["volumeAttributesClassName"]),
                    text(&status["reason"]),
                    age,
                    unset(&spec["volumeMode"]),
                ])
            }
            Columns::PersistentVolumeClaim => {
                let bound = !text(&spec["volumeName"]).is_empty();
                let modes =
                    if bound { access_modes(&status["accessModes"]) } else { String::new() };
                let capacity =
                    if bound { text(&status["capacity"]["storage"]) } else { String::new() };
                json!([
                    name,
                    phase(object),
                    text(&spec["volumeName"]),
                    capacity,
                    modes,
                    text(&spec["storageClassName"]),
                    unset(&spec["volumeAttributesClassName"]),
                    age,
                    unset(&spec["volumeMode"]),
                ])
            }
            Columns::Secret => json!([name, text(&object["type"]), count(&object["data"]), age]),
            Columns::ConfigMap => {
                json!([name, count(&object["data"]) + count(&object["binaryData"]), age])
            }
            Columns::Event => event_cells(object, &name, now),
            Columns::StorageClass => {
                let default = &object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"];
                let shown = text(&name) + if default == "true" { " (default)" } else { "" };
                let expansion = object["allowVolumeExpansion"].as_bool().unwrap_or_default();
                json!([
                    shown,
                    text(&object["provisioner"]),
                    text(&object["reclaimPolicy"]),
                    text(&object["volumeBindingMode"]),
                    expansion,
                    age,
                ])
            }
            Columns::Lease => json!([name, text(&spec["holderIdentity"]), age]),
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn unset(value: &Value) -> String {
    match text(value) {
        empty if empty.is_empty() => "<unset>".into(),
        text => text,
    }
}

fn count(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

fn phase(object: &Value) -> String {
    if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating".into()
    } else {
        text(&object["status"]["phase"])
    }
}

fn access_modes(modes: &Value) -> String {
    let modes = modes.as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |mode: &str| modes.iter().any(|known| known == mode);
    let table = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<&str> =
        table.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect();
    short.join(",")
}

fn custom_cell(column: &CustomColumn, object: &Value, now: Timestamp) -> Value {
    let found = column.path.find(object);
    let Some(first) = found.first() else { return Value::Null };
    match column.kind.as_str() {
        "date" => since(first, now).into(),
        "integer" | "number" | "boolean" => (*first).clone(),
        _ => {
            let all: Vec<String> = found.iter().map(|value| text(value)).collect();
            all.join(",").into()
        }
    }
}

fn node_cells(object: &Value, name: &Value, age: &Value) -> Value {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let mut shown = vec![match ready.map(|condition| &condition["status"]) {
        Some(status) if status == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if object["spec"]["unschedulable"] == true {
        shown.push("SchedulingDisabled");
    }
    let labels = object["metadata"]["labels"].as_object();
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") };
    let addresses = status["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let address = |kind: &str| {
        let found = addresses.iter().find(|address| address["type"] == kind);
        found.map_or("<none>".to_owned(), |address| text(&address["address"]))
    };
    let info = &status["nodeInfo"];
    let known = |value: &Value| match text(value) {
        empty if empty.is_empty() => "<unknown>".to_owned(),
        text => text,
    };
    json!([
        name,
        shown.join(","),
        roles,
        age,
        text(&info["kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        known(&info["osImage"]),
        known(&info["kernelVersion"]),
        known(&info["containerRuntimeVersion"]),
    ])
}

fn event_cells(object: &Value, name: &Value, now: Timestamp) -> Value {
    let when = |fields: &[&Value]| {
        fields.iter().find(|time| time.is_string()).map_or(Value::Null, |time| (*time).clone())
    };
    let last = when(&[
        &object["series"]["lastObservedTime"],
        &object["lastTimestamp"],
        &object["eventTime"],
        &object["firstTimestamp"],
    ]);
    let first = when(&[&object["firstTimestamp"], &object["eventTime"]]);
    let about = &object["involvedObject"];
    let target = format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]));
    let source = match (text(&object["source"]["component"]), text(&object["source"]["host"])) {
        (component, _) if component.is_empty() => text(&object["reportingComponent"]),
        (component, host) if host.is_empty() => component,
        (component, host) => format!("{component}, {host}"),
    };
    let times = object["series"]["count"].as_i64().or(object["count"].as_i64()).unwrap_or(1);
    json!([
        since(&last, now),
        text(&object["type"]),
        text(&object["reason"]),
        target,
        text(&about["fieldPath"]),
        source,
        text(&object["message"]).trim(),
        since(&first, now),
        times.to_string(),
        name,
    ])
}
