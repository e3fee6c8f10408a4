//! A simulated operator process: the real controllers and caches, fed by watches that may be behind.
//!
//! Keeps what the real driver keeps (a queue of keys, caches) and nothing else; a crash drops it all. Scheduling is
//! the simulator's, everything that a reconcile does and how soon it is due again is the driver's own code.

use crate::{
    clock::Clock,
    fault::{Track, What, When},
    fault_proxy::{FaultProxy, Gate, Shared},
    kind::Kind,
    lock,
    world::Change,
};
use futures::{FutureExt, future::BoxFuture};
use jiff::SignedDuration;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, api::ListParams};
use quarry_api::{
    LocalVolume, LocalVolumeDiscovery, LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory,
    NodeJob, Volume, names,
};
use quarry_apiserver::ApiService;
use quarry_operator::{
    Context, ControllerName, OperatorOptions,
    cache::Cached,
    driver,
    route::{Change as Routing, Route, Routed},
    watch,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// Shorter than in production, so that a run sees jobs forgotten.
pub const JOB_RETENTION: SignedDuration = SignedDuration::from_mins(5);
/// All but the agents' DaemonSet: the simulator starts its agent itself.
const CONTROLLERS: [ControllerName; 7] = [
    ControllerName::Volume,
    ControllerName::NodeInventory,
    ControllerName::NodeJob,
    ControllerName::Discovery,
    ControllerName::DiscoveryResult,
    ControllerName::LocalVolumeSet,
    ControllerName::LocalVolume,
];
const LIST_AGAIN: Duration = Duration::from_secs(1);
/// When a watch that lost an event breaks and is begun anew.
pub const RELIST_AFTER: Duration = Duration::from_secs(60);
pub const LATE: Duration = Duration::from_secs(20);

type Queue = Arc<Mutex<BTreeMap<Route, Instant>>>;

/// What a future of this process ends with.
pub enum Done {
    Listed(Kind, Result<u64, String>),
    Reconciled(Route, Option<Duration>),
}

pub struct Operator {
    pub id: u8,
    pub gate: Arc<Gate>,
    pub task: Option<BoxFuture<'static, Done>>,
    context: Context,
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
    pub fn start(
        id: u8,
        service: ApiService,
        shared: Arc<Shared>,
        clock: Clock,
        lag: Duration,
    ) -> Self {
        let gate = Arc::new(Gate::default());
        let door = FaultProxy {
            service,
            track: Track::Operator(id),
            gate: gate.clone(),
            shared: shared.clone(),
        };
        let options = OperatorOptions {
            namespace: names::DEFAULT_NAMESPACE.to_owned(),
            controllers: CONTROLLERS.to_vec(),
            election_identity: None,
            agent_daemon_set: None,
            job_retention: JOB_RETENTION,
            check_crds: false,
        };
        let client = Client::new(door, names::DEFAULT_NAMESPACE);
        let context = driver::context(client, &options, clock.as_function());
        let lists = Kind::OPERATORS.into_iter().map(|kind| (kind, Instant::now())).collect();
        Operator {
            id,
            gate,
            task: None,
            context,
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
        self.cursors.len() == Kind::OPERATORS.len()
    }

    pub fn due(&self, now: Instant) -> Vec<Route> {
        if !self.synced() {
            return Vec::new();
        }
        lock(&self.queue)
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(route, _)| route.clone())
            .collect()
    }

    /// The next moment at which something is due by itself.
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
        let (context, queue) = (self.context.clone(), self.queue.clone());
        let list = async move {
            let listed = match kind {
                Kind::Volume => {
                    list::<Volume>(&context, &queue, Api::all(context.client.clone())).await
                }
                Kind::Pv => {
                    list::<PersistentVolume>(&context, &queue, Api::all(context.client.clone()))
                        .await
                }
                Kind::Class => {
                    list::<StorageClass>(&context, &queue, Api::all(context.client.clone())).await
                }
                Kind::Node => {
                    list::<Node>(&context, &queue, Api::all(context.client.clone())).await
                }
                Kind::Job => {
                    list::<NodeJob>(&context, &queue, Api::all(context.client.clone())).await
                }
                Kind::Inventory => {
                    list::<NodeInventory>(&context, &queue, Api::all(context.client.clone())).await
                }
                Kind::Lease => {
                    list::<Lease>(
                        &context,
                        &queue,
                        Api::namespaced(context.client.clone(), &context.namespace),
                    )
                    .await
                }
                Kind::Discovery => {
                    list::<LocalVolumeDiscovery>(&context, &queue, Api::all(context.client.clone()))
                        .await
                }
                Kind::Result => {
                    list::<LocalVolumeDiscoveryResult>(
                        &context,
                        &queue,
                        Api::namespaced(context.client.clone(), &context.namespace),
                    )
                    .await
                }
                Kind::Set => {
                    list::<LocalVolumeSet>(&context, &queue, Api::all(context.client.clone())).await
                }
                Kind::LocalVolume => {
                    list::<LocalVolume>(&context, &queue, Api::all(context.client.clone())).await
                }
                Kind::DeviceClaim => Err("operators do not watch claims".to_owned()),
            };
            Done::Listed(kind, listed)
        };
        self.task = Some(list.boxed());
    }

    pub fn begin_reconcile(&mut self, route: Route) {
        lock(&self.queue).remove(&route);
        let context = self.context.clone();
        let work = async move {
            let delay = driver::work_on(&context, &route).await;
            Done::Reconciled(route, delay)
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
            Done::Reconciled(route, Some(delay)) => {
                push(&self.queue, route, Instant::now() + delay)
            }
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
        let possible: &[(When, What)] = if kind == Kind::Lease {
            &[]
        } else {
            &[(When::Before, What::Lost), (When::Before, What::Late)]
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
            Some((_, What::Late)) => {
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
        match kind {
            Kind::Volume => self.ingest_as::<Volume>(change),
            Kind::Pv => self.ingest_as::<PersistentVolume>(change),
            Kind::Class => self.ingest_as::<StorageClass>(change),
            Kind::Node => self.ingest_as::<Node>(change),
            Kind::Job => self.ingest_as::<NodeJob>(change),
            Kind::Inventory => self.ingest_as::<NodeInventory>(change),
            Kind::Lease => self.ingest_as::<Lease>(change),
            Kind::Discovery => self.ingest_as::<LocalVolumeDiscovery>(change),
            Kind::Result => self.ingest_as::<LocalVolumeDiscoveryResult>(change),
            Kind::Set => self.ingest_as::<LocalVolumeSet>(change),
            Kind::LocalVolume => self.ingest_as::<LocalVolume>(change),
            Kind::DeviceClaim => {}
        }
    }

    fn ingest_as<K: Cached + Routed>(&self, change: &Change) {
        let enqueue = waker(&self.queue);
        match &change.after {
            Some(object) => match K::deserialize(object) {
                Ok(mut object) => {
                    object.trim();
                    watch::ingest(&self.context, object, &enqueue);
                }
                Err(error) => {
                    lock(&self.shared.violations).push(format!("an object cannot be read: {error}"))
                }
            },
            None => {
                let metadata = ObjectMeta {
                    name: Some(change.name.clone()),
                    namespace: Some(names::DEFAULT_NAMESPACE.to_owned()),
                    ..ObjectMeta::default()
                };
                if let Some(gone) = K::cache(&self.context.caches).remove(&K::key(&metadata)) {
                    K::route(
                        &Routing { before: Some(gone.as_ref()), after: None },
                        &self.context.caches,
                        &enqueue,
                    );
                }
            }
        }
    }
}

async fn list<K: Cached + Routed>(
    context: &Context,
    queue: &Queue,
    api: Api<K>,
) -> Result<u64, String> {
    let list = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    let version = list
        .metadata
        .resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let mut objects = list.items;
    objects.iter_mut().for_each(Cached::trim);
    watch::ingest_list(context, objects, &waker(queue));
    Ok(version)
}

fn waker(queue: &Queue) -> impl Fn(Route) + '_ {
    let enabled: BTreeSet<ControllerName> = CONTROLLERS.into();
    move |route| {
        if enabled.contains(&route.controller) {
            let due = Instant::now() + driver::debounce(&route);
            push(queue, route, due);
        }
    }
}

/// Due at `at`, unless it is due earlier already.
fn push(queue: &Queue, route: Route, at: Instant) {
    let mut queue = lock(queue);
    let due = queue.entry(route).or_insert(at);
    *due = (*due).min(at);
}
