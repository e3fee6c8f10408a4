//! The agent of one node: between the Kubernetes API and the operations on the node.
//!
//! Decides nothing: what to do comes from jobs, whether it may be done from `quarry_core::precondition`, how from
//! `quarry_core::storage`, when from `quarry_core::agent_schedule`. Remembers nothing that matters: kill it anywhere,
//! the next one continues. `run_job`, `publish_inventory`, `restore` and `renew_lease` can be called on their own, as
//! the simulator does. Next to read: `job.rs` (one job), `run.rs` (the loop), `../job_runner/mod.rs`.

mod device_claims;
mod events;
mod inventory;
mod job;
mod lease;
mod mount_watch;
mod precondition;
mod report;
mod restore;
mod run;
pub mod uevent;

pub use crate::{progress::Progress, workers::Workers};
pub use inventory::{Publication, Published};
pub use job::RunResult;
pub use quarry_core::{
    agent_schedule::ScanReason,
    job::{JobOutcome, JobRun},
};
pub use restore::Restored;
pub use run::{run, run_end};

use crate::{
    error::{NodeError, chain},
    host_root::DEFAULT_DATA_DIR,
    job_runner::JobRunner,
    workers::InFlight,
};
use jiff::Timestamp;
use kube::Client;
use quarry_api::{NodeInventory, names};
use quarry_core::{
    device::{SETTLING_TIME, Settling},
    precondition::PreconditionError,
};
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Where "now" comes from: the system, or a simulator.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Since any fixed moment, never backwards: for waiting times.
    elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    /// A clock that never jumps: a simulator's.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let now: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(now);
        let (start, of) = (now(), now.clone());
        Clock { now, elapsed: Arc::new(move || inventory::since(start, of())) }
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    pub fn elapsed(&self) -> Duration {
        (self.elapsed)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        let start = std::time::Instant::now();
        Clock { now: Arc::new(Timestamp::now), elapsed: Arc::new(move || start.elapsed()) }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The Kubernetes name of the node that this agent runs on.
    pub node_name: String,
    /// Where the operator and the agents' leases live.
    pub namespace: String,
    /// Where the node's own root is: `/`, or its mount in the pod.
    pub host_root: PathBuf,
    /// Volumes and ledger, as a path on the node.
    pub data_dir: PathBuf,
    /// Who holds the lease: the pod's name, or any name of this process.
    pub identity: String,
    /// How many threads apply steps. Fixed for the life of the agent.
    pub workers: usize,
    /// A job that takes longer is reported as running; one that ends sooner is reported once, by its end.
    pub progress_after: Duration,
    /// The progress of a long job is reported this often at most.
    pub progress_every: Duration,
    /// A device is not Available before it has been there, unchanged, for this long.
    pub settling_time: Duration,
    /// Every device is read again this often, whether the kernel sent an event or not.
    pub rescan_interval: Duration,
    /// Real disks (all but loops over files in the data directory) are never opened exclusively and never used.
    pub observe_only: bool,
    pub clock: Clock,
}

impl AgentOptions {
    pub fn new(node_name: impl Into<String>) -> Self {
        let node_name = node_name.into();
        AgentOptions {
            identity: format!("{node_name}-{}", std::process::id()),
            node_name,
            namespace: names::DEFAULT_NAMESPACE.to_owned(),
            host_root: PathBuf::from("/"),
            data_dir: PathBuf::from(DEFAULT_DATA_DIR),
            workers: 4,
            progress_after: Duration::from_secs(1),
            progress_every: Duration::from_secs(4),
            settling_time: SETTLING_TIME,
            rescan_interval: Duration::from_secs(3600),
            observe_only: false,
            clock: Clock::default(),
        }
    }
}

pub struct Agent<H> {
    client: Client,
    runner: JobRunner<H>,
    options: AgentOptions,
    settling: Mutex<Settling>,
    /// A scan of the devices that has not come back.
    scanning: InFlight,
    /// What the watch last delivered, while there is one.
    kept_inventory: Mutex<Option<Arc<NodeInventory>>>,
}

impl<H: Send + Sync + 'static> Agent<H> {
    pub fn new(client: Client, ops: Arc<H>, workers: Workers, options: AgentOptions) -> Self {
        Agent {
            client,
            runner: JobRunner::new(ops, workers),
            options,
            settling: Mutex::default(),
            scanning: InFlight::default(),
            kept_inventory: Mutex::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{attempt}")]
    Api { attempt: String, source: Box<kube::Error> },
    #[error("{attempt}")]
    NodeOps { attempt: String, source: NodeError },
    #[error("{attempt}")]
    Waiting { attempt: String, source: PreconditionError },
}

impl AgentError {
    pub(crate) fn api(attempt: impl Into<String>) -> impl FnOnce(kube::Error) -> AgentError {
        move |source| AgentError::Api { attempt: attempt.into(), source: Box::new(source) }
    }

    pub(crate) fn ops(attempt: impl Into<String>) -> impl FnOnce(NodeError) -> AgentError {
        move |source| AgentError::NodeOps { attempt: attempt.into(), source }
    }

    /// Whether trying again later may help.
    pub fn retryable(&self) -> bool {
        match self {
            // An API that does not answer, or answers no, may answer yes later: rights and objects come and go.
            AgentError::Api { .. } => true,
            AgentError::NodeOps { source, .. } => source.retryable(),
            AgentError::Waiting { .. } => true,
        }
    }

    pub fn message(&self) -> String {
        chain(self)
    }
}
