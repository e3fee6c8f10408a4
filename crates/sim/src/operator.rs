//! A simulated operator process: the real controllers and caches, fed by watches that may be behind.
//!
//! Keeps what the real driver keeps (a queue of keys, caches) and nothing else; a crash drops it all. Scheduling is
//! the simulator's, everything that a reconcile does and how soon it is due again is the driver's own code.

use crate::{
    clock::Clock,
    fault::{FaultKind, FaultPoint, Track},
    fault_proxy::{FaultProxy, Gate, Shared},
    kind::Kind,
    lock,
    world::Change,
};
use futures::{FutureExt, future::BoxFuture};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use quarry_api::names;
use quarry_apiserver::ApiService;
use quarry_core::agent_daemon_set::DaemonSetSettings;
use quarry_operator::{
    Context, OperatorOptions, Registry,
    bare_metal_host::HostOptions,
    driver, group,
    trigger::{Enqueue, Key, WatchedKind},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// Shorter than in production, so that a run sees jobs forgotten.
pub const JOB_RETENTION: SignedDuration = SignedDuration::from_mins(5);
const LIST_AGAIN: Duration = Duration::from_secs(1);
/// When a watch that lost an event breaks and is started again.
pub const RELIST_AFTER: Duration = Duration::from_secs(60);
pub const LATE: Duration = Duration::from_secs(20);

type Queue = Arc<Mutex<BTreeMap<Key, Instant>>>;

/// What a future of this process ends with.
pub enum Done {
    Listed(Kind, Result<u64, String>),
    Reconciled(Key, Option<Duration>),
}

/// What controllers need besides the API.
#[derive(Default)]
pub struct Parts {
    pub hosts: Option<HostOptions>,
    /// Of Quarry, for pods that it makes.
    pub image: Option<&'static str>,
}

pub struct Operator {
    pub id: u8,
    pub gate: Arc<Gate>,
    pub task: Option<BoxFuture<'static, Done>>,
    context: Context,
    /// The kinds that its controllers watch.
    watched: BTreeMap<Kind, Arc<dyn WatchedKind>>,
    shared: Arc<Shared>,
    /// How far the watch of each kind has got; a kind without an entry has not been listed.
    cursors: BTreeMap<Kind, u64>,
    /// Kinds to be listed (again), and when.
    lists: BTreeMap<Kind, Instant>,
    /// Kinds whose events are held up.
    held: BTreeMap<Kind, Instant>,
    queue: Queue,
    /// How far this operator is always behind.
    lag: Duration,
}

impl Operator {
    /// One without hosts.
    pub fn start(
        id: u8,
        service: ApiService,
        shared: Arc<Shared>,
        clock: Clock,
        lag: Duration,
    ) -> Self {
        // The simulator starts its agents itself.
        let registry = Registry::standard()
            .without(group::AGENT_DAEMON_SET)
            .without(group::HOSTS)
            .without(group::DEVICE_SETS);
        Self::with(id, service, shared, clock, lag, Arc::default(), registry, Parts::default())
    }

    #[expect(clippy::too_many_arguments, reason = "what a process is started with")]
    pub fn with(
        id: u8,
        service: ApiService,
        shared: Arc<Shared>,
        clock: Clock,
        lag: Duration,
        gate: Arc<Gate>,
        registry: Registry,
        parts: Parts,
    ) -> Self {
        let proxy = FaultProxy {
            service,
            track: Track::Operator(id),
            gate: gate.clone(),
            shared: shared.clone(),
        };
        let options = OperatorOptions {
            namespace: names::DEFAULT_NAMESPACE.to_owned(),
            registry,
            election_identity: None,
            agent_daemon_set: parts.image.map(daemon_set),
            job_retention: JOB_RETENTION,
            hosts: parts.hosts,
            check_crds: false,
        };
        let client = Client::new(proxy, names::DEFAULT_NAMESPACE);
        let context = Context::new(client, &options, clock.as_function());
        let watched = watched_kinds(&options.registry);
        let lists = watched.keys().map(|kind| (*kind, Instant::now())).collect();
        Operator {
            id,
            gate,
            task: None,
            context,
            watched,
            shared,
            cursors: BTreeMap::new(),
            lists,
            held: BTreeMap::new(),
            queue: Queue::default(),
            lag,
        }
    }

    /// A kind whose list is due.
    pub fn list_due(&self, now: Instant) -> Option<Kind> {
        self.lists.iter().find(|(_, due)| **due <= now).map(|(kind, _)| *kind)
    }

    /// Kinds with an event to deliver.
    pub fn deliverable(&self, now: Instant) -> Vec<Kind> {
        let world = lock(&self.shared.world);
        let ready = |kind: Kind, cursor: u64| {
            world.next_change(kind, cursor).is_some_and(|change| self.arrives(kind, change) <= now)
        };
        self.cursors
            .iter()
            .filter(|(kind, cursor)| ready(**kind, **cursor))
            .map(|(kind, _)| *kind)
            .collect()
    }

    fn arrives(&self, kind: Kind, change: &Change) -> Instant {
        let arrives = change.seen + self.lag;
        self.held.get(&kind).map_or(arrives, |held| arrives.max(*held))
    }

    /// Work begins when every kind has been listed once, as in the driver.
    pub fn synced(&self) -> bool {
        self.cursors.len() == self.watched.len()
    }

    pub fn due(&self, now: Instant) -> Vec<Key> {
        if !self.synced() {
            return Vec::new();
        }
        lock(&self.queue).iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect()
    }

    /// The next moment at which something is due without a change.
    pub fn next_due(&self) -> Option<Instant> {
        let keys = lock(&self.queue).values().copied().min().filter(|_| self.synced());
        let lists = self.lists.values().copied().min();
        let world = lock(&self.shared.world);
        let events = self.cursors.iter().filter_map(|(kind, cursor)| {
            world.next_change(*kind, *cursor).map(|change| self.arrives(*kind, change))
        });
        events.chain(keys).chain(lists).min()
    }

    pub fn begin_list(&mut self, kind: Kind) {
        self.lists.remove(&kind);
        let Some(watched) = self.watched.get(&kind).cloned() else { return };
        let listed = watched.list(self.context.clone(), self.enqueue());
        self.task = Some(listed.map(move |listed| Done::Listed(kind, listed)).boxed());
    }

    pub fn begin_reconcile(&mut self, key: Key) {
        lock(&self.queue).remove(&key);
        let context = self.context.clone();
        let work = async move {
            let delay = driver::work_on(&context, &key).await;
            Done::Reconciled(key, delay)
        };
        self.task = Some(work.boxed());
    }

    pub fn finish(&mut self, done: Done) {
        self.task = None;
        match done {
            Done::Listed(kind, Ok(version)) => {
                self.cursors.insert(kind, version);
            }
            Done::Listed(kind, Err(_)) => {
                self.lists.insert(kind, Instant::now() + LIST_AGAIN);
            }
            Done::Reconciled(key, Some(delay)) => push(&self.queue, key, Instant::now() + delay),
            Done::Reconciled(_, None) => {}
        }
    }

    /// Hands the next event of the kind to the cache, unless a fault takes it.
    pub fn deliver(&mut self, kind: Kind) {
        let Some(cursor) = self.cursors.get(&kind).copied() else { return };
        let Some(change) = lock(&self.shared.world).next_change(kind, cursor).cloned() else {
            return;
        };
        let label = format!(
            "{kind:?} {} {}",
            change.name,
            if change.after.is_some() { "changed" } else { "deleted" }
        );
        // Renewals come every few seconds: a lost one is healed by the next.
        let possible: &[(FaultPoint, FaultKind)] = if kind == Kind::Lease {
            &[]
        } else {
            &[(FaultPoint::Before, FaultKind::Lost), (FaultPoint::Before, FaultKind::Late)]
        };
        let fault = lock(&self.shared.injector).pass(Track::Watch(self.id), &label, possible);
        self.shared.note(|| {
            format!(
                "watch{}: {label}{}",
                self.id,
                fault.map_or_else(String::new, |(_, what)| format!("  <== {what:?}"))
            )
        });
        match fault {
            Some((_, FaultKind::Late)) => {
                self.held.insert(kind, Instant::now() + LATE);
                return;
            }
            Some(_) => {
                self.lists.insert(kind, Instant::now() + RELIST_AFTER);
            }
            None => self.ingest(kind, &change),
        }
        self.cursors.insert(kind, change.version);
    }

    fn ingest(&self, kind: Kind, change: &Change) {
        let Some(watched) = self.watched.get(&kind) else { return };
        let metadata = ObjectMeta {
            name: Some(change.name.clone()),
            namespace: Some(names::DEFAULT_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        };
        let enqueue = self.enqueue();
        // A watch with a selector shows an object that does not match it as one that is gone.
        let after = change.after.as_ref().filter(|object| is_selected(kind, object));
        let delivered = watched.deliver(&self.context, &metadata, after, &enqueue);
        if let Err(error) = delivered {
            lock(&self.shared.violations).push(format!("an object cannot be read: {error}"));
        }
    }

    fn enqueue(&self) -> Enqueue {
        let (queue, registry) = (self.queue.clone(), self.context.registry.clone());
        Arc::new(move |key| {
            let due = Instant::now() + driver::debounce(&registry, &key);
            push(&queue, key, due);
        })
    }
}

fn daemon_set(image: &str) -> DaemonSetSettings {
    DaemonSetSettings {
        namespace: names::DEFAULT_NAMESPACE.to_owned(),
        image: image.to_owned(),
        image_pull_policy: "IfNotPresent".to_owned(),
        data_dir: "/var/lib/quarry".to_owned(),
        rescan_interval: SignedDuration::from_hours(1),
        settling_time: SignedDuration::from_secs(1),
        deployment: None,
    }
}

/// Whether the operator's watch of the kind shows the object.
fn is_selected(kind: Kind, object: &Value) -> bool {
    let (label, value) = names::HOST_SECRET_LABEL;
    kind != Kind::Secret || object["metadata"]["labels"][label] == value
}

/// The simulator's kinds that the controllers watch.
fn watched_kinds(registry: &Registry) -> BTreeMap<Kind, Arc<dyn WatchedKind>> {
    let kind = |watched: &Arc<dyn WatchedKind>| {
        let name = watched.kind();
        Kind::ALL.iter().copied().find(|kind| kind.kubernetes_kind() == name)
    };
    let all = registry.watched_kinds().into_iter();
    all.map(|watched| {
        let kind = kind(&watched)
            .unwrap_or_else(|| panic!("{} needs a line in sim/src/kind.rs", watched.kind()));
        (kind, watched)
    })
    .collect()
}

/// Due at `at`, unless it is due earlier already.
fn push(queue: &Queue, key: Key, at: Instant) {
    let mut queue = lock(queue);
    let due = queue.entry(key).or_insert(at);
    *due = (*due).min(at);
}
