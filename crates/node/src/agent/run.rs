//! The agent's loop: starts what its schedule says is due, and reports to it how that ended, until shutdown.
//!
//! Never waits for any of it: lease, scan and jobs run beside each other. When what is due is decided in
//! `quarry_core::agent_schedule`, which the simulator drives as well.

use super::{
    Agent, AgentError, AgentOptions, Publication, Published, Restored, RunResult, Workers, chain,
    events::{RescanTrigger, watch_kernel},
    mount_watch::MountWatch,
    uevent::KernelEvent,
};
use crate::{host_root::HostRoot, linux::LinuxNode, node_ops::NodeOps};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{NodeInventory, NodeJob, ids::Uid};
use quarry_core::{
    agent_schedule::{AgentSchedule, RENEW_LEASE_EVERY, ScanEnd, Work},
    event::PendingEvent,
    job::queue::RunEnd,
};
use serde_json::json;
use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc::{Receiver, channel},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// Together below ten seconds: a pod that is slower is killed.
const DRAIN: Duration = Duration::from_secs(7);
const RELEASE: Duration = Duration::from_secs(2);
/// Triggers that wait for the loop; it empties them at once.
const TRIGGERS: usize = 64;

/// Volumes that have no device, and why.
type Unrestored = Vec<(Uid, String)>;

/// Runs the agent of this node until `shutdown`. Fails at once while another agent runs here.
pub async fn run(
    client: Client,
    options: AgentOptions,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    crate::sys::keep_memory_small();
    let host = HostRoot::open(&options.host_root, &options.data_dir)
        .map_err(AgentError::ops("opening the data directory"))?;
    let ops = LinuxNode::open(host, options.observe_only)
        .map_err(AgentError::ops("starting the agent"))?;
    let workers = Workers::pool(options.workers).map_err(AgentError::ops("starting the agent"))?;
    Arc::new(Agent::new(client, Arc::new(ops), workers, options)).serve(shutdown).await;
    Ok(())
}

impl<H: NodeOps> Agent<H> {
    /// The loop; returns after `shutdown`, within ten seconds.
    pub async fn serve(self: Arc<Self>, shutdown: CancellationToken) {
        tracing::info!(node = self.options.node_name, "started agent");
        let (triggers, received) = channel(TRIGGERS);
        let mut watches = JoinSet::new();
        watches.spawn(self.clone().watch_inventory(triggers.clone()));
        watches.spawn(watch_kernel(triggers.clone()));
        match HostRoot::view(&self.options.host_root) {
            Ok(host) => drop(watches.spawn(MountWatch::open(&host).run(triggers.clone()))),
            Err(error) => tracing::warn!(
                error = error.message(),
                "failed to watch mounts; changes are seen at the next scan only"
            ),
        }
        Loop::new(self.clone()).run(received, &shutdown).await;
        watches.shutdown().await;
        match timeout(RELEASE, self.release_lease()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = error.message(), "failed to release the lease; it expires")
            }
            Err(_) => tracing::warn!("failed to release the lease: no answer; it expires"),
        }
        tracing::info!(node = self.options.node_name, "stopped agent");
    }
}

struct Loop<H> {
    agent: Arc<Agent<H>>,
    schedule: AgentSchedule,
    started: Instant,
    jobs: JoinSet<(String, Option<Result<RunResult, AgentError>>)>,
    /// All other work. Safe to drop at any point.
    chores: JoinSet<Chore>,
    /// What the last renewal returned.
    lease: Option<Lease>,
    unrestored: Unrestored,
}

/// Other work that has ended; `None`: it failed.
enum Chore {
    Lease(Option<Box<Lease>>),
    Restore(Option<Unrestored>),
    Scan(Option<Publication>),
    /// Nothing waits for it.
    Other,
}

impl<H: NodeOps> Loop<H> {
    fn new(agent: Arc<Agent<H>>) -> Self {
        let rescan_interval = agent.options.rescan_interval;
        let schedule = AgentSchedule::new(RENEW_LEASE_EVERY, rescan_interval, Duration::ZERO);
        Loop {
            agent,
            schedule,
            started: Instant::now(),
            jobs: JoinSet::new(),
            chores: JoinSet::new(),
            lease: None,
            unrestored: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn run(mut self, mut triggers: Receiver<RescanTrigger>, shutdown: &CancellationToken) {
        let jobs: Api<DeserializeGuard<NodeJob>> = Api::all(self.agent.client.clone());
        let of_node = format!("spec.nodeName={}", self.agent.options.node_name);
        let config = watcher::Config::default().fields(&of_node);
        let mut events = watcher(jobs, config).default_backoff().boxed();
        loop {
            while let Some(work) = self.schedule.start_due(self.now()) {
                self.start(work);
            }
            let due = self.schedule.next_due().map(|due| self.started + due);
            let sleep = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                event = events.next() => match event {
                    Some(Ok(event)) => self.on_job_event(event),
                    Some(Err(error)) => {
                        tracing::warn!(error = chain(&error), "failed to watch NodeJobs, retrying")
                    }
                    None => break,
                },
                Some(trigger) = triggers.recv() => self.on_trigger(trigger),
                Some(ended) = self.jobs.join_next() => {
                    if let Ok((name, result)) = ended {
                        let end = run_end(&name, result.as_ref());
                        self.schedule.job_finished(&name, end, self.now());
                    }
                },
                Some(ended) = self.chores.join_next() => {
                    if let Ok(chore) = ended {
                        self.on_chore(chore);
                    }
                },
                () = sleep => {}
            }
        }
        let drained =
            timeout(DRAIN, async { while self.jobs.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            // Safe at any point: the next agent observes what is there and continues.
            tracing::warn!(jobs = self.jobs.len(), "stopped before every job was finished");
        }
        self.chores.shutdown().await;
    }

    fn start(&mut self, work: Work) {
        let agent = self.agent.clone();
        match work {
            Work::RenewLease => {
                let last = self.lease.take();
                self.spawn(Chore::Lease(None), async move { agent.renew_or_log(last).await });
            }
            Work::Restore => {
                let reported = self.unrestored.clone();
                self.spawn(Chore::Restore(None), async move {
                    Chore::Restore(agent.restore_and_report(&reported).await)
                });
            }
            Work::Scan(reason) => self.spawn(Chore::Scan(None), async move {
                let published = agent.publish_inventory(reason).await;
                Chore::Scan(published.map_err(log_unpublished).ok())
            }),
            Work::Job(job) => {
                let name = job.name_any();
                let run = async move { agent.run_job(&job).await };
                // A panic in one job must not block its volume for ever.
                self.jobs
                    .spawn(AssertUnwindSafe(run).catch_unwind().map(|result| (name, result.ok())));
            }
        }
    }

    /// A panic is a failure like any other.
    fn spawn(&mut self, failed: Chore, work: impl Future<Output = Chore> + Send + 'static) {
        self.chores
            .spawn(AssertUnwindSafe(work).catch_unwind().map(|ended| ended.unwrap_or(failed)));
    }

    fn on_chore(&mut self, chore: Chore) {
        let now = self.now();
        match chore {
            Chore::Lease(lease) => {
                self.schedule.lease_finished(lease.is_some(), now);
                self.lease = lease.map(|lease| *lease);
            }
            Chore::Restore(unrestored) => {
                let complete = unrestored.as_ref().is_some_and(Vec::is_empty);
                self.unrestored = unrestored.unwrap_or_else(|| self.unrestored.clone());
                self.schedule.restore_finished(complete, now);
            }
            Chore::Scan(publication) => {
                self.schedule.scan_finished(scan_end(publication), now);
                if !self.schedule.expects_follow_ups() {
                    crate::sys::give_memory_back();
                }
            }
            Chore::Other => {}
        }
    }

    fn on_trigger(&mut self, trigger: RescanTrigger) {
        let now = self.now();
        match trigger {
            RescanTrigger::Kernel(KernelEvent::Device(name)) => {
                self.schedule.on_device_event(name, now)
            }
            RescanTrigger::Kernel(KernelEvent::Lost) => self.schedule.on_events_lost(now),
            RescanTrigger::MountsChanged | RescanTrigger::InventoryChanged => {
                self.schedule.request_scan(now)
            }
        }
    }

    fn on_job_event(&mut self, event: watcher::Event<DeserializeGuard<NodeJob>>) {
        let queue = &mut self.schedule.jobs;
        match event {
            watcher::Event::Init => queue.relist(),
            watcher::Event::InitDone => queue.relisted(),
            watcher::Event::Delete(guard) => queue.deleted(&guard.name_any()),
            watcher::Event::Apply(DeserializeGuard(read))
            | watcher::Event::InitApply(DeserializeGuard(read)) => match read {
                Ok(job) => queue.seen(job),
                Err(invalid) => {
                    let name = invalid.metadata.name.unwrap_or_default();
                    tracing::error!(
                        job = name,
                        error = invalid.error,
                        "failed to read NodeJob; it is marked as failed, the others continue"
                    );
                    let agent = self.agent.clone();
                    self.spawn(Chore::Other, async move {
                        agent.fail_unreadable(&name, &invalid.error).await;
                        Chore::Other
                    });
                }
            },
        }
    }
}

impl<H: NodeOps> Agent<H> {
    async fn renew_or_log(&self, last: Option<Lease>) -> Chore {
        let renewed = self.renew_lease(last).await.inspect_err(|error| {
            tracing::warn!(error = error.message(), "failed to renew the lease")
        });
        Chore::Lease(renewed.ok().map(Box::new))
    }

    /// `None`: no volume was restored.
    async fn restore_and_report(&self, reported: &Unrestored) -> Option<Unrestored> {
        match self.restore().await {
            Ok(restored) => {
                // Reported when it changes: at rest nothing is written.
                if restored.failed != *reported {
                    self.report_unrestored(&restored).await;
                }
                Some(restored.failed)
            }
            Err(error) => {
                tracing::error!(error = error.message(), "failed to restore the volumes");
                None
            }
        }
    }

    async fn report_unrestored(&self, restored: &Restored) {
        if restored.failed.is_empty() {
            return;
        }
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let Ok(Some(inventory)) = inventories.get_opt(&self.options.node_name).await else {
            return;
        };
        let events = restored.failed.iter().map(|(uid, why)| {
            let message = format!("the device of volume {uid} could not be restored: {why}")
                .chars()
                .take(1000)
                .collect();
            PendingEvent { reason: "RestoreFailed", warning: true, message }
        });
        self.publish_events(&inventory, &events.collect::<Vec<_>>()).await;
    }

    /// Once: a job that is Failed already is left alone.
    async fn fail_unreadable(&self, name: &str, why: &str) {
        let jobs: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<NodeJob>(&()));
        let failed = async {
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
        if let Err(error) = failed.await {
            tracing::warn!(job = name, error = chain(&error), "failed to mark the job as failed");
        }
    }
}

fn log_unpublished(error: AgentError) {
    tracing::warn!(error = error.message(), "failed to publish the inventory, retrying");
}

fn scan_end(publication: Option<Publication>) -> ScanEnd {
    let Some(Publication { published, again_in }) = publication else { return ScanEnd::Failed };
    match published {
        // The watch delivers it once the operator has created it.
        Published::NoInventory => {
            tracing::debug!("the operator has not created the NodeInventory yet")
        }
        Published::Changed | Published::Unchanged => {}
    }
    ScanEnd::Published { again_in }
}

/// What a run means for its job; `None`: it panicked.
pub fn run_end(name: &str, result: Option<&Result<RunResult, AgentError>>) -> RunEnd {
    match result {
        Some(Ok(RunResult::Gone)) => RunEnd::RunAgain,
        Some(Ok(RunResult::Skipped | RunResult::Finished(_))) => RunEnd::Reported,
        None => {
            tracing::error!(job = name, "failed to run the job: its task panicked; retrying later");
            RunEnd::RunAgain
        }
        Some(Err(error)) => {
            tracing::warn!(
                job = name,
                error = error.message(),
                "failed to run the job; retrying later"
            );
            RunEnd::RunAgain
        }
    }
}
