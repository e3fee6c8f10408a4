//! Worlds of one node, made by hand. Which device is assigned: `assign.rs`; what becomes of it: `state_machine.rs`; what
//! is refused: `check.rs`; what is reported: `status.rs`.

use super::{
    check::{Violation, check},
    demand::{DeviceSelection, PvSettings, of_local_volume, of_set},
    filter::{DeviceType, Mismatch},
    *,
};
use crate::device_claim;
use jiff::Timestamp;
use quarry_api::{
    Bytes, LocalVolumeSetSpec, NodeInventoryStatus,
    node_inventory::{
        ClaimContent, ClaimJob, ClaimOwner, ClaimState, DeviceReason, DeviceState, LastPv,
        PathReport,
    },
    node_job::{JobOwner, JobPhase, NodeJobStatus, WipePolicy},
    volume::VolumeMode,
};

use serde_json::{Value, json};

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn set(name: &str, age: u32, spec: Value) -> Demand {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "quarry-system", "uid": format!("uid-{name}"), "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", 59 - age), "finalizers": [names::OWNER_FINALIZER]},
        "spec": {"storageClassName": name},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    of_set(&serde_json::from_value(object).unwrap())
}

fn local_volume(name: &str, paths: &[&str]) -> Demand {
    let object = json!({
        "metadata": {"name": name, "namespace": "quarry-system", "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:30Z", "finalizers": [names::OWNER_FINALIZER]},
        "spec": {"storageClassDevices": [{"storageClassName": name, "devicePaths": paths}]},
    });
    of_local_volume(&serde_json::from_value(object).unwrap())
}

fn disk(name: &str, number: u8) -> Device {
    Device {
        name: name.into(),
        kind: "disk".into(),
        size: 20 << 30,
        identity: Some(format!("wwn:5000c5000000000{number}")),
        device_id: Some(format!("/dev/disk/by-id/wwn-0x5000c5000000000{number}")),
        settled: true,
        state: DeviceState::Available,
        ..Device::default()
    }
}

fn with_reason(mut device: Device, reason: &str, state: DeviceState) -> Device {
    device.reasons.push(DeviceReason { reason: reason.into(), detail: String::new() });
    device.state = state;
    device
}

fn world(demands: Vec<Demand>, devices: Vec<Device>) -> NodeWorld {
    let mut inventory = NodeInventory::new("n1", quarry_api::NodeInventorySpec::default());
    inventory.metadata.uid = Some("inv".into());
    inventory.metadata.resource_version = Some("1".into());
    inventory.status = Some(NodeInventoryStatus {
        machine_id: Some("m1".into()),
        devices,
        ..NodeInventoryStatus::default()
    });
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-1", "labels": {"kubernetes.io/hostname": "n1"}}})).unwrap();
    NodeWorld {
        name: "n1".into(),
        node: Some(Arc::new(node)),
        inventory,
        demands,
        agent_present: true,
        ..NodeWorld::default()
    }
}

/// Plans, checks and takes over the inventory's part.
fn step(world: &mut NodeWorld) -> Plan {
    let plan = plan(world, now());
    assert_eq!(check(world, &plan), vec![], "{plan:?}");
    world.inventory.spec.device_claims = plan.claims.clone();
    world.inventory.spec.paths = plan.paths.clone();
    world.inventory.spec.retained_data = plan.retained_data.clone();
    world.inventory.spec.wipe_remnants = plan.wipe_remnants.clone();
    world.inventory.spec.machine_id = plan.machine_id.clone();
    plan
}

/// The agent says yes to everything, and has removed what is ending.
fn confirm(world: &mut NodeWorld) {
    let claims = world.inventory.spec.device_claims.clone();
    let status = world.inventory.status.as_mut().unwrap();
    status.device_claims = claims
        .iter()
        .map(|claim| ClaimReport {
            identity: claim.identity.clone(),
            owner_uid: claim.owner.uid.clone(),
            round: claim.round,
            state: if claim.terminating { ClaimState::Removed } else { ClaimState::Confirmed },
            linked: !claim.terminating,
            ..ClaimReport::default()
        })
        .collect();
}

fn names_of(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(Step::name).collect()
}

/// The API takes the steps.
fn apply(world: &mut NodeWorld, steps: &[Step]) {
    for step in steps {
        match step {
            Step::CreateClass(class) => drop(
                world
                    .classes
                    .insert(class.metadata.name.clone().unwrap(), Arc::new((**class).clone())),
            ),
            Step::CreatePv(pv) => {
                let mut pv = (**pv).clone();
                pv.metadata.uid = device_claim::pv::round(&pv).map(|round| format!("pv-{round}"));
                pv.metadata.resource_version = Some("1".into());
                pv.status = serde_json::from_value(json!({"phase": "Available"})).unwrap();
                world.pvs.push(Arc::new(pv));
            }
            Step::DeletePv { name, .. } => change_pv(world, name, |pv| {
                pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z")
            }),
            Step::ReleasePv { name, .. } => {
                world.pvs.retain(|pv| pv.metadata.name.as_ref() != Some(name))
            }
            Step::CreateJob(job) => drop(
                world.jobs.insert(job.metadata.name.clone().unwrap(), Arc::new((**job).clone())),
            ),
        }
    }
}

fn change_pv(world: &mut NodeWorld, name: &str, change: impl Fn(&mut Value)) {
    for pv in &mut world.pvs {
        if pv.metadata.name.as_deref() == Some(name) {
            let mut object = serde_json::to_value(&**pv).unwrap();
            change(&mut object);
            *pv = Arc::new(serde_json::from_value(object).unwrap());
        }
    }
}

fn phase(world: &mut NodeWorld, phase: &str) {
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(world, &name, |pv| {
        pv["status"]["phase"] = json!(phase);
        pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d", "uid": "claim"});
    });
}

/// A device claim's record of the PersistentVolume that `phase` binds.
fn last_pv(uid: &str, resolved: bool) -> Option<LastPv> {
    Some(LastPv { uid: uid.into(), pvc_uid: Some("claim".into()), resolved })
}

/// A world with one claimed, confirmed and published disk.
fn published() -> NodeWorld {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["CreateClass", "CreatePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).steps.is_empty(), "at rest");
    world
}

fn stage(world: &NodeWorld) -> Stage {
    let claim_contexts = claim_contexts(world);
    decide(world, &claim_contexts[0], now()).stage
}

fn eligibilities(world: &NodeWorld, uid: &str) -> Vec<(String, &'static str)> {
    account(world, uid).into_iter().map(|row| (row.device, row.eligibility.as_str())).collect()
}

/// Deletes the PersistentVolume of the world, which is let go.
fn tear_down(world: &mut NodeWorld) {
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    step(world);
    let plan = step(world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(world, &plan.steps);
    confirm(world);
}

/// An administrator does not need the data of this volume any more.
fn forget(world: &mut NodeWorld, uid: &str) {
    world.inventory.metadata.annotations = Some(
        [(names::FORGET_RETAINED_DATA_ANNOTATION.to_owned(), format!("another, {uid}"))].into(),
    );
}

fn finish(world: &mut NodeWorld, phase: &str, at: &str) {
    let name = world.inventory.spec.device_claims[0].job.clone().unwrap().name;
    let mut job = (*world.jobs[&name]).clone();
    job.status = serde_json::from_value(
        json!({"phase": phase, "runs": 1, "message": "the disk is gone", "completionTime": at}),
    )
    .unwrap();
    world.jobs.insert(name, Arc::new(job));
}

fn uid(world: &NodeWorld) -> String {
    world.pvs[0].metadata.uid.clone().unwrap()
}

/// A set's disk with retained data and without a device claim.
fn kept() -> NodeWorld {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    phase(&mut world, "Released");
    step(&mut world);
    tear_down(&mut world);
    assert_eq!(world.inventory.spec.retained_data.len(), 1);
    world.inventory.spec.device_claims.clear();
    world.demands.clear();
    world
}

fn at_path(world: &mut NodeWorld, device: &str) {
    world.inventory.status.as_mut().unwrap().paths =
        vec![PathReport { path: "/dev/sda".into(), device: Some(device.into()), problem: None }];
}

/// The disk of a Filesystem set, released and wiped quickly.
fn quickly_wiped() -> NodeWorld {
    let mut world =
        world(vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    wipe(&mut world);
    world
}

/// Uses the world's volume, releases it, and lets the wipe succeed.
fn wipe(world: &mut NodeWorld) {
    wipe_until(world, true);
}

/// `ended`: the plan that follows the wipe is carried out, too.
fn wipe_until(world: &mut NodeWorld, ended: bool) {
    phase(world, "Released");
    let plan = step(world);
    apply(world, &plan.steps);
    step(world);
    let plan = step(world);
    assert_eq!(names_of(&plan.steps), ["CreateJob"]);
    apply(world, &plan.steps);
    for job in world.jobs.values_mut() {
        let mut object = serde_json::to_value(&**job).unwrap();
        object["status"] = json!({"phase": "Succeeded"});
        *job = Arc::new(serde_json::from_value(object).unwrap());
    }
    if ended {
        step(world);
    }
}

type Change<T> = fn(&mut T);

/// A free disk, a set that wants it, and what the planner makes of that.
fn taking() -> (NodeWorld, Plan) {
    let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1)]);
    world.inventory.spec.machine_id = Some("m1".into());
    let plan = plan(&world, now());
    assert_eq!((plan.claims.len(), check(&world, &plan)), (1, vec![]));
    (world, plan)
}

mod assign;
mod check;
mod confirm;
mod content;
mod demand;
mod filter;
mod index;
mod owner;
mod plan;
mod publication;
mod pv;
mod records;
mod retained_data;
mod room;
mod stage;
mod state_machine;
mod status;
mod unpublished;
mod wipe;
