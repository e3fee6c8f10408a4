//! The NodeInventory controller: every Node has one, made here, with what the cluster knows about its devices; the
//! node's agent fills in the rest.

use crate::{
    Context,
    context::{Failure, Next},
    writer::merge_difference,
};
use kube::Api;
use quarry_api::NodeInventory;
use quarry_core::{
    foreign_pv,
    node_inventory::{Observed, Step, plan},
};
use serde_json::json;

/// Everything from the caches: the indexes hold what concerns this node.
fn observe(context: &Context, name: &str) -> Observed {
    let caches = &context.caches;
    let node = caches.nodes.get(name);
    let foreign_pvs = node.as_deref().map(|node| {
        let candidates: Vec<_> = caches.foreign_pvs().candidates(node).into_iter().filter_map(|pv| caches.pvs.get(pv)).collect();
        foreign_pv::of_node(node, candidates.iter().map(AsRef::as_ref))
    });
    Observed {
        name: name.to_owned(),
        node_exists: node.is_some(),
        inventory: caches.inventories.get(name).map(|inventory| (*inventory).clone()),
        foreign_pvs: foreign_pvs.unwrap_or_default(),
        elsewhere: caches.identities().elsewhere(name),
    }
}

pub async fn reconcile_once(context: &Context, name: &str) -> Result<Next, Failure> {
    let seen = observe(context, name);
    let api: Api<NodeInventory> = Api::all(context.client.clone());
    let failed = |error| Failure::api(format!("node inventory {name}"), error);
    match plan(&seen) {
        None => {}
        Some(Step::Create(inventory)) => {
            context.writer.create(&api, &inventory).await.map_err(failed)?;
            tracing::info!(node = name, "inventory made");
        }
        Some(Step::Update(update)) => {
            let old = seen.inventory.as_ref().map(|inventory| json!(inventory.spec)).unwrap_or_default();
            let mut changes = json!({});
            if let Some(difference) = merge_difference(&old, &json!(update.spec)) {
                changes["spec"] = difference;
            }
            if let Some(finalizers) = &update.finalizers {
                changes["metadata"] = json!({"finalizers": finalizers});
            }
            context.writer.patch(&api, name, &update.resource_version, changes).await.map_err(failed)?;
            if let Some(left_out) = update.spec.foreign_pvs_left_out {
                tracing::warn!(
                    node = name,
                    left_out,
                    "more PersistentVolumes of others than an inventory holds: none of the node's devices is available until some are deleted"
                );
            }
            tracing::info!(node = name, quarantine = update.spec.quarantine.len(), foreign_pvs = update.spec.foreign_pvs.len(), "inventory's spec");
        }
        Some(Step::Delete { uid, resource_version }) => {
            context.writer.delete(&api, name, &uid, Some(&resource_version)).await.map_err(failed)?;
            tracing::info!(node = name, "inventory removed with its node");
        }
    }
    Ok(Next::Rest)
}
