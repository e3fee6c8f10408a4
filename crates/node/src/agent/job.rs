//! One job, from its precondition to its reported end.

use super::{
    Agent, AgentError,
    precondition::{LiveJob, LiveRead},
    report::{ReportResult, finished},
};
use crate::{
    node_ops::{LedgerOps, NodeOps},
    progress::Progress,
};
use futures::future::{Either, select};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use quarry_api::{NodeJob, NodeJobStatus, node_job::JobPhase};
use quarry_core::{
    job::{JobOutcome, JobRun, Task, queue::is_finished},
    precondition,
};
use quarry_failpoint::failpoint;
use std::{
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunResult {
    /// Not ours, or finished already.
    Skipped,
    /// The API does not have it. The watch shows whether it was deleted, or the answer was older than the watch.
    Gone,
    /// It was run to its end, and that was reported.
    Finished(JobOutcome),
}

impl<H: NodeOps> Agent<H> {
    /// Runs the job to its end and reports it. An error means that the API did not answer: run it again later.
    pub async fn run_job(&self, job: &NodeJob) -> Result<RunResult, AgentError> {
        if is_finished(job) || job.spec.node_name != self.options.node_name {
            return Ok(RunResult::Skipped);
        }
        let run = JobRun::try_from(job).map_err(|invalid| invalid.to_string());
        let (job, allowed) = match &run {
            Ok(JobRun { task: Task::Volume(task), .. }) => {
                let ledger_id = self.runner.call("reading the ledger", LedgerOps::ledger_id).await;
                let ledger_id = ledger_id.map_err(|error| error.message());
                let LiveRead { job, live } =
                    self.read_live(job, ledger_id.as_deref().unwrap_or_default()).await?;
                let allowed = job.as_ref().map(|job| precondition::check(&job.spec, task, &live));
                let allowed = match allowed.unwrap_or(Ok(())) {
                    Err(error) if error.is_transient() => {
                        let name = job.and_then(|job| job.metadata.name).unwrap_or_default();
                        let attempt = format!("waiting with job {name}");
                        return Err(AgentError::Waiting { attempt, source: error });
                    }
                    allowed => allowed.map_err(|void| void.to_string()),
                };
                (job, ledger_id.and(allowed))
            }
            // A wipe is checked by the runner: before the device is opened, and again while it is held.
            Ok(JobRun { task: Task::Wipe(_), .. }) | Err(_) => (self.read_job(job).await?, Ok(())),
        };
        let Some(job) = job else { return Ok(RunResult::Gone) };
        if is_finished(&job) {
            return Ok(RunResult::Skipped);
        }
        let begun = Time(self.options.clock.now());
        let started =
            job.status.as_ref().and_then(|status| status.start_time.clone()).unwrap_or(begun);
        let runs = job.status.as_ref().map_or(0, |status| status.runs).saturating_add(1);
        let base = NodeJobStatus { runs, start_time: Some(started), ..NodeJobStatus::default() };

        let (job, outcome) = match allowed.and(run) {
            Err(why) => (job, JobOutcome::Failed(why)),
            Ok(run) => {
                let (announced, outcome) = self.run_and_announce(&job, &base, &run).await;
                (announced.unwrap_or(job), outcome?)
            }
        };
        let status = finished(&base, &outcome, self.options.clock.now());
        failpoint!("status.finished.before");
        let reported = self.write_status(&job, &status).await?;
        failpoint!("status.finished.after");
        let name = job.metadata.name.as_deref().unwrap_or_default();
        if let ReportResult::Gone = reported {
            tracing::warn!(job = name, "the job was deleted or finished elsewhere while it ran");
            return Ok(RunResult::Gone);
        }
        let (owner, action) = (job.spec.owner.name.as_str(), job.spec.action.as_str());
        match &outcome {
            JobOutcome::Prepared(_) | JobOutcome::Removed => {
                tracing::info!(job = name, volume = owner, action, "succeeded")
            }
            JobOutcome::Erased(how) => {
                tracing::info!(job = name, owner, action, how, "succeeded")
            }
            JobOutcome::Failed(why) => {
                tracing::warn!(job = name, owner, action, why, "failed")
            }
        }
        Ok(RunResult::Finished(outcome))
    }

    /// Reports "Running" only for what takes long, which saves a write per volume; and progress, where there is any.
    async fn run_and_announce(
        &self,
        job: &NodeJob,
        base: &NodeJobStatus,
        run: &JobRun,
    ) -> (Option<NodeJob>, Result<JobOutcome, AgentError>) {
        let progress = Progress::default();
        let announced = Mutex::new(None);
        let live = LiveJob { agent: self, job };
        let work = pin!(self.runner.run(run, &live, &progress));
        let announce = pin!(async {
            tokio::time::sleep(self.options.progress_after).await;
            let mut last = None;
            loop {
                let state = progress.get();
                if last.as_ref() != Some(&state) {
                    let status = NodeJobStatus {
                        phase: Some(JobPhase::Running),
                        message: Some(state.message.clone().into_owned()),
                        progress: state.percent,
                        ..base.clone()
                    };
                    let current = lock(&announced).clone();
                    failpoint!("status.running.before");
                    let written =
                        self.write_status_once(current.as_ref().unwrap_or(job), &status).await;
                    failpoint!("status.running.after");
                    match written {
                        Some(written) => *lock(&announced) = Some(written),
                        // The job was changed meanwhile: the next announcement is about what is there now.
                        None => {
                            if let Ok(Some(found)) = self.read_job(job).await {
                                *lock(&announced) = Some(found);
                            }
                        }
                    }
                    last = Some(state);
                }
                // What has no progress ends soon: announced once.
                while progress.get().percent.is_none() {
                    tokio::time::sleep(self.options.progress_every).await;
                }
                tokio::time::sleep(self.options.progress_every).await;
            }
        });
        // An announcement cut off in flight at worst makes the next write meet a conflict.
        let outcome = match select(work, announce).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((never, _)) => never,
        };
        (lock(&announced).take(), outcome)
    }

    async fn read_job(&self, job: &NodeJob) -> Result<Option<NodeJob>, AgentError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let jobs: Api<NodeJob> = Api::all(self.client.clone());
        let found = jobs
            .get_opt(name)
            .await
            .map_err(AgentError::api(format!("asking whether job {name} is still wanted")))?;
        Ok(found.filter(|found| found.metadata.uid == job.metadata.uid))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
