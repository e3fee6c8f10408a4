//! Owns pruning: fields a schema does not know are removed, and named, so that strict clients are refused.

use super::{Additional, Schema, Type};
use crate::status::child;
use serde_json::Value;

/// The path of a field that was removed.
pub type Unknown = String;

/// Removes what the schema does not know; returns the paths of what was removed, in order.
pub fn prune(schema: &Schema, value: &mut Value) -> Vec<Unknown> {
    let mut unknown = Vec::new();
    walk(schema, value, "", &mut unknown);
    unknown
}

fn walk(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<Unknown>) {
    match value {
        Value::Object(map) => {
            // A typed scalar holding an object is the validator's business, not the pruner's.
            if !matches!(schema.kind, Type::Object | Type::Any) || (schema.int_or_string) {
                return;
            }
            let mut gone = Vec::new();
            for (key, inner) in map.iter_mut() {
                let at = child(path, key);
                if schema.embedded_resource
                    && matches!(key.as_str(), "apiVersion" | "kind" | "metadata")
                {
                    continue;
                }
                if let Some(property) = schema.properties.get(key) {
                    // A null that may not be null counts as absent.
                    if inner.is_null() && !property.nullable && property.kind != Type::Any {
                        gone.push(key.clone());
                        continue;
                    }
                    walk(property, inner, &at, unknown);
                } else if let Additional::Schema(additional) = &schema.additional {
                    walk(additional, inner, &at, unknown);
                } else if !schema.preserve_unknown && !matches!(schema.additional, Additional::Any)
                {
                    unknown.push(at);
                    gone.push(key.clone());
                }
            }
            for key in gone {
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
