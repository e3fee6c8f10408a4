//! Block devices of nodes or of this machine, as lists, rows and trees.
//!
//! Owns: `DeviceView` (what programs get), `DeviceRow` (what tables show), the order of the list and finding one device
//! by name. Devices of nodes come from a `Source`, those of this machine from facts that the caller read. Never reads a
//! disk. Next to read: `row.rs`, `tree.rs`, `find.rs`.

pub mod find;
mod row;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod tree;

pub use row::{DeviceRow, rows};

use jiff::Timestamp;
use kube::ResourceExt;
use quarry_api::{
    NodeInventory, NodeInventorySpec,
    node_inventory::{Device, DeviceState},
    reason::{Class, Meaning, Reason, ReasonCode},
};
use quarry_core::{
    device::{Content, Facts, GroupedDevice, group, inventory},
    source::Source,
};
use serde::Serialize;

/// One device: every field of `NodeInventory.status.devices`, the node, and on this machine what the inventory omits.
/// What is false, empty or unknown is omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceView {
    /// The node; for this machine its host name.
    pub node: String,
    #[serde(flatten)]
    pub device: Device,
    #[serde(flatten)]
    pub local: Option<LocalFacts>,
}

/// What only a scan of the machine itself shows: the rest of lsblk's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalFacts {
    /// lsblk's MAJ:MIN.
    pub number: String,
    /// lsblk's MOUNTPOINTS, including bind mounts of the device node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mount_points: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub swap: bool,
    /// Devices below it: lsblk's PKNAME of an LVM, md or multipath device (that of a partition is `parent`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slaves: Vec<String>,
    /// Devices on top of it.
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

/// The devices of every node that has an inventory.
pub fn list(source: &impl Source) -> Vec<DeviceView> {
    source.inventories().iter().flat_map(|inventory| of_inventory(inventory)).collect()
}

/// The devices that the agent of one node published.
pub fn of_inventory(inventory: &NodeInventory) -> Vec<DeviceView> {
    let node = inventory.name_any();
    let devices = inventory.status.iter().flat_map(|status| &status.devices);
    devices.map(|device| DeviceView::of_node(&node, device.clone())).collect()
}

/// The devices of this machine, judged without a cluster.
pub fn of_facts(node: &str, facts: &[Facts], boot_id: Option<&str>) -> Vec<DeviceView> {
    let known = group(facts, None, boot_id, &[]);
    let view = |grouped: &GroupedDevice| {
        // One scan cannot show how long a device has been unchanged: that is no reason against it, nor is it claimed.
        let mut device = inventory::row(grouped, &known, true, &NodeInventorySpec::default());
        device.settled = false;
        DeviceView { node: node.to_owned(), device, local: Some(LocalFacts::new(grouped)) }
    };
    known.iter().map(view).collect()
}

/// What to know about the devices of each node: an absent agent, problems of its last scan.
pub fn notes(source: &impl Source, now: Timestamp) -> Vec<String> {
    source.inventories().iter().flat_map(|inventory| node_notes(source, inventory, now)).collect()
}

fn node_notes(source: &impl Source, inventory: &NodeInventory, now: Timestamp) -> Vec<String> {
    let node = inventory.name_any();
    let complaint = source.agent_presence(&node, now).problem(&node);
    let mut notes: Vec<String> = match (&inventory.status, complaint) {
        (Some(_), None) => Vec::new(),
        (Some(_), Some(complaint)) => {
            vec![format!("showing the last scan of node {node}: {complaint}")]
        }
        (None, Some(complaint)) => vec![format!("no devices of node {node}: {complaint}")],
        (None, None) => {
            vec![format!("no devices of node {node} yet: its agent has not published them")]
        }
    };
    let problems = inventory.status.iter().flat_map(|status| &status.problems);
    notes.extend(problems.map(|problem| format!("node {node}: {problem}")));
    notes
}

impl LocalFacts {
    pub fn new(grouped: &GroupedDevice) -> Self {
        let facts = &grouped.facts;
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
        LocalFacts {
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

impl DeviceView {
    pub fn of_node(node: &str, device: Device) -> Self {
        DeviceView { node: node.to_owned(), device, local: None }
    }

    /// Its name in lsblk.
    pub fn title(&self) -> &str {
        self.device.mapped_name.as_deref().unwrap_or(&self.device.name)
    }

    pub fn has(&self, reason: Reason) -> bool {
        self.details(reason).next().is_some()
    }

    /// The details of a reason, one for each time that the device has it.
    pub fn details(&self, reason: Reason) -> impl Iterator<Item = &str> {
        self.device
            .reasons
            .iter()
            .filter(move |given| given.reason == reason)
            .map(|given| given.detail.as_str())
    }

    /// Its content could not be read.
    pub fn is_unread(&self) -> bool {
        let unread =
            |code: &ReasonCode| code.class() == Some(Class::Probe) && code.means(Meaning::Unread);
        self.device.reasons.iter().any(|found| unread(&found.reason))
    }

    /// Whether it has an identity could not be read, unlike a device that has none.
    pub fn identity_is_hidden(&self) -> bool {
        self.device.identity.is_none()
            && (self.has(Reason::NotPermitted) || self.has(Reason::TimedOut))
            && !self.has(Reason::NoIdentity)
    }

    /// Not storage: without size, or a mounted read-only image (a snap).
    pub fn is_minor(&self) -> bool {
        let device = &self.device;
        device.size == 0
            || (device.kind == "loop"
                && device.read_only
                && device.state == DeviceState::NotAvailable
                && self.has(Reason::Mounted))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snapshot;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const PRESENT: &str = "2026-01-01T00:00:00.000000Z";

    /// Notes of node n1; `renewed` is when the agent renewed its Lease, `None` without a Lease.
    fn noted(status: Value, renewed: Option<&str>) -> Vec<String> {
        let mut snapshot = Snapshot::new("quarry-system");
        let object = json!({"metadata": {"name": "n1"}, "spec": {}, "status": status});
        snapshot.add_inventory(serde_json::from_value(object).unwrap());
        let lease = renewed.map(|renewed| {
            let spec = json!({"holderIdentity": "n1", "renewTime": renewed});
            let object = json!({"metadata": {"name": "quarry-agent-n1"}, "spec": spec});
            ("quarry-agent-n1".to_owned(), Arc::new(serde_json::from_value(object).unwrap()))
        });
        snapshot.leases = Some(lease.into_iter().collect());
        notes(&snapshot, "2026-01-01T00:00:01Z".parse().unwrap())
    }

    #[test]
    fn a_node_without_a_present_agent_is_noted() {
        assert!(noted(json!({}), Some(PRESENT)).is_empty());
        assert_eq!(
            noted(Value::Null, Some(PRESENT)),
            ["no devices of node n1 yet: its agent has not published them"]
        );
        let never = noted(Value::Null, None).concat();
        let expected = "no devices of node n1: no agent has been seen on node n1";
        assert!(never.starts_with(expected), "{never}");
        let absent =
            noted(json!({"problems": ["loop7 vanished"]}), Some("2025-12-31T00:00:00.000000Z"));
        assert!(absent[0].starts_with("showing the last scan of node n1: "), "{absent:?}");
        assert_eq!(absent[1], "node n1: loop7 vanished");
    }
}
