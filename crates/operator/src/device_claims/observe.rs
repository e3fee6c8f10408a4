//! Gathers the world of one node. Decides nothing.

use crate::{Context, context::Failure, driver::ControllerName};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt};
use quarry_api::{
    LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, names, node_inventory::DeviceClaim,
    node_job::OwnerKind,
};
use quarry_core::{
    device_claim::{
        ClaimContext, Demand, NodeWorld, claim_contexts, decide,
        demand::{of_local_volume, of_set},
        orphaned, pv, unfamiliar,
    },
    presence::{Presence, presence},
};
use std::{collections::BTreeSet, sync::Arc};

/// Everybody who wants devices: those of the operator's own namespace.
pub fn demands(context: &Context) -> Vec<Demand> {
    let here = |namespace: Option<String>| namespace.as_deref() == Some(context.namespace.as_str());
    let sets = context
        .caches
        .sets
        .all()
        .into_iter()
        .filter(|set| here(set.namespace()))
        .map(|set| of_set(&set));
    let volumes = context
        .caches
        .local_volumes
        .all()
        .into_iter()
        .filter(|volume| here(volume.namespace()))
        .map(|volume| of_local_volume(&volume));
    sets.chain(volumes).map(|demand| with_classes(context, demand)).collect()
}

/// With what the StorageClasses say that it names.
pub fn with_classes(context: &Context, demand: Demand) -> Demand {
    demand.with_classes(|class| {
        context.caches.classes.get(class).map(|class| class.provisioner.clone())
    })
}

/// From the caches alone: for what is only said, not done.
pub fn cached_world(
    context: &Context,
    node: &str,
    inventory: &NodeInventory,
    demands: Vec<Demand>,
) -> NodeWorld {
    let caches = &context.caches;
    let found = caches.nodes.get(node);
    let mut pvs: Vec<Arc<PersistentVolume>> = match &found {
        Some(node) => caches
            .unmanaged_pvs()
            .candidates(node)
            .into_iter()
            .filter_map(|pv| caches.pvs.get(pv))
            .filter(|pv| quarry_core::unmanaged_pv::is_on(pv, node))
            .collect(),
        None => Vec::new(),
    };
    let claims = &inventory.spec.device_claims;
    for name in claims.iter().map(|claim| names::local_pv(node, &claim.identity)) {
        if !pvs.iter().any(|pv| pv.metadata.name.as_deref() == Some(&name)) {
            pvs.extend(caches.pvs.get(&name));
        }
    }
    let classes: BTreeSet<&String> = claims.iter().map(|claim| &claim.storage_class_name).collect();
    NodeWorld {
        name: node.to_owned(),
        node: found,
        demands,
        pvs,
        classes: classes
            .into_iter()
            .filter_map(|name| Some((name.clone(), caches.classes.get(name)?)))
            .collect(),
        jobs: claims
            .iter()
            .filter_map(|claim| claim.job.as_ref())
            .filter_map(|job| Some((job.name.clone(), caches.jobs.get(&job.name)?)))
            .collect(),
        elsewhere: caches.identities().elsewhere(node),
        agent_present: matches!(
            presence(caches.leases.get(&names::agent_lease(node)).as_deref(), context.now()),
            Presence::Present { .. }
        ),
        inventory: inventory.clone(),
    }
}

/// With the API's own word where a cache says "there is none" and something would be given up because of it.
pub async fn world(
    context: &Context,
    node: &str,
    inventory: &NodeInventory,
) -> Result<NodeWorld, Failure> {
    let mut world = cached_world(context, node, inventory, demands(context));
    let claims = &inventory.spec.device_claims;
    let absent: BTreeSet<(&str, &str, &str)> = claims
        .iter()
        .filter(|claim| !world.demands.iter().any(|demand| demand.owner.uid == claim.owner.uid))
        .map(|claim| {
            (
                claim.owner.kind.as_str(),
                claim.owner.namespace.as_deref().unwrap_or_default(),
                claim.owner.name.as_str(),
            )
        })
        .collect();
    let found = try_join_all(
        absent
            .into_iter()
            .map(|(kind, namespace, name)| live_owner(context, kind, namespace, name)),
    )
    .await?;
    // By UID: one that was made anew under the same name is somebody else, and known already.
    let owns = |demand: &Demand| {
        claims.iter().any(|claim| claim.owner.uid == demand.owner.uid)
            && !world.demands.iter().any(|known| known.owner.uid == demand.owner.uid)
    };
    let found: Vec<Demand> = found.into_iter().flatten().filter(owns).collect();
    world.demands.extend(found);
    let absent: Vec<String> = given_up(&world, context.now())
        .into_iter()
        .map(|claim| names::local_pv(node, &claim.identity))
        .collect();
    let pvs: Api<PersistentVolume> = Api::all(context.client.clone());
    let failed = |error| Failure::api(format!("reading what is claimed on {node}"), error);
    let found = try_join_all(absent.iter().map(|name| pvs.get_opt(name))).await.map_err(failed)?;
    world.pvs.extend(found.into_iter().flatten().map(Arc::new));
    // One that a cache still shows, and that went with its claim, is nobody's left-over; and one that its claim does not know
    // may be gone, and another one in its place.
    let mut shown = orphaned(&world);
    shown.extend(unfamiliar(&world));
    let found = try_join_all(shown.iter().map(|name| pvs.get_opt(name))).await.map_err(failed)?;
    world.pvs.retain(|pv| pv.metadata.name.as_ref().is_none_or(|name| !shown.contains(name)));
    world.pvs.extend(found.into_iter().flatten().map(Arc::new));
    let jobs: Api<NodeJob> = Api::all(context.client.clone());
    let absent: Vec<&String> = claims
        .iter()
        .filter_map(|claim| claim.job.as_ref())
        .map(|job| &job.name)
        .filter(|name| !world.jobs.contains_key(*name))
        .collect();
    let found =
        try_join_all(absent.into_iter().map(|name| jobs.get_opt(name))).await.map_err(failed)?;
    world.jobs.extend(found.into_iter().flatten().map(|job| (job.name_any(), Arc::new(job))));
    Ok(world)
}

/// Claims without a PersistentVolume, as far as the caches know, that have ended or would end because of that.
fn given_up(world: &NodeWorld, now: Timestamp) -> Vec<&DeviceClaim> {
    let ends = |ctx: &ClaimContext<'_>| {
        ctx.claim.job.is_some()
            || pv::used(ctx.claim).is_some()
            || decide(world, ctx, now).claim.is_none_or(|claim| claim.terminating)
    };
    claim_contexts(world)
        .into_iter()
        .filter(|ctx| ctx.pv.is_none() && ends(ctx))
        .map(|ctx| ctx.claim)
        .collect()
}

/// An owner that the caches do not know: really gone, or just not seen yet.
async fn live_owner(
    context: &Context,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<Demand>, Failure> {
    let failed = |error| Failure::api(format!("asking for {kind} {namespace}/{name}"), error);
    let client = context.client.clone();
    Ok(match OwnerKind::parse(kind) {
        Some(OwnerKind::LocalVolumeSet) => Api::<LocalVolumeSet>::namespaced(client, namespace)
            .get_opt(name)
            .await
            .map_err(failed)?
            .map(|set| of_set(&set)),
        Some(OwnerKind::LocalVolume) => Api::<LocalVolume>::namespaced(client, namespace)
            .get_opt(name)
            .await
            .map_err(failed)?
            .map(|volume| of_local_volume(&volume)),
        Some(OwnerKind::Volume) | None => None,
    }
    .map(|demand| with_classes(context, demand)))
}

/// Claims are planned only where the kinds that own them are seen: else every owner would look gone.
pub fn is_planned(context: &Context) -> bool {
    context.runs(ControllerName::LocalVolumeSet) && context.runs(ControllerName::LocalVolume)
}
