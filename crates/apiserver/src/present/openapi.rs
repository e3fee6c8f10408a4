//! Owns OpenAPI v3: one document per group and version, with what kubectl explain, apply and edit
//! read: schemas, and paths with their kind and the query parameters of a write.

use crate::kind::{Registry, Resource, StatusMode};
use serde_json::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// `com.example.v1.Widget` for group `example.com`.
pub fn openapi_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// The schema of a CRD with the fields that every object has.
pub fn custom_openapi(schema: &Value, group: &str, version: &str, kind: &str) -> Value {
    let mut out = if schema.is_object() { schema.clone() } else { json!({"type": "object"}) };
    let string = |description: &str| json!({"type": "string", "description": description});
    out["properties"]["apiVersion"] =
        string("APIVersion defines the versioned schema of this representation of an object.");
    out["properties"]["kind"] =
        string("Kind is a string value representing the REST resource this object represents.");
    out["properties"]["metadata"] = json!({
        "description": "Standard object's metadata.",
        "allOf": [{"$ref": format!("#/components/schemas/{META}")}],
    });
    out["x-kubernetes-group-version-kind"] =
        json!([{"group": group, "version": version, "kind": kind}]);
    out
}

/// The list of documents.
pub fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in registry.versions(group) {
            let path = path_of(group, version);
            // The hash is only a cache key; compiled-in schemas change only with Quarry's version.
            let url = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

pub fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<&Resource> = registry
        .iter()
        .filter(|resource| resource.group == group && resource.version == version)
        .collect();
    if resources.is_empty() {
        return None;
    }
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in resources {
        add_paths(&mut paths, resource);
        let mut schema = resource.openapi.clone();
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "version": version, "kind": resource.kind}]);
        add_referenced(&mut schemas, registry, &schema);
        schemas.insert(resource.openapi_name.clone(), schema);
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Quarry", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

/// Copies every definition that a schema references, recursively.
fn add_referenced(schemas: &mut Map<String, Value>, registry: &Registry, schema: &Value) {
    match schema {
        Value::Object(map) => {
            if let Some(name) =
                map.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
                && !schemas.contains_key(name)
                && let Some(definition) = registry.definitions.get(name)
            {
                schemas.insert(name.to_owned(), definition.clone());
                add_referenced(schemas, registry, definition);
            }
            map.values().for_each(|inner| add_referenced(schemas, registry, inner));
        }
        Value::Array(items) => {
            items.iter().for_each(|item| add_referenced(schemas, registry, item))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource) {
    let base = format!("/{}", path_of(&resource.group, &resource.version));
    let collection = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{base}/{}", resource.plural)
    };
    let one = format!("{collection}/{{name}}");
    let read = |action: &str| operation(resource, action, &[]);
    let write =
        |action: &str| operation(resource, action, &["dryRun", "fieldManager", "fieldValidation"]);
    let mut on_collection = json!({"get": read("list")});
    let mut on_one = json!({"get": read("get")});
    if !resource.read_only {
        on_collection["post"] = write("post");
        on_collection["delete"] = operation(resource, "deletecollection", &["dryRun"]);
        on_one["put"] = write("put");
        on_one["patch"] = write("patch");
        on_one["delete"] = operation(resource, "delete", &["dryRun"]);
    }
    paths.insert(collection, on_collection);
    if resource.status != StatusMode::Plain {
        let status = json!({"get": read("get"), "put": write("put"), "patch": write("patch")});
        paths.insert(format!("{one}/status"), status);
    }
    paths.insert(one, on_one);
}

fn operation(resource: &Resource, action: &str, parameters: &[&str]) -> Value {
    let reference = json!({"$ref": format!("#/components/schemas/{}", resource.openapi_name)});
    let parameters: Vec<Value> =
        parameters.iter().map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})).collect();
    let mut out = json!({
        "operationId": format!("{action}{}{}", resource.version, resource.kind),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind":
            {"group": resource.group, "version": resource.version, "kind": resource.kind},
    });
    if matches!(action, "post" | "put") {
        out["requestBody"] =
            json!({"content": {"application/json": {"schema": reference}}, "required": true});
    }
    if action == "patch" {
        let mut content =
            json!({"application/json-patch+json": {}, "application/merge-patch+json": {}});
        if !resource.custom {
            content["application/strategic-merge-patch+json"] = json!({});
        }
        out["requestBody"] = json!({"content": content, "required": true});
    }
    out
}
