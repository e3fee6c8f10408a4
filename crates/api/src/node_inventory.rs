//! NodeInventory (quarry.dev/v1alpha1): one per node, with the name of the node.
//!
//! `spec` belongs to the operator: what the cluster knows about this node's devices. `status` belongs to the agent
//! of that node: its devices, and the verdict on each, which follows from both.
//! Next to read: `quarry_core::device` (identity, reasons, verdict).

use crate::{
    reason::{Meaning, Reason, ReasonCode},
    volume::VolumeMode,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(
    CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize,
)]
#[kube(
    group = "quarry.dev",
    version = "v1alpha1",
    kind = "NodeInventory",
    plural = "nodeinventories",
    shortname = "ninv",
    status = "NodeInventoryStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "The devices of a node. Created by the operator, filled in by the agent of the node.",
    printcolumn(name = "Disks", type_ = "integer", json_path = ".status.summary.disks"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.summary.available"),
    printcolumn(name = "Claimed", type_ = "integer", json_path = ".status.summary.claimed"),
    printcolumn(
        name = "Quarantined",
        type_ = "integer",
        json_path = ".status.summary.quarantined"
    ),
    printcolumn(name = "Capacity", type_ = "string", json_path = ".status.summary.capacity"),
    printcolumn(name = "Changed", type_ = "date", json_path = ".status.lastChange"),
    printcolumn(
        name = "Agent",
        type_ = "string",
        json_path = ".status.agentVersion",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeInventorySpec {
    /// Device claims: devices that have an owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_claims: Vec<DeviceClaim>,
    /// Devices that cannot be claimed, because it is not certain which device they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantine: Vec<Quarantine>,
    /// PersistentVolumes on this node that Quarry did not create: the devices behind them are in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "unmanagedPVs")]
    pub unmanaged_pvs: Vec<UnmanagedPv>,
    /// How many of them do not fit into this object. While there are any, no device of the node is Available: each may
    /// back one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "unmanagedPVsOmitted")]
    pub unmanaged_pvs_omitted: Option<i64>,
    /// Paths that LocalVolumes name: the agent reports which device each of them is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The machine ID of the machine whose devices were claimed. If another machine has the node's name, the device
    /// claims are frozen until an administrator releases them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "machineID")]
    pub machine_id: Option<String>,
    /// The ID of the ledger in the agent's data directory. If the agent reports another one, its data directory was
    /// lost or replaced: nothing is done on the node until an administrator restores it or accepts the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ledgerID")]
    pub ledger_id: Option<String>,
    /// Devices whose last PersistentVolume was used and not wiped: no LocalVolumeSet takes them until an administrator
    /// discards the data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retained_data: Vec<RetainedData>,
    /// Devices of which only the signatures were removed when their last PersistentVolume was released (Quick): usable
    /// for a new file system, but not as a Block device of another owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wipe_remnants: Vec<WipeRemnant>,
}

/// The data that a deleted PersistentVolume left on a device.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct RetainedData {
    pub identity: String,
    /// The name of the PersistentVolume.
    #[serde(rename = "pvName")]
    pub pv_name: String,
    #[serde(rename = "pvUID")]
    pub pv_uid: String,
    /// The identity of the disk, if the device is a partition: the data stays there when the partition is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Everything that identified the device: its identity is not always visible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identifiers: Vec<String>,
}

/// The data that a Quick wipe left on a device: all but the signatures.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct WipeRemnant {
    pub identity: String,
    /// The name of the PersistentVolume.
    #[serde(rename = "pvName")]
    pub pv_name: String,
    #[serde(rename = "pvUID")]
    pub pv_uid: String,
    /// The identity of the disk, if the device is a partition: the data stays there when the partition is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Everything that identified the device: its identity is not always visible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identifiers: Vec<String>,
}

/// A device, its owner, and what it is published as. Written by the operator; it counts once the agent has confirmed it.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct DeviceClaim {
    pub identity: String,
    /// Distinguishes this device claim from earlier and later ones on the same device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Every identifier of the device when it was claimed. The agent confirms that it still has all of them; a device
    /// that later shows only some of them is not wiped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identifiers: Vec<String>,
    pub owner: ClaimOwner,
    /// The StorageClass of its PersistentVolume.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage_class_name: String,
    #[serde(default)]
    pub volume_mode: VolumeMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// The path as a LocalVolume names it. It is not resolved again while the device claim exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The size in bytes when the device was claimed.
    #[serde(default)]
    pub size: i64,
    /// What may be on the device when it is published.
    #[serde(default)]
    pub content: ClaimContent,
    /// The link that the agent creates on the node: the path of the PersistentVolume.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// Counts the PersistentVolumes created from this device claim: each needs its own confirmation.
    #[serde(default)]
    pub round: i64,
    /// The NodeJob that wipes the device; recorded before the job exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<ClaimJob>,
    /// The owner does not demand the device any more: the agent removes the link, then the device claim is removed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub terminating: bool,
    /// The last PersistentVolume created from this device claim that was bound or deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "lastPV")]
    pub last_pv: Option<LastPv>,
}

/// Recorded so that the end of a PersistentVolume is known from the device claim alone.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct LastPv {
    pub uid: String,
    /// The UID of the last PVC that was bound to it; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "pvcUID")]
    pub pvc_uid: Option<String>,
    /// The data of that PVC was wiped, is recorded as retained, or never existed: the finalizer may be removed, unless
    /// another PVC was bound since.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resolved: bool,
}

/// The job of a device claim, and its attempt.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct ClaimJob {
    pub name: String,
    pub attempt: i32,
}

/// What a claimed device may contain.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum ClaimContent {
    /// Nothing: no signature, no partition table, first and last MiB zero.
    #[default]
    Blank,
    /// Anything: a LocalVolume names the device, and its content is kept.
    Any,
}

#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOwner {
    pub kind: String,
    /// Absent for a cluster-scoped owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quarantine {
    pub identity: String,
    /// One of the reasons that quarantine a device: DuplicateIdentity, IdentityElsewhere, IdentityChanged.
    pub reason: ReasonCode,
    /// Where the other device is, or the previous identity.
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmanagedPv {
    pub name: String,
    /// The local path of the PersistentVolume, on the node.
    pub path: String,
    /// The by-id name that the Local Storage Operator recorded on its PersistentVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInventoryStatus {
    /// The UID of the Node object that the agent runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "nodeUID")]
    pub node_uid: Option<String>,
    /// /etc/machine-id of the node: the same machine keeps it when its Node is recreated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "machineID")]
    pub machine_id: Option<String>,
    /// The ID of the ledger in the agent's data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ledgerID")]
    pub ledger_id: Option<String>,
    /// The kernel's boot ID: disk sequence numbers count from the boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "bootID")]
    pub boot_id: Option<String>,
    /// The boot in which the agent last attached the devices of this node's Volumes, or failed to. While it is not
    /// `bootID`, a device that is missing here may still come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "restoredBootID")]
    pub restored_boot_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The numbers of devices, for `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// The agent's report on each device claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_claims: Vec<ClaimReport>,
    /// The devices that the paths of the spec resolve to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathReport>,
    /// Problems that kept the agent from reading everything; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// When anything in this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<Time>,
}

/// The agent's report on a device claim, from reading the device exclusively after it saw the device claim.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReport {
    pub identity: String,
    /// The UID of the owner in the device claim that was checked.
    #[serde(rename = "ownerUID")]
    pub owner_uid: String,
    /// The round of the device claim that was checked.
    #[serde(default)]
    pub round: i64,
    pub state: ClaimState,
    /// The kernel's name of the device now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The link exists and resolves to the device.
    #[serde(default, skip_serializing_if = "is_false")]
    pub linked: bool,
    /// Why it is refused, or the problem with the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum ClaimState {
    /// Identity, size and content are as claimed, and nothing uses the device.
    Confirmed,
    /// At least one of these is not true; checked again with every scan.
    #[default]
    Refused,
    /// The device claim is terminating, and nothing of it is left on the node.
    Removed,
    /// The device claim is terminating, and its link cannot be removed; retried.
    RemovalFailed,
    /// The ledger of the node knows that the device claim is over: the API was restored from a backup. Its link is
    /// removed.
    Outdated,
}

/// The device that a path resolves to.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct PathReport {
    pub path: String,
    /// The kernel's name of the device; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Why there is none: the path does not exist, or is not a block device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Whole devices: disks, multipath maps, attached loops. A device on one of them, such as a partition, counts as part of
    /// it.
    pub disks: i64,
    /// Those that are Available, or on which a device is.
    pub available: i64,
    /// Those that have an owner, or on which a device has one: a device claim, a Volume, a PersistentVolume.
    pub claimed: i64,
    /// Those that are quarantined, or on which a device is.
    pub quarantined: i64,
    /// Their size.
    pub capacity: String,
}

/// One device, as the agent reports it. Fields that are false, empty or unknown are omitted.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The kernel's name, such as `sdb`. Never an identity: it changes between boots.
    pub name: String,
    /// The name of a device-mapper device, as under /dev/mapper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped_name: Option<String>,
    /// As lsblk names it: disk, part, loop, lvm, mpath, crypt, raid1, rom.
    #[serde(rename = "type")]
    pub kind: String,
    /// In bytes.
    pub size: i64,
    /// Identifies the device wherever it is connected; absent if nothing identifies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// What each source reports about the identity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// The persistent name below /dev/disk/by-id, chosen as the Local Storage Operator does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// The disk of a partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The paths under a multipath map, and those that return to it: they are this one device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// How it is connected: sata, sas, nvme, usb, fc, iscsi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub rotational: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub removable: bool,
    /// The file system or other signature on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "fsUUID")]
    pub fs_uuid: Option<String>,
    /// The partition's name in its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_label: Option<String>,
    /// The kernel's sequence number of the disk: another disk under the same name has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diskseq: Option<i64>,
    /// It has been unchanged for the settling time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub settled: bool,
    pub state: DeviceState,
    /// Every reason why it is not Available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<DeviceReason>,
    /// The UID of the Volume whose storage this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "volumeUID")]
    pub volume_uid: Option<String>,
    /// The file behind a loop device, as a path on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
    /// The persistent link of a Volume's storage that resolves to this device; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Device {
    /// Whether this reason was found.
    pub fn has(&self, reason: Reason) -> bool {
        self.reasons.iter().any(|found| found.reason == reason)
    }

    /// Whether a reason was found that means this.
    pub fn means(&self, meaning: Meaning) -> bool {
        self.reasons.iter().any(|found| found.reason.means(meaning))
    }
}

/// The verdict on a device, in the words of LocalVolumeDiscoveryResult.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum DeviceState {
    Available,
    NotAvailable,
    #[default]
    Unknown,
}

impl DeviceState {
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceState::Available => "Available",
            DeviceState::NotAvailable => "NotAvailable",
            DeviceState::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct DeviceReason {
    /// One of the reasons in docs/reference/reasons.md.
    pub reason: ReasonCode,
    /// The mount point, the signature, the owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl DeviceReason {
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        DeviceReason { reason: reason.into(), detail: detail.into() }
    }

    /// Continues "sdb …": `is mounted: /mnt/a`.
    pub fn message(&self) -> String {
        self.reason.message(&self.detail)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Where it was read, such as `sysfs:wwid` or `udev:ID_WWN`.
    pub source: String,
    pub value: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}
