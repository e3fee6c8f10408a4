//! Which objects must be read from the API before a plan: a stale cache may show what is gone, or lack what exists,
//! and absence may only cause waiting (rule 5). The shell reads exactly these, then plans.

use super::{ClaimContext, Index, NodeWorld, claim_contexts, decide, plan::orphans, pv};
use jiff::Timestamp;
use quarry_api::{names, node_inventory::ClaimOwner};
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

/// PersistentVolumes that the caches lack, of device claims that have ended or would end because of that.
pub fn absent_pvs(world: &NodeWorld, now: Timestamp) -> Vec<String> {
    let ends = |ctx: &ClaimContext<'_>| {
        ctx.claim.job.is_some()
            || pv::used(ctx.claim).is_some()
            || decide(world, ctx, now).claim.is_none_or(|claim| claim.terminating)
    };
    let contexts = claim_contexts(world);
    let absent = contexts.iter().filter(|ctx| ctx.pv.is_none() && ends(ctx));
    absent.map(|ctx| names::local_pv(&world.name, &ctx.claim.identity)).collect()
}

/// PersistentVolumes that the caches show and that may be gone, or replaced, by now.
pub fn doubtful_pvs(world: &NodeWorld) -> Vec<String> {
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
    orphans(world, &Index::new(world))
        .filter_map(|(found, _, _)| found.metadata.name.clone())
        .collect()
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
