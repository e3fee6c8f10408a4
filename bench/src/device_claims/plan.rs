//! The planner alone: one node with 256 devices and 50 LocalVolumeSets.

use crate::figures;
use anyhow::Result;
use jiff::Timestamp;
use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeInventoryStatus, names,
    node_inventory::{Device, DeviceState},
};
use quarry_core::{
    device_claim::{Demand, NodeWorld, check, demand::of_set, plan},
    violation::joined,
};
use serde_json::json;
use std::{sync::Arc, time::Instant};

const ROUNDS: usize = 31;

pub fn device(number: usize) -> Device {
    Device {
        name: format!("sd{number}"),
        kind: "disk".into(),
        size: (1 + number as i64 % 7) << 40,
        identity: Some(format!("wwn:5000c500{number:08x}")),
        device_id: Some(format!("/dev/disk/by-id/wwn-0x5000c500{number:08x}")),
        model: Some(["SAMSUNG MZ7LN512", "ST2000LM015", "Crucial_CT525MX3"][number % 3].into()),
        vendor: Some("ATA".into()),
        rotational: number % 3 == 1,
        settled: true,
        state: DeviceState::Available,
        ..Device::default()
    }
}

fn set(number: usize) -> Result<Demand> {
    Ok(of_set(&serde_json::from_value(json!({
        "metadata": {"name": format!("set-{number}"), "namespace": "q", "uid": format!("uid-{number}"), "finalizers": [names::OWNER_FINALIZER], "creationTimestamp": format!("2026-01-01T00:00:{number:02}Z")},
        "spec": {"storageClassName": "c", "maxDeviceCount": 8, "deviceInclusionSpec": {"minSize": format!("{}Ti", 1 + number % 7), "models": ["samsung", "ST2000"], "vendors": ["ata"]},
            "deviceExclusionSpec": {"deviceNameFilter": ["rbd*", "sd?[0-3]"]}},
    }))?))
}

pub fn run() -> Result<()> {
    let mut inventory = NodeInventory::new("n1", NodeInventorySpec::default());
    inventory.status = Some(NodeInventoryStatus {
        machine_id: Some("m".into()),
        devices: (0..256).map(device).collect(),
        ..NodeInventoryStatus::default()
    });
    let node = serde_json::from_value(
        json!({"metadata": {"name": "n1", "uid": "n", "labels": {"kubernetes.io/hostname": "n1"}}}),
    )?;
    let demands = (0..50).map(set).collect::<Result<Vec<_>>>()?;
    let world = NodeWorld {
        name: "n1".into(),
        node: Some(Arc::new(node)),
        inventory,
        demands,
        agent_present: true,
        ..NodeWorld::default()
    };
    let now = Timestamp::from_second(1_800_000_000)?;
    let mut samples = Vec::new();
    let mut assignment = 0;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let planned = plan(&world, now);
        if let Some(violation) = joined(&check::check(&world, &planned)) {
            anyhow::bail!("{violation}");
        }
        samples.push(started.elapsed());
        assignment = planned.claims.len();
    }
    let samples = figures::Samples::new(samples);
    println!(
        "figure: plan and check of one node, 256 devices, 50 sets, {assignment} assigned: median {} (aim: < 10 ms)",
        figures::milliseconds(samples.percentile(50))
    );
    Ok(())
}
