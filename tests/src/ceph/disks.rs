//! Devices for OSDs: loop disks, as PersistentVolumes made by hand or by a LocalVolumeSet.
//!
//! Their files are below the lab's directory: `kube-lab down` detaches them, and the loop device
//! that kubelet puts over each as its lock, also when the test was killed.

use super::directory;
use crate::{
    lab::{LoopDisk, NODE, apply, run, try_run, until},
    volume_sets::{pvs_of, set},
};
use serde_json::{Value, json};
use std::{os::unix::fs::MetadataExt, time::Duration};

const LIMIT: Duration = Duration::from_secs(60);
/// Owner of disks in Debian: `disk`.
pub const DISK_GROUP: u32 = 6;
/// An OSD takes 290 MiB of its device at once, and does not start on 256 MiB.
pub const OSD_MEBIBYTES: u64 = 1024;

/// Loop disks of one size that belong to the group of disks: a pod that is not root opens its device
/// as a member of that group. udev sets it when a device is added; a loop device that is older than
/// the daemon of the lab has only changed since.
pub fn loop_disks(name: &str, count: usize, mebibytes: u64) -> Vec<LoopDisk> {
    let files = directory().join("disks");
    std::fs::create_dir_all(&files).expect("the lab's directory can be written");
    let disks: Vec<LoopDisk> = (0..count)
        .map(|index| LoopDisk::attach_file(files.join(format!("{name}-{index}")), mebibytes << 20))
        .collect();
    for disk in &disks {
        run("udevadm", &["trigger", "--action=add", "--name-match", &disk.device]);
        until(&format!("{} belongs to the group of disks", disk.device), LIMIT, || {
            let node = std::fs::metadata(&disk.device).map_err(|error| error.to_string())?;
            let (group, mode) = (node.gid(), node.mode() & 0o777);
            let seen = format!("group {group}, mode {mode:o}");
            if (group, mode) == (DISK_GROUP, 0o660) { Ok(()) } else { Err(seen) }
        });
    }
    disks
}

/// A StorageClass of local volumes that binds when a pod needs them.
pub fn local_class(name: &str) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Retain",
    });
    apply(&class.to_string());
}

/// A Block PersistentVolume over a path of a node; the node may be one of `kwok.rs`, which has no
/// disks.
pub fn block_pv(name: &str, class: &str, node: &str, path: &str, mebibytes: u64) {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    let terms = json!([{"matchExpressions": [here]}]);
    let spec = json!({
        "capacity": {"storage": format!("{mebibytes}Mi")}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
        "volumeMode": "Block", "local": {"path": path},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    });
    let metadata = json!({"name": name, "labels": {"quarry.dev/lab-class": class}});
    let kind = "PersistentVolume";
    let pv = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec});
    apply(&pv.to_string());
}

/// A class with PersistentVolumes made by hand over loop disks of the lab's node; removed on drop.
/// Pods and PVCs that use them have to be deleted before.
pub struct HandMade {
    pub class: String,
    pub disks: Vec<LoopDisk>,
}

impl HandMade {
    pub fn new(class: &str, count: usize, mebibytes: u64) -> Self {
        local_class(class);
        let disks = loop_disks(class, count, mebibytes);
        for (index, disk) in disks.iter().enumerate() {
            block_pv(&format!("{class}-{index}"), class, NODE, &disk.device, mebibytes);
        }
        HandMade { class: class.to_owned(), disks }
    }
}

impl Drop for HandMade {
    fn drop(&mut self) {
        let label = format!("quarry.dev/lab-class={}", self.class);
        try_run("kubectl", &["delete", "pv", "-l", &label, "--timeout=30s"], None);
        try_run("kubectl", &["delete", "storageclass", &self.class], None);
    }
}

/// Loop disks that a new LocalVolumeSet selects by their size, with their PersistentVolumes. No
/// other disk of the machine may have the size. Needs Quarry and a short settling time
/// (`volume_sets.rs`), which also deletes the set.
pub fn set_disks(name: &str, count: usize, mebibytes: u64) -> (Vec<LoopDisk>, Vec<Value>) {
    let disks = loop_disks(name, count, mebibytes);
    set(name, mebibytes, json!({"volumeMode": "Block"}));
    let pvs = until(&format!("{name} has {count} PersistentVolumes"), LIMIT, || {
        let pvs = pvs_of(name);
        let available = pvs.iter().filter(|pv| pv["status"]["phase"] == "Available").count();
        if available == count { Ok(pvs) } else { Err(json!(pvs).to_string()) }
    });
    (disks, pvs)
}
