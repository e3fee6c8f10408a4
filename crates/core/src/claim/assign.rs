//! Giving away what is free: every want in its rank, every device at most once, each answer with its reason.

use super::{
    NodeWorld,
    filter::Mismatch,
    index::{Index, Seen},
    is_frozen, is_released, kept_on, residue_on, residue_text,
    want::{Asks, Becomes, Covers, PathAsk, SetAsk, Want, owner_text},
};
use crate::device::{Reason, verdict::kept_detail};
use quarry_api::{
    names,
    node_inventory::{Claim, ClaimContent, ClaimOwner, Device, DeviceReason, DeviceState},
    node_job::hex_digest,
    volume::VolumeMode,
};
use std::collections::HashMap;

/// How one device, or one path, stands to one want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kernel's name; the path where no device is known.
    pub device: String,
    pub identity: Option<String>,
    pub size: i64,
    pub standing: Standing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has the device already.
    Has,
    /// It gets the device now.
    Gets,
    /// It is not what is asked for.
    Mismatch(Vec<Mismatch>),
    /// Somebody else has it, or gets it because he was there first.
    Taken(ClaimOwner),
    /// It may be usable soon: the settling time, an answer that is not there yet.
    Waiting(String),
    /// It may not be used.
    Refused(Vec<DeviceReason>),
    /// A PersistentVolume of somebody is on it.
    Published(String),
    /// Only the signatures of its last volume were erased, and this want would show the rest.
    Residue(String),
    BelowMin {
        found: usize,
        min: usize,
    },
    OverMax(usize),
    /// A path that leads to no device, or to one that another path of this want names, too.
    NoDevice(String),
    /// The claims of this node are about another machine.
    Frozen,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    pub claims: Vec<Claim>,
    pub paths: Vec<String>,
}

/// Who has, or gets, the device of an identity.
type Owners<'a> = HashMap<String, &'a ClaimOwner>;

fn owners(world: &NodeWorld) -> Owners<'_> {
    world.inventory.spec.claims.iter().map(|claim| (claim.identity.clone(), &claim.owner)).collect()
}

pub fn assign(world: &NodeWorld, index: &Index<'_>) -> Given {
    let mut given = Given::default();
    let mut owners = owners(world);
    for want in ranked(world) {
        for claim in rows(world, index, want, &owners).into_iter().filter_map(|(_, claim)| claim) {
            owners.insert(claim.identity.clone(), &want.owner);
            given.claims.push(claim);
        }
        given.paths.extend(unresolved(world, want));
    }
    given.paths.sort();
    given.paths.dedup();
    given
}

/// Each device of the node and what the want with this UID has to do with it: what `quarry plan` and `explain` show.
pub fn account(world: &NodeWorld, uid: &str) -> Vec<Row> {
    let index = Index::new(world);
    let mut owners = owners(world);
    for want in ranked(world) {
        let found = rows(world, &index, want, &owners);
        if want.owner.uid == uid {
            return found.into_iter().map(|(row, _)| row).collect();
        }
        owners.extend(
            found.into_iter().filter_map(|(_, claim)| Some((claim?.identity, &want.owner))),
        );
    }
    Vec::new()
}

/// Those who are for this node, the oldest first.
fn ranked(world: &NodeWorld) -> Vec<&Want> {
    let Some(node) = &world.node else { return Vec::new() };
    let mut wants: Vec<&Want> = world
        .wants
        .iter()
        .filter(|want| want.takes_more() && want.covers(node) == Covers::Yes)
        .collect();
    wants.sort_by(|a, b| a.rank().cmp(&b.rank()));
    wants
}

fn rows(
    world: &NodeWorld,
    index: &Index<'_>,
    want: &Want,
    owners: &Owners<'_>,
) -> Vec<(Row, Option<Claim>)> {
    match &want.asks {
        Asks::Set(set) => rows_of_set(world, index, want, set, owners),
        Asks::Paths(asked) => rows_of_paths(world, index, want, asked, owners),
    }
}

fn rows_of_set(
    world: &NodeWorld,
    index: &Index<'_>,
    want: &Want,
    set: &SetAsk,
    owners: &Owners<'_>,
) -> Vec<(Row, Option<Claim>)> {
    let has = world
        .inventory
        .spec
        .claims
        .iter()
        .filter(|claim| claim.owner.uid == want.owner.uid && !claim.ending)
        .count();
    let mut standings: Vec<(&Device, Result<(), Standing>)> = index
        .devices
        .iter()
        .map(|seen| (seen.device, usable_by_set(world, index, want, set, seen, owners)))
        .collect();
    // Not by kernel name, which changes: the same devices are taken whatever they are called today.
    standings.sort_by(|(a, _), (b, _)| (&a.identity, &a.name).cmp(&(&b.identity, &b.name)));
    let free = standings.iter().filter(|(_, standing)| standing.is_ok()).count();
    let mut room = set.max.map_or(usize::MAX, |max| max.saturating_sub(has));
    let enough = has + free >= set.min;
    standings
        .into_iter()
        .map(|(device, standing)| match standing {
            Err(standing) => (row(device, standing), None),
            Ok(()) if !enough => {
                (row(device, Standing::BelowMin { found: has + free, min: set.min }), None)
            }
            Ok(()) if room == 0 => {
                (row(device, Standing::OverMax(set.max.unwrap_or_default())), None)
            }
            Ok(()) => {
                room -= 1;
                (
                    row(device, Standing::Gets),
                    make(want, device, &set.becomes, ClaimContent::Blank, None),
                )
            }
        })
        .collect()
}

fn usable_by_set(
    world: &NodeWorld,
    index: &Index<'_>,
    want: &Want,
    set: &SetAsk,
    seen: &Seen<'_>,
    owners: &Owners<'_>,
) -> Result<(), Standing> {
    if let Some(standing) = owned(want, seen, owners) {
        return Err(standing);
    }
    let wrong = set.filter.mismatches(seen.device);
    if !wrong.is_empty() {
        return Err(Standing::Mismatch(wrong));
    }
    let named = |told: &DeviceReason| {
        told.reason == Reason::NotLocal.as_str()
            && set.not_local.iter().any(|kind| is_of_kind(&told.detail, kind))
    };
    usable(world, index, seen, set.becomes.mode, |told| !named(told))
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
    want: &Want,
    asked: &[PathAsk],
    owners: &Owners<'_>,
) -> Vec<(Row, Option<Claim>)> {
    let mut rows: Vec<(Row, Option<Claim>)> = Vec::new();
    for ask in asked {
        let blind = |standing: Standing| Row {
            device: ask.path.clone(),
            identity: None,
            size: 0,
            standing,
        };
        if let Some(claim) = claim_of_path(world, want, &ask.path) {
            rows.push((
                Row {
                    device: ask.path.clone(),
                    identity: Some(claim.identity.clone()),
                    size: claim.size,
                    standing: Standing::Has,
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
            rows.push((
                blind(Standing::Waiting("the agent has not looked the path up yet".into())),
                None,
            ));
            continue;
        };
        let named = |seen: &&Seen<'_>| {
            report
                .device
                .as_ref()
                .is_some_and(|name| seen.device.name == *name || seen.device.paths.contains(name))
        };
        let Some(seen) = index.devices.iter().find(named) else {
            let why = report
                .problem
                .clone()
                .unwrap_or_else(|| "it is no device that the node lists".to_owned());
            rows.push((blind(Standing::NoDevice(why)), None));
            continue;
        };
        let device = seen.device;
        let taken = rows.iter().any(|(_, claim)| {
            claim.as_ref().is_some_and(|claim| seen.candidates.contains(&claim.identity))
        });
        let standing = match owned(want, seen, owners) {
            // Not by this path, which has no claim.
            Some(Standing::Has) => Some(twice()),
            _ if taken => Some(twice()),
            other => other,
        };
        let mode = ask.becomes.mode;
        let adopted = kept_on(world, device).is_some_and(|kept| want.adopts.contains(&kept.pv_uid));
        let standing = standing
            .or_else(|| usable(world, index, seen, mode, |told| !stays(told, mode, adopted)).err());
        rows.push(match standing {
            Some(standing) => (Row { device: ask.path.clone(), ..row(device, standing) }, None),
            None => (
                row(device, Standing::Gets),
                make(want, device, &ask.becomes, ClaimContent::Any, Some(&ask.path)),
            ),
        });
    }
    rows
}

/// Whether a device that was named by its path is taken in spite of this: what is on it stays, and removable is what it
/// was meant to be. Not what nobody can name, as a file system: kubelet would take it for blank and format it. Not what
/// a volume left that is gone, unless the LocalVolume says that it means just that.
fn stays(told: &DeviceReason, mode: VolumeMode, adopted: bool) -> bool {
    match Reason::parse(&told.reason) {
        Some(Reason::Signature | Reason::PartitionTable | Reason::Removable) => true,
        Some(Reason::UnknownData) => mode == VolumeMode::Block,
        Some(Reason::KeptData) => adopted,
        _ => false,
    }
}

fn twice() -> Standing {
    Standing::NoDevice("another path of this object leads to the same device".into())
}

/// A path with a claim is not looked up again: it means the device that it meant then.
fn claim_of_path<'a>(world: &'a NodeWorld, want: &Want, path: &str) -> Option<&'a Claim> {
    world
        .inventory
        .spec
        .claims
        .iter()
        .find(|claim| claim.owner.uid == want.owner.uid && claim.path.as_deref() == Some(path))
}

fn unresolved(world: &NodeWorld, want: &Want) -> Vec<String> {
    match &want.asks {
        Asks::Set(_) => Vec::new(),
        Asks::Paths(asked) => asked
            .iter()
            .filter(|ask| claim_of_path(world, want, &ask.path).is_none())
            .map(|ask| ask.path.clone())
            .collect(),
    }
}

/// Whether somebody has the device: this want, another, or a PersistentVolume that nobody claims.
fn owned(want: &Want, seen: &Seen<'_>, owners: &Owners<'_>) -> Option<Standing> {
    if let Some(owner) = seen.candidates.iter().find_map(|candidate| owners.get(candidate)) {
        return Some(if owner.uid == want.owner.uid {
            Standing::Has
        } else {
            Standing::Taken((*owner).clone())
        });
    }
    seen.published.first().map(|pv| Standing::Published((*pv).to_owned()))
}

/// Whether a free device may be taken at all; `counts` says which of its reasons do.
fn usable(
    world: &NodeWorld,
    index: &Index<'_>,
    seen: &Seen<'_>,
    mode: VolumeMode,
    counts: impl Fn(&DeviceReason) -> bool,
) -> Result<(), Standing> {
    let device = seen.device;
    if is_frozen(world) || is_released(world) {
        return Err(Standing::Frozen);
    }
    if world.inventory.metadata.deletion_timestamp.is_some() {
        return Err(Standing::Waiting(
            "the node's NodeInventory was deleted: it goes when its last claim has ended, is made anew, and then devices are taken again".into(),
        ));
    }
    let told: Vec<DeviceReason> =
        device.reasons.iter().filter(|told| counts(told)).cloned().collect();
    // Waiting is what passes by itself; whatever is unknown for another reason is a refusal. Claimed it is not, or its owner
    // would have been told.
    let claimed = |told: &DeviceReason| told.reason == Reason::Claimed.as_str();
    if !told.is_empty()
        && told.iter().all(|told| told.reason == Reason::TooNew.as_str() || claimed(told))
    {
        let why = if told.iter().any(claimed) {
            "the agent has not looked at it since its last claim ended"
        } else {
            "it has not been there, unchanged, for the settling time yet"
        };
        return Err(Standing::Waiting(why.into()));
    }
    if !told.is_empty() {
        return Err(Standing::Refused(told));
    }
    // Every reason was one that does not count, or there was none: then the state itself must say so.
    if device.reasons.is_empty() && device.state != DeviceState::Available {
        return Err(Standing::Refused(Vec::new()));
    }
    if device.identity.is_none() || !device.settled {
        return Err(Standing::Waiting("the agent has not settled on it yet".into()));
    }
    // What the cluster has learned since the agent last judged.
    if let Some(kept) = kept_on(world, device) {
        let told = DeviceReason {
            reason: Reason::KeptData.as_str().to_owned(),
            detail: kept_detail(kept),
        };
        if counts(&told) {
            return Err(Standing::Refused(vec![told]));
        }
    }
    if let Some(left) = residue_on(world, device).filter(|_| mode == VolumeMode::Block) {
        return Err(Standing::Residue(residue_text(left)));
    }
    if let Some(why) = index.doubt(seen) {
        return Err(Standing::Refused(vec![DeviceReason {
            reason: Reason::AmbiguousIdentity.as_str().to_owned(),
            detail: why,
        }]));
    }
    if world.inventory.spec.foreign_pvs_left_out.is_some_and(|count| count > 0) {
        return Err(Standing::Refused(vec![DeviceReason {
            reason: Reason::UnlistedVolumes.as_str().to_owned(),
            detail: String::new(),
        }]));
    }
    Ok(())
}

fn row(device: &Device, standing: Standing) -> Row {
    Row {
        device: device.name.clone(),
        identity: device.identity.clone(),
        size: device.size,
        standing,
    }
}

fn make(
    want: &Want,
    device: &Device,
    becomes: &Becomes,
    content: ClaimContent,
    path: Option<&str>,
) -> Option<Claim> {
    let identity = device.identity.clone()?;
    let link = format!("{}/{}/{}", names::LINK_FOLDER, becomes.class, link_name(device, &identity));
    Some(Claim {
        identity,
        owner: want.owner.clone(),
        storage_class_name: becomes.class.clone(),
        volume_mode: becomes.mode,
        fs_type: becomes.fs_type.clone(),
        path: path.map(str::to_owned),
        size: device.size,
        content,
        link,
        round: 1,
        job: None,
        ending: false,
        last_volume: None,
    })
}

/// The by-id name, as shipped. A device without one gets a name from its identity: kernel names change.
fn link_name(device: &Device, identity: &str) -> String {
    let by_id = device
        .device_id
        .as_deref()
        .and_then(|id| id.rsplit('/').next())
        .filter(|name| !name.is_empty() && *name != "." && *name != "..");
    by_id.map_or_else(
        || format!("{}-{}", device.kind, &hex_digest(&[identity])[..16]),
        str::to_owned,
    )
}

impl Standing {
    /// For people: continues "sdb: …".
    pub fn sentence(&self) -> String {
        match self {
            Standing::Has => "has it".into(),
            Standing::Gets => "gets it".into(),
            Standing::Mismatch(wrong) => {
                wrong.iter().map(Mismatch::to_string).collect::<Vec<_>>().join("; ")
            }
            Standing::Taken(owner) => format!("{} has it", owner_text(owner)),
            Standing::Waiting(why) => why.clone(),
            Standing::Refused(told) if told.is_empty() => "the agent has not judged it".into(),
            Standing::Refused(told) => {
                let sentence = |told: &DeviceReason| {
                    Reason::parse(&told.reason)
                        .map_or_else(|| told.reason.clone(), |reason| reason.sentence(&told.detail))
                };
                told.iter().map(sentence).collect::<Vec<_>>().join("; ")
            }
            Standing::Published(pv) => format!("PersistentVolume {pv} is on it"),
            Standing::Residue(why) => why.clone(),
            Standing::BelowMin { found, min } => format!(
                "the node has {found} matching devices, minDeviceCount is {min}: none is used"
            ),
            Standing::OverMax(max) => format!("maxDeviceCount is {max}"),
            Standing::NoDevice(why) => why.clone(),
            Standing::Frozen => {
                "the node's claims are about another machine: release them first".into()
            }
        }
    }

    /// The word in events, metrics and tables.
    pub fn word(&self) -> &'static str {
        match self {
            Standing::Has => "Provisioned",
            Standing::Gets => "Matched",
            Standing::Mismatch(_) => "NotMatched",
            Standing::Taken(_) => "Taken",
            Standing::Waiting(_) => "Waiting",
            Standing::Refused(_) => "Refused",
            Standing::Published(_) => "Published",
            Standing::Residue(_) => "Residue",
            Standing::BelowMin { .. } => "BelowMinimum",
            Standing::OverMax(_) => "OverMaximum",
            Standing::NoDevice(_) => "NoDevice",
            Standing::Frozen => "Frozen",
        }
    }
}
