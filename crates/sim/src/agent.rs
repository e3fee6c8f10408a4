//! A simulated agent process: the real agent on simulated hands, its parts called one by one as its loop calls them.
//!
//! Disk operations go to a queue that the scheduler empties, so that they take time and others act meanwhile.
//! A crash drops everything here; what is on the disk and in the API is all that the next one finds.

use crate::{
    clock::Clock,
    disk::Disk,
    fault::{Track, What, When},
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
use quarry_node::{
    Agent as RealAgent, AgentOptions,
    agent::{
        AgentError, Clock as AgentClock, Publication, Queue, RESTORE_AGAIN, RunResult, ScanReason,
        Workers, settle,
    },
};
use serde::Deserialize;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};
use tokio::time::Instant;

/// As the agent's own loop: how long changes are gathered, how often it looks anyway, its first pause.
const DEBOUNCE: Duration = Duration::from_millis(10);
const LOOK_ANYWAY: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
    lease_due: Instant,
    restore_due: Option<Instant>,
    list_due: Option<Instant>,
    inventory_due: Instant,
    debounce: Duration,
    queue: Queue,
    /// Taken from the queue, to be run one after the other.
    ready: VecDeque<NodeJob>,
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
    ) -> Self {
        let gate = Arc::new(Gate::default());
        let door =
            FaultProxy { service, track: Track::Agent, gate: gate.clone(), shared: shared.clone() };
        let client = Client::new(door, names::DEFAULT_NAMESPACE);
        let uevent_cursor = lock(&disk).uevents;
        let ops = SimNode { disk: disk.clone(), gate: gate.clone(), shared: shared.clone() };
        let (sender, incoming) = mpsc::channel();
        let mut options = AgentOptions::new(NODE);
        options.identity = format!("agent-{number}");
        options.clock = AgentClock::new(move || clock.now());
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
            lease_due: now,
            restore_due: Some(now),
            list_due: Some(now),
            inventory_due: now + LOOK_ANYWAY,
            debounce: PAUSE,
            queue: Queue::default(),
            ready: VecDeque::new(),
            jobs_cursor: None,
            held_until: now,
            inventory_cursor: 0,
            disk,
            uevent_cursor,
        }
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

    /// Takes in what its two watches have to say. Events of jobs may be lost or late, as an operator's.
    pub fn watch(&mut self) {
        let now = Instant::now();
        let world = lock(&self.shared.world);
        while let Some(change) = world.next_change(Kind::Inventory, self.inventory_cursor) {
            self.inventory_cursor = change.version;
            self.inventory_due = self.inventory_due.min(Instant::now() + DEBOUNCE);
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
                &[(When::Before, What::Lost), (When::Before, What::Late)],
            );
            self.shared.note(|| {
                format!(
                    "jobs: {label}{}",
                    fault.map_or_else(String::new, |(_, what)| format!("  <== {what:?}"))
                )
            });
            match fault {
                Some((_, What::Late)) => {
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
                Some(Ok(job)) if job.spec.node_name == NODE => self.queue.seen(job),
                Some(_) => {}
                None => self.queue.deleted(&change.name),
            }
        }
        self.jobs_cursor = Some(cursor);
        self.ready.extend(self.queue.take_due(now));
    }

    /// A lost event is found by the look that comes anyway.
    fn hear_kernel(&mut self, now: Instant) {
        let sent = lock(&self.disk).uevents;
        while self.uevent_cursor < sent {
            self.uevent_cursor += 1;
            let fault = lock(&self.shared.injector).pass(
                Track::Kernel,
                "uevent",
                &[(When::Before, What::Lost)],
            );
            self.shared.note(|| format!("kernel: event{}", fault.map_or("", |_| "  <== Lost")));
            if fault.is_none() {
                self.inventory_due = self.inventory_due.min(now + DEBOUNCE);
            }
        }
    }

    /// The most pressing thing to do, in the order of the agent's own loop.
    pub fn begin_due(&mut self, now: Instant) -> bool {
        let agent = self.agent.clone();
        if self.lease_due <= now {
            let last = self.lease.take().map(|lease| *lease);
            self.task = Some(
                async move { Done::Lease(agent.renew_lease(last).await.ok().map(Box::new)) }
                    .boxed(),
            );
        } else if self.restore_due.is_some_and(|due| due <= now) {
            self.restore_due = None;
            self.task = Some(
                async move {
                    Done::Restored {
                        all: agent.restore().await.is_ok_and(|restored| restored.failed.is_empty()),
                    }
                }
                .boxed(),
            );
        } else if self.list_due.is_some_and(|due| due <= now) {
            self.list_due = None;
            let jobs: Api<NodeJob> = Api::all(self.client.clone());
            self.task = Some(list(jobs).boxed());
        } else if let Some(job) = self.ready.pop_front() {
            let name = job.metadata.name.clone().unwrap_or_default();
            self.task =
                Some(async move { Done::Job { name, ran: agent.run_job(&job).await } }.boxed());
        } else if self.inventory_due <= now {
            self.inventory_due = now + LOOK_ANYWAY;
            self.task = Some(
                async move {
                    Done::Inventory(agent.publish_inventory(ScanReason::default()).await.ok())
                }
                .boxed(),
            );
        } else {
            return false;
        }
        true
    }

    pub fn due(&self, now: Instant) -> bool {
        !self.ready.is_empty() || self.next_due() <= now
    }

    pub fn next_due(&self) -> Instant {
        let held = (self.held_until > Instant::now()).then_some(self.held_until);
        self.queue
            .next_due()
            .into_iter()
            .chain(held)
            .chain(self.restore_due)
            .chain(self.list_due)
            .chain([self.lease_due, self.inventory_due])
            .min()
            .unwrap_or(self.lease_due)
    }

    pub fn finish(&mut self, done: Done, renew_every: Duration) {
        let now = Instant::now();
        self.task = None;
        match done {
            Done::Lease(lease) => {
                self.lease_due = now + if lease.is_some() { renew_every } else { PAUSE };
                self.lease = lease;
            }
            Done::Restored { all } => {
                self.restore_due = (!all).then(|| now + RESTORE_AGAIN);
                self.inventory_due = self.inventory_due.min(now + DEBOUNCE);
            }
            Done::Listed(None) => self.list_due = Some(now + PAUSE),
            Done::Listed(Some((version, jobs))) => {
                self.jobs_cursor = Some(version);
                self.queue.relist();
                jobs.into_iter().for_each(|job| self.queue.seen(job));
                self.queue.relisted();
                self.ready.extend(self.queue.take_due(now));
            }
            Done::Job { name, ran } => {
                self.inventory_due = self.inventory_due.min(now + DEBOUNCE);
                settle(&mut self.queue, &name, Some(ran));
            }
            Done::Inventory(Some(publication)) => {
                self.debounce = PAUSE;
                if let Some(after) = publication.again_in {
                    self.inventory_due = self.inventory_due.min(now + after);
                }
            }
            Done::Inventory(None) => {
                self.inventory_due = now + self.debounce;
                self.debounce = (self.debounce * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// The next renewal is not before this long.
    pub fn slow_down(&mut self, renew_every: Duration) {
        self.lease_due = Instant::now() + renew_every;
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
