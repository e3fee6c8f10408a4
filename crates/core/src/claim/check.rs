//! What must never be in a plan, written apart from the planner. A refusal here is a bug there, and nothing is applied.

use super::{
    NodeWorld, Plan, Step,
    index::{Index, Seen},
    is_forgotten, is_frozen, is_released, kept_on, life, pv,
};
use crate::volume::usage::{PvUsage, pv_usage};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    NodeJob,
    node_inventory::{Claim, ClaimContent, ClaimState, KeptData},
    node_job::{Action, JobPhase, WipePolicy},
};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
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

pub fn check(world: &NodeWorld, plan: &Plan) -> Result<(), Breach> {
    let index = Index::new(world);
    check_claims(world, &index, plan)?;
    plan.steps.iter().try_for_each(|step| check_step(world, &index, plan, step))
}

fn check_claims(world: &NodeWorld, index: &Index<'_>, plan: &Plan) -> Result<(), Breach> {
    let before: HashMap<(&str, &str), &Claim> =
        world.inventory.spec.claims.iter().map(|claim| (key(claim), claim)).collect();
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
            None if rivals > 1 => return Err(Breach::TwoOwners(claim.identity.clone())),
            None => check_new(world, index, claim, seen)?,
        }
    }
    check_counts(world, plan)?;
    check_data(world, plan)?;
    let kept: HashSet<(&str, &str)> = plan.claims.iter().map(key).collect();
    for old in world.inventory.spec.claims.iter().filter(|old| !kept.contains(&key(old))) {
        let seen = index.view(old);
        let ended =
            old.ending && seen.report.is_some_and(|report| report.state == ClaimState::Ended);
        let published = seen.pv.is_some_and(|found| pv::is_of(found, old));
        if published || !(ended || is_released(world)) {
            return Err(Breach::LeftBehind(old.identity.clone()));
        }
    }
    Ok(())
}

/// Nobody gets more than he asks for. Who has more already (the maximum was lowered since) gets nothing new.
fn check_counts(world: &NodeWorld, plan: &Plan) -> Result<(), Breach> {
    for want in &world.wants {
        let of_want = |claims: &[Claim]| {
            claims.iter().filter(|claim| claim.owner.uid == want.owner.uid && !claim.ending).count()
        };
        let (before, after) = (of_want(&world.inventory.spec.claims), of_want(&plan.claims));
        if after > before && want.max().is_some_and(|max| after > max) {
            return Err(Breach::TooMany(want.owner.name.clone()));
        }
    }
    Ok(())
}

fn key(claim: &Claim) -> (&str, &str) {
    (&claim.identity, &claim.owner.uid)
}

/// A claim that goes on: only its round, its job and its end move, and only forward. What was named by a path and is
/// not published may become something else, and be of another size if it is looked at anew.
fn check_kept(index: &Index<'_>, old: &Claim, new: &Claim) -> Result<(), Breach> {
    let mut fixed = Claim {
        round: old.round,
        job: old.job.clone(),
        ending: old.ending,
        last_volume: old.last_volume.clone(),
        ..new.clone()
    };
    if old.path.is_some() && index.view(old).pv.is_none() {
        (fixed.volume_mode, fixed.fs_type) = (old.volume_mode, old.fs_type.clone());
        if new.round > old.round {
            fixed.size = old.size;
        }
    }
    if fixed != *old || new.round < old.round || (old.ending && !new.ending) {
        return Err(Breach::Changed(old.identity.clone()));
    }
    Ok(())
}

fn check_new(
    world: &NodeWorld,
    index: &Index<'_>,
    claim: &Claim,
    seen: Option<&Seen<'_>>,
) -> Result<(), Breach> {
    let identity = claim.identity.clone();
    if is_frozen(world) || is_released(world) || world.node.is_none() {
        return Err(Breach::Frozen);
    }
    let Some(seen) = seen else { return Err(Breach::NotUsable(identity)) };
    let device = seen.device;
    if !device.settled {
        return Err(Breach::TooNew(identity));
    }
    if index.doubt(seen).is_some() {
        return Err(Breach::Doubtful(identity));
    }
    let owner = world.wants.iter().find(|want| want.owner.uid == claim.owner.uid);
    let adopts = |kept: &KeptData| {
        claim.content == ClaimContent::Any
            && owner.is_some_and(|owner| owner.adopts.contains(&kept.pv_uid))
    };
    let shows = claim.content == ClaimContent::Blank && life::shows_data(device);
    if shows
        || kept_on(world, device).is_some_and(|kept| !adopts(kept))
        || life::shown_by(world, claim, device).is_some()
    {
        return Err(Breach::DataPublished(identity));
    }
    if !owner.is_some_and(|owner| owner.takes_more())
        || claim.round != 1
        || claim.job.is_some()
        || claim.ending
        || claim.link.is_empty()
    {
        return Err(Breach::NotUsable(identity));
    }
    if seen.published.is_empty() { Ok(()) } else { Err(Breach::TwoOwners(identity)) }
}

fn check_step(
    world: &NodeWorld,
    index: &Index<'_>,
    plan: &Plan,
    step: &Step,
) -> Result<(), Breach> {
    match step {
        Step::CreateClass(_) => Ok(()),
        Step::CreatePv(made) => check_publication(world, index, made),
        Step::DeletePv { name, .. } => check_unused(world, index, name).map(drop),
        Step::ReleasePv { name, .. } if index.claim_of_pv(name).is_none() => {
            check_orphan(world, plan, name)
        }
        Step::ReleasePv { name, .. } => {
            let found = check_unused(world, index, name)?;
            let claim = index.claim_of_pv(name).ok_or_else(|| Breach::NotOurs(name.clone()))?;
            let going = found.metadata.deletion_timestamp.is_some();
            if !going || !(pv::is_over(found, claim) || is_released(world)) {
                return Err(Breach::InUse(name.clone()));
            }
            Ok(())
        }
        Step::CreateJob(job) => check_wipe(world, index, job),
    }
}

/// Going, ours, in nobody's use; and what is on the device is on record.
fn check_orphan(world: &NodeWorld, plan: &Plan, name: &str) -> Result<(), Breach> {
    let found = world
        .pvs
        .iter()
        .find(|found| found.metadata.name.as_deref() == Some(name) && pv::is_ours(found));
    let found = found.ok_or_else(|| Breach::NotOurs(name.to_owned()))?;
    if found.metadata.deletion_timestamp.is_none()
        || pv_usage(found) != PvUsage::Free
        || is_frozen(world)
    {
        return Err(Breach::InUse(name.to_owned()));
    }
    let kept = plan
        .kept
        .iter()
        .any(|kept| kept.pv_name == name && Some(&kept.pv_uid) == found.metadata.uid.as_ref());
    if pv::was_bound(found) && !kept { Err(Breach::Forgotten(name.to_owned())) } else { Ok(()) }
}

/// Asked once more of what is known when it is made.
pub fn check_publication(
    world: &NodeWorld,
    index: &Index<'_>,
    made: &PersistentVolume,
) -> Result<(), Breach> {
    let name = made.metadata.name.clone().unwrap_or_default();
    let Some(claim) = index.claim_of_pv(&name) else { return Err(Breach::NotOurs(name)) };
    if is_frozen(world) || world.node.is_none() {
        return Err(Breach::Frozen);
    }
    let seen = index.view(claim);
    let confirmed =
        seen.report.is_some_and(|report| report.state == ClaimState::Confirmed && report.linked);
    if !confirmed
        || claim.ending
        || claim.job.is_some()
        || !pv::is_of(made, claim)
        || pv::round(made) != Some(claim.round)
    {
        return Err(Breach::Unconfirmed(claim.identity.clone()));
    }
    if seen.pv.is_some() || seen.want.is_none_or(|want| want.terminating) {
        return Err(Breach::TwoOwners(claim.identity.clone()));
    }
    let Some(device) = seen.device else { return Err(Breach::Unconfirmed(claim.identity.clone())) };
    if seen.doubt.is_some() {
        return Err(Breach::Doubtful(claim.identity.clone()));
    }
    let shows = (claim.content == ClaimContent::Blank && life::shows_data(device))
        || life::shown_by(world, claim, device).is_some();
    if shows || life::withholds(world, claim, device) || pv::used(claim).is_some() {
        return Err(Breach::DataPublished(claim.identity.clone()));
    }
    if life::user(&seen).is_some() {
        return Err(Breach::Used(claim.identity.clone()));
    }
    Ok(())
}

/// What was used and not erased is on record for as long as nobody says that it is not needed.
fn check_data(world: &NodeWorld, plan: &Plan) -> Result<(), Breach> {
    let erased = |old: &Claim| {
        let job = old.job.as_ref().and_then(|job| world.jobs.get(&job.name));
        job.and_then(|job| job.status.as_ref()?.phase) == Some(JobPhase::Succeeded)
    };
    let (claims, spec) = (&world.inventory.spec.claims, &world.inventory.spec);
    let lost = |before: &'_ [KeptData], after: &[KeptData]| {
        let gone = |kept: &&KeptData| {
            !after.contains(kept)
                && !is_forgotten(world, kept)
                && !claims.iter().any(|claim| claim.identity == kept.identity && erased(claim))
        };
        before.iter().find(gone).map(|kept| kept.identity.clone())
    };
    if let Some(identity) =
        lost(&spec.kept, &plan.kept).or_else(|| lost(&spec.residue, &plan.residue))
    {
        return Err(Breach::Forgotten(identity));
    }
    // What was erased by its signatures alone is on record from then on.
    for old in claims.iter().filter(|old| erased(old)) {
        let quick = old
            .job
            .as_ref()
            .and_then(|job| world.jobs.get(&job.name))
            .is_some_and(|job| is_quick(job));
        let ends = !plan.claims.iter().any(|new| key(new) == key(old) && new.job == old.job);
        if quick && ends && !plan.residue.iter().any(|left| left.identity == old.identity) {
            return Err(Breach::Forgotten(old.identity.clone()));
        }
    }
    for old in claims.iter().filter(|old| pv::used(old).is_some() && !erased(old)) {
        let goes_on = plan.claims.iter().any(|new| key(new) == key(old) && pv::used(new).is_some());
        if !goes_on && !plan.kept.iter().any(|kept| kept.identity == old.identity) {
            return Err(Breach::Forgotten(old.identity.clone()));
        }
    }
    Ok(())
}

fn is_quick(job: &NodeJob) -> bool {
    job.spec
        .parameters
        .as_ref()
        .and_then(|parameters| parameters.wipe.as_ref())
        .is_none_or(|wipe| wipe.policy == WipePolicy::Quick)
}

/// The PersistentVolume, ours and in nobody's use.
fn check_unused<'a>(
    world: &'a NodeWorld,
    index: &Index<'a>,
    name: &str,
) -> Result<&'a PersistentVolume, Breach> {
    let found = world.pvs.iter().find(|found| found.metadata.name.as_deref() == Some(name));
    let (Some(found), Some(claim)) = (found, index.claim_of_pv(name)) else {
        return Err(Breach::NotOurs(name.to_owned()));
    };
    if !pv::is_of(found, claim) {
        return Err(Breach::NotOurs(name.to_owned()));
    }
    match pv_usage(found) {
        PvUsage::Free => Ok(found),
        PvUsage::InUse(_) => Err(Breach::InUse(name.to_owned())),
    }
}

fn check_wipe(world: &NodeWorld, index: &Index<'_>, job: &NodeJob) -> Result<(), Breach> {
    let Some(device) = job.spec.device.claimed.as_ref().filter(|_| job.spec.action == Action::Wipe)
    else {
        return Err(Breach::UnfoundedWipe(job.metadata.name.clone().unwrap_or_default()));
    };
    let unfounded = || Breach::UnfoundedWipe(device.identity.clone());
    let found = check_unused(world, index, &device.pv_name)?;
    let claim = index.claim_of_pv(&device.pv_name).ok_or_else(unfounded)?;
    let recorded = claim
        .job
        .as_ref()
        .is_some_and(|recorded| Some(&recorded.name) == job.metadata.name.as_ref());
    let node = world.node.as_ref().and_then(|node| node.metadata.uid.as_deref())
        == Some(job.spec.precondition.node_uid.as_str());
    let same = device.identity == claim.identity
        && device.size == claim.size
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
                .is_some_and(|other| other.identity == device.identity)
            && other.metadata.name != job.metadata.name
    });
    if !recorded || !node || !same || !going || !released || another_runs || is_frozen(world) {
        return Err(unfounded());
    }
    Ok(())
}
