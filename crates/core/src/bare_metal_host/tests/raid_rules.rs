use crate::bare_metal_host::raid_rules::{disk_count, has_hints, invalid};
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        RaidConfig,
        raid::{HARDWARE_LEVELS, RaidSpec},
    },
};
use serde_json::{Value, json};

const REDFISH: &[&str] = &["0", "1", "5", "6", "1+0", "5+0", "6+0"];

fn config(raid: Value) -> RaidConfig {
    serde_json::from_value::<RaidSpec>(raid).unwrap().config()
}

fn hardware(volumes: Value) -> Vec<String> {
    invalid(&config(json!({"hardwareRAIDVolumes": volumes})), false, Some(REDFISH))
}

fn software(volumes: Value, has_hints: bool) -> Vec<String> {
    invalid(&config(json!({"softwareRAIDVolumes": volumes})), has_hints, None)
}

/// One message per row, and it begins with the field.
fn refused(found: Vec<String>, field: &str, part: &str) {
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(field), "{field}: {}", found[0]);
    assert!(found[0].contains(part), "{part}: {}", found[0]);
    assert!(found[0].contains("; "), "no remedy: {}", found[0]);
}

#[test]
fn settings_that_can_be_applied_are_accepted() {
    let none: Vec<String> = Vec::new();
    for raid in [
        json!({}),
        json!({"hardwareRAIDVolumes": null, "softwareRAIDVolumes": null}),
        json!({"hardwareRAIDVolumes": [], "softwareRAIDVolumes": []}),
        json!({"hardwareVolumes": [{"level": 1, "name": "volume-name", "sizeGibibytes": 1000, "rotational": true, "numberOfPhysicalDisks": 2}]}),
        json!({"hardwareRAIDVolumes": [{"level": "0"}, {"level": "1"}, {"level": "5+0", "numberOfPhysicalDisks": 6}]}),
        json!({"hardwareRAIDVolumes": [{"level": "1", "controller": "c", "physicalDisks": ["a", "b"], "numberOfPhysicalDisks": 2}]}),
        json!({"hardwareRAIDVolumes": [{"level": "1"}], "softwareRAIDVolumes": [{"level": "1"}]}),
        json!({"softwareVolumes": [{"level": 1, "sizeGibibytes": 1000, "physicalDisks": [{"deviceName": "/dev/sda"}, {"deviceName": "/dev/disk/by-path/pci-0000:01:00.0-ata-1"}]}]}),
        json!({"softwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 10, "rootVolume": true}, {"level": "1+0", "sizeGibibytes": 0}]}),
    ] {
        assert_eq!(invalid(&config(raid.clone()), false, Some(REDFISH)), none, "{raid}");
    }
}

#[test]
fn number_of_disks_must_fit_the_level() {
    let accepted = |level: &str, count: i64| {
        hardware(json!([{"level": level, "numberOfPhysicalDisks": count}])).is_empty()
    };
    let table: Vec<String> = HARDWARE_LEVELS
        .into_iter()
        .map(|level| {
            let counts: Vec<String> =
                (1..=10).filter(|n| accepted(level, *n)).map(|n| n.to_string()).collect();
            format!("{level}: {}", counts.join(" "))
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"), @r"
    0: 1 2 3 4 5 6 7 8 9 10
    1: 2
    2: 
    5: 3 4 5 6 7 8 9 10
    6: 4 5 6 7 8 9 10
    1+0: 4 6 8 10
    5+0: 6 8 10
    6+0: 8 10
    ");
    for level in REDFISH {
        assert!(accepted(level, disk_count(level).unwrap().minimum), "{level}");
    }
    let listed = json!([{"level": "5", "controller": "c", "physicalDisks": ["a", "b"]}]);
    refused(
        hardware(listed),
        "spec.raid.hardwareRAIDVolumes[0] ",
        "has 2 physical disks, and level 5 needs at least 3",
    );
}

#[test]
fn a_hardware_volume_that_cannot_be_built_is_refused() {
    let long = "n".repeat(65);
    for (volume, field, part) in [
        (json!({"level": "2"}), ".level ", "no driver"),
        (json!({"level": "10"}), ".level ", "no driver"),
        (
            json!({"level": "1", "physicalDisks": ["a", "b"]}),
            ".physicalDisks ",
            "without controller",
        ),
        (
            json!({"level": "0", "controller": "c", "physicalDisks": ["a", "b"], "numberOfPhysicalDisks": 3}),
            ".numberOfPhysicalDisks ",
            "is 3, and physicalDisks has 2",
        ),
        (
            json!({"level": "0", "numberOfPhysicalDisks": 0}),
            ".numberOfPhysicalDisks ",
            "less than 1",
        ),
        (json!({"level": "0", "sizeGibibytes": -1}), ".sizeGibibytes ", "negative"),
        (json!({"level": "0", "name": long}), ".name ", "64 characters"),
    ] {
        let field = format!("spec.raid.hardwareRAIDVolumes[0]{field}");
        refused(hardware(json!([volume])), &field, part);
    }
}

#[test]
fn two_hardware_volumes_need_different_names() {
    let twice = json!([{"level": "1", "name": "a"}, {"level": "1"}, {"level": "1", "name": "a"}, {"level": "1"}]);
    refused(hardware(twice), "spec.raid.hardwareRAIDVolumes[2].name ", "another volume");
}

#[test]
fn hardware_raid_needs_a_driver_that_builds_it() {
    let volumes = config(json!({"hardwareRAIDVolumes": [{"level": "5"}]}));
    refused(
        invalid(&volumes, false, None),
        "spec.raid.hardwareRAIDVolumes needs",
        "spec.bmc.address has no RAID",
    );
    refused(
        invalid(&volumes, false, Some(&["0", "1"])),
        "spec.raid.hardwareRAIDVolumes[0].level 5",
        "use one of 0, 1",
    );
    let removed = config(json!({"hardwareRAIDVolumes": []}));
    assert!(invalid(&removed, false, None).is_empty(), "there is nothing to build");
}

#[test]
fn software_raid_that_cannot_be_built_is_refused() {
    let disks = json!([{"deviceName": "/dev/sda"}]);
    let by_id = json!([{"deviceName": "/dev/sda"}, {"deviceName": "/dev/disk/by-id/wwn-0x1"}, {"wwn": "0x2"}]);
    for (volumes, hints, field, part) in [
        (json!([{"level": "0"}]), false, "[0].level ", "boots only from level 1"),
        (
            json!([{"level": "1"}, {"level": "5", "sizeGibibytes": 1}]),
            false,
            "[1].level 5",
            "0, 1 or 1+0",
        ),
        (json!([{"level": "1"}, {"level": "0"}]), false, " has several", "without sizeGibibytes"),
        (
            json!([{"level": "1", "sizeGibibytes": 0}, {"level": "0"}]),
            true,
            " has several",
            "without sizeGibibytes",
        ),
        (
            json!([{"level": "1", "sizeGibibytes": 9}, {"level": "1", "sizeGibibytes": 9}]),
            false,
            " has volumes of equal",
            "set spec.rootDeviceHints",
        ),
        (
            json!([{"level": "1", "sizeGibibytes": 9, "rootVolume": true}, {"level": "1", "sizeGibibytes": 9}]),
            false,
            " has volumes of equal",
            "use different sizes",
        ),
        (
            json!([{"level": "1", "sizeGibibytes": 1}, {"level": "1", "sizeGibibytes": 2}, {"level": "1"}]),
            false,
            " has 3 volumes",
            "at most 2",
        ),
        (
            json!([{"level": "1", "physicalDisks": disks}]),
            false,
            "[0].physicalDisks ",
            "at least two",
        ),
        (
            json!([{"level": "1", "physicalDisks": by_id}]),
            false,
            "[0].physicalDisks[1].deviceName ",
            "by-path",
        ),
        (
            json!([{"level": "1", "rootVolume": true}, {"level": "1", "sizeGibibytes": 9, "rootVolume": true}]),
            false,
            " has 2 volumes with rootVolume",
            "one of them",
        ),
        (
            json!([{"level": "1", "rootVolume": true}]),
            true,
            "[].rootVolume and",
            "spec.rootDeviceHints",
        ),
        (
            json!([{"level": "1"}, {"level": "0", "sizeGibibytes": 9, "rootVolume": true}]),
            false,
            "[1].rootVolume ",
            "use level 1",
        ),
        (json!([{"level": "1", "sizeGibibytes": -1}]), false, "[0].sizeGibibytes ", "negative"),
    ] {
        refused(software(volumes, hints), &format!("spec.raid.softwareRAIDVolumes{field}"), part);
    }
}

#[test]
fn hints_distinguish_volumes_of_equal_size() {
    let volumes = json!([{"level": "1", "sizeGibibytes": 9}, {"level": "1", "sizeGibibytes": 9}]);
    assert!(software(volumes, true).is_empty());
}

#[test]
fn every_mistake_is_reported() {
    let raid = config(json!({
        "hardwareRAIDVolumes": [{"level": "2", "physicalDisks": ["a"], "numberOfPhysicalDisks": 4}, {"level": "6", "numberOfPhysicalDisks": 3}],
        "softwareRAIDVolumes": [{"level": "0", "rootVolume": true}, {"level": "1"}],
    }));
    insta::assert_snapshot!(invalid(&raid, true, None).join("\n"));
}

#[test]
fn empty_hints_select_nothing() {
    let host = |hints: Value| -> BareMetalHost {
        serde_json::from_value(
            json!({"metadata": {}, "spec": {"online": true, "rootDeviceHints": hints}}),
        )
        .unwrap()
    };
    assert!(!has_hints(&host(json!(null))));
    assert!(!has_hints(&host(json!({"deviceName": ""}))));
    assert!(has_hints(&host(json!({"rotational": false}))));
}
