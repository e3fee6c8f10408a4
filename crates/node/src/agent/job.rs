//! One job, from its precondition to its reported end.

use super::{
    Agent, AgentError,
    carry::{Ended, Order, Progress, carry_out},
    live::Fresh,
    report::{Told, finished},
};
use crate::hands::Hands;
use futures::future::{Either, select};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quarry_api::{
    NodeJob, NodeJobStatus,
    node_job::{JobPhase, JobResult},
};
use quarry_core::live;
use quarry_failpoint::failpoint;
use std::pin::pin;

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Not ours, or finished already.
    Skipped,
    /// The API does not have it. The watch tells whether it was deleted, or the answer was older than the watch.
    Gone,
    Succeeded(Option<JobResult>),
    Failed(String),
}

impl<H: Hands> Agent<H> {
    /// Runs the job to its end and reports it. An error means that the API could not be asked or told: run it again later.
    pub async fn run_job(&self, job: &NodeJob) -> Result<Ran, AgentError> {
        if is_finished(job) || job.spec.node_name != self.options.node_name {
            return Ok(Ran::Skipped);
        }
        let Fresh { job, live } = self.read_live(job).await?;
        let Some(job) = job else { return Ok(Ran::Gone) };
        if is_finished(&job) {
            return Ok(Ran::Skipped);
        }
        let begun = Time(self.options.clock.now());
        let started = job.status.as_ref().and_then(|status| status.start_time.clone()).unwrap_or(begun);
        let runs = job.status.as_ref().map_or(0, |status| status.runs).saturating_add(1);
        let base = NodeJobStatus { runs, start_time: Some(started), ..NodeJobStatus::default() };

        let allowed = live::check(&job.spec, &live).map_err(|void| void.to_string());
        let (job, ended) = match allowed.and_then(|()| Order::of(&job)) {
            Err(why) => (job, Ended::Failed(why)),
            Ok(order) => self.carry_and_announce(job, &base, &order).await,
        };
        let status = finished(&base, &ended, self.options.clock.now());
        failpoint!("status.finished.before");
        let told = self.write_status(&job, &status).await?;
        failpoint!("status.finished.after");
        let name = job.metadata.name.as_deref().unwrap_or_default();
        if let Told::Gone = told {
            tracing::warn!(job = name, "the job was deleted or finished by somebody else while it ran");
            return Ok(Ran::Gone);
        }
        Ok(match ended {
            Ended::Succeeded(result) => {
                tracing::info!(job = name, volume = job.spec.owner.name, action = job.spec.action.as_str(), "succeeded");
                Ran::Succeeded(result)
            }
            Ended::Failed(why) => {
                tracing::warn!(job = name, volume = job.spec.owner.name, action = job.spec.action.as_str(), why, "failed");
                Ran::Failed(why)
            }
        })
    }

    /// Tells "Running" only of what takes long: a write less for every volume.
    async fn carry_and_announce(&self, job: NodeJob, base: &NodeJobStatus, order: &Order) -> (NodeJob, Ended) {
        let (told, ended) = self.carry_while_announcing(&job, base, order).await;
        (told.unwrap_or(job), ended)
    }

    async fn carry_while_announcing(&self, job: &NodeJob, base: &NodeJobStatus, order: &Order) -> (Option<NodeJob>, Ended) {
        let progress = Progress::default();
        let carry = pin!(carry_out(&self.hands, &self.workers, order, &progress));
        let announce = pin!(async {
            tokio::time::sleep(self.options.progress_after).await;
            let status = NodeJobStatus { phase: Some(JobPhase::Running), message: Some(progress.get().to_owned()), ..base.clone() };
            failpoint!("status.running.before");
            let told = self.write_status_once(job, &status).await;
            failpoint!("status.running.after");
            told
        });
        match select(carry, announce).await {
            // An announcement cut off in flight at worst makes the next write meet a conflict.
            Either::Left((ended, _)) => (None, ended),
            Either::Right((told, carry)) => (told, carry.await),
        }
    }
}

pub(super) fn is_finished(job: &NodeJob) -> bool {
    job.status.as_ref().and_then(|status| status.phase).is_some_and(JobPhase::finished)
}
