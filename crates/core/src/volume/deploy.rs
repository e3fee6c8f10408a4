//! A Volume that is not being deleted: prepare its storage, publish it, keep its status correct.

use super::{
    Observed, Plan, Step, jobs, pv,
    request::{NoRequest, Request, parse_request},
    status::StatusUpdate,
};
use crate::event::PendingEvent;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    NodeJob, names,
    node_job::JobPhase,
    volume::{Phase, Reason},
};

pub(super) fn plan(seen: &Observed, now: Timestamp) -> Plan {
    match &seen.pv {
        Some(pv) if pv::is_owned_by(pv, seen.uid()) => published(seen, pv, now),
        Some(_) => {
            let message = format!(
                "PersistentVolume {} exists and is not managed by this Volume; create the Volume under another name, or delete the PersistentVolume",
                seen.name()
            );
            // The name may become free: the Volume then proceeds with its job.
            plan_status(
                seen,
                StatusUpdate::new(Phase::Failed, Some(Reason::CreationError), message)
                    .with_job(seen.job_handle().map(str::to_owned)),
                now,
            )
        }
        None => unpublished(seen, now),
    }
}

/// The PersistentVolume exists: report its health, and the device behind it.
fn published(seen: &Observed, pv: &PersistentVolume, now: Timestamp) -> Plan {
    let failed = pv.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed");
    let unavailable =
        |message| StatusUpdate::new(Phase::Failed, Some(Reason::UnavailableError), message);
    let (problem, requeue) = match storage_problem(seen) {
        Some(problem) => believed(seen, problem, now),
        None => (None, None),
    };
    let missing = problem == Some(StorageProblem::NoDevice);
    let terminating = pv.metadata.deletion_timestamp.is_some();
    let mut update = if let Some(problem) = problem {
        unavailable(problem.message(seen))
    } else if failed {
        unavailable(format!(
            "PersistentVolume {} is Failed; run `kubectl describe pv {}` to see why",
            seen.name(),
            seen.name()
        ))
    } else if terminating {
        // As upstream: the storage is there, and a pod that uses it continues.
        StatusUpdate::new(Phase::Available, None, terminating_message(seen.name()))
    } else {
        StatusUpdate::new(Phase::Available, None, "")
    };
    let known = seen.volume.status.as_ref().and_then(|status| status.device_name.clone());
    let result = seen
        .job
        .as_ref()
        .and_then(|job| job.status.as_ref())
        .and_then(|status| status.result.as_ref());
    // The inventory is the report of the node; until it is updated, the result of the job is as current.
    if !missing {
        update.device_name = seen
            .device
            .as_ref()
            .map(|device| device.name.clone())
            .or(result.map(|result| result.device_name.clone()))
            .or(known);
    }
    let warns = terminating && update.phase == Phase::Available;
    let before = seen.volume.ready().and_then(|ready| ready.message.clone());
    let note = update.message.clone().filter(|message| warns && before.as_ref() != Some(message));
    let mut plan = plan_status(seen, update, now);
    plan.events.extend(note.map(|message| PendingEvent {
        warning: true,
        reason: "PvTerminating",
        message,
    }));
    plan.requeue = requeue;
    plan.steps.extend(
        pv::metadata_patch(&seen.volume, pv).map(|patch| Step::UpdatePvMetadata(Box::new(patch))),
    );
    plan
}

/// The PersistentVolume of a Volume that is not being deleted was deleted: continues to exist until the Volume is deleted.
pub(super) fn terminating_message(name: &str) -> String {
    format!(
        "PersistentVolume {name} was deleted and is terminating, but Volume {name} was not; its data stays, and no other PVC should use it; to get a new PersistentVolume, delete Volume {name} when its PVC is gone, and create it again"
    )
}

/// What the inventory shows to be wrong with the storage of a published Volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageProblem {
    NoDevice,
    /// The path of the PersistentVolume is missing, or leads to another device.
    NoLink,
}

impl StorageProblem {
    pub(super) fn message(self, seen: &Observed) -> String {
        let node = &seen.volume.spec.node_name;
        let device = seen.device.as_ref().map(|device| device.name.as_str()).unwrap_or_default();
        let path = seen.own_pv().and_then(pv::path).unwrap_or_default();
        match (self, &seen.rival_device) {
            (StorageProblem::NoDevice, _) => format!(
                "the loop device of this Volume is missing on node {node}; restart the agent of node {node} (delete its pod in namespace quarry-system), which attaches it again"
            ),
            (StorageProblem::NoLink, Some(rival)) => format!(
                "{path} on node {node} does not lead to {device}, the device of this Volume: {rival} has the same UUID; remove {rival} or give it another UUID, then run `udevadm trigger /dev/{device}`"
            ),
            (StorageProblem::NoLink, None) => format!(
                "{path} on node {node} is missing or does not lead to {device}, the device of this Volume; check that udev runs on the node, then run `udevadm trigger /dev/{device}`"
            ),
        }
    }
}

pub(super) fn storage_problem(seen: &Observed) -> Option<StorageProblem> {
    match &seen.device {
        None => Some(StorageProblem::NoDevice),
        Some(device) if device.link.is_none() => Some(StorageProblem::NoLink),
        Some(_) => None,
    }
}

/// A scan that ran beside the last steps of a preparation may be published after it.
const SCAN_BESIDE_JOB: SignedDuration = SignedDuration::from_secs(5);

/// The problem if it counts now, else when it may. It counts if the inventory has changed since the Volume was last
/// reported (before that it may be outdated), and once the agent has had the time to attach the device after a boot.
fn believed(
    seen: &Observed,
    problem: StorageProblem,
    now: Timestamp,
) -> (Option<StorageProblem>, Option<SignedDuration>) {
    let settled = seen.volume.phase().is_some_and(|phase| phase != Phase::Pending);
    // Once reported (without a device its name is removed then), it stays so until the inventory shows otherwise.
    let reported = match problem {
        StorageProblem::NoDevice => {
            seen.volume.status.as_ref().is_some_and(|status| status.device_name.is_none())
        }
        StorageProblem::NoLink => seen.volume.phase() == Some(Phase::Failed),
    };
    if settled && reported {
        return (Some(problem), None);
    }
    let stated = seen.volume.ready().and_then(|ready| ready.last_transition_time.as_ref());
    let (Some(stated), Some(changed)) = (stated.map(|time| time.0), seen.inventory_changed) else {
        return (None, None);
    };
    if !settled || !seen.restored || changed <= stated {
        return (None, None);
    }
    let wait = (stated + SCAN_BESIDE_JOB).duration_since(now);
    if wait.is_positive() { (None, Some(wait)) } else { (Some(problem), None) }
}

fn unpublished(seen: &Observed, now: Timestamp) -> Plan {
    let handle = seen.job_handle().and_then(jobs::parse_handle);
    match (handle, &seen.job) {
        (Some((jobs::PREPARE, _)), Some(job)) => follow(seen, job, now),
        // Recorded but never created (or removed by hand): the same job is created under the same name.
        _ => start(seen, 1, now),
    }
}

/// A prepare job exists: wait for it, publish its result, or report its failure.
fn follow(seen: &Observed, job: &NodeJob, now: Timestamp) -> Plan {
    let status = job.status.clone().unwrap_or_default();
    let handle = Some(jobs::handle(jobs::PREPARE, job));
    let voided = seen
        .node
        .as_ref()
        .and_then(|node| node.metadata.uid.as_deref())
        .is_some_and(|uid| uid != job.spec.precondition.node_uid);
    match status.phase {
        None | Some(JobPhase::Running) if voided => start(seen, job.spec.attempt, now),
        None | Some(JobPhase::Running) => {
            let problem = seen.agent.problem(&job.spec.node_name);
            let message = problem.unwrap_or_else(|| {
                status.message.clone().unwrap_or_else(|| {
                    format!("preparing the storage on node {}", job.spec.node_name)
                })
            });
            let mut plan = plan_status(
                seen,
                StatusUpdate::new(Phase::Pending, Some(Reason::Pending), message).with_job(handle),
                now,
            );
            plan.requeue = requeue_at_lease_end(seen, now);
            plan
        }
        // Planned for a Node that does not exist any more: the recreated Node gets its own job.
        Some(JobPhase::Failed) if voided => start(seen, job.spec.attempt, now),
        Some(JobPhase::Failed) => {
            let wanted = seen
                .volume
                .metadata
                .annotations
                .iter()
                .flatten()
                .find(|(key, _)| *key == names::RETRY_ANNOTATION)
                .map(|(_, value)| value.as_str());
            if wanted.is_some() && wanted != job.spec.retry.as_deref() {
                return start(seen, job.spec.attempt + 1, now);
            }
            let cause = status.message.unwrap_or_else(|| "the job gave no reason".to_owned());
            let message = format!(
                "{cause}; fix the cause, then run: kubectl annotate volume {} {}=\"$(date +%s)\" --overwrite",
                seen.name(),
                names::RETRY_ANNOTATION
            );
            plan_status(
                seen,
                StatusUpdate::new(Phase::Failed, Some(Reason::CreationError), message)
                    .with_job(handle),
                now,
            )
        }
        Some(JobPhase::Succeeded) => {
            let Some(result) = &status.result else {
                return plan_status(
                    seen,
                    StatusUpdate::new(
                        Phase::Failed,
                        Some(Reason::CreationError),
                        "the job succeeded without a result; its status was changed by hand",
                    )
                    .with_job(handle),
                    now,
                );
            };
            let request = match parse_for_publishing(seen) {
                Ok(request) => request,
                Err(no) => return refuse(seen, no, handle, now),
            };
            let mut update = StatusUpdate::new(Phase::Available, None, "");
            update.device_name = Some(result.device_name.clone());
            let mut plan = plan_status(seen, update, now);
            plan.steps.push(Step::CreatePv(Box::new(pv::build_pv(seen, &request, result))));
            plan.events.push(PendingEvent {
                warning: false,
                reason: "PvCreation",
                message: format!("created PersistentVolume {} for {}", seen.name(), result.path),
            });
            plan
        }
    }
}

/// The storage is ready: it is published even if the agent is absent since.
fn parse_for_publishing(seen: &Observed) -> Result<Request, NoRequest> {
    let present = Observed {
        agent: crate::presence::Presence::Present { until: Timestamp::MAX },
        ..seen.clone()
    };
    parse_request(&present)
}

fn start(seen: &Observed, attempt: i32, now: Timestamp) -> Plan {
    let request = match parse_request(seen) {
        Ok(request) => request,
        Err(no) => return refuse(seen, no, None, now),
    };
    let job = jobs::prepare_job(seen, &request, attempt);
    let update = StatusUpdate::new(
        Phase::Pending,
        Some(Reason::Pending),
        format!("preparing the storage on node {}", job.spec.node_name),
    )
    .with_job(Some(jobs::handle(jobs::PREPARE, &job)));
    begin(seen, "preparing the storage", job, update, now)
}

/// Finalizer, then the record of the job, then the job: in this order, so that a crash anywhere loses nothing.
pub(super) fn begin(
    seen: &Observed,
    verb: &str,
    job: NodeJob,
    update: StatusUpdate,
    now: Timestamp,
) -> Plan {
    let mut plan = plan_status(seen, update, now);
    let needs_finalizer =
        !seen.has_finalizer() && seen.volume.metadata.deletion_timestamp.is_none();
    if needs_finalizer {
        plan.steps.push(Step::AddFinalizer);
    }
    if let Some(status) =
        plan.status.clone().filter(|status| Some(status) != seen.volume.status.as_ref())
    {
        plan.steps.push(Step::RecordJob(status));
    }
    plan.events.push(PendingEvent {
        warning: false,
        reason: "JobStarted",
        message: format!(
            "{verb} on node {} with NodeJob {}",
            job.spec.node_name,
            job.metadata.name.as_deref().unwrap_or_default()
        ),
    });
    plan.steps.push(Step::CreateJob(Box::new(job)));
    plan
}

fn refuse(seen: &Observed, no: NoRequest, job: Option<String>, now: Timestamp) -> Plan {
    match no {
        NoRequest::Waiting(message) => {
            let mut plan = plan_status(
                seen,
                StatusUpdate::new(Phase::Pending, Some(Reason::Pending), message).with_job(job),
                now,
            );
            plan.requeue = Some(SignedDuration::from_secs(30));
            plan
        }
        NoRequest::Invalid { internal, message } => {
            let reason = if internal { Reason::InternalError } else { Reason::CreationError };
            plan_status(
                seen,
                StatusUpdate::new(Phase::Failed, Some(reason), message).with_job(job),
                now,
            )
        }
    }
}

fn requeue_at_lease_end(seen: &Observed, now: Timestamp) -> Option<SignedDuration> {
    match seen.agent {
        crate::presence::Presence::Present { until } => {
            Some(until.duration_since(now) + SignedDuration::from_secs(1))
        }
        crate::presence::Presence::Never | crate::presence::Presence::Absent { .. } => {
            Some(SignedDuration::from_secs(60))
        }
    }
}

/// A plan that only reports; a change of phase is reported as an Event, once.
pub(super) fn plan_status(seen: &Observed, update: StatusUpdate, now: Timestamp) -> Plan {
    let before = seen.volume.ready().and_then(|ready| ready.message.clone());
    let reported = seen.volume.phase() == Some(update.phase)
        && (before == update.message || update.phase == Phase::Available);
    let mut events = Vec::new();
    if !reported {
        let from = seen.volume.phase().map_or("none", Phase::as_str);
        let cause =
            update.message.as_deref().map_or_else(String::new, |message| format!(": {message}"));
        events.push(PendingEvent {
            warning: update.phase == Phase::Failed,
            reason: "StateTransition",
            message: format!("phase changed from {from} to {}{cause}", update.phase.as_str()),
        });
    }
    Plan {
        steps: Vec::new(),
        status: Some(update.into_status(&seen.volume, now)),
        requeue: None,
        events,
        refused: None,
    }
}
