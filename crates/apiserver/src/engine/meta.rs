//! Changes `metadata`, and empty fields of built-in kinds, before an object is validated.

use super::Outside;
use crate::kind::{Resource, StatusMode, canonical_quantity};
use crate::schema::{Additional, Schema, Type};
use crate::status::{FieldError, Problem};
use serde_json::{Map, Value, json};

/// Fields of metadata that only the server sets.
const SERVER_FIELDS: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("metadata is an object, set above"),
    }
}

pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).collect()
}

pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Metadata as kube-apiserver's Go type prints it: without empty fields. Managed fields are
/// removed: only server-side apply reads them, and it is not supported here.
pub fn tidy_metadata(object: &mut Value) {
    let metadata = metadata_mut(object);
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
}

/// A built-in object as its Go type prints it: canonical quantities, no optional empty lists and
/// maps.
pub fn tidy_built_in(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, inner| {
                let Some(property) = schema.child(key) else { return true };
                let is_map = property.properties.is_empty()
                    && !matches!(property.additional, Additional::None);
                let empty = match inner {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(map) => map.is_empty() && is_map,
                    Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
                };
                !empty || schema.required.contains(key)
            });
            for (key, inner) in map.iter_mut() {
                if let Some(property) = schema.child(key) {
                    tidy_built_in(property, inner);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| tidy_built_in(schema, item));
        }
        Value::Number(number) if schema.kind == Type::Quantity => {
            let text = number.to_string();
            *value = canonical_quantity(&text).unwrap_or(text).into();
        }
        Value::String(text) if schema.kind == Type::Quantity => {
            if let Some(canonical) = canonical_quantity(text) {
                *text = canonical;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sets the metadata of a new object.
pub fn stamp_new(resource: &Resource, object: &mut Value, outside: &Outside<'_>) {
    let metadata = metadata_mut(object);
    for field in SERVER_FIELDS {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), (outside.uids)().into());
    metadata.insert("creationTimestamp".into(), outside.now_text().into());
    if resource.generation {
        metadata.insert("generation".into(), 1.into());
    }
}

/// For an update: keeps the fields that only the server sets.
pub fn keep_server_fields(object: &mut Value, old: &Value) {
    let metadata = metadata_mut(object);
    for field in ["name", "namespace", "resourceVersion"].iter().chain(SERVER_FIELDS.iter()) {
        match old["metadata"].get(*field) {
            Some(value) => metadata.insert((*field).into(), value.clone()),
            None => metadata.remove(*field),
        };
    }
}

/// Keeps from `object` only what this kind of write may change; the rest comes from the stored
/// object.
pub fn confine(resource: &Resource, object: &mut Value, old: &Value, status_write: bool) {
    match (resource.status, status_write) {
        (StatusMode::Plain, _) => {}
        (StatusMode::Custom, true) => {
            let status = object.get("status").cloned();
            *object = old.clone();
            set_or_remove(object, "status", status);
        }
        (StatusMode::BuiltIn, true) => {
            let (status, metadata) = (object.get("status").cloned(), object["metadata"].take());
            *object = old.clone();
            object["metadata"] = metadata;
            set_or_remove(object, "status", status);
        }
        (StatusMode::Custom | StatusMode::BuiltIn, false) => {
            set_or_remove(object, "status", old.get("status").cloned());
        }
    }
}

fn set_or_remove(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(map) = object.as_object_mut() else { return };
    match value {
        Some(value) => map.insert(field.into(), value),
        None => map.remove(field),
    };
}

/// Increments the generation when anything except metadata and status changed.
pub fn bump_generation(resource: &Resource, object: &mut Value, old: &Value) {
    if !resource.generation {
        return;
    }
    let rest = |object: &Value| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        if resource.status != StatusMode::Plain {
            map.remove("status");
        }
        map
    };
    if rest(object) != rest(old) {
        raise_generation(object);
    }
}

pub fn raise_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

/// A terminating object accepts no new finalizers.
pub fn check_finalizers(object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if !is_deleting(old) {
        return;
    }
    let known = finalizers(old);
    let new: Vec<String> = finalizers(object)
        .into_iter()
        .filter(|finalizer| !known.contains(finalizer))
        .map(crate::status::go_quote)
        .collect();
    if !new.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new.join(", ")
        );
        errors.push(FieldError::new("metadata.finalizers", Problem::Forbidden(why)));
    }
}

/// Five letters for `generateName`, derived from a new uid.
pub fn name_suffix(uid: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // FNV-1a: the uid is random already, this only distributes it over the letters.
    let mut hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut out = String::new();
    for _ in 0..5 {
        out.push(LETTERS[(hash % LETTERS.len() as u64) as usize] as char);
        hash /= LETTERS.len() as u64;
    }
    out
}
