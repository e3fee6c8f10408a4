//! Stories of published disks: bound while it is deleted, write-protected, shown by another node as well.
//!
//! Next to read: `device_claim_stories.rs`, whose parts they are made of.

use crate::{
    device_claim_stories::{
        claim_on, claims, degraded, delete, end, first_is_free, nothing_is_claimed, one_disk,
        pv_name, released, used_by,
    },
    disk::Disk,
    kind::{Kind, NAMESPACE},
    raw_disks::RawDisk,
    story::{CLAIM, Step, Story, story},
    world::World,
};
use serde_json::{Value, json};

/// Reserved, deleted, and bound all the same by a claim that names it: before its finalizer is removed, or after it was
/// recreated. Either way what the pod writes is wiped before anything is offered again.
fn bound_while_deleted() -> Vec<Step> {
    let reserve = json!({"spec": {"claimRef": {"namespace": NAMESPACE, "name": CLAIM}}});
    let ended = |world: &World, _: &Disk| {
        claims(world).iter().any(|claim| claim["lastPV"]["resolved"] == true)
    };
    [
        one_disk(),
        vec![
            Step::Patch(Kind::Pv, pv_name(1).to_owned(), reserve),
            delete(Kind::Pv, pv_name(1)),
            Step::Await("its end is recorded", ended),
        ],
        used_by(claim_on(1)),
        vec![Step::HideData("sda")],
        released(),
        vec![Step::Await("offered again, and empty", |world, disk| {
            first_is_free(world, disk) && disk.disks["sda"].is_empty()
        })],
        end(),
    ]
    .concat()
}

/// Nothing can be stored on it any more: it is withdrawn, and offered again when it is writable.
fn write_protected() -> Vec<Step> {
    [
        one_disk(),
        vec![
            Step::WriteProtect("sda", true),
            Step::Await("withdrawn", nothing_is_claimed),
            Step::WriteProtect("sda", false),
            Step::Await("offered again", first_is_free),
        ],
        end(),
    ]
    .concat()
}

const RIVAL: &str = "n2";

/// What the agent of another node says that it has.
fn rival_shows(devices: &[Value]) -> Step {
    let status = json!({"status": {"machineID": "rival", "devices": devices}});
    Step::Patch(Kind::Inventory, format!("{RIVAL}/status"), status)
}

/// Another node shows the identity of a disk that is published here: the PersistentVolume stays and can be used, but its
/// disk is not wiped before the other node takes it back.
fn shown_elsewhere() -> Vec<Step> {
    let disk = RawDisk::new(1);
    let copy = json!({"name": "sdx", "type": "disk", "size": disk.size, "identity": disk.identity(), "settled": true, "state": "Available"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": RIVAL, "labels": {"kubernetes.io/hostname": RIVAL}}});
    let stays = |world: &World, disk: &Disk| {
        degraded(world, "is published, but sda has the same identity as a device on another node")
            && first_is_free(world, disk)
    };
    [
        one_disk(),
        vec![
            Step::Create(Kind::Node, node),
            Step::Await("the other node has an inventory", |world, _| {
                world.get(Kind::Inventory, RIVAL).is_some()
            }),
            rival_shows(&[copy]),
            Step::Await("it is reported, and stays", stays),
        ],
        used_by(claim_on(1)),
        released(),
        vec![
            Step::Await("not wiped", |world, disk| {
                degraded(world, "is not wiped while it is not certain which one it is")
                    && !disk.disks["sda"].is_empty()
            }),
            rival_shows(&[]),
            Step::Await("wiped and offered again", |world, disk| {
                first_is_free(world, disk) && disk.disks["sda"].is_empty()
            }),
        ],
        end(),
    ]
    .concat()
}

pub fn stories() -> Vec<Story> {
    vec![
        story("set-bound-while-deleted", bound_while_deleted()),
        story("set-write-protected", write_protected()),
        story("set-shown-elsewhere", shown_elsewhere()),
    ]
}
