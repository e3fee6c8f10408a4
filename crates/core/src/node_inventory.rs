//! The operator's half of a NodeInventory: which nodes have one, and what the cluster knows about their devices.
//!
//! It follows its Node, except while it has claims: those say whose data is on a machine that may come back, so the
//! inventory stays, held by a finalizer, until the last claim is gone. Next to read: `quarantine.rs`, `foreign_pv.rs`.

use crate::quarantine::{self, Elsewhere};
use quarry_api::{NodeInventory, NodeInventorySpec, names, node_inventory::ForeignPv};

#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub name: String,
    pub node_exists: bool,
    pub inventory: Option<NodeInventory>,
    /// PersistentVolumes of others on this node.
    pub foreign_pvs: Vec<ForeignPv>,
    /// Devices of other nodes with an identity of this node's.
    pub elsewhere: Vec<Elsewhere>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(Box<NodeInventory>),
    /// At the version that was read.
    Update(Box<Update>),
    /// By UID and version: a node that came back in between keeps its inventory.
    Delete {
        uid: String,
        resource_version: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub resource_version: String,
    pub spec: NodeInventorySpec,
    /// All of them; `None` when they are right.
    pub finalizers: Option<Vec<String>>,
}

pub fn plan(seen: &Observed) -> Option<Step> {
    let Some(found) = &seen.inventory else { return seen.node_exists.then(|| create(seen)) };
    let going = found.metadata.deletion_timestamp.is_some();
    if !seen.node_exists && found.spec.claims.is_empty() && !going {
        return Some(Step::Delete { uid: found.metadata.uid.clone()?, resource_version: found.metadata.resource_version.clone()? });
    }
    let spec = NodeInventorySpec {
        claims: found.spec.claims.clone(),
        quarantine: quarantine::plan(found, &seen.elsewhere),
        // Without the Node nobody knows which PersistentVolumes were meant: what was known stays.
        foreign_pvs: if seen.node_exists { seen.foreign_pvs.clone() } else { found.spec.foreign_pvs.clone() },
    };
    let finalizers = finalizers(found);
    if spec == found.spec && finalizers.is_none() {
        return None;
    }
    Some(Step::Update(Box::new(Update { resource_version: found.metadata.resource_version.clone()?, spec, finalizers })))
}

fn create(seen: &Observed) -> Step {
    let mut made = NodeInventory::new(&seen.name, NodeInventorySpec { foreign_pvs: seen.foreign_pvs.clone(), ..NodeInventorySpec::default() });
    made.metadata.labels = Some([(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned())].into());
    Step::Create(Box::new(made))
}

/// The finalizer is there exactly while claims are. An object that is going takes no new one: the API refuses it.
fn finalizers(found: &NodeInventory) -> Option<Vec<String>> {
    let present = found.metadata.finalizers.clone().unwrap_or_default();
    let held = present.iter().any(|finalizer| finalizer == names::CLAIMS_FINALIZER);
    match (held, found.spec.claims.is_empty()) {
        (true, true) => Some(present.into_iter().filter(|finalizer| finalizer != names::CLAIMS_FINALIZER).collect()),
        (false, false) if found.metadata.deletion_timestamp.is_none() => Some(present.into_iter().chain([names::CLAIMS_FINALIZER.to_owned()]).collect()),
        (true | false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(node_exists: bool, extra: Value) -> Observed {
        let mut object =
            json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}, "spec": {}});
        for (key, value) in extra.as_object().unwrap() {
            let (part, field) = key.split_once('.').unwrap();
            object[part][field] = value.clone();
        }
        Observed { name: "n1".into(), node_exists, inventory: Some(serde_json::from_value(object).unwrap()), ..Observed::default() }
    }

    fn claims() -> Value {
        json!([{"identity": "wwn:1", "owner": {"kind": "LocalVolumeSet", "namespace": "s", "name": "fast", "uid": "x"}}])
    }

    fn foreign() -> Vec<ForeignPv> {
        vec![ForeignPv { name: "lso".into(), path: "/mnt/local-storage/fast/x".into(), device_id: None }]
    }

    fn update(step: Option<Step>) -> Update {
        match step {
            Some(Step::Update(update)) => *update,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_inventory_follows_its_node() {
        let nothing = Observed { name: "n1".into(), foreign_pvs: foreign(), ..Observed::default() };
        assert_eq!(plan(&nothing), None);
        let Some(Step::Create(made)) = plan(&Observed { node_exists: true, ..nothing }) else { panic!() };
        assert_eq!(made.spec.foreign_pvs, foreign());
        assert_eq!(plan(&seen(true, json!({}))), None);
        assert_eq!(plan(&seen(false, json!({}))), Some(Step::Delete { uid: "u".into(), resource_version: "7".into() }));
        assert_eq!(plan(&seen(false, json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}))), None);
    }

    #[test]
    fn an_inventory_with_claims_outlives_its_node() {
        let held = update(plan(&seen(true, json!({"spec.claims": claims()}))));
        assert_eq!(held.finalizers, Some(vec![names::CLAIMS_FINALIZER.to_owned()]));
        let finalizers = json!(["other/one", names::CLAIMS_FINALIZER]);
        assert_eq!(plan(&seen(true, json!({"spec.claims": claims(), "metadata.finalizers": finalizers}))), None);
        assert_eq!(plan(&seen(false, json!({"spec.claims": claims(), "metadata.finalizers": finalizers}))), None, "not deleted with its node");
        let known = json!([{"name": "lso", "path": "/dev/x"}]);
        let gone = seen(false, json!({"spec.claims": claims(), "metadata.finalizers": finalizers, "spec.foreignPVs": known}));
        assert_eq!(plan(&gone), None, "what was known about its volumes stays");
        let released = update(plan(&seen(true, json!({"metadata.finalizers": finalizers}))));
        assert_eq!(released.finalizers, Some(vec!["other/one".to_owned()]));
        // Deleted by hand: held while there are claims, let go with the last one, never given a new finalizer.
        let going = json!({"spec.claims": claims(), "metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(plan(&seen(true, going)), None);
        let free = json!({"metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(update(plan(&seen(false, free))).finalizers, Some(vec!["other/one".to_owned()]));
        assert_eq!(
            plan(&seen(true, json!({"spec.claims": claims(), "metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "metadata.finalizers": ["x/y"]}))),
            None
        );
    }

    #[test]
    fn what_the_cluster_knows_is_written_once() {
        let mut seen = seen(true, json!({"spec.claims": claims(), "metadata.finalizers": [names::CLAIMS_FINALIZER]}));
        seen.foreign_pvs = foreign();
        seen.elsewhere = vec![Elsewhere { identity: "wwn:1".into(), node: "n2".into(), device: "sdb".into() }];
        let update = update(plan(&seen));
        insta::assert_yaml_snapshot!(update.spec);
        assert_eq!((update.resource_version.as_str(), update.finalizers), ("7", None));
        seen.inventory.as_mut().unwrap().spec = update.spec;
        assert_eq!(plan(&seen), None, "a plan on its own result is empty");
        seen.elsewhere.clear();
        seen.foreign_pvs.clear();
        let cleared = super::tests::update(plan(&seen)).spec;
        assert!(cleared.quarantine.is_empty() && cleared.foreign_pvs.is_empty() && cleared.claims.len() == 1);
    }
}
