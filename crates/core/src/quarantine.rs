//! Uncertain identities: shown by two nodes, or changed in place.
//!
//! A shared LUN, a copied virtual disk and a disk moved between two scans look alike, so both sides are quarantined until
//! only one shows the identity. A device claim shows it as a device does: a disk that was unplugged from the node that
//! claims it still belongs to that node. A change within one node is found by its agent, whose finding ends with the disk
//! or the boot; the identity is quarantined here until an administrator accepts it. Equal identities within one node are
//! the agent's own verdict.

use crate::{
    device::{Reason, accepts, group::published_candidates, identity},
    device_claim::owner_text,
};
use quarry_api::{
    NodeInventory, NodeInventorySpec, names,
    node_inventory::{Device, Quarantine},
    reason::ReasonCode,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// A device of another node with the same identity, or a device claim on a missing one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteIdentity {
    pub identity: String,
    pub node: String,
    /// As text that continues with "of node …".
    pub device: String,
}

/// Which nodes show which identity. Updated incrementally, so that one inventory costs its own devices and not
/// those of the whole cluster.
///
/// A thousand nodes may show a hundred thousand identities, almost all of them alone: sorted lists, shared text.
#[derive(Debug, Default)]
pub struct Identities {
    /// By identity: the nodes, sorted.
    shown: HashMap<Arc<str>, List>,
    /// By node: the identities, sorted.
    of_node: HashMap<Arc<str>, List>,
}

type List = Vec<(Arc<str>, Arc<IdentityRecord>)>;

/// A device that shows an identity, or a device claim on a missing one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IdentityRecord {
    device: String,
    /// The strongest that it has.
    primary: String,
}

impl IdentityRecord {
    /// Both have identities of the same form, and they differ: weaker identities do not count then.
    fn is_surely_another(&self, other: &IdentityRecord) -> bool {
        let (own, others) = (self.primary.split(':').next(), other.primary.split(':').next());
        self.primary != other.primary && own == others
    }
}

/// The file behind a loop device is named by its path on its own node: equal paths on other nodes are other files.
fn is_cluster_wide(identity: &str) -> bool {
    identity.split(':').next() != Some(identity::FILE)
}

/// By everything that identifies a device: another node may not see its strongest identity. Of a device claim only its
/// own identity is known, which is one of its device.
fn identities(devices: &[Device], spec: Option<&NodeInventorySpec>) -> List {
    let mut found: BTreeMap<String, Arc<IdentityRecord>> = BTreeMap::new();
    for device in devices {
        let Some(primary) = device.identity.as_ref().filter(|identity| is_cluster_wide(identity))
        else {
            continue;
        };
        let shown =
            Arc::new(IdentityRecord { device: device.name.clone(), primary: primary.clone() });
        for identity in
            published_candidates(device).into_iter().filter(|identity| is_cluster_wide(identity))
        {
            found.entry(identity).or_insert_with(|| Arc::clone(&shown));
        }
    }
    let claims = spec.iter().flat_map(|spec| &spec.device_claims).map(|claim| {
        (
            &claim.identity,
            format!("the device claim of {} on a missing device", owner_text(&claim.owner)),
        )
    });
    let kept = spec.iter().flat_map(|spec| &spec.retained_data).map(|kept| {
        (
            &kept.identity,
            format!("the data that PersistentVolume {} left on a device", kept.pv_name),
        )
    });
    for (identity, device) in claims.chain(kept).filter(|(identity, _)| is_cluster_wide(identity)) {
        found
            .entry(identity.clone())
            .or_insert_with(|| Arc::new(IdentityRecord { device, primary: identity.clone() }));
    }
    found.into_iter().map(|(identity, shown)| (identity.into(), shown)).collect()
}

fn find<'a>(list: &'a List, key: &str) -> Option<&'a Arc<IdentityRecord>> {
    list.binary_search_by(|(known, _)| (**known).cmp(key)).ok().map(|position| &list[position].1)
}

impl Identities {
    /// Records the devices and the spec of the node. Returns the other nodes that this concerns.
    pub fn follow(
        &mut self,
        node: &str,
        devices: &[Device],
        spec: Option<&NodeInventorySpec>,
    ) -> BTreeSet<String> {
        let mut after = identities(devices, spec);
        let (node, before) =
            self.of_node.remove_entry(node).unwrap_or_else(|| (node.into(), List::new()));
        let mut concerned = BTreeSet::new();
        for (identity, _) in
            before.iter().filter(|(identity, device)| find(&after, identity) != Some(device))
        {
            if let Some(nodes) = self.shown.get_mut(identity) {
                concerned.extend(concerned_by(nodes, &node));
                nodes.retain(|(other, _)| *other != node);
                if nodes.is_empty() {
                    self.shown.remove(identity);
                }
            }
        }
        for (identity, device) in
            after.iter_mut().filter(|(identity, device)| find(&before, identity) != Some(device))
        {
            // One shared text per identity.
            if let Some((known, _)) = self.shown.get_key_value(identity) {
                *identity = Arc::clone(known);
            }
            let nodes =
                self.shown.entry(Arc::clone(identity)).or_insert_with(|| List::with_capacity(1));
            let position = nodes.partition_point(|(other, _)| *other < node);
            nodes.insert(position, (Arc::clone(&node), Arc::clone(device)));
            concerned.extend(concerned_by(nodes, &node));
        }
        if !after.is_empty() {
            self.of_node.insert(node, after);
        }
        concerned
    }

    /// Devices of other nodes that have an identity of this node: per identity as many as a quarantine lists.
    pub fn elsewhere(&self, node: &str) -> Vec<RemoteIdentity> {
        let of_node = self.of_node.get(node).into_iter().flatten();
        let mut found: Vec<RemoteIdentity> = of_node
            .filter_map(|(identity, own)| Some((own, self.shown.get(identity)?)))
            .flat_map(|(own, nodes)| {
                others_of(nodes, node, own).take(NAMED + 1).map(move |(other, shown)| {
                    RemoteIdentity {
                        identity: own.primary.clone(),
                        node: other.to_string(),
                        device: shown.device.clone(),
                    }
                })
            })
            .collect();
        // The same device may be found by several of its identities.
        found.sort();
        found.dedup();
        found
    }
}

/// How many others are listed: a thousand nodes from one image share the identities of their partitions.
const NAMED: usize = 3;

/// The nodes whose quarantine lists `node`, and changes with it. When many show an identity, most do not list it.
fn concerned_by(nodes: &List, node: &str) -> Vec<String> {
    let is_named_by = |other: &str, own: &IdentityRecord| {
        others_of(nodes, other, own).take(NAMED + 1).any(|(named, _)| **named == *node)
    };
    nodes
        .iter()
        .filter(|(other, own)| **other != *node && is_named_by(other, own))
        .map(|(other, _)| other.to_string())
        .collect()
}

/// The other nodes that show it, except for those that certainly show another device.
fn others_of<'a>(
    nodes: &'a List,
    node: &'a str,
    own: &'a IdentityRecord,
) -> impl Iterator<Item = &'a (Arc<str>, Arc<IdentityRecord>)> {
    nodes.iter().filter(move |(other, shown)| **other != *node && !own.is_surely_another(shown))
}

/// What of this node is quarantined now.
pub fn plan(inventory: &NodeInventory, elsewhere: &[RemoteIdentity]) -> Vec<Quarantine> {
    let mut wanted: BTreeMap<(String, ReasonCode), String> = BTreeMap::new();
    let mut others: BTreeMap<&str, Vec<&RemoteIdentity>> = BTreeMap::new();
    for other in elsewhere {
        others.entry(&other.identity).or_default().push(other);
    }
    for (identity, others) in others {
        let named: Vec<String> = others
            .iter()
            .take(NAMED)
            .map(|other| format!("{} of node {}", other.device, other.node))
            .collect();
        let more = if others.len() > NAMED { " and others" } else { "" };
        wanted.insert(
            (identity.to_owned(), Reason::IdentityElsewhere.into()),
            format!("{}{more}", named.join(", ")),
        );
    }
    // A quarantine stays with its first detail: the agent that found the change may have been restarted since.
    let held = inventory
        .spec
        .quarantine
        .iter()
        .filter(|entry| entry.reason == Reason::IdentityChanged)
        .map(|entry| (entry.identity.clone(), entry.detail.clone()));
    let devices = inventory.status.iter().flat_map(|status| &status.devices);
    let seen = devices.filter_map(|device| {
        let reason =
            device.reasons.iter().find(|reason| reason.reason == Reason::IdentityChanged)?;
        Some((device.identity.clone()?, reason.detail.clone()))
    });
    for (identity, detail) in held.chain(seen) {
        if !is_accepted(inventory, &identity) {
            wanted.entry((identity, Reason::IdentityChanged.into())).or_insert(detail);
        }
    }
    wanted
        .into_iter()
        .map(|((identity, reason), detail)| Quarantine { identity, reason, detail })
        .collect()
}

/// By any identity of the device that shows it: a stronger identity found later is accepted, too.
fn is_accepted(inventory: &NodeInventory, identity: &str) -> bool {
    let Some(text) = inventory
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::ACCEPT_IDENTITY_ANNOTATION))
    else {
        return false;
    };
    let devices = inventory.status.iter().flat_map(|status| &status.devices);
    let mut shown =
        devices.map(published_candidates).filter(|candidates| candidates.contains(identity));
    accepts(text, identity)
        || shown.any(|candidates| candidates.iter().any(|one| accepts(text, one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_api::{
        NodeInventoryStatus,
        node_inventory::{ClaimOwner, DeviceClaim, DeviceReason, Evidence, RetainedData},
    };

    fn device(name: &str, identity: &str) -> Device {
        Device { name: name.into(), identity: Some(identity.into()), ..Device::default() }
    }

    fn inventory(devices: Vec<Device>) -> NodeInventory {
        let mut made = NodeInventory::new("n1", NodeInventorySpec::default());
        made.status = Some(NodeInventoryStatus { devices, ..NodeInventoryStatus::default() });
        made
    }

    fn having(claims: Vec<DeviceClaim>) -> NodeInventorySpec {
        NodeInventorySpec { device_claims: claims, ..NodeInventorySpec::default() }
    }

    fn accepting(text: &str) -> Option<BTreeMap<String, String>> {
        Some([(names::ACCEPT_IDENTITY_ANNOTATION.to_owned(), text.to_owned())].into())
    }

    // invariant: 3
    #[test]
    fn an_identity_on_two_nodes_concerns_both() {
        let mut known = Identities::default();
        let shared = vec![device("sda", "wwn:1"), device("sdb", "wwn:2")];
        assert!(known.follow("n1", &shared, None).is_empty());
        assert_eq!(known.follow("n2", &[device("sdx", "wwn:2")], None), ["n1".to_owned()].into());
        let plan_of = |known: &Identities| plan(&inventory(shared.clone()), &known.elsewhere("n1"));
        let planned = plan_of(&known);
        assert_eq!(
            planned,
            [Quarantine {
                identity: "wwn:2".into(),
                reason: "IdentityElsewhere".into(),
                detail: "sdx of node n2".into()
            }]
        );
        assert_eq!(known.elsewhere("n2")[0].node, "n1");
        // Nothing new: no node is concerned.
        assert!(known.follow("n2", &[device("sdx", "wwn:2")], None).is_empty());
        // It has another name there now: the text changes.
        assert_eq!(known.follow("n2", &[device("sdy", "wwn:2")], None), ["n1".to_owned()].into());
        assert_eq!(known.follow("n2", &[], None), ["n1".to_owned()].into());
        assert_eq!(plan_of(&known), []);
        known.follow("n1", &[], None);
        assert!(known.shown.is_empty() && known.of_node.is_empty(), "what is gone takes no room");
    }

    // invariant: 3
    #[test]
    fn a_disk_claimed_by_another_node_is_quarantined() {
        let claim = |identity: &str| DeviceClaim {
            identity: identity.into(),
            owner: ClaimOwner {
                kind: "LocalVolumeSet".into(),
                namespace: Some("s".into()),
                name: "fast".into(),
                uid: "u".into(),
            },
            ..DeviceClaim::default()
        };
        let (disk, claims) = ([device("sda", "wwn:1")], having(vec![claim("wwn:1")]));
        let mut known = Identities::default();
        known.follow("n1", &disk, None);
        assert!(known.follow("n1", &disk, Some(&claims)).is_empty());
        assert_eq!(known.elsewhere("n1"), [], "its own device claim is not on another node");
        // Pulled, and plugged in elsewhere.
        known.follow("n1", &[], Some(&claims));
        assert_eq!(known.follow("n2", &[device("sdb", "wwn:1")], None), ["n1".to_owned()].into());
        let planned = |node: &str, shown: Vec<Device>| {
            plan(&inventory(shown), &known.elsewhere(node))
                .into_iter()
                .map(|entry| entry.detail)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            planned("n2", vec![device("sdb", "wwn:1")]),
            ["the device claim of LocalVolumeSet s/fast on a missing device of node n1"]
        );
        assert_eq!(
            planned("n1", vec![]),
            ["sdb of node n2"],
            "the node that claims it learns where it is"
        );
        // Nothing new: no node is concerned. Released: the other one is.
        assert!(known.follow("n1", &[], Some(&claims)).is_empty());
        assert_eq!(known.follow("n1", &[], None), ["n2".to_owned()].into());
        assert_eq!((known.elsewhere("n1"), known.elsewhere("n2")), (vec![], vec![]));
        // Two device claims and one disk: both are blocked.
        known.follow("n1", &[], Some(&claims));
        known.follow("n2", &[device("sdb", "wwn:1")], Some(&claims));
        assert_eq!((known.elsewhere("n1").len(), known.elsewhere("n2").len()), (1, 1));
        // Another disk does not count, and neither does a file of the same path.
        known.follow("n3", &[device("sdc", "wwn:2"), device("loop0", "file:/x:1:2")], None);
        known.follow("n4", &[], Some(&having(vec![claim("file:/x:1:2")])));
        assert_eq!(known.elsewhere("n3"), []);
    }

    /// Its data is recorded for the node that it was unplugged from: it is not claimed elsewhere, even if it looks blank.
    // invariant: 3
    #[test]
    fn retained_data_is_known_on_every_node() {
        let kept = NodeInventorySpec {
            retained_data: vec![RetainedData {
                identity: "wwn:1".into(),
                pv_name: "local-pv-1".into(),
                pv_uid: "p".into(),
            }],
            ..NodeInventorySpec::default()
        };
        let mut known = Identities::default();
        known.follow("n1", &[], Some(&kept));
        known.follow("n2", &[device("sdb", "wwn:1")], None);
        let planned = plan(&inventory(vec![device("sdb", "wwn:1")]), &known.elsewhere("n2"));
        assert_eq!(
            (planned.len(), planned[0].detail.as_str()),
            (1, "the data that PersistentVolume local-pv-1 left on a device of node n1")
        );
        assert_eq!(
            known.follow("n1", &[], None),
            ["n2".to_owned()].into(),
            "forgotten there, free here"
        );
    }

    // invariant: 3
    #[test]
    fn device_claim_by_weaker_identity_is_found_on_another_node() {
        let evidence =
            [("sysfs:vpd80", "S1"), ("sysfs:model", "M"), ("sysfs:wwid", "naa.5000c50000000001")];
        let evidence = evidence
            .map(|(source, value)| Evidence { source: source.into(), value: value.into() })
            .into();
        let shown =
            Device { kind: "disk".into(), evidence, ..device("sdb", "wwn:5000c50000000001") };
        let mut known = Identities::default();
        known.follow(
            "n1",
            &[],
            Some(&having(vec![DeviceClaim {
                identity: "serial:M:S1".into(),
                ..DeviceClaim::default()
            }])),
        );
        known.follow("n2", std::slice::from_ref(&shown), None);
        assert_eq!(known.elsewhere("n2")[0].identity, "wwn:5000c50000000001");
        known.follow(
            "n1",
            &[],
            Some(&having(vec![DeviceClaim {
                identity: "wwn:5000c50000000002".into(),
                ..DeviceClaim::default()
            }])),
        );
        assert_eq!(known.elsewhere("n2"), []);
    }

    #[test]
    fn less_evidence_on_another_node_is_still_the_same_disk() {
        let with = |name: &str, identity: &str, evidence: &[(&str, &str)]| Device {
            kind: "disk".into(),
            evidence: evidence
                .iter()
                .map(|(source, value)| Evidence {
                    source: (*source).into(),
                    value: (*value).into(),
                })
                .collect(),
            ..device(name, identity)
        };
        let serial = [("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
        let full = [serial[0], serial[1], ("sysfs:wwid", "naa.5000c50000000001")];
        let other = [serial[0], serial[1], ("sysfs:wwid", "naa.5000c50000000002")];
        let mut known = Identities::default();
        known.follow("n1", &[with("sda", "wwn:5000c50000000001", &full)], None);
        assert_eq!(
            known.follow("n2", &[with("sdb", "serial:M:S1", &serial)], None),
            ["n1".to_owned()].into()
        );
        assert_eq!((known.elsewhere("n1").len(), known.elsewhere("n2").len()), (1, 1));
        assert_eq!(known.elsewhere("n1")[0].identity, "wwn:5000c50000000001");
        known.follow("n2", &[with("sdb", "wwn:5000c50000000002", &other)], None);
        assert_eq!(known.elsewhere("n1"), [], "equal serials, but different WWNs");
    }

    /// Many disks with the same serial, each with its own WWN: a disk that shows only the serial may be any of them.
    #[test]
    fn all_nodes_that_list_a_node_are_concerned() {
        let serial = [("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
        let with = |identity: &str, wwid: Option<&str>| Device {
            kind: "disk".into(),
            evidence: serial
                .iter()
                .copied()
                .chain(wwid.map(|wwid| ("sysfs:wwid", wwid)))
                .map(|(source, value)| Evidence { source: source.into(), value: value.into() })
                .collect(),
            ..device("sda", identity)
        };
        let mut known = Identities::default();
        for number in 0..8 {
            let (identity, wwid) =
                (format!("wwn:5000c5000000000{number}"), format!("naa.5000c5000000000{number}"));
            assert!(
                known
                    .follow(&format!("n{number}"), &[with(&identity, Some(&wwid))], None)
                    .is_empty()
            );
        }
        assert_eq!(known.follow("n9", &[with("serial:M:S1", None)], None).len(), 8);
        assert!((0..8).all(|number| known.elsewhere(&format!("n{number}")).len() == 1));
        assert_eq!(known.follow("n9", &[], None).len(), 8);
    }

    #[test]
    fn loop_files_and_missing_identities_are_not_compared() {
        let mut known = Identities::default();
        let own = [
            device("loop0", "file:/var/x:12:3"),
            Device { name: "sdz".into(), ..Device::default() },
        ];
        known.follow("n1", &own, None);
        assert!(known.follow("n2", &own, None).is_empty());
        assert_eq!(known.elsewhere("n1"), []);
    }

    #[test]
    fn a_thousand_nodes_from_one_image_are_summarized() {
        let mut known = Identities::default();
        let devices: Vec<Device> = (0..24)
            .map(|number| device(&format!("sda{number}"), &format!("part:{number}")))
            .collect();
        for node in 0..1000 {
            known.follow(&format!("n{node}"), &devices, None);
        }
        assert_eq!(known.elsewhere("n500").len(), 24 * 4);
        assert!(known.follow("n999", &[], None).is_empty(), "no node lists it");
        assert_eq!(known.follow("n1", &[], None).len(), 998);
        known.follow("n1", &devices, None);
        let planned = plan(&inventory(devices), &known.elsewhere("n500"));
        assert_eq!(
            (planned.len(), planned[0].detail.as_str()),
            (24, "sda0 of node n0, sda0 of node n1, sda0 of node n10 and others")
        );
    }

    // invariant: 3
    #[test]
    fn a_changed_identity_is_held_until_it_is_accepted() {
        let mut changed = device("sda", "serial:m:2");
        changed.reasons = vec![DeviceReason {
            reason: "IdentityChanged".into(),
            detail: "was serial:m:1".into(),
        }];
        let mut seen = inventory(vec![changed]);
        let held = plan(&seen, &[]);
        assert_eq!(
            held,
            [Quarantine {
                identity: "serial:m:2".into(),
                reason: "IdentityChanged".into(),
                detail: "was serial:m:1".into()
            }]
        );
        seen.spec.quarantine = held.clone();
        // The agent repeats the quarantine, has lost it, or the disk is unplugged for a moment: no change.
        seen.status.as_mut().unwrap().devices[0].reasons[0].detail = "other words".into();
        assert_eq!(plan(&seen, &[]), held);
        seen.status.as_mut().unwrap().devices.clear();
        assert_eq!(plan(&seen, &[]), held);
        let mut accepted = seen.clone();
        accepted.metadata.annotations = accepting("wwn:9, serial:m:2");
        assert_eq!(plan(&accepted, &[]), []);
        // The disk reports its WWN since, and administrators accept the identity that is shown.
        let mut grown = device("sda", "wwn:5000c50000000002");
        grown.kind = "disk".into();
        grown.evidence =
            [("sysfs:wwid", "naa.5000c50000000002"), ("sysfs:vpd80", "22"), ("sysfs:model", "m")]
                .map(|(source, value)| Evidence { source: source.into(), value: value.into() })
                .into();
        seen.spec.quarantine[0].identity = "serial:m:22".into();
        seen.status.as_mut().unwrap().devices = vec![grown];
        assert_eq!(plan(&seen, &[]).len(), 1);
        seen.metadata.annotations = accepting("wwn:5000c50000000002");
        assert_eq!(plan(&seen, &[]), []);
    }

    #[test]
    fn an_identity_with_a_comma_can_be_accepted() {
        let mut changed = device("sda", "serial:ACME, Inc. X1:S2");
        changed.reasons = vec![DeviceReason {
            reason: "IdentityChanged".into(),
            detail: "was serial:m:1".into(),
        }];
        let mut seen = inventory(vec![changed]);
        assert_eq!(plan(&seen, &[]).len(), 1);
        seen.metadata.annotations = accepting("serial:ACME, Inc. X1:S2");
        assert_eq!(plan(&seen, &[]), []);
    }
}
