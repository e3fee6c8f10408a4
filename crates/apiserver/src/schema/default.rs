//! Owns defaulting, in kube-apiserver's order: a null in a non-nullable field with a default is
//! dropped, the default is set, and defaulting continues inside it.

use super::{Additional, Schema};
use serde_json::Value;

pub fn apply_defaults(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let dropped_null = map.get(key).is_some_and(Value::is_null) && !property.nullable;
                if dropped_null || !map.contains_key(key) {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, inner) in map.iter_mut() {
                if let Some(property) = schema.properties.get(key) {
                    apply_defaults(property, inner);
                } else if let Additional::Schema(additional) = &schema.additional {
                    if inner.is_null()
                        && !additional.nullable
                        && let Some(default) = &additional.default
                    {
                        *inner = default.clone();
                    }
                    apply_defaults(additional, inner);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for item in items {
                if item.is_null()
                    && !schema.nullable
                    && let Some(default) = &schema.default
                {
                    *item = default.clone();
                }
                apply_defaults(schema, item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
