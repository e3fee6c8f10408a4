//! Owns the server: assembles engine, backend and router, and offers the ways to reach it: a kube
//! client in this process, a tower service to wrap, or a TLS listener (`serve`). Start here to use
//! the crate.

use crate::admission::Policies;
use crate::backend::redb::{OpenError, Redb};
use crate::commit::Committer;
use crate::engine::store::Store;
use crate::engine::{Body, Engine, Outside, Request, Verb, WriteOptions};
use crate::kind::{BuiltIn, Columns, Hooks, Registry, Resource, StatusMode, builtin, crd};
use crate::router::ApiService;
use crate::schema::Schema;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Returns the current time; virtual in the simulator.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// Creates uids; sequential in the simulator.
pub type Uids = Arc<dyn Fn() -> String + Send + Sync>;

/// What the server serves, and what it needs from outside.
#[derive(Clone)]
pub struct Options {
    pub crds: Vec<CustomResourceDefinition>,
    pub policies: Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)>,
    pub clock: Clock,
    pub uids: Uids,
    pub extra_kinds: Vec<BuiltIn>,
}

impl Options {
    /// Uses the system clock and random uids.
    pub fn new(crds: Vec<CustomResourceDefinition>) -> Self {
        Self {
            crds,
            policies: Vec::new(),
            clock: Arc::new(Timestamp::now),
            uids: Arc::new(|| uuid::Uuid::new_v4().to_string()),
            extra_kinds: Vec::new(),
        }
    }
}

/// Definitions that cannot be served. They are compiled in, so this is a bug in Quarry.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("a custom resource definition cannot be served")]
    Crd(#[from] crd::CrdError),
    #[error("a built-in kind cannot be served")]
    BuiltIn(#[from] crate::schema::CompileError),
}

pub(crate) struct Inner {
    pub committer: Committer,
    pub registry: Arc<Registry>,
    pub clock: Clock,
    pub uids: Uids,
}

/// The embedded API server.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

impl Server {
    /// Keeps objects in memory only. Starts no thread and never blocks: for simulations and tests.
    ///
    /// # Panics
    /// When a definition in the options cannot be served; use `try_in_memory` for definitions that
    /// are not compiled in.
    pub fn in_memory(options: Options) -> Self {
        match Self::try_in_memory(options) {
            Ok(server) => server,
            Err(why) => panic!(
                "{why}: {}",
                std::error::Error::source(&why).map(ToString::to_string).unwrap_or_default()
            ),
        }
    }

    pub fn try_in_memory(options: Options) -> Result<Self, SetupError> {
        let registry = Arc::new(registry(&options)?);
        let store = Store::new(registry.buckets(), 0);
        let engine = prepare(&options, registry.clone(), store);
        Ok(Self::assemble(Committer::in_memory(engine), registry, &options))
    }

    /// Durable in `<data_dir>/api.redb`: every acknowledged write survives a crash.
    pub fn open(data_dir: &Path, options: Options) -> Result<Self, OpenError> {
        let registry = Arc::new(registry(&options)?);
        let (mut backend, snapshot) = Redb::open(data_dir)?;
        let mut store = Store::new(registry.buckets(), snapshot.version);
        for object in snapshot.objects {
            // Objects of kinds that are no longer compiled in stay on disk, unchanged.
            if !store.load(&object.bucket, &object.key, object.value) {
                tracing::warn!(
                    bucket = object.bucket,
                    key = object.key,
                    "stored object of a kind that is not served"
                );
            }
        }
        let mut engine = prepare(&options, registry.clone(), store);
        let changes = engine.take_pending();
        if !changes.is_empty() {
            let batch = crate::backend::Batch { changes, version: engine.version() };
            crate::backend::Backend::commit(&mut backend, &batch).map_err(OpenError::Commit)?;
        }
        let committer = Committer::durable(engine, backend).map_err(OpenError::Thread)?;
        Ok(Self::assemble(committer, registry, &options))
    }

    #[cfg(test)]
    pub(crate) fn with_committer(
        options: Options,
        committer: impl FnOnce(Engine) -> Committer,
    ) -> Self {
        let registry = Arc::new(registry(&options).expect("the options can be served"));
        let mut engine = prepare(&options, registry.clone(), Store::new(registry.buckets(), 0));
        engine.take_pending();
        Self::assemble(committer(engine), registry, &options)
    }

    fn assemble(committer: Committer, registry: Arc<Registry>, options: &Options) -> Self {
        let inner =
            Inner { committer, registry, clock: options.clock.clone(), uids: options.uids.clone() };
        Self { inner: Arc::new(inner) }
    }

    /// A client inside this process, without a socket. Needs a tokio runtime.
    pub fn client(&self, default_namespace: &str) -> kube::Client {
        kube::Client::new(self.service(), default_namespace)
    }

    /// The API as a tower service, for a layer that injects faults.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.inner.clone())
    }

    /// Number of accepted writes; dry runs and the server's own writes are not counted.
    pub fn write_count(&self) -> u64 {
        self.inner.committer.engine().writes().values().sum()
    }

    /// Accepted writes by `group/plural` (`coordination.k8s.io/leases`, `/events`).
    pub fn write_counts(&self) -> BTreeMap<String, u64> {
        self.inner.committer.engine().writes().clone()
    }

    /// Writes pending changes and closes the file; every later request is refused. Dropping the
    /// last clone does the same, but clients keep a clone alive while their tasks run.
    pub fn close(&self) {
        self.inner.committer.close();
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.inner.committer.engine().version()
    }
}

fn registry(options: &Options) -> Result<Registry, SetupError> {
    let mut registry = Registry::default();
    let mut kinds = builtin::standard();
    kinds.extend(options.extra_kinds.iter().cloned());
    builtin::register(&mut registry, kinds)?;
    for definition in &options.crds {
        crd::register(&mut registry, definition)?;
    }
    for (group, version, plural, kind, short) in [
        (
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            &["crd", "crds"][..],
        ),
        (
            "admissionregistration.k8s.io",
            "v1",
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            &[],
        ),
        (
            "admissionregistration.k8s.io",
            "v1",
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            &[],
        ),
    ] {
        let resource = fixed(&mut registry, group, version, plural, kind, short);
        registry.add(resource);
    }
    Ok(registry)
}

/// A read-only kind whose objects are compiled in.
fn fixed(
    registry: &mut Registry,
    group: &str,
    version: &str,
    plural: &str,
    kind: &str,
    short: &[&str],
) -> Resource {
    Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        namespaced: false,
        short_names: short.iter().map(|name| (*name).to_owned()).collect(),
        categories: Vec::new(),
        bucket: registry.bucket(&format!("{group}/{plural}")),
        stored_api_version: format!("{group}/{version}"),
        custom: false,
        status: StatusMode::Plain,
        generation: false,
        read_only: true,
        create_on_update: false,
        unconditional_update: false,
        returns_deleted: false,
        graceful: false,
        keeps_status_on_create: true,
        schema: Schema { preserve_unknown: true, ..Schema::object([]) },
        rules: None,
        hooks: Hooks::default(),
        view: None,
        columns: Columns::Definition,
        selectable: Vec::new(),
        openapi: json!({"type": "object", "description": format!("{kind}: compiled into Quarry, read only.")}),
        openapi_name: format!("io.quarry.{kind}"),
    }
}

/// The engine with the objects that always exist: definitions, policies and two namespaces.
fn prepare(options: &Options, registry: Arc<Registry>, mut store: Store) -> Engine {
    let now = (options.clock)();
    let outside = Outside { now, uids: &*options.uids };
    let stamp = outside.now_text();
    let mut definitions: Vec<(&str, Value)> = Vec::new();
    for definition in &options.crds {
        let mut value = serde_json::to_value(definition).unwrap_or_default();
        value["status"] = established(&value, &stamp);
        definitions.push(("apiextensions.k8s.io/customresourcedefinitions", value));
    }
    for (policy, binding) in &options.policies {
        let to_value = |value: Result<Value, _>| value.unwrap_or_default();
        definitions.push((
            "admissionregistration.k8s.io/validatingadmissionpolicies",
            to_value(serde_json::to_value(policy)),
        ));
        definitions.push((
            "admissionregistration.k8s.io/validatingadmissionpolicybindings",
            to_value(serde_json::to_value(binding)),
        ));
    }
    for (bucket, mut value) in definitions {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        value["metadata"]["creationTimestamp"] = stamp.clone().into();
        value["metadata"]["resourceVersion"] = "1".into();
        // The name can serve as uid: it is unique, and the object is created at every start.
        value["metadata"]["uid"] = name.clone().into();
        value["metadata"]["generation"] = 1.into();
        store.load(bucket, &name, value);
    }
    let mut engine = Engine::new(registry.clone(), Policies::new(&options.policies), store);
    if let Some(namespaces) = registry.find("", "v1", "namespaces") {
        for name in ["default", "kube-system"] {
            let value =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let request = Request {
                resource: namespaces,
                namespace: String::new(),
                name: String::new(),
                status: false,
                verb: Verb::Create(Body { value, duplicates: Vec::new() }, WriteOptions::default()),
            };
            // Fails with AlreadyExists after the first start.
            let _ = engine.handle(request, &outside);
        }
    }
    engine.reset_writes();
    engine
}

/// Status of a definition that is served: clients wait for it after applying one.
fn established(definition: &Value, now: &str) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    let versions: Vec<Value> = definition["spec"]["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    json!({
        "acceptedNames": definition["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": versions,
    })
}
