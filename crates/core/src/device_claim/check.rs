//! What must never be in a plan. Written apart from the planner and in other terms: a violation is a bug of the planner,
//! and nothing of the plan is applied.
//!
//! Uses facts (`index.rs`, `content.rs`, `pv.rs`), never the modules that plan; a tidy test holds this.

use super::{
    NodeWorld, Plan, Step, content,
    index::{DeviceEntry, Index},
    is_forgotten, is_frozen, is_released, pv, retained_data_on,
};
use crate::{
    device::records::{DataRecord, Partitions},
    inventory_room::bytes,
    job::Task,
    volume::usage::{PvUsage, pv_usage},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    NodeJob,
    node_inventory::{ClaimContent, ClaimState, DeviceClaim, RetainedData, WipeRemnant},
    node_job::{JobPhase, WipePolicy},
};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("invariant 3: {0} would have two owners")]
    TwoOwners(String),
    #[error("invariant 2: {0} would be the link of two devices")]
    SharedLink(String),
    #[error("invariant 1: {0} would be published without a confirmation")]
    Unconfirmed(String),
    #[error("invariant 1: {0} would be published although it contains data")]
    DataPublished(String),
    #[error("invariant 1: {0} would be published although it is in use")]
    Used(String),
    #[error("invariant 4: {0} would be published although it is dead, read-only or unreadable")]
    Unusable(String),
    #[error("invariant 1: the record that {0} was used and not wiped would be lost")]
    Forgotten(String),
    #[error("invariant 3: {0} would be used although it is not certain which device it is")]
    Quarantined(String),
    #[error("invariant 6: {0} would be claimed before it has settled")]
    TooNew(String),
    #[error("{0} would be claimed although it may not be used")]
    NotUsable(String),
    #[error("invariant 5: PersistentVolume {0} is in use and would be deleted or released")]
    InUse(String),
    #[error(
        "invariant 5: PersistentVolume {0} was used, and its data is neither wiped nor retained"
    )]
    Unresolved(String),
    #[error("PersistentVolume {0} was not created from a device claim of this node")]
    NotOurs(String),
    #[error("invariant 2: {0} would be wiped although not all preconditions hold")]
    UnfoundedWipe(String),
    #[error("invariant 9: the device claim on {0} would be removed while something of it is left")]
    LeftBehind(String),
    #[error("invariant 9: the NodeInventory would be too large to be written")]
    TooLarge,
    #[error("{0} would have more devices than spec.maxDeviceCount")]
    TooMany(String),
    #[error("the device claims of another machine would be changed")]
    Frozen,
    #[error("device claim on {0}: its owner, device or link would change")]
    Changed(String),
}

/// Every violation; empty: the plan may be applied.
pub fn check(world: &NodeWorld, plan: &Plan) -> Vec<Violation> {
    let index = Index::new(world);
    let mut found = check_claims(world, &index, plan);
    found.extend(check_counts(world, plan));
    found.extend(check_size(world, plan));
    found.extend(check_data(world, &index, plan));
    found.extend(check_removed(world, &index, plan));
    found.extend(plan.steps.iter().flat_map(|step| check_step(world, &index, plan, step)));
    let mut unique = Vec::new();
    for violation in found {
        if !unique.contains(&violation) {
            unique.push(violation);
        }
    }
    unique
}

fn check_claims(world: &NodeWorld, index: &Index<'_>, plan: &Plan) -> Vec<Violation> {
    let before: HashMap<(&str, &str), &DeviceClaim> =
        world.inventory.spec.device_claims.iter().map(|claim| (key(claim), claim)).collect();
    let mut claims: HashMap<&str, usize> = HashMap::new();
    for claim in &plan.claims {
        *claims.entry(claim.identity.as_str()).or_default() += 1;
    }
    let mut found = Vec::new();
    for claim in &plan.claims {
        let entry = index.claimed_device(claim);
        let named = |entry: &DeviceEntry<'_>| {
            entry
                .candidates
                .iter()
                .filter_map(|candidate| claims.get(candidate.as_str()))
                .sum::<usize>()
        };
        let rivals = entry.map_or(claims[claim.identity.as_str()], named);
        match before.get(&key(claim)) {
            // Two that exist already are reported, not multiplied.
            Some(old) => found.extend(check_kept(index, old, claim)),
            None => {
                if rivals > 1 {
                    found.push(Violation::TwoOwners(claim.identity.clone()));
                }
                if plan.claims.iter().filter(|other| other.link == claim.link).count() > 1 {
                    found.push(Violation::SharedLink(claim.link.clone()));
                }
                found.extend(check_new(world, index, claim, entry));
            }
        }
    }
    found
}

/// A device claim goes only when nothing of it is left.
fn check_removed(world: &NodeWorld, index: &Index<'_>, plan: &Plan) -> Vec<Violation> {
    let retained: HashSet<(&str, &str)> = plan.claims.iter().map(key).collect();
    let removed =
        world.inventory.spec.device_claims.iter().filter(|old| !retained.contains(&key(old)));
    let left_behind = removed.filter(|old| {
        let ctx = index.ctx(old);
        let ended =
            old.terminating && ctx.report.is_some_and(|report| report.state == ClaimState::Removed);
        let published = ctx.pv.is_some_and(|found| pv::is_of(found, old));
        published || !(ended || is_released(world))
    });
    left_behind.map(|old| Violation::LeftBehind(old.identity.clone())).collect()
}

/// No demand gets more than its maximum. One that has more already (the maximum was lowered since) gets nothing new.
fn check_counts(world: &NodeWorld, plan: &Plan) -> Vec<Violation> {
    let exceeds = |demand: &&super::Demand| {
        let count = |claims: &[DeviceClaim]| {
            claims
                .iter()
                .filter(|claim| claim.owner.uid == demand.owner.uid && !claim.terminating)
                .count()
        };
        let (before, after) = (count(&world.inventory.spec.device_claims), count(&plan.claims));
        after > before && demand.max().is_some_and(|max| after > max)
    };
    let over = world.demands.iter().filter(exceeds);
    over.map(|demand| Violation::TooMany(demand.owner.name.clone())).collect()
}

/// New device claims and paths fit into an object that the API takes.
fn check_size(world: &NodeWorld, plan: &Plan) -> Option<Violation> {
    let spec = &world.inventory.spec;
    let grows = plan.claims.len() > spec.device_claims.len() || plan.paths.len() > spec.paths.len();
    let size = || bytes(&plan.claims) + bytes(&plan.paths) + bytes(&world.inventory.status);
    // etcd's limit.
    (grows && size() > 3 << 19).then_some(Violation::TooLarge)
}

fn key(claim: &DeviceClaim) -> (&str, &str) {
    (&claim.identity, &claim.owner.uid)
}

/// A device claim that stays: only its round, its job and its end move, and only forward. One that was named by a path
/// and is not published may get other settings, and another size if it is confirmed again.
fn check_kept(index: &Index<'_>, old: &DeviceClaim, new: &DeviceClaim) -> Option<Violation> {
    let mut fixed = DeviceClaim {
        round: old.round,
        job: old.job.clone(),
        terminating: old.terminating,
        last_pv: old.last_pv.clone(),
        ..new.clone()
    };
    let unpublished = index.ctx(old).pv.is_none();
    if unpublished && old.identifiers.iter().all(|known| new.identifiers.contains(known)) {
        fixed.identifiers.clone_from(&old.identifiers);
    }
    if old.path.is_some() && unpublished {
        (fixed.volume_mode, fixed.fs_type) = (old.volume_mode, old.fs_type.clone());
        if new.round > old.round {
            fixed.size = old.size;
        }
    }
    let changed = fixed != *old || new.round < old.round || (old.terminating && !new.terminating);
    changed.then(|| Violation::Changed(old.identity.clone()))
}

fn check_new(
    world: &NodeWorld,
    index: &Index<'_>,
    claim: &DeviceClaim,
    entry: Option<&DeviceEntry<'_>>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut forbid = |broken: bool, violation: fn(String) -> Violation| {
        if broken {
            found.push(violation(claim.identity.clone()));
        }
    };
    let owner = world.demands.iter().find(|demand| demand.owner.uid == claim.owner.uid);
    if let Some(entry) = entry {
        let device = entry.device;
        let adopts = |retained: &RetainedData| {
            claim.content == ClaimContent::Any
                && owner.is_some_and(|owner| owner.adopts.contains(&retained.pv_uid))
        };
        forbid(!device.settled, Violation::TooNew);
        forbid(index.identity_problem(entry).is_some(), Violation::Quarantined);
        forbid(
            (claim.content == ClaimContent::Blank && content::shows_data(device))
                || content::unfit_device(device, claim.volume_mode, claim.fs_type.as_deref())
                    .is_some()
                || retained_data_on(world, device, Partitions::New)
                    .into_iter()
                    .any(|retained| !adopts(retained))
                || content::exposed_remnant(world, claim, device).is_some(),
            Violation::DataPublished,
        );
        forbid(!entry.published.is_empty(), Violation::TwoOwners);
    }
    let complete = owner.is_some_and(|owner| owner.takes_more())
        && claim.round == 1
        && claim.job.is_none()
        && !claim.terminating
        && !claim.link.is_empty()
        && !claim.id.is_empty();
    forbid(entry.is_none() || !complete, Violation::NotUsable);
    if is_frozen(world) || is_released(world) || world.node.is_none() {
        found.push(Violation::Frozen);
    }
    found
}

fn check_step(world: &NodeWorld, index: &Index<'_>, plan: &Plan, step: &Step) -> Vec<Violation> {
    match step {
        Step::CreateClass(_) => Vec::new(),
        Step::CreatePv(made) => check_publication(world, index, made),
        Step::DeletePv { name, .. } => check_unused(world, index, name).err().into_iter().collect(),
        Step::ReleasePv { name, .. } => match index.claim_of_pv(name) {
            Some(claim) => check_release(world, index, plan, claim, name),
            None => check_orphan(world, plan, name),
        },
        Step::CreateJob(job) => check_wipe(world, index, job),
    }
}

/// Being deleted, and the device claim records its end: its data was wiped, is retained, or never existed. Released by
/// an administrator: what is on the device is recorded.
fn check_release(
    world: &NodeWorld,
    index: &Index<'_>,
    plan: &Plan,
    claim: &DeviceClaim,
    name: &str,
) -> Vec<Violation> {
    let found = match check_unused(world, index, name) {
        Ok(found) => found,
        Err(violation) => return vec![violation],
    };
    let over = pv::is_over(found, claim);
    let recorded = is_recorded(plan, &claim.identity, found.metadata.uid.as_deref());
    if found.metadata.deletion_timestamp.is_none() {
        return vec![Violation::InUse(name.to_owned())];
    }
    if pv::was_used(found, claim) && !over && !(is_released(world) && recorded) {
        return vec![Violation::Unresolved(name.to_owned())];
    }
    if over || is_released(world) {
        return Vec::new();
    }
    vec![Violation::InUse(name.to_owned())]
}

/// The data of the PersistentVolume with this UID is retained from now on.
fn is_recorded(plan: &Plan, identity: &str, uid: Option<&str>) -> bool {
    let is_it = |retained: &RetainedData| {
        retained.identity == identity && Some(retained.pv_uid.as_str()) == uid
    };
    plan.retained_data.iter().any(is_it)
}

/// Being deleted, ours, unused; and what is on the device is recorded.
fn check_orphan(world: &NodeWorld, plan: &Plan, name: &str) -> Vec<Violation> {
    let ours = |found: &&std::sync::Arc<PersistentVolume>| {
        found.metadata.name.as_deref() == Some(name) && pv::is_ours(found)
    };
    let Some(orphan) = world.pvs.iter().find(ours) else {
        return vec![Violation::NotOurs(name.to_owned())];
    };
    let mut found = Vec::new();
    if orphan.metadata.deletion_timestamp.is_none()
        || pv_usage(orphan) != PvUsage::Free
        || is_frozen(world)
    {
        found.push(Violation::InUse(name.to_owned()));
    }
    let recorded = plan.retained_data.iter().any(|retained| {
        retained.pv_name == name && Some(&retained.pv_uid) == orphan.metadata.uid.as_ref()
    });
    if pv::was_bound(orphan) && !recorded {
        found.push(Violation::Forgotten(name.to_owned()));
    }
    found
}

/// Also asked right before the PersistentVolume is created (`publication.rs`).
pub fn check_publication(
    world: &NodeWorld,
    index: &Index<'_>,
    made: &PersistentVolume,
) -> Vec<Violation> {
    let name = made.metadata.name.clone().unwrap_or_default();
    let Some(claim) = index.claim_of_pv(&name) else { return vec![Violation::NotOurs(name)] };
    let ctx = index.ctx(claim);
    let mut found = Vec::new();
    let mut forbid = |broken: bool, violation: fn(String) -> Violation| {
        if broken {
            found.push(violation(claim.identity.clone()));
        }
    };
    let confirmed =
        ctx.report.is_some_and(|report| report.state == ClaimState::Confirmed && report.linked);
    forbid(
        !confirmed
            || claim.terminating
            || claim.job.is_some()
            || !pv::is_of(made, claim)
            || pv::round(made) != Some(claim.round)
            || ctx.device.is_none(),
        Violation::Unconfirmed,
    );
    forbid(
        ctx.pv.is_some() || ctx.demand.is_none_or(|demand| demand.terminating),
        Violation::TwoOwners,
    );
    forbid(ctx.quarantine.is_some(), Violation::Quarantined);
    let exposes = ctx.device.is_some_and(|device| {
        (claim.content == ClaimContent::Blank && content::shows_data(device))
            || content::unfit_device(device, claim.volume_mode, claim.fs_type.as_deref()).is_some()
            || content::exposed_remnant(world, claim, device).is_some()
            || content::blocks_reuse(world, claim, device)
    });
    forbid(exposes || pv::used(claim).is_some(), Violation::DataPublished);
    forbid(content::user(&ctx).is_some(), Violation::Used);
    forbid(
        ctx.device.is_some_and(|device| content::unusable(device).is_some()),
        Violation::Unusable,
    );
    if is_frozen(world) || world.node.is_none() {
        found.push(Violation::Frozen);
    }
    found
}

/// What was used and not wiped stays recorded until an administrator discards it.
fn check_data(world: &NodeWorld, index: &Index<'_>, plan: &Plan) -> Vec<Violation> {
    let erased = |old: &DeviceClaim| {
        let job = old.job.as_ref().and_then(|job| world.jobs.get(&job.name));
        job.and_then(|job| job.status.as_ref()?.phase) == Some(JobPhase::Succeeded)
    };
    let (claims, spec) = (&world.inventory.spec.device_claims, &world.inventory.spec);
    // A whole disk was wiped with its partitions.
    let may_go = |identity: &String, disk: &Option<String>, pv_uid: &str| {
        let on_it = |claim: &DeviceClaim| {
            claim.identity == *identity || Some(&claim.identity) == disk.as_ref()
        };
        is_forgotten(world, pv_uid) || claims.iter().any(|claim| on_it(claim) && erased(claim))
    };
    let retained = spec.retained_data.iter().filter(|old| {
        let same = |new: &RetainedData| {
            let (disk, identifiers) = (old.disk.clone(), old.identifiers.clone());
            RetainedData { disk, identifiers, ..new.clone() } == **old
        };
        !plan.retained_data.iter().any(|new| same(new) && keeps_place(*old, new))
    });
    let remnants = spec.wipe_remnants.iter().filter(|old| {
        let same = |new: &WipeRemnant| {
            let (disk, identifiers) = (old.disk.clone(), old.identifiers.clone());
            WipeRemnant { disk, identifiers, ..new.clone() } == **old
        };
        !plan.wipe_remnants.iter().any(|new| same(new) && keeps_place(*old, new))
    });
    let removed = retained
        .map(|data| (&data.identity, &data.disk, &data.pv_uid))
        .chain(remnants.map(|left| (&left.identity, &left.disk, &left.pv_uid)));
    let mut lost: Vec<&String> = removed
        .filter(|(identity, disk, uid)| !may_go(identity, disk, uid))
        .map(|(identity, ..)| identity)
        .collect();
    // What a Quick wipe leaves is recorded from then on.
    lost.extend(claims.iter().filter(|old| erased(old)).filter_map(|old| {
        let job = old.job.as_ref().and_then(|job| world.jobs.get(&job.name));
        let quick = job.is_some_and(|job| is_quick(job));
        let ends = !plan.claims.iter().any(|new| key(new) == key(old) && new.job == old.job);
        let recorded = plan.wipe_remnants.iter().any(|left| left.identity == old.identity);
        // A new PVC voids the job: the device is wiped again.
        let voided = plan.claims.iter().any(|new| key(new) == key(old) && pv::used(new).is_some());
        (quick && ends && !recorded && !voided).then_some(&old.identity)
    }));
    let used = claims.iter().filter(|old| pv::used(old).is_some() && !erased(old));
    lost.extend(used.filter_map(|old| {
        let stays = plan.claims.iter().any(|new| key(new) == key(old) && pv::used(new).is_some());
        let recorded = plan.retained_data.iter().any(|retained| retained.identity == old.identity);
        (!stays && !recorded).then_some(&old.identity)
    }));
    lost.extend(check_bound(index, claims, plan));
    lost.into_iter().map(|identity| Violation::Forgotten(identity.clone())).collect()
}

/// By the PersistentVolumes themselves, whatever the device claims record: one that a PVC was bound to is at its end
/// only if what that PVC wrote was wiped since, or is retained.
fn check_bound<'a>(
    index: &Index<'_>,
    claims: &'a [DeviceClaim],
    plan: &Plan,
) -> impl Iterator<Item = &'a String> {
    claims.iter().filter_map(|old| {
        let found = index.ctx(old).pv.filter(|found| pv::is_of(found, old))?;
        let ends = plan.claims.iter().any(|new| key(new) == key(old) && pv::is_over(found, new));
        let unknown = pv::is_new_use(found, old);
        let recorded = is_recorded(plan, &old.identity, found.metadata.uid.as_deref());
        (unknown && ends && !recorded).then_some(&old.identity)
    })
}

/// The disk of a record is learned, and then stays.
fn keeps_place(old: &impl DataRecord, new: &impl DataRecord) -> bool {
    (old.disk().is_none() || old.disk() == new.disk())
        && (old.identifiers().is_empty() || old.identifiers() == new.identifiers())
}

fn is_quick(job: &NodeJob) -> bool {
    match Task::try_from(&job.spec) {
        Ok(Task::Wipe(wipe)) => wipe.policy == WipePolicy::Quick,
        Ok(Task::Volume(_)) | Err(_) => true,
    }
}

/// The PersistentVolume, ours and unused.
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

fn check_wipe(world: &NodeWorld, index: &Index<'_>, job: &NodeJob) -> Vec<Violation> {
    let Ok(Task::Wipe(device)) = Task::try_from(&job.spec) else {
        return vec![Violation::UnfoundedWipe(job.metadata.name.clone().unwrap_or_default())];
    };
    let found = match check_unused(world, index, device.pv.as_str()) {
        Ok(found) => found,
        Err(violation) => return vec![violation],
    };
    let unfounded = vec![Violation::UnfoundedWipe(device.identity.to_string())];
    let Some(claim) = index.claim_of_pv(device.pv.as_str()) else { return unfounded };
    if index.ctx(claim).quarantine.is_some() {
        return vec![Violation::Quarantined(claim.identity.clone())];
    }
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
    if recorded && node && same && going && released && !another_runs && !is_frozen(world) {
        return Vec::new();
    }
    unfounded
}
