//! A Volume that is being deleted: wait for a running preparation and for its users, clean up, remove the finalizer.

use super::{
    Observed, Plan, Step, deploy, jobs,
    status::StatusUpdate,
    usage::{PvUsage, pv_usage},
};
use crate::{backoff::Backoff, event::PendingEvent};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    NodeJob, names,
    node_job::JobPhase,
    volume::{Phase, Reason},
};
use std::time::Duration;

/// Of a failed cleanup.
const RETRY: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(600));

pub(super) fn plan(seen: &Observed, now: Timestamp) -> Plan {
    if !seen.has_finalizer() {
        return Plan::default();
    }
    if let Some(job) = running_prepare(seen) {
        // As specified: the Volume stays Pending until the preparation has succeeded or failed.
        let waiting = seen
            .agent
            .problem(&job.spec.node_name)
            .map_or_else(String::new, |problem| format!("; {problem}"));
        let message = format!(
            "deletion is blocked: waiting for the preparation to end (NodeJob {}){waiting}",
            job.metadata.name.as_deref().unwrap_or_default()
        );
        let update = StatusUpdate::new(Phase::Pending, Some(Reason::Pending), message)
            .with_job(Some(jobs::handle(jobs::PREPARE, job)));
        let mut plan = deploy::plan_status(seen, update, now);
        plan.requeue = Some(SignedDuration::from_secs(30));
        return plan;
    }
    if let Some(pv) = seen.own_pv() {
        if pv.metadata.deletion_timestamp.is_none() {
            return delete_pv(seen, pv, now);
        }
        if let Some(blocker) = pv_blocker(pv) {
            return wait(seen, blocker, cleanup_handle(seen), now);
        }
    }
    if let Some(other) = &seen.other_pv {
        return wait(
            seen,
            format!(
                "PersistentVolume {other} also publishes the storage of this Volume; delete it first, and the PVC that uses it"
            ),
            cleanup_handle(seen),
            now,
        );
    }
    clean_up(seen, now)
}

/// A prepare job that may still change the node. Its owner is being deleted, so the agent refuses to start
/// it; one that runs already runs to its end.
fn running_prepare(seen: &Observed) -> Option<&NodeJob> {
    // An invalid job may be one of another version: it is waited for as well.
    let job = seen.job.as_ref().filter(|job| !jobs::is_cleanup(job))?;
    let finished =
        job.status.as_ref().and_then(|status| status.phase).is_some_and(JobPhase::finished);
    let same_node = seen.node.as_ref().and_then(|node| node.metadata.uid.as_deref())
        == Some(job.spec.precondition.node_uid.as_str());
    (!finished && same_node).then_some(job)
}

fn delete_pv(seen: &Observed, pv: &PersistentVolume, now: Timestamp) -> Plan {
    let (Some(uid), Some(resource_version)) =
        (pv.metadata.uid.clone(), pv.metadata.resource_version.clone())
    else {
        return wait(seen, "the PersistentVolume has no UID".into(), None, now);
    };
    let blocker = pv_blocker(pv)
        .unwrap_or_else(|| format!("PersistentVolume {} is being deleted", seen.name()));
    let mut plan = wait(seen, blocker, None, now);
    plan.steps.push(Step::DeletePv { uid, resource_version });
    plan.events.push(PendingEvent {
        warning: false,
        reason: "PvDeletion",
        message: format!("deleted PersistentVolume {}", seen.name()),
    });
    plan
}

/// What keeps the PersistentVolume's storage from being cleaned up.
fn pv_blocker(pv: &PersistentVolume) -> Option<String> {
    if let PvUsage::InUse(why) = pv_usage(pv) {
        return Some(format!("{why}; delete that PVC, and the pods that use it"));
    }
    let others: Vec<&str> = pv
        .metadata
        .finalizers
        .iter()
        .flatten()
        .map(String::as_str)
        .filter(|finalizer| *finalizer != names::VOLUME_FINALIZER)
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "PersistentVolume {} is kept by the finalizer {}",
            pv.metadata.name.as_deref().unwrap_or_default(),
            others.join(", ")
        )
    })
}

fn cleanup_handle(seen: &Observed) -> Option<String> {
    let job = seen.job.as_ref().filter(|job| jobs::is_cleanup(job))?;
    Some(jobs::handle(jobs::UNPREPARE, job))
}

fn clean_up(seen: &Observed, now: Timestamp) -> Plan {
    if nothing_started(seen) || abandoned(seen) {
        return let_go(seen);
    }
    match seen.job.as_ref().filter(|job| jobs::is_cleanup(job)) {
        None => start(seen, 1, now),
        Some(job) => follow(seen, job, now),
    }
}

/// Neither job nor PersistentVolume nor device: nothing is on the node.
fn nothing_started(seen: &Observed) -> bool {
    let known = seen.volume.status.as_ref().is_some_and(|status| {
        status.device_name.is_some() || status.phase == Some(Phase::Available)
    });
    seen.job_handle().is_none()
        && seen.own_pv().is_none()
        && seen.device.is_none()
        && !known
        && !was_published(seen)
}

/// Known of a published Volume only: its file exists.
fn was_published(seen: &Observed) -> bool {
    seen.volume.ready().is_some_and(|ready| ready.reason == Some(Reason::UnavailableError))
}

/// The node does not exist, and an administrator has abandoned it explicitly.
fn abandoned(seen: &Observed) -> bool {
    let abandoned = seen.volume.metadata.annotations.iter().flatten().any(|(key, value)| {
        key == names::ABANDON_NODE_ANNOTATION && *value == seen.volume.spec.node_name
    });
    seen.node.is_none() && abandoned
}

fn start(seen: &Observed, attempt: i32, now: Timestamp) -> Plan {
    let node = &seen.volume.spec.node_name;
    let Some(node_uid) = seen.node.as_ref().and_then(|node| node.metadata.uid.clone()) else {
        let message = format!(
            "node {node} does not exist and its storage cannot be cleaned up; bring the node back, or abandon its storage with: kubectl annotate volume {} {}={node}",
            seen.name(),
            names::ABANDON_NODE_ANNOTATION
        );
        return wait(seen, message, seen.job_handle().map(str::to_owned), now);
    };
    // A ledger that does not know the Volume would report that nothing is left of it.
    if let Some(problem) = &seen.other_ledger {
        return wait(seen, problem.clone(), seen.job_handle().map(str::to_owned), now);
    }
    let job = jobs::cleanup_job(seen, &node_uid, attempt);
    let message = seen
        .agent
        .problem(node)
        .unwrap_or_else(|| format!("cleaning up the storage on node {node}"));
    let mut update = StatusUpdate::new(Phase::Terminating, Some(Reason::Terminating), message)
        .with_job(Some(jobs::handle(jobs::UNPREPARE, &job)));
    update.device_name = device_name(seen);
    deploy::begin(seen, "cleaning up the storage", job, update, now)
}

fn follow(seen: &Observed, job: &NodeJob, now: Timestamp) -> Plan {
    let status = job.status.clone().unwrap_or_default();
    let handle = Some(jobs::handle(jobs::UNPREPARE, job));
    let voided = seen
        .node
        .as_ref()
        .and_then(|node| node.metadata.uid.as_deref())
        .is_some_and(|uid| uid != job.spec.precondition.node_uid);
    match status.phase {
        Some(JobPhase::Succeeded) => let_go(seen),
        None | Some(JobPhase::Running) if voided => start(seen, job.spec.attempt, now),
        None | Some(JobPhase::Running) => {
            let message = match (&seen.node, seen.agent.problem(&job.spec.node_name)) {
                (None, _) => return start(seen, job.spec.attempt, now),
                (Some(_), Some(problem)) => problem,
                (Some(_), None) => status.message.unwrap_or_else(|| {
                    format!("cleaning up the storage on node {}", job.spec.node_name)
                }),
            };
            wait(seen, message, handle, now)
        }
        Some(JobPhase::Failed) => {
            let due = status
                .completion_time
                .map_or(now, |time| time.0 + RETRY.after_attempt(job.spec.attempt));
            if due <= now {
                return start(seen, job.spec.attempt + 1, now);
            }
            let cause = status.message.unwrap_or_else(|| "the job gave no reason".to_owned());
            let mut update = StatusUpdate::new(
                Phase::Failed,
                Some(Reason::DestructionError),
                format!("cleanup failed and is retried: {cause}"),
            )
            .with_job(handle);
            update.device_name = device_name(seen);
            let mut plan = deploy::plan_status(seen, update, now);
            plan.requeue = Some(due.duration_since(now));
            plan
        }
    }
}

fn let_go(seen: &Observed) -> Plan {
    let mut steps = Vec::new();
    if let Some(pv) = seen.own_pv()
        && let (Some(uid), Some(resource_version)) =
            (pv.metadata.uid.clone(), pv.metadata.resource_version.clone())
    {
        steps.push(Step::ReleasePv { uid, resource_version });
    }
    steps.push(Step::ReleaseVolume);
    let events = vec![PendingEvent {
        warning: false,
        reason: "VolumeFinalization",
        message: format!("deleted Volume {}", seen.name()),
    }];
    Plan { steps, events, ..Plan::default() }
}

fn device_name(seen: &Observed) -> Option<String> {
    seen.device.as_ref().map(|device| device.name.clone())
}

fn wait(seen: &Observed, message: String, job: Option<String>, now: Timestamp) -> Plan {
    let mut update =
        StatusUpdate::new(Phase::Terminating, Some(Reason::Terminating), message).with_job(job);
    update.device_name = device_name(seen);
    let mut plan = deploy::plan_status(seen, update, now);
    plan.requeue = Some(SignedDuration::from_secs(30));
    plan
}
