//! PersistentVolumes on a node that Quarry did not create: the devices behind them are in use.
//!
//! Those of the Local Storage Operator, of the static provisioner, and those created by hand. A PersistentVolume without
//! node affinity counts on every node.

use crate::node_selector::{NAME_FIELD, selects};
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, PersistentVolume};
use quarry_api::{
    names,
    node_inventory::{DeviceClaim, UnmanagedPv},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The label by which local PersistentVolumes name their node.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Where a PersistentVolume is, as a key of an index. The node affinity itself decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The value of the hostname label.
    Host(String),
    NodeName(String),
    /// Its affinity uses other terms, or there is none.
    Anywhere,
}

/// Its entry in the NodeInventory; `None` if it is not on a device, or managed by Quarry.
pub fn unmanaged_pv(pv: &PersistentVolume) -> Option<UnmanagedPv> {
    let owners = pv.metadata.owner_references.iter().flatten();
    if owners.into_iter().any(|owner| {
        owner.kind == "Volume" && owner.api_version.starts_with("storage.metalk8s.scality.com/")
    }) {
        return None;
    }
    let spec = pv.spec.as_ref()?;
    let local = spec.local.as_ref().map(|local| &local.path);
    let host = spec.host_path.as_ref().map(|host| &host.path).filter(|path| {
        ["/dev/", "/mnt/local-storage/"].iter().any(|folder| path.starts_with(folder))
    });
    let device_id = pv
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::LSO_DEVICE_ID_ANNOTATION));
    Some(UnmanagedPv {
        name: pv.metadata.name.clone()?,
        path: local.or(host)?.clone(),
        device_id: device_id.filter(|id| !id.is_empty()).cloned(),
    })
}

/// Whether it is on this node, as the scheduler would decide it.
pub fn is_on(pv: &PersistentVolume, node: &Node) -> bool {
    let affinity = pv
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref());
    selects(affinity, node)
}

/// Where it may be.
pub fn places(pv: &PersistentVolume) -> BTreeSet<Place> {
    let affinity = pv
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref());
    let Some(affinity) = affinity else { return [Place::Anywhere].into() };
    affinity.node_selector_terms.iter().flat_map(places_of_term).collect()
}

fn places_of_term(term: &NodeSelectorTerm) -> Vec<Place> {
    let hosts = term
        .match_expressions
        .iter()
        .flatten()
        .find(|requirement| requirement.key == HOSTNAME_LABEL && requirement.operator == "In");
    if let Some(hosts) = hosts {
        return hosts.values.iter().flatten().cloned().map(Place::Host).collect();
    }
    let named = term
        .match_fields
        .iter()
        .flatten()
        .find(|requirement| requirement.key == NAME_FIELD && requirement.operator == "In");
    match named {
        Some(named) => named.values.iter().flatten().cloned().map(Place::NodeName).collect(),
        None => vec![Place::Anywhere],
    }
}

/// The unmanaged PersistentVolumes by place, updated incrementally.
#[derive(Debug, Default)]
pub struct UnmanagedPvs {
    at: HashMap<Place, BTreeSet<String>>,
    known: HashMap<String, (UnmanagedPv, Box<[Place]>)>,
}

impl UnmanagedPvs {
    /// Records the PersistentVolume of that name, or its removal. Returns the places where that makes a difference.
    pub fn follow(&mut self, name: &str, pv: Option<&PersistentVolume>) -> BTreeSet<Place> {
        let after = pv.and_then(|pv| Some((unmanaged_pv(pv)?, places(pv).into_iter().collect())));
        if self.known.get(name) == after.as_ref() {
            return BTreeSet::new();
        }
        let mut concerned = BTreeSet::new();
        if let Some((_, places)) = self.known.remove(name) {
            for place in &places {
                if let Some(names) = self.at.get_mut(place) {
                    names.remove(name);
                    if names.is_empty() {
                        self.at.remove(place);
                    }
                }
            }
            concerned.extend(places);
        }
        if let Some((value, places)) = after {
            for place in &places {
                self.at.entry(place.clone()).or_default().insert(name.to_owned());
            }
            concerned.extend(places.iter().cloned());
            self.known.insert(name.to_owned(), (value, places));
        }
        concerned
    }

    /// The names of those that may be on this node.
    pub fn candidates(&self, node: &Node) -> BTreeSet<&str> {
        let host = node
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(HOSTNAME_LABEL))
            .cloned()
            .map(Place::Host);
        let name = node.metadata.name.clone().map(Place::NodeName);
        let places = host.into_iter().chain(name).chain([Place::Anywhere]);
        places.filter_map(|place| self.at.get(&place)).flatten().map(String::as_str).collect()
    }
}

/// Those of the node, as entries of its inventory. One that was created from a device claim of the node is omitted.
pub fn of_node<'a>(
    node: &Node,
    claims: &[DeviceClaim],
    candidates: impl Iterator<Item = &'a PersistentVolume>,
) -> Vec<UnmanagedPv> {
    let foreign = candidates.filter(|pv| {
        is_on(pv, node) && !claims.iter().any(|claim| crate::device_claim::pv::is_of(pv, claim))
    });
    let found: BTreeMap<String, UnmanagedPv> =
        foreign.filter_map(unmanaged_pv).map(|pv| (pv.name.clone(), pv)).collect();
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pv(name: &str, spec: Value) -> PersistentVolume {
        let mut object = json!({"metadata": {"name": name}, "spec": spec});
        if object["spec"]["owned"] == true {
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "name": name, "uid": "u", "controller": true}]);
        }
        if let Some(id) = object["spec"]["id"].as_str().map(str::to_owned) {
            object["metadata"]["annotations"] = json!({names::LSO_DEVICE_ID_ANNOTATION: id});
        }
        serde_json::from_value(object).unwrap()
    }

    fn on_host(host: &str) -> Value {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [host]}]}]}})
    }

    fn node(name: &str, host: &str) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {HOSTNAME_LABEL: host, "zone": "a"}}}),
        )
        .unwrap()
    }

    // invariant: 3
    #[test]
    fn unmanaged_pvs_are_listed_with_their_device() {
        let by_name = json!({"required": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}});
        let by_zone = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}});
        let pvs = [
            pv(
                "lso",
                json!({"local": {"path": "/mnt/local-storage/fast/wwn-1"}, "nodeAffinity": on_host("h1"), "id": "wwn-1"}),
            ),
            pv(
                "ours",
                json!({"local": {"path": "/dev/disk/by-uuid/u"}, "nodeAffinity": on_host("h1"), "owned": true}),
            ),
            pv("other-node", json!({"local": {"path": "/dev/sdb"}, "nodeAffinity": on_host("h2")})),
            // The name of the node is not its hostname label.
            pv("by-node-name", json!({"local": {"path": "/dev/sdc"}, "nodeAffinity": by_name})),
            pv("by-zone", json!({"local": {"path": "/dev/sdd"}, "nodeAffinity": by_zone})),
            pv("host-path", json!({"hostPath": {"path": "/dev/sde"}})),
            pv("folder", json!({"hostPath": {"path": "/srv/data"}})),
            pv("named-like-dev", json!({"hostPath": {"path": "/develop"}})),
            pv(
                "network",
                json!({"nfs": {"server": "s", "path": "/dev/x"}, "nodeAffinity": on_host("h1")}),
            ),
        ];
        let mut index = UnmanagedPvs::default();
        for pv in &pvs {
            index.follow(pv.metadata.name.as_deref().unwrap(), Some(pv));
        }
        let node = node("n1", "h1");
        let candidates: Vec<&PersistentVolume> = index
            .candidates(&node)
            .into_iter()
            .map(|name| pvs.iter().find(|pv| pv.metadata.name.as_deref() == Some(name)).unwrap())
            .collect();
        let listed = of_node(&node, &[], candidates.into_iter());
        assert_eq!(
            listed.iter().map(|pv| pv.name.as_str()).collect::<Vec<_>>(),
            ["by-node-name", "by-zone", "host-path", "lso"]
        );
        assert_eq!(
            listed[3],
            UnmanagedPv {
                name: "lso".into(),
                path: "/mnt/local-storage/fast/wwn-1".into(),
                device_id: Some("wwn-1".into())
            }
        );
    }

    #[test]
    fn only_a_change_that_matters_concerns_a_node() {
        let mut index = UnmanagedPvs::default();
        let mut one =
            pv("a", json!({"local": {"path": "/dev/sdb"}, "nodeAffinity": on_host("h1")}));
        let (h1, h2) = (Place::Host("h1".into()), Place::Host("h2".into()));
        assert_eq!(index.follow("a", Some(&one)), [h1.clone()].into());
        one.metadata.resource_version = Some("2".into());
        one.status = serde_json::from_value(json!({"phase": "Bound"})).unwrap();
        assert_eq!(index.follow("a", Some(&one)), [].into());
        let moved = pv("a", json!({"local": {"path": "/dev/sdb"}, "nodeAffinity": on_host("h2")}));
        assert_eq!(index.follow("a", Some(&moved)), [h1, h2.clone()].into());
        assert_eq!(index.follow("a", None), [h2].into());
        assert!(index.at.is_empty() && index.known.is_empty(), "removed entries take no memory");
    }
}
