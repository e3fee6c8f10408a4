//! Writes the NodeInventory, then carries out the steps of its device claims, in order. Each is idempotent; the first
//! that fails ends the run.

use crate::{
    Context,
    controller::{Failure, Next},
    events,
    writer::{Written, is_code, merge_difference},
};
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use kube::{Api, ResourceExt};
use quarry_api::{
    LocalVolume, LocalVolumeSet, NodeInventory, NodeInventorySpec, NodeJob, names,
    node_inventory::ClaimOwner,
};
use quarry_core::{
    device_claim::{NodeWorld, Step, publication},
    event::PendingEvent,
    node_inventory::{self as inventory, Observed, Plan},
};
use serde_json::json;
use std::collections::BTreeSet;

pub async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
    let changed = write(context, observed, plan.inventory.as_ref()).await?;
    let (Some(world), Some(claims)) = (&observed.world, &plan.claims) else {
        return Ok(Next::AwaitChange);
    };
    if changed {
        publish_new_claims(context, &plan.new_claims).await;
    }
    apply_claims(context, world, &claims.steps).await?;
    publish_ownerless(context, world, &plan).await;
    Ok(claims.requeue.into())
}

/// `true` when the inventory was changed.
async fn write(
    context: &Context,
    observed: &Observed,
    step: Option<&inventory::Step>,
) -> Result<bool, Failure> {
    let node = observed.name.as_str();
    let api: Api<NodeInventory> = Api::all(context.client.clone());
    let failed = |error| Failure::api(format!("NodeInventory {node}"), error);
    match step {
        None => return Ok(false),
        Some(inventory::Step::Create(created)) => {
            context.writer.create(&api, created).await.map_err(failed)?;
            tracing::info!(node, "created NodeInventory");
        }
        Some(inventory::Step::Update(update)) => {
            let old = observed.inventory.as_ref().map(|inventory| json!(inventory.spec));
            let mut changes = json!({});
            let difference = merge_difference(&old.unwrap_or_default(), &json!(update.spec));
            if let Some(difference) = difference {
                changes["spec"] = difference;
            }
            if let Some(finalizers) = &update.finalizers {
                changes["metadata"]["finalizers"] = json!(finalizers);
            }
            if update.answered {
                changes["metadata"]["annotations"] =
                    json!({names::RELEASE_DEVICE_CLAIMS_ANNOTATION: null});
            }
            let version = &update.resource_version;
            context.writer.patch(&api, node, version, changes).await.map_err(failed)?;
            log_spec(node, &update.spec);
        }
        Some(inventory::Step::Delete { uid, resource_version }) => {
            let deleted = context.writer.delete(&api, node, uid, Some(resource_version)).await;
            deleted.map_err(failed)?;
            tracing::info!(node, "deleted NodeInventory with its Node");
        }
    }
    Ok(true)
}

fn log_spec(node: &str, spec: &NodeInventorySpec) {
    if let Some(omitted) = spec.unmanaged_pvs_omitted {
        tracing::warn!(
            node,
            omitted,
            "skipped PersistentVolumes beyond what a NodeInventory holds: none of the node's devices is Available until some are deleted"
        );
    }
    tracing::info!(
        node,
        device_claims = spec.device_claims.len(),
        quarantine = spec.quarantine.len(),
        unmanaged_pvs = spec.unmanaged_pvs.len(),
        "updated NodeInventory"
    );
}

const OWNERLESS: &str = "ownerless";

/// On the objects that got the devices.
async fn publish_new_claims(context: &Context, new: &[(ClaimOwner, PendingEvent)]) {
    for (owner, event) in new {
        let key = format!("{}/{}", owner.namespace.as_deref().unwrap_or_default(), owner.name);
        let is_owner = |uid: Option<String>| uid.as_deref() == Some(owner.uid.as_str());
        let set = context.caches.get::<LocalVolumeSet>(&key).filter(|set| is_owner(set.uid()));
        if let Some(set) = set {
            events::publish(context, set.as_ref(), std::slice::from_ref(event)).await;
        }
        let volume = context.caches.get::<LocalVolume>(&key);
        if let Some(volume) = volume.filter(|volume| is_owner(volume.uid())) {
            events::publish(context, volume.as_ref(), std::slice::from_ref(event)).await;
        }
    }
}

/// Device claims whose owner is gone: reported on the inventory, the only object that is left.
async fn publish_ownerless(context: &Context, world: &NodeWorld, plan: &Plan) {
    let stages = plan.ownerless.iter().map(|(_, stage)| stage.as_str());
    context.metrics.set_stages(&format!("{OWNERLESS}/{}", world.name), stages);
    let message = inventory::ownerless_message(&plan.ownerless);
    if context.is_unpublished(OWNERLESS, &world.name, &message) {
        let event = PendingEvent { warning: true, reason: "OwnerGone", message };
        events::publish(context, &world.inventory, &[event]).await;
    }
}

pub async fn apply_claims(
    context: &Context,
    world: &NodeWorld,
    steps: &[Step],
) -> Result<(), Failure> {
    let publishes = steps.iter().any(|step| matches!(step, Step::CreatePv(_)));
    // A create carries no version of the inventory. A cache that is far behind may show a confirmation that is worth
    // nothing any more: nothing is published without asking.
    let publishable = if publishes {
        publication::publishable(world, &live_inventory(context, world).await?, steps)
    } else {
        BTreeSet::new()
    };
    for step in steps {
        if !publication::may_apply(step, steps, &publishable) {
            return Err(stale(world));
        }
        apply_one(context, world, step).await?;
        tracing::info!(node = world.name, step = step.name(), "applied");
        if let Step::DeletePv { name, .. } | Step::ReleasePv { name, .. } = step
            && context.caches.get::<PersistentVolume>(name).is_none()
        {
            // Known from a live read alone. If that was older than the cache, no event will report its absence.
            return Err(Failure::stale(format!(
                "device claims of node {}: PersistentVolume {name} is not known from a watch",
                world.name
            )));
        }
    }
    Ok(())
}

async fn live_inventory(context: &Context, world: &NodeWorld) -> Result<NodeInventory, Failure> {
    let api: Api<NodeInventory> = Api::all(context.client.clone());
    api.get(&world.name)
        .await
        .map_err(|error| Failure::api(format!("reading the inventory of {}", world.name), error))
}

async fn apply_one(context: &Context, world: &NodeWorld, step: &Step) -> Result<(), Failure> {
    let pvs: Api<PersistentVolume> = Api::all(context.client.clone());
    let failed = |error: kube::Error| {
        Failure::api(format!("device claims of node {}: {}", world.name, step.name()), error)
    };
    match step {
        Step::CreateClass(class) => {
            let classes: Api<StorageClass> = Api::all(context.client.clone());
            match context.writer.create(&classes, class).await.map_err(failed)? {
                Written::Changed(_) => Ok(()),
                // One that exists by now is never changed. Its settings (Retain, another provisioner) are not in this
                // plan: the next one creates its PersistentVolumes.
                Written::Unchanged => {
                    Err(Failure::stale(format!("StorageClass {} exists already", class.name_any())))
                }
            }
        }
        Step::CreatePv(pv) => {
            match context.writer.create(&pvs, pv).await.map_err(failed)? {
                Written::Changed(_) => Ok(()),
                // Ours from an earlier run, or unmanaged: the watch shows which.
                Written::Unchanged => Err(Failure::stale(format!(
                    "PersistentVolume {} exists already",
                    pv.name_any()
                ))),
            }
        }
        Step::DeletePv { name, uid, resource_version } => {
            context.writer.delete(&pvs, name, uid, Some(resource_version)).await.map_err(failed)
        }
        Step::ReleasePv { name, resource_version, finalizers } => {
            let changes = json!({"metadata": {"finalizers": finalizers}});
            match context.writer.patch(&pvs, name, resource_version, changes).await {
                Ok(_) => Ok(()),
                Err(error) if is_code(&error, 404) => Ok(()),
                Err(error) => Err(failed(error)),
            }
        }
        Step::CreateJob(job) => {
            let jobs: Api<NodeJob> = Api::all(context.client.clone());
            // The name is a hash of the spec: one of that name is the same job, created by an earlier run.
            context.writer.create(&jobs, job).await.map_err(failed).map(drop)
        }
    }
}

fn stale(world: &NodeWorld) -> Failure {
    Failure::stale(format!(
        "device claims of node {}: the inventory has changed since it was read",
        world.name
    ))
}
