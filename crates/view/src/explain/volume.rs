//! Every check of a Volume, in the order of its planner, and what blocks it.

use crate::events::{EventView, recent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use quarry_api::volume::{ConditionStatus, Phase, Reason};
use quarry_core::volume::{
    Observed,
    explain::{Line, blocker},
};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeExplanation {
    pub name: String,
    /// `None` before the operator has seen it.
    pub phase: Option<&'static str>,
    /// `None` for a Volume without a sparse file.
    pub size: Option<String>,
    pub mode: &'static str,
    pub node: String,
    pub class: String,
    pub created: Option<Timestamp>,
    pub checks: Vec<Line>,
    /// `None` before the operator has written the condition Ready.
    pub ready: Option<ReadyView>,
    /// `None` when nothing blocks it.
    pub blocked_by: Option<String>,
    /// The one command that helps, where there is one and the blocker does not name it.
    pub remedy: Option<String>,
    pub events: Vec<EventView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyView {
    pub status: &'static str,
    pub reason: Option<&'static str>,
    pub since: Option<Timestamp>,
}

impl VolumeExplanation {
    pub fn is_available(&self) -> bool {
        self.phase == Some(Phase::Available.as_str())
    }
}

pub fn explain(observed: &Observed, events: &[Event]) -> VolumeExplanation {
    let volume = &observed.volume;
    let sparse = volume.spec.sparse_loop_device.as_ref();
    VolumeExplanation {
        name: volume.metadata.name.clone().unwrap_or_default(),
        phase: volume.phase().map(Phase::as_str),
        size: sparse.map(|sparse| sparse.size.0.clone()),
        mode: volume.spec.mode.as_str(),
        node: volume.spec.node_name.clone(),
        class: volume.spec.storage_class_name.clone(),
        created: volume.metadata.creation_timestamp.as_ref().map(|time| time.0),
        checks: quarry_core::volume::explain::explain(observed),
        ready: ready(observed),
        blocked_by: blocker(observed),
        remedy: remedy(observed),
        events: recent(events),
    }
}

fn ready(observed: &Observed) -> Option<ReadyView> {
    let ready = observed.volume.ready()?;
    Some(ReadyView {
        status: match ready.status {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        },
        reason: ready.reason.map(|reason| reason.as_str()),
        since: ready.last_transition_time.as_ref().map(|time| time.0),
    })
}

fn remedy(observed: &Observed) -> Option<String> {
    let volume = &observed.volume;
    if volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let reason = volume.ready().and_then(|ready| ready.reason);
    match (volume.phase(), reason) {
        (Some(Phase::Failed), Some(Reason::CreationError)) if observed.job.is_some() => {
            Some(format!("fix the cause, then run `quarry volume retry {name}`"))
        }
        (Some(Phase::Failed), Some(Reason::InternalError)) => Some(format!(
            "run `quarry volume delete {name}`, then create it with a valid spec"
        )),
        (None, _) => Some(
            "check that the operator runs: `kubectl -n quarry-system get pods` (standalone: `quarry up`)"
                .into(),
        ),
        (Some(Phase::Available | Phase::Pending | Phase::Failed | Phase::Terminating), _) => None,
    }
}
