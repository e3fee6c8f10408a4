//! Devices that are in use or contain something, on real loop devices: what is behind the
//! PersistentVolumes of others, and what a LocalVolume may name as a file system.

use super::{
    device_claims::Ground,
    device_claims_end_to_end::{LoopDisk, SIZE, event_exists, inventory, make_set, pvs, until},
    devices::{Loop, MIB},
    devices_content::LUKS,
};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt, api::PostParams};
use quarry_api::{
    Volume,
    node_inventory::{ClaimContent, ClaimState, DeviceClaim},
    reason::Reason,
    volume::{Phase, VolumeMode},
};
use quarry_tests::{
    disk::run,
    process::{NODE, Processes, Setup},
};
use serde_json::json;
use std::{fs, os::unix::fs::symlink, path::Path};

/// MetalK8s' own operator publishes its Volumes under the same kind. Our own PersistentVolumes are
/// not listed: the node has prepared them.
// invariant: 3
#[tokio::test]
async fn device_of_a_volume_prepared_by_others_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let setup =
        Setup { controllers: "volume,nodeinventory,nodejob,deviceclaims", ..Setup::claims() };
    let mut processes = Processes::start_as(dir.path(), setup).await;
    let disk = LoopDisk::attach(dir.path(), "metal", SIZE);
    let volumes: Api<Volume> = Api::all(processes.client());
    let volume = json!({
        "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": "metal"},
        "spec": {"nodeName": NODE, "storageClassName": "story", "mode": "Block", "rawBlockDevice": {"devicePath": disk.device}},
    });
    let volume = serde_json::from_value(volume).unwrap();
    let volume: Volume = volumes.create(&PostParams::default(), &volume).await.unwrap();
    let pv = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "metal", "ownerReferences": [{
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume",
            "name": "metal", "uid": volume.uid(), "controller": true,
        }]},
        "spec": {
            "capacity": {"storage": "41Mi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "storageClassName": "story", "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": disk.device},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]},
            ]}]}},
        },
    });
    let api: Api<PersistentVolume> = Api::all(processes.client());
    api.create(&PostParams::default(), &serde_json::from_value(pv).unwrap()).await.unwrap();
    let name = disk.device.trim_start_matches("/dev/").to_owned();
    processes.wait_inventory("devices are listed", |status| !status.devices.is_empty()).await;
    until(&mut processes, "the device backs a PersistentVolume", async |processes| {
        let status = inventory(processes).await.status.unwrap_or_default();
        let device = status.devices.into_iter().find(|device| device.name == name);
        let reasons = device.map(|device| device.reasons).unwrap_or_default();
        let found = reasons
            .iter()
            .any(|one| one.reason == Reason::BacksPersistentVolume && one.detail == "metal");
        found.then_some(()).ok_or(format!("{reasons:?}"))
    })
    .await;
    make_set(&processes, "taker", json!({"volumeMode": "Block"})).await;
    until(&mut processes, "the set has decided", async |processes| {
        event_exists(processes, "DeviceSummary", "BacksPersistentVolume").await
    })
    .await;
    assert_eq!(inventory(&processes).await.spec.device_claims, []);
    assert_eq!(pvs(&processes).await.len(), 1);

    processes.create("own", "Filesystem").await;
    processes
        .wait("own", "is Available", |volume| {
            volume.is_some_and(|volume| volume.phase() == Some(Phase::Available))
        })
        .await;
    until(&mut processes, "the device of the Volume is listed", async |processes| {
        let found = inventory(processes).await;
        let status = found.status.unwrap_or_default();
        let listed = status.devices.iter().any(|device| device.volume_uid.is_some());
        let unmanaged: Vec<String> =
            found.spec.unmanaged_pvs.into_iter().map(|pv| pv.name).collect();
        (listed && unmanaged == ["metal"]).then_some(()).ok_or(format!("{unmanaged:?}"))
    })
    .await;
    processes.delete("own").await;
    processes.wait("own", "is deleted", |volume| volume.is_none()).await;
    processes.stop().await;
}

/// A copy of the volume's file has the same UUID: a pod would mount the copy.
// invariant: 9
#[tokio::test(flavor = "multi_thread")]
async fn volume_whose_link_leads_to_a_copy_is_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start(dir.path()).await;
    let uid = processes.create("copied", "Filesystem").await.uid().unwrap();
    let available = |volume: Option<&Volume>| {
        volume.is_some_and(|volume| volume.phase() == Some(Phase::Available))
    };
    processes.wait("copied", "is Available", available).await;
    processes.wait_a_second_after_change("copied").await;
    let copy = dir.path().join("copy");
    fs::copy(dir.path().join("data/volumes").join(&uid), &copy).unwrap();
    let copy = Loop::new(&copy);
    copy.settle();
    // udev leaves the link alone or moves it; here it is moved in any case.
    let link = Path::new("/dev/disk/by-uuid").join(&uid);
    let own = fs::read_link(&link).unwrap();
    let moved = dir.path().join("link");
    symlink(format!("../../{}", copy.name), &moved).unwrap();
    run("mv", &["-T", &moved.to_string_lossy(), &link.to_string_lossy()]);
    let words = format!("{} has the same UUID", copy.name);
    processes
        .wait("copied", "reports the copy", |volume| {
            let ready = volume.and_then(|volume| volume.ready());
            let message = ready.and_then(|ready| ready.message.clone()).unwrap_or_default();
            volume.is_some_and(|volume| volume.phase() == Some(Phase::Failed))
                && message.contains(&words)
        })
        .await;
    drop(copy);
    let status = processes.wait_inventory("the device is listed", |status| {
        status.devices.iter().any(|device| device.volume_uid.as_deref() == Some(&uid))
    });
    let device = status.await.devices.into_iter().find(|device| device.volume_uid.is_some());
    run("udevadm", &["trigger", "--settle", &format!("/dev/{}", device.unwrap().name)]);
    if fs::read_link(&link).ok().as_ref() != Some(&own) {
        eprintln!("{} -> {:?}, before {own:?}", link.display(), fs::read_link(&link));
    }
    processes.wait("copied", "is Available again", available).await;
    processes.delete("copied").await;
    processes.wait("copied", "is deleted", |volume| volume.is_none()).await;
    processes.stop().await;
}

// invariant: 1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_fitting_file_system_is_confirmed() {
    let ground = Ground::new().await;
    type Case<'a> = (&'a str, &'a str, &'a [&'a str], Option<&'a str>, bool);
    let cases: [Case<'_>; 7] = [
        ("LVM2_member", "pvcreate", &["-q", "-y"], None, false),
        ("crypto_LUKS", "cryptsetup", LUKS, None, false),
        ("swap", "mkswap", &[], None, false),
        ("vfat", "mkfs.vfat", &[], None, false),
        ("ext4", "mkfs.ext4", &["-q", "-F"], Some("xfs"), false),
        ("ext4", "mkfs.ext4", &["-q", "-F"], Some("ext4"), true),
        ("ext3", "mkfs.ext3", &["-q", "-F"], None, true),
    ];
    let mut devices = Vec::new();
    for (number, (found, tool, arguments, fs_type, fits)) in cases.into_iter().enumerate() {
        let (device, path) = ground.disk(&format!("d{number}"), 32 * MIB);
        let dev = device.dev();
        let only = format!(
            "devices {{ use_devicesfile=0 scan_lvs=0 filter=[ \"a|^{dev}$|\", \"r|.*|\" ] }}"
        );
        let config = if tool == "pvcreate" { vec!["--config", &only] } else { Vec::new() };
        run(tool, &[arguments, &config, &[&dev]].concat());
        let before = fs::read(&path).unwrap();
        let claim = DeviceClaim {
            content: ClaimContent::Any,
            volume_mode: VolumeMode::Filesystem,
            fs_type: fs_type.map(str::to_owned),
            ..ground.claim(&device)
        };
        let report = ground.report(&claim).await;
        let message = report.message.clone().unwrap_or_default();
        if fits {
            assert_eq!(report.state, ClaimState::Confirmed, "{found} as {fs_type:?}: {message}");
        } else {
            assert_eq!(
                (report.state, report.linked),
                (ClaimState::Refused, false),
                "{found}: {report:?}"
            );
            let words = format!("{} contains {found}", device.name);
            assert!(message.contains(&words), "{message}");
            assert!(ground.link_target(&claim).is_none(), "{found}");
            let block = DeviceClaim { volume_mode: VolumeMode::Block, ..claim };
            assert_eq!(ground.report(&block).await.state, ClaimState::Confirmed, "{found}");
        }
        assert!(before == fs::read(&path).unwrap(), "{found}: no byte was written");
        // The next one gets another name, and so another link.
        devices.push(device);
    }
}
