//! Assigns available devices: every demand in its rank, every device at most once, each result with its reason.

use super::{
    NodeWorld,
    content::unfit_device,
    demand::{
        Demand, DeviceSelection, NodeMatch, PathSelection, PvSettings, SetSelection, owner_text,
    },
    filter::Mismatch,
    index::{DeviceEntry, Index},
    is_frozen, is_released, retained_data_on, wipe_remnant_text, wipe_remnants_on,
};
use crate::{
    device::{
        Reason, by_id_link, group::published_candidates, records::Partitions,
        verdict::retained_data_detail,
    },
    inventory_room::{ClaimRoom, fitting_paths},
};
use quarry_api::{
    names,
    node_inventory::{ClaimContent, ClaimOwner, Device, DeviceClaim, DeviceReason, DeviceState},
    node_job::hex_digest,
    reason::{Class, Meaning},
    volume::VolumeMode,
};
use std::collections::{BTreeSet, HashMap};

/// One device, or one path, and its eligibility for one demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kernel's name; the path where no device is known.
    pub device: String,
    pub identity: Option<String>,
    pub size: i64,
    pub eligibility: Eligibility,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// The demand has the device already.
    Claimed,
    /// The demand gets the device now.
    Selected,
    /// The device does not match the demand.
    NotMatched(Vec<Mismatch>),
    /// Another owner has it, or gets it because its object is older.
    Taken(ClaimOwner),
    /// It may be usable soon: the settling time, a report that is missing.
    Waiting(String),
    /// It may not be used.
    Refused(Vec<DeviceReason>),
    /// An unmanaged PersistentVolume is on it.
    BacksPersistentVolume(String),
    /// Its content is not a file system that fits this demand.
    UnfitFileSystem(String),
    /// Only the signatures of its last PersistentVolume were erased, and this demand would expose the rest.
    WipeRemnant(String),
    BelowMinimum {
        found: usize,
        min: usize,
    },
    OverMaximum(usize),
    /// A path that resolves to no device, or to one that another path of this demand names.
    NoDevice(String),
    /// The NodeInventory is full.
    NoRoom(String),
    /// The device claims of this node belong to another machine.
    Frozen,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    pub claims: Vec<DeviceClaim>,
    pub paths: Vec<String>,
}

/// The owner that has, or gets, the device of an identity.
type Owners<'a> = HashMap<String, &'a ClaimOwner>;

fn owners(world: &NodeWorld) -> Owners<'_> {
    world
        .inventory
        .spec
        .device_claims
        .iter()
        .map(|claim| (claim.identity.clone(), &claim.owner))
        .collect()
}

/// What the NodeInventory still has room for.
struct Room<'a> {
    world: &'a NodeWorld,
    /// Read on first use: sizes are not needed while nothing is claimed.
    claims: Option<ClaimRoom>,
    /// The paths that the agent is asked about.
    paths: BTreeSet<String>,
}

impl<'a> Room<'a> {
    fn new(world: &'a NodeWorld) -> Self {
        let paths = ranked(world).into_iter().flat_map(|demand| unresolved(world, demand));
        let paths = fitting_paths(paths.collect(), &world.inventory);
        Room { world, claims: None, paths }
    }

    /// The row with its device claim, or with the reason why there is none.
    fn fit(&mut self, row: Row, claim: Option<DeviceClaim>) -> (Row, Option<DeviceClaim>) {
        let world = self.world;
        let Some(claim) = claim else { return (row, None) };
        let room = self.claims.get_or_insert_with(|| ClaimRoom::of(&world.inventory));
        if room.take(&claim) {
            return (row, Some(claim));
        }
        let claims = world.inventory.spec.device_claims.len();
        let why = format!(
            "the NodeInventory has no room for another device claim; it has {claims}, and {} devices",
            world.inventory.status.as_ref().map_or(0, |status| status.devices.len())
        );
        (Row { eligibility: Eligibility::NoRoom(why), ..row }, None)
    }
}

pub fn assign(world: &NodeWorld, index: &Index<'_>) -> Assignment {
    let mut room = Room::new(world);
    let mut claims = Vec::new();
    let mut owners = owners(world);
    for demand in ranked(world) {
        let found = rows(world, index, demand, &owners, &mut room);
        for claim in found.into_iter().filter_map(|(_, claim)| claim) {
            owners.insert(claim.identity.clone(), &demand.owner);
            claims.push(claim);
        }
    }
    Assignment { claims, paths: room.paths.into_iter().collect() }
}

/// Each device of the node and its eligibility for the demand with this UID: what `quarry plan` and `explain` show.
pub fn account(world: &NodeWorld, uid: &str) -> Vec<Row> {
    let index = Index::new(world);
    let mut room = Room::new(world);
    let mut owners = owners(world);
    for demand in ranked(world) {
        let found = rows(world, &index, demand, &owners, &mut room);
        if demand.owner.uid == uid {
            return found.into_iter().map(|(row, _)| row).collect();
        }
        owners.extend(
            found.into_iter().filter_map(|(_, claim)| Some((claim?.identity, &demand.owner))),
        );
    }
    Vec::new()
}

/// The demands for this node, the oldest first.
fn ranked(world: &NodeWorld) -> Vec<&Demand> {
    let Some(node) = &world.node else { return Vec::new() };
    let mut demands: Vec<&Demand> = world
        .demands
        .iter()
        .filter(|demand| demand.takes_more() && demand.match_node(node) == NodeMatch::Yes)
        .collect();
    demands.sort_by(|a, b| a.rank().cmp(&b.rank()));
    demands
}

fn rows(
    world: &NodeWorld,
    index: &Index<'_>,
    demand: &Demand,
    owners: &Owners<'_>,
    room: &mut Room<'_>,
) -> Vec<(Row, Option<DeviceClaim>)> {
    let found = match &demand.selection {
        DeviceSelection::Set(set) => rows_of_set(world, index, demand, set, owners),
        DeviceSelection::Paths(asked) => {
            rows_of_paths(world, index, demand, asked, owners, &room.paths)
        }
    };
    found.into_iter().map(|(row, claim)| room.fit(row, claim)).collect()
}

fn rows_of_set(
    world: &NodeWorld,
    index: &Index<'_>,
    demand: &Demand,
    set: &SetSelection,
    owners: &Owners<'_>,
) -> Vec<(Row, Option<DeviceClaim>)> {
    let has = world
        .inventory
        .spec
        .device_claims
        .iter()
        .filter(|claim| claim.owner.uid == demand.owner.uid && !claim.terminating)
        .count();
    let mut standings: Vec<(&Device, Result<(), Eligibility>)> = index
        .devices
        .iter()
        .map(|entry| (entry.device, usable_by_set(world, index, demand, set, entry, owners)))
        .collect();
    // Not by kernel name, which changes: the same devices are claimed whatever their names are.
    standings.sort_by(|(a, _), (b, _)| (&a.identity, &a.name).cmp(&(&b.identity, &b.name)));
    let free = standings.iter().filter(|(_, eligibility)| eligibility.is_ok()).count();
    let mut room = set.max.map_or(usize::MAX, |max| max.saturating_sub(has));
    let enough = has + free >= set.min;
    standings
        .into_iter()
        .map(|(device, eligibility)| match eligibility {
            Err(eligibility) => (row(device, eligibility), None),
            Ok(()) if !enough => {
                (row(device, Eligibility::BelowMinimum { found: has + free, min: set.min }), None)
            }
            Ok(()) if room == 0 => {
                (row(device, Eligibility::OverMaximum(set.max.unwrap_or_default())), None)
            }
            Ok(()) => {
                room -= 1;
                (
                    row(device, Eligibility::Selected),
                    make(demand, device, &set.settings, ClaimContent::Blank, None),
                )
            }
        })
        .collect()
}

fn usable_by_set(
    world: &NodeWorld,
    index: &Index<'_>,
    demand: &Demand,
    set: &SetSelection,
    entry: &DeviceEntry<'_>,
    owners: &Owners<'_>,
) -> Result<(), Eligibility> {
    if let Some(eligibility) = owned(demand, entry, owners) {
        return Err(eligibility);
    }
    let wrong = set.filter.mismatches(entry.device);
    if !wrong.is_empty() {
        return Err(Eligibility::NotMatched(wrong));
    }
    let named = |finding: &DeviceReason| {
        finding.reason == Reason::NotLocal
            && set.not_local.iter().any(|kind| is_of_kind(&finding.detail, kind))
    };
    usable(world, index, entry, set.settings.mode, |finding| !named(finding))
}

/// `nvme-tcp` is nvme, and nvme-tcp; "a file on nfs" is nfs. Whole words: an i is not iscsi.
fn is_of_kind(detail: &str, kind: &str) -> bool {
    detail.to_lowercase().split_whitespace().any(|word| {
        word == kind || word.strip_prefix(kind).is_some_and(|rest| rest.starts_with('-'))
    })
}

fn rows_of_paths(
    world: &NodeWorld,
    index: &Index<'_>,
    demand: &Demand,
    asked: &[PathSelection],
    owners: &Owners<'_>,
    resolved: &BTreeSet<String>,
) -> Vec<(Row, Option<DeviceClaim>)> {
    let mut rows: Vec<(Row, Option<DeviceClaim>)> = Vec::new();
    for ask in asked {
        let blind = |eligibility: Eligibility| Row {
            device: ask.path.clone(),
            identity: None,
            size: 0,
            eligibility,
        };
        if let Some(claim) = claim_of_path(world, demand, &ask.path) {
            rows.push((
                Row {
                    device: ask.path.clone(),
                    identity: Some(claim.identity.clone()),
                    size: claim.size,
                    eligibility: Eligibility::Claimed,
                },
                None,
            ));
            continue;
        }
        let reports = world
            .inventory
            .status
            .as_ref()
            .map(|status| status.paths.as_slice())
            .unwrap_or_default();
        let Some(report) = reports.iter().find(|report| report.path == ask.path) else {
            let eligibility = if resolved.contains(&ask.path) {
                Eligibility::Waiting("the agent has not resolved the path yet".into())
            } else {
                Eligibility::NoRoom(
                    "LocalVolumes name more paths than the NodeInventory has room for; the path is not resolved".into(),
                )
            };
            rows.push((blind(eligibility), None));
            continue;
        };
        let named = |entry: &&DeviceEntry<'_>| {
            report
                .device
                .as_ref()
                .is_some_and(|name| entry.device.name == *name || entry.device.paths.contains(name))
        };
        let Some(entry) = index.devices.iter().find(named) else {
            let why = report
                .problem
                .clone()
                .unwrap_or_else(|| "it is not a device in the NodeInventory".to_owned());
            rows.push((blind(Eligibility::NoDevice(why)), None));
            continue;
        };
        let device = entry.device;
        let taken = rows.iter().any(|(_, claim)| {
            claim.as_ref().is_some_and(|claim| entry.candidates.contains(&claim.identity))
        });
        let eligibility = match owned(demand, entry, owners) {
            // Not by this path, which has no device claim.
            Some(Eligibility::Claimed) => Some(twice()),
            _ if taken => Some(twice()),
            other => other,
        };
        let mode = ask.settings.mode;
        let retained = retained_data_on(world, device, Partitions::New);
        let adopted = !retained.is_empty()
            && retained.iter().all(|retained| demand.adopts.contains(&retained.pv_uid));
        let eligibility = eligibility.or_else(|| {
            usable(world, index, entry, mode, |finding| !stays(finding, mode, adopted)).err()
        });
        let eligibility = eligibility.or_else(|| {
            let why = unfit_device(device, mode, ask.settings.fs_type.as_deref())?;
            Some(Eligibility::UnfitFileSystem(why))
        });
        rows.push(match eligibility {
            Some(eligibility) => {
                (Row { device: ask.path.clone(), ..row(device, eligibility) }, None)
            }
            None => (
                row(device, Eligibility::Selected),
                make(demand, device, &ask.settings, ClaimContent::Any, Some(&ask.path)),
            ),
        });
    }
    rows
}

/// Whether a device that was named by its path is claimed in spite of this reason: its content is kept, and it may be
/// removable. Not unrecognized data as a file system: kubelet would take it for blank and format it. Not retained data,
/// unless the LocalVolume adopts it.
fn stays(finding: &DeviceReason, mode: VolumeMode, adopted: bool) -> bool {
    let Some(reason) = finding.reason.known() else { return false };
    match reason.class() {
        // Which file system fits is decided apart from it.
        Class::Content => reason != Reason::UnknownData || mode == VolumeMode::Block,
        Class::Nature => reason == Reason::Removable,
        Class::Owner => reason == Reason::RetainedData && adopted,
        Class::Identity | Class::Use | Class::Probe => false,
    }
}

fn twice() -> Eligibility {
    Eligibility::NoDevice("another path of this object resolves to the same device".into())
}

/// A path with a device claim is not resolved again: it means the device that it meant then.
fn claim_of_path<'a>(world: &'a NodeWorld, demand: &Demand, path: &str) -> Option<&'a DeviceClaim> {
    world
        .inventory
        .spec
        .device_claims
        .iter()
        .find(|claim| claim.owner.uid == demand.owner.uid && claim.path.as_deref() == Some(path))
}

fn unresolved(world: &NodeWorld, demand: &Demand) -> Vec<String> {
    match &demand.selection {
        DeviceSelection::Set(_) => Vec::new(),
        DeviceSelection::Paths(asked) => asked
            .iter()
            .filter(|ask| claim_of_path(world, demand, &ask.path).is_none())
            .map(|ask| ask.path.clone())
            .collect(),
    }
}

/// Whether the device has an owner: this demand, another, or an unmanaged PersistentVolume.
fn owned(demand: &Demand, entry: &DeviceEntry<'_>, owners: &Owners<'_>) -> Option<Eligibility> {
    if let Some(owner) = entry.candidates.iter().find_map(|candidate| owners.get(candidate)) {
        return Some(if owner.uid == demand.owner.uid {
            Eligibility::Claimed
        } else {
            Eligibility::Taken((*owner).clone())
        });
    }
    entry.published.first().map(|pv| Eligibility::BacksPersistentVolume((*pv).to_owned()))
}

/// Whether a device without an owner may be claimed at all; `counts` selects the reasons that matter.
fn usable(
    world: &NodeWorld,
    index: &Index<'_>,
    entry: &DeviceEntry<'_>,
    mode: VolumeMode,
    counts: impl Fn(&DeviceReason) -> bool,
) -> Result<(), Eligibility> {
    let device = entry.device;
    if is_frozen(world) || is_released(world) {
        return Err(Eligibility::Frozen);
    }
    if world.inventory.metadata.deletion_timestamp.is_some() {
        return Err(Eligibility::Waiting(
            "the NodeInventory of the node is being deleted; devices are claimed again after its last device claim has ended and it was recreated".into(),
        ));
    }
    let finding: Vec<DeviceReason> =
        device.reasons.iter().filter(|finding| counts(finding)).cloned().collect();
    // Waiting is for what passes without intervention; any other unknown is a refusal. Claimed is outdated here: the owner of
    // an existing device claim was found above.
    let claimed = |finding: &DeviceReason| finding.reason.means(Meaning::Owned);
    if !finding.is_empty() && finding.iter().all(passes) {
        let why = if finding.iter().any(claimed) {
            "the agent has not scanned it since its last device claim ended"
        } else {
            "it has been unchanged for less than the settling time"
        };
        return Err(Eligibility::Waiting(why.into()));
    }
    if !finding.is_empty() {
        return Err(Eligibility::Refused(finding));
    }
    // No reason counts: without any reason, the state itself must be Available.
    if device.reasons.is_empty() && device.state != DeviceState::Available {
        return Err(Eligibility::Refused(Vec::new()));
    }
    if device.identity.is_none() || !device.settled {
        return Err(Eligibility::Waiting("it has not settled yet".into()));
    }
    // What the cluster has learned since the agent's last verdict.
    if let Some(retained) = retained_data_on(world, device, Partitions::New).first() {
        let finding = DeviceReason::new(Reason::RetainedData, retained_data_detail(retained));
        if counts(&finding) {
            return Err(Eligibility::Refused(vec![finding]));
        }
    }
    let left = wipe_remnants_on(world, device, Partitions::New);
    if let Some(left) = left.first().filter(|_| mode == VolumeMode::Block) {
        return Err(Eligibility::WipeRemnant(wipe_remnant_text(left)));
    }
    if let Some(quarantine) = index.identity_problem(entry) {
        let finding = DeviceReason::new(Reason::AmbiguousIdentity, quarantine.why);
        return Err(Eligibility::Refused(vec![finding]));
    }
    if world.inventory.spec.unmanaged_pvs_omitted.is_some_and(|count| count > 0) {
        let finding = DeviceReason::new(Reason::UnlistedPersistentVolumes, "");
        return Err(Eligibility::Refused(vec![finding]));
    }
    Ok(())
}

/// Passes with time alone: not what another process holds, and not what could not be read.
fn passes(finding: &DeviceReason) -> bool {
    let reason = &finding.reason;
    reason.is_transient() && !reason.means(Meaning::Unread) && reason.class() != Some(Class::Use)
}

fn row(device: &Device, eligibility: Eligibility) -> Row {
    Row {
        device: device.name.clone(),
        identity: device.identity.clone(),
        size: device.size,
        eligibility,
    }
}

fn make(
    demand: &Demand,
    device: &Device,
    settings: &PvSettings,
    content: ClaimContent,
    path: Option<&str>,
) -> Option<DeviceClaim> {
    let identity = device.identity.clone()?;
    let link =
        format!("{}/{}/{}", names::LINK_DIRECTORY, settings.class, link_name(device, &identity));
    Some(DeviceClaim {
        identity,
        id: String::new(),
        identifiers: published_candidates(device).into_iter().collect(),
        owner: demand.owner.clone(),
        storage_class_name: settings.class.clone(),
        volume_mode: settings.mode,
        fs_type: settings.fs_type.clone(),
        path: path.map(str::to_owned),
        size: device.size,
        content,
        link,
        round: 1,
        job: None,
        terminating: false,
        last_pv: None,
    })
}

/// The by-id name, as upstream. A device without one gets a name from its identity: kernel names change.
fn link_name(device: &Device, identity: &str) -> String {
    let by_id = device
        .device_id
        .as_deref()
        .and_then(|id| id.rsplit('/').next())
        .filter(|name| !name.is_empty() && *name != "." && *name != "..")
        .filter(|name| by_id_link::is_given_by_hardware(name));
    by_id.map_or_else(
        || format!("{}-{}", device.kind, &hex_digest(&[identity])[..16]),
        str::to_owned,
    )
}

impl Eligibility {
    /// Human-readable: continues "sdb: …".
    pub fn message(&self) -> String {
        match self {
            Eligibility::Claimed => "has it".into(),
            Eligibility::Selected => "gets it".into(),
            Eligibility::NotMatched(wrong) => {
                wrong.iter().map(Mismatch::to_string).collect::<Vec<_>>().join("; ")
            }
            Eligibility::Taken(owner) => format!("{} has it", owner_text(owner)),
            Eligibility::Waiting(why) => why.clone(),
            Eligibility::Refused(finding) if finding.is_empty() => {
                "the agent has not reported a verdict".into()
            }
            Eligibility::Refused(finding) => {
                finding.iter().map(DeviceReason::message).collect::<Vec<_>>().join("; ")
            }
            Eligibility::BacksPersistentVolume(pv) => format!("PersistentVolume {pv} is on it"),
            Eligibility::UnfitFileSystem(why) | Eligibility::WipeRemnant(why) => why.clone(),
            Eligibility::BelowMinimum { found, min } => format!(
                "the node has {found} matching devices, spec.minDeviceCount is {min}; none is used"
            ),
            Eligibility::OverMaximum(max) => format!("spec.maxDeviceCount is {max}"),
            Eligibility::NoDevice(why) | Eligibility::NoRoom(why) => why.clone(),
            Eligibility::Frozen => {
                "the device claims of the node belong to another machine; release them first".into()
            }
        }
    }

    /// The word in events, metrics and tables.
    pub fn as_str(&self) -> &'static str {
        match self {
            Eligibility::Claimed => "Claimed",
            Eligibility::Selected => "Selected",
            Eligibility::NotMatched(_) => "NotMatched",
            Eligibility::Taken(_) => "Taken",
            Eligibility::Waiting(_) => "Waiting",
            Eligibility::Refused(_) => "Refused",
            Eligibility::BacksPersistentVolume(_) => "BacksPersistentVolume",
            Eligibility::UnfitFileSystem(_) => "UnfitFileSystem",
            Eligibility::WipeRemnant(_) => "WipeRemnant",
            Eligibility::BelowMinimum { .. } => "BelowMinimum",
            Eligibility::OverMaximum(_) => "OverMaximum",
            Eligibility::NoDevice(_) => "NoDevice",
            Eligibility::NoRoom(_) => "NoRoom",
            Eligibility::Frozen => "Frozen",
        }
    }
}
