//! The life of one claim: claimed → confirmed → published → released → wiped → published again, until nobody wants it.
//!
//! One explicit state machine: `decide` looks at a claim and everything that concerns it and names its stage, the claim
//! as it is to be from now on, and the steps that follow. Intent comes first: a round is raised and a job is on record
//! in the claim before anything that depends on it is done by a later plan. Next to read: `stage.rs`, `wiping.rs`.

use super::{
    ClaimContext, NodeWorld, Stage, Step,
    demand::{Demand, PvSettings},
    is_frozen, is_released, pv,
    wipe::wipe,
    wipe_remnant_on, wipe_remnant_text,
};
use crate::{
    device::Reason,
    volume::usage::{PvUsage, pv_usage},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    names,
    node_inventory::{ClaimContent, ClaimState, DeviceClaim, LastPv, RetainedData, WipeRemnant},
    reason::Meaning,
    volume::VolumeMode,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    pub stage: Stage,
    /// The claim from now on; `None`: it has ended.
    pub claim: Option<DeviceClaim>,
    pub steps: Vec<Step>,
    pub requeue: Option<SignedDuration>,
    /// What stays on the device, from now on on record.
    pub keeps: Option<RetainedData>,
    pub erased: Option<Erased>,
}

/// How much of a device is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erased {
    Whole,
    /// The rest stays, and that is on record from now on.
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
        return Transition::stay(ctx, Stage::Frozen(gone_text(world, ctx)));
    }
    if is_frozen(world) {
        return Transition::stay(ctx, Stage::Frozen(frozen_text(world, ctx)));
    }
    match ctx.pv {
        Some(found) if !pv::is_of(found, ctx.claim) => {
            Transition::stay(ctx, Stage::Blocked(stranger_text(found)))
        }
        Some(found) => published(world, ctx, found, now),
        None => unpublished(world, ctx),
    }
}

fn wanted(ctx: &ClaimContext<'_>) -> bool {
    ctx.demand.is_some_and(|demand| demand.still_demands(ctx.claim))
}

/// A PersistentVolume of our name that is not of this claim.
fn stranger_text(found: &PersistentVolume) -> String {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    if pv::is_ours(found) && found.metadata.deletion_timestamp.is_some() {
        let key = names::IDENTITY_ANNOTATION;
        return format!(
            "PersistentVolume {name} is deleted and cannot go: its annotation {key} or its path was changed since it was made; put back what it was"
        );
    }
    format!(
        "a PersistentVolume named {name} exists that was not made from this claim: delete it if nobody needs it"
    )
}

/// "PersistentVolume local-pv-1: ", where there is one.
fn pv_prefix(ctx: &ClaimContext<'_>) -> String {
    ctx.pv
        .and_then(|found| found.metadata.name.as_ref())
        .map_or_else(String::new, |name| format!("PersistentVolume {name}: "))
}

fn gone_text(world: &NodeWorld, ctx: &ClaimContext<'_>) -> String {
    let about = pv_prefix(ctx);
    format!(
        "{about}node {} is gone: its claims and PersistentVolumes are kept for when it comes back; {}",
        world.name,
        release_text(world)
    )
}

fn frozen_text(world: &NodeWorld, ctx: &ClaimContext<'_>) -> String {
    let about = pv_prefix(ctx);
    format!(
        "{about}node {} is another machine than the one that was claimed from: nothing is assumed about its disks; {}",
        world.name,
        release_text(world)
    )
}

fn release_text(world: &NodeWorld) -> String {
    let value = world.inventory.spec.machine_id.as_deref().unwrap_or(&world.name);
    format!(
        "to give them up, annotate the NodeInventory {} with {}={value}",
        world.name,
        names::RELEASE_DEVICE_CLAIMS_ANNOTATION
    )
}

/// What was never bound holds nothing of anybody.
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
    }
}

pub fn wipe_remnant(world: &NodeWorld, identity: &str, pv_uid: String) -> WipeRemnant {
    let RetainedData { identity, pv_name, pv_uid } = retained_data(world, identity, pv_uid);
    WipeRemnant { identity, pv_name, pv_uid }
}

/// By an administrator's word: the objects go, nothing is touched on any disk, and nothing goes that is in use.
fn give_up(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Transition {
    let Some(found) = ctx.pv.filter(|found| pv::is_of(found, ctx.claim)) else {
        let keeps = pv::used(ctx.claim)
            .map(|last| retained_data(world, &ctx.claim.identity, last.uid.clone()));
        return Transition {
            claim: None,
            keeps,
            ..Transition::stay(ctx, Stage::Terminating("given up".into()))
        };
    };
    match pv_usage(found) {
        PvUsage::InUse(why) => {
            Transition::stay(ctx, Stage::Terminating(format!("{why}: it goes when that ends")))
        }
        PvUsage::Free if found.metadata.deletion_timestamp.is_none() => Transition::step(
            ctx,
            Stage::Terminating("its PersistentVolume is deleted".into()),
            delete(found),
        ),
        PvUsage::Free => {
            let keeps = keeps(world, ctx.claim, found).filter(|_| !pv::is_over(found, ctx.claim));
            Transition {
                keeps,
                ..Transition::step(
                    ctx,
                    Stage::Terminating("its PersistentVolume is let go".into()),
                    release(found),
                )
            }
        }
    }
}

/// That a volume is used is on record, and before anything is done about it: whoever tears the object away tears away
/// neither the data nor our knowledge of it.
fn published(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Transition {
    let mut transition = with_volume(world, ctx, found, now);
    let known = |claim: &DeviceClaim| {
        claim.last_pv.as_ref().is_some_and(|last| found.metadata.uid.as_ref() == Some(&last.uid))
    };
    if let Some(claim) =
        transition.claim.as_mut().filter(|claim| pv::was_bound(found) && !known(claim))
    {
        claim.last_pv =
            Some(LastPv { uid: found.metadata.uid.clone().unwrap_or_default(), resolved: false });
    }
    transition
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
    // Not by its claimRef: an administrator may reserve one that nobody has used yet.
    let released =
        found.status.as_ref().is_some_and(|status| status.phase.as_deref() != Some("Available"));
    match (released, pv::deletes(found)) {
        (true, true) => Transition::step(
            ctx,
            Stage::Releasing(format!(
                "PersistentVolume {name} is released: it is deleted, the device wiped, and published again"
            )),
            delete(found),
        ),
        (true, false) => Transition::stay(
            ctx,
            Stage::Retained(format!(
                "PersistentVolume {name} is released and keeps its data (Retain): to have the device wiped and published again, set its persistentVolumeReclaimPolicy to Delete; to keep the data, delete the PersistentVolume{}; no set gets the device then, until somebody says that the data is not needed",
                ctx.claim.path.as_ref().map_or_else(
                    || " and free the claim with that".to_owned(),
                    |path| format!(" and take {path} out of spec.storageClassDevices.devicePaths")
                )
            )),
        ),
        // `ending`: another operator published it while this one was already giving it back.
        (false, _) if ctx.claim.terminating || !wanted(ctx) => Transition::step(
            ctx,
            Stage::Terminating(format!("PersistentVolume {name} is unused and is deleted")),
            delete(found),
        ),
        // By the word of an agent that is there: what an absent one said may be about a disk that was moved since.
        (false, _) if ctx.doubt.is_some() && world.agent_present => {
            let why = ctx.doubt.clone().unwrap_or_default();
            Transition::step(
                ctx,
                Stage::Releasing(format!(
                    "PersistentVolume {name} is unused and is withdrawn: {why}"
                )),
                delete(found),
            )
        }
        (false, _) if user(ctx).is_some() => {
            let why = user(ctx).unwrap_or_default();
            Transition::step(
                ctx,
                Stage::Releasing(format!(
                    "PersistentVolume {name} is withdrawn, because somebody else uses the device: {why}"
                )),
                delete(found),
            )
        }
        (false, _) if offers_data(ctx, found) => Transition::step(
            ctx,
            Stage::Releasing(format!(
                "there is data on the device although nobody has used PersistentVolume {name}: it is withdrawn, and the data stays"
            )),
            delete(found),
        ),
        (false, _) => {
            let give_up = match &ctx.claim.path {
                Some(path) => unlist(path),
                None => format!("to give it up, delete PersistentVolume {name}"),
            };
            Transition::stay(ctx, missing(ctx, &give_up).unwrap_or(Stage::Available))
        }
    }
}

/// Somebody wrote to it past its PersistentVolume, or the API was restored from a backup and has forgotten who used it.
/// Nobody may get that data, or write over it. One that is kept (Retain), was used and is free again was given free by
/// an administrator, as it is.
fn offers_data(ctx: &ClaimContext<'_>, found: &PersistentVolume) -> bool {
    let looked = ctx.report.is_some_and(|report| report.state == ClaimState::Confirmed)
        && pv::round(found).is_none_or(|round| round == ctx.claim.round);
    let given_free = !pv::deletes(found) && pv::was_used(found, ctx.claim);
    looked
        && !given_free
        && ctx.claim.content == ClaimContent::Blank
        && ctx.device.is_some_and(shows_data)
}

fn bound_stage(ctx: &ClaimContext<'_>, why: String) -> Stage {
    if let Some(doubt) = &ctx.doubt {
        return Stage::Conflict(format!(
            "{why}, and it is not certain which device it is: {doubt}"
        ));
    }
    if let Some(rival) = ctx.rival {
        return Stage::Conflict(format!(
            "{why}, and PersistentVolume {rival} is on the same device: delete that one, and whatever made it, before somebody uses both"
        ));
    }
    missing(ctx, &why).unwrap_or(Stage::Bound(why))
}

/// `more`: what else there is to say, if the device is not there.
pub fn missing(ctx: &ClaimContext<'_>, more: &str) -> Option<Stage> {
    let identity = &ctx.claim.identity;
    let now = ctx.moved.as_ref().map(|place| format!(" (it is {place} now)")).unwrap_or_default();
    ctx.device.is_none().then(|| Stage::Missing(format!("the device {identity} is not there{now}: put it back, and it is used again by itself; {more}")))
}

/// A PersistentVolume that is being deleted: the binder passes it by, our finalizer keeps it.
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
            Stage::Releasing(format!("{why}: PersistentVolume {name} is deleted when that ends")),
        );
    }
    if pv::is_over(found, ctx.claim) {
        return Transition::step(
            ctx,
            Stage::Releasing(format!("PersistentVolume {name} is let go")),
            release(found),
        );
    }
    if pv::was_bound(found) && pv::deletes(found) {
        return wipe(world, ctx, found, now);
    }
    // Never bound: nobody wrote to it. Kept: its owner deleted the PersistentVolume and keeps the data, which is on record
    // from here on. Either way the old confirmation must be worth nothing before the PersistentVolume is let go.
    // Of another volume that was used before, and of whose end nothing is known, the data may still be there.
    let before =
        pv::used(ctx.claim).map(|last| retained_data(world, &ctx.claim.identity, last.uid.clone()));
    let uid = found.metadata.uid.clone().unwrap_or_default();
    let stage = Stage::Releasing(format!("PersistentVolume {name} was deleted"));
    Transition {
        keeps: keeps(world, ctx.claim, found).or(before),
        ..Transition::change(ctx, stage, |claim| over(claim, uid))
    }
}

/// The end of a volume is on record, and the next one needs a confirmation of its own.
pub fn over(claim: &mut DeviceClaim, uid: String) {
    claim.round += 1;
    claim.job = None;
    claim.last_pv = Some(LastPv { uid, resolved: true });
}

/// Of a claim that was never published.
const FIRST_ROUND: i64 = 1;
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

/// A volume of ours that is going and whose claim is gone (somebody removed the NodeInventory by force): nobody else would
/// ever let it go. Nothing is wiped for it.
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

fn unpublished(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Transition {
    let claim = ctx.claim;
    let torn = pv::used(claim).map(|last| &last.uid).or(claim.job.as_ref().map(|job| &job.name));
    if let Some(uid) = torn.cloned() {
        // The PersistentVolume was torn away while it was used, perhaps in mid-wipe: what is on the device is somebody's.
        let keeps = Some(retained_data(world, &claim.identity, uid.clone()));
        return Transition {
            keeps,
            ..Transition::change(ctx, Stage::Claimed, |claim| over(claim, uid))
        };
    }
    if claim.terminating || !wanted(ctx) {
        return ending(ctx, "nobody wants it any more");
    }
    // Nothing is at stake while it is not published: what the set does not describe any more is given back. So a disk is
    // taken out of a set: exclude it, then delete its PersistentVolume.
    if ctx.demand.zip(ctx.device).is_some_and(|(demand, device)| !demand.describes(device)) {
        return ending(ctx, "the set does not describe it any more");
    }
    let other =
        ctx.demand.filter(|demand| !demand.makes(claim)).and_then(|demand| demand.settings(claim));
    // One that says nothing about its size is no other one.
    let size = ctx.device.map(|device| device.size).filter(|size| *size != claim.size && *size > 0);
    match (&claim.path, other, size) {
        (_, None, None) => {}
        (None, Some(_), _) => {
            return ending(
                ctx,
                "the set makes something else of its devices by now: it is claimed anew",
            );
        }
        (None, None, Some(size)) => {
            return ending(
                ctx,
                &format!(
                    "the device has {size} bytes now, {} were claimed: it is claimed anew",
                    claim.size
                ),
            );
        }
        // Its path must not be looked up again: it may lead to another disk by now.
        (Some(_), other, size) => return refit(world, ctx, other, size),
    }
    // A disk that is gone for good must not hold a place for ever. So one is given up: delete its PersistentVolume. Not one
    // that somebody named by a path: the path would be looked up again, and may lead to another disk by now.
    if claim.path.is_none() && is_surely_absent(world, ctx) {
        return ending(
            ctx,
            &format!("the device {} is not there, and it has no PersistentVolume", claim.identity),
        );
    }
    // It may pass: the claim keeps the device from everybody else meanwhile.
    if let Some(why) = &ctx.doubt {
        return Transition::stay(ctx, Stage::Blocked(why.clone()));
    }
    let Some(report) = ctx.report else { return Transition::stay(ctx, unanswered(world, ctx)) };
    match report.state {
        ClaimState::Removed | ClaimState::RemovalFailed => Transition::stay(ctx, Stage::Claimed),
        ClaimState::Refused => refused(world, ctx, report.message.clone().unwrap_or_default()),
        ClaimState::Confirmed => confirmed(world, ctx),
    }
}

/// A device that was named by its path stays claimed, and becomes what is asked for now. One that has another size is
/// looked at anew.
fn refit(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    other: Option<&PvSettings>,
    size: Option<i64>,
) -> Transition {
    let left = ctx.device.and_then(|device| wipe_remnant_on(world, device));
    if let Some(left) = left.filter(|_| {
        other.is_some_and(|other| other.mode == VolumeMode::Block)
            && ctx.claim.volume_mode != VolumeMode::Block
    }) {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!("the device {}", wipe_remnant_text(left))),
        );
    }
    Transition::change(ctx, Stage::Claimed, |claim| {
        if let Some(PvSettings { class: _, mode, fs_type }) = other {
            (claim.volume_mode, claim.fs_type) = (*mode, fs_type.clone());
        }
        if let Some(size) = size {
            claim.size = size;
            claim.round += 1;
        }
    })
}

/// By the word of an agent that is there.
fn is_surely_absent(world: &NodeWorld, ctx: &ClaimContext<'_>) -> bool {
    ctx.device.is_none() && world.agent_present && world.inventory.status.is_some()
}

fn unlist(path: &str) -> String {
    format!("to give it up, take {path} out of spec.storageClassDevices.devicePaths")
}

/// Nothing is heard of the device, or nothing yet.
fn unanswered(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Stage {
    let more = match &ctx.claim.path {
        Some(path) => unlist(path),
        None => {
            format!("it is not certain either, because the agent on node {} is absent", world.name)
        }
    };
    missing(ctx, &more).unwrap_or(Stage::Claimed)
}

/// Gone from the inventory when the agent says that nothing of it is left.
fn ending(ctx: &ClaimContext<'_>, why: &str) -> Transition {
    let ended = ctx.claim.terminating
        && ctx.report.is_some_and(|report| report.state == ClaimState::Removed);
    let stuck = ctx
        .report
        .filter(|report| ctx.claim.terminating && report.state == ClaimState::RemovalFailed)
        .and_then(|report| report.message.as_ref());
    let stage = stuck.map_or_else(
        || Stage::Terminating(why.to_owned()),
        |trouble| Stage::RemovalFailed(format!("{why}, but {trouble}")),
    );
    if ended {
        return Transition { claim: None, ..Transition::stay(ctx, stage) };
    }
    Transition::change(ctx, stage, |claim| claim.terminating = true)
}

/// A claim that cannot be used holds the set's place for nothing: it ends when the device itself says why. What may pass
/// (somebody looks at the device just now) is waited for.
fn refused(world: &NodeWorld, ctx: &ClaimContext<'_>, why: String) -> Transition {
    let lasting = ctx
        .device
        .is_some_and(|device| device.reasons.iter().any(|told| !told.reason.is_transient()));
    if lasting && ctx.claim.content == ClaimContent::Blank {
        return ending(ctx, &why);
    }
    let stage = if ctx.device.is_some() { Stage::Refused(why) } else { unanswered(world, ctx) };
    Transition::stay(ctx, stage)
}

/// Whether the agent's last look at the device speaks of data.
pub fn shows_data(device: &quarry_api::node_inventory::Device) -> bool {
    device.means(Meaning::Data)
}

/// Who uses the device past any volume of ours, in words.
pub fn user(ctx: &ClaimContext<'_>) -> Option<String> {
    let device = ctx.device?;
    if let Some(rival) = ctx.rival {
        return Some(format!("PersistentVolume {rival} is on {}", device.name));
    }
    let used = device.reasons.iter().find(|found| found.reason.means(Meaning::InUse))?;
    Some(format!("{} {}", device.name, used.message()))
}

/// What was kept is nobody's to get, but for a path that was named after that.
pub fn blocks_reuse(
    world: &NodeWorld,
    claim: &DeviceClaim,
    device: &quarry_api::node_inventory::Device,
) -> bool {
    super::retained_data_on(world, device).is_some()
        && (claim.content == ClaimContent::Blank || claim.round > FIRST_ROUND)
}

/// What a Block volume of this claim would show of a volume of another one. Its own class may ask for Quick.
pub fn exposed_remnant<'a>(
    world: &'a NodeWorld,
    claim: &DeviceClaim,
    device: &quarry_api::node_inventory::Device,
) -> Option<&'a WipeRemnant> {
    let own =
        |left: &&WipeRemnant| claim.last_pv.as_ref().is_some_and(|last| last.uid == left.pv_uid);
    wipe_remnant_on(world, device)
        .filter(|left| claim.volume_mode == VolumeMode::Block && !own(left))
}

fn confirmed(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Transition {
    let claim = ctx.claim;
    let Some(device) = ctx.device else { return Transition::stay(ctx, unanswered(world, ctx)) };
    if !ctx.report.is_some_and(|report| report.linked) {
        let why = ctx
            .report
            .and_then(|report| report.message.clone())
            .unwrap_or_else(|| "the link is not there yet".into());
        return Transition::stay(ctx, Stage::Blocked(why));
    }
    if claim.content == ClaimContent::Blank && shows_data(device) {
        return Transition::stay(
            ctx,
            Stage::Blocked("something was written to the device after it was confirmed".into()),
        );
    }
    if let Some(why) = user(ctx) {
        return Transition::stay(ctx, Stage::Blocked(format!("somebody uses the device: {why}")));
    }
    if let Some(left) = exposed_remnant(world, claim, device) {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!("{} {}", device.name, wipe_remnant_text(left))),
        );
    }
    if claim.content == ClaimContent::Blank && blocks_reuse(world, claim, device) {
        return Transition::stay(
            ctx,
            Stage::Blocked(
                Reason::RetainedData.message(&names::local_pv(&world.name, &claim.identity)),
            ),
        );
    }
    // Somebody may have used it since it was named: his data is not for the next one.
    if let Some(path) = claim.path.as_ref().filter(|_| {
        claim.round > FIRST_ROUND && (shows_data(device) || blocks_reuse(world, claim, device))
    }) {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "there is data on the device, perhaps of the PersistentVolume that was deleted: it is not offered to anybody; to have it as it is, take {path} out of spec.storageClassDevices.devicePaths and, when the claim has ended, put it in again"
            )),
        );
    }
    if !world.agent_present {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "the agent on node {} is absent: check that the node is up and its quarry-agent pod runs",
                world.name
            )),
        );
    }
    let demand = ctx.demand;
    let min = demand.map_or(0, Demand::min);
    let ready = ctx.ready;
    if ready < min {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "{ready} devices of this node are confirmed, minDeviceCount is {min}"
            )),
        );
    }
    let class = world.classes.get(&claim.storage_class_name);
    if let Some(class) = class.filter(|class| class.provisioner != pv::NO_PROVISIONER) {
        let text = format!(
            "StorageClass {} belongs to the provisioner {}: use another name, or delete that class",
            claim.storage_class_name, class.provisioner
        );
        return Transition::stay(ctx, Stage::Blocked(text));
    }
    let Some(made) = pv::build(world, ctx, class.map(AsRef::as_ref)) else {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "node {} has no {} label: its PersistentVolumes could not say where they are",
                world.name,
                pv::HOSTNAME_LABEL
            )),
        );
    };
    let mut transition = Transition::stay(ctx, Stage::Confirmed);
    if class.is_none() {
        transition.steps.push(Step::CreateClass(Box::new(pv::build_class(claim))));
    }
    transition.steps.push(Step::CreatePv(Box::new(made)));
    transition
}
