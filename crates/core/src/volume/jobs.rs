//! The jobs of a Volume: their specs and names, and the value of `status.job`.

use super::{Observed, request::Request, spec_hash};
use quarry_api::{
    NodeJob, NodeJobSpec, names,
    node_job::{Action, JobDevice, JobOwner, OwnerKind, Precondition, SparseFile},
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

pub fn handle(job: &NodeJob) -> String {
    let step = match job.spec.action {
        Action::Prepare => PREPARE,
        Action::Cleanup | Action::Wipe => UNPREPARE,
    };
    format!("{step}/{}", job.metadata.name.as_deref().unwrap_or_default())
}

pub fn prepare_job(seen: &Observed, request: &Request, attempt: i32) -> NodeJob {
    let retry = seen
        .volume
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, _)| *key == names::RETRY_ANNOTATION);
    build(
        seen,
        Action::Prepare,
        &request.node_uid,
        Some(request),
        attempt,
        retry.map(|(_, value)| value.clone()),
    )
}

pub fn cleanup_job(seen: &Observed, node_uid: &str, attempt: i32) -> NodeJob {
    build(seen, Action::Cleanup, node_uid, None, attempt, None)
}

fn build(
    seen: &Observed,
    action: Action,
    node_uid: &str,
    request: Option<&Request>,
    attempt: i32,
    retry: Option<String>,
) -> NodeJob {
    let spec = NodeJobSpec {
        action,
        node_name: seen.volume.spec.node_name.clone(),
        owner: JobOwner {
            kind: OwnerKind::Volume,
            namespace: None,
            name: seen.name().to_owned(),
            uid: seen.uid().to_owned(),
        },
        device: JobDevice {
            sparse_file: Some(SparseFile { volume_uid: seen.uid().to_owned() }),
            claimed: None,
        },
        precondition: Precondition {
            node_uid: node_uid.to_owned(),
            spec_hash: spec_hash(&seen.volume.spec),
        },
        parameters: request.map(|request| request.parameters.clone()),
        attempt,
        retry,
    };
    let mut job = NodeJob::new(&spec.job_name(), spec);
    job.metadata.labels = Some(
        [(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned())].into(),
    );
    job
}
