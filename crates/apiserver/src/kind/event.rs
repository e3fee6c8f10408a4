//! Owns Events: stored once in the core form, served in two groups. The engine expires them.

use super::builtin::builtin_merge_keys;
use super::{Hooks, View};
use crate::status::FieldError;
use serde_json::Value;

pub const HOOKS: Hooks =
    Hooks { prepare: prepare_event, validate: validate_event, merge_keys: builtin_merge_keys };
pub const VIEW: View = View { to_stored, from_stored };

/// Field labels of Events in both groups, spelled as in the core group.
pub const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Names in events.k8s.io, and in the core group.
const NAMES: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The path that a field label refers to in a stored object.
pub fn selectable_path(label: &str) -> (String, Vec<String>) {
    let path = match label {
        "source" => vec!["source".to_owned(), "component".to_owned()],
        other => other.split('.').map(str::to_owned).collect(),
    };
    (label.to_owned(), path)
}

/// Fields that kube-apiserver always prints for the core type.
fn prepare_event(object: &mut Value, _old: Option<&Value>, _now: &str) {
    if object["source"].is_null() {
        object["source"] = serde_json::json!({});
    }
    for field in ["reportingComponent", "reportingInstance"] {
        if object[field].is_null() {
            object[field] = "".into();
        }
    }
}

fn to_stored(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        for (new, core) in NAMES {
            if let Some(value) = map.remove(new) {
                map.insert(core.into(), value);
            }
        }
    }
    object
}

fn from_stored(stored: &Value) -> Value {
    let mut out = stored.clone();
    if let Some(map) = out.as_object_mut() {
        for (new, core) in NAMES {
            if let Some(value) = map.remove(core) {
                map.insert(new.into(), value);
            }
        }
        for field in ["reportingController", "reportingInstance"] {
            if map.get(field).is_some_and(|value| value == "") {
                map.remove(field);
            }
        }
    }
    out
}

fn validate_event(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let about = object["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if about.is_empty() {
        if namespace != "default" && namespace != "kube-system" {
            errors.push(FieldError::invalid(
                "involvedObject.namespace",
                about,
                "does not match event.namespace",
            ));
        }
    } else if about != namespace {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            about,
            "does not match event.namespace",
        ));
    }
}
