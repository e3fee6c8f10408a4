//! The agent's half of a claim and of a wipe: is this the device, is nobody using it, is on it what may be?
//!
//! Asked of facts that were read while the device was held exclusively, by whoever holds it. The same function answers
//! for a confirmation and for a wipe; they differ in what may be on the device.

use crate::device::{
    Content, GroupedDevice, Reason,
    verdict::{Finding, node_reasons},
};
use quarry_api::{
    NodeInventorySpec, NodeInventoryStatus,
    node_inventory::{ClaimContent, ClaimReport, ClaimState, DeviceClaim},
    reason::Meaning,
    volume::VolumeMode,
};

/// What the agent does about a claim when it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAction {
    /// It is about the devices of another machine: nothing of it is touched here.
    Frozen,
    /// The link goes, and nothing else.
    End,
    /// Confirmed before. The device may be in use by now: it is not opened again, only its link is kept true.
    Keep,
    /// A job is under way on the device.
    Wait,
    Confirm,
}

/// What the agent said to this very claim: of this owner, in this round.
pub fn previous<'a>(
    claim: &DeviceClaim,
    status: Option<&'a NodeInventoryStatus>,
) -> Option<&'a ClaimReport> {
    status?.device_claims.iter().find(|report| super::answers(report, claim))
}

/// `machine_id` is that of the machine that the agent runs on.
pub fn decide_action(
    claim: &DeviceClaim,
    previous: Option<&ClaimReport>,
    spec: &NodeInventorySpec,
    machine_id: Option<&str>,
) -> ClaimAction {
    let other_machine = super::is_other_machine(spec, Some(machine_id));
    let confirmed = previous.is_some_and(|report| report.state == ClaimState::Confirmed);
    match (other_machine, claim.terminating, confirmed) {
        (true, _, _) => ClaimAction::Frozen,
        (false, true, _) => ClaimAction::End,
        (false, false, true) => ClaimAction::Keep,
        (false, false, false) if claim.job.is_some() => ClaimAction::Wait,
        (false, false, false) => ClaimAction::Confirm,
    }
}

/// What may be on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing at all.
    Blank,
    /// Anything, partitions excepted: an administrator has named the device.
    Any,
    /// The same for a file system, which kubelet makes where it finds none: what nobody can name must not be there.
    Named,
    /// Anything, partitions that nobody uses included: it is about to be erased.
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

    /// A wipe for the volume of this claim; `Err` says why it is none of this time. What was erased before was written
    /// to later, if at all, by somebody whom an API that was restored from a backup does not know any more.
    pub fn of_wipe(claim: &DeviceClaim, known: &Remembered) -> Result<Self, String> {
        let since = known
            .confirmed
            .as_ref()
            .filter(|(owner, round)| *owner != claim.owner.uid || *round > claim.round);
        if known.retained {
            return Err(outdated("it was decided on this node that its data is kept"));
        }
        if since.is_some() {
            return Err(outdated("the device was given to another volume since"));
        }
        Ok(if known.erased { Expected::Erased } else { Expected::Erasable })
    }

    /// Of a refusal, for people.
    pub fn explain(self, why: String) -> String {
        match self {
            Expected::Blank | Expected::Any | Expected::Named | Expected::Erasable => why,
            Expected::Erased => outdated(&format!(
                "the device was erased for this PersistentVolume before, and has been written to since ({why})"
            )),
        }
    }

    fn is_empty(self) -> bool {
        match self {
            Expected::Blank | Expected::Erased => true,
            Expected::Any | Expected::Named | Expected::Erasable => false,
        }
    }

    /// Whether this reason is one that does not matter here. Exhaustive: a new reason is thought about.
    fn tolerates(self, reason: Reason) -> bool {
        match reason {
            // We hold it ourselves, and the claim is what this is about.
            Reason::HeldExclusively | Reason::Claimed | Reason::TooNew => true,
            // Decided when it was claimed, from the same facts: a set may name such devices.
            Reason::NotLocal => true,
            Reason::Signature | Reason::PartitionTable => !self.is_empty(),
            Reason::UnknownData => !self.is_empty() && self != Expected::Named,
            // Told above, by the claim.
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

/// What the node's own ledger knows, whatever an API says that may be older than it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The data of this PersistentVolume was erased on this node.
    pub erased: bool,
    /// It was decided that the data of this PersistentVolume stays.
    pub retained: bool,
    /// The last claim that was confirmed on the device: its owner's UID and its round.
    pub confirmed: Option<(String, i64)>,
}

fn outdated(why: &str) -> String {
    format!(
        "{why}: was the API restored from a backup? To let the PersistentVolume go and keep the data, set its persistentVolumeReclaimPolicy to Retain"
    )
}

/// The claim's device among the node's: exactly one goes by its identity.
pub fn find<'a>(identity: &str, devices: &'a [GroupedDevice]) -> Result<&'a GroupedDevice, String> {
    let mut found = devices.iter().filter(|device| {
        device.identified.candidates.iter().any(|candidate| candidate == identity)
    });
    match (found.next(), found.next()) {
        (Some(device), None) => Ok(device),
        (None, _) => Err(format!("the device {identity} is not there")),
        (Some(one), Some(other)) => {
            Err(format!("{} and {} both go by {identity}", one.facts.name, other.facts.name))
        }
    }
}

/// `Err` says why not, for people.
pub fn verify(
    claim: &DeviceClaim,
    expected: Expected,
    devices: &[GroupedDevice],
    spec: &NodeInventorySpec,
) -> Result<(), String> {
    let device = find(&claim.identity, devices)?;
    let facts = &device.facts;
    let size = i64::try_from(facts.size).unwrap_or(i64::MAX);
    if size != claim.size {
        return Err(format!("{} has {size} bytes, {} were claimed", facts.name, claim.size));
    }
    let rivals = spec.device_claims.iter().filter(|other| {
        **other != *claim && device.identified.candidates.contains(&other.identity)
    });
    if let Some(rival) = rivals.into_iter().next() {
        return Err(format!(
            "{} is claimed by {}, too",
            facts.name,
            super::owner_text(&rival.owner)
        ));
    }
    // What is built on a disk is the disk's owner's.
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
    // A LocalVolume that takes the data over means the device as it is; its first confirmation is about that.
    let on_it = |identity: &String| device.identified.candidates.contains(identity);
    let confirms = matches!(expected, Expected::Any | Expected::Named);
    let blocks = expected == Expected::Blank || (confirms && claim.round > 1);
    if let Some(kept) =
        spec.retained_data.iter().find(|data| on_it(&data.identity)).filter(|_| blocks)
    {
        return Err(format!("{} {}", facts.name, Reason::RetainedData.message(&kept.pv_name)));
    }
    let exposes = claim.volume_mode == VolumeMode::Block
        && claim.round == 1
        && (confirms || expected == Expected::Blank);
    if let Some(left) =
        spec.wipe_remnants.iter().find(|left| on_it(&left.identity)).filter(|_| exposes)
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
        return Err(format!("{} is in quarantine: {} {}", facts.name, entry.reason, entry.detail));
    }
    let own = node_reasons(facts).into_iter().chain(device.findings.iter().cloned());
    if let Some((reason, detail)) = own.into_iter().find(|(reason, _)| !expected.tolerates(*reason))
    {
        return Err(format!("{} {}", facts.name, reason.message(&detail)));
    }
    // Unread is no answer, whatever is tolerated. Everything else was judged above, by its reason.
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
