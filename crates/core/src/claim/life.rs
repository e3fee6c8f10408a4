//! The life of one claim: claimed → confirmed → published → released → wiped → published again, until nobody wants it.
//!
//! One explicit state machine: `decide` looks at a claim and everything that concerns it and names its stage, the claim
//! as it is to be from now on, and the steps that follow. Intent comes first: a round is raised and a job is on record
//! in the claim before anything that depends on it is done by a later plan. Next to read: `stage.rs`, `wiping.rs`.

use super::{
    NodeWorld, Stage, Step, View, is_frozen, is_released, pv, residue_on, residue_text,
    want::{Becomes, Want},
    wiping::wipe,
};
use crate::{
    device::Reason,
    volume::usage::{PvUsage, pv_usage},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    names,
    node_inventory::{Claim, ClaimContent, ClaimState, KeptData, LastVolume},
    volume::VolumeMode,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub stage: Stage,
    /// The claim from now on; `None`: it has ended.
    pub claim: Option<Claim>,
    pub steps: Vec<Step>,
    pub requeue: Option<SignedDuration>,
    /// What stays on the device, from now on on record.
    pub keeps: Option<KeptData>,
    pub erased: Option<Erased>,
}

/// How much of a device is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erased {
    Whole,
    /// The rest stays, and that is on record from now on.
    Signatures(KeptData),
}

impl Decided {
    pub fn stay(view: &View<'_>, stage: Stage) -> Self {
        Decided {
            stage,
            claim: Some(view.claim.clone()),
            steps: Vec::new(),
            requeue: None,
            keeps: None,
            erased: None,
        }
    }

    pub fn step(view: &View<'_>, stage: Stage, step: Step) -> Self {
        Decided { steps: vec![step], ..Decided::stay(view, stage) }
    }

    pub fn change(view: &View<'_>, stage: Stage, change: impl FnOnce(&mut Claim)) -> Self {
        let mut claim = view.claim.clone();
        change(&mut claim);
        Decided { claim: Some(claim), ..Decided::stay(view, stage) }
    }
}

pub fn decide(world: &NodeWorld, view: &View<'_>, now: Timestamp) -> Decided {
    if is_released(world) {
        return give_up(world, view);
    }
    if world.node.is_none() {
        return Decided::stay(view, Stage::Frozen(gone_text(world, view)));
    }
    if is_frozen(world) {
        return Decided::stay(view, Stage::Frozen(frozen_text(world, view)));
    }
    match view.pv {
        Some(found) if !pv::is_of(found, view.claim) => {
            Decided::stay(view, Stage::Held(stranger_text(found)))
        }
        Some(found) => published(world, view, found, now),
        None => unpublished(world, view),
    }
}

fn wanted(view: &View<'_>) -> bool {
    view.want.is_some_and(|want| want.still_wants(view.claim))
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
fn pv_prefix(view: &View<'_>) -> String {
    view.pv
        .and_then(|found| found.metadata.name.as_ref())
        .map_or_else(String::new, |name| format!("PersistentVolume {name}: "))
}

fn gone_text(world: &NodeWorld, view: &View<'_>) -> String {
    let about = pv_prefix(view);
    format!(
        "{about}node {} is gone: its claims and PersistentVolumes are kept for when it comes back; {}",
        world.name,
        release_text(world)
    )
}

fn frozen_text(world: &NodeWorld, view: &View<'_>) -> String {
    let about = pv_prefix(view);
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
        names::RELEASE_CLAIMS_ANNOTATION
    )
}

/// What was never bound holds nothing of anybody.
fn keeps(world: &NodeWorld, claim: &Claim, found: &PersistentVolume) -> Option<KeptData> {
    pv::was_used(found, claim)
        .then(|| kept_data(world, &claim.identity, found.metadata.uid.clone().unwrap_or_default()))
}

pub fn kept_data(world: &NodeWorld, identity: &str, pv_uid: String) -> KeptData {
    KeptData {
        identity: identity.to_owned(),
        pv_name: names::local_pv(&world.name, identity),
        pv_uid,
    }
}

/// By an administrator's word: the objects go, nothing is touched on any disk, and nothing goes that is in use.
fn give_up(world: &NodeWorld, view: &View<'_>) -> Decided {
    let Some(found) = view.pv.filter(|found| pv::is_of(found, view.claim)) else {
        let keeps = pv::used(view.claim)
            .map(|last| kept_data(world, &view.claim.identity, last.uid.clone()));
        return Decided {
            claim: None,
            keeps,
            ..Decided::stay(view, Stage::Ending("given up".into()))
        };
    };
    match pv_usage(found) {
        PvUsage::InUse(why) => {
            Decided::stay(view, Stage::Ending(format!("{why}: it goes when that ends")))
        }
        PvUsage::Free if found.metadata.deletion_timestamp.is_none() => Decided::step(
            view,
            Stage::Ending("its PersistentVolume is deleted".into()),
            delete(found),
        ),
        PvUsage::Free => {
            let keeps = keeps(world, view.claim, found).filter(|_| !pv::is_over(found, view.claim));
            Decided {
                keeps,
                ..Decided::step(
                    view,
                    Stage::Ending("its PersistentVolume is let go".into()),
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
    view: &View<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Decided {
    let mut decided = with_volume(world, view, found, now);
    let known = |claim: &Claim| {
        claim
            .last_volume
            .as_ref()
            .is_some_and(|last| found.metadata.uid.as_ref() == Some(&last.uid))
    };
    if let Some(claim) =
        decided.claim.as_mut().filter(|claim| pv::was_bound(found) && !known(claim))
    {
        claim.last_volume =
            Some(LastVolume { uid: found.metadata.uid.clone().unwrap_or_default(), over: false });
    }
    decided
}

fn with_volume(
    world: &NodeWorld,
    view: &View<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Decided {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    if found.metadata.deletion_timestamp.is_some() {
        return leaving(world, view, found, now);
    }
    if let PvUsage::InUse(why) = pv_usage(found) {
        return Decided::stay(view, bound_stage(view, why));
    }
    // Not by its claimRef: an administrator may reserve one that nobody has used yet.
    let released =
        found.status.as_ref().is_some_and(|status| status.phase.as_deref() != Some("Available"));
    match (released, pv::deletes(found)) {
        (true, true) => Decided::step(
            view,
            Stage::Releasing(format!(
                "PersistentVolume {name} is released: it is deleted, the device wiped, and published again"
            )),
            delete(found),
        ),
        (true, false) => Decided::stay(
            view,
            Stage::Retained(format!(
                "PersistentVolume {name} is released and keeps its data (Retain): to have the device wiped and published again, set its persistentVolumeReclaimPolicy to Delete; to keep the data, delete the PersistentVolume{}; no set gets the device then, until somebody says that the data is not needed",
                view.claim.path.as_ref().map_or_else(
                    || " and free the claim with that".to_owned(),
                    |path| format!(" and take {path} out of spec.storageClassDevices.devicePaths")
                )
            )),
        ),
        // `ending`: another operator published it while this one was already giving it back.
        (false, _) if view.claim.ending || !wanted(view) => Decided::step(
            view,
            Stage::Ending(format!("PersistentVolume {name} is unused and is deleted")),
            delete(found),
        ),
        // By the word of an agent that is there: what an absent one said may be about a disk that was moved since.
        (false, _) if view.doubt.is_some() && world.agent_present => {
            let why = view.doubt.clone().unwrap_or_default();
            Decided::step(
                view,
                Stage::Releasing(format!(
                    "PersistentVolume {name} is unused and is withdrawn: {why}"
                )),
                delete(found),
            )
        }
        (false, _) if user(view).is_some() => {
            let why = user(view).unwrap_or_default();
            Decided::step(
                view,
                Stage::Releasing(format!(
                    "PersistentVolume {name} is withdrawn, because somebody else uses the device: {why}"
                )),
                delete(found),
            )
        }
        (false, _) if offers_data(view, found) => Decided::step(
            view,
            Stage::Releasing(format!(
                "there is data on the device although nobody has used PersistentVolume {name}: it is withdrawn, and the data stays"
            )),
            delete(found),
        ),
        (false, _) => {
            let give_up = match &view.claim.path {
                Some(path) => unlist(path),
                None => format!("to give it up, delete PersistentVolume {name}"),
            };
            Decided::stay(view, missing(view, &give_up).unwrap_or(Stage::Available))
        }
    }
}

/// Somebody wrote to it past its PersistentVolume, or the API was restored from a backup and has forgotten who used it.
/// Nobody may get that data, or write over it. One that is kept (Retain), was used and is free again was given free by
/// an administrator, as it is.
fn offers_data(view: &View<'_>, found: &PersistentVolume) -> bool {
    let looked = view.report.is_some_and(|report| report.state == ClaimState::Confirmed)
        && pv::round(found).is_none_or(|round| round == view.claim.round);
    let given_free = !pv::deletes(found) && pv::was_used(found, view.claim);
    looked
        && !given_free
        && view.claim.content == ClaimContent::Blank
        && view.device.is_some_and(shows_data)
}

fn bound_stage(view: &View<'_>, why: String) -> Stage {
    if let Some(doubt) = &view.doubt {
        return Stage::InDoubt(format!("{why}, and it is not certain which device it is: {doubt}"));
    }
    if let Some(rival) = view.rival {
        return Stage::InDoubt(format!(
            "{why}, and PersistentVolume {rival} is on the same device: delete that one, and whatever made it, before somebody uses both"
        ));
    }
    missing(view, &why).unwrap_or(Stage::Bound(why))
}

/// `more`: what else there is to say, if the device is not there.
pub fn missing(view: &View<'_>, more: &str) -> Option<Stage> {
    let identity = &view.claim.identity;
    let now = view.moved.as_ref().map(|place| format!(" (it is {place} now)")).unwrap_or_default();
    view.device.is_none().then(|| Stage::Missing(format!("the device {identity} is not there{now}: put it back, and it is used again by itself; {more}")))
}

/// A PersistentVolume that is being deleted: the binder passes it by, our finalizer keeps it.
fn leaving(
    world: &NodeWorld,
    view: &View<'_>,
    found: &PersistentVolume,
    now: Timestamp,
) -> Decided {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    if let PvUsage::InUse(why) = pv_usage(found) {
        return Decided::stay(
            view,
            Stage::Releasing(format!("{why}: PersistentVolume {name} is deleted when that ends")),
        );
    }
    if pv::is_over(found, view.claim) {
        return Decided::step(
            view,
            Stage::Releasing(format!("PersistentVolume {name} is let go")),
            release(found),
        );
    }
    if pv::was_bound(found) && pv::deletes(found) {
        return wipe(world, view, found, now);
    }
    // Never bound: nobody wrote to it. Kept: its owner deleted the PersistentVolume and keeps the data, which is on record
    // from here on. Either way the old confirmation must be worth nothing before the PersistentVolume is let go.
    // Of another volume that was used before, and of whose end nothing is known, the data may still be there.
    let before =
        pv::used(view.claim).map(|last| kept_data(world, &view.claim.identity, last.uid.clone()));
    let uid = found.metadata.uid.clone().unwrap_or_default();
    let stage = Stage::Releasing(format!("PersistentVolume {name} was deleted"));
    Decided {
        keeps: keeps(world, view.claim, found).or(before),
        ..Decided::change(view, stage, |claim| over(claim, uid))
    }
}

/// The end of a volume is on record, and the next one needs a confirmation of its own.
pub fn over(claim: &mut Claim, uid: String) {
    claim.round += 1;
    claim.job = None;
    claim.last_volume = Some(LastVolume { uid, over: true });
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
pub fn orphan(world: &NodeWorld, found: &PersistentVolume) -> Option<(Step, Option<KeptData>)> {
    let identity = found.metadata.annotations.as_ref()?.get(names::IDENTITY_ANNOTATION)?;
    let claim = Claim { identity: identity.clone(), ..Claim::default() };
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

fn unpublished(world: &NodeWorld, view: &View<'_>) -> Decided {
    let claim = view.claim;
    let torn = pv::used(claim).map(|last| &last.uid).or(claim.job.as_ref().map(|job| &job.name));
    if let Some(uid) = torn.cloned() {
        // The PersistentVolume was torn away while it was used, perhaps in mid-wipe: what is on the device is somebody's.
        let keeps = Some(kept_data(world, &claim.identity, uid.clone()));
        return Decided {
            keeps,
            ..Decided::change(view, Stage::Claimed, |claim| over(claim, uid))
        };
    }
    if claim.ending || !wanted(view) {
        return ending(view, "nobody wants it any more");
    }
    // Nothing is at stake while it is not published: what the set does not describe any more is given back. So a disk is
    // taken out of a set: exclude it, then delete its PersistentVolume.
    if view.want.zip(view.device).is_some_and(|(want, device)| !want.describes(device)) {
        return ending(view, "the set does not describe it any more");
    }
    let other = view.want.filter(|want| !want.makes(claim)).and_then(|want| want.becomes(claim));
    // One that says nothing about its size is no other one.
    let size =
        view.device.map(|device| device.size).filter(|size| *size != claim.size && *size > 0);
    match (&claim.path, other, size) {
        (_, None, None) => {}
        (None, Some(_), _) => {
            return ending(
                view,
                "the set makes something else of its devices by now: it is claimed anew",
            );
        }
        (None, None, Some(size)) => {
            return ending(
                view,
                &format!(
                    "the device has {size} bytes now, {} were claimed: it is claimed anew",
                    claim.size
                ),
            );
        }
        // Its path must not be looked up again: it may lead to another disk by now.
        (Some(_), other, size) => return refit(world, view, other, size),
    }
    // A disk that is gone for good must not hold a place for ever. So one is given up: delete its PersistentVolume. Not one
    // that somebody named by a path: the path would be looked up again, and may lead to another disk by now.
    if claim.path.is_none() && is_surely_absent(world, view) {
        return ending(
            view,
            &format!("the device {} is not there, and it has no PersistentVolume", claim.identity),
        );
    }
    // It may pass: the claim keeps the device from everybody else meanwhile.
    if let Some(why) = &view.doubt {
        return Decided::stay(view, Stage::Held(why.clone()));
    }
    let Some(report) = view.report else { return Decided::stay(view, unanswered(world, view)) };
    match report.state {
        ClaimState::Ended | ClaimState::Stuck => Decided::stay(view, Stage::Claimed),
        ClaimState::Refused => refused(world, view, report.message.clone().unwrap_or_default()),
        ClaimState::Confirmed => confirmed(world, view),
    }
}

/// A device that was named by its path stays claimed, and becomes what is asked for now. One that has another size is
/// looked at anew.
fn refit(
    world: &NodeWorld,
    view: &View<'_>,
    other: Option<&Becomes>,
    size: Option<i64>,
) -> Decided {
    let left = view.device.and_then(|device| residue_on(world, device));
    if let Some(left) = left.filter(|_| {
        other.is_some_and(|other| other.mode == VolumeMode::Block)
            && view.claim.volume_mode != VolumeMode::Block
    }) {
        return Decided::stay(view, Stage::Held(format!("the device {}", residue_text(left))));
    }
    Decided::change(view, Stage::Claimed, |claim| {
        if let Some(Becomes { class: _, mode, fs_type }) = other {
            (claim.volume_mode, claim.fs_type) = (*mode, fs_type.clone());
        }
        if let Some(size) = size {
            claim.size = size;
            claim.round += 1;
        }
    })
}

/// By the word of an agent that is there.
fn is_surely_absent(world: &NodeWorld, view: &View<'_>) -> bool {
    view.device.is_none() && world.agent_present && world.inventory.status.is_some()
}

fn unlist(path: &str) -> String {
    format!("to give it up, take {path} out of spec.storageClassDevices.devicePaths")
}

/// Nothing is heard of the device, or nothing yet.
fn unanswered(world: &NodeWorld, view: &View<'_>) -> Stage {
    let more = match &view.claim.path {
        Some(path) => unlist(path),
        None => {
            format!("it is not certain either, because the agent on node {} is absent", world.name)
        }
    };
    missing(view, &more).unwrap_or(Stage::Claimed)
}

/// Gone from the inventory when the agent says that nothing of it is left.
fn ending(view: &View<'_>, why: &str) -> Decided {
    let ended =
        view.claim.ending && view.report.is_some_and(|report| report.state == ClaimState::Ended);
    let stuck = view
        .report
        .filter(|report| view.claim.ending && report.state == ClaimState::Stuck)
        .and_then(|report| report.message.as_ref());
    let stage = stuck.map_or_else(
        || Stage::Ending(why.to_owned()),
        |trouble| Stage::Stuck(format!("{why}, but {trouble}")),
    );
    if ended {
        return Decided { claim: None, ..Decided::stay(view, stage) };
    }
    Decided::change(view, stage, |claim| claim.ending = true)
}

/// A claim that cannot be used holds the set's place for nothing: it ends when the device itself says why. What may pass
/// (somebody looks at the device just now) is waited for.
fn refused(world: &NodeWorld, view: &View<'_>, why: String) -> Decided {
    let passing = [
        Reason::Claimed,
        Reason::HeldExclusively,
        Reason::TooNew,
        Reason::TimedOut,
        Reason::Unreadable,
    ];
    let lasting = view.device.is_some_and(|device| {
        device
            .reasons
            .iter()
            .any(|told| !passing.iter().any(|reason| told.reason == reason.as_str()))
    });
    if lasting && view.claim.content == ClaimContent::Blank {
        return ending(view, &why);
    }
    let stage = if view.device.is_some() { Stage::Refused(why) } else { unanswered(world, view) };
    Decided::stay(view, stage)
}

/// Reasons that say that something is on a device.
const DATA: [Reason; 4] =
    [Reason::Signature, Reason::PartitionTable, Reason::UnknownData, Reason::HasChildren];

/// Whether the agent's last look at the device speaks of data.
pub fn shows_data(device: &quarry_api::node_inventory::Device) -> bool {
    device.reasons.iter().any(|told| DATA.iter().any(|reason| told.reason == reason.as_str()))
}

/// Who uses the device past any volume of ours, in words.
pub fn user(view: &View<'_>) -> Option<String> {
    const USES: [Reason; 6] = [
        Reason::Mounted,
        Reason::Swap,
        Reason::HasHolders,
        Reason::LoopOnTop,
        Reason::BacksPersistentVolume,
        Reason::BacksVolume,
    ];
    let device = view.device?;
    if let Some(rival) = view.rival {
        return Some(format!("PersistentVolume {rival} is on {}", device.name));
    }
    let used = |told: &&quarry_api::node_inventory::DeviceReason| {
        Reason::parse(&told.reason).is_some_and(|reason| USES.contains(&reason))
    };
    let told = device.reasons.iter().find(used)?;
    Some(format!("{} {}", device.name, Reason::parse(&told.reason)?.sentence(&told.detail)))
}

/// What was kept is nobody's to get, but for a path that was named after that.
pub fn withholds(
    world: &NodeWorld,
    claim: &Claim,
    device: &quarry_api::node_inventory::Device,
) -> bool {
    super::kept_on(world, device).is_some()
        && (claim.content == ClaimContent::Blank || claim.round > FIRST_ROUND)
}

/// What a Block volume of this claim would show of a volume of another one. Its own class may ask for Quick.
pub fn shown_by<'a>(
    world: &'a NodeWorld,
    claim: &Claim,
    device: &quarry_api::node_inventory::Device,
) -> Option<&'a KeptData> {
    let own =
        |left: &&KeptData| claim.last_volume.as_ref().is_some_and(|last| last.uid == left.pv_uid);
    residue_on(world, device).filter(|left| claim.volume_mode == VolumeMode::Block && !own(left))
}

fn confirmed(world: &NodeWorld, view: &View<'_>) -> Decided {
    let claim = view.claim;
    let Some(device) = view.device else { return Decided::stay(view, unanswered(world, view)) };
    if !view.report.is_some_and(|report| report.linked) {
        let why = view
            .report
            .and_then(|report| report.message.clone())
            .unwrap_or_else(|| "the link is not there yet".into());
        return Decided::stay(view, Stage::Held(why));
    }
    if claim.content == ClaimContent::Blank && shows_data(device) {
        return Decided::stay(
            view,
            Stage::Held("something was written to the device after it was confirmed".into()),
        );
    }
    if let Some(why) = user(view) {
        return Decided::stay(view, Stage::Held(format!("somebody uses the device: {why}")));
    }
    if let Some(left) = shown_by(world, claim, device) {
        return Decided::stay(view, Stage::Held(format!("{} {}", device.name, residue_text(left))));
    }
    if claim.content == ClaimContent::Blank && withholds(world, claim, device) {
        return Decided::stay(
            view,
            Stage::Held(Reason::KeptData.sentence(&names::local_pv(&world.name, &claim.identity))),
        );
    }
    // Somebody may have used it since it was named: his data is not for the next one.
    if let Some(path) = claim.path.as_ref().filter(|_| {
        claim.round > FIRST_ROUND && (shows_data(device) || withholds(world, claim, device))
    }) {
        return Decided::stay(
            view,
            Stage::Held(format!(
                "there is data on the device, perhaps of the PersistentVolume that was deleted: it is not offered to anybody; to have it as it is, take {path} out of spec.storageClassDevices.devicePaths and, when the claim has ended, put it in again"
            )),
        );
    }
    if !world.agent_present {
        return Decided::stay(
            view,
            Stage::Held(format!(
                "the agent on node {} is absent: check that the node is up and its quarry-agent pod runs",
                world.name
            )),
        );
    }
    let want = view.want;
    let min = want.map_or(0, Want::min);
    let ready = view.ready;
    if ready < min {
        return Decided::stay(
            view,
            Stage::Held(format!(
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
        return Decided::stay(view, Stage::Held(text));
    }
    let Some(made) = pv::build(world, view, class.map(AsRef::as_ref)) else {
        return Decided::stay(
            view,
            Stage::Held(format!(
                "node {} has no {} label: its PersistentVolumes could not say where they are",
                world.name,
                pv::HOSTNAME_LABEL
            )),
        );
    };
    let mut decided = Decided::stay(view, Stage::Publishing);
    if class.is_none() {
        decided.steps.push(Step::CreateClass(Box::new(pv::build_class(claim))));
    }
    decided.steps.push(Step::CreatePv(Box::new(made)));
    decided
}
