//! Claimed devices, as `DeviceOps` is asked about them: confirm, keep the link true, hold for a wipe.
//!
//! The simulator answers the same questions. What a claim may be confirmed for is decided in
//! `quarry_core::device_claim::confirm`. Next to read: `linux/device.rs`, `act/hold.rs`.

use crate::{error::NodeError, node_ops::NodeScan, progress::Progress};
use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeInventoryStatus,
    ids::Uid,
    names,
    node_inventory::{ClaimReport, ClaimState, DeviceClaim, PathReport},
    node_job::WipePolicy,
};
use quarry_core::{
    device::{
        Facts, GroupedDevice, accepted_identities, by_id_link, group, group_with_overdue,
        identity::slot_serial, partial_matches, returning_path::Path,
    },
    device_claim::{confirm, history::DataOf, is_other_ledger, is_other_machine},
};
use std::collections::BTreeSet;

/// What the API says about the node, without which nothing that is seen can be judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    pub spec: NodeInventorySpec,
    pub status: Option<NodeInventoryStatus>,
    pub accepted: Vec<String>,
}

impl NodeView {
    pub fn of(inventory: &NodeInventory) -> Self {
        NodeView {
            spec: inventory.spec.clone(),
            status: inventory.status.clone(),
            accepted: accepted(inventory),
        }
    }

    /// The devices beside each other.
    pub fn known(&self, scan: &NodeScan) -> Vec<GroupedDevice> {
        let boot_id = scan.boot_id.as_deref();
        let mut known = group(&scan.devices, self.status.as_ref(), boot_id, &self.accepted);
        partial_matches(&mut known, &self.spec.device_claims, &self.accepted);
        known
    }

    /// The devices that a scan must not open exclusively: their PersistentVolume may be mounted at any moment.
    pub fn spared(&self) -> Vec<Spare> {
        let confirmed = |claim: &&DeviceClaim| {
            confirm::previous(claim, self.status.as_ref())
                .is_some_and(|report| report.state == ClaimState::Confirmed)
        };
        let spare = |claim: &DeviceClaim| {
            let report: Option<&ClaimReport> = confirm::previous(claim, self.status.as_ref());
            let name = report.and_then(|report| report.device.clone());
            let row = name.as_ref().and_then(|name| {
                self.status.as_ref()?.devices.iter().find(|device| device.name == *name)
            });
            let diskseq = row.and_then(|row| row.diskseq).and_then(|seq| u64::try_from(seq).ok());
            Spare {
                link: claim.link.clone(),
                name,
                diskseq,
                boot_id: self.status.as_ref().and_then(|status| status.boot_id.clone()),
            }
        };
        self.spec.device_claims.iter().filter(confirmed).map(spare).collect()
    }
}

/// Why the device claims of this inventory are not those of the node that was scanned.
pub fn frozen(spec: &NodeInventorySpec, scan: &NodeScan) -> Option<&'static str> {
    if is_other_machine(spec, Some(scan.machine_id.as_deref())) {
        return Some("this is another machine than the one that the device was claimed on");
    }
    is_other_ledger(spec, scan.ledger_id.as_deref())
        .then_some("the ledger in the data directory is not the one that is recorded for this node")
}

fn accepted(inventory: &NodeInventory) -> Vec<String> {
    let annotation = inventory
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::ACCEPT_IDENTITY_ANNOTATION));
    annotation.map(|text| accepted_identities(text)).unwrap_or_default()
}

/// As `NodeView::known`, without a copy of the inventory: it may be large.
/// `overdue`: the multipath paths that have waited too long for their map.
pub fn known(
    inventory: &NodeInventory,
    scan: &NodeScan,
    overdue: &BTreeSet<Path>,
) -> Vec<GroupedDevice> {
    let (previous, boot_id) = (inventory.status.as_ref(), scan.boot_id.as_deref());
    let accepted = accepted(inventory);
    let mut known = group_with_overdue(&scan.devices, previous, boot_id, &accepted, overdue);
    partial_matches(&mut known, &inventory.spec.device_claims, &accepted);
    known
}

/// A confirmed device: what its link leads to, and what had its name in this boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spare {
    pub link: String,
    pub name: Option<String>,
    pub diskseq: Option<u64>,
    pub boot_id: Option<String>,
}

/// Device claims to be confirmed together, by one scan while all of their devices are held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfirmRequest {
    pub claims: Vec<DeviceClaim>,
    pub view: NodeView,
    /// The last one.
    pub scan: NodeScan,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Confirmation {
    /// In the order of the device claims; `Err` says why not.
    pub results: Vec<Result<(), String>>,
    /// The devices as they are after they were released.
    pub scan: NodeScan,
}

/// What is to become of the link of a device claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTask {
    /// As in the device claim.
    pub link: String,
    pub goal: LinkGoal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkGoal {
    /// It leads to this device, or is made to.
    Lead(LinkDevice),
    /// Only read.
    Observe(Option<LinkDevice>),
    /// The device is not there, or it is not certain which one it is. The link waits for it, unless it leads to a device
    /// now.
    Await,
    Remove,
}

/// The end of a link, by everything that distinguishes it from another device of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDevice {
    pub name: String,
    /// `8:16`
    pub number: String,
    pub diskseq: Option<u64>,
    /// Names of this device that no other device has after a reboot, the best first; empty: it has none.
    pub persistent_names: Vec<String>,
}

impl From<&Facts> for LinkDevice {
    fn from(facts: &Facts) -> Self {
        // The name of a partition has its number, which content chooses; a serial may be that of a slot.
        let slot = slot_serial(facts);
        let lasts = |name: &&str| {
            facts.kind != "part"
                && by_id_link::is_given_by_hardware(name)
                && slot.is_none_or(|slot| !name.contains(slot))
        };
        let own: Vec<&str> = facts.by_id.iter().map(String::as_str).filter(lasts).collect();
        let best = by_id_link::best(own.iter().copied());
        let others = own.iter().copied().filter(|name| Some(*name) != best);
        let by_id = best.into_iter().chain(others).map(|name| format!("/dev/disk/by-id/{name}"));
        let partition = facts.partition.as_ref().and_then(|partition| partition.uuid.as_ref());
        let by_partuuid = partition.map(|uuid| format!("/dev/disk/by-partuuid/{uuid}"));
        LinkDevice {
            name: facts.name.clone(),
            number: facts.number.clone(),
            diskseq: facts.diskseq,
            persistent_names: by_id.chain(by_partuuid).collect(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// It is there and leads to the device.
    pub linked: bool,
    pub problem: Option<String>,
    /// What was wrong with it until just now: continues "it ...".
    pub repaired: Option<String>,
}

/// A device that is to be erased.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldRequest {
    pub claim: DeviceClaim,
    /// The PersistentVolume whose data is to go. Erased once, it is not erased again: an API that was restored from a
    /// backup may ask for it although other data is there by now.
    pub pv_uid: Uid,
    /// While which PVC was bound to it; one that was bound later has other data.
    pub pvc_uid: Option<Uid>,
    pub policy: WipePolicy,
    pub view: NodeView,
}

impl HoldRequest {
    /// Whose data is to be erased.
    pub fn data(&self) -> DataOf {
        DataOf::new(self.pv_uid.as_str(), self.pvc_uid.as_ref().map(Uid::as_str))
    }
}

/// A device that no other process can open exclusively or mount, and that was verified while that was so.
pub trait HeldDevice: Send {
    /// The kernel's name.
    fn name(&self) -> &str;

    /// It was wiped for the same PersistentVolume before, as thoroughly, and is blank: nothing is left to do.
    fn is_wiped(&self) -> bool;

    /// Through the descriptor that was verified, and through no other. May take hours; how it was done, for people.
    fn wipe(self: Box<Self>, policy: WipePolicy, progress: &Progress) -> Result<String, NodeError>;
}

impl std::fmt::Debug for dyn HeldDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldDevice({})", self.name())
    }
}

/// A path that is no device.
pub fn no_device(path: &str, problem: impl Into<String>) -> PathReport {
    PathReport { path: path.to_owned(), device: None, problem: Some(problem.into()) }
}
