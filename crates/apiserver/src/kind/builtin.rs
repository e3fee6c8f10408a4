//! Owns the table of built-in kinds and creates one from its Kubernetes type. The simulator
//! registers more through `Options::extra_kinds`.

use super::{Hooks, Registry, Resource, StatusMode, View, api_version, core, event, storage};
use crate::present::Columns;
use crate::schema;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::{NamespaceResourceScope, Resource as Typed};
use schemars::{JsonSchema, Schema as RawSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;
use std::any::TypeId;

/// A built-in kind, described by its Kubernetes type.
#[derive(Clone)]
pub struct BuiltIn {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    bucket: String,
    stored_api_version: String,
    status: StatusMode,
    generation: bool,
    create_on_update: bool,
    unconditional_update: bool,
    returns_deleted: bool,
    graceful: bool,
    keeps_status_on_create: bool,
    hooks: Hooks,
    view: Option<View>,
    columns: Columns,
    selectable: &'static [&'static str],
    schema: fn(&mut SchemaGenerator) -> RawSchema,
    schema_name: fn() -> std::borrow::Cow<'static, str>,
}

impl BuiltIn {
    /// A kind without special rules: it is only stored, listed, watched and merged.
    pub fn of<K>() -> Self
    where
        K: Typed + JsonSchema,
        K::Scope: 'static,
    {
        Self {
            group: K::GROUP,
            version: K::VERSION,
            kind: K::KIND,
            plural: K::URL_PATH_SEGMENT,
            namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
            short_names: &[],
            categories: &[],
            bucket: format!("{}/{}", K::GROUP, K::URL_PATH_SEGMENT),
            stored_api_version: api_version(K::GROUP, K::VERSION),
            status: StatusMode::Plain,
            generation: false,
            create_on_update: false,
            unconditional_update: true,
            returns_deleted: false,
            graceful: false,
            keeps_status_on_create: false,
            hooks: Hooks { merge_keys: builtin_merge_keys, ..Hooks::default() },
            view: None,
            columns: Columns::NameAndAge,
            selectable: &[],
            schema: |generator| generator.subschema_for::<K>(),
            schema_name: K::schema_name,
        }
    }

    pub fn short_names(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    /// Has `/status`.
    pub fn with_status(mut self) -> Self {
        self.status = StatusMode::BuiltIn;
        self
    }

    /// Counts changes of its spec in `metadata.generation`.
    pub fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    /// Deleting a Pod on a node only marks it; a second delete with grace period zero removes it.
    pub fn graceful(mut self) -> Self {
        self.graceful = true;
        self
    }

    /// Field labels, written as their path in the object.
    pub fn selectable(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable = fields;
        self
    }

    fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    fn columns(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    /// Pod, for simulations: with status, graceful deletion and the selectors that kubelets use.
    pub fn pod() -> Self {
        Self {
            returns_deleted: true,
            ..Self::of::<Pod>().short_names(&["po"]).with_status().graceful().selectable(&[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "status.phase",
            ])
        }
    }

    /// A workload kind (Job, Deployment, DaemonSet), for simulations.
    pub fn workload<K>(short_names: &'static [&'static str]) -> Self
    where
        K: Typed + JsonSchema,
        K::Scope: 'static,
    {
        Self::of::<K>().short_names(short_names).with_status().with_generation()
    }
}

/// The kinds that are always served.
pub fn standard() -> Vec<BuiltIn> {
    vec![
        BuiltIn::of::<Namespace>()
            .short_names(&["ns"])
            .with_status()
            .selectable(&["status.phase"])
            .hooks(core::NAMESPACE)
            .columns(Columns::Namespace),
        BuiltIn {
            keeps_status_on_create: true,
            ..BuiltIn::of::<Node>()
                .short_names(&["no"])
                .with_status()
                .selectable(&["spec.unschedulable"])
                .hooks(core::NODE)
                .columns(Columns::Node)
        },
        BuiltIn {
            returns_deleted: true,
            ..BuiltIn::of::<PersistentVolume>()
                .short_names(&["pv"])
                .with_status()
                .hooks(storage::PERSISTENT_VOLUME)
                .columns(Columns::PersistentVolume)
        },
        BuiltIn {
            returns_deleted: true,
            ..BuiltIn::of::<PersistentVolumeClaim>()
                .short_names(&["pvc"])
                .with_status()
                .hooks(storage::CLAIM)
                .columns(Columns::PersistentVolumeClaim)
        },
        BuiltIn::of::<Secret>().selectable(&["type"]).hooks(core::SECRET).columns(Columns::Secret),
        BuiltIn::of::<ConfigMap>()
            .short_names(&["cm"])
            .hooks(core::CONFIG_MAP)
            .columns(Columns::ConfigMap),
        BuiltIn {
            create_on_update: true,
            ..BuiltIn::of::<Event>()
                .short_names(&["ev"])
                .selectable(event::SELECTABLE)
                .hooks(event::HOOKS)
                .columns(Columns::Event)
        },
        BuiltIn {
            create_on_update: true,
            bucket: "/events".into(),
            stored_api_version: "v1".into(),
            view: Some(event::VIEW),
            ..BuiltIn::of::<k8s_openapi::api::events::v1::Event>()
                .short_names(&["ev"])
                .selectable(event::SELECTABLE)
                .hooks(event::HOOKS)
                .columns(Columns::Event)
        },
        BuiltIn {
            returns_deleted: true,
            ..BuiltIn::of::<StorageClass>()
                .short_names(&["sc"])
                .hooks(storage::CLASS)
                .columns(Columns::StorageClass)
        },
        BuiltIn {
            create_on_update: true,
            unconditional_update: false,
            ..BuiltIn::of::<Lease>().hooks(core::LEASE).columns(Columns::Lease)
        },
    ]
}

/// Adds built-in kinds to the registry and their schemas to its definitions.
pub fn register(registry: &mut Registry, kinds: Vec<BuiltIn>) -> Result<(), schema::CompileError> {
    let mut generator = SchemaSettings::openapi3()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    for kind in &kinds {
        (kind.schema)(&mut generator);
    }
    for (name, definition) in generator.take_definitions(true) {
        registry.definitions.insert(name, definition);
    }
    for kind in kinds {
        let openapi_name = (kind.schema_name)().into_owned();
        let openapi = registry.definitions.get(&openapi_name).cloned().unwrap_or_default();
        let compiled = schema::compile_with_definitions(&openapi, &registry.definitions)?;
        let bucket = registry.bucket(&kind.bucket);
        registry.add(Resource {
            group: kind.group.into(),
            version: kind.version.into(),
            plural: kind.plural.into(),
            singular: kind.kind.to_lowercase(),
            kind: kind.kind.into(),
            list_kind: format!("{}List", kind.kind),
            namespaced: kind.namespaced,
            short_names: kind.short_names.iter().map(|name| (*name).into()).collect(),
            categories: kind.categories.iter().map(|name| (*name).into()).collect(),
            bucket,
            stored_api_version: kind.stored_api_version,
            custom: false,
            status: kind.status,
            generation: kind.generation,
            read_only: false,
            create_on_update: kind.create_on_update,
            unconditional_update: kind.unconditional_update,
            returns_deleted: kind.returns_deleted,
            graceful: kind.graceful,
            keeps_status_on_create: kind.keeps_status_on_create,
            schema: compiled,
            rules: None,
            hooks: kind.hooks,
            view: kind.view,
            columns: kind.columns,
            selectable: kind.selectable.iter().map(|label| event::selectable_path(label)).collect(),
            openapi,
            openapi_name,
        });
    }
    Ok(())
}

/// Merge keys of lists in metadata, for every kind.
pub fn metadata_merge_keys(path: &[&str]) -> Option<&'static str> {
    match path {
        ["metadata", "ownerReferences"] => Some("uid"),
        ["metadata", "finalizers"] => Some(""),
        _ => None,
    }
}

/// Merge keys of lists in built-in kinds, by the end of their path.
pub fn builtin_merge_keys(path: &[&str]) -> Option<&'static str> {
    if let Some(key) = metadata_merge_keys(path) {
        return Some(key);
    }
    // A pod template has its own metadata.
    if let [.., "metadata", "finalizers"] = path {
        return Some("");
    }
    match path {
        [.., "status", "conditions" | "addresses"] => Some("type"),
        ["spec", "finalizers"] => None,
        [.., "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env"] => {
            Some("name")
        }
        [.., "volumeMounts"] => Some("mountPath"),
        [.., "volumeDevices"] => Some("devicePath"),
        [.., "ports"] => Some("containerPort"),
        [.., "imagePullSecrets"] => Some("name"),
        [.., "hostAliases"] => Some("ip"),
        [.., "topologySpreadConstraints"] => Some("topologyKey"),
        [.., "projected", "sources"] => None,
        _ => None,
    }
}

/// The definition of the metadata that every object has.
pub fn object_meta(registry: &Registry) -> Value {
    registry
        .definitions
        .get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .cloned()
        .unwrap_or_default()
}
