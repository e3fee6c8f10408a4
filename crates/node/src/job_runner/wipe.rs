//! A wipe, from the first check to the last byte: no device is erased on an answer that may be old.
//!
//! The API is asked whether the reason still holds, the device is opened exclusively and verified on the node, and then
//! the API is asked once more, while no other process can take the device (invariant 2). Only then the intent is
//! recorded and the first byte written, through the descriptor that was held all along. No answer means no.

use super::{BACKOFF, JobRunner, LiveCheck, TRIES};
use crate::{
    device_claim::{HeldDevice, HoldRequest},
    error::NodeError,
    node_ops::{DeviceOps, LedgerOps},
    progress::Progress,
};
use quarry_api::ids::JobName;
use quarry_core::job::{JobOutcome, JobRun, Task, WipeDevice};
use quarry_failpoint::failpoint;

/// What the operator writes meanwhile makes us check again; it does not write all the time.
const ROUNDS: usize = 5;

impl<H: DeviceOps + LedgerOps> JobRunner<H> {
    /// `Err` when the API could not be asked: nothing was touched, and the job is run again later.
    pub async fn run_wipe<L: LiveCheck>(
        &self,
        job: &JobName,
        task: &WipeDevice,
        live: &L,
        progress: &Progress,
    ) -> Result<JobOutcome, L::Error> {
        let run = JobRun { job: job.clone(), task: Task::Wipe(task.clone()) };
        let outcome = self.wipe_to_the_end(&run, task, live, progress).await?;
        let entry = run.outcome(&outcome);
        let recorded =
            self.call("recording the outcome", move |ops| ops.record_outcome(&entry)).await;
        let Err(error) = recorded else { return Ok(outcome) };
        tracing::error!(
            %job,
            error = error.message(),
            "failed to record the outcome in the ledger"
        );
        Ok(match outcome {
            // An API restored from a backup may ask for this wipe again, and must learn that it was done: it is not
            // done until the ledger says so. Erasing the device once more is harmless while its PersistentVolume is
            // being deleted.
            JobOutcome::Erased(_) => JobOutcome::Failed(error.message()),
            JobOutcome::Prepared(_) | JobOutcome::Removed | JobOutcome::Failed(_) => outcome,
        })
    }

    async fn wipe_to_the_end<L: LiveCheck>(
        &self,
        run: &JobRun,
        task: &WipeDevice,
        live: &L,
        progress: &Progress,
    ) -> Result<JobOutcome, L::Error> {
        for _ in 0..ROUNDS {
            let request = match live.check_wipe(task).await? {
                Ok(request) => request,
                Err(why) => return Ok(JobOutcome::Failed(why)),
            };
            let held = match self.hold(&request).await {
                Ok(held) => held,
                Err(error) => return Ok(JobOutcome::Failed(error.message())),
            };
            failpoint!("wipe.held");
            match live.check_wipe(task).await? {
                Err(why) => return Ok(JobOutcome::Failed(why)),
                // Verified by what the cluster knew then; it knows something else now.
                Ok(now) if now.claim != request.claim || now.view.spec != request.view.spec => {
                    continue;
                }
                Ok(_) => {}
            }
            let (intent, policy, progress) = (run.intent(), task.policy, progress.clone());
            // An intent says that bytes are written: not where nothing is left to do.
            if !held.is_wiped()
                && let Err(error) =
                    self.call("recording the intent", move |ops| ops.record_intent(&intent)).await
            {
                return Ok(JobOutcome::Failed(error.message()));
            }
            let erased = self
                .workers
                .call_apart(&self.ops, "erasing the device", move |_| held.wipe(policy, &progress))
                .await;
            return Ok(match erased {
                Ok(how) => JobOutcome::Erased(how),
                Err(error) => JobOutcome::Failed(error.message()),
            });
        }
        Ok(JobOutcome::Failed(
            "what the cluster knows about this node changes all the time: nothing was touched"
                .into(),
        ))
    }

    async fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        let mut failures = 0;
        loop {
            let request = request.clone();
            match self.call("holding the device", move |ops| ops.hold(&request)).await {
                Err(error) if error.retryable() && failures + 1 < TRIES => failures += 1,
                other => return other,
            }
            tokio::time::sleep(BACKOFF.after_failures(failures)).await;
        }
    }
}
