//! This machine as the only node of a plan: scanned now, by the agent's own inspector. Needs no cluster.

use crate::devices::local::{LocalScan, Machine};
use k8s_openapi::api::core::v1::Node;
use quarry_api::{NodeInventory, NodeInventoryStatus, node_inventory::PathReport};
use quarry_core::device_claim::pv::HOSTNAME_LABEL;
use quarry_node::inspect::Scan;
use quarry_view::{Snapshot, devices::DeviceView};
use serde_json::json;
use std::{path::Path, sync::Arc};

/// A snapshot of this machine, and what could not be read. `paths`: device paths to resolve.
pub fn snapshot(
    root: &Path,
    namespace: &str,
    paths: &[String],
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let mut machine = Machine::open(root)?;
    let LocalScan { devices, problems } =
        tokio::task::block_in_place(|| machine.scan(Scan::Everything))?;
    let name = crate::host_name();
    let node: Node = serde_json::from_value(
        json!({"metadata": {"name": name, "uid": name, "labels": {HOSTNAME_LABEL: name}}}),
    )?;
    let paths = paths.iter().map(|path| resolve(&machine, &devices, path)).collect();
    // One scan cannot show how long a device has been unchanged: an agent would wait for that, the plan does not.
    let settled = devices.into_iter().map(|mut view| {
        view.device.settled = true;
        view.device
    });
    let mut inventory = NodeInventory::new(&name, Default::default());
    inventory.status =
        Some(NodeInventoryStatus { devices: settled.collect(), paths, ..Default::default() });
    let mut snapshot = Snapshot::new(namespace);
    snapshot.nodes.insert(name, Arc::new(node));
    snapshot.add_inventory(inventory);
    Ok((snapshot, problems))
}

fn resolve(machine: &Machine, devices: &[DeviceView], path: &str) -> PathReport {
    let has_number = |view: &&DeviceView, number: &str| {
        view.local.as_ref().is_some_and(|local| local.number == number)
    };
    let device = match machine.number_at(Path::new(path)) {
        Ok(Some(number)) => devices
            .iter()
            .find(|view| has_number(view, &number))
            .map(|view| view.device.name.clone())
            .ok_or_else(|| "nothing is behind it".to_owned()),
        Ok(None) => Err("it does not exist on this machine".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    PathReport {
        path: path.to_owned(),
        device: device.as_ref().ok().cloned(),
        problem: device.err(),
    }
}
