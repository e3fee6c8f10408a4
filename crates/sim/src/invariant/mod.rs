//! The invariants, checked over API and disk after every action (`check`) and before every step on the disk (`witness`).
//!
//! Written in terms of what may never be seen, not of how the code avoids it. Claimed disks: `device_claims.rs`.

mod device_claims;

pub use device_claims::{left_behind, witness_wipe};

use crate::{disk::Disk, kind::Kind, world::World};
use quarry_api::names::IDENTITY_ANNOTATION;
use quarry_core::storage::sparse::Step;
use serde_json::Value;

/// The Volume with this UID.
fn volume_of<'a>(world: &'a World, uid: &str) -> Option<&'a Value> {
    world.all(Kind::Volume).find(|volume| volume["metadata"]["uid"] == uid)
}

/// The PersistentVolume that publishes this volume's storage.
fn pv_of<'a>(world: &'a World, uid: &str) -> Option<&'a Value> {
    world
        .all(Kind::Pv)
        .find(|pv| pv["spec"]["local"]["path"].as_str().is_some_and(|path| path.ends_with(uid)))
}

fn pvc_exists(world: &World, pv: &Value) -> bool {
    let uid = &pv["spec"]["claimRef"]["uid"];
    uid.is_string() && world.all(Kind::Pvc).any(|pvc| pvc["metadata"]["uid"] == *uid)
}

fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// What is wrong with doing this step now.
pub fn witness(uid: &str, step: &Step, disk: &Disk, world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    if !disk.knows(uid) {
        wrong.push(format!("{step:?} without an intent in the ledger"));
    }
    if volume_of(world, uid).is_none() {
        wrong.push(format!("{step:?} for a Volume that does not exist"));
    }
    if disk.files.get(uid).is_some_and(|file| file.unmanaged) {
        wrong.push(format!("{step:?} on a file that is not ours"));
    }
    match step {
        Step::Detach { .. } | Step::RemoveFile | Step::RemoveLink | Step::AwaitNoLink => {
            if let Some(pv) = pv_of(world, uid) {
                if pv["status"]["phase"] == "Bound" {
                    wrong.push(format!("{step:?} while the PersistentVolume is bound"));
                }
                if pvc_exists(world, pv) {
                    wrong.push(format!("{step:?} while the PVC exists"));
                }
                if !deleting(pv) {
                    wrong.push(format!("{step:?} while the PersistentVolume can still be bound"));
                }
            }
            let number =
                disk.loops_over(uid).into_iter().find(|number| !disk.users_of(*number).is_empty());
            if let Some(number) = number {
                wrong.push(format!("{step:?} while loop{number} is mounted"));
            }
            if !volume_of(world, uid).is_some_and(deleting) {
                wrong.push(format!("{step:?} although the Volume is not being deleted"));
            }
        }
        Step::MakeDraft { .. } | Step::FormatDraft(_) | Step::PublishDraft => {
            if disk.files.contains_key(uid) {
                wrong.push(format!("{step:?} although the file is finished"));
            }
            if pv_of(world, uid).is_some() {
                wrong.push(format!("{step:?} although the storage is published"));
            }
        }
        Step::DiscardDraft
        | Step::Attach { .. }
        | Step::AddPartition { .. }
        | Step::MakeLink { .. }
        | Step::AwaitLink { .. } => {}
    }
    wrong
}

/// What must not be seen at any time.
pub fn check(world: &World, disk: &Disk) -> Vec<String> {
    let mut wrong = Vec::new();
    let uids = disk
        .files
        .keys()
        .chain(disk.drafts.keys())
        .chain(disk.loops.values().map(|device| &device.over));
    for uid in uids.filter(|uid| *uid != "unmanaged") {
        if disk.loops_over(uid).len() > 1 {
            wrong.push(format!("several loops over the file of {uid}"));
        }
        let unmanaged = disk.files.get(uid).is_some_and(|file| file.unmanaged);
        if !unmanaged && volume_of(world, uid).is_none() {
            wrong.push(format!(
                "the Volume {uid} is gone, and left behind: {}",
                disk.remains(uid).join(", ")
            ));
        }
        if !unmanaged && !disk.knows(uid) {
            wrong.push(format!("{uid} is on the disk and not in the ledger"));
        }
    }
    for device in disk.loops.values().filter(|device| !disk.files.contains_key(&device.over)) {
        wrong.push(format!("the file of {} was removed under its loop", device.over));
    }
    for device in disk.mounts.keys() {
        let whole = device.strip_suffix("p1").unwrap_or(device);
        if !disk.disks.contains_key(device)
            && !disk.loops.keys().any(|number| format!("loop{number}") == whole)
        {
            wrong.push(format!("{device} was taken away under its mount"));
        }
    }
    for pv in world
        .all(Kind::Pv)
        .filter(|pv| pv["metadata"]["annotations"][IDENTITY_ANNOTATION].is_null())
    {
        let name = pv["metadata"]["name"].as_str().unwrap_or_default();
        let uid = pv["spec"]["local"]["path"]
            .as_str()
            .and_then(|path| path.rsplit('/').next())
            .unwrap_or_default();
        let used = pv["status"]["phase"] == "Bound" || pvc_exists(world, pv);
        if (!deleting(pv) || used) && !disk.files.contains_key(uid) {
            wrong.push(format!("PersistentVolume {name} without a finished file"));
        }
    }
    for volume in world.all(Kind::Volume) {
        wrong.extend(check_volume(volume, world));
    }
    for job in world.all(Kind::Job) {
        wrong.extend(check_job(job, world));
    }
    wrong.extend(device_claims::check(world, disk));
    wrong
}

fn check_volume(volume: &Value, world: &World) -> Option<String> {
    let name = volume["metadata"]["name"].as_str().unwrap_or_default();
    let status = &volume["status"];
    match status["phase"].as_str()? {
        "Available" => {
            let published = world.get(Kind::Pv, name).is_some_and(|pv| {
                pv["metadata"]["ownerReferences"][0]["uid"] == volume["metadata"]["uid"]
            });
            (!published).then(|| format!("Volume {name} is Available without a PersistentVolume"))
        }
        phase => {
            let condition = &status["conditions"][0];
            let explained =
                condition["message"].as_str().is_some_and(|message| !message.is_empty());
            if !explained {
                return Some(format!("Volume {name} is {phase} and does not say why"));
            }
            let node = volume["spec"]["nodeName"].as_str().unwrap_or_default();
            let inventory = &world.get(Kind::Inventory, node)?["status"];
            let restored = inventory["restoredBootID"] == inventory["bootID"];
            (condition["reason"] == "UnavailableError" && !restored).then(|| {
                format!("Volume {name} is {phase} before the agent of this boot has restored it")
            })
        }
    }
}

/// A job that has not begun is on record at its Volume, or its Volume has gone on to another one.
fn check_job(job: &Value, world: &World) -> Option<String> {
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    let owner = &job["spec"]["owner"];
    let volume = world.all(Kind::Volume).find(|volume| volume["metadata"]["uid"] == owner["uid"]);
    if !job["status"].is_object()
        && volume.is_some_and(|volume| !volume["metadata"]["finalizers"].is_array())
    {
        return Some(format!("job {name} exists, its Volume has no finalizer"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_core::job::{CleanupVolume, Task, VolumeTask};
    use serde_json::json;

    fn world(phase: &str, pvc: bool, deleting: bool) -> World {
        let mut world = World::default();
        let mut add = |kind: Kind, object: Value| {
            world.take(kind, &json!({"type": "ADDED", "object": object}))
        };
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        add(
            Kind::Volume,
            json!({"metadata": {"name": "v", "uid": "u", "deletionTimestamp": deleted}}),
        );
        add(
            Kind::Pv,
            json!({
                "metadata": {"name": "v", "deletionTimestamp": deleted}, "status": {"phase": phase},
                "spec": {"local": {"path": "/dev/disk/by-uuid/u"}, "claimRef": {"uid": "c"}},
            }),
        );
        if pvc {
            add(Kind::Pvc, json!({"metadata": {"name": "c", "uid": "c"}}));
        }
        world
    }

    fn disk() -> Disk {
        let mut disk = Disk::new(false, true);
        let task = Task::Volume(VolumeTask::Cleanup(CleanupVolume { uid: "u".into() }));
        disk.ledger.push(crate::disk::Record { task, outcome: None });
        for step in [
            Step::MakeDraft { size: quarry_api::Bytes(1) },
            Step::PublishDraft,
            Step::Attach { partitioned: false },
        ] {
            disk.apply("u", &step).unwrap();
        }
        disk
    }

    #[tokio::test(start_paused = true)]
    async fn taking_down_storage_in_use_is_seen_in_each_of_its_forms() {
        let detach = Step::Detach { device: "loop3".into() };
        assert_eq!(
            witness("u", &detach, &disk(), &world("Released", false, true)),
            Vec::<String>::new()
        );
        for (phase, pvc, deleting, said) in [
            ("Bound", false, true, "is bound"),
            ("Released", true, true, "the PVC exists"),
            ("Released", false, false, "can still be bound"),
        ] {
            for step in [&detach, &Step::RemoveFile] {
                let wrong = witness("u", step, &disk(), &world(phase, pvc, deleting));
                assert!(wrong.iter().any(|text| text.contains(said)), "{wrong:?}");
            }
        }
        let mut mounted = disk();
        mounted.mounts.insert("loop3".into(), "/mnt".into());
        assert!(
            witness("u", &detach, &mounted, &world("Released", false, true))[0]
                .contains("is mounted")
        );
        assert!(
            witness("x", &detach, &disk(), &world("Released", false, true))
                .iter()
                .any(|text| text.contains("without an intent"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_not_be_seen_is_seen() {
        assert_eq!(check(&world("Bound", true, false), &disk()), Vec::<String>::new());
        let empty = Disk::new(false, true);
        assert_eq!(
            check(&world("Bound", true, true), &empty),
            ["PersistentVolume v without a finished file"]
        );
        assert!(
            check(&World::default(), &disk())[0].contains("is gone, and left behind: file, loop3")
        );
    }
}
