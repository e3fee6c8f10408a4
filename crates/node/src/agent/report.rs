//! Reporting a job's state to the API: merge patches on its status, under its resourceVersion.

use super::{Agent, AgentError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use quarry_api::{NodeJob, NodeJobStatus, node_job::JobPhase};
use quarry_core::{
    backoff::Backoff,
    job::{JobOutcome, queue::is_finished},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// In a row, before the job is run again as a whole: then nothing is left to do, and it is only reported.
const TRIES: u32 = 6;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_millis(3200));
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

pub(super) enum ReportResult {
    Written,
    /// Deleted, recreated, or finished elsewhere.
    Gone,
}

/// The status of a job that has ended.
pub(super) fn finished(
    base: &NodeJobStatus,
    outcome: &JobOutcome,
    now: Timestamp,
) -> NodeJobStatus {
    let (phase, message, result) = match outcome {
        JobOutcome::Prepared(result) => (
            JobPhase::Succeeded,
            format!("ready at {} ({})", result.path, result.device_name),
            Some(result.clone()),
        ),
        JobOutcome::Removed => (JobPhase::Succeeded, "removed".to_owned(), None),
        JobOutcome::Erased(how) => (JobPhase::Succeeded, how.clone(), None),
        JobOutcome::Failed(why) => (JobPhase::Failed, why.clone(), None),
    };
    NodeJobStatus {
        phase: Some(phase),
        message: Some(message),
        result,
        completion_time: Some(Time(now)),
        ..base.clone()
    }
}

impl<H> Agent<H> {
    /// Until it is written or the job is gone; an API that stays away is an error.
    pub(super) async fn write_status(
        &self,
        job: &NodeJob,
        status: &NodeJobStatus,
    ) -> Result<ReportResult, AgentError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let jobs: Api<NodeJob> = Api::all(self.client.clone());
        let mut current = job.clone();
        let mut failures = 0;
        loop {
            let error = match patch(&jobs, name, &current, status).await {
                Ok(_) => return Ok(ReportResult::Written),
                Err(kube::Error::Api(refusal)) if refusal.code == NOT_FOUND => {
                    return Ok(ReportResult::Gone);
                }
                Err(error) => error,
            };
            failures += 1;
            if failures >= TRIES {
                return Err(AgentError::api(format!("reporting job {name}"))(error));
            }
            let conflict = matches!(&error, kube::Error::Api(refusal) if refusal.code == CONFLICT);
            if !conflict {
                tracing::warn!(
                    job = name,
                    error = super::chain(&error),
                    "failed to report the job, retrying"
                );
                tokio::time::sleep(BACKOFF.after_failures(failures)).await;
            }
            // Also after a lost answer: the write may have gone through.
            match jobs.get_opt(name).await {
                Ok(Some(found))
                    if found.metadata.uid == job.metadata.uid && !is_finished(&found) =>
                {
                    current = found
                }
                Ok(Some(found)) if same_end(&found, job, status) => {
                    return Ok(ReportResult::Written);
                }
                Ok(Some(_) | None) => return Ok(ReportResult::Gone),
                Err(error) => {
                    tracing::debug!(
                        job = name,
                        error = super::chain(&error),
                        "failed to read the job"
                    )
                }
            }
        }
    }

    /// For progress that nothing depends on; the job as it is then.
    pub(super) async fn write_status_once(
        &self,
        job: &NodeJob,
        status: &NodeJobStatus,
    ) -> Option<NodeJob> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let jobs: Api<NodeJob> = Api::all(self.client.clone());
        patch(&jobs, name, job, status)
            .await
            .inspect_err(|error| {
                tracing::debug!(
                    job = name,
                    error = super::chain(error),
                    "failed to report progress"
                )
            })
            .ok()
    }
}

fn same_end(found: &NodeJob, job: &NodeJob, status: &NodeJobStatus) -> bool {
    found.metadata.uid == job.metadata.uid
        && found
            .status
            .as_ref()
            .is_some_and(|found| found.phase == status.phase && found.result == status.result)
}

async fn patch(
    jobs: &Api<NodeJob>,
    name: &str,
    current: &NodeJob,
    status: &NodeJobStatus,
) -> kube::Result<NodeJob> {
    let patch =
        status_patch(current.metadata.resource_version.as_deref(), current.status.as_ref(), status);
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

/// A merge patch that leaves exactly `wanted`: fields that only the current status has are nulled.
pub(super) fn status_patch<S: Serialize>(
    resource_version: Option<&str>,
    current: Option<&S>,
    wanted: &S,
) -> Value {
    let object = |status: Option<&S>| match status.map(serde_json::to_value) {
        Some(Ok(Value::Object(fields))) => fields,
        _ => serde_json::Map::new(),
    };
    let mut fields = object(Some(wanted));
    for (key, _) in object(current) {
        fields.entry(key).or_insert(Value::Null);
    }
    json!({"metadata": {"resourceVersion": resource_version}, "status": fields})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_clears_what_the_new_status_lacks() {
        let current =
            NodeJobStatus { message: Some("old".into()), runs: 1, ..NodeJobStatus::default() };
        let wanted =
            NodeJobStatus { phase: Some(JobPhase::Failed), runs: 2, ..NodeJobStatus::default() };
        assert_eq!(
            status_patch(Some("7"), Some(&current), &wanted),
            json!({"metadata": {"resourceVersion": "7"}, "status": {"phase": "Failed", "runs": 2, "message": null}})
        );
    }
}
