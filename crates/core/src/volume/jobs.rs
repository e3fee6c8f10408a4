//! The jobs of a Volume: their specs and names, and the value of `status.job`.

use super::{Observed, request::Request, spec_hash};
use crate::job::{CleanupVolume, PrepareVolume, Task, VolumeTask};
use quarry_api::{
    NodeJob, NodeJobSpec,
    ids::Uid,
    names,
    node_job::{JobOwner, JobPhase, OwnerKind, Precondition},
};

/// The step names before the name of the job in `status.job`.
pub const PREPARE: &str = "PrepareVolume";
pub const UNPREPARE: &str = "UnprepareVolume";

/// `PrepareVolume/<job>` → (`PrepareVolume`, `<job>`).
pub fn parse_handle(handle: &str) -> Option<(&str, &str)> {
    handle
        .split_once('/')
        .filter(|(step, name)| (*step == PREPARE || *step == UNPREPARE) && !name.is_empty())
}

/// `step` is `PREPARE` or `UNPREPARE`.
pub fn handle(step: &str, job: &NodeJob) -> String {
    format!("{step}/{}", job.metadata.name.as_deref().unwrap_or_default())
}

/// What the job does to a volume; `None`: it is not a valid job of a volume.
pub fn volume_task(job: &NodeJob) -> Option<VolumeTask> {
    match Task::try_from(&job.spec) {
        Ok(Task::Volume(task)) => Some(task),
        Ok(Task::Wipe(_)) | Err(_) => None,
    }
}

pub fn is_prepare(job: &NodeJob) -> bool {
    matches!(volume_task(job), Some(VolumeTask::Prepare(_)))
}

/// The UID of the Volume whose storage this job has prepared.
pub fn prepared_volume(job: &NodeJob) -> Option<&str> {
    let phase = job.status.as_ref().and_then(|status| status.phase);
    (phase == Some(JobPhase::Succeeded) && is_prepare(job)).then_some(job.spec.owner.uid.as_str())
}

pub fn is_cleanup(job: &NodeJob) -> bool {
    matches!(volume_task(job), Some(VolumeTask::Cleanup(_)))
}

pub fn prepare_job(seen: &Observed, request: &Request, attempt: i32) -> NodeJob {
    let retry = seen
        .volume
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, _)| *key == names::RETRY_ANNOTATION);
    let task = VolumeTask::Prepare(PrepareVolume {
        uid: Uid::from(seen.uid()),
        size: request.size,
        format: request.format.clone(),
    });
    build(seen, task, &request.node_uid, attempt, retry.map(|(_, value)| value.clone()))
}

pub fn cleanup_job(seen: &Observed, node_uid: &str, attempt: i32) -> NodeJob {
    let task = VolumeTask::Cleanup(CleanupVolume { uid: Uid::from(seen.uid()) });
    build(seen, task, node_uid, attempt, None)
}

fn build(
    seen: &Observed,
    task: VolumeTask,
    node_uid: &str,
    attempt: i32,
    retry: Option<String>,
) -> NodeJob {
    let task = Task::Volume(task);
    let spec = NodeJobSpec {
        action: task.action(),
        node_name: seen.volume.spec.node_name.clone(),
        owner: JobOwner {
            kind: OwnerKind::Volume,
            namespace: None,
            name: seen.name().to_owned(),
            uid: seen.uid().to_owned(),
        },
        device: task.device(),
        precondition: Precondition {
            node_uid: node_uid.to_owned(),
            spec_hash: spec_hash(&seen.volume.spec),
        },
        parameters: task.parameters(),
        attempt,
        retry,
    };
    let mut job = NodeJob::new(&spec.job_name(), spec);
    job.metadata.labels = Some(
        [(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned())].into(),
    );
    job
}
