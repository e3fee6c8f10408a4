//! What must never be in a plan, written apart from the planner. A refusal here is a bug there, and nothing is applied.

use super::{
    NodeWorld, Plan, Step,
    index::{Index, Seen},
    is_forgotten, is_frozen, is_released, pv, retained_data_on, state_machine,
};
use crate::{
    job::Task,
    volume::usage::{PvUsage, pv_usage},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    NodeJob,
    node_inventory::{ClaimContent, ClaimState, DeviceClaim, RetainedData},
    node_job::{JobPhase, WipePolicy},
};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("invariant 3: {0} would have two owners")]
    TwoOwners(String),
    #[error("invariant 1: {0} would be published without a confirmation")]
    Unconfirmed(String),
    #[error("invariant 1: {0} would be published although there is data on it")]
    DataPublished(String),
    #[error("invariant 1: {0} would be published although somebody uses it")]
    Used(String),
    #[error("invariant 1: nothing would say any more that {0} was used and not erased")]
    Forgotten(String),
    #[error("invariant 3: {0} would be used although it is not certain which device it is")]
    Doubtful(String),
    #[error("invariant 6: {0} would be taken at first sight")]
    TooNew(String),
    #[error("{0} would be taken although it may not be used")]
    NotUsable(String),
    #[error("invariant 5: PersistentVolume {0} is in use and would be deleted or let go")]
    InUse(String),
    #[error("PersistentVolume {0} is not from a claim of this node")]
    NotOurs(String),
    #[error("invariant 2: a wipe of {0} without its whole reason")]
    UnfoundedWipe(String),
    #[error("invariant 9: the claim on {0} would be forgotten while something of it is left")]
    LeftBehind(String),
    #[error("{0} would have more devices than spec.maxDeviceCount")]
    TooMany(String),
    #[error("the claims of another machine would be acted upon")]
    Frozen,
    #[error("claim on {0}: its owner, device or link would change")]
    Changed(String),
}

pub fn check(world: &NodeWorld, plan: &Plan) -> Result<(), Violation> {
    let index = Index::new(world);
    check_claims(world, &index, plan)?;
    plan.steps.iter().try_for_each(|step| check_step(world, &index, plan, step))
}

fn check_claims(world: &NodeWorld, index: &Index<'_>, plan: &Plan) -> Result<(), Violation> {
    let before: HashMap<(&str, &str), &DeviceClaim> =
        world.inventory.spec.device_claims.iter().map(|claim| (key(claim), claim)).collect();
    let mut claims: HashMap<&str, usize> = HashMap::new();
    for claim in &plan.claims {
        *claims.entry(claim.identity.as_str()).or_default() += 1;
    }
    for claim in &plan.claims {
        let seen = index.device(&claim.identity);
        let named = |seen: &Seen<'_>| {
            seen.candidates
                .iter()
                .filter_map(|candidate| claims.get(candidate.as_str()))
                .sum::<usize>()
        };
        let rivals = seen.map_or(claims[claim.identity.as_str()], named);
        match before.get(&key(claim)) {
            Some(old) => check_kept(index, old, claim)?,
            // Two that were there already are told, not multiplied.
            None if rivals > 1 => return Err(Violation::TwoOwners(claim.identity.clone())),
            None => check_new(world, index, claim, seen)?,
        }
    }
    check_counts(world, plan)?;
    check_data(world, plan)?;
    let kept: HashSet<(&str, &str)> = plan.claims.iter().map(key).collect();
    for old in world.inventory.spec.device_claims.iter().filter(|old| !kept.contains(&key(old))) {
        let seen = index.ctx(old);
        let ended = old.terminating
            && seen.report.is_some_and(|report| report.state == ClaimState::Removed);
        let published = seen.pv.is_some_and(|found| pv::is_of(found, old));
        if published || !(ended || is_released(world)) {
            return Err(Violation::LeftBehind(old.identity.clone()));
        }
    }
    Ok(())
}

/// Nobody gets more than he asks for. Who has more already (the maximum was lowered since) gets nothing new.
fn check_counts(world: &NodeWorld, plan: &Plan) -> Result<(), Violation> {
    for demand in &world.demands {
        let of_want = |claims: &[DeviceClaim]| {
            claims
                .iter()
                .filter(|claim| claim.owner.uid == demand.owner.uid && !claim.terminating)
                .count()
        };
        let (before, after) = (of_want(&world.inventory.spec.device_claims), of_want(&plan.claims));
        if after > before && demand.max().is_some_and(|max| after > max) {
            return Err(Violation::TooMany(demand.owner.name.clone()));
        }
    }
    Ok(())
}

fn key(claim: &DeviceClaim) -> (&str, &str) {
    (&claim.identity, &claim.owner.uid)
}

/// A claim that goes on: only its round, its job and its end move, and only forward. What was named by a path and is
/// not published may become something else, and be of another size if it is looked at anew.
fn check_kept(index: &Index<'_>, old: &DeviceClaim, new: &DeviceClaim) -> Result<(), Violation> {
    let mut fixed = DeviceClaim {
        round: old.round,
        job: old.job.clone(),
        terminating: old.terminating,
        last_pv: old.last_pv.clone(),
        ..new.clone()
    };
    if old.path.is_some() && index.ctx(old).pv.is_none() {
        (fixed.volume_mode, fixed.fs_type) = (old.volume_mode, old.fs_type.clone());
        if new.round > old.round {
            fixed.size = old.size;
        }
    }
    if fixed != *old || new.round < old.round || (old.terminating && !new.terminating) {
        return Err(Violation::Changed(old.identity.clone()));
    }
    Ok(())
}

fn check_new(
    world: &NodeWorld,
    index: &Index<'_>,
    claim: &DeviceClaim,
    seen: Option<&Seen<'_>>,
) -> Result<(), Violation> {
    let identity = claim.identity.clone();
    if is_frozen(world) || is_released(world) || world.node.is_none() {
        return Err(Violation::Frozen);
    }
    let Some(seen) = seen else { return Err(Violation::NotUsable(identity)) };
    let device = seen.device;
    if !device.settled {
        return Err(Violation::TooNew(identity));
    }
    if index.doubt(seen).is_some() {
        return Err(Violation::Doubtful(identity));
    }
    let owner = world.demands.iter().find(|demand| demand.owner.uid == claim.owner.uid);
    let adopts = |kept: &RetainedData| {
        claim.content == ClaimContent::Any
            && owner.is_some_and(|owner| owner.adopts.contains(&kept.pv_uid))
    };
    let shows = claim.content == ClaimContent::Blank && state_machine::shows_data(device);
    if shows
        || retained_data_on(world, device).is_some_and(|kept| !adopts(kept))
        || state_machine::exposed_remnant(world, claim, device).is_some()
    {
        return Err(Violation::DataPublished(identity));
    }
    if !owner.is_some_and(|owner| owner.takes_more())
        || claim.round != 1
        || claim.job.is_some()
        || claim.terminating
        || claim.link.is_empty()
    {
        return Err(Violation::NotUsable(identity));
    }
    if seen.published.is_empty() { Ok(()) } else { Err(Violation::TwoOwners(identity)) }
}

fn check_step(
    world: &NodeWorld,
    index: &Index<'_>,
    plan: &Plan,
    step: &Step,
) -> Result<(), Violation> {
    match step {
        Step::CreateClass(_) => Ok(()),
        Step::CreatePv(made) => check_publication(world, index, made),
        Step::DeletePv { name, .. } => check_unused(world, index, name).map(drop),
        Step::ReleasePv { name, .. } if index.claim_of_pv(name).is_none() => {
            check_orphan(world, plan, name)
        }
        Step::ReleasePv { name, .. } => {
            let found = check_unused(world, index, name)?;
            let claim = index.claim_of_pv(name).ok_or_else(|| Violation::NotOurs(name.clone()))?;
            let going = found.metadata.deletion_timestamp.is_some();
            if !going || !(pv::is_over(found, claim) || is_released(world)) {
                return Err(Violation::InUse(name.clone()));
            }
            Ok(())
        }
        Step::CreateJob(job) => check_wipe(world, index, job),
    }
}

/// Going, ours, in nobody's use; and what is on the device is on record.
fn check_orphan(world: &NodeWorld, plan: &Plan, name: &str) -> Result<(), Violation> {
    let found = world
        .pvs
        .iter()
        .find(|found| found.metadata.name.as_deref() == Some(name) && pv::is_ours(found));
    let found = found.ok_or_else(|| Violation::NotOurs(name.to_owned()))?;
    if found.metadata.deletion_timestamp.is_none()
        || pv_usage(found) != PvUsage::Free
        || is_frozen(world)
    {
        return Err(Violation::InUse(name.to_owned()));
    }
    let kept = plan
        .retained_data
        .iter()
        .any(|kept| kept.pv_name == name && Some(&kept.pv_uid) == found.metadata.uid.as_ref());
    if pv::was_bound(found) && !kept { Err(Violation::Forgotten(name.to_owned())) } else { Ok(()) }
}

/// Asked once more of what is known when it is made.
pub fn check_publication(
    world: &NodeWorld,
    index: &Index<'_>,
    made: &PersistentVolume,
) -> Result<(), Violation> {
    let name = made.metadata.name.clone().unwrap_or_default();
    let Some(claim) = index.claim_of_pv(&name) else { return Err(Violation::NotOurs(name)) };
    if is_frozen(world) || world.node.is_none() {
        return Err(Violation::Frozen);
    }
    let seen = index.ctx(claim);
    let confirmed =
        seen.report.is_some_and(|report| report.state == ClaimState::Confirmed && report.linked);
    if !confirmed
        || claim.terminating
        || claim.job.is_some()
        || !pv::is_of(made, claim)
        || pv::round(made) != Some(claim.round)
    {
        return Err(Violation::Unconfirmed(claim.identity.clone()));
    }
    if seen.pv.is_some() || seen.demand.is_none_or(|demand| demand.terminating) {
        return Err(Violation::TwoOwners(claim.identity.clone()));
    }
    let Some(device) = seen.device else {
        return Err(Violation::Unconfirmed(claim.identity.clone()));
    };
    if seen.doubt.is_some() {
        return Err(Violation::Doubtful(claim.identity.clone()));
    }
    let shows = (claim.content == ClaimContent::Blank && state_machine::shows_data(device))
        || state_machine::exposed_remnant(world, claim, device).is_some();
    if shows || state_machine::blocks_reuse(world, claim, device) || pv::used(claim).is_some() {
        return Err(Violation::DataPublished(claim.identity.clone()));
    }
    if state_machine::user(&seen).is_some() {
        return Err(Violation::Used(claim.identity.clone()));
    }
    Ok(())
}

/// What was used and not erased is on record for as long as nobody says that it is not needed.
fn check_data(world: &NodeWorld, plan: &Plan) -> Result<(), Violation> {
    let erased = |old: &DeviceClaim| {
        let job = old.job.as_ref().and_then(|job| world.jobs.get(&job.name));
        job.and_then(|job| job.status.as_ref()?.phase) == Some(JobPhase::Succeeded)
    };
    let (claims, spec) = (&world.inventory.spec.device_claims, &world.inventory.spec);
    let may_go = |identity: &str, pv_uid: &str| {
        is_forgotten(world, pv_uid)
            || claims.iter().any(|claim| claim.identity == identity && erased(claim))
    };
    let retained = spec.retained_data.iter().filter(|data| !plan.retained_data.contains(data));
    let remnants = spec.wipe_remnants.iter().filter(|left| !plan.wipe_remnants.contains(left));
    let removed = retained
        .map(|data| (&data.identity, &data.pv_uid))
        .chain(remnants.map(|left| (&left.identity, &left.pv_uid)));
    if let Some((identity, _)) = removed.into_iter().find(|(identity, uid)| !may_go(identity, uid))
    {
        return Err(Violation::Forgotten(identity.clone()));
    }
    // What was erased by its signatures alone is on record from then on.
    for old in claims.iter().filter(|old| erased(old)) {
        let quick = old
            .job
            .as_ref()
            .and_then(|job| world.jobs.get(&job.name))
            .is_some_and(|job| is_quick(job));
        let ends = !plan.claims.iter().any(|new| key(new) == key(old) && new.job == old.job);
        if quick && ends && !plan.wipe_remnants.iter().any(|left| left.identity == old.identity) {
            return Err(Violation::Forgotten(old.identity.clone()));
        }
    }
    for old in claims.iter().filter(|old| pv::used(old).is_some() && !erased(old)) {
        let goes_on = plan.claims.iter().any(|new| key(new) == key(old) && pv::used(new).is_some());
        if !goes_on && !plan.retained_data.iter().any(|kept| kept.identity == old.identity) {
            return Err(Violation::Forgotten(old.identity.clone()));
        }
    }
    Ok(())
}

fn is_quick(job: &NodeJob) -> bool {
    match Task::try_from(&job.spec) {
        Ok(Task::Wipe(wipe)) => wipe.policy == WipePolicy::Quick,
        Ok(Task::Volume(_)) | Err(_) => true,
    }
}

/// The PersistentVolume, ours and in nobody's use.
fn check_unused<'a>(
    world: &'a NodeWorld,
    index: &Index<'a>,
    name: &str,
) -> Result<&'a PersistentVolume, Violation> {
    let found = world.pvs.iter().find(|found| found.metadata.name.as_deref() == Some(name));
    let (Some(found), Some(claim)) = (found, index.claim_of_pv(name)) else {
        return Err(Violation::NotOurs(name.to_owned()));
    };
    if !pv::is_of(found, claim) {
        return Err(Violation::NotOurs(name.to_owned()));
    }
    match pv_usage(found) {
        PvUsage::Free => Ok(found),
        PvUsage::InUse(_) => Err(Violation::InUse(name.to_owned())),
    }
}

fn check_wipe(world: &NodeWorld, index: &Index<'_>, job: &NodeJob) -> Result<(), Violation> {
    let Ok(Task::Wipe(device)) = Task::try_from(&job.spec) else {
        return Err(Violation::UnfoundedWipe(job.metadata.name.clone().unwrap_or_default()));
    };
    let unfounded = || Violation::UnfoundedWipe(device.identity.to_string());
    let found = check_unused(world, index, device.pv.as_str())?;
    let claim = index.claim_of_pv(device.pv.as_str()).ok_or_else(unfounded)?;
    let recorded = claim
        .job
        .as_ref()
        .is_some_and(|recorded| Some(&recorded.name) == job.metadata.name.as_ref());
    let node = world.node.as_ref().and_then(|node| node.metadata.uid.as_deref())
        == Some(job.spec.precondition.node_uid.as_str());
    let same = device.identity == claim.identity
        && device.has_size(claim.size)
        && job.spec.owner.uid == claim.owner.uid
        && job.spec.node_name == world.name;
    let going = found.metadata.deletion_timestamp.is_some()
        && found.metadata.uid.as_deref() == Some(device.pv_uid.as_str());
    let released = pv::was_bound(found) && pv::deletes(found);
    let another_runs = world.jobs.values().any(|other| {
        let unfinished =
            !other.status.as_ref().and_then(|status| status.phase).is_some_and(JobPhase::finished);
        unfinished
            && other
                .spec
                .device
                .claimed
                .as_ref()
                .is_some_and(|other| device.identity == other.identity)
            && other.metadata.name != job.metadata.name
    });
    if !recorded || !node || !same || !going || !released || another_runs || is_frozen(world) {
        return Err(unfounded());
    }
    Ok(())
}
