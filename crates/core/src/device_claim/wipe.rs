//! The wipe of a claimed device: the policy of the class, the job that is recorded before it exists, and its retries.

use super::{
    ClaimContext, NodeWorld, Stage, Step,
    messages::missing,
    pv,
    state_machine::{Erased, Transition, mark_resolved, wipe_remnant},
};
use crate::{
    backoff::Backoff,
    job::{Task, WipeDevice},
};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use quarry_api::{
    NodeJob, NodeJobSpec, names,
    node_inventory::{ClaimJob, DeviceClaim},
    node_job::{JobOwner, JobPhase, OwnerKind, Precondition, WipePolicy, hex_digest},
    quantity::Bytes,
    volume::VolumeMode,
};
use std::time::Duration;

const RETRY: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(3600));

pub fn wipe(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Transition {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let give_up = format!(
        "to release it without a wipe, set persistentVolumeReclaimPolicy of PersistentVolume {name} to Retain"
    );
    if let Some(missing) = missing(ctx, &give_up) {
        return Transition::stay(ctx, missing);
    }
    if ctx.demand.is_none() {
        return Transition::stay(
            ctx,
            Stage::WipeFailed(format!(
                "the owner of the device claim does not exist, so no wipe is allowed; to delete PersistentVolume {name} without a wipe, set its persistentVolumeReclaimPolicy to Retain"
            )),
        );
    }
    if let Some(size) =
        ctx.device.map(|device| device.size).filter(|size| *size != ctx.claim.size && *size > 0)
    {
        return Transition::stay(
            ctx,
            Stage::WipeFailed(format!(
                "the device has {size} bytes, the device claim {}; a disk that has changed is not wiped; check the disk, erase it by hand, and set persistentVolumeReclaimPolicy of PersistentVolume {name} to Retain",
                ctx.claim.size
            )),
        );
    }
    let policy = match wipe_policy(
        world.classes.get(&ctx.claim.storage_class_name).map(AsRef::as_ref),
        ctx.claim.volume_mode,
    ) {
        Ok(policy) => policy,
        Err(why) => return Transition::stay(ctx, Stage::WipeFailed(why)),
    };
    // A job that exists is followed: the agent has refused it, or held the right device while it wiped it.
    let unsure = ctx.quarantine.as_ref().map(|quarantine| {
        let why = &quarantine.why;
        Transition::stay(
            ctx,
            Stage::WipeFailed(format!(
                "the device is not wiped while it is not certain which one it is: {why}; {give_up}"
            )),
        )
    });
    let record = |attempt: i32, stage: Stage| {
        if let Some(unsure) = &unsure {
            return unsure.clone();
        }
        let Some(job) = wipe_job(world, ctx.claim, found, policy, attempt) else {
            return Transition::stay(
                ctx,
                Stage::WipeFailed("the Node or the owner of the device is not known yet".into()),
            );
        };
        let name = job.metadata.name.clone().unwrap_or_default();
        Transition::change(ctx, stage, |claim| claim.job = Some(ClaimJob { name, attempt }))
    };
    let Some(recorded) = &ctx.claim.job else {
        return record(1, Stage::Wiping(format!("{} begins", policy.as_str())));
    };
    let Some(job) = world.jobs.get(&recorded.name) else {
        return match wipe_job(world, ctx.claim, found, policy, recorded.attempt) {
            Some(job)
                if job.metadata.name.as_deref() == Some(&recorded.name) && unsure.is_none() =>
            {
                Transition::step(
                    ctx,
                    Stage::Wiping(format!("{} begins", policy.as_str())),
                    Step::CreateJob(Box::new(job)),
                )
            }
            // The Node was recreated, or the class has another policy now: recorded first.
            Some(_) | None => {
                record(recorded.attempt, Stage::Wiping(format!("{} begins", policy.as_str())))
            }
        };
    };
    let status = job.status.as_ref();
    match status.and_then(|status| status.phase) {
        None => Transition::stay(ctx, Stage::Wiping("waiting for the agent".into())),
        Some(JobPhase::Running) => {
            let progress = status
                .and_then(|status| status.progress)
                .map_or_else(String::new, |percent| format!(", {percent} %"));
            let words = status.and_then(|status| status.message.clone()).unwrap_or_default();
            Transition::stay(ctx, Stage::Wiping(format!("{words}{progress}")))
        }
        Some(JobPhase::Succeeded) => {
            let uid = found.metadata.uid.clone().unwrap_or_default();
            // By what was done, not by what the class says meanwhile.
            let policy = match Task::try_from(&job.spec) {
                Ok(Task::Wipe(wipe)) => Some(wipe.policy),
                Ok(Task::Volume(_)) | Err(_) => None,
            };
            let erased = match policy {
                Some(WipePolicy::Discard | WipePolicy::Zero) => Erased::Whole,
                Some(WipePolicy::Quick) | None => {
                    Erased::Signatures(wipe_remnant(world, &ctx.claim.identity, uid.clone()))
                }
            };
            Transition {
                erased: Some(erased),
                ..Transition::change(ctx, Stage::Releasing("wiped".into()), |claim| {
                    mark_resolved(claim, uid)
                })
            }
        }
        Some(JobPhase::Failed) => {
            let why = status.and_then(|status| status.message.clone()).unwrap_or_default();
            let ended = status
                .and_then(|status| status.completion_time.as_ref())
                .map_or(now, |time| time.0);
            let due = ended + RETRY.after_attempt(recorded.attempt);
            let stage = Stage::WipeFailed(format!(
                "wipe failed after {} attempts and is retried: {why}",
                recorded.attempt
            ));
            if due > now {
                return Transition {
                    requeue: Some(due.duration_since(now)),
                    ..Transition::stay(ctx, stage)
                };
            }
            record(recorded.attempt.saturating_add(1), stage)
        }
    }
}

/// The policy of the class; by default a Block device is erased whole, and the signatures of a file system.
pub fn wipe_policy(class: Option<&StorageClass>, mode: VolumeMode) -> Result<WipePolicy, String> {
    let annotation =
        class.and_then(|class| class.metadata.annotations.as_ref()?.get(names::WIPE_ANNOTATION));
    match (annotation, mode) {
        (Some(text), _) => WipePolicy::parse(text).ok_or_else(|| {
            format!(
                "annotation {} of the StorageClass is {text:?}; use Quick, Discard or Zero",
                names::WIPE_ANNOTATION
            )
        }),
        (None, VolumeMode::Block) => Ok(WipePolicy::Discard),
        (None, VolumeMode::Filesystem) => Ok(WipePolicy::Quick),
    }
}

/// A hash of the fields of a device claim that a job uses: a changed device claim voids the job. So does a PVC that is
/// bound to the same PersistentVolume later: what it writes is not what the job is about.
pub fn claim_hash(claim: &DeviceClaim) -> String {
    let pvc_uid = claim.last_pv.as_ref().and_then(|last| last.pvc_uid.as_deref());
    hex_digest(&[
        &claim.identity,
        &claim.owner.uid,
        &claim.storage_class_name,
        &claim.size.to_string(),
        &claim.round.to_string(),
        pvc_uid.unwrap_or_default(),
    ])[..32]
        .to_owned()
}

pub fn wipe_job(
    world: &NodeWorld,
    claim: &DeviceClaim,
    found: &PersistentVolume,
    policy: WipePolicy,
    attempt: i32,
) -> Option<NodeJob> {
    let task = Task::Wipe(WipeDevice {
        identity: claim.identity.as_str().into(),
        size: Bytes(u64::try_from(claim.size).ok()?),
        pv: found.metadata.name.as_deref()?.into(),
        pv_uid: found.metadata.uid.as_deref()?.into(),
        pvc_uid: pv::pvc_uid(found).map(Into::into),
        policy,
    });
    let spec = NodeJobSpec {
        action: task.action(),
        node_name: world.name.clone(),
        owner: JobOwner {
            kind: OwnerKind::parse(&claim.owner.kind)?,
            namespace: claim.owner.namespace.clone(),
            name: claim.owner.name.clone(),
            uid: claim.owner.uid.clone(),
        },
        device: task.device(),
        precondition: Precondition {
            node_uid: world.node.as_ref()?.metadata.uid.clone()?,
            spec_hash: claim_hash(claim),
        },
        parameters: task.parameters(),
        attempt,
        retry: None,
    };
    let mut job = NodeJob::new(&spec.job_name(), spec);
    job.metadata.labels = Some(
        [(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned())].into(),
    );
    Some(job)
}
