//! The devices of a cluster's nodes, as their agents published them.

use super::view::Shown;
use crate::{connect::Cluster, output, volume::optional};
use anyhow::anyhow;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt, api::ListParams};
use quarry_api::{NodeInventory, names};
use quarry_core::presence::{Presence, presence};
use std::collections::HashMap;

/// One node's inventory, and whether somebody keeps it true.
pub struct NodeView {
    pub inventory: NodeInventory,
    /// `None` when the leases could not be read.
    pub agent: Option<Presence>,
}

/// The inventories of the cluster, and which of the named nodes have none.
pub struct Views {
    pub found: Vec<NodeView>,
    pub missing: Vec<String>,
}

pub async fn read(cluster: &Cluster, nodes: &[String], namespace: &str) -> anyhow::Result<Views> {
    let api: Api<NodeInventory> = Api::all(cluster.client.clone());
    let mut missing = Vec::new();
    let mut inventories = Vec::new();
    if nodes.is_empty() {
        inventories = cluster
            .call("listing the inventories of the nodes", api.list(&ListParams::default()))
            .await?
            .items;
    }
    for node in nodes {
        match cluster
            .call(&format!("reading the inventory of node {node}"), optional(api.get(node)))
            .await?
        {
            Some(inventory) => inventories.push(inventory),
            None => missing.push(node.clone()),
        }
    }
    inventories.sort_by_key(ResourceExt::name_any);
    let leases = read_leases(cluster, namespace).await;
    let now = Timestamp::now();
    let found = inventories.into_iter().map(|inventory| {
        let agent = leases
            .as_ref()
            .map(|leases| presence(leases.get(&names::agent_lease(&inventory.name_any())), now));
        NodeView { inventory, agent }
    });
    Ok(Views { found: found.collect(), missing })
}

/// Whoever may read inventories and no leases still sees the devices.
pub async fn read_leases(cluster: &Cluster, namespace: &str) -> Option<HashMap<String, Lease>> {
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), namespace);
    match cluster
        .call(
            &format!("listing the leases of the agents in namespace {namespace}"),
            api.list(&ListParams::default()),
        )
        .await
    {
        Ok(list) => Some(list.items.into_iter().map(|lease| (lease.name_any(), lease)).collect()),
        Err(error) => {
            output::note(&format!(
                "whether the agents are there is not known: {}",
                output::error_text(&error)
            ));
            None
        }
    }
}

impl Views {
    pub fn devices(&self) -> Vec<Shown> {
        self.found.iter().flat_map(|view| devices(&view.inventory)).collect()
    }

    /// What to know about the list, for people.
    pub fn notes(&self) -> Vec<String> {
        self.found.iter().flat_map(NodeView::notes).collect()
    }

    /// The named nodes that have no inventory, as an error.
    pub fn complain(&self) -> anyhow::Result<()> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let what = if let [one] = self.missing.as_slice() {
            format!("node {one} has")
        } else {
            format!("nodes {} have", self.missing.join(", "))
        };
        Err(anyhow!(
            "{what} no inventory: check the name (`kubectl get nodes`; `quarry devices` lists all nodes that have one), and that the operator runs"
        ))
    }
}

pub fn devices(inventory: &NodeInventory) -> Vec<Shown> {
    let node = inventory.name_any();
    inventory
        .status
        .iter()
        .flat_map(|status| {
            status.devices.iter().map(|device| Shown::of_node(&node, device.clone()))
        })
        .collect()
}

impl NodeView {
    fn notes(&self) -> Vec<String> {
        let node = self.inventory.name_any();
        let problem = self.agent.as_ref().and_then(|agent| agent.problem(&node));
        let mut notes: Vec<String> = match (&self.inventory.status, problem) {
            (Some(_), None) => Vec::new(),
            (Some(_), Some(problem)) => {
                vec![format!("{problem}; what is shown of it is the last that it saw")]
            }
            (None, Some(problem)) => vec![format!("no devices of node {node}: {problem}")],
            (None, None) => {
                vec![format!("no devices of node {node} yet: its agent has not published them")]
            }
        };
        let problems = self.inventory.status.iter().flat_map(|status| &status.problems);
        notes.extend(problems.map(|problem| format!("node {node}: {problem}")));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn view(status: Value, agent: Option<Presence>) -> NodeView {
        let object = json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1"}, "spec": {}, "status": status});
        NodeView { inventory: serde_json::from_value(object).unwrap(), agent }
    }

    #[test]
    fn a_node_that_nobody_looks_after_is_told() {
        let present = Some(Presence::Present { until: Timestamp::MAX });
        assert!(view(json!({}), present).notes().is_empty());
        assert_eq!(
            view(Value::Null, present).notes(),
            ["no devices of node n1 yet: its agent has not published them"]
        );
        let never = view(Value::Null, Some(Presence::Never)).notes().concat();
        assert!(
            never.starts_with("no devices of node n1: no agent has been seen on node n1; "),
            "{never}"
        );
        let gone = view(
            json!({"problems": ["loop7 went away"]}),
            Some(Presence::Absent { since: Timestamp::UNIX_EPOCH }),
        )
        .notes();
        assert!(gone[0].ends_with("; what is shown of it is the last that it saw"), "{gone:?}");
        assert_eq!(gone[1], "node n1: loop7 went away");
    }

    #[test]
    fn a_missing_node_is_an_error_with_the_way_to_the_right_name() {
        let views = Views { found: Vec::new(), missing: vec!["n7".into(), "n8".into()] };
        let error = views.complain().unwrap_err().to_string();
        assert!(error.starts_with("nodes n7, n8 have no inventory: check the name"), "{error}");
    }
}
