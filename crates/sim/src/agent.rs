//! A simulated agent process: the real agent and its real schedule on simulated operations, one piece of work at a time.
//!
//! Disk operations go to a queue that the scheduler empties, so that they take time and others act meanwhile.
//! A crash drops everything here; what is on the disk and in the API is all that the next one finds.

use crate::{
    clock::Clock,
    disk::Disk,
    fault::{FaultKind, FaultPoint, Track},
    fault_proxy::{FaultProxy, Gate, Shared},
    kind::Kind,
    lock,
    node_ops::SimNode,
    operator::{LATE, RELIST_AFTER},
    story::NODE,
    versioned::Versioned,
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams};
use quarry_api::{NodeJob, names};
use quarry_apiserver::ApiService;
use quarry_core::agent_schedule::{AgentSchedule, ScanEnd, Work as Due};
use quarry_node::{
    Agent as RealAgent, AgentOptions,
    agent::{AgentError, Clock as AgentClock, Publication, RunResult, Workers, run_end},
};
use serde::Deserialize;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};
use tokio::time::Instant;

/// How soon a list that failed is tried again.
const LIST_AGAIN: Duration = Duration::from_secs(1);

type Work = Box<dyn FnOnce() + Send>;

pub enum Done {
    Lease(Option<Box<Lease>>),
    Restored { all: bool },
    Listed(Option<(u64, Vec<NodeJob>)>),
    Job { name: String, ran: Result<RunResult, AgentError> },
    Inventory(Option<Publication>),
}

pub struct Agent {
    pub gate: Arc<Gate>,
    pub task: Option<BoxFuture<'static, Done>>,
    agent: Arc<RealAgent<SimNode>>,
    client: Client,
    shared: Arc<Shared>,
    incoming: mpsc::Receiver<Work>,
    work: VecDeque<(Instant, Work)>,
    pace: Duration,
    lease: Option<Box<Lease>>,
    list_due: Option<Instant>,
    schedule: AgentSchedule,
    /// From which the schedule counts.
    started: Instant,
    jobs_cursor: Option<u64>,
    held_until: Instant,
    inventory_cursor: u64,
    disk: Arc<Mutex<Versioned<Disk>>>,
    uevent_cursor: u64,
}

impl Agent {
    pub fn start(
        service: ApiService,
        shared: Arc<Shared>,
        clock: Clock,
        disk: Arc<Mutex<Versioned<Disk>>>,
        number: u32,
        pace: Duration,
        renew_every: Duration,
    ) -> Self {
        let gate = Arc::new(Gate::default());
        let proxy =
            FaultProxy { service, track: Track::Agent, gate: gate.clone(), shared: shared.clone() };
        let client = Client::new(proxy, names::DEFAULT_NAMESPACE);
        let uevent_cursor = lock(&disk).uevents;
        let ops = SimNode { disk: disk.clone(), gate: gate.clone(), shared: shared.clone() };
        let (sender, incoming) = mpsc::channel();
        let mut options = AgentOptions::new(NODE);
        options.identity = format!("agent-{number}");
        options.clock = AgentClock::new(move || clock.now());
        let schedule = AgentSchedule::new(renew_every, options.rescan_interval, Duration::ZERO);
        let agent =
            Arc::new(RealAgent::new(client.clone(), Arc::new(ops), Workers::Pool(sender), options));
        let now = Instant::now();
        Agent {
            gate,
            task: None,
            agent,
            client,
            shared,
            incoming,
            work: VecDeque::new(),
            pace,
            lease: None,
            list_due: Some(now),
            schedule,
            started: now,
            jobs_cursor: None,
            held_until: now,
            inventory_cursor: 0,
            disk,
            uevent_cursor,
        }
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.duration_since(self.started)
    }

    /// Disk operations that were asked for and not yet done.
    pub fn gather(&mut self) -> usize {
        while let Ok(work) = self.incoming.try_recv() {
            self.work.push_back((Instant::now() + self.pace, work));
        }
        self.work.len()
    }

    pub fn take_work(&mut self, now: Instant) -> Option<Work> {
        self.gather();
        if self.work.front()?.0 > now {
            return None;
        }
        self.work.pop_front().map(|(_, work)| work)
    }

    pub fn work_due(&self) -> Option<Instant> {
        self.work.front().map(|(due, _)| *due)
    }

    /// Takes the events of its two watches. Events of jobs may be lost or late, as an operator's.
    pub fn watch(&mut self) {
        let now = Instant::now();
        let world = lock(&self.shared.world);
        while let Some(change) = world.next_change(Kind::Inventory, self.inventory_cursor) {
            self.inventory_cursor = change.version;
            self.schedule.request_scan(now.duration_since(self.started));
        }
        drop(world);
        self.hear_kernel(now);
        let world = lock(&self.shared.world);
        let Some(mut cursor) = self.jobs_cursor else { return };
        while let Some(change) =
            world.next_change(Kind::Job, cursor).filter(|_| self.held_until <= now)
        {
            let label = format!(
                "{} {}",
                change.name,
                if change.after.is_some() { "changed" } else { "deleted" }
            );
            let fault = lock(&self.shared.injector).pass(
                Track::Jobs,
                &label,
                &[(FaultPoint::Before, FaultKind::Lost), (FaultPoint::Before, FaultKind::Late)],
            );
            self.shared.note(|| {
                format!(
                    "jobs: {label}{}",
                    fault.map_or_else(String::new, |(_, what)| format!("  <== {what:?}"))
                )
            });
            match fault {
                Some((_, FaultKind::Late)) => {
                    self.held_until = now + LATE;
                    break;
                }
                Some(_) => {
                    cursor = change.version;
                    self.list_due = Some(now + RELIST_AFTER);
                    continue;
                }
                None => cursor = change.version,
            }
            match change.after.as_ref().map(NodeJob::deserialize) {
                Some(Ok(job)) if job.spec.node_name == NODE => self.schedule.jobs.seen(job),
                Some(_) => {}
                None => self.schedule.jobs.deleted(&change.name),
            }
        }
        self.jobs_cursor = Some(cursor);
    }

    /// What a lost event was about is found by the scan that comes anyway.
    fn hear_kernel(&mut self, now: Instant) {
        let sent = lock(&self.disk).uevents;
        while self.uevent_cursor < sent {
            self.uevent_cursor += 1;
            let fault = lock(&self.shared.injector).pass(
                Track::Kernel,
                "uevent",
                &[(FaultPoint::Before, FaultKind::Lost)],
            );
            self.shared.note(|| format!("kernel: event{}", fault.map_or("", |_| "  <== Lost")));
            if fault.is_none() {
                // Whichever device it names: a simulated scan reads them all.
                self.schedule.on_device_event("sda".to_owned(), self.since_start(now));
            }
        }
    }

    /// Begins what is due, in the order of the schedule.
    pub fn begin_due(&mut self, now: Instant) -> bool {
        let agent = self.agent.clone();
        if self.list_due.is_some_and(|due| due <= now) {
            self.list_due = None;
            let jobs: Api<NodeJob> = Api::all(self.client.clone());
            self.task = Some(list(jobs).boxed());
            return true;
        }
        let Some(due) = self.schedule.start_due(self.since_start(now)) else { return false };
        self.task = Some(match due {
            Due::RenewLease => {
                let last = self.lease.take().map(|lease| *lease);
                async move { Done::Lease(agent.renew_lease(last).await.ok().map(Box::new)) }.boxed()
            }
            Due::Restore => async move {
                let restored = agent.restore().await;
                Done::Restored { all: restored.is_ok_and(|restored| restored.failed.is_empty()) }
            }
            .boxed(),
            Due::Job(job) => {
                let name = job.metadata.name.clone().unwrap_or_default();
                async move { Done::Job { name, ran: agent.run_job(&job).await } }.boxed()
            }
            Due::Scan(reason) => {
                async move { Done::Inventory(agent.publish_inventory(reason).await.ok()) }.boxed()
            }
        });
        true
    }

    pub fn due(&self, now: Instant) -> bool {
        let list = self.list_due.is_some_and(|due| due <= now);
        let now = self.since_start(now);
        list || self.schedule.next_due().is_some_and(|due| due <= now)
    }

    /// When it has something to do, if nothing else happens.
    pub fn next_due(&self) -> Option<Instant> {
        let held = (self.held_until > Instant::now()).then_some(self.held_until);
        let scheduled = self.schedule.next_due().map(|due| self.started + due);
        [held, self.list_due, scheduled].into_iter().flatten().min()
    }

    pub fn finish(&mut self, done: Done) {
        let instant = Instant::now();
        let now = self.since_start(instant);
        self.task = None;
        match done {
            Done::Lease(lease) => {
                self.schedule.lease_finished(lease.is_some(), now);
                self.lease = lease;
            }
            Done::Restored { all } => self.schedule.restore_finished(all, now),
            Done::Listed(None) => self.list_due = Some(instant + LIST_AGAIN),
            Done::Listed(Some((version, jobs))) => {
                self.jobs_cursor = Some(version);
                let queue = &mut self.schedule.jobs;
                queue.relist();
                jobs.into_iter().for_each(|job| queue.seen(job));
                queue.relisted();
            }
            Done::Job { name, ran } => {
                self.schedule.job_finished(&name, run_end(&name, Some(&ran)), now)
            }
            Done::Inventory(publication) => {
                let end = match publication {
                    Some(Publication { again_in, .. }) => ScanEnd::Published { again_in },
                    None => ScanEnd::Failed,
                };
                self.schedule.scan_finished(end, now);
            }
        }
    }

    /// From now on, renewals are this rare.
    pub fn slow_down(&mut self, renew_every: Duration) {
        self.schedule.renew_lease_every(renew_every, self.since_start(Instant::now()));
    }
}

async fn list(jobs: Api<NodeJob>) -> Done {
    let listed = jobs.list(&ListParams::default().fields(&format!("spec.nodeName={NODE}"))).await;
    Done::Listed(listed.ok().map(|list| {
        let version = list
            .metadata
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        (version, list.items)
    }))
}
