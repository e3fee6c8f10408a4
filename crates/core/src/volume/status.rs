//! Status values: phase and the Ready condition, whose times change only with it.

use super::Observed;
use crate::event::PendingEvent;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quarry_api::{
    Volume, VolumeStatus,
    volume::{Condition, ConditionStatus, ConditionType, Phase, Reason},
};

/// A status before it gets its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    pub phase: Phase,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub job: Option<String>,
    pub device_name: Option<String>,
}

impl StatusUpdate {
    pub fn new(phase: Phase, reason: Option<Reason>, message: impl Into<String>) -> Self {
        StatusUpdate {
            phase,
            reason,
            message: Some(message.into()).filter(|text| !text.is_empty()),
            job: None,
            device_name: None,
        }
    }

    pub fn with_job(self, job: Option<String>) -> Self {
        StatusUpdate { job, ..self }
    }

    /// Times are kept while nothing changes, so that the same input gives the same status.
    pub fn into_status(self, volume: &Volume, now: Timestamp) -> VolumeStatus {
        let status = match self.phase {
            Phase::Available => ConditionStatus::True,
            Phase::Failed => ConditionStatus::False,
            Phase::Pending | Phase::Terminating => ConditionStatus::Unknown,
        };
        let mut condition = Condition {
            kind: ConditionType::Ready,
            status,
            reason: self.reason,
            message: self.message,
            last_update_time: None,
            last_transition_time: None,
        };
        // Kubernetes stores whole seconds.
        let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
        match volume.ready() {
            Some(old) if same(old, &condition) => condition = old.clone(),
            old => {
                condition.last_update_time = Some(now.clone());
                condition.last_transition_time = old
                    .filter(|old| old.status == status)
                    .and_then(|old| old.last_transition_time.clone())
                    .or(Some(now));
            }
        }
        VolumeStatus {
            phase: Some(self.phase),
            conditions: vec![condition],
            job: self.job,
            device_name: self.device_name,
        }
    }
}

/// The status if the API server refuses a step, but for its answer.
pub(super) fn refused(seen: &Observed) -> StatusUpdate {
    let reason = if seen.volume.metadata.deletion_timestamp.is_some() {
        Reason::DestructionError
    } else {
        Reason::CreationError
    };
    let message = "the API server refuses it, and it is retried";
    StatusUpdate {
        device_name: seen.device.as_ref().map(|device| device.name.clone()),
        ..StatusUpdate::new(Phase::Failed, Some(reason), message)
    }
    .with_job(seen.job_handle().map(str::to_owned))
}

/// What is published when the API server refuses a step.
pub struct Refusal {
    pub status: VolumeStatus,
    pub events: Vec<PendingEvent>,
}

/// The planned status with the attempt that was refused, and the API server's answer.
pub fn report_refusal(
    seen: &Observed,
    planned: &StatusUpdate,
    attempt: &str,
    answer: &str,
    now: Timestamp,
) -> Refusal {
    let planned_message = planned.message.as_deref().unwrap_or_default();
    let message = Some(format!("{attempt}: {planned_message}: {answer}"));
    let plan = super::deploy::plan_status(seen, StatusUpdate { message, ..planned.clone() }, now);
    Refusal { status: plan.status.unwrap_or_default(), events: plan.events }
}

fn same(a: &Condition, b: &Condition) -> bool {
    (a.status, a.reason, &a.message) == (b.status, b.reason, &b.message)
}
