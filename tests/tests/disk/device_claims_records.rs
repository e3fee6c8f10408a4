//! Records of data on real devices: a wipe remnant follows a disk to its partitions, and a
//! partition to its disk.

use super::{
    device_claims::Ground,
    devices::{Loop, MIB},
};
use kube::api::{Patch, PatchParams};
use quarry_api::{
    NodeInventory,
    node_inventory::{ClaimReport, ClaimState, DeviceClaim, WipeRemnant},
    volume::VolumeMode,
};
use quarry_core::device::Facts;
use quarry_node::{DeviceOps, ScanRequest};
use quarry_tests::{
    device_claim::{NODE, claim_of},
    disk::run,
};
use serde_json::json;

/// What a scan reports about the device of this name.
fn facts(ground: &Ground, name: &str) -> Facts {
    let request = ScanRequest { everything: true, ..ScanRequest::default() };
    let devices = ground.ops.scan_node(&request).unwrap().devices;
    devices.into_iter().find(|facts| facts.name == name).unwrap()
}

fn claim(ground: &Ground, name: &str, mode: VolumeMode) -> DeviceClaim {
    DeviceClaim { volume_mode: mode, ..claim_of(&facts(ground, name), ground.world.owner()) }
}

/// The agent's report on a new device claim on the device of this name, with this record.
async fn look(ground: &Ground, name: &str, mode: VolumeMode, left: &WipeRemnant) -> ClaimReport {
    // A device claim of its own, not an earlier one that was confirmed.
    ground.look(&[]).await;
    let spec = json!({"spec": {"wipeRemnants": [left]}});
    let inventories = ground.world.all::<NodeInventory>();
    inventories.patch(NODE, &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    ground.report(&claim(ground, name, mode)).await
}

async fn assert_only_a_file_system(ground: &Ground, name: &str, left: &WipeRemnant) {
    let report = look(ground, name, VolumeMode::Block, left).await;
    let message = report.message.unwrap_or_default();
    assert_eq!(report.state, ClaimState::Refused, "{name}");
    assert!(message.contains("after a Quick wipe"), "{name}: {message}");
    let report = look(ground, name, VolumeMode::Filesystem, left).await;
    assert_eq!(report.state, ClaimState::Confirmed, "{name}: {report:?}");
}

/// Creates one partition, with this number.
fn partition(device: &Loop, number: u32) -> String {
    run("sgdisk", &["-Z", &device.dev()]);
    run("sgdisk", &["-n", &format!("{number}:0:0"), &device.dev()]);
    let name = format!("{}p{number}", device.name);
    assert_eq!(device.add_partitions(), std::slice::from_ref(&name));
    name
}

/// Removes the partitions, and zeroes both ends of the disk.
fn erase(device: &Loop, size: u64) {
    run("partx", &["-d", &device.dev()]);
    run("wipefs", &["-a", &device.dev()]);
    for offset in [0, size / MIB - 1] {
        let (target, seek) = (format!("of={}", device.dev()), format!("seek={offset}"));
        run("dd", &["if=/dev/zero", &target, "bs=1M", "count=1", &seek, "conv=fsync"]);
    }
    device.settle();
}

// invariant: 1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wipe_remnant_follows_a_disk_to_its_partitions_and_back() {
    let ground = Ground::new().await;
    let size = 16 * MIB;
    let (device, _) = ground.disk("d", size);
    let disk = ground.claim(&device).identity;
    let left = |identity: &str, disk: Option<&str>| WipeRemnant {
        identity: identity.to_owned(),
        disk: disk.map(str::to_owned),
        pv_name: "local-pv-1".into(),
        pv_uid: "u".into(),
        ..WipeRemnant::default()
    };
    // Of the disk: on its partition, too.
    let name = partition(&device, 1);
    assert_only_a_file_system(&ground, &name, &left(&disk, None)).await;
    // Of the partition: on the disk, too, and on the partition that replaces it.
    let of_part = left(&claim(&ground, &name, VolumeMode::Block).identity, Some(&disk));
    assert_only_a_file_system(&ground, &name, &of_part).await;
    erase(&device, size);
    assert_only_a_file_system(&ground, &device.name, &of_part).await;
    let name = partition(&device, 1);
    assert_ne!(claim(&ground, &name, VolumeMode::Block).identity, of_part.identity);
    assert_only_a_file_system(&ground, &name, &of_part).await;
    // Of another disk: not here.
    let other = left("wwn:5000c50000000009", None);
    let report = look(&ground, &name, VolumeMode::Block, &other).await;
    assert_eq!(report.state, ClaimState::Confirmed, "{report:?}");
}
