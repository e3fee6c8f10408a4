//! The rest of a cluster, as far as the stories need it: the binder, the protection finalizers, a kubelet.
//!
//! One act at a time, each a single write as the real controllers make it, in their order.

use crate::{
    admin_client::{AdminClient, Refused},
    disk::Disk,
    kind::Kind,
    raw_disks::{ExpectedContent, Keeper},
    story::CLAIM,
    world::World,
};
use quarry_api::names::IDENTITY_ANNOTATION;
use serde_json::{Value, json};
use std::fmt;

const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// What the pod writes into its volume.
const DATA: &str = "64 MiB of data";

/// One write to the API or one act on the node.
#[derive(Clone, Debug)]
pub enum Act {
    Patch {
        path: String,
        changes: Value,
    },
    Mount {
        device: String,
        uid: String,
    },
    /// A whole disk, for the pod of the PVC with this UID.
    MountDisk {
        device: String,
        pvc: String,
        signature: &'static str,
    },
    Unmount {
        device: String,
    },
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Patch { path, changes } => {
                // Versions differ between equal runs.
                let mut changes = changes.clone();
                changes["metadata"]["resourceVersion"] = Value::Null;
                write!(f, "PATCH {path} {changes}")
            }
            Act::Mount { device, uid } => write!(f, "mount {device} for a pod, volume {uid}"),
            Act::MountDisk { device, pvc, .. } => {
                write!(f, "mount {device} for a pod, PVC {pvc}")
            }
            Act::Unmount { device } => write!(f, "unmount {device}"),
        }
    }
}

/// The next thing that some controller of the cluster would do; `None` at rest.
pub fn next(world: &World, disk: &Disk, pod: bool) -> Option<Act> {
    world
        .all(Kind::Pvc)
        .find_map(|pvc| for_pvc(pvc, world, disk, pod))
        .or_else(|| world.all(Kind::Pv).find_map(|pv| for_pv(pv, world)))
        .or_else(|| kubelet(world, disk, pod))
}

fn patch(kind: Kind, object: &Value, mut changes: Value, status: bool) -> Option<Act> {
    let name = object["metadata"]["name"].as_str()?;
    changes["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    let path = kind.object_path(name);
    Some(Act::Patch { path: if status { format!("{path}/status") } else { path }, changes })
}

fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn finalizers(object: &Value) -> Vec<Value> {
    object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default()
}

fn protect(kind: Kind, object: &Value, finalizer: &str) -> Option<Act> {
    let mut list = finalizers(object);
    if deleting(object) || list.contains(&json!(finalizer)) {
        return None;
    }
    list.push(json!(finalizer));
    patch(kind, object, json!({"metadata": {"finalizers": list}}), false)
}

fn unprotect(kind: Kind, object: &Value, finalizer: &str) -> Option<Act> {
    let mut list = finalizers(object);
    if !deleting(object) || !list.contains(&json!(finalizer)) {
        return None;
    }
    list.retain(|found| found != finalizer);
    patch(kind, object, json!({"metadata": {"finalizers": list}}), false)
}

fn for_pv(pv: &Value, world: &World) -> Option<Act> {
    if let Some(act) = protect(Kind::Pv, pv, PV_PROTECTION) {
        return Some(act);
    }
    let bound_uid = &pv["spec"]["claimRef"]["uid"];
    let pvc_exists = world.all(Kind::Pvc).any(|pvc| pvc["metadata"]["uid"] == *bound_uid);
    if bound_uid.is_string() && !pvc_exists && pv["status"]["phase"] != "Released" {
        return patch(Kind::Pv, pv, json!({"status": {"phase": "Released"}}), true);
    }
    if pv["status"]["phase"] != "Bound" {
        return unprotect(Kind::Pv, pv, PV_PROTECTION);
    }
    None
}

/// The binder's four writes, and the PVC's protection while a pod uses it.
fn for_pvc(pvc: &Value, world: &World, disk: &Disk, pod: bool) -> Option<Act> {
    if let Some(act) = protect(Kind::Pvc, pvc, PVC_PROTECTION) {
        return Some(act);
    }
    if deleting(pvc) {
        let used = pod || !disk.mounts.is_empty();
        return if used { None } else { unprotect(Kind::Pvc, pvc, PVC_PROTECTION) };
    }
    let uid = &pvc["metadata"]["uid"];
    let Some(pv) = world.all(Kind::Pv).find(|pv| pv["spec"]["claimRef"]["uid"] == *uid) else {
        let pv = world.all(Kind::Pv).find(|pv| fits(pv, pvc))?;
        let reference = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": pvc["metadata"]["namespace"], "name": pvc["metadata"]["name"], "uid": uid});
        return patch(Kind::Pv, pv, json!({"spec": {"claimRef": reference}}), false);
    };
    if pv["status"]["phase"] != "Bound" {
        return patch(Kind::Pv, pv, json!({"status": {"phase": "Bound"}}), true);
    }
    if pvc["spec"]["volumeName"].is_null() {
        return patch(
            Kind::Pvc,
            pvc,
            json!({"spec": {"volumeName": pv["metadata"]["name"]}}),
            false,
        );
    }
    if pvc["status"]["phase"] != "Bound" {
        return patch(Kind::Pvc, pvc, json!({"status": {"phase": "Bound"}}), true);
    }
    None
}

/// Whether the binder binds them. A claim that names its volume gets it although it is being deleted, and although it is
/// reserved, if it is for this claim.
fn fits(pv: &Value, claim: &Value) -> bool {
    let (reference, named) = (&pv["spec"]["claimRef"], &claim["spec"]["volumeName"]);
    let reserved = reference["uid"].is_null()
        && reference["namespace"] == claim["metadata"]["namespace"]
        && reference["name"] == claim["metadata"]["name"];
    let open = reference.is_null() || reserved;
    pv["status"]["phase"] == "Available"
        && pv["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
        && open
        && if named.is_null() { !deleting(pv) } else { pv["metadata"]["name"] == *named }
}

/// Mounts the bound volume for the pod, unmounts it when the pod is gone.
fn kubelet(world: &World, disk: &Disk, pod: bool) -> Option<Act> {
    if !pod {
        return disk.mounts.keys().next().map(|device| Act::Unmount { device: device.clone() });
    }
    let pvc = world
        .get(Kind::Pvc, CLAIM)
        .filter(|pvc| pvc["status"]["phase"] == "Bound" && disk.mounts.is_empty())?;
    let pv = world.get(Kind::Pv, pvc["spec"]["volumeName"].as_str()?)?;
    if pv["metadata"]["annotations"][IDENTITY_ANNOTATION].is_string() {
        return mount_disk(pvc, pv, disk);
    }
    let uid = pv["spec"]["local"]["path"].as_str()?.rsplit('/').next()?.to_owned();
    Some(Act::Mount { device: disk.device_of(&uid)?, uid })
}

/// Through the link, whatever it leads to; not while a process holds the disk exclusively.
fn mount_disk(pvc: &Value, pv: &Value, disk: &Disk) -> Option<Act> {
    let device = disk
        .behind(pv["spec"]["local"]["path"].as_str()?)
        .filter(|device| !disk.is_held(device))?
        .to_owned();
    let signature = if pv["spec"]["volumeMode"] == "Block" { "ceph_bluestore" } else { "ext4" };
    Some(Act::MountDisk { device, pvc: pvc["metadata"]["uid"].as_str()?.to_owned(), signature })
}

/// The pod finds its data, or an empty disk to write it to.
fn use_disk(disk: &mut Disk, device: &str, pvc: &str, signature: &str) -> Option<String> {
    disk.mounts.insert(device.to_owned(), "/var/lib/kubelet/pods/x".to_owned());
    let found = disk.disks.get_mut(device)?;
    let keeper = Keeper::Pvc(pvc.to_owned());
    if let Some((wwn, expected)) =
        disk.expected.iter().find(|(_, expected)| expected.keeper == keeper)
    {
        let same = *wwn == found.wwn
            && (&found.signature, &found.data) == (&expected.signature, &expected.data);
        return (!same).then(|| format!("the pod's data is gone: found {:?}", found.data));
    }
    if !found.is_empty() {
        return Some(format!("a pod was given a disk with data: {:?}", found.data));
    }
    (found.signature, found.data) = (Some(signature.to_owned()), Some(DATA.to_owned()));
    let expected =
        ExpectedContent { keeper, signature: found.signature.clone(), data: found.data.clone() };
    disk.expected.insert(found.wwn.clone(), expected);
    None
}

/// Carries it out; `Some` says what is wrong with what was found.
pub async fn carry_out(act: &Act, raw: &AdminClient, disk: &mut Disk) -> Option<String> {
    match act {
        Act::Patch { path, changes } => match raw.patch(path, changes).await {
            Ok(_) | Err(Refused { code: 404 | 409, .. }) => None,
            Err(refused) => {
                Some(format!("the cluster's own write to {path} was refused: {refused}"))
            }
        },
        Act::Mount { device, uid } => {
            disk.mounts.insert(device.clone(), "/var/lib/kubelet/pods/x".to_owned());
            let Some(file) = disk.files.get_mut(uid) else {
                return Some(format!("{device} was mounted without a file"));
            };
            match &file.data {
                Some(found) if found == DATA => None,
                None if !disk.pod_wrote => {
                    file.data = Some(DATA.to_owned());
                    disk.pod_wrote = true;
                    None
                }
                found => Some(format!("the pod's data is gone: found {found:?}")),
            }
        }
        Act::MountDisk { device, pvc, signature } => use_disk(disk, device, pvc, signature),
        Act::Unmount { device } => {
            disk.mounts.remove(device);
            None
        }
    }
}
