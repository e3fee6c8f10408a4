//! Parts of schemas that a derive cannot express as upstream has them.
//!
//! Owns: transforms of derived schemas and the schemas of Kubernetes' own types. Next to read: `mod.rs`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// Upstream's MAC address: unanchored on purpose, because a stricter pattern would refuse objects that exist.
pub const MAC: &str = "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}";

fn properties(schema: &mut Schema) -> impl Iterator<Item = (&String, &mut Value)> {
    schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
}

/// Sets what is required and which defaults the API server applies, whatever serde tolerates: a status is also read
/// from an annotation, in which a field may be missing.
pub fn fields(
    required: &'static [&'static str],
    defaults: &'static [&'static str],
) -> impl FnMut(&mut Schema) {
    move |schema| {
        for (name, property) in properties(schema) {
            if let Some(property) = property.as_object_mut()
                && !defaults.contains(&name.as_str())
            {
                property.remove("default");
            }
        }
        schema.remove("required");
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
    }
}

/// Removes `format: int64`: upstream has integers without a format.
pub fn plain_integers(schema: &mut Schema) {
    for (_, property) in properties(schema) {
        if let Some(property) = property.as_object_mut()
            && property.get("format").is_some_and(|format| format == "int64")
        {
            property.remove("format");
        }
    }
}

/// `""` as absent: Go writes an empty string where it has no value.
pub fn empty_as_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: for<'a> From<&'a str>,
{
    let text: Option<String> = Deserialize::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(|text| T::from(text.as_str())))
}

pub fn is_zero(number: &i64) -> bool {
    *number == 0
}

pub fn is_zero_i32(number: &i32) -> bool {
    *number == 0
}

pub fn is_zero_f64(number: &f64) -> bool {
    *number == 0.0
}

pub fn is_false(flag: &bool) -> bool {
    !flag
}

pub fn object_reference(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json!({"type": "string", "description": description});
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": text("API version of the object."),
            "fieldPath": text("A part of the object."),
            "kind": text("Kind of the object."),
            "name": text("Name of the object."),
            "namespace": text("Namespace of the object."),
            "resourceVersion": text("Version of the object."),
            "uid": text("UID of the object."),
        },
    })
}

pub fn secret_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "name": {"type": "string", "description": "Name of the Secret."},
            "namespace": {"type": "string", "description": "Namespace of the Secret: that of the host."},
        },
    })
}

pub fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "effect": {"type": "string"},
                "key": {"type": "string"},
                "timeAdded": {"type": "string", "format": "date-time"},
                "value": {"type": "string"},
            },
        },
    })
}

pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Null stays: upstream writes null for an operation that has not started or ended.
pub fn nullable_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "nullable": true})
}

/// An optional `true` or `false`, listed as upstream does.
pub fn listed_bool(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "boolean", "enum": [true, false]})
}

/// Kubernetes' conditions, keyed by type.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When `status` last changed."},
                "message": {"type": "string", "maxLength": 32768, "description": "The cause and the remedy."},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0, "description": "The generation of the spec that this condition describes."},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "description": "The cause in one word."},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown."},
                "type": {"type": "string", "maxLength": 316, "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$", "description": "Manageable, AvailableForProvisioning, Provisioned, Ready, Progressing, Healthy, or one of Quarry's with the prefix `quarry.dev/`."},
            },
        },
    })
}

/// The schema of a list in which null is not the same as absent.
pub fn nullable_list<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<T>();
    json_schema!({"type": "array", "nullable": true, "items": items})
}
