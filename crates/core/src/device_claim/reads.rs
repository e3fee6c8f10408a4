//! Which objects must be read from the API before a plan: a stale cache may show what is gone, or lack what exists,
//! and absence may only cause waiting (rule 5). The shell reads exactly these, then plans.
//!
//! Chosen by facts, never by what the plan would be; rather one read too many.

use super::{ClaimContext, Index, NodeWorld, claim_contexts, is_released, pv};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    names,
    node_inventory::{ClaimOwner, ClaimState},
};
use std::collections::BTreeSet;

/// Owners of device claims that no demand stands for.
pub fn absent_owners(world: &NodeWorld) -> Vec<ClaimOwner> {
    let known =
        |owner: &ClaimOwner| world.demands.iter().any(|demand| demand.owner.uid == owner.uid);
    let claims = world.inventory.spec.device_claims.iter();
    let absent: BTreeSet<&ClaimOwner> =
        claims.map(|claim| &claim.owner).filter(|owner| !known(owner)).collect();
    absent.into_iter().cloned().collect()
}

/// PersistentVolumes that the caches lack, of every device claim that is not plainly on its way to its next one.
pub fn absent_pvs(world: &NodeWorld) -> Vec<String> {
    let contexts = claim_contexts(world);
    let absent = contexts.iter().filter(|ctx| ctx.pv.is_none() && !is_plain(world, ctx));
    absent.map(|ctx| names::local_pv(&world.name, &ctx.claim.identity)).collect()
}

/// Its owner demands the device as it was claimed, the device is there as it was claimed, the agent does not refuse it,
/// and nothing of an earlier PersistentVolume is unresolved. Absence changes nothing for it: a PersistentVolume that
/// exists in spite of the cache is found when it would be created.
fn is_plain(world: &NodeWorld, ctx: &ClaimContext<'_>) -> bool {
    let claim = ctx.claim;
    let resolved = claim.job.is_none() && pv::used(claim).is_none() && !claim.terminating;
    let demanded = ctx.demand.is_some_and(|demand| {
        let matches = ctx.device.is_some_and(|device| demand.describes(device));
        demand.still_demands(claim) && demand.makes(claim) && matches
    });
    let same = ctx.device.is_some_and(|device| device.size == claim.size);
    let refused = ctx.report.is_some_and(|report| match report.state {
        ClaimState::Refused | ClaimState::Outdated => true,
        ClaimState::Confirmed | ClaimState::Removed | ClaimState::RemovalFailed => false,
    });
    resolved && demanded && same && !refused && !is_released(world)
}

/// PersistentVolumes that the caches show and that may be gone, or replaced, by now.
pub fn unverified_pvs(world: &NodeWorld) -> Vec<String> {
    let mut found = orphaned(world);
    found.extend(unfamiliar(world));
    found
}

/// Jobs that device claims name and that the caches lack.
pub fn absent_jobs(world: &NodeWorld) -> Vec<String> {
    let claims = world.inventory.spec.device_claims.iter();
    let jobs = claims.filter_map(|claim| claim.job.as_ref()).map(|job| &job.name);
    jobs.filter(|name| !world.jobs.contains_key(*name)).cloned().collect()
}

/// PersistentVolumes of ours that are being deleted and whose device claim is gone.
pub fn orphaned(world: &NodeWorld) -> Vec<String> {
    let index = Index::new(world);
    let is_going =
        |pv: &PersistentVolume| pv::is_ours(pv) && pv.metadata.deletion_timestamp.is_some();
    let going = world.pvs.iter().filter(|pv| is_going(pv));
    let names = going.filter_map(|pv| pv.metadata.name.as_ref());
    names.filter(|name| index.claim_of_pv(name).is_none()).cloned().collect()
}

/// PersistentVolumes that are used or being deleted and are not those that their device claims knew last, or not as
/// they knew them. A stale cache may show one that is long gone, and what was recorded about its successor would be
/// lost.
pub fn unfamiliar(world: &NodeWorld) -> Vec<String> {
    let is_other = |ctx: &ClaimContext<'_>| {
        let (found, last) = ctx.pv.zip(ctx.claim.last_pv.as_ref())?;
        let deleted = found.metadata.deletion_timestamp.is_some()
            && found.metadata.uid.as_ref() != Some(&last.uid);
        let other = pv::is_of(found, ctx.claim) && (deleted || pv::is_new_use(found, ctx.claim));
        found.metadata.name.clone().filter(|_| other)
    };
    claim_contexts(world).iter().filter_map(is_other).collect()
}
