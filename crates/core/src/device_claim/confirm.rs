//! The agent's half of a device claim and of a wipe: is this the device, is it unused, is its content as expected?
//!
//! Decided from facts that the agent read while it held the device exclusively. The same function serves a confirmation
//! and a wipe; they differ in what the device may contain.

use super::content::{UNFIT_REMEDY, partitions, unfit_file_system, was_published};
use crate::device::{
    Content, GroupedDevice, Reason,
    identity::{is_recorded_device, is_world_wide, same_identity},
    records::{DataRecord, Partitions, concerns_grouped},
    verdict::{Finding, node_reasons},
};
use quarry_api::{
    NodeInventorySpec, NodeInventoryStatus,
    node_inventory::{ClaimContent, ClaimReport, ClaimState, DeviceClaim},
    node_job::WipePolicy,
    reason::Meaning,
    volume::VolumeMode,
};

/// What the agent does about a device claim when it scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAction {
    /// It belongs to another machine, or to another ledger: nothing is touched here.
    Frozen,
    /// The ledger knows that it is over: its link is removed.
    Outdated,
    /// The link is removed, and nothing else.
    End,
    /// Confirmed before. The device may be in use now: it is not opened again, only its link is kept correct.
    Keep,
    /// A job runs on the device.
    Wait,
    Confirm,
}

/// The agent's last report on this device claim: of this owner, in this round.
pub fn previous<'a>(
    claim: &DeviceClaim,
    status: Option<&'a NodeInventoryStatus>,
) -> Option<&'a ClaimReport> {
    status?.device_claims.iter().find(|report| super::answers(report, claim))
}

/// `frozen`: the node is not the one that the device claims were made on. `outdated`: the ledger knows that this one is
/// over.
pub fn decide_action(
    claim: &DeviceClaim,
    previous: Option<&ClaimReport>,
    frozen: bool,
    outdated: bool,
) -> ClaimAction {
    let confirmed = previous.is_some_and(|report| report.state == ClaimState::Confirmed);
    match (claim.terminating, confirmed) {
        _ if frozen => ClaimAction::Frozen,
        (true, _) => ClaimAction::End,
        (false, _) if outdated => ClaimAction::Outdated,
        (false, true) => ClaimAction::Keep,
        (false, false) if claim.job.is_some() => ClaimAction::Wait,
        (false, false) => ClaimAction::Confirm,
    }
}

/// What the device may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing at all.
    Blank,
    /// Anything except a partition table: an administrator has named the device.
    Any,
    /// A file system that fits the device claim, or nothing. kubelet creates one where it finds none, also over
    /// unrecognized data.
    Named,
    /// Anything, also unused partitions: it is about to be erased.
    Erasable,
    /// Nothing: it was erased before, for the same reason.
    Erased,
}

impl Expected {
    pub fn of_claim(claim: &DeviceClaim) -> Self {
        match (claim.content, claim.volume_mode) {
            (ClaimContent::Blank, _) => Expected::Blank,
            (ClaimContent::Any, VolumeMode::Block) => Expected::Any,
            (ClaimContent::Any, VolumeMode::Filesystem) => Expected::Named,
        }
    }

    /// A wipe for the PersistentVolume of this device claim; `Err`: why it is outdated. A device that was erased before was
    /// written to later, if at all, by an owner that an API restored from a backup does not know.
    pub fn of_wipe(claim: &DeviceClaim, known: &Remembered) -> Result<Self, String> {
        let since = known
            .confirmed
            .as_ref()
            .filter(|(owner, round)| *owner != claim.owner.uid || *round > claim.round);
        if known.retained {
            return Err(outdated("the ledger of this node records that its data is retained"));
        }
        if since.is_some() {
            return Err(outdated(
                "the ledger of this node records a later device claim on the device",
            ));
        }
        Ok(if known.erased.is_some() { Expected::Erased } else { Expected::Erasable })
    }

    /// The text of a refusal.
    pub fn explain(self, why: String) -> String {
        match self {
            Expected::Blank | Expected::Any | Expected::Named | Expected::Erasable => why,
            Expected::Erased => outdated(&format!(
                "the device was wiped for this PersistentVolume before and was written to since ({why})"
            )),
        }
    }

    fn is_empty(self) -> bool {
        match self {
            Expected::Blank | Expected::Erased => true,
            Expected::Any | Expected::Named | Expected::Erasable => false,
        }
    }

    /// Whether this reason does not matter here. Exhaustive: a new reason needs a decision.
    fn tolerates(self, reason: Reason) -> bool {
        match reason {
            // The agent holds it itself, for this device claim.
            Reason::HeldExclusively | Reason::Claimed | Reason::TooNew => true,
            // Decided when it was claimed, from the same facts: a set may name such devices.
            Reason::NotLocal => true,
            // Which file system fits is decided in `verify`, by the device claim.
            Reason::Signature => !self.is_empty(),
            Reason::PartitionTable => self == Expected::Erasable,
            Reason::UnknownData => !self.is_empty() && self != Expected::Named,
            // Decided in `verify`, by the device claim.
            Reason::RetainedData => true,
            Reason::Removable => self != Expected::Blank,
            Reason::HasChildren => self == Expected::Erasable,
            Reason::IdentityElsewhere
            | Reason::DuplicateIdentity
            | Reason::IdentityChanged
            | Reason::AmbiguousIdentity
            | Reason::NoIdentity
            | Reason::BacksVolume
            | Reason::BacksPersistentVolume
            | Reason::UnlistedPersistentVolumes
            | Reason::Mounted
            | Reason::Swap
            | Reason::HasHolders
            | Reason::LoopOnTop
            | Reason::BootLabel
            | Reason::ReadOnly
            | Reason::Suspended
            | Reason::ObservedOnly
            | Reason::NoMedium
            | Reason::ZeroSize
            | Reason::TimedOut
            | Reason::Unreadable
            | Reason::NotPermitted => false,
        }
    }
}

/// What the ledger of the node records; the API may be older (restored from a backup).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The data of this PersistentVolume was erased on this node, as thoroughly as this.
    pub erased: Option<WipePolicy>,
    /// The data of this PersistentVolume is retained.
    pub retained: bool,
    /// The last device claim that was confirmed on the device: the UID of its owner, and its round.
    pub confirmed: Option<(String, i64)>,
}

impl Remembered {
    /// The device was wiped before, at least as thoroughly as this.
    pub fn covers(&self, policy: WipePolicy) -> bool {
        self.erased.is_some_and(|done| done >= policy)
    }
}

fn outdated(why: &str) -> String {
    format!(
        "{why}; the API may have been restored from a backup; to delete the PersistentVolume and retain the data, set its persistentVolumeReclaimPolicy to Retain"
    )
}

/// The device of the device claim: exactly one device of the node has its identity. One that shows less than before
/// (udev was stopped) and contradicts nothing is found by what it still shows.
pub fn find<'a>(
    claim: &DeviceClaim,
    devices: &'a [GroupedDevice],
) -> Result<&'a GroupedDevice, String> {
    let identity = &claim.identity;
    match matching(claim, devices).as_slice() {
        [device] => Ok(device),
        [] => Err(format!("device {identity} is missing")),
        [one, other, ..] => Err(format!(
            "{} and {} both have the identity {identity}",
            one.facts.name, other.facts.name
        )),
    }
}

/// Every device that may be that of the device claim.
pub fn matching<'a>(claim: &DeviceClaim, devices: &'a [GroupedDevice]) -> Vec<&'a GroupedDevice> {
    let exact = |device: &&GroupedDevice| {
        is_recorded_device(&claim.identity, &claim.identifiers, &device.identified.candidates)
    };
    let weaker =
        |device: &&GroupedDevice| same_identity(&claim.identifiers, &device.identified.candidates);
    let found: Vec<&GroupedDevice> = devices.iter().filter(exact).collect();
    if found.is_empty() { devices.iter().filter(weaker).collect() } else { found }
}

/// Whether the device shows what it showed when it was claimed. One name that it shares with another disk (a serial that
/// a vendor used twice) is not enough.
fn verify_evidence(
    claim: &DeviceClaim,
    expected: Expected,
    device: &GroupedDevice,
) -> Result<(), String> {
    let now = &device.identified.candidates;
    let changed = |detail: &str| {
        Err(format!("{} {}", device.facts.name, Reason::IdentityChanged.message(detail)))
    };
    // Another serial beside the same world-wide name is a copied name.
    let other = !claim.identifiers.is_empty() && !same_identity(&claim.identifiers, now);
    if other || contradicts(&claim.identifiers, now) {
        return changed(&format!("it was {}", claim.identifiers.join(", ")));
    }
    let wipes = match expected {
        Expected::Erasable | Expected::Erased => true,
        Expected::Blank | Expected::Any | Expected::Named => false,
    };
    let world_wide = claim
        .identifiers
        .iter()
        .any(|identifier| is_world_wide(identifier) && now.contains(identifier));
    // One world-wide name is enough of them: that of a port changes with the port.
    let missing: Vec<&str> = claim
        .identifiers
        .iter()
        .filter(|one| !now.contains(one))
        .filter(|one| !world_wide || !is_world_wide(one))
        .map(String::as_str)
        .collect();
    if missing.is_empty() || (wipes && world_wide) {
        return Ok(());
    }
    changed(&format!("it does not show {} any more", missing.join(", ")))
}

/// The first record that concerns the device, by all that it is built on.
fn on_device<'a, R: DataRecord>(
    records: &'a [R],
    partitions: Partitions,
    device: &GroupedDevice,
    devices: &[GroupedDevice],
) -> Option<&'a R> {
    records.iter().find(|record| concerns_grouped(*record, partitions, device, devices))
}

/// Whether a form of identifier other than world-wide names is known of both, with no value in common.
fn contradicts(one: &[String], other: &[String]) -> bool {
    let form = |identifier: &str| identifier.split(':').next().unwrap_or_default().to_owned();
    let of_form = |all: &[String], wanted: &str| -> Vec<String> {
        all.iter().filter(|identifier| form(identifier) == wanted).cloned().collect()
    };
    one.iter().filter(|identifier| !is_world_wide(identifier)).any(|identifier| {
        let (mine, theirs) = (of_form(one, &form(identifier)), of_form(other, &form(identifier)));
        !theirs.is_empty() && !mine.iter().any(|value| theirs.contains(value))
    })
}

/// `Err`: why not.
pub fn verify(
    claim: &DeviceClaim,
    expected: Expected,
    devices: &[GroupedDevice],
    spec: &NodeInventorySpec,
) -> Result<(), String> {
    let device = find(claim, devices)?;
    let facts = &device.facts;
    verify_evidence(claim, expected, device)?;
    let size = i64::try_from(facts.size).unwrap_or(i64::MAX);
    if size != claim.size {
        return Err(format!("{} has {size} bytes, the device claim {}", facts.name, claim.size));
    }
    let rivals = spec.device_claims.iter().filter(|other| {
        **other != *claim && device.identified.candidates.contains(&other.identity)
    });
    if let Some(rival) = rivals.into_iter().next() {
        return Err(format!(
            "{} is also claimed by {}",
            facts.name,
            super::owner_text(&rival.owner)
        ));
    }
    // A link leads to one device: two owners must not get the same one.
    if let Some(rival) = spec
        .device_claims
        .iter()
        .find(|other| **other != *claim && !claim.link.is_empty() && other.link == claim.link)
    {
        return Err(format!(
            "link {} is also that of device {}, which is claimed by {}",
            claim.link,
            rival.identity,
            super::owner_text(&rival.owner)
        ));
    }
    // What is built on a disk belongs to the owner of the disk.
    if let Some(owner) = spec
        .device_claims
        .iter()
        .find(|other| **other != *claim && device.disk.contains(&other.identity))
    {
        return Err(format!(
            "{} is on a device that is claimed by {}",
            facts.name,
            super::owner_text(&owner.owner)
        ));
    }
    // A LocalVolume that adopts the data takes the device as it is, with its first confirmation.
    let partitions = partitions(claim);
    let confirms = matches!(expected, Expected::Any | Expected::Named);
    let blocks = expected == Expected::Blank || (confirms && was_published(claim));
    if let Some(retained) =
        on_device(&spec.retained_data, partitions, device, devices).filter(|_| blocks)
    {
        return Err(format!("{} {}", facts.name, Reason::RetainedData.message(&retained.pv_name)));
    }
    let exposes = claim.volume_mode == VolumeMode::Block
        && !was_published(claim)
        && (confirms || expected == Expected::Blank);
    if let Some(left) =
        on_device(&spec.wipe_remnants, partitions, device, devices).filter(|_| exposes)
    {
        return Err(format!("{} {}", facts.name, super::wipe_remnant_text(left)));
    }
    if spec.unmanaged_pvs_omitted.is_some_and(|count| count > 0) {
        return Err(format!("{} {}", facts.name, Reason::UnlistedPersistentVolumes.message("")));
    }
    let quarantine = spec
        .quarantine
        .iter()
        .filter(|entry| device.identified.candidates.contains(&entry.identity));
    if let Some(entry) = quarantine.into_iter().next() {
        return Err(format!("{} is quarantined: {} {}", facts.name, entry.reason, entry.detail));
    }
    let own = node_reasons(facts).into_iter().chain(device.findings.iter().cloned());
    if let Some((reason, detail)) = own.into_iter().find(|(reason, _)| !expected.tolerates(*reason))
    {
        return Err(format!("{} {}", facts.name, reason.message(&detail)));
    }
    if expected == Expected::Named
        && let Content::Found(found) = &facts.content
    {
        let signatures: Vec<&str> =
            found.ambivalent.iter().chain(&found.fs_type).map(String::as_str).collect();
        if let Some(why) = unfit_file_system(&signatures, claim.fs_type.as_deref()) {
            return Err(format!("{} {why}; {UNFIT_REMEDY}", facts.name));
        }
    }
    // Unread content is never accepted. Everything else was decided above, by its reason.
    match &facts.content {
        Content::Unread => return Err(format!("{} could not be read", facts.name)),
        Content::Blank
        | Content::Found(_)
        | Content::UnknownData
        | Content::NoMedium
        | Content::Unreadable(_)
        | Content::TimedOut
        | Content::NotPermitted => {}
    }
    // Its partitions: O_EXCL on the disk does not see a bind mount of a partition's node, nor a loop over one.
    let parts =
        devices.iter().filter(|part| part.facts.parent.as_deref() == Some(facts.name.as_str()));
    for part in parts {
        let used = |(reason, _): &Finding| reason.means(Meaning::InUse);
        if let Some((reason, detail)) = node_reasons(&part.facts).into_iter().find(used) {
            return Err(format!(
                "{}, a partition of {}, {}",
                part.facts.name,
                facts.name,
                reason.message(&detail)
            ));
        }
    }
    Ok(())
}
