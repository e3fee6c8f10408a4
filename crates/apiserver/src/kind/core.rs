//! Owns the rules of Namespace, Node, Secret, ConfigMap and Lease: defaults, and the checks that
//! Quarry needs.

use super::builtin::builtin_merge_keys;
use super::{Hooks, names};
use crate::status::{FieldError, Problem};
use serde_json::{Value, json};

pub const NAMESPACE: Hooks = Hooks {
    prepare: prepare_namespace,
    validate: validate_namespace,
    merge_keys: builtin_merge_keys,
};
pub const NODE: Hooks =
    Hooks { prepare: prepare_node, validate: |_, _, _| {}, merge_keys: builtin_merge_keys };
pub const SECRET: Hooks =
    Hooks { prepare: prepare_secret, validate: validate_secret, merge_keys: builtin_merge_keys };
pub const CONFIG_MAP: Hooks =
    Hooks { prepare: |_, _, _| {}, validate: validate_config_map, merge_keys: builtin_merge_keys };
pub const LEASE: Hooks =
    Hooks { prepare: |_, _, _| {}, validate: validate_lease, merge_keys: builtin_merge_keys };

/// Maximum size of a Secret or ConfigMap.
const DATA_MAX: usize = 1024 * 1024;

fn prepare_namespace(object: &mut Value, old: Option<&Value>, _now: &str) {
    let name = object["metadata"]["name"].clone();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    match old {
        None => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        Some(old) => object["spec"] = old["spec"].clone(),
    }
}

fn validate_namespace(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    // The generic subdomain check has passed already; a namespace must also be a single label.
    if name.contains('.') {
        errors.push(FieldError::invalid("metadata.name", name, "must not contain dots"));
    } else if names::subdomain(name).is_empty() {
        errors.extend(
            names::label(name)
                .into_iter()
                .map(|why| FieldError::invalid("metadata.name", name, why)),
        );
    }
}

fn prepare_node(object: &mut Value, _old: Option<&Value>, _now: &str) {
    for field in ["spec", "status"] {
        if object[field].is_null() {
            object[field] = json!({});
        }
    }
    // Fields that kube-apiserver always prints.
    let status = &mut object["status"];
    if status["daemonEndpoints"].is_null() {
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": 0}});
    }
    for field in NODE_INFO {
        if status["nodeInfo"][field].is_null() {
            status["nodeInfo"][field] = "".into();
        }
    }
}

const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

fn prepare_secret(object: &mut Value, _old: Option<&Value>, _now: &str) {
    use base64::Engine;
    if object["type"].as_str().unwrap_or_default().is_empty() {
        object["type"] = "Opaque".into();
    }
    let plain = object.as_object_mut().and_then(|map| map.remove("stringData"));
    if let Some(Value::Object(plain)) = plain {
        for (key, value) in plain {
            let text = value.as_str().unwrap_or_default();
            object["data"][key] = base64::engine::general_purpose::STANDARD.encode(text).into();
        }
    }
}

fn validate_secret(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_data(object, old, errors);
    if let Some(old) = old
        && old["type"] != object["type"]
    {
        errors.push(FieldError::invalid("type", object["type"].clone(), "field is immutable"));
    }
}

fn validate_config_map(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_data(object, old, errors);
}

fn validate_data(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut total = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            total += value.as_str().unwrap_or_default().len();
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if key.is_empty() || key.len() > 253 || !key.chars().all(fits) {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                errors.push(FieldError::invalid(format!("{field}[{key}]"), key.as_str(), why));
            }
        }
    }
    if total > DATA_MAX {
        errors.push(FieldError::new("data", Problem::TooLong(DATA_MAX)));
    }
    if let Some(old) = old
        && old["immutable"] == true
    {
        for field in ["immutable", "data", "binaryData"] {
            if old[field] != object[field] {
                errors.push(FieldError::forbidden(
                    field,
                    "field is immutable when `immutable` is set",
                ));
            }
        }
    }
}

fn validate_lease(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    for field in ["leaseDurationSeconds"] {
        if let Some(number) = spec[field].as_i64()
            && number <= 0
        {
            errors.push(FieldError::invalid(
                format!("spec.{field}"),
                number,
                "must be greater than 0",
            ));
        }
    }
    if let Some(number) = spec["leaseTransitions"].as_i64()
        && number < 0
    {
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            number,
            "must be greater than or equal to 0",
        ));
    }
}
