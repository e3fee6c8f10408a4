//! The states of one device claim: claimed, confirmed, published, released, wiped, published again, until no object
//! demands the device.
//!
//! One explicit state machine: `decide` takes a device claim with everything that concerns it and returns its stage,
//! the device claim as it is to be from now on, and the steps that follow. Intent comes first: a round is raised and a
//! job is recorded in the device claim before a later plan does anything that depends on it. Next to read: `stage.rs`,
//! `unpublished.rs` (without a PersistentVolume), `wipe.rs`.

use super::{
    ClaimContext, NodeWorld, Stage, Step,
    content::{shows_data, unusable, user},
    is_frozen, is_released,
    messages::{conflicting_pv, frozen, missing, node_gone, remove_path},
    pv,
    unpublished::unpublished,
    wipe::wipe,
};
use crate::volume::usage::{PvUsage, pv_usage};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    names,
    node_inventory::{ClaimContent, ClaimState, DeviceClaim, LastPv, RetainedData, WipeRemnant},
};

#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    pub stage: Stage,
    /// The device claim from now on; `None`: it has ended.
    pub claim: Option<DeviceClaim>,
    pub steps: Vec<Step>,
    pub requeue: Option<SignedDuration>,
    /// What stays on the device and is recorded from now on.
    pub keeps: Option<RetainedData>,
    pub erased: Option<Erased>,
}

/// How much of a device was erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erased {
    Whole,
    /// The rest stays, and is recorded from now on.
    Signatures(WipeRemnant),
}

impl Transition {
    pub fn stay(ctx: &ClaimContext<'_>, stage: Stage) -> Self {
        Transition {
            stage,
            claim: Some(ctx.claim.clone()),
            steps: Vec::new(),
            requeue: None,
            keeps: None,
            erased: None,
        }
    }

    pub fn step(ctx: &ClaimContext<'_>, stage: Stage, step: Step) -> Self {
        Transition { steps: vec![step], ..Transition::stay(ctx, stage) }
    }

    pub fn change(
        ctx: &ClaimContext<'_>,
        stage: Stage,
        change: impl FnOnce(&mut DeviceClaim),
    ) -> Self {
        let mut claim = ctx.claim.clone();
        change(&mut claim);
        Transition { claim: Some(claim), ..Transition::stay(ctx, stage) }
    }
}

pub fn decide(world: &NodeWorld, ctx: &ClaimContext<'_>, now: Timestamp) -> Transition {
    if is_released(world) {
        return give_up(world, ctx);
    }
    if world.node.is_none() {
        return Transition::stay(ctx, Stage::Frozen(node_gone(world, ctx)));
    }
    if is_frozen(world) {
        return Transition::stay(ctx, Stage::Frozen(frozen(world, ctx)));
    }
    match ctx.pv {
        Some(found) if !pv::is_of(found, ctx.claim) => {
            Transition::stay(ctx, Stage::Blocked(conflicting_pv(found)))
        }
        Some(found) => published(world, ctx, found, now),
        None => unpublished(world, ctx),
    }
}

/// The owner still demands the device.
pub fn is_demanded(ctx: &ClaimContext<'_>) -> bool {
    ctx.demand.is_some_and(|demand| demand.still_demands(ctx.claim))
}

/// A PersistentVolume that was never bound leaves no data.
fn keeps(world: &NodeWorld, claim: &DeviceClaim, found: &PersistentVolume) -> Option<RetainedData> {
    pv::was_used(found, claim).then(|| {
        retained_data(world, &claim.identity, found.metadata.uid.clone().unwrap_or_default())
    })
}

pub fn retained_data(world: &NodeWorld, identity: &str, pv_uid: String) -> RetainedData {
    RetainedData {
        identity: identity.to_owned(),
        pv_name: names::local_pv(&world.name, identity),
        pv_uid,
        // Recorded with the whole plan.
        disk: None,
        identifiers: Vec::new(),
    }
}

pub fn wipe_remnant(world: &NodeWorld, identity: &str, pv_uid: String) -> WipeRemnant {
    let RetainedData { identity, pv_name, pv_uid, disk, identifiers } =
        retained_data(world, identity, pv_uid);
    WipeRemnant { identity, pv_name, pv_uid, disk, identifiers }
}

/// An administrator releases the device claims: the objects are deleted, unless they are in use; no disk is touched.
fn give_up(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Transition {
    let Some(found) = ctx.pv.filter(|found| pv::is_of(found, ctx.claim)) else {
        let keeps = pv::used(ctx.claim)
            .map(|last| retained_data(world, &ctx.claim.identity, last.uid.clone()));
        return Transition {
            claim: None,
            keeps,
            ..Transition::stay(ctx, Stage::Terminating("released by an administrator".into()))
        };
    };
    match pv_usage(found) {
        PvUsage::InUse(why) => Transition::stay(
            ctx,
            Stage::Terminating(format!("{why}; it is deleted when that ends")),
        ),
        PvUsage::Free if found.metadata.deletion_timestamp.is_none() => Transition::step(
            ctx,
            Stage::Terminating("deleting its PersistentVolume".into()),
            delete(found),
        ),
        PvUsage::Free => {
            let keeps = keeps(world, ctx.claim, found).filter(|_| !pv::is_over(found, ctx.claim));
            Transition {
                keeps,
                ..Transition::step(
                    ctx,
                    Stage::Terminating("removing the finalizer of its PersistentVolume".into()),
                    release(found),
                )
            }
        }
    }
}

/// That a PersistentVolume is used is recorded before anything is done about it: removing the object by force removes
/// neither the data nor the record of it. A job that was recorded before is not about the new data.
fn published(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Transition {
    if !pv::is_new_use(found, ctx.claim) {
        return with_volume(world, ctx, found, now);
    }
    let last_pv = Some(LastPv {
        uid: found.metadata.uid.clone().unwrap_or_default(),
        pvc_uid: pv::pvc_uid(found).map(str::to_owned),
        resolved: false,
    });
    let claim = DeviceClaim { last_pv, job: None, ..ctx.claim.clone() };
    with_volume(world, &ClaimContext { claim: &claim, ..ctx.clone() }, found, now)
}

fn with_volume(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Transition {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    if found.metadata.deletion_timestamp.is_some() {
        return leaving(world, ctx, found, now);
    }
    if let PvUsage::InUse(why) = pv_usage(found) {
        return Transition::stay(ctx, bound_stage(ctx, why));
    }
    // Not by its claimRef: an administrator may reserve a PersistentVolume that was never used.
    let released =
        found.status.as_ref().is_some_and(|status| status.phase.as_deref() != Some("Available"));
    match (released, pv::deletes(found)) {
        (true, true) => Transition::step(
            ctx,
            Stage::Releasing(format!(
                "PersistentVolume {name} is released; it is deleted, the device is wiped and published again"
            )),
            delete(found),
        ),
        (true, false) => Transition::stay(
            ctx,
            Stage::Retained(format!(
                "PersistentVolume {name} is released and retains its data (Retain); to wipe the device and publish it again, set persistentVolumeReclaimPolicy to Delete; to retain the data, delete the PersistentVolume{}; no LocalVolumeSet takes the device until an administrator discards the data",
                ctx.claim.path.as_ref().map_or_else(
                    || ", which also ends the device claim".to_owned(),
                    |path| format!(" and remove {path} from spec.storageClassDevices.devicePaths")
                )
            )),
        ),
        // Any PVC could be bound to it, and would get the data of its last user.
        (false, _) if pv::was_used(found, ctx.claim) && !pv::is_reserved(found) => {
            Transition::step(
                ctx,
                Stage::Releasing(format!(
                    "withdrawing PersistentVolume {name}: it was used, and its claimRef was cleared; its data is retained"
                )),
                delete(found),
            )
        }
        // Terminating: another operator published it while this one was already releasing it.
        (false, _) if ctx.claim.terminating || !is_demanded(ctx) => Transition::step(
            ctx,
            Stage::Terminating(format!("deleting the unused PersistentVolume {name}")),
            delete(found),
        ),
        // Reported by an agent that is present: an absent one may have reported a disk that was moved since.
        (false, _) if withdrawn_for(ctx).is_some() && world.agent_present => {
            let why = withdrawn_for(ctx).unwrap_or_default();
            Transition::step(
                ctx,
                Stage::Releasing(format!("withdrawing the unused PersistentVolume {name}: {why}")),
                delete(found),
            )
        }
        (false, _) if outdated(ctx).is_some() => Transition::step(
            ctx,
            Stage::Releasing(format!(
                "withdrawing PersistentVolume {name}: {}",
                outdated(ctx).unwrap_or_default()
            )),
            delete(found),
        ),
        (false, _) if user(ctx).is_some() => {
            let why = user(ctx).unwrap_or_default();
            Transition::step(
                ctx,
                Stage::Releasing(format!(
                    "withdrawing PersistentVolume {name}, because the device is in use: {why}"
                )),
                delete(found),
            )
        }
        (false, _) if offers_data(ctx, found) => Transition::step(
            ctx,
            Stage::Releasing(format!(
                "withdrawing PersistentVolume {name}: the device contains data although the PersistentVolume was never used; the data is not touched"
            )),
            delete(found),
        ),
        (false, _) => {
            let give_up = match &ctx.claim.path {
                Some(path) => remove_path(path),
                None => format!("to release it, delete PersistentVolume {name}"),
            };
            let conflict = ctx.quarantine.as_ref().map(|quarantine| {
                Stage::Conflict(format!(
                    "PersistentVolume {name} is published, but {}",
                    quarantine.why
                ))
            });
            let stage = missing(ctx, &give_up).or(conflict);
            Transition::stay(ctx, stage.unwrap_or(Stage::Available))
        }
    }
}

/// Why an unused PersistentVolume must not be offered, by what is known on its own node. What another node shows does
/// not count: an agent that lies, or shows what a tenant wrote, would withdraw PersistentVolumes everywhere.
fn withdrawn_for(ctx: &ClaimContext<'_>) -> Option<String> {
    let quarantine = ctx.quarantine.as_ref().filter(|quarantine| !quarantine.elsewhere);
    quarantine.map(|quarantine| quarantine.why.clone()).or_else(|| unusable(ctx.device?))
}

/// Something wrote to the device without its PersistentVolume, or the API was restored from a backup and does not know
/// who used it. That data must be neither exposed nor overwritten. A PersistentVolume that was used and is reserved was
/// handed over by an administrator, as it is.
fn offers_data(ctx: &ClaimContext<'_>, found: &PersistentVolume) -> bool {
    let looked = ctx.report.is_some_and(|report| report.state == ClaimState::Confirmed)
        && pv::round(found).is_none_or(|round| round == ctx.claim.round);
    looked
        && !pv::was_used(found, ctx.claim)
        && ctx.claim.content == ClaimContent::Blank
        && ctx.device.is_some_and(shows_data)
}

/// The ledger of the node knows that this device claim is over.
fn outdated<'a>(ctx: &'a ClaimContext<'_>) -> Option<&'a str> {
    let report = ctx.report.filter(|report| report.state == ClaimState::Outdated)?;
    Some(report.message.as_deref().unwrap_or("the device claim is outdated"))
}

fn bound_stage(ctx: &ClaimContext<'_>, why: String) -> Stage {
    if let Some(outdated) = outdated(ctx) {
        return Stage::Conflict(format!(
            "{why}, but its device is not given to pods: {outdated}; delete the PVC after checking where its data is"
        ));
    }
    if let Some(quarantine) = &ctx.quarantine {
        return Stage::Conflict(format!(
            "{why}, but it is not certain which device it is: {}",
            quarantine.why
        ));
    }
    if let Some(rival) = ctx.rival {
        return Stage::Conflict(format!(
            "{why}, but PersistentVolume {rival} is on the same device; delete PersistentVolume {rival} and the object that created it before both are used"
        ));
    }
    missing(ctx, &why).unwrap_or(Stage::Bound(why))
}

/// A PersistentVolume that is being deleted: our finalizer keeps it. Only a PVC that names it can still be bound.
fn leaving(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Transition {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    if let PvUsage::InUse(why) = pv_usage(found) {
        return Transition::stay(
            ctx,
            Stage::Releasing(format!("{why}; PersistentVolume {name} is deleted when that ends")),
        );
    }
    if pv::is_over(found, ctx.claim) {
        return Transition::step(
            ctx,
            Stage::Releasing(format!("removing the finalizer of PersistentVolume {name}")),
            release(found),
        );
    }
    if pv::was_bound(found) && pv::deletes(found) {
        return wipe(world, ctx, found, now);
    }
    // Never bound: it was not written to. Retained: the PersistentVolume was deleted and its data stays, which is recorded
    // from here on. Either way the old confirmation must be void before the finalizer is removed. The data of an earlier
    // PersistentVolume whose end is not recorded may still be there.
    let before =
        pv::used(ctx.claim).map(|last| retained_data(world, &ctx.claim.identity, last.uid.clone()));
    let uid = found.metadata.uid.clone().unwrap_or_default();
    let stage = Stage::Releasing(format!("PersistentVolume {name} was deleted"));
    Transition {
        keeps: keeps(world, ctx.claim, found).or(before),
        ..Transition::change(ctx, stage, |claim| mark_resolved(claim, uid))
    }
}

/// Records the end of a PersistentVolume; the next one needs its own confirmation.
pub fn mark_resolved(claim: &mut DeviceClaim, uid: String) {
    claim.round += 1;
    claim.job = None;
    let last = claim.last_pv.take().filter(|last| last.uid == uid);
    let pvc_uid = last.and_then(|last| last.pvc_uid);
    claim.last_pv = Some(LastPv { uid, pvc_uid, resolved: true });
}

fn delete(found: &PersistentVolume) -> Step {
    Step::DeletePv {
        name: found.metadata.name.clone().unwrap_or_default(),
        uid: found.metadata.uid.clone().unwrap_or_default(),
        resource_version: found.metadata.resource_version.clone().unwrap_or_default(),
    }
}

fn release(found: &PersistentVolume) -> Step {
    let kept = found
        .metadata
        .finalizers
        .iter()
        .flatten()
        .filter(|finalizer| *finalizer != names::PV_FINALIZER)
        .cloned()
        .collect();
    Step::ReleasePv {
        name: found.metadata.name.clone().unwrap_or_default(),
        resource_version: found.metadata.resource_version.clone().unwrap_or_default(),
        finalizers: kept,
    }
}

/// A PersistentVolume of ours that is being deleted and whose device claim is gone (the NodeInventory was removed by
/// force): nothing else would remove its finalizer. Nothing is wiped for it.
pub fn orphan(world: &NodeWorld, found: &PersistentVolume) -> Option<(Step, Option<RetainedData>)> {
    let identity = found.metadata.annotations.as_ref()?.get(names::IDENTITY_ANNOTATION)?;
    let claim = DeviceClaim { identity: identity.clone(), ..DeviceClaim::default() };
    let ours = pv::is_ours(found)
        && found.metadata.name.as_deref() == Some(&names::local_pv(&world.name, identity));
    let free = found.metadata.deletion_timestamp.is_some()
        && pv_usage(found) == PvUsage::Free
        && world.node.is_some()
        && !is_frozen(world);
    if !ours || !free {
        return None;
    }
    Some((release(found), keeps(world, &claim, found)))
}
