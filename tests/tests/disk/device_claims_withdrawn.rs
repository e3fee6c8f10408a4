//! Unused PersistentVolumes whose disk stops being usable, with real processes on real devices: a
//! disk that becomes read-only, and one that does not respond.

use super::{
    device_claims_end_to_end::{LoopDisk, inventory, offered, pvs, sets, until},
    devices::file,
    exported_file::ExportedFile,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use quarry_api::reason::Reason;
use quarry_tests::{
    disk::run,
    process::{Processes, Setup},
};
use serde_json::json;

/// Of these tests alone: a set takes every loop device of its size.
const SIZE: u64 = (43 << 20) + 4096 * 11;

async fn make_set(processes: &Processes, name: &str) {
    let size = SIZE.to_string();
    let spec = json!({
        "storageClassName": name, "volumeMode": "Block",
        "deviceInclusionSpec": {"deviceTypes": ["loop"], "minSize": size, "maxSize": size},
    });
    let set = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": name}, "spec": spec});
    let set = serde_json::from_value(set).unwrap();
    sets(processes).create(&PostParams::default(), &set).await.unwrap();
}

/// The kernel reports that the device changed; otherwise a scan sees it within ten minutes.
fn report_change(disk: &LoopDisk) {
    run("udevadm", &["trigger", "--action=change", &disk.device]);
}

/// Guard: the next file on this loop device would be read-only too.
struct ReadOnly<'a>(&'a LoopDisk);

impl<'a> ReadOnly<'a> {
    fn new(disk: &'a LoopDisk) -> Self {
        run("blockdev", &["--setro", &disk.device]);
        report_change(disk);
        ReadOnly(disk)
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        run("blockdev", &["--setrw", &self.0.device]);
        report_change(self.0);
    }
}

/// The PersistentVolume is withdrawn, and the device has this reason.
async fn withdrawn(processes: &mut Processes, disk: &LoopDisk, reason: Reason) {
    let name = disk.device.trim_start_matches("/dev/").to_owned();
    until(processes, "the PersistentVolume is withdrawn", async |processes| {
        let status = inventory(processes).await.status.unwrap_or_default();
        let device = status.devices.iter().find(|device| device.name == name);
        let explained = device.is_some_and(|device| device.has(reason));
        let left = pvs(processes).await.len();
        (explained && left == 0).then_some(()).ok_or(format!("{left} left; {device:?}"))
    })
    .await;
}

async fn delete_set(processes: &mut Processes, name: &str) {
    sets(processes).delete(name, &DeleteParams::default()).await.unwrap();
    until(processes, "the LocalVolumeSet is deleted", async |processes| {
        let left = sets(processes).get_opt(name).await.unwrap();
        left.map_or(Ok(()), |set| Err(json!(set.status).to_string()))
    })
    .await;
}

// invariant: 4
#[tokio::test(flavor = "multi_thread")]
async fn read_only_disk_is_withdrawn_until_it_is_writable() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start_as(dir.path(), Setup::claims()).await;
    let disk = LoopDisk::attach(dir.path(), "read-only", SIZE);
    make_set(&processes, "read-only").await;
    let (first, _) = offered(&mut processes, None).await;
    let read_only = ReadOnly::new(&disk);
    withdrawn(&mut processes, &disk, Reason::ReadOnly).await;
    drop(read_only);
    let (again, _) = offered(&mut processes, first.uid().as_deref()).await;
    assert_eq!(again.name_any(), first.name_any());
    delete_set(&mut processes, "read-only").await;
    processes.stop().await;
}

// invariant: 4
#[tokio::test(flavor = "multi_thread")]
async fn hung_disk_is_withdrawn_until_it_responds() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start_as(dir.path(), Setup::claims()).await;
    let export = dir.path().join("export");
    let daemon = ExportedFile::new(&file(dir.path(), "image", SIZE), &export);
    let disk = LoopDisk::over(export);
    make_set(&processes, "hung").await;
    let (first, _) = offered(&mut processes, None).await;
    // udev must not hang on it too.
    run("udevadm", &["settle", "--timeout=30"]);
    let stopped = daemon.stopped();
    let name = disk.device.trim_start_matches("/dev/");
    std::fs::write(format!("/sys/block/{name}/uevent"), "change").unwrap();
    withdrawn(&mut processes, &disk, Reason::TimedOut).await;
    drop(stopped);
    let (again, _) = offered(&mut processes, first.uid().as_deref()).await;
    assert_eq!(again.name_any(), first.name_any());
    delete_set(&mut processes, "hung").await;
    processes.stop().await;
    drop(disk);
}
