//! Owns what the API serves: one `Resource` per group, version and plural, created from a CRD
//! (`crd`) or a built-in type (`builtin`, with its rules in `core`, `storage` and `event`), and the
//! registry that finds them. Never holds objects; see `engine`.

pub mod builtin;
mod core;
pub mod crd;
mod event;
pub mod names;
mod quantity;
mod storage;

pub use crate::present::Columns;
pub use builtin::BuiltIn;
pub use quantity::canonical as canonical_quantity;

use crate::patch::MergeKeys;
use crate::schema::Schema;
use crate::status::{FieldError, Named};
use serde_json::Value;
use std::collections::HashMap;

/// How a kind treats its `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMode {
    /// No status subresource: status is an ordinary field.
    Plain,
    /// A CRD with the subresource: `/status` writes change only status.
    Custom,
    /// A built-in kind: `/status` writes change status and metadata, never the spec.
    BuiltIn,
}

/// Behavior of built-in kinds. CRDs use the defaults.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Sets defaults and server-owned fields; the last argument is the current time. `old` is the
    /// stored object of an update, `None` for a create.
    pub prepare: fn(&mut Value, Option<&Value>, &str),
    pub validate: fn(&Value, Option<&Value>, &mut Vec<FieldError>),
    pub merge_keys: MergeKeys,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            prepare: |_, _, _| {},
            validate: |_, _, _| {},
            merge_keys: builtin::metadata_merge_keys,
        }
    }
}

/// A second form of the same stored objects (Events are in two groups).
#[derive(Clone, Copy)]
pub struct View {
    pub to_stored: fn(Value) -> Value,
    pub from_stored: fn(&Value) -> Value,
}

pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// Index into the engine's buckets: versions and views of one kind share a bucket.
    pub bucket: usize,
    /// `apiVersion` of the stored objects.
    pub stored_api_version: String,
    pub custom: bool,
    pub status: StatusMode,
    pub generation: bool,
    /// Served from the options; writes are refused.
    pub read_only: bool,
    /// PUT of an absent object creates it (Lease, Event).
    pub create_on_update: bool,
    /// PUT without resourceVersion is accepted.
    pub unconditional_update: bool,
    /// DELETE returns the object instead of a Status.
    pub returns_deleted: bool,
    /// Deletion must be confirmed by a second delete with grace period zero (Pod).
    pub graceful: bool,
    pub keeps_status_on_create: bool,
    pub schema: Schema,
    pub rules: Option<crate::cel::Rules>,
    pub hooks: Hooks,
    pub view: Option<View>,
    pub columns: Columns,
    /// Field labels besides metadata.name and metadata.namespace, with their paths in the object.
    pub selectable: Vec<(String, Vec<String>)>,
    /// The schema as published in OpenAPI; its references point into the registry's definitions.
    pub openapi: Value,
    /// Name of that schema.
    pub openapi_name: String,
}

impl Resource {
    pub fn named(&self) -> Named<'_> {
        Named { group: &self.group, resource: &self.plural, kind: &self.kind }
    }

    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Whether stored objects can be returned unchanged.
    pub fn shows_stored(&self) -> bool {
        self.view.is_none() && self.stored_api_version == self.api_version()
    }

    /// A stored object in this resource's form.
    pub fn show(&self, stored: &Value) -> Value {
        let mut out = match self.view {
            Some(view) => (view.from_stored)(stored),
            None => stored.clone(),
        };
        out["apiVersion"] = self.api_version().into();
        out
    }

    pub fn to_stored(&self, object: Value) -> Value {
        let mut out = match self.view {
            Some(view) => (view.to_stored)(object),
            None => object,
        };
        out["apiVersion"] = self.stored_api_version.clone().into();
        out
    }

    /// The value of a selectable field, as field selectors compare it.
    pub fn field_text(&self, object: &Value, label: &str) -> String {
        let at = |path: &[&str]| {
            let mut value = object;
            for key in path {
                value = &value[*key];
            }
            match value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            }
        };
        match label {
            "metadata.name" => at(&["metadata", "name"]),
            "metadata.namespace" => at(&["metadata", "namespace"]),
            _ => match self.selectable.iter().find(|(known, _)| known == label) {
                Some((_, path)) => at(&path.iter().map(String::as_str).collect::<Vec<_>>()),
                None => String::new(),
            },
        }
    }

    pub fn selects_by(&self, label: &str) -> bool {
        label == "metadata.name"
            || (label == "metadata.namespace" && (self.namespaced || !self.custom))
            || self.selectable.iter().any(|(known, _)| known == label)
    }
}

pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub type ResourceId = usize;

/// All served resources.
#[derive(Default)]
pub struct Registry {
    resources: Vec<Resource>,
    by_path: HashMap<(String, String, String), ResourceId>,
    /// Schemas of built-in types, for OpenAPI.
    pub definitions: serde_json::Map<String, Value>,
    /// Bucket names, in order: `<group>/<plural>` of the stored version.
    buckets: Vec<String>,
}

impl Registry {
    /// The index of a bucket; adds the bucket if it is new.
    pub fn bucket(&mut self, name: &str) -> usize {
        match self.buckets.iter().position(|known| known == name) {
            Some(index) => index,
            None => {
                self.buckets.push(name.to_owned());
                self.buckets.len() - 1
            }
        }
    }

    pub fn buckets(&self) -> &[String] {
        &self.buckets
    }

    pub fn add(&mut self, resource: Resource) {
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        match self.by_path.get(&key) {
            // The last one wins: a caller may replace a built-in kind.
            Some(&id) => self.resources[id] = resource,
            None => {
                self.by_path.insert(key, self.resources.len());
                self.resources.push(resource);
            }
        }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<ResourceId> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned())).copied()
    }

    pub fn get(&self, id: ResourceId) -> &Resource {
        &self.resources[id]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter()
    }

    /// The resource of a bucket whose objects are returned as stored.
    pub fn of_bucket(&self, bucket: usize) -> Option<(ResourceId, &Resource)> {
        let mut of_bucket =
            self.resources.iter().enumerate().filter(|(_, resource)| resource.bucket == bucket);
        let first = of_bucket.clone().next();
        of_bucket.find(|(_, resource)| resource.shows_stored()).or(first)
    }

    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// Groups in kubectl's order of preference: core first, then in order of registration.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for resource in &self.resources {
            if !groups.contains(&resource.group.as_str()) {
                groups.push(&resource.group);
            }
        }
        groups
    }

    pub fn versions(&self, group: &str) -> Vec<&str> {
        let mut versions: Vec<&str> = Vec::new();
        for resource in self.resources.iter().filter(|resource| resource.group == group) {
            if !versions.contains(&resource.version.as_str()) {
                versions.push(&resource.version);
            }
        }
        versions
    }
}
