//! What depends on the other devices of the node: multipath maps, equal identities, changed identities.

use super::{
    facts::{Content, Facts},
    identity::{IdentityResult, identify, is_recorded_device, same_identity, slot_serial},
    returning_path::{Path, path_of, returning_paths},
    verdict::Finding,
};
use quarry_api::{
    node_inventory::{Device, DeviceClaim, NodeInventoryStatus},
    reason::{Meaning, Reason},
};
use std::collections::{BTreeMap, BTreeSet};

/// A device with its identity and what follows from the other devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedDevice {
    pub facts: Facts,
    pub identified: IdentityResult,
    /// The paths that were folded into this map.
    pub paths: Vec<String>,
    /// The by-id names of those paths: they name the disk, and may resolve to a path instead of the map.
    pub path_links: Vec<String>,
    /// Those of its paths that multipathd has not added to the map again yet.
    pub returning: Vec<Path>,
    /// Everything that identifies the devices below it: the owner of a disk owns its partitions and what is built on them.
    pub disk: Vec<String>,
    pub findings: Vec<Finding>,
}

/// The devices of a node: paths folded into their map, identities compared with each other and with the last scan.
pub fn group(
    seen: &[Facts],
    previous: Option<&NodeInventoryStatus>,
    boot_id: Option<&str>,
    accepted: &[String],
) -> Vec<GroupedDevice> {
    group_with_overdue(seen, previous, boot_id, accepted, &BTreeSet::new())
}

/// As `group`, for a caller that measures how long a returning path has been waiting (`returning_path.rs`).
pub fn group_with_overdue(
    seen: &[Facts],
    previous: Option<&NodeInventoryStatus>,
    boot_id: Option<&str>,
    accepted: &[String],
    overdue: &BTreeSet<Path>,
) -> Vec<GroupedDevice> {
    let previous =
        previous.filter(|previous| boot_id.is_some() && previous.boot_id.as_deref() == boot_id);
    let mut known = fold(seen, previous, overdue);
    duplicates(&mut known);
    if let Some(previous) = previous {
        changed(&mut known, previous, accepted);
    }
    inherit_from_below(&mut known);
    for device in &mut known {
        if let Some(why) = device.identified.contradiction.clone() {
            device.findings.push((Reason::AmbiguousIdentity, why));
        }
        // Whether a device that could not be read has an identity is unknown.
        let asked = !matches!(
            device.facts.content,
            Content::TimedOut | Content::NotPermitted | Content::Unread
        );
        if device.identified.identity.is_none() && asked {
            let detail = slot_serial(&device.facts).map_or_else(String::new, |serial| {
                format!("its serial {serial} is that of its slot")
            });
            device.findings.push((Reason::NoIdentity, detail));
        }
    }
    known
}

/// Paths under one map are one device: what is true of a path or of a partition on it is true of the map.
fn fold(
    seen: &[Facts],
    previous: Option<&NodeInventoryStatus>,
    overdue: &BTreeSet<Path>,
) -> Vec<GroupedDevice> {
    let maps: Vec<(&Facts, IdentityResult)> = seen
        .iter()
        .filter(|facts| facts.kind == "mpath")
        .map(|map| (map, common_identity(&paths_of(map, seen))))
        .collect();
    let mut owner: BTreeMap<&str, &str> = BTreeMap::new();
    for (map, _) in &maps {
        for path in &map.slaves {
            owner.insert(path, &map.name);
        }
    }
    let identities: Vec<(&Facts, Vec<String>)> =
        maps.iter().map(|(map, identified)| (*map, identified.candidates.clone())).collect();
    let returning = previous.map_or_else(BTreeMap::new, |previous| {
        returning_paths(seen, &identities, previous, overdue)
    });
    owner.extend(&returning);
    let under = |facts: &Facts| {
        owner.get(facts.name.as_str()).or_else(|| owner.get(facts.parent.as_deref()?)).copied()
    };
    let mut known: Vec<GroupedDevice> = seen
        .iter()
        .filter(|facts| under(facts).is_none())
        .map(|facts| GroupedDevice {
            facts: facts.clone(),
            identified: identify(facts),
            paths: Vec::new(),
            path_links: Vec::new(),
            returning: Vec::new(),
            disk: Vec::new(),
            findings: Vec::new(),
        })
        .collect();
    for (map, identified) in maps {
        let Some(device) = known.iter_mut().find(|device| device.facts.name == map.name) else {
            continue;
        };
        let belongs = |facts: &&Facts| owner.get(facts.name.as_str()) == Some(&map.name.as_str());
        let returns = |facts: &&Facts| returning.contains_key(facts.name.as_str());
        let paths: Vec<&Facts> = seen.iter().filter(belongs).collect();
        let below: Vec<&Facts> =
            seen.iter().filter(|facts| under(facts) == Some(map.name.as_str())).collect();
        device.paths = paths.iter().map(|path| path.name.clone()).collect();
        device.path_links = paths.iter().flat_map(|path| path.by_id.iter().cloned()).collect();
        device.returning = seen.iter().filter(belongs).filter(returns).map(path_of).collect();
        // Not from a path that returns: it may not have reported everything yet.
        device.identified = identified;
        inherit(&mut device.facts, &paths_of(map, seen), &below);
    }
    known
}

/// The paths that the kernel has under a map.
fn paths_of<'a>(map: &Facts, seen: &'a [Facts]) -> Vec<&'a Facts> {
    seen.iter().filter(|facts| map.slaves.contains(&facts.name)).collect()
}

/// The strongest that all paths agree on.
fn common_identity(paths: &[&Facts]) -> IdentityResult {
    let each: Vec<IdentityResult> = paths.iter().map(|path| identify(path)).collect();
    let Some((first, others)) = each.split_first() else { return IdentityResult::default() };
    let candidates: Vec<String> = first
        .candidates
        .iter()
        .filter(|one| others.iter().all(|other| other.candidates.contains(one)))
        .cloned()
        .collect();
    let own = each.iter().find_map(|one| one.contradiction.clone());
    let disagree = candidates.is_empty() && each.iter().any(|one| !one.candidates.is_empty());
    let contradiction =
        own.or_else(|| disagree.then(|| "its paths report different identities".to_owned()));
    IdentityResult { identity: candidates.first().cloned(), candidates, contradiction }
}

fn inherit(map: &mut Facts, paths: &[&Facts], below: &[&Facts]) {
    if let Some(first) = paths.first() {
        map.model = map.model.take().or_else(|| first.model.clone());
        map.vendor = map.vendor.take().or_else(|| first.vendor.clone());
        map.serial = map.serial.take().or_else(|| first.serial.clone());
        map.transport = map.transport.take().or_else(|| first.transport.clone());
        if map.evidence.iter().all(|evidence| evidence.source == "sysfs:dm-uuid") {
            map.evidence.extend(first.evidence.iter().cloned());
        }
    }
    for path in below {
        map.read_only |= path.read_only;
        map.removable |= path.removable;
        map.swap |= path.swap;
        map.not_local = map.not_local.take().or_else(|| path.not_local.clone());
        map.mounts.extend(path.mounts.iter().cloned());
        map.loops_on_top.extend(path.loops_on_top.iter().cloned());
        map.holders.extend(path.holders.iter().filter(|holder| **holder != map.name).cloned());
        map.backs.extend(path.backs.iter().cloned());
    }
    for list in [&mut map.mounts, &mut map.loops_on_top, &mut map.holders, &mut map.backs] {
        list.sort();
        list.dedup();
    }
}

/// What is true of a disk is true of its partitions and of what is built on it: its owner, a use that O_EXCL does not
/// see (a bind mount of its device node, a loop on top), and its quarantine.
fn inherit_from_below(known: &mut [GroupedDevice]) {
    let bases: BTreeSet<String> = known
        .iter()
        .flat_map(|device| device.facts.parent.iter().chain(&device.facts.slaves))
        .cloned()
        .collect();
    if bases.is_empty() {
        return;
    }
    // Stacks are a few devices high: partition, array, volume group, encryption.
    for _ in 0..4 {
        let below: BTreeMap<String, GroupedDevice> = known
            .iter()
            .filter(|device| bases.contains(&device.facts.name))
            .map(|device| (device.facts.name.clone(), device.clone()))
            .collect();
        for device in known.iter_mut() {
            for base in device
                .facts
                .parent
                .iter()
                .chain(&device.facts.slaves)
                .filter_map(|name| below.get(name))
            {
                for owned in base.identified.candidates.iter().chain(&base.disk) {
                    if !device.disk.contains(owned) && !device.identified.candidates.contains(owned)
                    {
                        device.disk.push(owned.clone());
                    }
                }
                let facts = &base.facts;
                let mut findings: Vec<Finding> = Vec::new();
                findings
                    .extend(facts.volume_uid.iter().map(|uid| (Reason::BacksVolume, uid.clone())));
                findings.extend(
                    facts.backs.iter().map(|pv| (Reason::BacksPersistentVolume, pv.clone())),
                );
                findings.extend(
                    facts
                        .mounts
                        .iter()
                        .map(|at| (Reason::Mounted, format!("{at} (all of {})", facts.name))),
                );
                findings.extend(facts.loops_on_top.iter().map(|name| {
                    (Reason::LoopOnTop, format!("{name} (over all of {})", facts.name))
                }));
                findings
                    .extend(facts.swap.then(|| (Reason::Swap, format!("all of {}", facts.name))));
                let handed_down = |reason: Reason| {
                    reason.means(Meaning::Quarantine) || reason.means(Meaning::InUse)
                };
                findings.extend(
                    base.findings.iter().filter(|(reason, _)| handed_down(*reason)).cloned(),
                );
                for one in findings {
                    if !device.findings.contains(&one) {
                        device.findings.push(one);
                    }
                }
            }
        }
    }
}

/// Equal identities without a map: each device names the others.
fn duplicates(known: &mut [GroupedDevice]) {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, device) in known.iter().enumerate() {
        let file = device.facts.backing.as_ref().and_then(|backing| backing.file.as_deref());
        for candidate in device.identified.candidates.iter().map(String::as_str).chain(file) {
            places.entry(candidate).or_default().push(index);
        }
    }
    let mut others: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for alike in places.values().filter(|alike| alike.len() > 1) {
        for one in alike {
            let equals = alike
                .iter()
                .filter(|other| *other != one && same_device(&known[*one], &known[**other]));
            others
                .entry(*one)
                .or_default()
                .extend(equals.map(|other| known[*other].facts.name.as_str()));
        }
    }
    let findings: Vec<(usize, String)> = others
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(index, names)| (index, names.into_iter().collect::<Vec<_>>().join(", ")))
        .collect();
    for (index, names) in findings {
        known[index].findings.push((Reason::DuplicateIdentity, names));
    }
}

/// Loops over one file are one device under any path.
fn same_device(one: &GroupedDevice, other: &GroupedDevice) -> bool {
    let file = |device: &GroupedDevice| {
        device.facts.backing.as_ref().and_then(|backing| backing.file.clone())
    };
    (file(one).is_some() && file(one) == file(other))
        || same_identity(&one.identified.candidates, &other.identified.candidates)
}

/// The same disk for the kernel (name and sequence number) with another identity.
///
/// Evidence that only grew or shrank (udev started or stopped) shares a candidate with the last scan. The finding stays
/// until the new identity is accepted, and ends with the disk or the boot; the operator's quarantine of that identity
/// outlives both (`crate::quarantine`).
fn changed(known: &mut [GroupedDevice], previous: &NodeInventoryStatus, accepted: &[String]) {
    let before: BTreeMap<&str, &Device> =
        previous.devices.iter().map(|device| (device.name.as_str(), device)).collect();
    for device in known.iter_mut().filter(|device| device.facts.kind != "part") {
        if device.identified.candidates.is_empty() {
            continue;
        }
        let Some(was) = before.get(device.facts.name.as_str()) else { continue };
        let same_disk = was.diskseq.is_some()
            && was.diskseq == device.facts.diskseq.and_then(|seq| i64::try_from(seq).ok());
        if !same_disk || device.identified.candidates.iter().any(|one| accepted.contains(one)) {
            continue;
        }
        let earlier = published_candidates(was);
        let shared = device.identified.candidates.iter().any(|now| earlier.contains(now));
        let still = was.reasons.iter().find(|reason| reason.reason == Reason::IdentityChanged);
        match still {
            Some(still) if shared => {
                device.findings.push((Reason::IdentityChanged, still.detail.clone()))
            }
            Some(_) | None if shared || earlier.is_empty() => {}
            Some(_) | None => {
                let was =
                    was.identity.clone().or_else(|| earlier.first().cloned()).unwrap_or_default();
                device.findings.push((Reason::IdentityChanged, format!("it was {was}")));
            }
        }
    }
}

/// A claimed disk that is missing, and a disk that has some of its names and contradicts the others: it is not known
/// whether this is the disk, with another controller or firmware, or another one. It is neither used nor taken for the
/// missing one until an administrator has accepted it.
pub fn partial_matches(known: &mut [GroupedDevice], claims: &[DeviceClaim], accepted: &[String]) {
    let absent = |claim: &&DeviceClaim| {
        let DeviceClaim { identity, identifiers, .. } = claim;
        !known
            .iter()
            .any(|device| is_recorded_device(identity, identifiers, &device.identified.candidates))
    };
    for claim in claims.iter().filter(absent).collect::<Vec<_>>() {
        for device in known.iter_mut() {
            let candidates = &device.identified.candidates;
            let partial = candidates.iter().any(|one| claim.identifiers.contains(one))
                && !same_identity(&claim.identifiers, candidates);
            let finding = (Reason::IdentityChanged, format!("it was {}", claim.identity));
            if partial
                && !candidates.iter().any(|one| accepted.contains(one))
                && !device.findings.contains(&finding)
            {
                device.findings.push(finding);
            }
        }
    }
}

/// Everything that identifies a device, as far as it was published: a very large node omits the evidence.
pub fn published_candidates(device: &Device) -> BTreeSet<String> {
    let facts = Facts {
        kind: device.kind.clone(),
        transport: device.transport.clone(),
        evidence: device.evidence.clone(),
        ..Facts::default()
    };
    identify(&facts).candidates.into_iter().chain(device.identity.clone()).collect()
}
