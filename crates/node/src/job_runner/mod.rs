//! Runs tasks on a node: one runner for every executor, the agent now, others later.
//!
//! Flow: whatever asks for the job has been checked; the runner observes, asks core what is next, records the intent,
//! applies, and records the outcome. Guarantees: the intent is on disk before the first step and the outcome after the
//! last; a wipe is checked live once more while its device is held. Caveat: it knows no API object but through
//! `LiveCheck`, and reports nothing. Next to read: `volume.rs`, `wipe.rs`, `quarry_core::job`.

mod volume;
mod wipe;

use crate::{
    device_claim::HoldRequest,
    error::NodeError,
    node_ops::NodeOps,
    progress::Progress,
    workers::{InFlight, Workers},
};
use quarry_core::{
    backoff::Backoff,
    job::{JobOutcome, JobRun, Task, WipeDevice},
    storage::sparse::Sparse,
};
use std::{future::Future, sync::Arc, time::Duration};

/// A step that fails in a way that may pass is tried this often.
const TRIES: u32 = 5;
/// A process that only reads the device (udev, blkid) is gone by then.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));

/// Asks whether the reason for a wipe still holds. No answer means no: the error ends the run, and nothing was touched.
pub trait LiveCheck: Sync {
    type Error: Send;

    /// What is to be held; the inner `Err` says why the reason does not hold.
    fn check_wipe(
        &self,
        task: &WipeDevice,
    ) -> impl Future<Output = Result<Result<HoldRequest, String>, Self::Error>> + Send;
}

pub struct JobRunner<H> {
    ops: Arc<H>,
    workers: Workers,
}

// Not derived: the operations themselves need not be cloneable.
impl<H> Clone for JobRunner<H> {
    fn clone(&self) -> Self {
        JobRunner { ops: self.ops.clone(), workers: self.workers.clone() }
    }
}

impl<H: Send + Sync + 'static> JobRunner<H> {
    pub fn new(ops: Arc<H>, workers: Workers) -> Self {
        JobRunner { ops, workers }
    }

    /// A blocking operation, on a worker.
    pub async fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        call: impl FnOnce(&H) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        self.workers.call(&self.ops, doing, call).await
    }

    /// As `call`, with a limit; see `Workers::call_within`.
    pub async fn call_within<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: (Duration, &InFlight),
        call: impl FnOnce(&H) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        self.workers.call_within(&self.ops, doing, limit, call).await
    }
}

impl<H: NodeOps> JobRunner<H> {
    /// To its end. `Err` when the live check could not be made: nothing was touched, and the job is run again later.
    pub async fn run<L: LiveCheck>(
        &self,
        run: &JobRun,
        live: &L,
        progress: &Progress,
    ) -> Result<JobOutcome, L::Error> {
        match &run.task {
            Task::Volume(task) => Ok(self.run_volume::<Sparse>(&run.job, task, progress).await),
            Task::Wipe(task) => self.run_wipe(&run.job, task, live, progress).await,
        }
    }
}
