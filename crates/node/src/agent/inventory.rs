//! Publishing what the node has: written only when it changed, never at rest.

use super::{Agent, AgentError, report::status_patch};
use crate::hands::Hands;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use quarry_api::{NodeInventory, NodeInventoryStatus};
use quarry_failpoint::failpoint;

const TRIES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    Changed,
    Unchanged,
    /// The operator has not made this node's NodeInventory yet.
    NoInventory,
}

impl<H: Hands> Agent<H> {
    pub async fn publish_inventory(&self) -> Result<Published, AgentError> {
        let name = self.options.node_name.as_str();
        let attempt = || format!("publishing the inventory of {name}");
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut tries = 0;
        loop {
            let Some(current) = inventories.get_opt(name).await.map_err(AgentError::api(attempt()))? else {
                return Ok(Published::NoInventory);
            };
            let node = nodes.get_opt(name).await.map_err(AgentError::api(attempt()))?;
            let (devices, machine_id) =
                self.with_hands("looking at the devices", |hands| Ok((hands.devices()?, hands.machine_id()?))).await.map_err(AgentError::hands(attempt()))?;
            let last_change = current.status.as_ref().and_then(|status| status.last_change.clone());
            let mut wanted = NodeInventoryStatus {
                node_uid: node.and_then(|node| node.metadata.uid),
                machine_id,
                agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                summary: Some(quarry_api::node_inventory::Summary { disks: i64::try_from(devices.len()).unwrap_or(i64::MAX), ..Default::default() }),
                devices,
                last_change,
                ..NodeInventoryStatus::default()
            };
            if current.status.as_ref() == Some(&wanted) {
                return Ok(Published::Unchanged);
            }
            wanted.last_change = Some(Time(self.options.clock.now()));
            let patch = status_patch(current.metadata.resource_version.as_deref(), current.status.as_ref(), &wanted);
            failpoint!("inventory.before");
            let written = inventories.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            failpoint!("inventory.after");
            tries += 1;
            match written {
                Ok(_) => return Ok(Published::Changed),
                Err(kube::Error::Api(refusal)) if refusal.code == 409 && tries < TRIES => {}
                Err(error) => return Err(AgentError::api(attempt())(error)),
            }
        }
    }
}
