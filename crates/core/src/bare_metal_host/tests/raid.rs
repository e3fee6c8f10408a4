//! Settings of RAID as values: what is recorded, what is requested for it, which disks, and what counts as built.

use super::*;
use crate::bare_metal_host::{
    driver,
    raid::{self, phases, pick, root, verify},
};
use quarry_api::bare_metal_host::RaidConfig;
use quarry_ironic::inventory::StorageController;

fn config(raid: Value) -> RaidConfig {
    serde_json::from_value(raid).unwrap()
}

fn desired(raid: Value) -> Option<RaidConfig> {
    raid::desired(&host(json!({"spec": {"raid": raid}})))
}

fn redfish() -> &'static driver::HardwareRaid {
    driver::hardware_raid(host(json!({})).bmc().unwrap()).unwrap()
}

#[test]
fn only_explicit_settings_count() {
    assert_eq!(desired(json!({})), None);
    assert_eq!(
        raid::desired(&host(json!({"spec": {"raid": {"hardwareVolumes": []}}}))),
        Some(config(json!({"hardwareRAIDVolumes": []})))
    );
    let null: RaidConfig = serde_json::from_str(r#"{"hardwareRAIDVolumes": null}"#).unwrap();
    assert_eq!(null.hardware_raid_volumes.requested(), None);
    let both = desired(json!({
        "hardwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 0}],
        "softwareRAIDVolumes": [{"level": "1"}],
    }));
    assert_eq!(
        both,
        Some(config(json!({"hardwareRAIDVolumes": [{"level": "1"}]}))),
        "hardware wins"
    );
    // An empty list of one kind beside volumes of the other: what is there is removed first.
    let switched = desired(json!({"hardwareVolumes": [], "softwareVolumes": [{"level": 1}]}));
    let expected = json!({"hardwareRAIDVolumes": [], "softwareRAIDVolumes": [{"level": "1"}]});
    assert_eq!(switched, Some(config(expected)));
}

#[test]
fn a_record_with_picked_disks_covers_its_settings() {
    let settings = config(json!({"hardwareRAIDVolumes": [{"level": "1"}]}));
    let picked = config(json!({"hardwareRAIDVolumes": [
        {"level": "1", "controller": "c1", "physicalDisks": ["d1", "d2"]},
    ]}));
    assert!(raid::covers(Some(&picked), &settings));
    assert!(!raid::covers(None, &settings));
    for other in [
        json!({"hardwareRAIDVolumes": [{"level": "0"}]}),
        json!({"hardwareRAIDVolumes": []}),
        json!({"hardwareRAIDVolumes": [{"level": "1"}, {"level": "1"}]}),
        json!({"hardwareRAIDVolumes": [{"level": "1", "controller": "c2", "physicalDisks": ["d1", "d2"]}]}),
        json!({"softwareRAIDVolumes": [{"level": "1"}]}),
        json!({"softwareRAIDVolumes": []}),
    ] {
        assert!(!raid::covers(Some(&picked), &config(other.clone())), "{other}");
    }
    let arrays = config(json!({"softwareRAIDVolumes": [{"level": "1"}]}));
    let taken = raid::snapshot(Some(&arrays), true, settings.clone());
    assert_eq!(taken.software_raid_volumes.requested(), Some(&[][..]), "their disks are taken");
    assert!(raid::covers(Some(&taken), &settings));
    let other = config(json!({"hardwareRAIDVolumes": [{"level": "5"}]}));
    let again = raid::snapshot(Some(&taken), false, other.clone());
    assert_eq!(again.software_raid_volumes.requested(), Some(&[][..]), "they may still be there");
    let later = raid::snapshot(Some(&taken), true, other);
    assert_eq!(later.software_raid_volumes.requested(), None, "they are gone");
    let erase = config(json!({"softwareRAIDVolumes": []}));
    assert!(raid::covers(Some(&taken), &erase) && raid::exceeds(Some(&taken), &erase));
    assert!(!raid::exceeds(Some(&taken), &settings));
}

fn steps_of(phases: &[phases::Phase]) -> Vec<String> {
    let one = |phase: &phases::Phase| {
        let steps: Vec<String> = phase.steps.iter().map(ToString::to_string).collect();
        let disks = phase.target.as_ref().map_or(0, |target| target.logical_disks.len());
        format!("{}: {} [{disks}]", phase.interface, steps.join(" "))
    };
    phases.iter().map(one).collect()
}

const BUILD_ARRAYS: &str =
    "agent: raid.delete_configuration deploy.erase_devices_metadata raid.create_configuration [1]";
const ERASE_ARRAYS: &str = "agent: raid.delete_configuration deploy.erase_devices_metadata [0]";
const BUILD_VOLUMES: &str = "redfish: raid.delete_configuration raid.create_configuration [1]";
const ERASE_VOLUMES: &str = "redfish: raid.delete_configuration [0]";

#[test]
fn settings_become_steps() {
    let (volume, array) = (json!([{"level": "1", "sizeGibibytes": 10}]), json!([{"level": "1"}]));
    let table = [
        (json!({"hardwareRAIDVolumes": volume}), vec![BUILD_VOLUMES]),
        (json!({"hardwareRAIDVolumes": []}), vec![ERASE_VOLUMES]),
        (json!({"softwareRAIDVolumes": array}), vec![BUILD_ARRAYS]),
        (json!({"softwareRAIDVolumes": []}), vec![ERASE_ARRAYS]),
        (
            json!({"hardwareRAIDVolumes": [], "softwareRAIDVolumes": array}),
            vec![ERASE_VOLUMES, BUILD_ARRAYS],
        ),
        (
            json!({"hardwareRAIDVolumes": volume, "softwareRAIDVolumes": []}),
            vec![ERASE_ARRAYS, BUILD_VOLUMES],
        ),
        (
            json!({"hardwareRAIDVolumes": [], "softwareRAIDVolumes": []}),
            vec![ERASE_ARRAYS, ERASE_VOLUMES],
        ),
    ];
    for (settings, expected) in table {
        let phases = phases::building(&config(settings.clone()), Some(redfish()), false);
        assert_eq!(steps_of(&phases), expected, "{settings}");
    }
    // A BMC without RAID has no volumes to remove.
    let none = phases::building(&config(json!({"hardwareRAIDVolumes": []})), None, false);
    assert_eq!(steps_of(&none), [""; 0]);
}

#[test]
fn the_end_of_use_erases_every_kind() {
    assert_eq!(steps_of(&phases::erasing(Some(redfish()))), [ERASE_ARRAYS, ERASE_VOLUMES]);
    assert_eq!(steps_of(&phases::erasing(None)), [ERASE_ARRAYS]);
    let kept = "redfish: deploy.erase_devices_metadata [0]";
    assert_eq!(steps_of(&phases::retaining(Some(redfish()))), [kept]);
}

#[test]
fn volumes_are_requested_as_ironic_spells_them() {
    let settings = config(json!({"hardwareRAIDVolumes": [
        {"level": "1+0", "name": "root", "rotational": false, "sizeGibibytes": 100},
        {"level": "5", "controller": "c1", "physicalDisks": ["d1", "d2", "d3"], "rotational": true},
    ]}));
    let target = phases::building(&settings, Some(redfish()), false)[0].target.clone();
    let expected = json!({"logical_disks": [
        {"size_gb": 100, "raid_level": "1+0", "volume_name": "root", "is_root_volume": true, "disk_type": "ssd", "number_of_physical_disks": 4},
        {"size_gb": "MAX", "raid_level": "5", "disk_type": "hdd", "controller": "c1", "physical_disks": ["d1", "d2", "d3"]},
    ]});
    assert_eq!(serde_json::to_value(target).unwrap(), expected);
    let hinted = phases::building(&settings, Some(redfish()), true)[0].target.clone().unwrap();
    assert!(hinted.logical_disks.iter().all(|disk| disk.is_root_volume.is_none()));

    let arrays = config(json!({"softwareRAIDVolumes": [
        {"level": "1", "sizeGibibytes": 20, "physicalDisks": [{"serialNumber": "A"}, {"deviceName": "/dev/sdb", "rotational": true}]},
        {"level": "0", "physicalDisks": [{"model": "SSD", "minSizeGigabytes": 4}, {"deviceName": "/dev/disk/by-path/p1"}]},
    ]}));
    let target = phases::building(&arrays, None, false)[0].target.clone();
    let expected = json!({"logical_disks": [
        {"size_gb": 20, "raid_level": "1", "is_root_volume": true, "controller": "software", "physical_disks": [
            {"serial": "s== A"}, {"name": "s== /dev/sdb", "rotational": "true"},
        ]},
        {"size_gb": "MAX", "raid_level": "0", "is_root_volume": false, "controller": "software", "physical_disks": [
            {"model": "<in> SSD", "size": ">= 4"}, {"by_path": "s== /dev/disk/by-path/p1"},
        ]},
    ]});
    assert_eq!(serde_json::to_value(target).unwrap(), expected);
}

fn controllers(drives: &[(&str, &str, u64, &str)]) -> Vec<StorageController> {
    let mut found: Vec<StorageController> = Vec::new();
    for (controller, id, gib, media) in drives {
        if !found.iter().any(|known| known.id == *controller) {
            found.push(serde_json::from_value(json!({"id": controller})).unwrap());
        }
        let drive = json!({"id": id, "size": gib << 30, "media_type": media});
        let known = found.iter_mut().find(|known| known.id == *controller).unwrap();
        known.drives.push(serde_json::from_value(drive).unwrap());
    }
    found
}

fn picked(volumes: Value, drives: &[(&str, &str, u64, &str)]) -> Result<Vec<String>, String> {
    let settings = config(json!({"hardwareRAIDVolumes": volumes}));
    let found = pick::pick(settings, &controllers(drives))?;
    let volumes = found.hardware_raid_volumes.requested().unwrap().to_vec();
    let shown = |volume: &quarry_api::bare_metal_host::HardwareRaidVolume| {
        format!("{}: {}", volume.controller, volume.physical_disks.join(" "))
    };
    Ok(volumes.iter().map(shown).collect())
}

#[test]
fn disks_are_picked_by_size_media_and_controller() {
    let mixed = [
        ("c1", "d1", 500, "HDD"),
        ("c1", "d2", 960, "SSD"),
        ("c1", "d3", 480, "SSD"),
        ("c1", "d4", 960, "SSD"),
        ("c2", "e1", 480, "SSD"),
        ("c2", "e2", 480, "SSD"),
    ];
    let one = |volume: Value| picked(json!([volume]), &mixed);
    assert_eq!(one(json!({"level": "1"})).unwrap(), ["c1: d2 d4"], "equal sizes at one controller");
    assert_eq!(one(json!({"level": "1", "controller": "c2"})).unwrap(), ["c2: e1 e2"]);
    assert_eq!(one(json!({"level": "0", "rotational": true})).unwrap(), ["c1: d1"]);
    assert_eq!(one(json!({"level": "5", "rotational": false})).unwrap(), ["c1: d3 d2 d4"]);
    let two = picked(json!([{"level": "1"}, {"level": "1"}]), &mixed).unwrap();
    assert_eq!(two, ["c1: d2 d4", "c2: e1 e2"], "no disk twice");
    let beside =
        json!([{"level": "1", "controller": "c1", "physicalDisks": ["d2", "d4"]}, {"level": "1"}]);
    assert_eq!(picked(beside, &mixed).unwrap(), ["c1: d2 d4", "c2: e1 e2"]);
    // What has a size is left to the BMC.
    let sized = json!([{"level": "1", "sizeGibibytes": 10}]);
    assert!(!pick::is_needed(&config(json!({"hardwareRAIDVolumes": sized}))));

    for (volume, drives) in [
        (json!({"level": "1", "rotational": true}), &mixed[..]),
        (json!({"level": "6"}), &mixed),
        (json!({"level": "1"}), &[]),
        (json!({"level": "1"}), &[("c1", "d1", 500, "SSD"), ("c2", "d2", 500, "SSD")]),
    ] {
        let error = picked(json!([volume]), drives).unwrap_err();
        let named = error.contains("spec.raid.hardwareRAIDVolumes[0]");
        assert!(named && error.contains("name controller and physicalDisks"), "{error}");
    }
}

#[test]
fn a_failed_drive_is_not_picked() {
    let mut found = controllers(&[
        ("c1", "d1", 500, "SSD"),
        ("c1", "d2", 500, "SSD"),
        ("c1", "d3", 500, "SSD"),
    ]);
    found[0].drives[0].status.health = Some("Critical".into());
    let settings = config(json!({"hardwareRAIDVolumes": [{"level": "1"}]}));
    let picked = pick::pick(settings, &found).unwrap();
    let volume = &picked.hardware_raid_volumes.requested().unwrap()[0];
    assert_eq!(volume.physical_disks, ["d2", "d3"]);
}

fn reported(disks: Value) -> Vec<quarry_ironic::LogicalDisk> {
    serde_json::from_value(disks).unwrap()
}

#[test]
fn what_the_bmc_reports_is_compared_as_a_set() {
    let volumes = config(json!({"hardwareRAIDVolumes": [
        {"level": "1", "sizeGibibytes": 100, "name": "root"}, {"level": "5"},
    ]}));
    let volumes = volumes.hardware_raid_volumes.requested().unwrap();
    let same = json!([
        {"size_gb": 900, "raid_level": "5", "name": "v2"}, {"size_gb": 99, "raid_level": "1", "name": "root"},
    ]);
    assert_eq!(verify::compare_hardware(volumes, &reported(same)), Ok(()));
    let table = [
        (json!([]), "missing: RAID 1 of 100 GiB, RAID 5 of any size"),
        (json!([{"size_gb": 100, "raid_level": "1"}]), "missing: RAID 5 of any size"),
        (
            json!([{"size_gb": 200, "raid_level": "1", "name": "x"}, {"size_gb": 900, "raid_level": "5"}]),
            "missing: RAID 1 of 100 GiB; not requested: RAID 1 of 200 GiB (x)",
        ),
        (
            json!([{"size_gb": 100, "raid_level": "1"}, {"size_gb": 9, "raid_level": "5"}, {"size_gb": 9, "raid_level": "0"}]),
            "not requested: RAID 0 of 9 GiB",
        ),
    ];
    for (found, difference) in table {
        let found = verify::compare_hardware(volumes, &reported(found));
        assert_eq!(found, Err(difference.to_owned()));
    }
}

/// Four disks of an inspection: two of 100 GiB, two of 400.
fn disks() -> Vec<quarry_api::bare_metal_host::hardware::Storage> {
    let disk =
        |name: &str, gib: i64| json!({"name": name, "serialNumber": name, "sizeBytes": gib << 30});
    let all = json!([disk("a", 100), disk("b", 100), disk("c", 400), disk("d", 400)]);
    serde_json::from_value(all).unwrap()
}

fn root(raid: Value, hints: Value, found: Value) -> Result<Value, String> {
    let raid: Option<RaidConfig> = serde_json::from_value(raid).unwrap();
    let hints: Option<quarry_api::bare_metal_host::RootDeviceHints> =
        serde_json::from_value(hints).unwrap();
    root::root_device(hints.as_ref(), raid.as_ref(), &reported(found), &disks()).map(Value::from)
}

/// Names of arrays do not last, and sizes are compared as fractions of a GiB.
#[test]
fn the_root_hint_lasts_over_a_reboot() {
    let arrays =
        |volumes: Value| root(json!({"softwareRAIDVolumes": volumes}), Value::Null, json!([]));
    assert_eq!(arrays(json!([{"level": "1"}])).unwrap(), json!({"name": "<in> /dev/md"}));
    let on = |serials: [&str; 2]| json!(serials.map(|serial| json!({"serialNumber": serial})));
    let hint = |size: &str| json!({"name": "<in> /dev/md", "size": size});
    let table = [
        // The rest of disks of their own, and of the same disks.
        (
            json!([{"level": "1", "sizeGibibytes": 20, "physicalDisks": on(["a", "b"])}, {"level": "0", "physicalDisks": on(["c", "d"])}]),
            Some("<= 20"),
        ),
        (json!([{"level": "1", "sizeGibibytes": 20}, {"level": "0"}]), Some("<= 20")),
        (
            json!([{"level": "1", "sizeGibibytes": 60, "physicalDisks": on(["a", "b"])}, {"level": "1", "physicalDisks": on(["a", "b"])}]),
            Some(">= 40"),
        ),
        // The rest is as large as the root array, or unknown.
        (
            json!([{"level": "1", "sizeGibibytes": 50, "physicalDisks": on(["a", "b"])}, {"level": "1", "physicalDisks": on(["a", "b"])}]),
            None,
        ),
        (
            json!([{"level": "1", "sizeGibibytes": 20}, {"level": "0", "physicalDisks": on(["x", "y"])}]),
            None,
        ),
        (
            json!([{"level": "1", "sizeGibibytes": 20}, {"level": "1", "sizeGibibytes": 10}]),
            Some(">= 10"),
        ),
        // A size is that of each member: two of 60 GiB are a stripe of 120.
        (
            json!([{"level": "1", "sizeGibibytes": 100}, {"level": "0", "sizeGibibytes": 60, "physicalDisks": on(["c", "d"])}]),
            Some("<= 100"),
        ),
        (
            json!([{"level": "1", "sizeGibibytes": 20}, {"level": "1", "rootVolume": true, "physicalDisks": on(["c", "d"])}]),
            Some(">= 20"),
        ),
    ];
    for (volumes, expected) in table {
        let found = arrays(volumes.clone());
        match expected {
            Some(size) => assert_eq!(found, Ok(hint(size)), "{volumes}"),
            None => assert!(found.unwrap_err().contains("set spec.rootDeviceHints"), "{volumes}"),
        }
    }
}

#[test]
fn the_root_volume_is_found_among_those_of_the_bmc() {
    let volumes = json!({"hardwareRAIDVolumes": [{"level": "1", "name": "root", "sizeGibibytes": 100}, {"level": "5"}]});
    let found = json!([{"size_gb": 900, "raid_level": "5", "name": "data"}, {"size_gb": 100, "raid_level": "1", "name": "root"}]);
    assert_eq!(root(volumes.clone(), Value::Null, found.clone()), Ok(json!({"size": "<= 101"})));
    let hints = json!({"serialNumber": "S1"});
    assert_eq!(root(volumes.clone(), hints, found), Ok(json!({"serial": "s== S1"})), "hints win");
    // A lost database: the smallest disk of the machine must not be taken instead.
    let unknown = root(volumes.clone(), Value::Null, json!([])).unwrap_err();
    assert!(unknown.contains("Ironic does not know the volumes"), "{unknown}");
    let equal = json!([{"size_gb": 100, "raid_level": "1"}, {"size_gb": 100, "raid_level": "5"}]);
    assert!(root(volumes, Value::Null, equal).is_err());
    assert_eq!(root(Value::Null, Value::Null, json!([])), Ok(json!({})));
    // Disks that are no volumes: none of them may be selected instead.
    let one = |volume: Value, gib: i64| {
        let found = json!([{"size_gb": gib, "raid_level": volume["level"]}]);
        root(json!({"hardwareRAIDVolumes": [volume]}), Value::Null, found)
    };
    assert_eq!(one(json!({"level": "1"}), 99), Ok(json!({"size": "<= 100"})), "400 is not it");
    assert_eq!(one(json!({"level": "1"}), 399), Ok(json!({"size": ">= 399"})), "100 is not it");
    assert_eq!(
        one(json!({"level": "0", "numberOfPhysicalDisks": 2}), 199),
        Ok(json!({"size": "<= 200"})),
        "of two of 100"
    );
    let sized = json!({"level": "1", "sizeGibibytes": 50});
    assert_eq!(one(sized, 50), Ok(json!({"size": "<= 51"})), "every disk is larger");
    let between = one(json!({"level": "1", "sizeGibibytes": 100}), 100).unwrap_err();
    assert!(between.contains("set spec.rootDeviceHints"), "{between}");
}

#[test]
fn an_inspection_shows_the_arrays_or_not() {
    let arrays = config(
        json!({"softwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 2}, {"level": "0"}]}),
    );
    let disk = |name: &str, bytes: i64| json!({"name": name, "sizeBytes": bytes});
    let compare = |disks: Value| {
        let disks: Vec<_> = serde_json::from_value(disks).unwrap();
        verify::compare_software(&arrays, &disks)
    };
    let (small, large) = (disk("/dev/md127", (2 << 30) - 5_000_000), disk("/dev/md126", 6 << 30));
    let plain = disk("/dev/sda", 4 << 30);
    assert_eq!(compare(json!([large, plain, small])), Some(Ok(())));
    assert!(compare(json!([plain, large])).unwrap().is_err());
    assert!(compare(json!([small])).unwrap().is_err());
    assert!(compare(json!([small, large, disk("/dev/md5", 1 << 30)])).unwrap().is_err());
}

#[test]
fn the_cause_of_a_failed_step_comes_first() {
    let wrapped = "Agent returned error for clean step {'step': 'create_configuration', 'priority': 0} on node 1 : {'type': 'CleaningError', 'code': 500, 'message': 'Clean step failed', 'details': 'No candidates for physical disk'}.";
    assert_eq!(
        crate::bare_metal_host::register::cause(wrapped),
        "No candidates for physical disk (in step create_configuration)"
    );
    assert_eq!(crate::bare_metal_host::register::cause("BMC is down"), "BMC is down");
}

/// Volumes that no settings requested, of an inspection or built since: the warning comes before they are erased.
#[test]
fn raid_that_was_made_by_hand_is_warned_about() {
    let array = crate::host_join::raid::Array {
        name: "md127".to_owned(),
        level: "1".to_owned(),
        size: 1 << 30,
        members: vec!["sda1".to_owned(), "sdb1".to_owned()],
    };
    let node = node(json!({"provision_state": "active"}));
    let mut seen = with_hardware(observed(rested("provisioned", json!({})), Some(node)), 1);
    assert!(raid::warns_of_arrays(&seen.host));
    let found = |seen: &Observed| {
        let plan = planned(seen);
        let status = plan.status.as_deref().or(seen.host.status.as_ref()).unwrap();
        condition(status, raid::CONDITION_RECORDED).map(|one| one.message.clone())
    };
    assert_eq!(found(&seen), None);
    seen.arrays = Some(vec![array]);
    let message = found(&seen).unwrap();
    assert!(message.starts_with("/dev/md127 look like RAID volumes"), "{message}");
    annotate(&mut seen.host, names::RETAIN_RAID_ANNOTATION, "");
    assert!(!raid::warns_of_arrays(&seen.host));
    assert_eq!(found(&seen), None, "they stay");
}
