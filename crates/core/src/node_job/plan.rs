//! Whether the job is deleted now. Checked in `check.rs`.

use super::{Observed, Plan};
use crate::volume::observed::job_name;
use jiff::Timestamp;
use quarry_api::node_job::{JobPhase, OwnerKind};

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let status = seen.job.status.as_ref();
    let finished = status.and_then(|status| status.phase).is_some_and(JobPhase::finished);
    if is_named(seen) || !finished {
        return Plan::Keep;
    }
    let completed = status.and_then(|status| status.completion_time.as_ref());
    let ended = completed.or(seen.job.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    match ended.map(|ended| ended + seen.retention) {
        Some(due) if due > now => Plan::KeepFor(due.duration_since(now)),
        Some(_) | None => Plan::Delete {
            uid: seen.job.metadata.uid.clone().unwrap_or_default(),
            resource_version: seen.job.metadata.resource_version.clone().unwrap_or_default(),
        },
    }
}

/// An object names the job, or may name it.
fn is_named(seen: &Observed) -> bool {
    let name = seen.job.metadata.name.as_deref();
    match seen.job.spec.owner.kind {
        // Without the Volume controller no Volume is seen: one may name this job.
        OwnerKind::Volume if !seen.volumes_watched => true,
        OwnerKind::Volume => {
            seen.volume.as_deref().and_then(job_name).is_some_and(|job| Some(&*job) == name)
        }
        OwnerKind::LocalVolumeSet | OwnerKind::LocalVolume => {
            let claims = seen.inventory.iter().flat_map(|inventory| &inventory.spec.device_claims);
            let mut jobs = claims.filter_map(|claim| claim.job.as_ref());
            jobs.any(|job| Some(&*job.name) == name)
        }
    }
}
