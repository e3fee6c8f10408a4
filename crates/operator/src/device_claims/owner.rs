//! The LocalVolumeSet and LocalVolume controllers: they say how their claims stand, and let their object go when
//! nothing of it is left. The claims themselves are planned node by node.

use super::observe::{cached_world, demands, with_classes};
use crate::{
    Context,
    context::{Failure, Next},
    events,
    writer::Written,
};
use jiff::SignedDuration;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use quarry_api::{LocalVolumeSetStatus, LocalVolumeStatus, names, node_job::OwnerKind};
use quarry_core::{
    device_claim::{
        ClaimContext, Demand, account, claim_contexts, decide,
        demand::{NodeMatch, of_local_volume, of_set},
        pv,
        status::{self, NodePart, Observed, StatusUpdate},
    },
    presence::{Presence, presence},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Debug};

pub async fn reconcile_set(context: &Context, key: &str) -> Result<Next, Failure> {
    let Some(set) = context.caches.sets.get(key) else {
        context.metrics.set_stages(
            &format!("{}/{key}", OwnerKind::LocalVolumeSet.as_str()),
            std::iter::empty(),
        );
        return Ok(Next::AwaitChange);
    };
    let conditions =
        set.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let (seen, next) = observe(context, with_classes(context, of_set(&set)), conditions);
    let said = status::decide(&seen, context.now());
    let status = LocalVolumeSetStatus {
        conditions: said.conditions.clone(),
        total_provisioned_device_count: Some(said.provisioned),
        observed_generation: set.metadata.generation,
    };
    let old = set.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
    conclude(context, set.as_ref(), &seen, &said, old, json!(status)).await?;
    Ok(next)
}

pub async fn reconcile_local_volume(context: &Context, key: &str) -> Result<Next, Failure> {
    let Some(volume) = context.caches.local_volumes.get(key) else {
        context
            .metrics
            .set_stages(&format!("{}/{key}", OwnerKind::LocalVolume.as_str()), std::iter::empty());
        return Ok(Next::AwaitChange);
    };
    let conditions =
        volume.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let (seen, next) =
        observe(context, with_classes(context, of_local_volume(&volume)), conditions);
    let said = status::decide(&seen, context.now());
    let status = LocalVolumeStatus {
        observed_generation: volume.metadata.generation,
        management_state: volume
            .spec
            .management_state
            .clone()
            .filter(|state| !state.is_empty())
            .or_else(|| Some("Managed".to_owned())),
        conditions: said.conditions.clone(),
        ready_replicas: said.provisioned,
        generations: volume
            .status
            .as_ref()
            .map(|status| status.generations.clone())
            .unwrap_or_default(),
    };
    let old = volume.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
    conclude(context, volume.as_ref(), &seen, &said, old, json!(status)).await?;
    Ok(next)
}

/// Every node that has to do with it: selected, or still with a claim of it.
fn observe(
    context: &Context,
    demand: Demand,
    conditions: Vec<quarry_api::local_volume_discovery::OperatorCondition>,
) -> (Observed, Next) {
    let (caches, now) = (&context.caches, context.now());
    let in_namespace = demand.owner.namespace.as_deref() == Some(context.namespace.as_str());
    let everybody = if in_namespace { demands(context) } else { Vec::new() };
    let mut parts = Vec::new();
    let mut lapse = None;
    for inventory in caches.inventories.all() {
        let name = inventory.name_any();
        let node = caches.nodes.get(&name);
        let has =
            inventory.spec.device_claims.iter().any(|claim| claim.owner.uid == demand.owner.uid);
        let covers = node.as_deref().map_or(NodeMatch::NotSelected, |node| demand.match_node(node));
        if !in_namespace || (covers == NodeMatch::NotSelected && !has) {
            continue;
        }
        let agent = presence(caches.leases.get(&names::agent_lease(&name)).as_deref(), now);
        if let Presence::Present { until } = agent {
            lapse = [lapse, Some(until)].into_iter().flatten().min();
        }
        let world = cached_world(context, &name, &inventory, everybody.clone());
        let own: Vec<ClaimContext<'_>> = claim_contexts(&world)
            .into_iter()
            .filter(|ctx| ctx.claim.owner.uid == demand.owner.uid)
            .collect();
        let device = |ctx: &ClaimContext<'_>| {
            ctx.device.map_or_else(|| ctx.claim.identity.clone(), |device| device.name.clone())
        };
        let claims = own.iter().map(|ctx| (device(ctx), decide(&world, ctx, now).stage)).collect();
        let outdated = own
            .iter()
            .filter(|ctx| ctx.pv.is_some() && !demand.terminating && !demand.makes(ctx.claim))
            .map(device)
            .collect();
        parts.push(NodePart {
            problem: agent.problem(&name),
            claims,
            outdated,
            rows: account(&world, &demand.owner.uid),
            covers,
            node: name,
        });
    }
    let owner = format!(
        "{}/{}/{}",
        demand.owner.kind,
        demand.owner.namespace.as_deref().unwrap_or_default(),
        demand.owner.name
    );
    context.metrics.set_stages(
        &owner,
        parts
            .iter()
            .flat_map(|part: &NodePart| part.claims.iter().map(|(_, stage)| stage.as_str())),
    );
    // An agent that stops renewing its lease makes no event: look when the first lease runs out.
    let next = lapse.map_or(Next::AwaitChange, |until| {
        Next::Requeue(until.duration_since(now).max(SignedDuration::from_secs(1)))
    });
    (
        Observed { demand, in_namespace, namespace: context.namespace.clone(), parts, conditions },
        next,
    )
}

/// Finalizer, status, Events; in the end the class and the finalizer again.
async fn conclude<K>(
    context: &Context,
    found: &K,
    seen: &Observed,
    said: &StatusUpdate,
    old: Value,
    new: Value,
) -> Result<(), Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let (name, namespace) = (found.name_any(), found.namespace().unwrap_or_default());
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    let failed = |error| Failure::api(format!("{} {namespace}/{name}", K::kind(&())), error);
    let held = found.finalizers().iter().any(|finalizer| finalizer == names::OWNER_FINALIZER);
    let version = found.resource_version().unwrap_or_default();
    if seen.in_namespace && !seen.demand.terminating && !held {
        let finalizers: Vec<&str> =
            found.finalizers().iter().map(String::as_str).chain([names::OWNER_FINALIZER]).collect();
        // The watch delivers it back, and then its status is said.
        context
            .writer
            .patch(&api, &name, &version, json!({"metadata": {"finalizers": finalizers}}))
            .await
            .map_err(failed)?;
        return Ok(());
    }
    if seen.demand.terminating && held && seen.parts.iter().all(|part| part.claims.is_empty()) {
        remove_classes(context, seen).await?;
        let kept: Vec<&String> = found
            .finalizers()
            .iter()
            .filter(|finalizer| *finalizer != names::OWNER_FINALIZER)
            .collect();
        context
            .writer
            .patch(&api, &name, &version, json!({"metadata": {"finalizers": kept}}))
            .await
            .map_err(failed)?;
        context.forget_accounts(&seen.demand.owner.uid);
        tracing::info!(owner = %quarry_core::device_claim::owner_text(&seen.demand.owner), "gone, nothing is left of it");
        return Ok(());
    }
    match context.writer.patch_status(&api, &name, &version, &old, &new).await.map_err(failed)? {
        Written::Changed(_) => {
            tracing::info!(owner = %quarry_core::device_claim::owner_text(&seen.demand.owner), provisioned = said.provisioned, "status")
        }
        Written::Unchanged => {}
    }
    events::tell(context, found, &said.notes).await;
    for (node, note) in status::accounts(seen) {
        if context.is_news(&seen.demand.owner.uid, &node, &note.message) {
            events::tell(context, found, &[note]).await;
        }
    }
    Ok(())
}

/// A PersistentVolume of this class exists. The cache may show one that is gone by now.
async fn is_published(context: &Context, class: &str) -> kube::Result<bool> {
    let api: Api<PersistentVolume> = Api::all(context.client.clone());
    let of_class = |pv: &PersistentVolume| {
        pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some(class)
    };
    for pv in context.caches.pvs.each().filter(|pv| of_class(pv)) {
        if api.get_metadata_opt(&pv.name_any()).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Those that we made for it, when nobody else uses them.
async fn remove_classes(context: &Context, seen: &Observed) -> Result<(), Failure> {
    let caches = &context.caches;
    let api: Api<StorageClass> = Api::all(context.client.clone());
    // Asked for as well: a class that the cache has not seen yet would stay for ever.
    let made = ListParams::default().labels(&format!(
        "{}={}",
        quarry_api::crds::MANAGED_BY_LABEL,
        names::MANAGED_BY
    ));
    let made = api.list(&made).await.map_err(|error| {
        Failure::api("listing the StorageClasses that were made here".to_owned(), error)
    })?;
    let known = caches.classes.all().into_iter().map(|class| (*class).clone());
    let found: BTreeMap<String, StorageClass> =
        known.chain(made.items).map(|class| (class.name_any(), class)).collect();
    for (name, class) in found.into_iter().filter(|(_, class)| pv::is_class_of(class, &seen.demand))
    {
        let failed = |error| Failure::api(format!("StorageClass {name}"), error);
        let claimed = caches.inventories.all().iter().any(|inventory| {
            inventory.spec.device_claims.iter().any(|claim| claim.storage_class_name == name)
        });
        let asked = demands(context).iter().any(|demand| {
            demand.owner.uid != seen.demand.owner.uid && demand.classes().any(|class| class == name)
        });
        if claimed || asked || is_published(context, &name).await.map_err(failed)? {
            continue;
        }
        let claims: Api<PersistentVolumeClaim> = Api::all(context.client.clone());
        let waiting = claims.list(&ListParams::default()).await.map_err(failed)?;
        if waiting.items.iter().any(|claim| {
            claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()) == Some(&name)
        }) {
            tracing::info!(
                class = name,
                "the StorageClass stays: a PersistentVolumeClaim names it"
            );
            continue;
        }
        context
            .writer
            .delete(
                &api,
                &name,
                &class.uid().unwrap_or_default(),
                class.resource_version().as_deref(),
            )
            .await
            .map_err(failed)?;
    }
    Ok(())
}
