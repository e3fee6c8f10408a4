//! Owns pruning: removes and reports fields that are not in the schema, so that requests with
//! strict field validation are refused.

use super::{Additional, Schema, Type};
use crate::status::child;
use serde_json::Value;

/// Path of a removed field.
pub type Unknown = String;

/// Removes fields that are not in the schema; returns their paths, in order.
pub fn prune(schema: &Schema, value: &mut Value) -> Vec<Unknown> {
    let mut unknown = Vec::new();
    walk(schema, value, "", &mut unknown);
    unknown
}

fn walk(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<Unknown>) {
    match value {
        Value::Object(map) => {
            // An object in place of a scalar is reported by validation, not by pruning.
            if !matches!(schema.kind, Type::Object | Type::Any) || (schema.int_or_string) {
                return;
            }
            let mut removed = Vec::new();
            for (key, inner) in map.iter_mut() {
                let at = child(path, key);
                if schema.embedded_resource
                    && matches!(key.as_str(), "apiVersion" | "kind" | "metadata")
                {
                    continue;
                }
                if let Some(property) = schema.properties.get(key) {
                    // A null in a non-nullable field counts as absent.
                    let typed = property.kind != Type::Any || property.int_or_string;
                    if inner.is_null() && !property.nullable && typed {
                        removed.push(key.clone());
                        continue;
                    }
                    walk(property, inner, &at, unknown);
                } else if let Additional::Schema(additional) = &schema.additional {
                    // So does one in a map, unless its default replaces it.
                    let typed = additional.kind != Type::Any || additional.int_or_string;
                    if inner.is_null()
                        && !additional.nullable
                        && typed
                        && additional.default.is_none()
                    {
                        removed.push(key.clone());
                        continue;
                    }
                    walk(additional, inner, &at, unknown);
                } else if !schema.preserve_unknown && !matches!(schema.additional, Additional::Any)
                {
                    unknown.push(at);
                    removed.push(key.clone());
                }
            }
            for key in removed {
                map.remove(&key);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                walk(schema, item, &format!("{path}[{index}]"), unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
