//! The stories of claimed disks: sets and LocalVolumes, their PersistentVolumes, and what happens to disks meanwhile.
//!
//! Each ends with nothing asked for any more, so that an hour at rest needs no renewals; one stays awake.

use crate::{
    disk::Disk,
    kind::Kind,
    raw_disks::{RawDisk, machine_id},
    story::{CLAIM, CLASS, NODE, Step, Story, mounted, node, pvc, story},
    world::World,
};
use quarry_api::names;
use serde_json::{Value, json};
use std::{sync::LazyLock, time::Duration};

const SET: &str = "fast";
const BY_PATH: &str = "by-path";
/// Of disk 1.
const BY_ID: &str = "/dev/disk/by-id/wwn-0x5000c50000000001";

/// Asked for after every action: hashed once.
static PVS: LazyLock<[String; 2]> =
    LazyLock::new(|| [1, 2].map(|number| names::local_pv(NODE, &RawDisk::new(number).identity())));

/// Of disk 1 or 2.
pub(crate) fn pv_name(number: usize) -> &'static str {
    &PVS[number - 1]
}

fn set(name: &str, class: &str) -> Step {
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": name, "namespace": names::DEFAULT_NAMESPACE},
        "spec": {"storageClassName": class, "volumeMode": "Filesystem", "fsType": "ext4"},
    });
    Step::Create(Kind::Set, set)
}

fn local_volume(name: &str, class: &str, paths: &[&str]) -> Step {
    let volume = json!({
        "apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume", "metadata": {"name": name, "namespace": names::DEFAULT_NAMESPACE},
        "spec": devices_at(class, paths),
    });
    Step::Create(Kind::LocalVolume, volume)
}

fn devices_at(class: &str, paths: &[&str]) -> Value {
    json!({"storageClassDevices": [{"storageClassName": class, "volumeMode": "Filesystem", "fsType": "ext4", "devicePaths": paths}]})
}

fn retaining_class() -> Step {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain",
    });
    Step::Create(Kind::Class, class)
}

/// A claim that names its volume.
pub(crate) fn claim_on(number: usize) -> Step {
    let Step::Create(kind, mut object) = pvc("Filesystem") else { return pvc("Filesystem") };
    object["spec"]["volumeName"] = json!(pv_name(number));
    Step::Create(kind, object)
}

pub(crate) fn delete(kind: Kind, name: &str) -> Step {
    Step::Delete(kind, name.to_owned())
}

/// What a condition of the set or LocalVolume says, if it is true.
fn says<'a>(world: &'a World, kind: Kind, name: &str, condition: &str) -> Option<&'a str> {
    let found = world.get(kind, name)?["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|found| found["type"] == condition)?;
    (found["status"] == "True").then(|| found["message"].as_str().unwrap_or_default())
}

pub(crate) fn claims(world: &World) -> Vec<&Value> {
    world
        .get(Kind::Inventory, NODE)
        .and_then(|inventory| inventory["spec"]["deviceClaims"].as_array())
        .into_iter()
        .flatten()
        .collect()
}

fn is_free(world: &World, number: usize) -> bool {
    let free = |pv: &Value| {
        pv["status"]["phase"] == "Available"
            && pv["spec"]["claimRef"].is_null()
            && !pv["metadata"]["deletionTimestamp"].is_string()
    };
    world.get(Kind::Pv, pv_name(number)).is_some_and(free)
}

fn owned_by(world: &World, number: usize, owner: &str) -> bool {
    is_free(world, number) && claims(world).iter().any(|claim| claim["owner"]["name"] == owner)
}

pub(crate) fn first_is_free(world: &World, _: &Disk) -> bool {
    is_free(world, 1)
}

fn second_is_free(world: &World, _: &Disk) -> bool {
    is_free(world, 2)
}

fn both_are_free(world: &World, _: &Disk) -> bool {
    is_free(world, 1) && is_free(world, 2)
}

pub(crate) fn nothing_is_claimed(world: &World, _: &Disk) -> bool {
    claims(world).is_empty() && world.all(Kind::Pv).next().is_none()
}

fn is_on_record(world: &World) -> bool {
    world
        .get(Kind::Inventory, NODE)
        .is_some_and(|inventory| inventory["spec"]["retainedData"][0]["pvName"] == pv_name(1))
}

fn everything_is_gone(world: &World, disk: &Disk) -> bool {
    nothing_is_claimed(world, disk)
        && world.all(Kind::Set).next().is_none()
        && world.all(Kind::LocalVolume).next().is_none()
}

fn claim_is_gone(world: &World, _: &Disk) -> bool {
    world.get(Kind::Pvc, CLAIM).is_none()
}

fn not_mounted(_: &World, disk: &Disk) -> bool {
    disk.mounts.is_empty()
}

fn is_claimed(world: &World, _: &Disk) -> bool {
    !claims(world).is_empty()
}

pub(crate) fn degraded(world: &World, word: &str) -> bool {
    says(world, Kind::Set, SET, "Degraded").is_some_and(|text| text.contains(word))
}

fn is_missing(world: &World, _: &Disk) -> bool {
    degraded(world, "is missing")
}

fn is_retained(world: &World, _: &Disk) -> bool {
    degraded(world, "retains its data (Retain)")
}

/// The deletion waits for what is kept, and perhaps also for what is bound.
fn is_blocked(world: &World, bound: bool) -> bool {
    degraded(world, "deletion is blocked")
        && degraded(world, "retains its data (Retain)")
        && degraded(world, "is bound to PVC default/c1") == bound
}

fn wipe_has_failed(world: &World, _: &Disk) -> bool {
    degraded(world, "wipe failed")
}

fn node_is_gone(world: &World, _: &Disk) -> bool {
    degraded(world, "node n1 does not exist")
}

fn is_frozen(world: &World, _: &Disk) -> bool {
    degraded(world, "is not the machine whose devices were claimed")
}

/// The job exists, and was not started.
fn wipe_is_asked_for(world: &World, _: &Disk) -> bool {
    claims(world).iter().any(|claim| {
        claim["job"]["name"].as_str().is_some_and(|name| world.get(Kind::Job, name).is_some())
    })
}

fn has_word(world: &World, kind: Kind, name: &str) -> bool {
    world.get(kind, name).is_some_and(|owner| owner["status"]["conditions"].is_array())
}

/// A pod uses a volume, and is gone.
fn used() -> Vec<Step> {
    used_by(pvc("Filesystem"))
}

pub(crate) fn used_by(claim: Step) -> Vec<Step> {
    vec![
        claim,
        Step::StartPod,
        Step::Await("mounted", mounted),
        Step::EndPod,
        Step::Await("unmounted", not_mounted),
    ]
}

/// Its claim goes, too.
pub(crate) fn released() -> Vec<Step> {
    vec![delete(Kind::Pvc, CLAIM), Step::Await("the claim is gone", claim_is_gone)]
}

fn used_and_released() -> Vec<Step> {
    [used(), released()].concat()
}

pub(crate) fn one_disk() -> Vec<Step> {
    vec![
        node(),
        Step::Plug("sda", RawDisk::new(1)),
        set(SET, CLASS),
        Step::Await("a PersistentVolume", first_is_free),
    ]
}

fn two_disks() -> Vec<Step> {
    vec![
        node(),
        Step::Plug("sda", RawDisk::new(1)),
        Step::Plug("sdb", RawDisk::new(2)),
        set(SET, CLASS),
        Step::Await("two PersistentVolumes", both_are_free),
    ]
}

pub(crate) fn end() -> Vec<Step> {
    vec![delete(Kind::Set, SET), Step::Await("everything is gone", everything_is_gone)]
}

/// Two disks; one is used, released, wiped and offered again.
fn whole_life() -> Vec<Step> {
    [two_disks(), used_and_released(), vec![Step::Await("offered again", both_are_free)], end()]
        .concat()
}

/// Three want the same disk: the oldest has it, and each gets it when the one before is gone.
fn overlap() -> Vec<Step> {
    let older = |world: &World, _: &Disk| has_word(world, Kind::Set, "z-first");
    let younger = |world: &World, _: &Disk| has_word(world, Kind::Set, "m-second");
    let youngest = |world: &World, _: &Disk| has_word(world, Kind::LocalVolume, "a-third");
    let second = Duration::from_secs(2);
    vec![
        node(),
        set("z-first", "first"),
        Step::Await("the first is heard", older),
        Step::Pause(second),
        set("m-second", "second"),
        Step::Await("the second is heard", younger),
        Step::Pause(second),
        local_volume("a-third", "third", &[BY_ID]),
        Step::Await("the third is heard", youngest),
        Step::Plug("sda", RawDisk::new(1)),
        Step::Await("the oldest has it", |world, _| owned_by(world, 1, "z-first")),
        delete(Kind::Set, "z-first"),
        Step::Await("the next one has it", |world, _| owned_by(world, 1, "m-second")),
        delete(Kind::Set, "m-second"),
        Step::Await("the last one has it", |world, _| owned_by(world, 1, "a-third")),
        delete(Kind::LocalVolume, "a-third"),
        Step::Await("everything is gone", everything_is_gone),
    ]
}

/// Pulled and back, unused and in use; another disk under its name; another name from udev.
fn hotplug() -> Vec<Step> {
    [
        one_disk(),
        vec![
            Step::Unplug("sda"),
            Step::Await("missing", is_missing),
            Step::Plug("sda", RawDisk::new(2)),
            Step::Await("the other one is taken", second_is_free),
            Step::PlugAgain("sdb", 1, Some("ata-RENAMED_1")),
            Step::Await("both are there", |world, disk| {
                both_are_free(world, disk) && says(world, Kind::Set, SET, "Degraded").is_none()
            }),
            Step::Unplug("sda"),
            Step::Await("the other one is missing", is_missing),
            claim_on(1),
            Step::StartPod,
            Step::Await("mounted", |_, disk| disk.mounts.contains_key("sdb")),
            Step::Unplug("sdb"),
            Step::Await("both are missing", |world, _| {
                says(world, Kind::Set, SET, "Degraded")
                    .is_some_and(|text| text.matches("is missing").count() == 2)
            }),
            Step::PlugAgain("sdb", 2, None),
            Step::PlugAgain("sda", 1, None),
            Step::Await("mounted again, under its old name", |_, disk| {
                disk.mounts.contains_key("sda")
            }),
            Step::EndPod,
            Step::Await("unmounted", not_mounted),
            delete(Kind::Pvc, CLAIM),
            Step::Await("both are free again", both_are_free),
        ],
        end(),
    ]
    .concat()
}

/// The Node object goes and comes back with the same machine, then with another.
fn node_gone() -> Vec<Step> {
    let away = || {
        vec![
            Step::StopAgent,
            delete(Kind::Node, NODE),
            Step::Await("the node is gone", node_is_gone),
        ]
    };
    let release = json!({"metadata": {"annotations": {names::RELEASE_DEVICE_CLAIMS_ANNOTATION: machine_id(1)}}});
    [
        one_disk(),
        used(),
        away(),
        vec![
            node(),
            Step::StartAgent,
            Step::StartPod,
            Step::Await("mounted again", mounted),
            Step::EndPod,
            Step::Await("unmounted again", not_mounted),
        ],
        away(),
        vec![
            Step::ReplaceMachine,
            Step::Plug("sda", RawDisk::new(2)),
            node(),
            Step::StartAgent,
            Step::Await("frozen", is_frozen),
            delete(Kind::Pvc, CLAIM),
            Step::Await("the claim is gone", claim_is_gone),
            Step::Patch(Kind::Inventory, NODE.to_owned(), release),
            Step::Await("the new machine's disk is taken", |world, disk| {
                second_is_free(world, disk) && world.get(Kind::Pv, pv_name(1)).is_none()
            }),
        ],
        end(),
    ]
    .concat()
}

/// The API forgets that a volume was ever used.
fn restored_unused() -> Vec<Step> {
    [
        one_disk(),
        vec![Step::Snapshot],
        used(),
        vec![
            Step::Restore,
            Step::Await("withdrawn", |world, disk| {
                nothing_is_claimed(world, disk) && world.get(Kind::Pvc, CLAIM).is_none()
            }),
            Step::Learned,
        ],
        end(),
    ]
    .concat()
}

/// The API asks once more for a wipe that was done long ago.
fn restored_in_mid_wipe() -> Vec<Step> {
    let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    [
        one_disk(),
        used(),
        vec![
            Step::StopAgent,
            delete(Kind::Pvc, CLAIM),
            Step::Await("a wipe is asked for", wipe_is_asked_for),
            Step::Snapshot,
            Step::StartAgent,
            Step::Await("offered again", first_is_free),
        ],
        used(),
        vec![
            Step::Restore,
            Step::Await("refused", |world, _| {
                degraded(world, "the API may have been restored from a backup")
            }),
            Step::Patch(Kind::Pv, pv_name(1).to_owned(), keep),
            Step::Await("let go as it is", nothing_is_claimed),
            Step::Learned,
        ],
        end(),
    ]
    .concat()
}

/// Kept until an administrator decides: erase it, or keep the data and free the claim.
fn retained() -> Vec<Step> {
    let erase = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    [
        vec![retaining_class()],
        one_disk(),
        used_and_released(),
        vec![
            Step::Await("kept", is_retained),
            Step::GiveUpData("sda"),
            Step::Patch(Kind::Pv, pv_name(1).to_owned(), erase),
            Step::Await("offered again", first_is_free),
        ],
        used(),
        vec![
            // In use from here on: it may not be erased, whatever becomes of the claim.
            Step::HideData("sda"),
            Step::KeepData("sda"),
            delete(Kind::Pvc, CLAIM),
            Step::Await("kept again", is_retained),
            delete(Kind::Pv, pv_name(1)),
            Step::Await("let go as it is", nothing_is_claimed),
            set("young", "young"),
            Step::Await("unclaimed", |world, disk| {
                nothing_is_claimed(world, disk)
                    && has_word(world, Kind::Set, "young")
                    && is_on_record(world)
            }),
            delete(Kind::Set, "young"),
        ],
        end(),
        vec![delete(Kind::Class, CLASS)],
    ]
    .concat()
}

/// One of two sets is deleted while one of its volumes is bound and another is retained: it goes when both are settled.
fn deleted_in_use() -> Vec<Step> {
    let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    let by_both = |world: &World, _: &Disk| is_blocked(world, true);
    let by_the_kept_one =
        |world: &World, _: &Disk| is_blocked(world, false) && owned_by(world, 2, "young");
    [
        two_disks(),
        vec![
            set("young", "young"),
            Step::Await("the other set is heard", |world, _| has_word(world, Kind::Set, "young")),
            Step::Patch(Kind::Pv, pv_name(1).to_owned(), keep),
        ],
        used_by(claim_on(1)),
        vec![
            // In use from here on, whatever becomes of the set.
            Step::KeepData("sda"),
        ],
        released(),
        vec![
            Step::Await("kept", is_retained),
            claim_on(2),
            Step::StartPod,
            Step::Await("mounted", |_, disk| disk.mounts.contains_key("sdb")),
            delete(Kind::Set, SET),
            Step::Await("waits for both", by_both),
            // Nothing may time out.
            Step::Pause(Duration::from_secs(60)),
            Step::EndPod,
            delete(Kind::Pvc, CLAIM),
            Step::Await("waits for the kept one", by_the_kept_one),
            delete(Kind::Pv, pv_name(1)),
            Step::Await("gone, and the data is unclaimed", |world, disk| {
                world.get(Kind::Set, SET).is_none()
                    && is_on_record(world)
                    && owned_by(world, 2, "young")
                    && !disk.disks["sda"].is_empty()
            }),
            delete(Kind::Set, "young"),
            Step::Await("everything is gone", everything_is_gone),
        ],
    ]
    .concat()
}

/// Two paths: one leads nowhere at first, then to a disk that is used and wiped, and is taken out of the list.
fn by_path() -> Vec<Step> {
    let one_leads_nowhere = |world: &World, disk: &Disk| {
        let said = says(world, Kind::LocalVolume, BY_PATH, "Degraded");
        said.is_some_and(|text| text.contains(BY_ID) && text.contains("does not exist"))
            && second_is_free(world, disk)
    };
    let only_second = json!({"spec": devices_at(CLASS, &["/dev/sdb"])});
    [
        vec![
            node(),
            Step::Plug("sdb", RawDisk::new(2)),
            local_volume(BY_PATH, CLASS, &[BY_ID, "/dev/sdb"]),
            Step::Await("one leads nowhere, the other one is taken", one_leads_nowhere),
            Step::Plug("sda", RawDisk::new(1)),
            Step::Await("both are taken", |world, disk| {
                both_are_free(world, disk)
                    && says(world, Kind::LocalVolume, BY_PATH, "Degraded").is_none()
            }),
        ],
        used_by(claim_on(1)),
        released(),
        vec![
            Step::Await("offered again, and empty", |world, disk| {
                both_are_free(world, disk) && disk.disks["sda"].is_empty()
            }),
            Step::Patch(Kind::LocalVolume, BY_PATH.to_owned(), only_second),
            Step::Await("given back, the other one stays", |world, disk| {
                world.get(Kind::Pv, pv_name(1)).is_none()
                    && claims(world).len() == 1
                    && second_is_free(world, disk)
            }),
            delete(Kind::LocalVolume, BY_PATH),
            Step::Await("everything is gone", everything_is_gone),
        ],
    ]
    .concat()
}

/// A disk that cannot be written to, then one that another process holds.
fn wipe_fails() -> Vec<Step> {
    [
        one_disk(),
        used(),
        vec![
            Step::Break("sda", true),
            delete(Kind::Pvc, CLAIM),
            Step::Await("failed", wipe_has_failed),
            Step::Take("sda", true),
            Step::Break("sda", false),
            // The holder is gone when the power is.
            Step::Await("held by another process", |world, disk| {
                degraded(world, "by another process") || first_is_free(world, disk)
            }),
            Step::Take("sda", false),
            Step::Await("offered again", first_is_free),
        ],
        end(),
    ]
    .concat()
}

/// Data is written to the disk before the agent has read it.
fn written_before_confirmed() -> Vec<Step> {
    let settled = |world: &World, _: &Disk| {
        let devices = world
            .get(Kind::Inventory, NODE)
            .and_then(|inventory| inventory["status"]["devices"].as_array());
        devices.is_some_and(|devices| {
            devices.iter().any(|device| device["name"] == "sda" && device["state"] == "Available")
        })
    };
    [
        vec![
            node(),
            Step::Plug("sda", RawDisk::new(1)),
            // Not ours, from the first moment to the last.
            Step::Plug("sdb", RawDisk::new(2)),
            Step::Format("sdb", Some("xfs")),
            Step::Await("settled", settled),
            Step::StopAgent,
            set(SET, CLASS),
            Step::Await("claimed", is_claimed),
            Step::Format("sda", Some("xfs")),
            Step::StartAgent,
            Step::Await("left alone", nothing_is_claimed),
            Step::Format("sda", None),
            Step::Await("taken when it is empty", first_is_free),
        ],
        end(),
    ]
    .concat()
}

/// Published and in use, for an hour in which nothing may be written.
fn awake() -> Vec<Step> {
    [two_disks(), used()].concat()
}

pub fn stories() -> Vec<Story> {
    vec![
        story("set", whole_life()),
        Story {
            operators: vec![Duration::ZERO, Duration::from_secs(3)],
            ..story("set-two-operators", whole_life())
        },
        story("set-overlap", overlap()),
        story("set-hotplug", hotplug()),
        story("set-node-gone", node_gone()),
        story("set-restored-unused", restored_unused()),
        story("set-restored-in-mid-wipe", restored_in_mid_wipe()),
        story("set-retained", retained()),
        story("set-deleted-in-use", deleted_in_use()),
        story("local-volume", by_path()),
        story("set-wipe-fails", wipe_fails()),
        story("set-written-before-confirmed", written_before_confirmed()),
        Story { awake: true, ..story("set-awake", awake()) },
    ]
}
