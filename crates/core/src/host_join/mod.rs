//! Which Node runs on which BareMetalHost, and which disks both sides see.
//!
//! By the Node's `spec.providerID`, else by disks: at least two that no other host and no other node has, or the only
//! disk of both. What is ambiguous joins nothing and says so. Decides nothing else: a join only shows two views of one
//! machine side by side. Next to read: `disk.rs` (when two disks are one), `raid.rs` (arrays
//! of the node).

mod disk;
mod provider_id;
pub mod raid;

pub use disk::{HostDisk, MatchedBy};
pub use provider_id::ProviderId;

use crate::source::Source;
use disk::{DiskKeys, host_disks, node_disks, pairs};
use kube::ResourceExt;
use quarry_api::{
    BareMetalHost, HardwareData, bare_metal_host::HardwareDetails, node_inventory::Device,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A host, as far as it is joined.
#[derive(Clone, Copy, Debug)]
pub struct HostSide<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// `None`: it was not inspected.
    pub hardware: Option<&'a HardwareDetails>,
}

/// A Node, as far as it is joined.
#[derive(Clone, Copy, Debug)]
pub struct NodeSide<'a> {
    pub name: &'a str,
    pub provider_id: Option<&'a str>,
    /// `None`: no agent has published them.
    pub devices: Option<&'a [Device]>,
}

/// What is known about one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostJoin {
    pub namespace: String,
    pub name: String,
    pub outcome: Outcome,
    /// The disks of the host, then those that only the node sees.
    pub disks: Vec<JoinedDisk>,
    /// The agent of the joined node has published its devices.
    pub devices_known: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    Joined { node: String, by: JoinedBy },
    NotJoined(NotJoined),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum JoinedBy {
    ProviderId,
    Disks { matching: usize },
}

/// Why a host has no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum NotJoined {
    /// It was not inspected, and no Node names it.
    NoHardware,
    /// None of its disks has a WWN, or a serial and model.
    NoIdentity,
    /// No node has any of its disks.
    NoMatch,
    TooFew {
        node: String,
        matching: usize,
    },
    /// The disks are in several nodes.
    SeveralNodes(Vec<String>),
    /// The disks of the node are in several hosts.
    SeveralHosts {
        node: String,
        hosts: Vec<String>,
    },
    /// Other hosts or nodes see the same disks.
    Shared {
        node: String,
        with: Vec<String>,
    },
    /// Several Nodes have a provider ID that names the host.
    ProviderIds(Vec<String>),
}

/// One disk, as one side or both see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinedDisk {
    /// `None`: only the node sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostDisk>,
    /// Its name on the node; `None`: only inspection of the host saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_by: Option<MatchedBy>,
    /// It has a WWN or a serial: without one it cannot be compared, and only seems to be seen by one side.
    pub identified: bool,
}

impl HostJoin {
    pub fn node(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Joined { node, .. } => Some(node),
            Outcome::NotJoined(_) => None,
        }
    }
}

impl NotJoined {
    pub fn message(&self) -> String {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        match self {
            NotJoined::NoHardware => {
                "no Node has a provider ID that names it, and its hardware is not known".to_owned()
            }
            NotJoined::NoIdentity => "no Node has a provider ID that names it, and none of its disks has a WWN or a serial and model".to_owned(),
            NotJoined::NoMatch => {
                "no Node has a provider ID that names it, and no node has its disks".to_owned()
            }
            NotJoined::TooFew { node, matching } => format!(
                "node {node} has only {matching} disk{} of it; two are needed, or the only disk of both",
                plural(*matching)
            ),
            NotJoined::SeveralNodes(nodes) => {
                format!("ambiguous: its disks are in the nodes {}", nodes.join(", "))
            }
            NotJoined::SeveralHosts { node, hosts } => {
                format!("ambiguous: the disks of node {node} are in the hosts {}", hosts.join(", "))
            }
            NotJoined::Shared { node, with } => format!(
                "ambiguous: its disks in node {node} are also seen by {}",
                with.join(", ")
            ),
            NotJoined::ProviderIds(nodes) => format!(
                "ambiguous: the Nodes {} have a provider ID that names it; delete those that are gone",
                nodes.join(", ")
            ),
        }
    }
}

/// What is known about the hardware of a host: its HardwareData wins.
pub fn hardware<'a>(
    host: &'a BareMetalHost,
    data: Option<&'a HardwareData>,
) -> Option<&'a HardwareDetails> {
    let stored = data.and_then(|data| data.spec.hardware.as_ref());
    stored.or_else(|| host.status.as_ref()?.hardware.as_ref())
}

/// How many disks of a host there are.
pub fn disk_count(hardware: &HardwareDetails) -> usize {
    host_disks(hardware).len()
}

/// Every host of a source.
pub fn joins(source: &impl Source) -> Vec<HostJoin> {
    let hosts: Vec<_> = source
        .hosts()
        .into_iter()
        .map(|host| {
            let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
            let data = source.hardware_data(&namespace, &name);
            (namespace, name, host.uid().unwrap_or_default(), host, data)
        })
        .collect();
    let inventories = source.inventories();
    let nodes = source.nodes();
    let mut names: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
    names.extend(inventories.iter().map(|inventory| inventory.name_any()));
    let provider_ids: BTreeMap<String, &str> = nodes
        .iter()
        .filter_map(|node| Some((node.name_any(), node.spec.as_ref()?.provider_id.as_deref()?)))
        .collect();
    let devices: BTreeMap<String, &[Device]> = inventories
        .iter()
        .filter_map(|one| Some((one.name_any(), one.status.as_ref()?.devices.as_slice())))
        .collect();
    let host_sides: Vec<HostSide<'_>> = hosts
        .iter()
        .map(|(namespace, name, uid, host, data)| HostSide {
            namespace,
            name,
            uid,
            hardware: hardware(host, data.as_deref()),
        })
        .collect();
    let node_sides: Vec<NodeSide<'_>> = names
        .iter()
        .map(|name| NodeSide {
            name,
            provider_id: provider_ids.get(name).copied(),
            devices: devices.get(name).copied(),
        })
        .collect();
    join(&host_sides, &node_sides)
}

/// One result per host, in their order.
pub fn join(hosts: &[HostSide<'_>], nodes: &[NodeSide<'_>]) -> Vec<HostJoin> {
    let world = World::new(hosts, nodes);
    let mut outcomes: Vec<Outcome> = (0..hosts.len()).map(|host| world.outcome(host)).collect();
    for (node, rivals) in rivals(&outcomes) {
        let names: Vec<String> = rivals.iter().map(|host| world.host_name(*host)).collect();
        for host in rivals {
            let why = NotJoined::SeveralHosts { node: node.clone(), hosts: names.clone() };
            outcomes[host] = Outcome::NotJoined(why);
        }
    }
    outcomes.into_iter().enumerate().map(|(host, outcome)| world.result(host, outcome)).collect()
}

/// Nodes that several hosts were joined with by disks.
fn rivals(outcomes: &[Outcome]) -> Vec<(String, Vec<usize>)> {
    let mut by_node: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (host, outcome) in outcomes.iter().enumerate() {
        if let Outcome::Joined { node, .. } = outcome {
            by_node.entry(node.clone()).or_default().push(host);
        }
    }
    by_node.into_iter().filter(|(_, hosts)| hosts.len() > 1).collect()
}

/// Both sides with their disks, and who sees which disk.
struct World<'a> {
    hosts: &'a [HostSide<'a>],
    nodes: &'a [NodeSide<'a>],
    host_disks: Vec<Vec<(HostDisk, DiskKeys)>>,
    node_disks: Vec<Vec<(usize, DiskKeys)>>,
    /// Nodes by host, from provider IDs.
    named: Vec<Vec<usize>>,
    /// Nodes whose provider ID names a host: disks decide nothing about them.
    bound: BTreeSet<usize>,
    /// Nodes by disk.
    near: HashMap<String, BTreeSet<usize>>,
    /// Hosts and nodes by exact disk.
    seen_by: HashMap<String, (BTreeSet<usize>, BTreeSet<usize>)>,
}

impl<'a> World<'a> {
    fn new(hosts: &'a [HostSide<'a>], nodes: &'a [NodeSide<'a>]) -> Self {
        let mut world = World {
            hosts,
            nodes,
            host_disks: hosts
                .iter()
                .map(|host| host.hardware.map(host_disks).unwrap_or_default())
                .collect(),
            node_disks: nodes
                .iter()
                .map(|node| node.devices.map(node_disks).unwrap_or_default())
                .collect(),
            named: vec![Vec::new(); hosts.len()],
            bound: BTreeSet::new(),
            near: HashMap::new(),
            seen_by: HashMap::new(),
        };
        world.follow_provider_ids();
        for (host, disks) in world.host_disks.iter().enumerate() {
            for key in disks.iter().flat_map(|(_, keys)| keys.exact()) {
                world.seen_by.entry(key).or_default().0.insert(host);
            }
        }
        for (node, disks) in world.node_disks.iter().enumerate() {
            for (_, keys) in disks {
                for key in keys.exact() {
                    world.seen_by.entry(key).or_default().1.insert(node);
                }
                for key in keys.lookups() {
                    world.near.entry(key).or_default().insert(node);
                }
            }
        }
        world
    }

    fn follow_provider_ids(&mut self) {
        let by_name: HashMap<(&str, &str), usize> = self
            .hosts
            .iter()
            .enumerate()
            .map(|(at, one)| ((one.namespace, one.name), at))
            .collect();
        let by_uid: HashMap<&str, usize> =
            self.hosts.iter().enumerate().map(|(at, one)| (one.uid, at)).collect();
        for (node, side) in self.nodes.iter().enumerate() {
            let host = match side.provider_id.and_then(ProviderId::parse) {
                None => continue,
                // A host that is not listed here: another namespace, or deleted. Never one with equal disks.
                Some(ProviderId::Name { namespace, name }) => {
                    self.bound.insert(node);
                    by_name.get(&(namespace, name))
                }
                // A move to another cluster gives the host another UID: then its disks decide.
                Some(ProviderId::Uid(uid)) => by_uid.get(uid),
            };
            if let Some(host) = host {
                self.bound.insert(node);
                self.named[*host].push(node);
            }
        }
    }

    fn outcome(&self, host: usize) -> Outcome {
        let name = |node: &usize| self.nodes[*node].name.to_owned();
        match self.named[host].as_slice() {
            [] => self.by_disks(host),
            [node] => Outcome::Joined { node: name(node), by: JoinedBy::ProviderId },
            several => {
                Outcome::NotJoined(NotJoined::ProviderIds(several.iter().map(name).collect()))
            }
        }
    }

    fn by_disks(&self, host: usize) -> Outcome {
        let disks = &self.host_disks[host];
        if self.hosts[host].hardware.is_none() {
            return Outcome::NotJoined(NotJoined::NoHardware);
        }
        let keys: BTreeSet<String> = disks.iter().flat_map(|(_, keys)| keys.lookups()).collect();
        if keys.is_empty() {
            return Outcome::NotJoined(NotJoined::NoIdentity);
        }
        let near: BTreeSet<usize> =
            keys.iter().filter_map(|key| self.near.get(key)).flatten().copied().collect();
        let candidates = near.into_iter().filter(|node| !self.bound.contains(node));
        let found: Vec<Candidate> = candidates
            .map(|node| self.candidate(host, node))
            .filter(|one| one.matching > 0)
            .collect();
        let sufficient: Vec<&Candidate> =
            found.iter().filter(|one| one.is_enough(one.unshared)).collect();
        match sufficient.as_slice() {
            [one] => {
                let by = JoinedBy::Disks { matching: one.matching };
                return Outcome::Joined { node: self.nodes[one.node].name.to_owned(), by };
            }
            [] => {}
            several => {
                let names = several.iter().map(|one| self.nodes[one.node].name.to_owned());
                return Outcome::NotJoined(NotJoined::SeveralNodes(names.collect()));
            }
        }
        let best = found.into_iter().max_by_key(|one| (one.matching, std::cmp::Reverse(one.node)));
        Outcome::NotJoined(best.map_or(NotJoined::NoMatch, |best| {
            let node = self.nodes[best.node].name.to_owned();
            if best.is_enough(best.matching) {
                NotJoined::Shared { node, with: best.with }
            } else {
                NotJoined::TooFew { node, matching: best.matching }
            }
        }))
    }

    fn candidate(&self, host: usize, node: usize) -> Candidate {
        let (mine, theirs) = (&self.host_disks[host], &self.node_disks[node]);
        let found = self.pairs(host, node);
        let mut with: BTreeSet<String> = BTreeSet::new();
        let mut unshared = 0;
        for (at, other, _) in &found {
            let keys = mine[*at].1.exact().chain(theirs[*other].1.exact());
            let others: Vec<String> = keys.flat_map(|key| self.others(&key, host, node)).collect();
            unshared += usize::from(others.is_empty());
            with.extend(others);
        }
        Candidate {
            node,
            matching: found.len(),
            unshared,
            only: mine.len() == 1 && theirs.len() == 1,
            with: with.into_iter().collect(),
        }
    }

    /// Who sees a disk besides these two.
    fn others(&self, key: &str, host: usize, node: usize) -> Vec<String> {
        let Some((hosts, nodes)) = self.seen_by.get(key) else { return Vec::new() };
        let hosts = hosts.iter().filter(|one| **one != host);
        let nodes = nodes.iter().filter(|one| **one != node);
        let hosts = hosts.map(|one| format!("host {}", self.host_name(*one)));
        hosts.chain(nodes.map(|one| format!("node {}", self.nodes[*one].name))).collect()
    }

    fn pairs(&self, host: usize, node: usize) -> Vec<(usize, usize, MatchedBy)> {
        let mine: Vec<DiskKeys> = self.host_disks[host].iter().map(|one| one.1.clone()).collect();
        let theirs: Vec<DiskKeys> = self.node_disks[node].iter().map(|one| one.1.clone()).collect();
        pairs(&mine, &theirs)
    }

    fn result(&self, host: usize, outcome: Outcome) -> HostJoin {
        let node = match &outcome {
            Outcome::Joined { node, .. } => self.nodes.iter().position(|one| one.name == node),
            Outcome::NotJoined(_) => None,
        };
        let devices = node.and_then(|node| self.nodes[node].devices);
        let found = node.map(|node| self.pairs(host, node)).unwrap_or_default();
        let theirs = node.map(|node| self.node_disks[node].as_slice()).unwrap_or_default();
        let device_name = |at: usize| {
            let position = theirs.get(at)?.0;
            Some(devices?.get(position)?.name.clone())
        };
        let mut disks: Vec<JoinedDisk> = Vec::new();
        for (at, (disk, keys)) in self.host_disks[host].iter().enumerate() {
            let pair = found.iter().find(|pair| pair.0 == at);
            disks.push(JoinedDisk {
                host: Some(disk.clone()),
                device: pair.and_then(|pair| device_name(pair.1)),
                matched_by: pair.map(|pair| pair.2),
                identified: !keys.is_empty(),
            });
        }
        let paired: BTreeSet<usize> = found.iter().map(|pair| pair.1).collect();
        let rest = (0..theirs.len()).filter(|at| !paired.contains(at));
        disks.extend(rest.map(|at| JoinedDisk {
            host: None,
            device: device_name(at),
            matched_by: None,
            identified: !theirs[at].1.is_empty(),
        }));
        HostJoin {
            namespace: self.hosts[host].namespace.to_owned(),
            name: self.hosts[host].name.to_owned(),
            outcome,
            disks,
            devices_known: devices.is_some(),
        }
    }

    fn host_name(&self, host: usize) -> String {
        format!("{}/{}", self.hosts[host].namespace, self.hosts[host].name)
    }
}

/// A node that has disks of a host.
struct Candidate {
    node: usize,
    matching: usize,
    /// Of them, those that no other host and no other node sees.
    unshared: usize,
    /// Both have one disk.
    only: bool,
    /// Who else sees them.
    with: Vec<String>,
}

impl Candidate {
    fn is_enough(&self, matching: usize) -> bool {
        matching >= 2 || (matching == 1 && self.only)
    }
}

#[cfg(test)]
mod tests;
