//! Carries out the steps of a node's claims, in order. Each is idempotent; the first that fails ends the run.

use crate::{
    Context,
    context::Failure,
    writer::{Written, is_code},
};
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use kube::{Api, ResourceExt};
use quarry_api::{NodeInventory, NodeJob, names};
use quarry_core::claim::{NodeWorld, Step, view};
use serde_json::json;

pub async fn apply(context: &Context, world: &NodeWorld, steps: &[Step]) -> Result<(), Failure> {
    let publishes = steps.iter().any(|step| matches!(step, Step::CreatePv(_)));
    // A create carries no version of the inventory. A cache that is far behind may show a confirmation that is worth
    // nothing any more: nothing is published without asking.
    let live = if publishes { Some(live_inventory(context, world).await?) } else { None };
    for step in steps {
        if let Step::CreateClass(class) = step
            && !steps.iter().any(|other| needs(other, class) && is_proven(world, live.as_ref(), other))
        {
            // One that comes too late would be left behind when everybody who wanted it is gone.
            return Err(behind(world));
        }
        apply_one(context, world, live.as_ref(), step).await?;
        tracing::info!(node = world.name, step = step.name(), "applied");
        if let Step::DeletePv { name, .. } | Step::ReleasePv { name, .. } = step
            && context.caches.pvs.get(name).is_none()
        {
            // Known from an answer alone. If that was older than the cache, no event will tell that nothing was there.
            return Err(Failure::behind(format!("claims of {}: PersistentVolume {name} is not known from a watch", world.name)));
        }
    }
    Ok(())
}

async fn live_inventory(context: &Context, world: &NodeWorld) -> Result<NodeInventory, Failure> {
    let api: Api<NodeInventory> = Api::all(context.client.clone());
    api.get(&world.name).await.map_err(|error| Failure::api(format!("reading the inventory of {}", world.name), error))
}

async fn apply_one(context: &Context, world: &NodeWorld, live: Option<&NodeInventory>, step: &Step) -> Result<(), Failure> {
    let pvs: Api<PersistentVolume> = Api::all(context.client.clone());
    let failed = |error: kube::Error| Failure::api(format!("claims of {}: {}", world.name, step.name()), error);
    match step {
        Step::CreateClass(class) => {
            let classes: Api<StorageClass> = Api::all(context.client.clone());
            // One that exists by now is somebody's: it is never changed.
            context.writer.create(&classes, class).await.map_err(failed).map(drop)
        }
        Step::CreatePv(pv) => {
            if !is_proven(world, live, step) {
                return Err(behind(world));
            }
            match context.writer.create(&pvs, pv).await.map_err(failed)? {
                Written::Changed(_) => Ok(()),
                // Ours from an earlier run, or somebody else's: the watch tells which.
                Written::Unchanged => Err(Failure::behind(format!("PersistentVolume {} exists already", pv.name_any()))),
            }
        }
        Step::DeletePv { name, uid, resource_version } => context.writer.delete(&pvs, name, uid, Some(resource_version)).await.map_err(failed),
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
            // The name is a hash of the spec: one of that name is the same job, made by an earlier run.
            context.writer.create(&jobs, job).await.map_err(failed).map(drop)
        }
    }
}

fn behind(world: &NodeWorld) -> Failure {
    Failure::behind(format!("claims of {}: the inventory has changed since it was read", world.name))
}

/// A PersistentVolume of this class.
fn needs(step: &Step, class: &StorageClass) -> bool {
    match step {
        Step::CreatePv(pv) => pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()) == class.metadata.name.as_ref(),
        Step::CreateClass(_) | Step::DeletePv { .. } | Step::ReleasePv { .. } | Step::CreateJob(_) => false,
    }
}

/// What is to be published is still confirmed.
fn is_proven(world: &NodeWorld, live: Option<&NodeInventory>, step: &Step) -> bool {
    match step {
        Step::CreatePv(pv) => live.is_some_and(|live| is_confirmed(world, live, pv)),
        Step::CreateClass(_) | Step::DeletePv { .. } | Step::ReleasePv { .. } | Step::CreateJob(_) => false,
    }
}

/// The claim and its confirmation are now what the plan was made from.
fn is_confirmed(world: &NodeWorld, live: &NodeInventory, pv: &PersistentVolume) -> bool {
    let Some(claim) = world.inventory.spec.claims.iter().find(|claim| Some(names::local_pv(&world.name, &claim.identity)) == pv.metadata.name) else {
        return false;
    };
    let now = NodeWorld { name: world.name.clone(), inventory: live.clone(), ..NodeWorld::default() };
    live.uid() == world.inventory.uid() && live.spec.claims.contains(claim) && view(&now, claim).report == view(world, claim).report
}
