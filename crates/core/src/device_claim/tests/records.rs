//! Records of data follow a disk to its partitions, and a partition to its disk.

use super::*;
use crate::{
    device::{Content, Facts, GroupedDevice, group, inventory::row},
    device_claim::confirm::{Expected, verify},
};
use quarry_api::{NodeInventorySpec, node_inventory::Evidence};

const DISK: &str = "wwn:5000c50000000001";
const FIRST: &str = "part:a1b2c3d4-01";
const SECOND: &str = "part:a1b2c3d4-02";

fn part(name: &str, identity: &str) -> Device {
    Device {
        kind: "part".into(),
        identity: Some(identity.into()),
        device_id: None,
        parent: Some("sda".into()),
        ..disk(name, 1)
    }
}

fn of_kind(kind: &str, mode: &str) -> Demand {
    let spec = json!({"deviceInclusionSpec": {"deviceTypes": [kind]}, "volumeMode": mode});
    set("fast", 1, spec)
}

/// The disk with these partitions.
fn partitioned(world: &mut NodeWorld, parts: &[(&str, &str)]) {
    let whole = with_reason(disk("sda", 1), "HasChildren", DeviceState::NotAvailable);
    let whole = if parts.is_empty() { disk("sda", 1) } else { whole };
    let parts = parts.iter().map(|(name, identity)| part(name, identity));
    world.inventory.status.as_mut().unwrap().devices = [whole].into_iter().chain(parts).collect();
}

/// What a demand gets of the node, and what it hears about the devices that it does not get.
fn gets(world: &NodeWorld, kind: &str, mode: &str) -> (Vec<String>, Vec<&'static str>) {
    let mut world = NodeWorld { demands: vec![of_kind(kind, mode)], ..world.clone() };
    let rows = account(&world, "uid-fast").into_iter().map(|row| row.eligibility.as_str());
    let rows = rows.filter(|word| !["NotMatched", "Selected"].contains(word)).collect();
    let claims = step(&mut world).claims.into_iter().map(|claim| claim.identity);
    (claims.collect(), rows)
}

/// A partition, used, released and wiped with this policy; its owner is gone.
fn used_partition(reclaim: &str) -> NodeWorld {
    let mut world = world(vec![of_kind("part", "Filesystem")], vec![]);
    partitioned(&mut world, &[("sda1", FIRST)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| pv["spec"]["persistentVolumeReclaimPolicy"] = json!(reclaim));
    if reclaim == "Delete" {
        wipe(&mut world);
    } else {
        phase(&mut world, "Released");
        tear_down(&mut world);
    }
    world.inventory.spec.device_claims.clear();
    world.pvs.clear();
    world
}

// invariant: 1
#[test]
fn a_wipe_remnant_follows_a_disk_to_its_partitions() {
    let mut world = quickly_wiped();
    world.inventory.spec.device_claims.clear();
    world.pvs.clear();
    partitioned(&mut world, &[("sda1", FIRST)]);
    assert_eq!(gets(&world, "part", "Block"), (vec![], vec!["WipeRemnant"]));
    assert_eq!(gets(&world, "part", "Filesystem"), (vec![FIRST.to_owned()], vec![]));
    // The checker, whatever a planner proposes.
    world.demands = vec![of_kind("part", "Filesystem")];
    let mut plan = super::plan(&world, now());
    plan.claims[0].volume_mode = VolumeMode::Block;
    assert_eq!(check(&world, &plan), vec![Violation::DataPublished(FIRST.into())]);
    // And back to the disk, which had it all the time.
    partitioned(&mut world, &[]);
    assert_eq!(gets(&world, "disk", "Block"), (vec![], vec!["WipeRemnant"]));
}

// invariant: 1
#[test]
fn a_wipe_remnant_follows_a_partition_to_its_disk() {
    let mut world = used_partition("Delete");
    let left = world.inventory.spec.wipe_remnants.clone();
    assert_eq!((left[0].identity.as_str(), left[0].disk.as_deref()), (FIRST, Some(DISK)));
    assert_eq!(gets(&world, "part", "Block"), (vec![], vec!["WipeRemnant"]));
    // Beside it the disk is as free as before.
    partitioned(&mut world, &[("sda1", FIRST), ("sda2", SECOND)]);
    assert_eq!(gets(&world, "part", "Block"), (vec![SECOND.to_owned()], vec!["WipeRemnant"]));
    // Removed: the data is on the disk, and perhaps on a partition that replaces it.
    partitioned(&mut world, &[]);
    assert_eq!(gets(&world, "disk", "Block"), (vec![], vec!["WipeRemnant"]));
    assert_eq!(gets(&world, "disk", "Filesystem"), (vec![DISK.to_owned()], vec![]));
    partitioned(&mut world, &[("sda1", SECOND)]);
    assert_eq!(gets(&world, "part", "Block"), (vec![], vec!["WipeRemnant"]));
    // A partition that was claimed before has its own place: its next round is not held up.
    let claim = DeviceClaim {
        identity: SECOND.into(),
        last_pv: Some(LastPv::default()),
        ..DeviceClaim::default()
    };
    let known = device_claim::content::partitions(&claim);
    let device = &world.inventory.status.as_ref().unwrap().devices[1];
    assert_eq!(wipe_remnants_on(&world, device, known), Vec::<&WipeRemnant>::new());
    forget(&mut world, &left[0].pv_uid);
    world.demands.clear();
    step(&mut world);
    assert_eq!(gets(&world, "part", "Block"), (vec![SECOND.to_owned()], vec![]));
}

// invariant: 1
#[test]
fn retained_data_follows_a_partition_to_its_disk() {
    let mut world = used_partition("Retain");
    let kept = world.inventory.spec.retained_data.clone();
    assert_eq!((kept[0].identity.as_str(), kept[0].disk.as_deref()), (FIRST, Some(DISK)));
    for (kind, parts) in [("disk", &[][..]), ("part", &[("sda1", SECOND)])] {
        partitioned(&mut world, parts);
        assert_eq!(gets(&world, kind, "Filesystem"), (vec![], vec!["Refused"]), "{kind}");
    }
    // Missing when it was recorded, and shown later.
    world.inventory.spec.retained_data[0].disk = None;
    assert_eq!(step(&mut world.clone()).retained_data[0].disk, None);
    partitioned(&mut world, &[("sda1", FIRST)]);
    let plan = step(&mut world);
    assert_eq!(plan.retained_data, kept);
    // What is known of it is not lost.
    for disk in [None, Some("wwn:9".to_owned())] {
        let mut plan = plan.clone();
        plan.retained_data[0].disk = disk;
        assert_eq!(check(&world, &plan), vec![Violation::Forgotten(FIRST.into())]);
    }
}

/// A disk that is wiped whole has nothing left of its partitions.
#[test]
fn a_whole_wipe_of_a_disk_ends_the_records_of_its_partitions() {
    let mut world = published();
    let left = |identity: &str, disk: Option<&str>| WipeRemnant {
        identifiers: Vec::new(),
        identity: identity.into(),
        disk: disk.map(str::to_owned),
        pv_uid: identity.into(),
        pv_name: "p".into(),
    };
    let other = left("part:99999999-01", Some("wwn:9"));
    world.inventory.spec.wipe_remnants = vec![left(FIRST, Some(DISK)), other.clone()];
    wipe(&mut world);
    assert_eq!(world.inventory.spec.wipe_remnants, [other]);
}

fn facts(name: &str, source: &str, value: &str) -> Facts {
    Facts {
        name: name.into(),
        kind: "disk".into(),
        size: 4096,
        evidence: vec![Evidence { source: source.into(), value: value.into() }],
        content: Content::Blank,
        ..Facts::default()
    }
}

/// A disk, its partitions, and a logical volume on the first.
fn stack(parts: &[&str]) -> Vec<GroupedDevice> {
    let mut seen = vec![facts("sda", "sysfs:wwid", "naa.5000c50000000001")];
    for (index, uuid) in parts.iter().enumerate() {
        let name = format!("sda{}", index + 1);
        let part = facts(&name, "partition:uuid", uuid);
        seen.push(Facts { kind: "part".into(), parent: Some("sda".into()), ..part });
    }
    if !parts.is_empty() {
        let top = facts("dm-0", "sysfs:dm-uuid", "LVM-x");
        seen.push(Facts { kind: "lvm".into(), slaves: vec!["sda1".into()], ..top });
    }
    group(&seen, None, None, &[])
}

/// The agent knows the whole stack, and refuses before anything is published.
// invariant: 1
#[test]
fn the_agent_finds_records_below_and_above_a_device() {
    let refuses = |identity: &str, record: (&str, Option<&str>), devices: &[GroupedDevice]| {
        let claim = DeviceClaim {
            identity: identity.into(),
            volume_mode: VolumeMode::Block,
            size: 4096,
            round: 1,
            ..DeviceClaim::default()
        };
        let left = WipeRemnant {
            identifiers: Vec::new(),
            identity: record.0.into(),
            disk: record.1.map(str::to_owned),
            pv_name: "p".into(),
            pv_uid: "u".into(),
        };
        let kept = RetainedData {
            identifiers: Vec::new(),
            identity: left.identity.clone(),
            disk: left.disk.clone(),
            pv_name: "p".into(),
            pv_uid: "u".into(),
        };
        let empty = NodeInventorySpec::default;
        let remnants = NodeInventorySpec { wipe_remnants: vec![left], ..empty() };
        let retained = NodeInventorySpec { retained_data: vec![kept], ..empty() };
        let says = |spec: &NodeInventorySpec| verify(&claim, Expected::Blank, devices, spec);
        let both = [says(&remnants).is_err(), says(&retained).is_err()];
        assert_eq!(both[0], both[1], "{identity} {record:?}");
        let found = devices.iter().find(|one| one.identified.candidates[0] == identity).unwrap();
        let shown = row(found, devices, true, &retained).has(crate::device::Reason::RetainedData);
        assert_eq!(shown, both[0], "{identity} {record:?}: the verdict says the same");
        both[0]
    };
    let (bare, one) = (stack(&[]), stack(&["a1b2c3d4-01", "a1b2c3d4-02"]));
    let replaced = stack(&["a1b2c3d4-02"]);
    for identity in [FIRST, SECOND, "lvm:x"] {
        assert!(refuses(identity, (DISK, None), &one), "{identity} is on the disk");
    }
    assert!(refuses("lvm:x", (FIRST, Some(DISK)), &one));
    assert!(!refuses(SECOND, (FIRST, Some(DISK)), &one), "beside it");
    assert!(refuses(DISK, (FIRST, Some(DISK)), &bare));
    assert!(refuses(SECOND, (FIRST, Some(DISK)), &replaced));
    assert!(!refuses(DISK, (FIRST, Some("wwn:9")), &bare));
    assert!(!refuses(DISK, ("wwn:9", None), &bare));
}

/// udev was stopped, or another adapter hides the world-wide name: the data is still on the disk.
// invariant: 1
#[test]
fn retained_data_is_found_by_any_identifier() {
    let named = |record: &[&str], device: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let identifiers = list(record);
        let kept = RetainedData { identity: record[0].into(), identifiers, ..Default::default() };
        kept.is_device(&list(device))
    };
    assert!(named(&["wwn:1", "serial:m:s"], &["wwn:1", "serial:m:s"]));
    assert!(named(&["wwn:1", "serial:m:s"], &["serial:m:s"]), "it shows less");
    assert!(!named(&["wwn:1", "serial:m:s"], &["wwn:2", "serial:m:s"]), "a serial used twice");
    assert!(!named(&["wwn:1", "serial:m:s"], &["serial:m:t"]));
    let mut world = published();
    let serial = json!([{"source": "sysfs:wwid", "value": "naa.5000c50000000001"}, {"source": "sysfs:serial", "value": "S1"}]);
    world.inventory.status.as_mut().unwrap().devices[0].evidence =
        serde_json::from_value(serial).unwrap();
    phase(&mut world, "Bound");
    step(&mut world);
    world.pvs.clear();
    step(&mut world);
    let kept = &world.inventory.spec.retained_data[0];
    assert_eq!(kept.identifiers, ["serial::S1", DISK], "recorded while it is certain");
}
