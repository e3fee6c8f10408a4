//! Carries out the steps of a node's claims, in order. Each is idempotent; the first that fails ends the run.

use crate::{
    Context,
    context::Failure,
    writer::{Written, is_code},
};
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use kube::{Api, ResourceExt};
use quarry_api::{NodeInventory, NodeJob};
use quarry_core::device_claim::{Index, NodeWorld, Step, check::check_publication};
use serde_json::json;
use std::collections::BTreeSet;

pub async fn apply(context: &Context, world: &NodeWorld, steps: &[Step]) -> Result<(), Failure> {
    let publishes = steps.iter().any(|step| matches!(step, Step::CreatePv(_)));
    // A create carries no version of the inventory. A cache that is far behind may show a confirmation that is worth
    // nothing any more: nothing is published without asking.
    let proven = if publishes {
        proven(world, live_inventory(context, world).await?, steps)
    } else {
        BTreeSet::new()
    };
    for step in steps {
        let stands = match step {
            Step::CreatePv(pv) => proven.contains(&pv.name_any()),
            // One that comes too late would be left behind when everybody who wanted it is gone.
            Step::CreateClass(class) => {
                steps.iter().any(|other| is_proven_of(other, class, &proven))
            }
            Step::DeletePv { .. } | Step::ReleasePv { .. } | Step::CreateJob(_) => true,
        };
        if !stands {
            return Err(behind(world));
        }
        apply_one(context, world, step).await?;
        tracing::info!(node = world.name, step = step.name(), "applied");
        if let Step::DeletePv { name, .. } | Step::ReleasePv { name, .. } = step
            && context.caches.pvs.get(name).is_none()
        {
            // Known from an answer alone. If that was older than the cache, no event will tell that nothing was there.
            return Err(Failure::behind(format!(
                "claims of {}: PersistentVolume {name} is not known from a watch",
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
        Failure::api(format!("claims of {}: {}", world.name, step.name()), error)
    };
    match step {
        Step::CreateClass(class) => {
            let classes: Api<StorageClass> = Api::all(context.client.clone());
            match context.writer.create(&classes, class).await.map_err(failed)? {
                Written::Changed(_) => Ok(()),
                // One that exists by now is somebody's, and never changed. What it says (Retain, another provisioner) is not
                // in this plan: its volumes are made by the next one.
                Written::Unchanged => Err(Failure::behind(format!(
                    "StorageClass {} exists already",
                    class.name_any()
                ))),
            }
        }
        Step::CreatePv(pv) => {
            match context.writer.create(&pvs, pv).await.map_err(failed)? {
                Written::Changed(_) => Ok(()),
                // Ours from an earlier run, or somebody else's: the watch tells which.
                Written::Unchanged => Err(Failure::behind(format!(
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
            // The name is a hash of the spec: one of that name is the same job, made by an earlier run.
            context.writer.create(&jobs, job).await.map_err(failed).map(drop)
        }
    }
}

fn behind(world: &NodeWorld) -> Failure {
    Failure::behind(format!(
        "claims of {}: the inventory has changed since it was read",
        world.name
    ))
}

/// A PersistentVolume of this class that is made.
fn is_proven_of(step: &Step, class: &StorageClass, proven: &BTreeSet<String>) -> bool {
    match step {
        Step::CreatePv(pv) => {
            proven.contains(&pv.name_any())
                && pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref())
                    == class.metadata.name.as_ref()
        }
        Step::CreateClass(_)
        | Step::DeletePv { .. }
        | Step::ReleasePv { .. }
        | Step::CreateJob(_) => false,
    }
}

/// What may be published by what the inventory says now: the claim and its confirmation are those that the plan was made
/// from, and nothing else that has become known since speaks against it.
fn proven(world: &NodeWorld, live: NodeInventory, steps: &[Step]) -> BTreeSet<String> {
    if live.uid() != world.inventory.uid() {
        return BTreeSet::new();
    }
    let now = NodeWorld { inventory: live, ..world.clone() };
    let (before, after) = (Index::new(world), Index::new(&now));
    let stands = |name: &String, pv: &PersistentVolume| {
        let claims = before.claim_of_pv(name).zip(after.claim_of_pv(name));
        let same = claims.is_some_and(|(old, new)| {
            old == new && before.ctx(old).report == after.ctx(new).report
        });
        same && check_publication(&now, &after, pv).is_empty()
    };
    let published = steps.iter().filter_map(|step| match step {
        Step::CreatePv(pv) => Some((pv.name_any(), pv)),
        Step::CreateClass(_)
        | Step::DeletePv { .. }
        | Step::ReleasePv { .. }
        | Step::CreateJob(_) => None,
    });
    published.filter(|(name, pv)| stands(name, pv)).map(|(name, _)| name).collect()
}
