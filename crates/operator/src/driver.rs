//! The loop: watches feed caches and wake keys, keys are reconciled, failures come back with backoff.
//!
//! Nothing is remembered in the process: the backoff is derived from how long the object has been waiting,
//! everything else is in the objects. Kill it anywhere, the next run continues.

use crate::{
    Context, agent_daemon_set,
    cache::Caches,
    context::{Clock, Failure, Next},
    device_claims::owner,
    discovery,
    leader::Election,
    metrics::{self, Metrics},
    node_inventory, node_job, preflight,
    queue::Queue,
    route::Route,
    volume, watch,
    writer::Writer,
};
use jiff::{SignedDuration, Timestamp};
use kube::{Api, Client, ResourceExt};
use quarry_api::volume::Phase;
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControllerName {
    Volume,
    NodeInventory,
    NodeJob,
    Agent,
    /// LocalVolumeDiscoveries.
    Discovery,
    /// Their results, one a node.
    DiscoveryResult,
    /// Both are on or off together: claims are planned only where all their owners are seen.
    LocalVolumeSet,
    LocalVolume,
}

impl ControllerName {
    pub const ALL: [ControllerName; 8] = [
        ControllerName::Volume,
        ControllerName::NodeInventory,
        ControllerName::NodeJob,
        ControllerName::Agent,
        ControllerName::Discovery,
        ControllerName::DiscoveryResult,
        ControllerName::LocalVolumeSet,
        ControllerName::LocalVolume,
    ];

    /// Whether it is off when that one is: results are discovery's second half, and sets and LocalVolumes share devices.
    pub fn belongs_to(self, other: ControllerName) -> bool {
        use ControllerName::{Discovery, DiscoveryResult, LocalVolume, LocalVolumeSet};
        self == other
            || matches!(
                (self, other),
                (DiscoveryResult, Discovery)
                    | (LocalVolume, LocalVolumeSet)
                    | (LocalVolumeSet, LocalVolume)
            )
    }

    pub fn as_str(self) -> &'static str {
        match self {
            ControllerName::Volume => "volume",
            ControllerName::NodeInventory => "nodeinventory",
            ControllerName::NodeJob => "nodejob",
            ControllerName::Agent => "agent",
            ControllerName::Discovery => "discovery",
            ControllerName::DiscoveryResult => "discoveryresult",
            ControllerName::LocalVolumeSet => "localvolumeset",
            ControllerName::LocalVolume => "localvolume",
        }
    }
}

#[derive(Clone)]
pub struct OperatorOptions {
    pub namespace: String,
    pub controllers: Vec<ControllerName>,
    /// Who we are in the leader's lease; `None`: no election (one process, or a developer's).
    pub election_identity: Option<String>,
    pub agent_daemon_set: Option<quarry_core::agent_daemon_set::DaemonSetSettings>,
    pub job_retention: SignedDuration,
    /// The embedded API serves no CRD objects: its kinds are compiled in.
    pub check_crds: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the leader's lease was lost")]
    LostLease,
    #[error("the API server does not serve what Quarry needs: {0}")]
    Unserved(String),
    #[error("asking the API server for its CRDs")]
    Preflight(#[source] kube::Error),
}

/// At most this many reconciles at once: more would only queue up at the API server.
const MAX_CONCURRENT: usize = 8;
/// After a conflict. The event that the cache lacks wakes the key as soon as it comes; until then another try
/// meets the same conflict, and a watch that hangs for a minute must not become a thousand refused writes.
const BEHIND: Duration = Duration::from_secs(1);

/// Those that only say how many claims stand gather changes first: a thousand disks are one status, not a thousand.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// How long a key waits for more news before it is worked on.
pub fn debounce(route: &Route) -> Duration {
    match route.controller {
        ControllerName::LocalVolumeSet | ControllerName::LocalVolume => DEBOUNCE,
        ControllerName::Volume
        | ControllerName::NodeInventory
        | ControllerName::NodeJob
        | ControllerName::Agent
        | ControllerName::Discovery
        | ControllerName::DiscoveryResult => Duration::ZERO,
    }
}

/// One reconcile of one key, whichever controller it is for.
pub async fn reconcile_once(context: &Context, route: &Route) -> Result<Next, Failure> {
    match route.controller {
        ControllerName::Volume => volume::reconcile_once(context, &route.key).await,
        ControllerName::NodeInventory => node_inventory::reconcile_once(context, &route.key).await,
        ControllerName::NodeJob => node_job::reconcile_once(context, &route.key).await,
        ControllerName::Agent => agent_daemon_set::reconcile_once(context).await,
        ControllerName::Discovery => discovery::reconcile_once(context, &route.key).await,
        ControllerName::DiscoveryResult => {
            discovery::result::reconcile_once(context, &route.key).await
        }
        ControllerName::LocalVolumeSet => owner::reconcile_set(context, &route.key).await,
        ControllerName::LocalVolume => owner::reconcile_local_volume(context, &route.key).await,
    }
}

/// A context with empty caches.
pub fn context(client: Client, options: &OperatorOptions, clock: Clock) -> Context {
    let metrics = Arc::new(Metrics::default());
    Context {
        client,
        caches: Arc::new(Caches::default()),
        writer: Writer::new(metrics.clone()),
        metrics,
        clock,
        namespace: options.namespace.clone(),
        job_retention: options.job_retention,
        accounts: Arc::default(),
        agent_daemon_set: options.agent_daemon_set.clone(),
        controllers: options.controllers.clone(),
    }
}

/// Runs until told to stop (`Ok`) or until it must not act any more (`Err`).
pub async fn run(
    client: Client,
    mut options: OperatorOptions,
    metrics_listener: Option<TcpListener>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    if options.check_crds {
        let missing = preflight::missing_fields(&client, &options.controllers)
            .await
            .map_err(RunError::Preflight)?;
        if !missing.for_all.is_empty() {
            return Err(RunError::Unserved(missing.for_all.join("; ")));
        }
        for (controller, what) in missing.for_some {
            tracing::error!(
                controller = controller.as_str(),
                what,
                "this controller stays off until the operator is started again"
            );
            options.controllers.retain(|name| !name.belongs_to(controller));
        }
    }
    let context = context(client, &options, Arc::new(Timestamp::now));
    let mut tasks = JoinSet::new();
    let work = stop.child_token();
    if let Some(listener) = metrics_listener {
        let (context, stop) = (context.clone(), work.clone());
        tasks.spawn(async move {
            if let Err(error) =
                metrics::serve(context.metrics, context.caches, listener, stop).await
            {
                tracing::error!(%error, "the metrics listener ended");
            }
        });
    }
    let election = options
        .election_identity
        .as_ref()
        .map(|me| Election::new(context.client.clone(), &options.namespace, me));
    if let Some(election) = &election {
        tracing::info!("waiting to lead");
        if !election.acquire(&stop).await {
            return Ok(());
        }
    }
    context.metrics.set_leading(true);
    tracing::info!(controllers = ?options.controllers.iter().map(|name| name.as_str()).collect::<Vec<_>>(), "leading");
    let outcome = tokio::select! {
        () = hold(election.as_ref(), &stop) => if stop.is_cancelled() { Ok(()) } else { Err(RunError::LostLease) },
        () = drive(context, &options.controllers) => Ok(()),
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
async fn drive(context: Context, controllers: &[ControllerName]) {
    let queue: Arc<Queue<Route>> = Arc::new(Queue::default());
    let mut watches = JoinSet::new();
    let mut synced = Vec::new();
    macro_rules! watch {
        ($api:expr) => {{
            let (sender, receiver) = tokio::sync::watch::channel(false);
            synced.push(receiver);
            let (queue, enabled) = (queue.clone(), controllers.to_vec());
            let enqueue = move |route: Route| {
                if enabled.contains(&route.controller) {
                    let debounce = debounce(&route);
                    queue.push(route, Instant::now() + debounce);
                }
            };
            watches.spawn(watch::follow(context.clone(), $api, enqueue, sender));
        }};
    }
    let client = &context.client;
    use kube::core::DeserializeGuard as Guard;
    if controllers.contains(&ControllerName::Volume) {
        watch!(Api::<Guard<quarry_api::Volume>>::all(client.clone()));
    }
    watch!(Api::<Guard<k8s_openapi::api::core::v1::PersistentVolume>>::all(client.clone()));
    watch!(Api::<Guard<k8s_openapi::api::storage::v1::StorageClass>>::all(client.clone()));
    watch!(Api::<Guard<k8s_openapi::api::core::v1::Node>>::all(client.clone()));
    watch!(Api::<Guard<quarry_api::NodeJob>>::all(client.clone()));
    watch!(Api::<Guard<quarry_api::NodeInventory>>::all(client.clone()));
    watch!(Api::<Guard<k8s_openapi::api::coordination::v1::Lease>>::namespaced(
        client.clone(),
        &context.namespace
    ));
    if controllers.contains(&ControllerName::Discovery) {
        watch!(Api::<Guard<quarry_api::LocalVolumeDiscovery>>::all(client.clone()));
        watch!(Api::<Guard<quarry_api::LocalVolumeDiscoveryResult>>::namespaced(
            client.clone(),
            &context.namespace
        ));
    }
    if controllers.contains(&ControllerName::LocalVolumeSet) {
        watch!(Api::<Guard<quarry_api::LocalVolumeSet>>::all(client.clone()));
    }
    if controllers.contains(&ControllerName::LocalVolume) {
        watch!(Api::<Guard<quarry_api::LocalVolume>>::all(client.clone()));
    }
    for receiver in &mut synced {
        // The sender lives as long as the watch, which never ends by itself.
        if receiver.wait_for(|synced| *synced).await.is_err() {
            return;
        }
    }
    context.metrics.set_ready();
    if controllers.contains(&ControllerName::Agent) {
        queue.push(Route { controller: ControllerName::Agent, key: String::new() }, Instant::now());
    }
    work(context, queue).await;
}

async fn work(context: Context, queue: Arc<Queue<Route>>) {
    let slots = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut running = JoinSet::new();
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let route = queue.next().await;
        while running.try_join_next().is_some() {}
        let (context, queue) = (context.clone(), queue.clone());
        running.spawn(async move {
            let delay = work_on(&context, &route).await;
            queue.done(&route);
            if let Some(delay) = delay {
                queue.push(route, Instant::now() + delay);
            }
            drop(slot);
        });
    }
}

/// How long until this key is due again by itself.
pub async fn work_on(context: &Context, route: &Route) -> Option<Duration> {
    let begun = Instant::now();
    let result = reconcile_once(context, route).await;
    let name = route.controller.as_str();
    let (outcome, delay) = match &result {
        Ok(Next::AwaitChange) => ("done", None),
        Ok(Next::Requeue(after)) => (
            "waiting",
            Some(Duration::try_from(*after).unwrap_or_default().max(Duration::from_millis(100))),
        ),
        Err(failure) if failure.at_once => ("conflict", Some(BEHIND)),
        Err(failure) => {
            tracing::warn!(controller = name, key = route.key, error = %failure, cause = failure.source.as_ref().map(tracing::field::display), "reconcile failed, trying again");
            ("failed", Some(backoff(waiting_since(context, route), context.now())))
        }
    };
    context.metrics.count_reconcile(name, outcome, begun.elapsed());
    for phase in [Phase::Available, Phase::Pending, Phase::Failed, Phase::Terminating] {
        if route.controller == ControllerName::Volume {
            let count = context
                .caches
                .volumes
                .all()
                .iter()
                .filter(|volume| volume.phase() == Some(phase))
                .count();
            context.metrics.set_volumes(phase.as_str(), count);
        }
    }
    delay
}

/// Since when the object has been as it is.
fn waiting_since(context: &Context, route: &Route) -> Option<Timestamp> {
    match route.controller {
        ControllerName::Volume => {
            let volume = context.caches.volumes.get(&route.key)?;
            let updated =
                volume.ready().and_then(|ready| ready.last_update_time.as_ref()).map(|time| time.0);
            updated.or(volume.creation_timestamp().map(|time| time.0))
        }
        ControllerName::Discovery => {
            context.caches.discoveries.get(&route.key)?.creation_timestamp().map(|time| time.0)
        }
        ControllerName::LocalVolumeSet => {
            context.caches.sets.get(&route.key)?.creation_timestamp().map(|time| time.0)
        }
        ControllerName::LocalVolume => {
            context.caches.local_volumes.get(&route.key)?.creation_timestamp().map(|time| time.0)
        }
        ControllerName::NodeInventory | ControllerName::DiscoveryResult => {
            context.caches.nodes.get(&route.key)?.creation_timestamp().map(|time| time.0)
        }
        ControllerName::NodeJob | ControllerName::Agent => None,
    }
}

/// Half as long as it has been waiting, from a quarter of a second to a minute: a young object is tried
/// often, an old one seldom, and no counter needs to survive a restart.
fn backoff(since: Option<Timestamp>, now: Timestamp) -> Duration {
    let waited = since.map_or(Duration::from_secs(2), |since| {
        Duration::try_from(now.duration_since(since)).unwrap_or_default()
    });
    (waited / 2).clamp(Duration::from_millis(250), Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_without_its_kinds_takes_its_other_half_with_it_and_nobody_else() {
        let mut all = ControllerName::ALL.to_vec();
        all.retain(|name| {
            !name.belongs_to(ControllerName::Discovery)
                && !name.belongs_to(ControllerName::LocalVolume)
        });
        assert_eq!(
            all,
            [
                ControllerName::Volume,
                ControllerName::NodeInventory,
                ControllerName::NodeJob,
                ControllerName::Agent
            ]
        );
    }
}
