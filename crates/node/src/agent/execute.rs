//! The local half of a job: look, plan, act, look again, until there is nothing left to do.
//!
//! The intent is on disk before the first step, the outcome after the last. After a step that failed but may go
//! through later, the plan is made anew from what is there now. A finished file is never removed here, whatever
//! fails: a preparation that turns out to concern a volume with data must not cost that data. Only drafts go.

use super::Workers;
use crate::{
    error::NodeError,
    node_ops::{Intent, NodeOps, Outcome, OutcomeResult, Subject},
    progress::Progress,
};
use quarry_api::{
    node_job::{Action, ClaimedDevice, JobResult, NodeJob, WipePolicy},
    quantity::Bytes,
};
use quarry_core::{
    mkfs_options,
    sparse::{Format, Plan, Step, Target, plan_cleanup, plan_prepare},
};
use std::{sync::Arc, time::Duration};

/// A volume needs six looks at most; more means that something undoes our work.
const ROUNDS: usize = 16;
const RETRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// A job, as far as the hands are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRun {
    pub job: String,
    /// The volume's; empty for a claimed device.
    pub uid: String,
    pub task: Task,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    Prepare(Target),
    Cleanup,
    /// Carried out by `wipe.rs`: it asks the API once more while it holds the device.
    Wipe {
        device: ClaimedDevice,
        policy: WipePolicy,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Succeeded(Option<JobResult>),
    /// A device is blank again; how it was done.
    Erased(String),
    Failed(String),
}

impl JobRun {
    /// `Err` says what is wrong with the job.
    pub fn of(job: &NodeJob) -> Result<Self, String> {
        let spec = &job.spec;
        if spec.action == Action::Wipe {
            return Self::wipe_of(job);
        }
        let Some(file) = &spec.device.sparse_file else {
            return Err("the job names no device".into());
        };
        let uid = file.volume_uid.clone();
        // What was checked live is the owner; it must be the owner's storage that is touched.
        if uid != spec.owner.uid {
            return Err("the job's device is not that of the volume that asked for it".into());
        }
        let task = match spec.action {
            Action::Cleanup => Task::Cleanup,
            Action::Prepare => {
                let target = spec
                    .parameters
                    .as_ref()
                    .and_then(|parameters| Target::from_parameters(&uid, parameters));
                let target = target
                    .filter(|target| target.size.0 > 0)
                    .ok_or("the job does not say what to prepare")?;
                if let Format::Filesystem { fs, options } = &target.format {
                    // Whoever may create jobs must not gain more than whoever may write a StorageClass.
                    mkfs_options::check(*fs, options)?;
                }
                Task::Prepare(target)
            }
            Action::Wipe => return Self::wipe_of(job),
        };
        Ok(JobRun { job: job.metadata.name.clone().unwrap_or_default(), uid, task })
    }

    fn wipe_of(job: &NodeJob) -> Result<Self, String> {
        let Some(device) = job.spec.device.claimed.clone() else {
            return Err("the job names no claimed device".into());
        };
        let parameters =
            job.spec.parameters.as_ref().filter(|parameters| parameters.size == device.size);
        let policy = parameters
            .and_then(|parameters| parameters.wipe.as_ref())
            .map(|wipe| wipe.policy)
            .ok_or("the job does not say how to erase the device")?;
        Ok(JobRun {
            job: job.metadata.name.clone().unwrap_or_default(),
            uid: String::new(),
            task: Task::Wipe { device, policy },
        })
    }

    pub fn subject(&self) -> Subject {
        match &self.task {
            Task::Prepare(_) | Task::Cleanup => Subject::Volume(self.uid.clone()),
            Task::Wipe { device, .. } => Subject::Device {
                identity: device.identity.clone(),
                pv_name: device.pv_name.clone(),
                pv_uid: device.pv_uid.clone(),
            },
        }
    }

    pub fn action(&self) -> Action {
        match &self.task {
            Task::Prepare(_) => Action::Prepare,
            Task::Cleanup => Action::Cleanup,
            Task::Wipe { .. } => Action::Wipe,
        }
    }

    pub(super) fn intent(&self) -> Intent {
        Intent {
            job: self.job.clone(),
            action: self.action(),
            subject: self.subject(),
            text: self.describe(),
        }
    }

    pub(super) fn outcome(&self, ended: &JobOutcome) -> Outcome {
        let (result, text) = match ended {
            JobOutcome::Succeeded(result) => (
                OutcomeResult::Succeeded,
                result
                    .as_ref()
                    .map(|r| format!("{} on {}", r.path, r.device_name))
                    .unwrap_or_default(),
            ),
            JobOutcome::Erased(how) => (OutcomeResult::Succeeded, how.clone()),
            JobOutcome::Failed(why) => (OutcomeResult::Failed, why.clone()),
        };
        Outcome {
            job: self.job.clone(),
            action: self.action(),
            subject: self.subject(),
            result,
            text,
        }
    }

    fn describe(&self) -> String {
        match &self.task {
            Task::Cleanup => "remove".into(),
            Task::Wipe { device, policy } => format!(
                "{} of {}",
                policy.as_str(),
                Bytes(u64::try_from(device.size).unwrap_or_default())
            ),
            Task::Prepare(Target { size, format: Format::Partition, .. }) => {
                format!("{size}, one partition")
            }
            Task::Prepare(Target { size, format: Format::Filesystem { fs, options }, .. }) => {
                [size.to_string(), fs.as_str().to_owned(), options.join(" ")]
                    .join(" ")
                    .trim_end()
                    .to_owned()
            }
        }
    }
}

/// To its end, whatever it is. Never an error: what goes wrong is how the job ended.
pub async fn carry_out<H: NodeOps>(
    ops: &Arc<H>,
    workers: &Workers,
    order: &JobRun,
    progress: &Progress,
) -> JobOutcome {
    let run = Run { ops, workers, order, progress };
    let ended = run.to_the_end().await;
    if matches!((&ended, order.action()), (JobOutcome::Failed(_), Action::Prepare)) {
        run.discard_draft().await;
    }
    run.record_outcome(&ended).await;
    ended
}

struct Run<'a, H> {
    ops: &'a Arc<H>,
    workers: &'a Workers,
    order: &'a JobRun,
    progress: &'a Progress,
}

impl<H: NodeOps> Run<'_, H> {
    async fn to_the_end(&self) -> JobOutcome {
        let mut failures = 0;
        let mut recorded = false;
        for _ in 0..ROUNDS {
            let error = match self.round(&mut recorded).await {
                Ok(Some(ended)) => return ended,
                Ok(None) => continue,
                Err(error) => error,
            };
            failures += 1;
            if !error.retryable() || failures >= RETRIES {
                return JobOutcome::Failed(error.message());
            }
            tracing::info!(volume = self.order.uid, error = error.message(), "trying again");
            tokio::time::sleep(FIRST_PAUSE * 2u32.pow(failures)).await;
        }
        JobOutcome::Failed(format!(
            "still not done after {ROUNDS} rounds, the last one was {}: something on the node undoes it",
            self.progress.get().words
        ))
    }

    /// One look and what follows from it; `Some` when the job has ended.
    async fn round(&self, recorded: &mut bool) -> Result<Option<JobOutcome>, NodeError> {
        let uid = self.order.uid.clone();
        let seen = self.call("looking at the volume", move |ops| ops.look(&uid)).await?;
        let plan = match &self.order.task {
            Task::Prepare(target) => plan_prepare(target, &seen),
            Task::Cleanup => plan_cleanup(&seen),
            Task::Wipe { .. } => {
                return Ok(Some(JobOutcome::Failed("a claimed device is not a volume".into())));
            }
        };
        let steps = match plan {
            Plan::Done(result) => return Ok(Some(JobOutcome::Succeeded(result))),
            Plan::Refused(refusal) => return Ok(Some(JobOutcome::Failed(refusal.to_string()))),
            Plan::Steps(steps) => steps,
        };
        if !*recorded {
            let intent = self.order.intent();
            self.call("recording the intent", move |ops| ops.record_intent(&intent)).await?;
            *recorded = true;
        }
        for step in steps {
            self.step(step).await?;
        }
        Ok(None)
    }

    async fn step(&self, step: Step) -> Result<(), NodeError> {
        let words = words(&step);
        self.progress.set(words);
        let uid = self.order.uid.clone();
        tracing::debug!(volume = self.order.uid, ?step, "step");
        self.call(words, move |ops| ops.act(&uid, &step)).await
    }

    /// A preparation that failed leaves nothing half made behind.
    async fn discard_draft(&self) {
        let uid = self.order.uid.clone();
        let discarded = self
            .call("removing the draft", move |ops| {
                let seen = ops.look(&uid)?;
                if seen.draft && seen.in_ledger {
                    ops.act(&uid, &Step::DiscardDraft)
                } else {
                    Ok(())
                }
            })
            .await;
        if let Err(error) = discarded {
            tracing::warn!(
                volume = self.order.uid,
                error = error.message(),
                "the draft stays until the next try or the cleanup"
            );
        }
    }

    async fn record_outcome(&self, ended: &JobOutcome) {
        let outcome = self.order.outcome(ended);
        if let Err(error) =
            self.call("recording the outcome", move |ops| ops.record_outcome(&outcome)).await
        {
            // The work itself is done and reported; only the node's own diary lacks the line.
            tracing::error!(
                volume = self.order.uid,
                error = error.message(),
                "the outcome is missing in the ledger"
            );
        }
    }

    async fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        call: impl FnOnce(&H) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        self.workers.call(self.ops, doing, call).await
    }
}

pub(super) fn words(step: &Step) -> &'static str {
    match step {
        Step::DiscardDraft => "removing an unfinished file",
        Step::MakeDraft { .. } => "making the file",
        Step::FormatDraft(Format::Filesystem { .. }) => "making the file system",
        Step::FormatDraft(Format::Partition) => "making the partition table",
        Step::PublishDraft => "finishing the file",
        Step::Attach { .. } => "attaching the loop device",
        Step::AddPartition { .. } => "adding the partition",
        Step::MakeLink { .. } => "making the persistent link",
        Step::AwaitLink { .. } => "waiting for udev to make the persistent link",
        Step::Detach { .. } => "detaching the loop device",
        Step::RemoveLink => "removing the persistent link",
        Step::AwaitNoLink => "waiting for udev to remove the persistent link",
        Step::RemoveFile => "removing the file",
    }
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
