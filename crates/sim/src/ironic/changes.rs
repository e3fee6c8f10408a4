//! What became of a node, as merge patches: how they are found, joined and applied.

use serde_json::{Map, Value, json};

/// An object without fields, where a merge patch would leave them.
pub const NOTHING: &str = "{nothing}";

/// As a merge patch; null also where it is null afterwards.
pub fn difference(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return after.clone();
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(known) if known == value => {}
            Some(known) if known.is_object() && *value == json!({}) => {
                patch.insert(key.clone(), json!(NOTHING));
            }
            Some(known) if known.is_object() && value.is_object() => {
                patch.insert(key.clone(), difference(known, value));
            }
            // A value that was not shown before: the answer to a creation has more fields than a read.
            None if value.is_null() => {}
            Some(_) | None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    // What is shown only at the creation did not go away; what an object lost did.
    let nested = !old.contains_key("provision_state");
    for key in old.keys().filter(|key| nested && !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Two patches in one.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, change) in changes {
        if change.is_object() {
            merge(&mut target[key], change);
        } else {
            target[key] = change.clone();
        }
    }
}

/// To a node. Its own fields are there when they are null; those of its objects are not.
pub fn apply(node: &mut Value, patch: &Value) {
    for (key, change) in patch.as_object().into_iter().flatten() {
        match change {
            Value::Object(changes) => {
                let mut inner = node[key].as_object().cloned().unwrap_or_default();
                for (name, change) in changes {
                    match change {
                        Value::Null => drop(inner.remove(name)),
                        value => drop(inner.insert(name.clone(), value.clone())),
                    }
                }
                node[key] = Value::Object(inner);
            }
            value if value == NOTHING => node[key] = json!({}),
            value => node[key] = value.clone(),
        }
    }
}
