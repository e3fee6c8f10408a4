//! A volume's task: observe, ask its backend what is next, apply, observe again, until there is nothing left to do.
//!
//! The intent is on disk before the first step, the outcome after the last. After a step that failed but may succeed
//! later, the backend is asked again from what is there now. Finished storage is never removed here, whatever fails:
//! a preparation that turns out to concern a volume with data must not cost that data. Only drafts are removed.

use super::{BACKOFF, JobRunner, TRIES};
use crate::{
    error::NodeError,
    node_ops::{LedgerOps, VolumeOps},
    progress::Progress,
};
use quarry_api::ids::{JobName, Uid};
use quarry_core::{
    job::{JobOutcome, JobRun, Task, VolumeTask},
    storage::{Backend, Done, Next},
};
use std::marker::PhantomData;

/// A volume is observed six times at most; more means that something undoes our work.
const ROUNDS: usize = 16;
/// At an agent's start there is less to do.
const RESTORE_ROUNDS: usize = 8;

impl<H: Send + Sync + 'static> JobRunner<H> {
    /// Never an error: what goes wrong is how the task ended.
    pub async fn run_volume<B: Backend>(
        &self,
        job: &JobName,
        task: &VolumeTask,
        progress: &Progress,
    ) -> JobOutcome
    where
        H: VolumeOps<B> + LedgerOps,
    {
        let run = VolumeRun {
            runner: self,
            run: JobRun { job: job.clone(), task: Task::Volume(task.clone()) },
            task,
            progress,
            backend: PhantomData::<B>,
        };
        let outcome = run.to_the_end().await;
        match (task, &outcome) {
            (VolumeTask::Prepare(_), JobOutcome::Failed(_)) => run.discard_draft().await,
            (VolumeTask::Prepare(_) | VolumeTask::Cleanup(_), _) => {}
        }
        run.record_outcome(&outcome).await;
        outcome
    }

    /// Gives a finished volume its device again; `true` when something had to be done, `Err` says why it could not.
    pub async fn restore_volume<B: Backend>(&self, uid: &Uid) -> Result<bool, String>
    where
        H: VolumeOps<B>,
    {
        let mut last = "";
        for round in 0..RESTORE_ROUNDS {
            let observed = {
                let uid = uid.clone();
                // A pod may be mounting it right now: nothing is opened exclusively.
                self.call("observing the volume", move |ops| ops.observe_shared(&uid))
                    .await
                    .map_err(|error| error.message())?
            };
            let steps = match B::next_restore(uid, &observed) {
                Next::Done(_) => return Ok(round > 0),
                Next::Refused(refusal) => return Err(refusal.to_string()),
                Next::Steps(steps) => steps,
            };
            for step in steps {
                last = B::describe(&step);
                let uid = uid.clone();
                match self.call(last, move |ops| ops.apply(&uid, &step)).await {
                    Err(error) if !error.retryable() => return Err(error.message()),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Err(format!("still not done after {RESTORE_ROUNDS} rounds, the last one was {last}"))
    }
}

struct VolumeRun<'a, H, B> {
    runner: &'a JobRunner<H>,
    run: JobRun,
    task: &'a VolumeTask,
    progress: &'a Progress,
    backend: PhantomData<B>,
}

impl<B: Backend, H: VolumeOps<B> + LedgerOps> VolumeRun<'_, H, B> {
    async fn to_the_end(&self) -> JobOutcome {
        let mut failures = 0;
        let mut recorded = false;
        for _ in 0..ROUNDS {
            let error = match self.round(&mut recorded).await {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => continue,
                Err(error) => error,
            };
            failures += 1;
            if !error.retryable() || failures >= TRIES {
                return JobOutcome::Failed(error.message());
            }
            tracing::info!(volume = %self.uid(), error = error.message(), "failed to run a step, retrying");
            tokio::time::sleep(BACKOFF.after_failures(failures)).await;
        }
        JobOutcome::Failed(format!(
            "still not done after {ROUNDS} rounds, the last one was {}: something on the node undoes it",
            self.progress.get().message
        ))
    }

    /// One observation and what follows from it; `Some` when the task has ended.
    async fn round(&self, recorded: &mut bool) -> Result<Option<JobOutcome>, NodeError> {
        let uid = self.uid();
        let observed =
            self.runner.call("observing the volume", move |ops| ops.observe(&uid)).await?;
        let steps = match B::next(self.task, &observed) {
            Next::Done(Done::Prepared(result)) => return Ok(Some(JobOutcome::Prepared(result))),
            Next::Done(Done::Removed) => return Ok(Some(JobOutcome::Removed)),
            Next::Refused(refusal) => return Ok(Some(JobOutcome::Failed(refusal.to_string()))),
            Next::Steps(steps) => steps,
        };
        if !*recorded {
            let intent = self.run.intent();
            self.runner.call("recording the intent", move |ops| ops.record_intent(&intent)).await?;
            *recorded = true;
        }
        for step in steps {
            let doing = B::describe(&step);
            self.progress.set(doing);
            let uid = self.uid();
            tracing::debug!(volume = %uid, ?step, "started");
            self.runner.call(doing, move |ops| ops.apply(&uid, &step)).await?;
        }
        Ok(None)
    }

    /// A preparation that failed leaves nothing unfinished.
    async fn discard_draft(&self) {
        let uid = self.uid();
        let discard = move |ops: &H| match B::discard(&ops.observe(&uid)?) {
            Some(step) => ops.apply(&uid, &step),
            None => Ok(()),
        };
        if let Err(error) = self.runner.call("removing the draft", discard).await {
            tracing::warn!(
                volume = %self.uid(),
                error = error.message(),
                "failed to remove the draft; it stays until the next try or the cleanup"
            );
        }
    }

    async fn record_outcome(&self, outcome: &JobOutcome) {
        let entry = self.run.outcome(outcome);
        let recorded =
            self.runner.call("recording the outcome", move |ops| ops.record_outcome(&entry)).await;
        if let Err(error) = recorded {
            // The work itself is done and reported; only the node's own record lacks the line.
            tracing::error!(
                volume = %self.uid(),
                error = error.message(),
                "failed to record the outcome in the ledger"
            );
        }
    }

    fn uid(&self) -> Uid {
        self.task.uid().clone()
    }
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
