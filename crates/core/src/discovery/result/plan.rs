//! The result as it should be, from what the agent reported. Checked in `check.rs`.

use super::{CREATE_FAILED, CREATED, Observed, Plan, Step, UPDATE_FAILED, UPDATED};
use crate::{
    device::Reason,
    discovery::{Coverage, coverage, is_report_of},
    event::PendingEvent,
};
use jiff::Timestamp;
use quarry_api::{
    LocalVolumeDiscoveryResult, NodeInventoryStatus,
    local_volume_discovery::{
        DeviceSize, DeviceStatus, DiscoveredDevice, LocalVolumeDiscoveryResultSpec,
        LocalVolumeDiscoveryResultStatus,
    },
    names,
    node_inventory::{Device, DeviceState},
};
use std::collections::{BTreeMap, BTreeSet};

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let Some(found) = report(seen) else { return Plan::default() };
    let plan = plan_result(seen, &found.devices, now);
    let writes = !plan.steps.is_empty() || plan.status.is_some();
    Plan { refused: writes.then(|| refused(seen)), ..plan }
}

/// What the agent reported; `None`: the node is not covered, or nothing is reported, or by another machine that had
/// the node's name.
fn report(seen: &Observed) -> Option<&NodeInventoryStatus> {
    let (node, discovery) = (seen.node.as_deref()?, seen.active()?);
    let status = seen.inventory.as_deref()?.status.as_ref()?;
    let covered = coverage(discovery, node) == Coverage::Covered;
    (covered && is_report_of(status, node)).then_some(status)
}

/// Where users look first: the result may not exist.
fn refused(seen: &Observed) -> PendingEvent {
    let reason = if seen.result.is_some() { UPDATE_FAILED } else { CREATE_FAILED };
    let message = format!("node {}: the API server refuses the result, retrying", seen.name);
    PendingEvent { warning: true, reason, message }
}

fn plan_result(seen: &Observed, devices: &[Device], now: Timestamp) -> Plan {
    let devices = rows(devices);
    let stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = |devices| LocalVolumeDiscoveryResultStatus {
        discovered_time_stamp: stamp,
        discovered_devices: devices,
    };
    let event = |reason, message| PendingEvent {
        warning: false,
        reason,
        message: format!("{}: {message}", seen.name),
    };
    let Some(result) = &seen.result else {
        let message =
            format!("created the list of discovered devices with {}", count(devices.len()));
        return Plan {
            steps: vec![Step::Create(Box::new(empty(seen)))],
            events: vec![event(CREATED, message)],
            status: Some(status(devices)),
            refused: None,
        };
    };
    if result.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    if result.spec.node_name != seen.name {
        let message = format!(
            "{}: the LocalVolumeDiscoveryResult belongs to node {}; delete it",
            seen.name, result.spec.node_name
        );
        return Plan {
            events: vec![PendingEvent { warning: true, reason: UPDATE_FAILED, message }],
            ..Plan::default()
        };
    }
    let old = result.status.as_ref().filter(|old| !old.discovered_time_stamp.is_empty());
    let missing: BTreeMap<String, String> = labels(&seen.name)
        .into_iter()
        .filter(|(key, value)| {
            result.metadata.labels.as_ref().and_then(|all| all.get(key)) != Some(value)
        })
        .collect();
    let steps = match &result.metadata.resource_version {
        Some(version) if !missing.is_empty() => {
            vec![Step::Label { resource_version: version.clone(), labels: missing }]
        }
        _ => Vec::new(),
    };
    if old.is_some_and(|old| old.discovered_devices == devices) {
        return Plan { steps, ..Plan::default() };
    }
    let message =
        difference(old.map(|old| old.discovered_devices.as_slice()).unwrap_or_default(), &devices);
    let events = vec![event(UPDATED, message)];
    Plan { steps, events, status: Some(status(devices)), refused: None }
}

fn empty(seen: &Observed) -> LocalVolumeDiscoveryResult {
    let mut made = LocalVolumeDiscoveryResult::new(
        &names::discovery_result(&seen.name),
        LocalVolumeDiscoveryResultSpec { node_name: seen.name.clone() },
    );
    made.metadata.namespace = Some(seen.namespace.clone());
    let managed = (quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned());
    made.metadata.labels = Some(labels(&seen.name).into_iter().chain([managed]).collect());
    made
}

fn labels(node: &str) -> BTreeMap<String, String> {
    names::DISCOVERY_NODE_LABELS.map(|key| (key.to_owned(), names::label_value(node))).into()
}

fn count(devices: usize) -> String {
    if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices") }
}

/// What was added, removed or changed, as text; a few names of each.
fn difference(old: &[DiscoveredDevice], new: &[DiscoveredDevice]) -> String {
    let paths = |rows: &[DiscoveredDevice]| {
        rows.iter().map(|row| row.path.clone()).collect::<BTreeSet<String>>()
    };
    let (before, after) = (paths(old), paths(new));
    let changed: BTreeSet<String> = new
        .iter()
        .filter(|row| before.contains(&row.path) && !old.contains(row))
        .map(|row| row.path.clone())
        .collect();
    let named = |word: &str, paths: Vec<&String>| {
        let shown = paths.iter().take(5).map(|path| path.as_str()).collect::<Vec<_>>().join(", ");
        let more = paths.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!paths.is_empty()).then(|| format!("{word} {shown}{more}"))
    };
    let parts = [
        named("new:", after.difference(&before).collect()),
        named("gone:", before.difference(&after).collect()),
        named("changed:", changed.iter().collect()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!(
        "the list of discovered devices has changed to {}; {}",
        count(new.len()),
        parts.join("; ")
    )
}

/// The rows of a result: whole disks, partitions, logical volumes, multipath maps, attached loops.
pub fn rows(devices: &[Device]) -> Vec<DiscoveredDevice> {
    let parents: BTreeSet<&str> =
        devices.iter().filter_map(|device| device.parent.as_deref()).collect();
    // A device without a size (zram, an empty card reader) cannot be used.
    let wanted = |device: &&Device| {
        device.size > 0
            && matches!(device.kind.as_str(), "disk" | "part" | "lvm" | "mpath" | "loop")
    };
    devices
        .iter()
        .filter(wanted)
        .map(|device| row(device, parents.contains(device.name.as_str())))
        .collect()
}

fn row(device: &Device, is_parent: bool) -> DiscoveredDevice {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let suspended = device.has(Reason::Suspended);
    // Upstream omits these; here they are listed as NotAvailable.
    let state = if device.read_only || suspended || is_parent {
        DeviceState::NotAvailable
    } else {
        device.state
    };
    DiscoveredDevice {
        device_id: device.device_id.as_deref().map(by_id).unwrap_or_default(),
        // The kernel writes a slash in the name of a device as an exclamation mark.
        path: format!("/dev/{}", device.name.replace('!', "/")),
        model: text(&device.model),
        kind: device.kind.clone(),
        vendor: text(&device.vendor),
        serial: text(&device.serial),
        size: DeviceSize(device.size),
        property: if device.rotational { "Rotational" } else { "NonRotational" }.to_owned(),
        fstype: text(&device.fs_type),
        status: DeviceStatus { state },
    }
}

fn by_id(id: &str) -> String {
    if id.starts_with('/') { id.to_owned() } else { format!("/dev/disk/by-id/{id}") }
}
