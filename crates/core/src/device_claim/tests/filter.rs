//! Which devices a set matches.

use super::*;

#[test]
fn sizes_are_inclusive_and_every_type_is_known_by_its_name() {
    let matches = |spec: Value, device: &Device| {
        let spec: LocalVolumeSetSpec =
            serde_json::from_value(json!({"storageClassName": "s", "deviceInclusionSpec": spec}))
                .unwrap();
        device_claim::filter::Filter::read(&spec).map(|filter| filter.mismatches(device).is_empty())
    };
    let device = disk("sda", 1);
    let size = |bytes: i64| (device.size + bytes).to_string();
    assert_eq!(matches(json!({"minSize": size(0), "maxSize": size(0)}), &device), Ok(true));
    assert_eq!(matches(json!({"minSize": size(1), "maxSize": size(1)}), &device), Ok(false));
    assert_eq!(matches(json!({"minSize": size(-1), "maxSize": size(-1)}), &device), Ok(false));
    assert!(matches(json!({"minSize": size(1), "maxSize": size(0)}), &device).is_err());
    for kind in ["disk", "part", "loop", "mpath", "lvm"] {
        assert_eq!(
            matches(
                json!({"deviceTypes": [kind]}),
                &Device { kind: kind.into(), ..device.clone() }
            ),
            Ok(true),
            "{kind}"
        );
        assert_eq!(
            matches(
                json!({"deviceTypes": [kind]}),
                &Device { kind: "other".into(), ..device.clone() }
            ),
            Ok(false),
            "{kind}"
        );
    }
}

#[test]
fn an_array_of_any_level_is_of_the_type_raid() {
    let spec = json!({"storageClassName": "s", "deviceInclusionSpec": {"deviceTypes": ["RAID"]}});
    let spec: LocalVolumeSetSpec = serde_json::from_value(spec).unwrap();
    let filter = device_claim::filter::Filter::read(&spec).unwrap();
    let matches = |kind: &str| {
        let device = Device { kind: kind.into(), ..disk("md127", 1) };
        filter.mismatches(&device).is_empty()
    };
    for (kind, expected) in [
        ("raid1", true),
        ("raid0", true),
        ("raid10", true),
        ("disk", false),
        ("part", false),
        ("raid", false),
        ("raid1x", false),
    ] {
        assert_eq!(matches(kind), expected, "{kind}");
    }
}

#[test]
fn a_max_size_below_the_default_minimum_has_no_minimum() {
    let min =
        |inclusion: Value| match set("s", 1, json!({"deviceInclusionSpec": inclusion})).selection {
            DeviceSelection::Set(set) => set.filter.min,
            DeviceSelection::Paths(_) => panic!(),
        };
    assert_eq!(min(json!({"maxSize": "500Mi"})), Bytes(0));
    assert_eq!(min(json!({"maxSize": "1Gi"})), Bytes(1 << 30));
    assert_eq!(min(json!({"maxSize": "2Gi"})), Bytes(1 << 30));
    assert_eq!(min(json!({"maxSize": "500Mi", "minSize": "100Mi"})), Bytes(100 << 20));
}
