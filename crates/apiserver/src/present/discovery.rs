//! Owns discovery of the served resources: the old form (one document per group and version) and
//! the aggregated one.

use crate::kind::{Registry, Resource, StatusMode, api_version};
use serde_json::{Value, json};

/// The Kubernetes version whose behavior is reproduced; clients compare theirs with it.
const KUBERNETES: (&str, &str, &str) = ("1", "36", "v1.36.3+quarry");

pub fn version() -> Value {
    json!({
        "major": KUBERNETES.0, "minor": KUBERNETES.1, "gitVersion": KUBERNETES.2,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn verbs(resource: &Resource) -> Value {
    if resource.read_only {
        return json!(["get", "list", "watch"]);
    }
    if resource.group.is_empty() && resource.kind == "Namespace" {
        return json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    }
    if resource.custom {
        // The order in which kube-apiserver lists the verbs of custom resources.
        return json!([
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch"
        ]);
    }
    json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"])
}

pub fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in
        registry.iter().filter(|resource| resource.group == group && resource.version == version)
    {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs(resource),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = resource.short_names.clone().into();
        }
        if !resource.categories.is_empty() {
            entry["categories"] = resource.categories.clone().into();
        }
        resources.push(entry);
        if resource.status != StatusMode::Plain {
            resources.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": resource.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if resources.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version),
        "resources": resources,
    }))
}

pub fn group(registry: &Registry, name: &str) -> Option<Value> {
    let versions: Vec<Value> = registry
        .versions(name)
        .into_iter()
        .map(|version| json!({"groupVersion": api_version(name, version), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": preferred,
    }))
}

pub fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry
        .groups()
        .into_iter()
        .filter(|name| !name.is_empty())
        .filter_map(|name| {
            let mut entry = group(registry, name)?;
            // Entries inside the list have no `kind` and `apiVersion`.
            entry.as_object_mut()?.retain(|key, _| key != "kind" && key != "apiVersion");
            Some(entry)
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The aggregated form of the core group (`/api`) or of all other groups (`/apis`).
pub fn aggregated(registry: &Registry, core: bool, form: &str) -> Value {
    let groups = registry.groups().into_iter().filter(|name| name.is_empty() == core);
    let items: Vec<Value> = groups
        .map(|name| {
            let versions: Vec<Value> = registry
                .versions(name)
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> = registry
                        .iter()
                        .filter(|resource| resource.group == name && resource.version == version)
                        .map(aggregated_resource)
                        .collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{form}"),
        "metadata": {}, "items": items,
    })
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = resource.categories.clone().into();
    }
    if resource.status != StatusMode::Plain {
        entry["subresources"] = json!([{"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}]);
    }
    entry
}
