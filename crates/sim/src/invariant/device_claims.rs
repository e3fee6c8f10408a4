//! Claimed disks: what may never be seen of claims, PersistentVolumes, links and the data on disks.

use super::{deleting, pvc_exists};
use crate::{disk::Disk, kind::Kind, raw_disks::Keeper, world::World};
use quarry_api::{
    names::{IDENTITY_ANNOTATION, PV_OWNER_LABELS},
    node_job::OwnerKind,
};
use quarry_core::job::Task;
use serde_json::Value;
use std::collections::BTreeMap;

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn identity(pv: &Value) -> Option<&str> {
    pv["metadata"]["annotations"][IDENTITY_ANNOTATION].as_str()
}

fn published(world: &World) -> impl Iterator<Item = (&Value, &str)> {
    world.all(Kind::Pv).filter_map(|pv| Some((pv, identity(pv)?)))
}

fn claims(world: &World) -> impl Iterator<Item = &Value> {
    world
        .all(Kind::Inventory)
        .flat_map(|inventory| inventory["spec"]["deviceClaims"].as_array().into_iter().flatten())
}

/// What is wrong with erasing this disk now.
pub fn witness_wipe(name: &str, identity: &str, disk: &Disk, world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    let last = disk
        .ledger
        .iter()
        .rev()
        .find(|record| matches!(&record.task, Task::Wipe(wipe) if wipe.identity == *identity));
    if last.is_none_or(|record| record.outcome.is_some()) {
        wrong.push(format!("{name} is erased without an intent in the ledger"));
    }
    if let Some(at) = disk.mounts.get(name) {
        wrong.push(format!("{name} is erased while it is mounted at {at}"));
    }
    if disk.disks.get(name).is_some_and(|found| found.taken) {
        wrong.push(format!("{name} is erased while another process holds it"));
    }
    if !disk.held.contains(name) {
        wrong.push(format!("{name} is erased while it is not held"));
    }
    if disk.with_identity(identity).is_none_or(|(found, _)| found != name) {
        wrong.push(format!("{name} is erased, and it is not {identity}"));
    }
    if !claims(world).any(|claim| claim["identity"] == identity && claim["job"].is_object()) {
        wrong.push(format!("{name} is erased although no claim has a job on record"));
    }
    let pvs: Vec<&Value> =
        published(world).filter(|(_, of)| *of == identity).map(|(pv, _)| pv).collect();
    if pvs.is_empty() {
        wrong.push(format!("{name} is erased although no PersistentVolume was released"));
    }
    for pv in pvs {
        if pv["status"]["phase"] == "Bound" {
            wrong.push(format!("{name} is erased while its PersistentVolume is bound"));
        }
        if pvc_exists(world, pv) {
            wrong.push(format!("{name} is erased while the claim exists"));
        }
        if !pv["spec"]["claimRef"]["uid"].is_string() {
            wrong.push(format!("{name} is erased although its PersistentVolume was never used"));
        }
        if !deleting(pv) {
            wrong.push(format!("{name} is erased while its PersistentVolume can still be bound"));
        }
        if pv["spec"]["persistentVolumeReclaimPolicy"] != "Delete" {
            wrong.push(format!("{name} is erased although its PersistentVolume keeps its data"));
        }
    }
    wrong
}

/// What must not be seen at any time.
pub fn check(world: &World, disk: &Disk) -> Vec<String> {
    let mut wrong = lost_data(world, disk);
    wrong.extend(owned_twice(world));
    wrong.extend(claims(world).filter_map(|claim| misled(claim, disk)));
    for (pv, identity) in published(world) {
        let name = text(&pv["metadata"], "name");
        if !claims(world).any(|claim| {
            claim["identity"] == identity && claim["link"] == pv["spec"]["local"]["path"]
        }) {
            wrong.push(format!("PersistentVolume {name} without a claim on {identity}"));
        }
        if !disk.outdated && can_be_bound(pv) {
            wrong.extend(offers_data(pv, identity, disk));
        }
    }
    for link in disk.claim_links.keys().filter(|_| !disk.outdated) {
        if !claims(world).any(|claim| text(claim, "link") == link) {
            wrong.push(format!("the link {link} is left behind: no device claim names it"));
        }
    }
    wrong
}

/// What a pod wrote is there as long as its claim is; what another program wrote is there for ever.
fn lost_data(world: &World, disk: &Disk) -> Vec<String> {
    let selection = |keeper: &Keeper| match keeper {
        Keeper::Other => true,
        Keeper::Pvc(uid) => world.all(Kind::Pvc).any(|claim| claim["metadata"]["uid"] == *uid),
    };
    let lost = |wwn: &str| {
        let (expected, found) =
            (&disk.expected[wwn], disk.every_disk().find(|found| found.wwn == wwn));
        found.is_some_and(|found| {
            (&found.signature, &found.data) != (&expected.signature, &expected.data)
        })
    };
    let wrong =
        disk.expected.iter().filter(|(wwn, expected)| selection(&expected.keeper) && lost(wwn));
    wrong
        .map(|(wwn, expected)| format!("what {:?} has on disk {wwn} is erased", expected.keeper))
        .collect()
}

fn owned_twice(world: &World) -> Vec<String> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    claims(world).for_each(|claim| *owners.entry(text(claim, "identity")).or_default() += 1);
    let mut volumes: BTreeMap<&str, usize> = BTreeMap::new();
    published(world).for_each(|(_, identity)| *volumes.entry(identity).or_default() += 1);
    let twice = |counts: &BTreeMap<&str, usize>, what: &str| -> Vec<String> {
        counts
            .iter()
            .filter(|(_, count)| **count > 1)
            .map(|(identity, count)| format!("{count} {what} on {identity}"))
            .collect()
    };
    [twice(&owners, "claims"), twice(&volumes, "PersistentVolumes")].concat()
}

/// A link leads to its disk or nowhere.
fn misled(claim: &Value, disk: &Disk) -> Option<String> {
    let (link, identity) = (text(claim, "link"), text(claim, "identity"));
    let name = disk.behind(link)?;
    let found = disk.disks.get(name).map(crate::raw_disks::RawDisk::identity)?;
    (found != identity)
        .then(|| format!("{link} leads to {name}, which is {found} and not {identity}"))
}

fn can_be_bound(pv: &Value) -> bool {
    !deleting(pv)
        && pv["spec"]["claimRef"].is_null()
        && matches!(pv["status"]["phase"].as_str(), None | Some("Pending" | "Available"))
}

/// A set's disks are offered empty. What a LocalVolume names is offered as it is.
fn offers_data(pv: &Value, identity: &str, disk: &Disk) -> Option<String> {
    let of_set = pv["metadata"]["labels"][PV_OWNER_LABELS[0]] == OwnerKind::LocalVolumeSet.as_str();
    let (name, found) =
        disk.with_identity(identity).filter(|(_, found)| of_set && !found.is_empty())?;
    Some(format!("{name} is offered although it holds {:?} ({:?})", found.data, found.signature))
}

/// What must not be left at the end of a story.
pub fn left_behind(world: &World, disk: &Disk) -> Vec<String> {
    let mut wrong: Vec<String> =
        disk.held.iter().map(|name| format!("{name} is still held")).collect();
    let owner_exists = |kind: &str, uid: &Value| {
        let kind =
            if kind == OwnerKind::LocalVolumeSet.as_str() { Kind::Set } else { Kind::LocalVolume };
        world.all(kind).any(|owner| owner["metadata"]["uid"] == *uid)
    };
    for claim in claims(world)
        .filter(|claim| !owner_exists(text(&claim["owner"], "kind"), &claim["owner"]["uid"]))
    {
        wrong.push(format!(
            "the claim on {} is left behind: its owner is gone",
            text(claim, "identity")
        ));
    }
    if claims(world).next().is_none() {
        wrong.extend(disk.claim_links.keys().map(|link| format!("the link {link} is left behind")));
        wrong.extend(published(world).map(|(pv, _)| {
            format!("PersistentVolume {} is left behind", text(&pv["metadata"], "name"))
        }));
    }
    wrong.extend(
        world
            .all(Kind::Job)
            .map(|job| format!("job {} is never forgotten", text(&job["metadata"], "name"))),
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{disk::Record, raw_disks::RawDisk};
    use quarry_api::{Bytes, node_job::WipePolicy};
    use quarry_core::job::WipeDevice;
    use serde_json::json;

    type Spoil = fn(&mut Disk);

    const LINK: &str = "/mnt/local-storage/fast/x";

    fn disk() -> Disk {
        let mut disk = Disk::new(true, true);
        disk.plug("sda", RawDisk::new(1));
        disk.plug("sdb", RawDisk::new(2));
        disk.claim_links.insert(LINK.into(), "/dev/disk/by-id/wwn-0x5000c50000000001".into());
        disk.held.insert("sda".into());
        let task = Task::Wipe(WipeDevice {
            identity: "wwn:5000c50000000001".into(),
            size: Bytes(1 << 40),
            pv: "p".into(),
            pv_uid: "p".into(),
            pvc_uid: None,
            policy: WipePolicy::Zero,
        });
        disk.ledger.push(Record { task, outcome: None });
        disk
    }

    fn claim() -> Value {
        json!({"identity": "wwn:5000c50000000001", "link": LINK, "job": {"name": "j"}, "owner": {"kind": "LocalVolumeSet", "uid": "s"}})
    }

    fn world(claims: &[Value], policy: &str, phase: &str, bound: bool, going: bool) -> World {
        let mut world = World::default();
        let mut add = |kind: Kind, object: Value| {
            world.take(kind, &json!({"type": "ADDED", "object": object}))
        };
        add(Kind::Set, json!({"metadata": {"name": "s", "uid": "s"}}));
        add(Kind::Inventory, json!({"metadata": {"name": "n1"}, "spec": {"deviceClaims": claims}}));
        let labels = json!({PV_OWNER_LABELS[0]: "LocalVolumeSet"});
        let pv = json!({
            "metadata": {"name": "p", "labels": labels, "annotations": {IDENTITY_ANNOTATION: "wwn:5000c50000000001"}, "deletionTimestamp": going.then_some("2026-01-01T00:00:00Z")},
            "spec": {"local": {"path": LINK}, "persistentVolumeReclaimPolicy": policy, "claimRef": (bound || going).then(|| json!({"uid": "c"}))}, "status": {"phase": phase},
        });
        add(Kind::Pv, pv);
        if bound {
            add(Kind::Pvc, json!({"metadata": {"name": "c", "uid": "c"}}));
        }
        world
    }

    #[tokio::test(start_paused = true)]
    async fn a_wipe_without_its_whole_reason_is_seen() {
        let found = |disk: &Disk, world: &World| {
            witness_wipe("sda", "wwn:5000c50000000001", disk, world).join("; ")
        };
        let right = world(&[claim()], "Delete", "Released", false, true);
        assert_eq!(found(&disk(), &right), "");
        let claimless = world(&[], "Delete", "Released", false, true);
        for (world, said) in [
            (&claimless, "no claim has a job"),
            (&world(&[claim()], "Retain", "Released", false, true), "keeps its data"),
            (
                &world(&[claim()], "Delete", "Bound", true, true),
                "is bound; sda is erased while the claim exists",
            ),
            (&world(&[claim()], "Delete", "Released", false, false), "can still be bound"),
            (&World::default(), "no PersistentVolume was released"),
        ] {
            assert!(found(&disk(), world).contains(said), "{said}: {}", found(&disk(), world));
        }
        let spoil: [(Spoil, &str); 5] = [
            (|disk| disk.ledger.clear(), "without an intent"),
            (|disk| drop(disk.mounts.insert("sda".into(), "/mnt".into())), "mounted at /mnt"),
            (|disk| disk.disks.get_mut("sda").unwrap().taken = true, "another process holds it"),
            (|disk| disk.held.clear(), "it is not held"),
            (|disk| disk.plug("sda", RawDisk::new(3)), "is not wwn:"),
        ];
        for (spoil, said) in spoil {
            let mut spoilt = disk();
            spoil(&mut spoilt);
            assert!(found(&spoilt, &right).contains(said), "{said}: {}", found(&spoilt, &right));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_not_be_seen_of_claims_is_seen() {
        let right = world(&[claim()], "Delete", "Available", false, false);
        assert_eq!(check(&right, &disk()), Vec::<String>::new());
        assert_eq!(
            check(&world(&[claim(), claim()], "Delete", "Available", false, false), &disk()),
            ["2 claims on wwn:5000c50000000001"]
        );
        let forgotten = check(&world(&[], "Delete", "Available", false, false), &disk());
        assert_eq!(
            forgotten,
            [
                "PersistentVolume p without a claim on wwn:5000c50000000001",
                "the link /mnt/local-storage/fast/x is left behind: no device claim names it"
            ]
        );
        let spoil: [(Spoil, &str); 3] = [
            (
                |disk| disk.disks.get_mut("sda").unwrap().data = Some("x".into()),
                "sda is offered although it holds",
            ),
            (|disk| drop(disk.claim_links.insert(LINK.into(), "/dev/sdb".into())), "leads to sdb"),
            (
                |disk| {
                    disk.format_disk("sdb", Some("ext4"));
                    disk.disks.get_mut("sdb").unwrap().signature = None;
                },
                "what Other has on disk 5000c50000000002 is erased",
            ),
        ];
        for (spoil, said) in spoil {
            let mut spoilt = disk();
            spoil(&mut spoilt);
            assert!(
                check(&right, &spoilt).join("; ").contains(said),
                "{said}: {:?}",
                check(&right, &spoilt)
            );
        }
        let bound = world(&[claim()], "Delete", "Bound", true, false);
        let mut used = disk();
        used.disks.get_mut("sda").unwrap().data = Some("mine".into());
        used.keep("sda", Keeper::Pvc("c".into()));
        assert_eq!(check(&bound, &used), Vec::<String>::new());
        used.unplug("sda");
        used.drawer.values_mut().for_each(|disk| disk.data = None);
        assert_eq!(
            check(&bound, &used),
            ["what Pvc(\"c\") has on disk 5000c50000000001 is erased"],
            "also in the drawer"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_at_the_end_is_seen() {
        let mut calm = disk();
        calm.held.clear();
        assert_eq!(
            left_behind(&world(&[claim()], "Delete", "Available", false, false), &calm),
            Vec::<String>::new()
        );
        let mut orphan = claim();
        orphan["owner"]["uid"] = json!("gone");
        assert_eq!(
            left_behind(&world(&[orphan], "Delete", "Available", false, false), &calm),
            ["the claim on wwn:5000c50000000001 is left behind: its owner is gone"]
        );
        let left = left_behind(&world(&[], "Delete", "Available", false, false), &disk());
        assert_eq!(
            left,
            [
                "sda is still held",
                "the link /mnt/local-storage/fast/x is left behind",
                "PersistentVolume p is left behind"
            ]
        );
    }
}
