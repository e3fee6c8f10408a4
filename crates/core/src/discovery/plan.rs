//! What to do about a LocalVolumeDiscovery: the agents' DaemonSet, then its status, for either outcome. Checked in
//! `check.rs`.

use super::{
    Agents, Coverage, NodeObservation, Observed, Plan, Report, coverage,
    status::{self, StatusUpdate},
};
use crate::{
    agent_daemon_set::{confinement::NOT_CONFINED, plan_daemon_set},
    presence::Presence,
};
use jiff::{SignedDuration, Timestamp};

/// The delay before a DaemonSet that was refused or withheld is tried again.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let uid = &seen.discovery.metadata.uid;
    let in_force = seen.active().is_some_and(|active| active.metadata.uid == *uid);
    let daemon_set = seen.daemon_set.as_ref().filter(|_| in_force).map(plan_daemon_set);
    let agents = match &daemon_set {
        None => Agents::Elsewhere,
        Some(planned) if planned.is_name_taken() => Agents::NameTaken,
        Some(planned) if planned.gaps().is_some() => {
            Agents::NotConfined(planned.gaps().unwrap_or_default().to_vec())
        }
        Some(_) => Agents::Deployed,
    };
    Plan {
        report: report(seen, status::decide(seen, &agents), now),
        refused: daemon_set.as_ref().map(|_| status::decide(seen, &Agents::Refused)),
        daemon_set,
    }
}

/// The planned report on a DaemonSet that the API server refused, with its answer.
pub fn report_refusal(
    seen: &Observed,
    planned: &StatusUpdate,
    answer: &str,
    now: Timestamp,
) -> Report {
    report(seen, planned.clone().with_answer(answer), now)
}

pub(super) fn report(seen: &Observed, update: StatusUpdate, now: Timestamp) -> Report {
    if seen.discovery.metadata.deletion_timestamp.is_some() {
        return Report::default();
    }
    let requeue = match &update {
        StatusUpdate::Failed { reason, .. } => {
            [status::DAEMON_SET_FAILED, NOT_CONFINED].contains(reason).then_some(ASK_AGAIN)
        }
        StatusUpdate::Refused { .. } => Some(ASK_AGAIN),
        // An agent that stops renewing its Lease causes no event: requeued for when the first Lease expires.
        StatusUpdate::Waiting { .. } | StatusUpdate::Running { .. } => first_lapse(seen)
            .map(|until| until.duration_since(now).max(SignedDuration::from_secs(1))),
    };
    let (status, events) = update.into_status(&seen.discovery, now);
    Report { status: Some(status), requeue, events }
}

fn first_lapse(seen: &Observed) -> Option<Timestamp> {
    let covered =
        seen.nodes.iter().filter(|one| coverage(&seen.discovery, &one.node) == Coverage::Covered);
    let until = |one: &NodeObservation| match one.agent {
        Presence::Present { until } => Some(until),
        Presence::Never | Presence::Absent { .. } => None,
    };
    covered.filter_map(until).min()
}
