//! This machine as the only node of a plan: read here and now, by the agent's own inspector. Needs no cluster.

use super::observe::Snapshot;
use crate::devices::local::{Look, Machine};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use quarry_api::{NodeInventory, NodeInventoryStatus, node_inventory::PathReport};
use quarry_core::device_claim::pv::HOSTNAME_LABEL;
use quarry_node::inspect::Scan;
use serde_json::json;
use std::{path::Path, sync::Arc};

/// What is known of this machine, and what to know about that.
pub fn snapshot(
    root: &Path,
    namespace: &str,
    paths: &[String],
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let mut machine = Machine::open(root)?;
    let Look { devices, problems } =
        tokio::task::block_in_place(|| machine.look(Scan::Everything))?;
    let name = crate::host_name();
    let node: Node = serde_json::from_value(
        json!({"metadata": {"name": name, "uid": name, "labels": {HOSTNAME_LABEL: name}}}),
    )?;
    let reports = paths.iter().map(|path| {
        let lead = match machine.number_at(Path::new(path)) {
            Ok(Some(number)) => devices
                .iter()
                .find(|shown| shown.local.as_ref().is_some_and(|local| local.number == number))
                .map(|shown| shown.device.name.clone())
                .ok_or_else(|| "nothing is behind it".to_owned()),
            Ok(None) => Err("it does not exist on this machine".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        PathReport { path: path.clone(), device: lead.as_ref().ok().cloned(), problem: lead.err() }
    });
    let reports = reports.collect();
    let mut inventory = NodeInventory::new(&name, Default::default());
    // One look cannot tell how long a device has been there: an agent would wait for that, the plan does not.
    let settled = devices.into_iter().map(|mut shown| {
        shown.device.settled = true;
        shown.device
    });
    inventory.status = Some(NodeInventoryStatus {
        devices: settled.collect(),
        paths: reports,
        ..Default::default()
    });
    let seen = Snapshot {
        namespace: namespace.to_owned(),
        nodes: vec![Arc::new(node)],
        inventories: vec![inventory],
        now: Timestamp::now(),
        ..Snapshot::default()
    };
    Ok((seen, problems))
}
