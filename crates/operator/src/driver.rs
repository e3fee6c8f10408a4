//! The loop: watches feed caches and enqueue keys, keys are reconciled, failures come back with backoff.
//!
//! Nothing is remembered in the process: the backoff is derived from how long the object has been waiting,
//! everything else is in the objects. Kill it anywhere, the next run continues.

use crate::{
    Context,
    controller::{Failure, Next},
    leader::Election,
    metrics, preflight,
    queue::Queue,
    registry::Registry,
    trigger::{Enqueue, Key},
};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use quarry_core::backoff::Backoff;
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
pub struct OperatorOptions {
    pub namespace: String,
    /// The controllers to run.
    pub registry: Registry,
    /// Our name in the leader's Lease; `None`: no election (one process, or a developer's).
    pub election_identity: Option<String>,
    pub agent_daemon_set: Option<quarry_core::agent_daemon_set::DaemonSetSettings>,
    pub job_retention: SignedDuration,
    /// `None`: no host is driven.
    pub hosts: Option<crate::bare_metal_host::HostOptions>,
    /// Not needed with the embedded API: its kinds are compiled in.
    pub check_crds: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("lost the leader's Lease")]
    LostLease,
    #[error("the API server does not serve what Quarry needs: {0}")]
    Unserved(String),
    #[error("reading the CRDs of the API server")]
    Preflight(#[source] kube::Error),
}

/// Concurrent reconciles: more would only queue up at the API server.
const MAX_CONCURRENT: usize = 8;
/// After a conflict. The event that the cache lacks enqueues the key as soon as it arrives; until then a retry
/// meets the same conflict, and a watch that hangs for a minute must not become a thousand refused writes.
const CONFLICT_DELAY: Duration = Duration::from_secs(1);

/// Runs until it is stopped (`Ok`) or must not act any more (`Err`).
pub async fn run(
    client: Client,
    options: OperatorOptions,
    metrics_listener: Option<TcpListener>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    run_at(client, options, metrics_listener, stop, Arc::new(Timestamp::now)).await
}

/// As `run`, with another clock: in the simulator time is virtual.
pub async fn run_at(
    client: Client,
    mut options: OperatorOptions,
    metrics_listener: Option<TcpListener>,
    stop: CancellationToken,
    clock: crate::context::Clock,
) -> Result<(), RunError> {
    if options.check_crds {
        options.registry = preflight::served(&client, options.registry).await?;
    }
    let context = Context::new(client, &options, clock);
    let mut tasks = JoinSet::new();
    let work = stop.child_token();
    if let Some(listener) = metrics_listener {
        let (context, stop) = (context.clone(), work.clone());
        tasks.spawn(async move {
            let served = metrics::serve(context.metrics, context.caches, listener, stop).await;
            if let Err(error) = served {
                tracing::error!(%error, "failed to serve metrics");
            }
        });
    }
    let election = options
        .election_identity
        .as_ref()
        .map(|me| Election::new(context.client.clone(), &options.namespace, me));
    if let Some(election) = &election {
        tracing::info!("started, waiting for the leader Lease");
        if !election.acquire(&stop).await {
            return Ok(());
        }
    }
    context.metrics.set_leading(true);
    let groups = options.registry.groups();
    tracing::info!(controllers = ?groups, "started as leader");
    let outcome = tokio::select! {
        () = hold(election.as_ref(), &stop) => if stop.is_cancelled() { Ok(()) } else { Err(RunError::LostLease) },
        () = drive(context) => Ok(()),
    };
    work.cancel();
    tasks.shutdown().await;
    outcome
}

async fn hold(election: Option<&Election>, stop: &CancellationToken) {
    match election {
        Some(election) => election.hold(stop).await,
        None => stop.cancelled().await,
    }
}

/// Watches, then works, for ever. Dropping the future ends everything that it started.
async fn drive(context: Context) {
    let queue: Arc<Queue<Key>> = Arc::new(Queue::default());
    let enqueue: Enqueue = {
        let (queue, registry) = (queue.clone(), context.registry.clone());
        Arc::new(move |key| {
            let due = Instant::now() + debounce(&registry, &key);
            queue.push(key, due);
        })
    };
    let mut watches = JoinSet::new();
    let mut synced = Vec::new();
    for kind in context.registry.watched_kinds() {
        let (sender, receiver) = tokio::sync::watch::channel(false);
        synced.push(receiver);
        watches.spawn(kind.watch(context.clone(), enqueue.clone(), sender));
    }
    for receiver in &mut synced {
        // The sender lives as long as the watch, which never ends.
        if receiver.wait_for(|synced| *synced).await.is_err() {
            return;
        }
    }
    context.metrics.set_ready();
    for key in initial_keys(&context.registry) {
        queue.push(key, Instant::now());
    }
    work(context, queue).await;
}

/// Keys that are reconciled once without a change.
pub fn initial_keys(registry: &Registry) -> impl Iterator<Item = Key> {
    registry.controllers().iter().flat_map(|controller| {
        let keys = controller.initial_keys.iter();
        keys.map(|name| Key { controller: controller.name, name: (*name).to_owned() })
    })
}

/// How long the key waits for further changes.
pub fn debounce(registry: &Registry, key: &Key) -> Duration {
    registry.get(key.controller).map(|controller| controller.debounce).unwrap_or_default()
}

async fn work(context: Context, queue: Arc<Queue<Key>>) {
    let slots = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut running = JoinSet::new();
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let key = queue.next().await;
        while running.try_join_next().is_some() {}
        let (context, queue) = (context.clone(), queue.clone());
        running.spawn(async move {
            let delay = work_on(&context, &key).await;
            queue.done(&key);
            if let Some(delay) = delay {
                queue.push(key, Instant::now() + delay);
            }
            drop(slot);
        });
    }
}

/// Reconciles the key once; how long until it is due again without a change.
pub async fn work_on(context: &Context, key: &Key) -> Option<Duration> {
    let controller = context.registry.get(key.controller)?;
    let begun = Instant::now();
    let result = controller.reconcile(context, &key.name).await;
    let (outcome, delay) = match &result {
        Ok(Next::AwaitChange) => ("done", None),
        Ok(Next::Requeue(after)) => {
            let after = Duration::try_from(*after).unwrap_or_default();
            ("waiting", Some(after.max(Duration::from_millis(100))))
        }
        Err(failure) if failure.conflict => ("conflict", Some(CONFLICT_DELAY)),
        Err(failure) => {
            report(key, failure);
            let since = controller.waiting_since(context, &key.name);
            ("failed", Some(backoff(since, context.now())))
        }
    };
    context.metrics.count_reconcile(controller.name, outcome, begun.elapsed());
    delay
}

fn report(key: &Key, failure: &Failure) {
    tracing::warn!(
        controller = key.controller,
        key = key.name,
        error = %failure,
        cause = failure.source.as_ref().map(tracing::field::display),
        "failed to reconcile, retrying"
    );
}

/// Half as long as the object has been waiting: a young one is retried often, an old one seldom, and no counter needs
/// to survive a restart.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(60));

fn backoff(since: Option<Timestamp>, now: Timestamp) -> Duration {
    let waited = since.map(|since| Duration::try_from(now.duration_since(since)));
    BACKOFF.after(waited.map_or(Duration::from_secs(2), Result::unwrap_or_default))
}
