//! Uncertain identities: shown by two nodes, or changed in place.
//!
//! A shared LUN, a copied virtual disk and a disk moved between two scans look alike, so both sides are quarantined until
//! only one shows the identity: neither is claimed or wiped. What is published already stays, because one node cannot
//! prove that another is wrong. A device claim shows an identity as a device does: a disk that was unplugged from the
//! node that claims it still belongs to that node. Content on a disk that has an owner does not count: a tenant chooses
//! it. A change within one node is found by its agent, whose finding ends with the disk or the boot; the identity is
//! quarantined here until an administrator accepts it. Equal identities within one node are the agent's own verdict.

use crate::{
    device::{Reason, accepts, group::published_candidates, identity},
    device_claim::owner_text,
};
use quarry_api::{
    NodeInventory, NodeInventorySpec, names,
    node_inventory::{Device, Quarantine},
    reason::{Meaning, ReasonCode},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
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

/// Written on a disk, and so chosen by whatever uses the disk: partition tables, md, LVM and other device-mapper metadata.
fn is_content(identity: &str) -> bool {
    let form = identity.split(':').next().unwrap_or_default();
    [identity::PARTITION, identity::MD, identity::LVM, identity::DM].contains(&form)
}

/// Which devices lie on a device that has an owner.
struct Owned<'a> {
    claimed: HashSet<&'a str>,
    by_name: HashMap<&'a str, &'a Device>,
}

impl<'a> Owned<'a> {
    fn new(devices: &'a [Device], spec: Option<&'a NodeInventorySpec>) -> Self {
        let claims = spec.iter().flat_map(|spec| &spec.device_claims);
        Owned {
            claimed: claims.map(|claim| claim.identity.as_str()).collect(),
            by_name: devices.iter().map(|device| (device.name.as_str(), device)).collect(),
        }
    }

    fn is_claimed(&self, device: &Device) -> bool {
        published_candidates(device).iter().any(|one| self.claimed.contains(one.as_str()))
    }

    /// A partition by its disk; what is built on other devices, which are not published, by the agent's finding that
    /// something below it is claimed.
    fn carries(&self, device: &Device) -> bool {
        let disk = device.parent.as_deref().and_then(|name| self.by_name.get(name));
        disk.is_some_and(|disk| disk.means(Meaning::Owned) || self.is_claimed(disk))
            || (device.has(Reason::Claimed) && !self.is_claimed(device))
    }
}

/// By everything that identifies a device: another node may not see its strongest identity. Of a device claim only its
/// own identity is known, which is one of its device.
fn identities(devices: &[Device], spec: Option<&NodeInventorySpec>) -> List {
    let mut found: BTreeMap<String, Arc<IdentityRecord>> = BTreeMap::new();
    let owned = Owned::new(devices, spec);
    for device in devices {
        let Some(primary) = device.identity.as_ref().filter(|identity| is_cluster_wide(identity))
        else {
            continue;
        };
        if is_content(primary) && owned.carries(device) {
            continue;
        }
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
    let kept = spec.iter().flat_map(|spec| &spec.retained_data).flat_map(|kept| {
        let text = format!("the data that PersistentVolume {} left on a device", kept.pv_name);
        [&kept.identity].into_iter().chain(&kept.identifiers).map(move |one| (one, text.clone()))
    });
    // The data of a partition stays on its disk.
    let disks = spec.iter().flat_map(|spec| &spec.retained_data).filter_map(|kept| {
        let text = format!("the data that PersistentVolume {} left on a partition", kept.pv_name);
        Some((kept.disk.as_ref()?, text))
    });
    for (identity, device) in
        claims.chain(kept).chain(disks).filter(|(identity, _)| is_cluster_wide(identity))
    {
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
mod tests;
