//! What sets and LocalVolumes request.

use super::*;

#[test]
fn a_demand_names_its_classes_and_requests_agents() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]});
    let set = set("s", 1, json!({"nodeSelector": selector}));
    assert_eq!(set.classes().collect::<Vec<_>>(), ["s"]);
    assert_eq!(local_volume("lv", &["/dev/sda"]).classes().collect::<Vec<_>>(), ["lv"]);
    let asker = set.agent_requester().unwrap();
    assert_eq!(
        (asker.kind.as_str(), asker.name.as_str(), asker.api_version.as_str()),
        ("LocalVolumeSet", "s", "local.storage.openshift.io/v1alpha1")
    );
    assert_eq!(
        local_volume("lv", &["/dev/sda"]).agent_requester().unwrap().api_version,
        "local.storage.openshift.io/v1"
    );
    assert!(
        local_volume("lv", &["sda"]).agent_requester().is_none(),
        "what cannot be understood asks for nothing"
    );
}

/// The two sets of the specification, with the same fields and values.
#[test]
fn the_examples_of_the_specification_match_as_described() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-0", "worker-1"]}]}]});
    let first = set(
        "example-autodetect",
        1,
        json!({
            "nodeSelector": selector, "storageClassName": "example-storageclass", "volumeMode": "Block", "minDeviceCount": 5, "maxDeviceCount": 10,
            "deviceInclusionSpec": {"deviceTypes": ["RawDisk"], "deviceMechanicalProperty": ["Rotational", "NonRotational"], "minSize": "10G", "maxSize": "100G"},
        }),
    );
    let second = set(
        "example-autodetect",
        1,
        json!({
            "nodeSelector": selector, "storageClassName": "example-storageclass", "volumeMode": "filesystem", "fstype": "ext4", "minDeviceCount": 5, "maxDeviceCount": 10,
            "deviceInclusionSpec": {"deviceTypes": ["RawDisk", "Partition"], "deviceMechanicalProperty": ["NonRotational"], "minSize": "10G", "maxSize": "100G",
                "models": ["SAMSUNG", "Crucial_CT525MX3"], "vendors": ["ATA", "ST2000LM"]},
        }),
    );
    assert_eq!((&first.problems, &second.problems), (&vec![], &vec![]));
    let (DeviceSelection::Set(first), DeviceSelection::Set(second)) =
        (&first.selection, &second.selection)
    else {
        panic!()
    };
    assert_eq!((first.settings.mode, first.min, first.max), (VolumeMode::Block, 5, Some(10)));
    assert_eq!((&first.filter.types, first.filter.rotational), (&vec![DeviceType::Disk], None));
    assert_eq!(
        (first.filter.min, first.filter.max),
        (Bytes(10_000_000_000), Some(Bytes(100_000_000_000)))
    );
    assert_eq!(
        (second.settings.mode, second.settings.fs_type.as_deref()),
        (VolumeMode::Filesystem, Some("ext4"))
    );
    assert_eq!(
        (&second.filter.types, second.filter.rotational),
        (&vec![DeviceType::Disk, DeviceType::Part], Some(false))
    );
    let fitting = Device {
        model: Some("Crucial CT525MX300SSD1".into()),
        vendor: Some("ata".into()),
        size: 10_000_000_000,
        ..disk("sda", 1)
    };
    assert_eq!(second.filter.mismatches(&fitting), []);
    for (change, wrong) in [
        (Device { rotational: true, ..fitting.clone() }, "it is rotational"),
        (Device { size: 9_999_999_999, ..fitting.clone() }, "smaller than"),
        (Device { size: 100_000_000_001, ..fitting.clone() }, "larger than"),
        (Device { model: None, ..fitting.clone() }, "it has none"),
        (Device { vendor: Some("WDC".into()), ..fitting.clone() }, "\"WDC\""),
        (Device { kind: "loop".into(), ..fitting.clone() }, "type loop"),
    ] {
        let reported = second.filter.mismatches(&change);
        assert!(reported.len() == 1 && reported[0].to_string().contains(wrong), "{reported:?}");
    }
}

#[test]
fn both_vocabularies_and_their_defaults() {
    let filter = |spec: Value| match set("s", 1, spec).selection {
        DeviceSelection::Set(set) => set,
        DeviceSelection::Paths(_) => panic!(),
    };
    let none = filter(json!({}));
    assert_eq!(
        (&none.filter.types, none.filter.min, none.settings.mode),
        (&vec![DeviceType::Disk], Bytes(0), VolumeMode::Block)
    );
    let empty = filter(json!({"deviceInclusionSpec": {}}));
    assert_eq!((&empty.filter.types, empty.filter.min), (&vec![DeviceType::Disk], Bytes(1 << 30)));
    assert_eq!(filter(json!({"deviceInclusionSpec": {"deviceTypes": []}})).filter.types, []);
    assert_eq!(
        filter(json!({"deviceInclusionSpec": {"devices": ["partition"], "deviceTypes": ["LOOP", "mpath"]}})).filter.types,
        [DeviceType::Part, DeviceType::Loop, DeviceType::Mpath]
    );
    assert_eq!(filter(json!({"fsType": "xfs"})).settings.mode, VolumeMode::Filesystem);
    for (mode, name) in [("Block", "fsType"), ("block", "fstype")] {
        let block = filter(json!({"volumeMode": mode, name: "ext4"}));
        assert_eq!((block.settings.mode, block.settings.fs_type), (VolumeMode::Block, None));
    }
    let excluding = filter(json!({"deviceExclusionSpec": {"deviceNameFilter": ["rbd*"]}}));
    assert_eq!(excluding.filter.mismatches(&disk("rbd1", 1)), [Mismatch::Excluded("rbd*".into())]);
}

#[test]
fn fs_type_of_a_block_path_is_ignored() {
    let object = json!({
        "metadata": {"name": "lv", "uid": "u"},
        "spec": {"storageClassDevices": [{"storageClassName": "lv", "volumeMode": "Block", "fsType": "xfs", "devicePaths": ["/dev/sdb"]}]},
    });
    let demand = of_local_volume(&serde_json::from_value(object).unwrap());
    assert_eq!(demand.problems, [""; 0]);
    let DeviceSelection::Paths(paths) = &demand.selection else { panic!() };
    let PvSettings { mode, fs_type, .. } = &paths[0].settings;
    assert_eq!((*mode, fs_type.as_deref()), (VolumeMode::Block, None));
}

#[test]
fn bad_input_is_reported_and_nothing_is_claimed() {
    for (spec, update) in [
        (
            json!({"storageClassName": ""}),
            "spec.storageClassName: is empty; use lower case letters",
        ),
        (
            json!({"minDeviceCount": 3, "maxDeviceCount": 2}),
            "spec.minDeviceCount: 3 is greater than maxDeviceCount 2",
        ),
        (json!({"minDeviceCount": -1}), "spec.minDeviceCount: is negative"),
        (
            json!({"volumeMode": "Object"}),
            "spec.volumeMode: \"object\" is not a volume mode; use Block or Filesystem",
        ),
        (
            json!({"deviceInclusionSpec": {"deviceTypes": ["tape"]}}),
            "spec.deviceInclusionSpec.deviceTypes: \"tape\" is not a device type",
        ),
        (
            json!({"deviceInclusionSpec": {"deviceMechanicalProperties": ["Fast"]}}),
            "deviceMechanicalProperties: \"Fast\" is not a mechanical property",
        ),
        (
            json!({"deviceInclusionSpec": {"minSize": "2Ti", "maxSize": "1Ti"}}),
            "spec.deviceInclusionSpec.minSize: 2Ti is greater than maxSize 1Ti",
        ),
        (
            json!({"deviceExclusionSpec": {"deviceNameFilter": ["sd[a"]}}),
            "deviceNameFilter: the pattern \"sd[a\" has a [ without its ]",
        ),
        (
            json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]}}),
            "spec.nodeSelector",
        ),
    ] {
        let demand = set("s", 1, spec);
        assert!(
            demand.problems.iter().any(|problem| problem.contains(update)),
            "{update}: {:?}",
            demand.problems
        );
        assert!(step(&mut world(vec![demand], vec![disk("sda", 1)])).claims.is_empty());
    }
    let lv = local_volume("lv", &["sdb", "/dev/../etc", "/dev/sdc", "/dev/sdc"]);
    assert_eq!(lv.problems.len(), 3, "{:?}", lv.problems);
}

#[test]
fn class_of_another_provisioner_is_a_problem_of_the_demand() {
    let provisioner = |class: &str| match class {
        "fast" => Some("csi.example.com".to_owned()),
        "ours" => Some(device_claim::pv::NO_PROVISIONER.to_owned()),
        _ => None,
    };
    let demand = set("fast", 1, json!({})).with_classes(provisioner);
    assert_eq!(
        demand.problems,
        [
            "spec.storageClassName: StorageClass fast belongs to the provisioner csi.example.com; use another name: a StorageClass that does not exist is created"
        ]
    );
    assert_eq!(step(&mut world(vec![demand], vec![disk("sda", 1)])).claims, []);
    for fine in ["ours", "new"] {
        assert_eq!(set(fine, 1, json!({})).with_classes(provisioner).problems, [""; 0]);
    }
    let paths = local_volume("fast", &["/dev/sda", "/dev/sdb"]).with_classes(provisioner);
    assert!(
        paths.problems.len() == 1
            && paths.problems[0].starts_with("spec.storageClassDevices.storageClassName: "),
        "{:?}",
        paths.problems
    );
    for (class, update) in
        [("Fast_Disks", "is not a valid name"), ("", "is empty"), ("a..b", "is not a valid name")]
    {
        assert!(
            set("s", 1, json!({"storageClassName": class})).problems[0].contains(update),
            "{class}"
        );
    }
}

#[test]
fn an_unmanaged_demand_claims_and_releases_nothing() {
    let paused = |state: &str, paths: &[&str]| {
        let object = json!({
            "metadata": {"name": "lv", "uid": "uid-lv", "finalizers": [names::OWNER_FINALIZER]},
            "spec": {"managementState": state, "storageClassDevices": [{"storageClassName": "lv", "devicePaths": paths}]},
        });
        of_local_volume(&serde_json::from_value(object).unwrap())
    };
    for state in ["Unmanaged", "Removed"] {
        let mut world = world(vec![paused(state, &["/dev/sda"])], vec![disk("sda", 1)]);
        at_path(&mut world, "sda");
        assert_eq!(step(&mut world).claims, [], "{state}");
        world.demands = vec![paused("Managed", &["/dev/sda"])];
        assert_eq!(step(&mut world).claims.len(), 1);
        world.demands = vec![paused(state, &[])];
        assert!(!step(&mut world).claims[0].terminating, "{state}");
        let mut other = paused(state, &["/dev/sda"]);
        let DeviceSelection::Paths(asked) = &mut other.selection else { panic!() };
        asked[0].settings.mode = VolumeMode::Block;
        world.demands = vec![other];
        assert_eq!(step(&mut world).claims[0].volume_mode, VolumeMode::Filesystem, "{state}");
        world.demands = vec![paused("Force", &[])];
        assert!(step(&mut world).claims[0].terminating);
    }
}

#[test]
fn a_taint_excludes_a_node_unless_tolerated() {
    let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1)]);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-1", "labels": {"kubernetes.io/hostname": "n1"}},
        "spec": {"taints": [{"key": "storage", "value": "only", "effect": "NoSchedule"}]}}))
    .unwrap();
    world.node = Some(Arc::new(node));
    assert_eq!(step(&mut world).claims, []);
    world.demands =
        vec![set("s", 1, json!({"tolerations": [{"key": "storage", "operator": "Exists"}]}))];
    assert_eq!(step(&mut world).claims.len(), 1);
}
