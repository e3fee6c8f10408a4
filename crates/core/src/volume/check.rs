//! Refuses a plan that breaks an invariant, whatever the planner thought.
//!
//! Written apart from the planner and in other terms (what may never be in a plan, given the world), so
//! that the same mistake is not made twice. A refused plan is a bug: nothing of it is applied.

use super::{
    Observed, Plan, Step,
    finalize::ABANDON_ANNOTATION,
    jobs, pv,
    usage::{PvUsage, pv_usage},
};
use crate::job::VolumeTask;
use quarry_api::{node_job::JobPhase, volume::Phase};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a cleanup job while the PersistentVolume is not free (invariant 5)")]
    CleanupOfUsedStorage,
    #[error("a job that is not on record first (rule 2)")]
    JobWithoutRecord,
    #[error("more than one job in a plan (rule 1)")]
    SeveralJobs,
    #[error("a job that is not a valid job of a volume")]
    InvalidJob,
    #[error("a PersistentVolume without a finished preparation (invariant 1)")]
    UnprovenPublication,
    #[error("an unmanaged PersistentVolume is touched (invariant 3)")]
    UnmanagedPv,
    #[error("the finalizer goes although storage may be left behind (invariant 9)")]
    StorageLeftBehind,
    #[error("a job without the volume's finalizer: a deletion would leave storage behind")]
    JobWithoutFinalizer,
}

pub fn check(seen: &Observed, plan: &Plan) -> Result<(), Violation> {
    let mut recorded = seen.job_handle().map(str::to_owned);
    let mut finalizer = seen.has_finalizer();
    let mut job_count = 0;
    for step in &plan.steps {
        match step {
            Step::AddFinalizer => finalizer = true,
            Step::RecordJob(status) => recorded = status.job.clone(),
            Step::CreateJob(job) => {
                job_count += 1;
                if job_count > 1 {
                    return Err(Violation::SeveralJobs);
                }
                let task = jobs::volume_task(job).ok_or(Violation::InvalidJob)?;
                let (handle, frees_storage) = match task {
                    VolumeTask::Prepare(_) => (jobs::handle(jobs::PREPARE, job), false),
                    VolumeTask::Cleanup(_) => (jobs::handle(jobs::UNPREPARE, job), true),
                };
                if recorded.as_deref() != Some(handle.as_str()) {
                    return Err(Violation::JobWithoutRecord);
                }
                if !finalizer {
                    return Err(Violation::JobWithoutFinalizer);
                }
                if frees_storage && !storage_is_free(seen) {
                    return Err(Violation::CleanupOfUsedStorage);
                }
            }
            Step::CreatePv(_) => {
                if !prepared(seen) {
                    return Err(Violation::UnprovenPublication);
                }
                if seen.pv.is_some() {
                    return Err(Violation::UnmanagedPv);
                }
            }
            Step::UpdatePvMetadata(_) | Step::DeletePv { .. } | Step::ReleasePv { .. } => {
                if !seen.pv.as_ref().is_some_and(|pv| pv::is_owned_by(pv, seen.uid())) {
                    return Err(Violation::UnmanagedPv);
                }
                if matches!(step, Step::ReleasePv { .. }) && !storage_is_free(seen) {
                    return Err(Violation::CleanupOfUsedStorage);
                }
            }
            Step::ReleaseVolume => {
                if !nothing_left(seen) {
                    return Err(Violation::StorageLeftBehind);
                }
            }
        }
    }
    Ok(())
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
    let said = seen
        .volume
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, _)| *key == ABANDON_ANNOTATION);
    let node_given_up =
        seen.node.is_none() && said.is_some_and(|(_, node)| *node == seen.volume.spec.node_name);
    cleaned || never || node_given_up
}
