//! The NodeInventory controller: every Node has one, made here, filled in by the node's agent.

use crate::{
    Context,
    context::{Failure, Next},
};
use kube::Api;
use quarry_api::NodeInventory;
use quarry_core::node_inventory::{Step, plan};

pub async fn reconcile_once(context: &Context, name: &str) -> Result<Next, Failure> {
    let node = context.caches.nodes.get(name);
    let inventory = context.caches.inventories.get(name);
    let api: Api<NodeInventory> = Api::all(context.client.clone());
    let failed = |error| Failure::api(format!("node inventory {name}"), error);
    match plan(name, node.is_some(), inventory.as_deref()) {
        None => {}
        Some(Step::Create(inventory)) => {
            context.writer.create(&api, &inventory).await.map_err(failed)?;
            tracing::info!(node = name, "inventory made");
        }
        Some(Step::Delete { uid, resource_version }) => {
            context.writer.delete(&api, name, &uid, Some(&resource_version)).await.map_err(failed)?;
            tracing::info!(node = name, "inventory removed with its node");
        }
    }
    Ok(Next::Rest)
}
