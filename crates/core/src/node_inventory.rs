//! Which nodes have an inventory: every Node, as long as it exists.

use quarry_api::{NodeInventory, NodeInventorySpec, names};

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(Box<NodeInventory>),
    /// By UID and version: a node that came back in between keeps its inventory.
    Delete {
        uid: String,
        resource_version: String,
    },
}

/// The inventory follows its Node. Nothing is lost with it: the agent fills in a new one at once.
pub fn plan(name: &str, node_exists: bool, inventory: Option<&NodeInventory>) -> Option<Step> {
    match (node_exists, inventory) {
        (true, None) => {
            let mut made = NodeInventory::new(name, NodeInventorySpec::default());
            made.metadata.labels = Some([(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned())].into());
            Some(Step::Create(Box::new(made)))
        }
        (false, Some(found)) if found.metadata.deletion_timestamp.is_none() => {
            Some(Step::Delete { uid: found.metadata.uid.clone()?, resource_version: found.metadata.resource_version.clone()? })
        }
        (true, Some(_)) | (false, Some(_) | None) => None,
    }
}
