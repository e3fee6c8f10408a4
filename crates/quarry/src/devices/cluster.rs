//! The devices of a cluster's nodes, as their agents published them: reading them, and which nodes have none.

use crate::{connect::Cluster, snapshot};
use anyhow::anyhow;
use quarry_view::Snapshot;

/// The inventories of a cluster.
pub struct NodeDevices {
    pub snapshot: Snapshot,
    /// Named nodes without an inventory.
    pub missing: Vec<String>,
}

/// Of these nodes, or of all when none is named.
pub async fn read(
    cluster: &Cluster,
    nodes: &[String],
    namespace: &str,
) -> anyhow::Result<NodeDevices> {
    let (mut snapshot, missing) = Snapshot::of_inventories(cluster, nodes, namespace).await?;
    snapshot::read_leases(cluster, &mut snapshot).await;
    Ok(NodeDevices { snapshot, missing })
}

impl NodeDevices {
    /// An error that names the nodes without an inventory, if there are any.
    pub fn check_missing(&self) -> anyhow::Result<()> {
        let what = match self.missing.as_slice() {
            [] => return Ok(()),
            [one] => format!("node {one} has"),
            several => format!("nodes {} have", several.join(", ")),
        };
        Err(anyhow!(
            "{what} no NodeInventory; check the name (`quarry devices` lists all nodes that have one), and that the operator runs"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_an_inventory_is_an_error() {
        let missing = vec!["n7".into(), "n8".into()];
        let devices = NodeDevices { snapshot: Snapshot::new("quarry-system"), missing };
        let error = devices.check_missing().unwrap_err().to_string();
        assert!(error.starts_with("nodes n7, n8 have no NodeInventory; check the name"), "{error}");
    }
}
