//! Owns the rules of the API: what each verb does to the objects in `store`. Pure: time and uids
//! are arguments of every call, so that a simulation is deterministic. Never does I/O: the server
//! writes the changes to a backend before it responds. Start reading at `handle`.

mod collect;
mod decode;
mod delete;
mod intake;
mod meta;
mod read;
pub mod store;
#[cfg(test)]
mod tests;
mod watch;
mod write;

pub use decode::parse_json;
pub use read::List;
pub use store::{Change, Stored};
pub use watch::{WatchEvent, WatchEventKind, WatchFrom, Watching};

use crate::admission::Policies;
use crate::kind::{Registry, Resource, ResourceId};
use crate::patch::PatchKind;
use crate::select::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Store;

/// What a call needs from outside: the current time, and new uids.
pub struct Outside<'a> {
    pub now: Timestamp,
    pub uids: &'a dyn Fn() -> String,
}

impl Outside<'_> {
    /// Timestamps in metadata have a resolution of one second.
    pub fn now_text(&self) -> String {
        let seconds = Timestamp::from_second(self.now.as_second()).unwrap_or(self.now);
        seconds.to_string()
    }
}

/// One parsed request for a resource.
#[derive(Clone, Debug)]
pub struct Request {
    pub resource: ResourceId,
    /// Empty: cluster-scoped, or all namespaces.
    pub namespace: String,
    pub name: String,
    pub status: bool,
    pub verb: Verb,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Get,
    List(ListOptions),
    Create(Body, WriteOptions),
    Update(Body, WriteOptions),
    Patch(PatchKind, Body, WriteOptions),
    Delete(DeleteOptions),
    DeleteCollection(ListOptions, DeleteOptions),
}

/// A decoded body: its value and the paths of duplicate keys.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub value: Value,
    pub duplicates: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub validation: FieldValidation,
}

#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub limit: usize,
    pub continue_token: String,
    /// Exactly this version, instead of the newest.
    pub exact: Option<u64>,
    /// Not older than this version.
    pub at_least: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
    pub grace_seconds: Option<i64>,
}

/// The result of a request.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Answered,
    pub warnings: Vec<String>,
}

#[derive(Debug)]
pub enum Answered {
    /// In its stored form.
    Object(Arc<Stored>),
    List(List),
    Status(Value),
}

impl Answer {
    fn object(code: u16, object: Arc<Stored>) -> Self {
        Self { code, body: Answered::Object(object), warnings: Vec::new() }
    }
}

pub struct Engine {
    pub registry: Arc<Registry>,
    policies: Policies,
    store: Store,
    /// Accepted writes by bucket; dry runs and the engine's own writes are not counted.
    writes: BTreeMap<String, u64>,
    last_expiry: Option<Timestamp>,
}

impl Engine {
    pub fn new(registry: Arc<Registry>, policies: Policies, store: Store) -> Self {
        Self { registry, policies, store, writes: BTreeMap::new(), last_expiry: None }
    }

    pub fn handle(&mut self, request: Request, outside: &Outside<'_>) -> Result<Answer, ApiError> {
        let resource = self.registry.get(request.resource);
        if request.status && resource.status == crate::kind::StatusMode::Plain {
            return Err(ApiError::new(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
            .with_details(serde_json::json!({})));
        }
        let is_write = !matches!(request.verb, Verb::Get | Verb::List(_));
        if is_write && resource.read_only {
            let message = format!(
                "{} are compiled into Quarry and cannot be changed in the embedded API; on a Kubernetes cluster, apply them with kubectl",
                resource.plural
            );
            return Err(ApiError::method_not_allowed(message));
        }
        let bucket = self.registry.buckets()[resource.bucket].clone();
        let dry_run = match &request.verb {
            Verb::Create(_, options) | Verb::Update(_, options) | Verb::Patch(_, _, options) => {
                options.dry_run
            }
            Verb::Delete(options) | Verb::DeleteCollection(_, options) => options.dry_run,
            Verb::Get | Verb::List(_) => true,
        };
        let answer = match request.verb.clone() {
            Verb::Get => self.read(&request),
            Verb::List(options) => self.list(&request, &options),
            Verb::Create(body, options) => self.create(&request, body, &options, outside),
            Verb::Update(body, options) => self.update(&request, body, &options, outside),
            Verb::Patch(kind, body, options) => self.patch(&request, kind, body, &options, outside),
            Verb::Delete(options) => self.delete(&request, &options, outside),
            Verb::DeleteCollection(list, options) => {
                self.delete_collection(&request, &list, &options, outside)
            }
        }?;
        if is_write && !dry_run {
            *self.writes.entry(bucket).or_default() += 1;
            self.expire_events(outside);
        }
        Ok(answer)
    }

    pub fn version(&self) -> u64 {
        self.store.version()
    }

    pub fn writes(&self) -> &BTreeMap<String, u64> {
        &self.writes
    }

    /// Resets the write counters.
    pub fn reset_writes(&mut self) {
        self.writes.clear();
    }

    pub fn take_pending(&mut self) -> Vec<Change> {
        self.store.take_pending()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Bypasses every rule: only for objects that were validated before.
    pub(crate) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    pub fn roll_back(&mut self, version: u64) {
        self.store.roll_back(version);
    }

    pub(crate) fn resource(&self, request: &Request) -> &Resource {
        self.registry.get(request.resource)
    }
}
