//! The agent's loop: lease, inventory, jobs, until it is told to stop.

use super::{
    Agent, AgentError, AgentOptions, Restored, RunResult, Workers, chain,
    inventory_loop::{RescanTrigger, watch_kernel},
    lease::RENEW_EVERY,
    mount_watch::watch_uses,
    queue::Queue,
};
use crate::{
    host_root::HostRoot,
    node_ops::{LinuxNode, NodeOps},
};
use futures::{FutureExt, StreamExt};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{NodeInventory, NodeJob};
use quarry_core::event::PendingEvent;
use serde_json::json;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// When what could not be brought back is tried again, first and at most.
pub const RESTORE_AGAIN: Duration = Duration::from_secs(10);
const RESTORE_SELDOM: Duration = Duration::from_secs(600);
/// Together below ten seconds: a pod that is slower is killed.
const DRAIN: Duration = Duration::from_secs(7);
const FAREWELL: Duration = Duration::from_secs(2);

/// Volumes without their device.
#[derive(Default)]
struct Missing {
    due: Option<Instant>,
    tries: u32,
    told: Vec<(String, String)>,
}

/// Runs the agent of this node until `shutdown`. Fails at once while another agent runs here.
pub async fn run(
    client: Client,
    options: AgentOptions,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    crate::sys::keep_memory_small();
    let host = HostRoot::open(&options.host_root, &options.data_dir)
        .map_err(AgentError::ops("opening the data folder"))?;
    let ops = LinuxNode::open(host, options.observe_only)
        .map_err(AgentError::ops("starting the agent"))?;
    let workers = Workers::pool(options.workers).map_err(AgentError::ops("starting the agent"))?;
    Arc::new(Agent::new(client, Arc::new(ops), workers, options)).serve(shutdown).await;
    Ok(())
}

impl<H: NodeOps> Agent<H> {
    /// The loop over any hands; returns after `shutdown`, within ten seconds.
    pub async fn serve(self: Arc<Self>, shutdown: CancellationToken) {
        tracing::info!(node = self.options.node_name, "agent started");
        let bell = Arc::new(RescanTrigger::default());
        let mut helpers = JoinSet::new();
        helpers.spawn(self.clone().keep_lease());
        helpers.spawn(self.clone().keep_inventory(bell.clone()));
        helpers.spawn(self.clone().watch_inventory(bell.clone()));
        helpers.spawn(watch_kernel(bell.clone()));
        match HostRoot::view(&self.options.host_root) {
            Ok(host) => drop(helpers.spawn(watch_uses(bell.clone(), host))),
            Err(error) => tracing::warn!(
                error = error.message(),
                "mounts are seen with the next look only, not at once"
            ),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = async {
                let mut missing = Missing::default();
                self.bring_back(&mut missing).await;
                bell.ring();
                self.clone().serve_jobs(&bell, &shutdown, missing).await;
            } => {}
        }
        helpers.shutdown().await;
        match timeout(FAREWELL, self.release_lease()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = error.message(), "the lease runs out by itself")
            }
            Err(_) => tracing::warn!("the lease runs out by itself: the API does not answer"),
        }
        tracing::info!(node = self.options.node_name, "agent stopped");
    }

    async fn serve_jobs(
        self: Arc<Self>,
        bell: &RescanTrigger,
        shutdown: &CancellationToken,
        mut missing: Missing,
    ) {
        let jobs: Api<DeserializeGuard<NodeJob>> = Api::all(self.client.clone());
        let config =
            watcher::Config::default().fields(&format!("spec.nodeName={}", self.options.node_name));
        let mut events = watcher(jobs, config).default_backoff().boxed();
        let mut queue = Queue::default();
        let mut running: JoinSet<(String, Option<Result<RunResult, AgentError>>)> = JoinSet::new();
        loop {
            // Never beside a job: a restore and a cleanup of the same volume would undo each other.
            if !queue.has_volumes_running() && missing.due.is_some_and(|due| due <= Instant::now())
            {
                self.bring_back(&mut missing).await;
                bell.ring();
            }
            for job in queue.take_due(Instant::now()) {
                let (agent, name) = (self.clone(), job.name_any());
                let run = async move { agent.run_job(&job).await };
                // A panic in one job must not hold its volume for ever.
                running
                    .spawn(AssertUnwindSafe(run).catch_unwind().map(|result| (name, result.ok())));
            }
            let next = queue
                .next_due()
                .into_iter()
                .chain(missing.due.filter(|_| !queue.has_volumes_running()))
                .min();
            tokio::select! {
                () = shutdown.cancelled() => break,
                event = events.next() => match event {
                    Some(Ok(event)) => self.take_event(&mut queue, event).await,
                    Some(Err(error)) => tracing::warn!(error = chain(&error), "the watch on jobs broke; it is taken up again"),
                    None => break,
                },
                Some(ended) = running.join_next() => {
                    if let Ok((name, result)) = ended {
                        settle(&mut queue, &name, result);
                        bell.ring();
                    }
                },
                () = async { match next { Some(due) => sleep_until(due).await, None => std::future::pending().await } } => {}
            }
        }
        let drained = timeout(DRAIN, async { while running.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            // Safe at any point: the next agent looks at what is there and continues.
            tracing::warn!(jobs = running.len(), "leaving jobs unfinished");
        }
    }

    async fn take_event(
        &self,
        queue: &mut Queue,
        event: watcher::Event<DeserializeGuard<NodeJob>>,
    ) {
        match event {
            watcher::Event::Init => queue.relist(),
            watcher::Event::InitDone => queue.relisted(),
            watcher::Event::Delete(guard) => queue.deleted(&guard.name_any()),
            watcher::Event::Apply(DeserializeGuard(read))
            | watcher::Event::InitApply(DeserializeGuard(read)) => match read {
                Ok(job) => queue.seen(job),
                Err(invalid) => {
                    let name = invalid.metadata.name.clone().unwrap_or_default();
                    tracing::error!(
                        job = name,
                        error = invalid.error,
                        "this job cannot be read; it is failed, the others go on"
                    );
                    self.fail_unreadable(&name, &invalid.error).await;
                }
            },
        }
    }

    /// Told once: a job that says Failed already is left alone.
    async fn fail_unreadable(&self, name: &str, why: &str) {
        let jobs: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<NodeJob>(&()));
        let told = async {
            let current = jobs.get(name).await?;
            if current.data["status"]["phase"] == "Failed" {
                return Ok(());
            }
            let patch = json!({
                "metadata": {"resourceVersion": current.metadata.resource_version},
                "status": {"phase": "Failed", "message": format!("the job cannot be read by this agent: {why}")},
            });
            jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
        };
        if let Err(error) = told.await {
            tracing::warn!(job = name, error = chain(&error), "could not mark the job as failed");
        }
    }

    async fn keep_lease(self: Arc<Self>) {
        let mut last = None;
        loop {
            let begun = Instant::now();
            last = match self.renew_lease(last).await {
                Ok(lease) => Some(lease),
                Err(error) => {
                    tracing::warn!(
                        error = error.message(),
                        "the lease is renewed again in a moment"
                    );
                    sleep(Duration::from_secs(1)).await;
                    None
                }
            };
            if last.is_some() {
                sleep_until(begun + RENEW_EVERY).await;
            }
        }
    }

    /// At the start, and again while something is missing: a node that was short of loop devices for a moment must not
    /// keep a volume away until its agent is restarted.
    async fn bring_back(&self, missing: &mut Missing) {
        let failed = match self.restore().await {
            Ok(restored) => {
                // Told when it changes: at rest nothing is written.
                if restored.failed != missing.told {
                    self.tell_restored(&restored).await;
                }
                missing.told = restored.failed;
                !missing.told.is_empty()
            }
            Err(error) => {
                tracing::error!(error = error.message(), "no volume was brought back");
                true
            }
        };
        let pause =
            RESTORE_AGAIN.saturating_mul(2u32.saturating_pow(missing.tries)).min(RESTORE_SELDOM);
        missing.tries = missing.tries.saturating_add(1);
        missing.due = failed.then(|| Instant::now() + pause);
    }

    async fn tell_restored(&self, restored: &Restored) {
        if restored.failed.is_empty() {
            return;
        }
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let Ok(Some(inventory)) = inventories.get_opt(&self.options.node_name).await else {
            return;
        };
        let told = restored.failed.iter().map(|(uid, why)| {
            let message = format!("the device of volume {uid} could not be brought back: {why}")
                .chars()
                .take(1000)
                .collect();
            PendingEvent { reason: "RestoreFailed", warning: true, message }
        });
        self.tell(&inventory, &told.collect::<Vec<_>>()).await;
    }
}

/// What a run means for the queue; `None`: it panicked.
pub fn settle(queue: &mut Queue, name: &str, result: Option<Result<RunResult, AgentError>>) {
    match result {
        Some(Ok(RunResult::Gone)) => queue.put_off(name, Instant::now()),
        Some(Ok(RunResult::Skipped | RunResult::Succeeded(_) | RunResult::Failed(_))) => {
            queue.reported(name)
        }
        None => {
            tracing::error!(job = name, "running the job panicked; it is run again later");
            queue.put_off(name, Instant::now());
        }
        Some(Err(error)) => {
            tracing::warn!(job = name, error = error.message(), "the job is run again later");
            queue.put_off(name, Instant::now());
        }
    }
}
