//! The NodeInventory controller: every Node has one, made here, with what the cluster knows about its devices and who
//! gets them; the node's agent fills in the rest. What follows from the claims is done after the inventory says so.

use crate::{
    Context,
    context::{Failure, Next},
    device_claims::{apply, observe as claims},
    events,
    writer::merge_difference,
};
use kube::{Api, ResourceExt};
use quarry_api::{NodeInventory, NodeInventorySpec, names, node_inventory::DeviceClaim};
use quarry_core::{
    device_claim::{self, NodeWorld, Stage, owner_text},
    event::PendingEvent,
    node_inventory::{Observed, Step, plan},
    unmanaged_pv,
    violation::joined,
};
use serde_json::json;

/// Everything from the caches: the indexes hold what concerns this node.
fn observe(context: &Context, name: &str) -> Observed {
    let caches = &context.caches;
    let node = caches.nodes.get(name);
    let inventory = caches.inventories.get(name).map(|inventory| (*inventory).clone());
    let claims = inventory
        .as_ref()
        .map(|inventory| inventory.spec.device_claims.as_slice())
        .unwrap_or_default();
    let unmanaged_pvs = node.as_deref().map(|node| {
        let candidates: Vec<_> = caches
            .unmanaged_pvs()
            .candidates(node)
            .into_iter()
            .filter_map(|pv| caches.pvs.get(pv))
            .collect();
        unmanaged_pv::of_node(node, claims, candidates.iter().map(AsRef::as_ref))
    });
    Observed {
        name: name.to_owned(),
        node_exists: node.is_some(),
        inventory,
        unmanaged_pvs: unmanaged_pvs.unwrap_or_default(),
        elsewhere: caches.identities().elsewhere(name),
        claims: None,
    }
}

pub async fn reconcile_once(context: &Context, name: &str) -> Result<Next, Failure> {
    let mut seen = observe(context, name);
    let mut next = Next::AwaitChange;
    let planned = match &seen.inventory {
        Some(inventory) if claims::is_planned(context) => {
            let world = claims::world(context, name, inventory).await?;
            let plan = device_claim::plan(&world, context.now());
            if let Some(violation) = joined(&device_claim::check::check(&world, &plan)) {
                // A bug in the planner: nothing of the plan is applied, and it is said loudly.
                tracing::error!(node = name, %violation, steps = ?plan.steps.iter().map(device_claim::Step::name).collect::<Vec<_>>(), "a plan was refused");
                let message = format!(
                    "nothing is done about the claims of this node, because that would be wrong: {violation}. Please report this"
                );
                if context.is_news(PLAN_REFUSED, name, &message) {
                    events::tell(
                        context,
                        inventory,
                        &[PendingEvent { warning: true, reason: PLAN_REFUSED, message }],
                    )
                    .await;
                }
                // What the cluster knows about the devices, the agent must know all the same.
                write(context, &seen).await?;
                return Err(Failure {
                    attempt: format!("claims of {name}: the plan was refused: {violation}"),
                    source: None,
                    at_once: false,
                });
            }
            next = plan.requeue.map_or(Next::AwaitChange, Next::Requeue);
            seen.claims = Some(plan.clone());
            Some((world, plan))
        }
        Some(_) | None => None,
    };
    let changed = write(context, &seen).await?;
    if let Some((world, plan)) = planned {
        if changed {
            tell(context, &world, &plan.claims).await;
        }
        apply::apply(context, &world, &plan.steps).await?;
        tell_ownerless(context, &world).await;
    }
    Ok(next)
}

/// Claims whose owner was torn away and that cannot end: no object is left that could say so but the inventory.
async fn tell_ownerless(context: &Context, world: &NodeWorld) {
    let owned = |claim: &DeviceClaim| {
        world.demands.iter().any(|demand| demand.owner.uid == claim.owner.uid)
    };
    let stages: Vec<(String, Stage)> = if world.inventory.spec.device_claims.iter().all(owned) {
        Vec::new()
    } else {
        let left =
            device_claim::claim_contexts(world).into_iter().filter(|ctx| ctx.demand.is_none());
        left.map(|ctx| {
            (
                ctx.device.map_or(&ctx.claim.identity, |device| &device.name).clone(),
                device_claim::decide(world, &ctx, context.now()).stage,
            )
        })
        .collect()
    };
    context.metrics.set_stages(
        &format!("{OWNERLESS}/{}", world.name),
        stages.iter().map(|(_, stage)| stage.as_str()),
    );
    let waiting = stages
        .iter()
        .filter(|(_, stage)| !stage.detail().is_empty() && !matches!(stage, Stage::Terminating(_)));
    let message = waiting
        .take(NAMED)
        .map(|(device, stage)| format!("{device}: {}", stage.detail()))
        .collect::<Vec<_>>()
        .join("; ");
    if context.is_news(OWNERLESS, &world.name, &message) {
        let message = format!("the owner of these devices is gone: {message}");
        events::tell(
            context,
            &world.inventory,
            &[PendingEvent { warning: true, reason: "OwnerGone", message }],
        )
        .await;
    }
}

/// `true` when the inventory was changed.
async fn write(context: &Context, seen: &Observed) -> Result<bool, Failure> {
    let name = seen.name.as_str();
    let api: Api<NodeInventory> = Api::all(context.client.clone());
    let failed = |error| Failure::api(format!("node inventory {name}"), error);
    match plan(seen) {
        None => return Ok(false),
        Some(Step::Create(inventory)) => {
            context.writer.create(&api, &inventory).await.map_err(failed)?;
            tracing::info!(node = name, "inventory made");
        }
        Some(Step::Update(update)) => {
            let old =
                seen.inventory.as_ref().map(|inventory| json!(inventory.spec)).unwrap_or_default();
            let mut changes = json!({});
            if let Some(difference) = merge_difference(&old, &json!(update.spec)) {
                changes["spec"] = difference;
            }
            if let Some(finalizers) = &update.finalizers {
                changes["metadata"]["finalizers"] = json!(finalizers);
            }
            if update.answered {
                changes["metadata"]["annotations"] =
                    json!({names::RELEASE_DEVICE_CLAIMS_ANNOTATION: null});
            }
            context
                .writer
                .patch(&api, name, &update.resource_version, changes)
                .await
                .map_err(failed)?;
            tell_spec(name, &update.spec);
        }
        Some(Step::Delete { uid, resource_version }) => {
            context
                .writer
                .delete(&api, name, &uid, Some(&resource_version))
                .await
                .map_err(failed)?;
            tracing::info!(node = name, "inventory removed with its node");
        }
    }
    Ok(true)
}

fn tell_spec(node: &str, spec: &NodeInventorySpec) {
    if let Some(left_out) = spec.unmanaged_pvs_omitted {
        tracing::warn!(
            node,
            left_out,
            "more PersistentVolumes of others than an inventory holds: none of the node's devices is available until some are deleted"
        );
    }
    tracing::info!(
        node,
        claims = spec.device_claims.len(),
        quarantine = spec.quarantine.len(),
        unmanaged_pvs = spec.unmanaged_pvs.len(),
        "inventory's spec"
    );
}

const OWNERLESS: &str = "ownerless";
const PLAN_REFUSED: &str = "PlanRefused";
/// How many devices an Event names.
const NAMED: usize = 8;

/// New claims, on the objects that got them: one Event a node, however many devices.
async fn tell(context: &Context, world: &NodeWorld, claims: &[DeviceClaim]) {
    let new = |claim: &&DeviceClaim| {
        !world
            .inventory
            .spec
            .device_claims
            .iter()
            .any(|old| old.identity == claim.identity && old.owner.uid == claim.owner.uid)
    };
    for demand in &world.demands {
        let taken: Vec<&DeviceClaim> =
            claims.iter().filter(new).filter(|claim| claim.owner.uid == demand.owner.uid).collect();
        if taken.is_empty() {
            continue;
        }
        let devices = world.inventory.status.iter().flat_map(|status| &status.devices);
        let names: Vec<&str> = devices
            .filter(|device| {
                taken.iter().any(|claim| device_claim::is_device(device, &claim.identity))
            })
            .map(|device| device.name.as_str())
            .collect();
        let more = if names.len() > NAMED {
            format!(" and {} more", names.len() - NAMED)
        } else {
            String::new()
        };
        let message = format!(
            "{} claims {}{more} of node {}",
            owner_text(&demand.owner),
            names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "),
            world.name
        );
        let note = PendingEvent { warning: false, reason: "FoundMatchingDisk", message };
        let key = format!(
            "{}/{}",
            demand.owner.namespace.as_deref().unwrap_or_default(),
            demand.owner.name
        );
        if let Some(set) = context
            .caches
            .sets
            .get(&key)
            .filter(|set| set.uid().as_deref() == Some(&demand.owner.uid))
        {
            events::tell(context, set.as_ref(), std::slice::from_ref(&note)).await;
        }
        if let Some(volume) = context
            .caches
            .local_volumes
            .get(&key)
            .filter(|volume| volume.uid().as_deref() == Some(&demand.owner.uid))
        {
            events::tell(context, volume.as_ref(), std::slice::from_ref(&note)).await;
        }
    }
}
