//! Finds every invariant that a plan breaks, whatever the planner decided.
//!
//! Written apart from the planner and in other terms (what may never be in a plan, given the world), so that the same
//! mistake is not made twice. A violation is a bug of the planner: nothing of the plan is applied.

use super::{
    Observed, Plan, Step, jobs, pv,
    usage::{PvUsage, pv_usage},
};
use crate::job::VolumeTask;
use quarry_api::{names, node_job::JobPhase, volume::Phase};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a cleanup job while the PersistentVolume is not free (invariant 5)")]
    CleanupOfUsedStorage,
    #[error("a job that was not recorded first (rule 2)")]
    JobWithoutRecord,
    #[error("more than one job in a plan (rule 1)")]
    SeveralJobs,
    #[error("a job that is not a valid job of a volume")]
    InvalidJob,
    #[error("a PersistentVolume without a finished preparation (invariant 1)")]
    UnprovenPublication,
    #[error("an unmanaged PersistentVolume is changed (invariant 3)")]
    UnmanagedPv,
    #[error("the finalizer is removed although storage may be left behind (invariant 9)")]
    StorageLeftBehind,
    #[error("a job without the finalizer of the Volume: a deletion would leave storage behind")]
    JobWithoutFinalizer,
    #[error("a step that the API server refuses would not be reported (invariant 9)")]
    SilentRefusal,
    #[error("the report on a refused step loses the job that is recorded (rule 2)")]
    RefusalWithoutJob,
}

/// Every violation; empty: the plan may be applied.
pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut forbid = |broken: bool, violation: Violation| {
        if broken {
            found.push(violation);
        }
    };
    let mut recorded = seen.job_handle().map(str::to_owned);
    let mut finalizer = seen.has_finalizer();
    let mut job_count = 0;
    for step in &plan.steps {
        match step {
            Step::AddFinalizer => finalizer = true,
            Step::RecordJob(status) => recorded = status.job.clone(),
            Step::CreateJob(job) => {
                job_count += 1;
                forbid(job_count > 1, Violation::SeveralJobs);
                forbid(!finalizer, Violation::JobWithoutFinalizer);
                let Some(task) = jobs::volume_task(job) else {
                    forbid(true, Violation::InvalidJob);
                    continue;
                };
                let (handle, frees_storage) = match task {
                    VolumeTask::Prepare(_) => (jobs::handle(jobs::PREPARE, job), false),
                    VolumeTask::Cleanup(_) => (jobs::handle(jobs::UNPREPARE, job), true),
                };
                forbid(recorded.as_ref() != Some(&handle), Violation::JobWithoutRecord);
                forbid(frees_storage && !storage_is_free(seen), Violation::CleanupOfUsedStorage);
            }
            Step::CreatePv(_) => {
                forbid(!prepared(seen), Violation::UnprovenPublication);
                forbid(seen.pv.is_some(), Violation::UnmanagedPv);
            }
            Step::UpdatePvMetadata(_) | Step::DeletePv { .. } => {
                forbid(!owns_pv(seen), Violation::UnmanagedPv);
            }
            Step::ReleasePv { .. } => {
                forbid(!owns_pv(seen), Violation::UnmanagedPv);
                forbid(!storage_is_free(seen), Violation::CleanupOfUsedStorage);
            }
            Step::ReleaseVolume => forbid(!nothing_left(seen), Violation::StorageLeftBehind),
        }
    }
    let refused = plan.refused.as_ref();
    let reported = refused.is_some_and(|update| {
        update.phase == Phase::Failed && update.reason.is_some() && update.message.is_some()
    });
    forbid(!plan.steps.is_empty() && !reported, Violation::SilentRefusal);
    forbid(
        refused.is_some_and(|update| update.job.as_deref() != seen.job_handle()),
        Violation::RefusalWithoutJob,
    );
    found
}

fn owns_pv(seen: &Observed) -> bool {
    seen.pv.as_ref().is_some_and(|pv| pv::is_owned_by(pv, seen.uid()))
}

fn storage_is_free(seen: &Observed) -> bool {
    if seen.other_pv.is_some() {
        return false;
    }
    match seen.pv.as_ref().filter(|pv| pv::is_owned_by(pv, seen.uid())) {
        None => true,
        Some(pv) => pv.metadata.deletion_timestamp.is_some() && pv_usage(pv) == PvUsage::Free,
    }
}

fn prepared(seen: &Observed) -> bool {
    seen.job.as_ref().is_some_and(|job| {
        matches!(jobs::volume_task(job), Some(VolumeTask::Prepare(task)) if task.uid == *seen.uid())
            && job.status.as_ref().is_some_and(|status| {
                status.phase == Some(JobPhase::Succeeded) && status.result.is_some()
            })
    })
}

fn nothing_left(seen: &Observed) -> bool {
    let cleaned = seen.job.as_ref().is_some_and(|job| {
        matches!(jobs::volume_task(job), Some(VolumeTask::Cleanup(task)) if task.uid == *seen.uid())
            && job.status.as_ref().and_then(|status| status.phase) == Some(JobPhase::Succeeded)
    });
    let known = seen.volume.status.as_ref().is_some_and(|status| status.device_name.is_some());
    let never = seen.job_handle().is_none()
        && seen.device.is_none()
        && !known
        && seen.volume.phase() != Some(Phase::Available);
    let abandoned = seen
        .volume
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, _)| *key == names::ABANDON_NODE_ANNOTATION);
    let node_abandoned = seen.node.is_none()
        && abandoned.is_some_and(|(_, node)| *node == seen.volume.spec.node_name);
    cleaned || never || node_abandoned
}
