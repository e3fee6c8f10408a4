//! One device as the command line shows it, of this machine or of a node.

use quarry_api::{
    node_inventory::{Device, DeviceState},
    quantity::Bytes,
    reason::{Class, Meaning, ReasonCode},
};
use quarry_core::device::{Content, GroupedDevice, Reason};
use serde::Serialize;

/// What `-o json` and `-o yaml` print: every field of `NodeInventory.status.devices`, the node, and of this machine
/// what the inventory leaves out. Whatever is false, empty or unknown is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The node; of this machine its host name.
    pub node: String,
    #[serde(flatten)]
    pub device: Device,
    #[serde(flatten)]
    pub local: Option<Local>,
}

/// What only a look at the machine itself tells: the rest of what lsblk shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Local {
    /// lsblk's MAJ:MIN.
    pub number: String,
    /// lsblk's MOUNTPOINTS, those of bind mounts of the device node included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mount_points: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub swap: bool,
    /// What it is built from: lsblk's PKNAME of an LVM, md or multipath device (that of a partition is `parent`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slaves: Vec<String>,
    /// What is built on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<String>,
    /// lsblk's STATE: running, suspended, live, offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_state: Option<String>,
    /// lsblk's LABEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_label: Option<String>,
    /// lsblk's PTTYPE: the partition table on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_type: Option<String>,
    /// lsblk's PARTTYPE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "partUUID")]
    pub part_uuid: Option<String>,
    /// Every name below /dev/disk/by-id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_id: Vec<String>,
}

impl Local {
    pub fn new(known: &GroupedDevice) -> Self {
        let facts = &known.facts;
        let found = match &facts.content {
            Content::Found(found) => found.clone(),
            Content::Unread
            | Content::Blank
            | Content::UnknownData
            | Content::NoMedium
            | Content::Unreadable(_)
            | Content::TimedOut
            | Content::NotPermitted => Default::default(),
        };
        let partition = facts.partition.clone().unwrap_or_default();
        Local {
            number: facts.number.clone(),
            mount_points: facts.mounts.clone(),
            swap: facts.swap,
            slaves: facts.slaves.clone(),
            holders: facts.holders.clone(),
            kernel_state: facts.state.clone(),
            fs_label: found.label,
            table_type: found.table,
            part_type: partition.type_id,
            part_uuid: partition.uuid,
            by_id: facts.by_id.clone(),
        }
    }
}

impl Shown {
    pub fn of_node(node: &str, device: Device) -> Self {
        Shown { node: node.to_owned(), device, local: None }
    }

    /// As lsblk names it.
    pub fn title(&self) -> &str {
        self.device.mapped_name.as_deref().unwrap_or(&self.device.name)
    }

    pub fn has(&self, reason: Reason) -> bool {
        self.details(reason).next().is_some()
    }

    /// What each mention of a reason is about.
    pub fn details(&self, reason: Reason) -> impl Iterator<Item = &str> {
        self.device
            .reasons
            .iter()
            .filter(move |told| told.reason == reason)
            .map(|told| told.detail.as_str())
    }

    /// What is on it could not be looked at.
    pub fn is_unread(&self) -> bool {
        let unread =
            |code: &ReasonCode| code.class() == Some(Class::Probe) && code.means(Meaning::Unread);
        self.device.reasons.iter().any(|found| unread(&found.reason))
    }

    /// Nobody knows whether it has an identity, unlike a device that has none.
    pub fn identity_is_hidden(&self) -> bool {
        self.device.identity.is_none()
            && (self.has(Reason::NotPermitted) || self.has(Reason::TimedOut))
            && !self.has(Reason::NoIdentity)
    }

    /// Of no interest to whoever looks for storage: without size, or a mounted read-only image (a snap).
    pub fn is_minor(&self) -> bool {
        let device = &self.device;
        device.size == 0
            || (device.kind == "loop"
                && device.read_only
                && device.state == DeviceState::NotAvailable
                && self.has(Reason::Mounted))
    }
}

/// As a quantity: `465.8Gi`.
pub fn size(bytes: i64) -> String {
    let text = Bytes(u64::try_from(bytes).unwrap_or_default()).to_string();
    text.replace(' ', "").trim_end_matches('B').to_owned()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}
