//! PersistentVolumes on a node that Quarry did not create: the devices behind them are in use.
//!
//! Those of the Local Storage Operator, of the static provisioner, of MetalK8s' own operator, and those created by hand.
//! Ours is what a device claim or the node records, whatever labels and owner references say: others have Volumes, too. A
//! PersistentVolume without node affinity counts on every node.

use crate::{
    device_claim,
    node_selector::{NAME_FIELD, selects},
    storage::sparse::link_path,
    volume,
};
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, PersistentVolume};
use quarry_api::{
    NodeInventory, NodeJob, names,
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

/// Its entry in the NodeInventory, unless Quarry manages it (`Records`); `None` if it is not on a device.
pub fn unmanaged_pv(pv: &PersistentVolume) -> Option<UnmanagedPv> {
    let spec = pv.spec.as_ref()?;
    let local = spec.local.as_ref().map(|local| &local.path);
    let host = spec.host_path.as_ref().map(|host| &host.path).filter(|path| {
        ["/dev/", "/mnt/local-storage/"].iter().any(|directory| path.starts_with(directory))
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

/// The PersistentVolumes on devices by place, updated incrementally.
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

/// What Quarry has recorded about a node: which PersistentVolumes on it are its own.
#[derive(Clone, Debug, Default)]
pub struct Records<'a> {
    pub claims: &'a [DeviceClaim],
    /// The UIDs of Volumes that the node reports as prepared: its ledger knows them.
    pub volumes: BTreeSet<&'a str>,
}

impl<'a> Records<'a> {
    /// `None`: the node has no inventory yet, so nothing is recorded.
    pub fn of(inventory: Option<&'a NodeInventory>) -> Self {
        let status = inventory.and_then(|inventory| inventory.status.as_ref());
        let devices = status.map(|status| status.devices.as_slice()).unwrap_or_default();
        Records {
            claims: inventory
                .map(|inventory| inventory.spec.device_claims.as_slice())
                .unwrap_or_default(),
            volumes: devices.iter().filter_map(|device| device.volume_uid.as_deref()).collect(),
        }
    }

    /// Adds the Volumes that these NodeJobs have prepared on the node: their devices are reported a moment later.
    pub fn with_jobs(mut self, node: &str, jobs: impl Iterator<Item = &'a NodeJob>) -> Self {
        let here = jobs.filter(|job| job.spec.node_name == node);
        self.volumes.extend(here.filter_map(volume::jobs::prepared_volume));
        self
    }

    /// Whether Quarry created it from a device claim, or for a Volume that it prepared.
    pub fn is_managed(&self, pv: &PersistentVolume) -> bool {
        self.claims.iter().any(|claim| device_claim::pv::is_of(pv, claim))
            || volume_link(pv).is_some_and(|uid| self.volumes.contains(uid))
    }
}

/// The UID of the Volume that owns it, if its path is the link of that Volume.
pub fn volume_link(pv: &PersistentVolume) -> Option<&str> {
    let path = &pv.spec.as_ref()?.local.as_ref()?.path;
    let uid = path.rsplit('/').next()?;
    let is_link = [false, true].iter().any(|block| link_path(uid, *block) == *path);
    (is_link && volume::pv::is_owned_by(pv, uid)).then_some(uid)
}

/// Those of the node that Quarry's records do not account for, as entries of its inventory.
pub fn of_node<'a>(
    node: &Node,
    records: &Records<'_>,
    candidates: impl Iterator<Item = &'a PersistentVolume>,
) -> Vec<UnmanagedPv> {
    let unmanaged = candidates.filter(|pv| is_on(pv, node) && !records.is_managed(pv));
    let found: BTreeMap<String, UnmanagedPv> =
        unmanaged.filter_map(unmanaged_pv).map(|pv| (pv.name.clone(), pv)).collect();
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
            pv("directory", json!({"hostPath": {"path": "/srv/data"}})),
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
        let records = Records { volumes: ["u"].into(), ..Records::default() };
        let listed = of_node(&node, &records, candidates.into_iter());
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

    /// MetalK8s' own operator publishes Volumes, too.
    // invariant: 3
    #[test]
    fn a_pv_of_a_volume_is_ours_only_if_it_was_prepared_here() {
        let volume_pv = |path: &str| {
            pv("v", json!({"local": {"path": path}, "nodeAffinity": on_host("h1"), "owned": true}))
        };
        let node = node("n1", "h1");
        let listed = |pv: &PersistentVolume, records: &Records<'_>| {
            of_node(&node, records, [pv].into_iter()).len()
        };
        let inventory = |volume: &str| -> NodeInventory {
            serde_json::from_value(json!({"metadata": {"name": "n1"}, "spec": {}, "status": {"devices": [
                {"name": "loop3", "type": "loop", "size": 1, "state": "NotAvailable", "volumeUID": volume},
            ]}}))
            .unwrap()
        };
        let job = |node: &str, phase: &str| -> NodeJob {
            serde_json::from_value(json!({"metadata": {"name": "j"}, "spec": {
                "action": "Prepare", "nodeName": node, "owner": {"kind": "Volume", "name": "v", "uid": "u"},
                "device": {"sparseFile": {"volumeUID": "u"}}, "precondition": {"nodeUID": "x", "specHash": "h"},
                "parameters": {"size": 1 << 30, "partition": {}}, "attempt": 1,
            }, "status": {"phase": phase}}))
            .unwrap()
        };
        for path in ["/dev/disk/by-uuid/u", "/dev/disk/by-partlabel/u"] {
            let found = volume_pv(path);
            assert_eq!(listed(&found, &Records::default()), 1, "{path}: nothing is recorded");
            let other = inventory("other");
            assert_eq!(listed(&found, &Records::of(Some(&other))), 1, "{path}: another Volume");
            let own = inventory("u");
            assert_eq!(listed(&found, &Records::of(Some(&own))), 0, "{path}");
            for (node, phase, unmanaged) in
                [("n1", "Succeeded", 0), ("n1", "Failed", 1), ("n2", "Succeeded", 1)]
            {
                let job = job(node, phase);
                let records = Records::default().with_jobs("n1", [&job].into_iter());
                assert_eq!(listed(&found, &records), unmanaged, "{path} {node} {phase}");
            }
        }
        // A device of its own, and one that is labelled as ours.
        let own = inventory("u");
        let own = Records::of(Some(&own));
        assert_eq!(listed(&volume_pv("/dev/disk/by-id/dm-uuid-LVM-x"), &own), 1);
        let mut labelled = pv(
            "l",
            json!({"local": {"path": "/dev/disk/by-uuid/u"}, "nodeAffinity": on_host("h1")}),
        );
        labelled.metadata.labels = Some(
            [(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned())].into(),
        );
        assert_eq!(listed(&labelled, &own), 1);
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
