//! Schemas of Kubernetes' own types, and of objects that keep fields which are not listed.
//!
//! Owns: how much of a field is checked. Enough that what is stored can be read with our types; what Kubernetes itself
//! refuses in a pod or a PVC is left to it, as upstream does.

use super::rules;
pub use crate::bare_metal_host::schema::time;
use crate::{
    bare_metal_host::schema::fields,
    local_volume_discovery::{self, node_selector},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Fields that are not listed are kept, and no default is applied.
pub fn open(required: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    let mut required = fields(required, &[]);
    move |schema| {
        required(schema);
        schema.remove("additionalProperties");
        schema.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
    }
}

fn open_object(properties: Value) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": properties,
    })
}

fn quantities(generator: &mut SchemaGenerator) -> Schema {
    let quantity = crate::Quantity::json_schema(generator);
    json_schema!({"type": "object", "maxProperties": 32, "additionalProperties": quantity})
}

/// Resources of a container or of a PVC.
pub fn resources(generator: &mut SchemaGenerator) -> Schema {
    let quantities = quantities(generator);
    let claims = open_object(json!({"name": {"type": "string"}, "request": {"type": "string"}}));
    open_object(json!({
        "requests": quantities,
        "limits": quantities,
        "claims": {"type": "array", "items": claims},
    }))
}

pub fn resource_map(generator: &mut SchemaGenerator) -> Schema {
    let resources = resources(generator);
    json_schema!({"type": "object", "additionalProperties": resources})
}

/// The preferences of an affinity, each with its weight.
fn preferred(name: &str, term: &Schema) -> Value {
    let one = open_object(json!({"weight": {"type": "integer", "format": "int32"}, name: term}));
    json!({"type": "array", "items": one})
}

pub fn node_affinity(generator: &mut SchemaGenerator) -> Schema {
    let selector = node_selector(generator);
    let terms = selector.get("properties").and_then(|all| all.get("nodeSelectorTerms"));
    let term = terms.and_then(|all| all.get("items")).cloned().unwrap_or_default();
    let term = Schema::try_from(term).unwrap_or_default();
    open_object(json!({
        "requiredDuringSchedulingIgnoredDuringExecution": selector,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred("preference", &term),
    }))
}

fn label_selector() -> Schema {
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let requirement = open_object(json!({
        "key": {"type": "string"},
        "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
        "values": strings,
    }));
    open_object(json!({
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "items": requirement},
    }))
}

/// Affinity or anti-affinity to pods.
pub fn pod_affinity(_: &mut SchemaGenerator) -> Schema {
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let term = open_object(json!({
        "labelSelector": label_selector(),
        "namespaceSelector": label_selector(),
        "namespaces": strings,
        "matchLabelKeys": strings,
        "mismatchLabelKeys": strings,
        "topologyKey": {"type": "string", "description": "The label that separates nodes. Absent: kubernetes.io/hostname."},
    }));
    open_object(json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"type": "array", "items": term},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred("podAffinityTerm", &term),
    }))
}

pub fn tolerations(generator: &mut SchemaGenerator) -> Schema {
    local_volume_discovery::tolerations(generator)
}

pub fn spread(_: &mut SchemaGenerator) -> Schema {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer", "format": "int32"});
    let one = open_object(json!({
        "maxSkew": number,
        "minDomains": number,
        "topologyKey": text,
        "whenUnsatisfiable": text,
        "nodeAffinityPolicy": text,
        "nodeTaintsPolicy": text,
        "matchLabelKeys": {"type": "array", "items": text},
        "labelSelector": label_selector(),
    }));
    json_schema!({"type": "array", "items": one})
}

/// The spec of a PVC.
pub fn claim_spec(generator: &mut SchemaGenerator) -> Schema {
    let text = json!({"type": "string"});
    let source = open_object(json!({
        "apiGroup": text, "kind": text, "name": text, "namespace": text,
    }));
    let mut schema = open_object(json!({
        "accessModes": {"type": "array", "items": text, "description": "Absent: ReadWriteOnce."},
        "storageClassName": {"type": "string", "description": "The StorageClass. Absent or empty: the default one."},
        "volumeMode": {"type": "string", "maxLength": 64, "description": "Block. Absent: Block."},
        "volumeName": text,
        "volumeAttributesClassName": text,
        "resources": resources(generator),
        "selector": label_selector(),
        "dataSource": source,
        "dataSourceRef": source,
    }));
    let rules = json!([rules::block(), rules::request()]);
    schema.insert("x-kubernetes-validations".into(), rules);
    schema
}

/// The configuration of a set: any key, with a text.
pub fn config(_: &mut SchemaGenerator) -> Schema {
    let value = json!({"type": "string", "maxLength": rules::MAX_CONFIG_VALUE});
    json_schema!({"type": "object", "additionalProperties": value})
}
