//! One job, from its precondition to its reported end.

use super::{
    Agent, AgentError,
    execute::{JobOutcome, JobRun, Task, carry_out},
    precondition::LiveRead,
    report::{ReportResult, finished},
};
use crate::{node_ops::NodeOps, progress::Progress};
use futures::future::{Either, select};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use quarry_api::{
    NodeJob, NodeJobStatus,
    node_job::{Action, JobPhase, JobResult},
};
use quarry_core::precondition;
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
    /// The API does not have it. The watch tells whether it was deleted, or the answer was older than the watch.
    Gone,
    Succeeded(Option<JobResult>),
    Failed(String),
}

impl<H: NodeOps> Agent<H> {
    /// Runs the job to its end and reports it. An error means that the API could not be asked or told: run it again later.
    pub async fn run_job(&self, job: &NodeJob) -> Result<RunResult, AgentError> {
        if is_finished(job) || job.spec.node_name != self.options.node_name {
            return Ok(RunResult::Skipped);
        }
        let (job, allowed) = match job.spec.action {
            Action::Prepare | Action::Cleanup => {
                let LiveRead { job, live } = self.read_live(job).await?;
                let allowed = job.as_ref().map(|job| {
                    precondition::check(&job.spec, &live).map_err(|void| void.to_string())
                });
                (job, allowed.unwrap_or(Ok(())))
            }
            // Asked by whoever carries it out: before the device is opened, and again while it is held.
            Action::Wipe => (self.read_job(job).await?, Ok(())),
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

        let (job, ended) = match allowed.and_then(|()| JobRun::of(&job)) {
            Err(why) => (job, JobOutcome::Failed(why)),
            Ok(order) => {
                let (told, ended) = self.carry_while_announcing(&job, &base, &order).await;
                (told.unwrap_or(job), ended?)
            }
        };
        let status = finished(&base, &ended, self.options.clock.now());
        failpoint!("status.finished.before");
        let told = self.write_status(&job, &status).await?;
        failpoint!("status.finished.after");
        let name = job.metadata.name.as_deref().unwrap_or_default();
        if let ReportResult::Gone = told {
            tracing::warn!(
                job = name,
                "the job was deleted or finished by somebody else while it ran"
            );
            return Ok(RunResult::Gone);
        }
        Ok(match ended {
            JobOutcome::Succeeded(result) => {
                tracing::info!(
                    job = name,
                    volume = job.spec.owner.name,
                    action = job.spec.action.as_str(),
                    "succeeded"
                );
                RunResult::Succeeded(result)
            }
            JobOutcome::Erased(how) => {
                tracing::info!(
                    job = name,
                    owner = job.spec.owner.name,
                    action = job.spec.action.as_str(),
                    how,
                    "succeeded"
                );
                RunResult::Succeeded(None)
            }
            JobOutcome::Failed(why) => {
                tracing::warn!(
                    job = name,
                    volume = job.spec.owner.name,
                    action = job.spec.action.as_str(),
                    why,
                    "failed"
                );
                RunResult::Failed(why)
            }
        })
    }

    /// Tells "Running" only of what takes long, a write less for every volume; and how far it is, of what says so.
    async fn carry_while_announcing(
        &self,
        job: &NodeJob,
        base: &NodeJobStatus,
        order: &JobRun,
    ) -> (Option<NodeJob>, Result<JobOutcome, AgentError>) {
        let progress = Progress::default();
        let told = Mutex::new(None);
        let carry = pin!(async {
            match &order.task {
                Task::Prepare(_) | Task::Cleanup => {
                    Ok(carry_out(&self.ops, &self.workers, order, &progress).await)
                }
                Task::Wipe { policy, .. } => self.wipe(job, order, *policy, &progress).await,
            }
        });
        let announce = pin!(async {
            tokio::time::sleep(self.options.progress_after).await;
            let mut said = None;
            loop {
                let stand = progress.get();
                if said.as_ref() != Some(&stand) {
                    let status = NodeJobStatus {
                        phase: Some(JobPhase::Running),
                        message: Some(stand.words.clone().into_owned()),
                        progress: stand.percent,
                        ..base.clone()
                    };
                    let current = lock(&told).clone();
                    failpoint!("status.running.before");
                    let written =
                        self.write_status_once(current.as_ref().unwrap_or(job), &status).await;
                    failpoint!("status.running.after");
                    match written {
                        Some(written) => *lock(&told) = Some(written),
                        // Somebody else wrote to it: the next announcement is about what is there now.
                        None => {
                            if let Ok(Some(found)) = self.read_job(job).await {
                                *lock(&told) = Some(found);
                            }
                        }
                    }
                    said = Some(stand);
                }
                // What does not say how far it is ends soon: told once.
                while progress.get().percent.is_none() {
                    tokio::time::sleep(self.options.progress_every).await;
                }
                tokio::time::sleep(self.options.progress_every).await;
            }
        });
        // An announcement cut off in flight at worst makes the next write meet a conflict.
        let ended = match select(carry, announce).await {
            Either::Left((ended, _)) => ended,
            Either::Right((never, _)) => never,
        };
        (lock(&told).take(), ended)
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

pub(super) fn is_finished(job: &NodeJob) -> bool {
    job.status.as_ref().and_then(|status| status.phase).is_some_and(JobPhase::finished)
}
