//! Indexes of one NodeWorld: devices by identity, PersistentVolumes by device, reports by device claim. A node may have a
//! thousand devices and as many device claims.

use super::{ClaimContext, Demand, NodeWorld};
use crate::device::{Reason, group::published_candidates, identity::same_identity};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    names,
    node_inventory::{ClaimReport, ClaimState, Device, DeviceClaim, DeviceReason, Quarantine},
    reason::Meaning,
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

pub struct Index<'a> {
    world: &'a NodeWorld,
    pub devices: Vec<DeviceEntry<'a>>,
    by_identity: HashMap<String, usize>,
    pvs: HashMap<&'a str, &'a Arc<PersistentVolume>>,
    reports: HashMap<(&'a str, &'a str, i64), &'a ClaimReport>,
    demands: HashMap<&'a str, &'a Demand>,
    /// The device claims by the names of their PersistentVolumes.
    by_pv: HashMap<String, &'a DeviceClaim>,
    /// How many device claims name an identity.
    claims: HashMap<&'a str, usize>,
    /// How many of an owner's devices on this node are confirmed or published.
    ready: HashMap<&'a str, usize>,
}

/// A device with everything that identifies it.
pub struct DeviceEntry<'a> {
    pub device: &'a Device,
    pub candidates: BTreeSet<String>,
    /// All PersistentVolumes on it, as far as their names and annotations show.
    pub published: BTreeSet<&'a str>,
}

/// Why it is not certain which device this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityProblem {
    pub why: String,
    /// Only another node makes it uncertain, which shows the identity as well: nothing new is done with the device, and
    /// what is published stays.
    pub elsewhere: bool,
}

impl<'a> Index<'a> {
    pub fn new(world: &'a NodeWorld) -> Self {
        let status = world.inventory.status.as_ref();
        let named = Named::new(world);
        let devices: Vec<DeviceEntry<'a>> = status
            .iter()
            .flat_map(|status| &status.devices)
            .map(|device| {
                let candidates = published_candidates(device);
                DeviceEntry { device, published: named.on(device, &candidates), candidates }
            })
            .collect();
        let mut by_identity = HashMap::new();
        for (position, entry) in devices.iter().enumerate() {
            for candidate in &entry.candidates {
                by_identity.entry(candidate.clone()).or_insert(position);
            }
        }
        let pvs =
            world.pvs.iter().filter_map(|pv| Some((pv.metadata.name.as_deref()?, pv))).collect();
        let reports = status
            .iter()
            .flat_map(|status| &status.device_claims)
            .map(|report| {
                ((report.identity.as_str(), report.owner_uid.as_str(), report.round), report)
            })
            .collect();
        let demands =
            world.demands.iter().map(|demand| (demand.owner.uid.as_str(), demand)).collect();
        let mut index = Index {
            world,
            devices,
            by_identity,
            pvs,
            reports,
            demands,
            by_pv: HashMap::new(),
            claims: HashMap::new(),
            ready: HashMap::new(),
        };
        for claim in &world.inventory.spec.device_claims {
            *index.claims.entry(claim.identity.as_str()).or_default() += 1;
            index.by_pv.insert(names::local_pv(&world.name, &claim.identity), claim);
        }
        for claim in world.inventory.spec.device_claims.iter().filter(|claim| !claim.terminating) {
            let confirmed =
                index.report(claim).is_some_and(|report| report.state == ClaimState::Confirmed);
            if confirmed || index.pv(claim).is_some() {
                *index.ready.entry(claim.owner.uid.as_str()).or_default() += 1;
            }
        }
        index
    }

    pub fn device(&self, identity: &str) -> Option<&DeviceEntry<'a>> {
        self.by_identity.get(identity).map(|position| &self.devices[*position])
    }

    /// The device of a device claim: by its identity, else by what it still shows of it.
    pub fn claimed_device(&self, claim: &DeviceClaim) -> Option<&DeviceEntry<'a>> {
        let weaker = |entry: &&DeviceEntry<'a>| {
            let candidates: Vec<String> = entry.candidates.iter().cloned().collect();
            same_identity(&claim.identifiers, &candidates)
        };
        let exact = |entry: &&DeviceEntry<'a>| claim.identifiers.is_empty() || weaker(entry);
        self.device(&claim.identity).filter(exact).or_else(|| {
            claim.identifiers.iter().find_map(|identifier| self.device(identifier).filter(weaker))
        })
    }

    /// The report on this device claim, and not on an earlier one on the same device.
    fn report(&self, claim: &DeviceClaim) -> Option<&'a ClaimReport> {
        self.reports.get(&(claim.identity.as_str(), claim.owner.uid.as_str(), claim.round)).copied()
    }

    fn pv(&self, claim: &DeviceClaim) -> Option<&'a Arc<PersistentVolume>> {
        self.pvs.get(names::local_pv(&self.world.name, &claim.identity).as_str()).copied()
    }

    pub fn claim_of_pv(&self, name: &str) -> Option<&'a DeviceClaim> {
        self.by_pv.get(name).copied()
    }

    pub fn ctx(&self, claim: &'a DeviceClaim) -> ClaimContext<'a> {
        let entry = self.claimed_device(claim);
        ClaimContext {
            claim,
            demand: self.demands.get(claim.owner.uid.as_str()).copied(),
            report: self.report(claim),
            device: entry.map(|entry| entry.device),
            pv: self.pv(claim),
            quarantine: entry.and_then(|entry| self.identity_problem(entry)),
            // A name is a hash: computed only where there is anything to compare it with.
            rival: entry.filter(|entry| !entry.published.is_empty()).and_then(|entry| {
                let own = names::local_pv(&self.world.name, &claim.identity);
                entry.published.iter().find(|name| **name != own).copied()
            }),
            moved: if entry.is_some() {
                None
            } else {
                self.elsewhere(|identity| *identity == claim.identity)
            },
            ready: self.ready.get(claim.owner.uid.as_str()).copied().unwrap_or_default(),
        }
    }

    /// Another node's device of such an identity, as text.
    fn elsewhere(&self, is: impl Fn(&String) -> bool) -> Option<String> {
        self.world
            .elsewhere
            .iter()
            .find(|other| is(&other.identity))
            .map(|other| format!("{} of node {}", other.device, other.node))
    }

    /// Why it is not certain which device this is; `None`: it is. What its own node shows comes first.
    pub fn identity_problem(&self, entry: &DeviceEntry<'_>) -> Option<IdentityProblem> {
        let here = self.problem_here(entry).map(|why| IdentityProblem { why, elsewhere: false });
        here.or_else(|| {
            self.problem_elsewhere(entry).map(|why| IdentityProblem { why, elsewhere: true })
        })
    }

    fn problem_here(&self, entry: &DeviceEntry<'_>) -> Option<String> {
        let name = &entry.device.name;
        let quarantine = self
            .quarantine(entry)
            .find(|one| one.reason != Reason::IdentityElsewhere)
            .map(|one| one.reason.message(&one.detail));
        let found = || {
            let own = entry.device.reasons.iter().find(|found| {
                found.reason.means(Meaning::Quarantine) && found.reason != Reason::IdentityElsewhere
            });
            own.map(DeviceReason::message)
        };
        if let Some(why) = quarantine.or_else(found) {
            return Some(format!("{name} {why}"));
        }
        // By several of its identities: more than one device claim on one device.
        let claims: usize = entry
            .candidates
            .iter()
            .filter_map(|candidate| self.claims.get(candidate.as_str()))
            .sum();
        (claims > 1).then(|| format!("two device claims name device {name}"))
    }

    fn problem_elsewhere(&self, entry: &DeviceEntry<'_>) -> Option<String> {
        let name = &entry.device.name;
        if let Some(place) = self.elsewhere(|identity| entry.candidates.contains(identity)) {
            return Some(format!("{name} {}", Reason::IdentityElsewhere.message(&place)));
        }
        let quarantine = self.quarantine(entry).next().map(|one| one.reason.message(&one.detail));
        let found = || {
            let is_it = |found: &&DeviceReason| found.reason == Reason::IdentityElsewhere;
            entry.device.reasons.iter().find(is_it).map(DeviceReason::message)
        };
        quarantine.or_else(found).map(|why| format!("{name} {why}"))
    }

    fn quarantine(&self, entry: &DeviceEntry<'_>) -> impl Iterator<Item = &'a Quarantine> {
        let spec = &self.world.inventory.spec;
        spec.quarantine.iter().filter(|one| entry.candidates.contains(&one.identity))
    }
}

/// The PersistentVolumes of the node by everything that may name a device.
#[derive(Default)]
struct Named<'a> {
    by_path: HashMap<&'a str, Vec<&'a str>>,
    by_id: HashMap<&'a str, Vec<&'a str>>,
    by_identity: HashMap<&'a str, Vec<&'a str>>,
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl<'a> Named<'a> {
    fn new(world: &'a NodeWorld) -> Self {
        let mut named = Named::default();
        for pv in &world.pvs {
            let name = pv.metadata.name.as_deref().unwrap_or_default();
            let path = pv.spec.as_ref().and_then(|spec| {
                spec.local
                    .as_ref()
                    .map(|local| &local.path)
                    .or(spec.host_path.as_ref().map(|host| &host.path))
            });
            if let Some(path) = path {
                named.by_path.entry(path).or_default().push(name);
                named.by_id.entry(base(path)).or_default().push(name);
            }
            let annotation = |key: &str| {
                pv.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key))
            };
            if let Some(noted) = annotation(names::LSO_DEVICE_ID_ANNOTATION) {
                named.by_id.entry(base(noted)).or_default().push(name);
            }
            if let Some(noted) = annotation(names::IDENTITY_ANNOTATION) {
                named.by_identity.entry(noted).or_default().push(name);
            }
        }
        named
    }

    /// Every PersistentVolume that names the device in some way.
    fn on(&self, device: &Device, candidates: &BTreeSet<String>) -> BTreeSet<&'a str> {
        let by_path = self.by_path.get(format!("/dev/{}", device.name).as_str());
        let by_id = device.device_id.as_deref().and_then(|id| self.by_id.get(base(id)));
        let by_identity =
            candidates.iter().filter_map(|candidate| self.by_identity.get(candidate.as_str()));
        by_path.into_iter().chain(by_id).chain(by_identity).flatten().copied().collect()
    }
}
