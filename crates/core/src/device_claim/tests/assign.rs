//! Who asks, and who gets what.

use super::*;

/// The two sets of the design document, with the same fields and values.
#[test]
fn the_examples_of_the_design_document_mean_what_its_text_says() {
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
        (Device { model: None, ..fitting.clone() }, "it names none"),
        (Device { vendor: Some("WDC".into()), ..fitting.clone() }, "\"WDC\""),
        (Device { kind: "loop".into(), ..fitting.clone() }, "type loop"),
    ] {
        let told = second.filter.mismatches(&change);
        assert!(told.len() == 1 && told[0].to_string().contains(wrong), "{told:?}");
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
    let excluding = filter(json!({"deviceExclusionSpec": {"deviceNameFilter": ["rbd*"]}}));
    assert_eq!(excluding.filter.mismatches(&disk("rbd1", 1)), [Mismatch::Excluded("rbd*".into())]);
}

#[test]
fn bad_input_names_the_field_and_the_remedy_and_takes_nothing() {
    for (spec, said) in [
        (json!({"storageClassName": ""}), "spec.storageClassName: is empty; name a StorageClass"),
        (
            json!({"minDeviceCount": 3, "maxDeviceCount": 2}),
            "spec.minDeviceCount: 3 is greater than maxDeviceCount 2",
        ),
        (json!({"minDeviceCount": -1}), "spec.minDeviceCount: is negative"),
        (
            json!({"volumeMode": "Block", "fsType": "xfs"}),
            "spec.fsType: xfs is given for volumeMode Block",
        ),
        (
            json!({"volumeMode": "Object"}),
            "spec.volumeMode: there is no volume mode \"object\"; use Block or Filesystem",
        ),
        (
            json!({"deviceInclusionSpec": {"deviceTypes": ["tape"]}}),
            "spec.deviceInclusionSpec.deviceTypes: there is no device type \"tape\"",
        ),
        (
            json!({"deviceInclusionSpec": {"deviceMechanicalProperties": ["Fast"]}}),
            "deviceMechanicalProperties: there is no property \"Fast\"",
        ),
        (
            json!({"deviceInclusionSpec": {"minSize": "2Ti", "maxSize": "1Ti"}}),
            "spec.deviceInclusionSpec.minSize: 2 TiB is greater than maxSize 1 TiB",
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
            demand.problems.iter().any(|problem| problem.contains(said)),
            "{said}: {:?}",
            demand.problems
        );
        assert!(step(&mut world(vec![demand], vec![disk("sda", 1)])).claims.is_empty());
    }
    let lv = local_volume("lv", &["sdb", "/dev/../etc", "/dev/sdc", "/dev/sdc"]);
    assert_eq!(lv.problems.len(), 3, "{:?}", lv.problems);
}

#[test]
fn the_older_object_wins_and_the_other_says_who_has_the_device() {
    let mut world = world(
        vec![set("young", 1, json!({})), set("old", 2, json!({"maxDeviceCount": 1}))],
        vec![disk("sdb", 2), disk("sda", 1)],
    );
    let claims = step(&mut world).claims;
    assert_eq!(
        claims
            .iter()
            .map(|claim| (claim.identity.as_str(), claim.owner.name.as_str()))
            .collect::<Vec<_>>(),
        [("wwn:5000c50000000001", "old"), ("wwn:5000c50000000002", "young")]
    );
    assert_eq!(claims[0].link, "/mnt/local-storage/old/wwn-0x5000c50000000001");
    assert_eq!(world.inventory.spec.machine_id.as_deref(), Some("m1"));
    assert_eq!(
        eligibilities(&world, "uid-young"),
        [("sda".to_owned(), "Taken"), ("sdb".to_owned(), "Provisioned")]
    );
    assert_eq!(
        account(&world, "uid-young")[0].eligibility.message(),
        "LocalVolumeSet quarry-system/old has it"
    );
    assert!(plan(&world, now()).claims == claims, "a plan on its own result is empty");
    // The same rank whatever the order in which they are seen.
    world.inventory.spec.device_claims.clear();
    world.demands.reverse();
    world.inventory.status.as_mut().unwrap().devices.reverse();
    assert_eq!(plan(&world, now()).claims, claims);
}

#[test]
fn counts_are_kept_on_each_node() {
    let disks = || (1..=4).map(|n| disk(&format!("sd{n}"), n)).collect::<Vec<_>>();
    let claims = |spec: Value| step(&mut world(vec![set("s", 1, spec)], disks())).claims.len();
    assert_eq!(claims(json!({"minDeviceCount": 5})), 0);
    assert_eq!(claims(json!({"minDeviceCount": 4, "maxDeviceCount": 4})), 4);
    assert_eq!(claims(json!({"maxDeviceCount": 0})), 0);
    let below = world(vec![set("s", 1, json!({"minDeviceCount": 5}))], disks());
    assert!(
        account(&below, "uid-s")[0]
            .eligibility
            .message()
            .contains("the node has 4 matching devices, minDeviceCount is 5")
    );
    // Lowering the maximum gives nothing back.
    let mut lowered = world(vec![set("s", 1, json!({"maxDeviceCount": 3}))], disks());
    assert_eq!(step(&mut lowered).claims.len(), 3);
    lowered.demands = vec![set("s", 1, json!({"maxDeviceCount": 1}))];
    assert_eq!(step(&mut lowered).claims.len(), 3);
    assert_eq!(eligibilities(&lowered, "uid-s").last().unwrap().1, "OverMaximum");
}

/// Confirmed one by one: published only when as many are proven as the minimum says.
#[test]
fn below_the_minimum_nothing_is_published() {
    let mut world = world(
        vec![set("s", 1, json!({"minDeviceCount": 2}))],
        vec![disk("sda", 1), disk("sdb", 2)],
    );
    step(&mut world);
    confirm(&mut world);
    world.inventory.status.as_mut().unwrap().device_claims.pop();
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Blocked(why) if why.contains("minDeviceCount is 2")));
    confirm(&mut world);
    assert_eq!(names_of(&step(&mut world).steps), ["CreateClass", "CreatePv", "CreatePv"]);
}

#[test]
fn only_a_settled_available_certain_device_is_taken() {
    let demand = || vec![set("s", 1, json!({}))];
    let taken = |world: &mut NodeWorld| step(world).claims.len();
    for (device, word) in [
        (with_reason(disk("sda", 1), "TooNew", DeviceState::Unknown), "Waiting"),
        (with_reason(disk("sda", 1), "Claimed", DeviceState::NotAvailable), "Waiting"),
        (
            with_reason(
                with_reason(disk("sda", 1), "Claimed", DeviceState::NotAvailable),
                "Mounted",
                DeviceState::NotAvailable,
            ),
            "Refused",
        ),
        (with_reason(disk("sda", 1), "Mounted", DeviceState::NotAvailable), "Refused"),
        (with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable), "Refused"),
        (with_reason(disk("sda", 1), "TimedOut", DeviceState::Unknown), "Refused"),
        (
            with_reason(disk("sda", 1), "ReasonOfALaterVersion", DeviceState::NotAvailable),
            "Refused",
        ),
        (Device { state: DeviceState::Unknown, ..disk("sda", 1) }, "Refused"),
        (Device { settled: false, ..disk("sda", 1) }, "Waiting"),
        (Device { identity: None, device_id: None, ..disk("sda", 1) }, "Waiting"),
    ] {
        let mut world = world(demand(), vec![device.clone()]);
        assert_eq!(
            (taken(&mut world), eligibilities(&world, "uid-s")[0].1),
            (0, word),
            "{device:?}"
        );
    }
    let mut elsewhere = world(demand(), vec![disk("sda", 1)]);
    elsewhere.elsewhere = vec![Elsewhere {
        identity: "wwn:5000c50000000001".into(),
        node: "n2".into(),
        device: "sdx".into(),
    }];
    assert_eq!(taken(&mut elsewhere), 0);
    let mut quarantined = world(demand(), vec![disk("sda", 1)]);
    quarantined.inventory.spec.quarantine = vec![quarry_api::node_inventory::Quarantine {
        identity: "wwn:5000c50000000001".into(),
        reason: "IdentityChanged".into(),
        detail: String::new(),
    }];
    assert_eq!(taken(&mut quarantined), 0);
    let mut unlisted = world(demand(), vec![disk("sda", 1)]);
    unlisted.inventory.spec.unmanaged_pvs_omitted = Some(1);
    assert_eq!(taken(&mut unlisted), 0);
    for annotation in ["device-id", "path"] {
        let mut foreign = world(demand(), vec![disk("sda", 1)]);
        let pv = match annotation {
            "path" => {
                json!({"metadata": {"name": "x"}, "spec": {"local": {"path": "/mnt/local-storage/other/wwn-0x5000c50000000001"}}})
            }
            _ => {
                json!({"metadata": {"name": "x", "annotations": {names::LSO_DEVICE_ID_ANNOTATION: "wwn-0x5000c50000000001"}}, "spec": {"local": {"path": "/gone"}}})
            }
        };
        foreign.pvs = vec![Arc::new(serde_json::from_value(pv).unwrap())];
        assert_eq!(
            (taken(&mut foreign), eligibilities(&foreign, "uid-s")[0].1),
            (0, "Published"),
            "{annotation}"
        );
    }
    let said =
        |device: Device| account(&world(demand(), vec![device]), "uid-s")[0].eligibility.message();
    assert!(
        said(with_reason(disk("sda", 1), "Claimed", DeviceState::NotAvailable))
            .contains("since its last claim ended")
    );
    assert!(
        said(with_reason(disk("sda", 1), "TooNew", DeviceState::Unknown))
            .contains("for the settling time")
    );
    let unprotected = Demand { protected: false, ..set("s", 1, json!({})) };
    assert_eq!(taken(&mut world(vec![unprotected], vec![disk("sda", 1)])), 0);
}

#[test]
fn what_is_not_local_is_taken_only_by_a_set_that_names_it() {
    let mut far = disk("sda", 1);
    far.reasons.push(DeviceReason { reason: "NotLocal".into(), detail: "iscsi".into() });
    far.state = DeviceState::NotAvailable;
    let naming = |kinds: &str| {
        let mut demand = set("s", 1, json!({}));
        if let DeviceSelection::Set(set) = &mut demand.selection {
            set.not_local = kinds.split(',').map(str::to_owned).collect();
        }
        demand
    };
    assert_eq!(step(&mut world(vec![naming("fc")], vec![far.clone()])).claims.len(), 0);
    assert_eq!(step(&mut world(vec![naming("fc,iscsi")], vec![far])).claims.len(), 1);
}

#[test]
fn a_local_volume_takes_what_its_paths_are_and_keeps_what_is_on_it() {
    let paths = ["/dev/disk/by-id/wwn-a", "/dev/sdb", "/dev/nothing", "/dev/sdc"];
    let data = with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable);
    let parent = with_reason(disk("sdb", 2), "HasChildren", DeviceState::NotAvailable);
    let mut world = world(vec![local_volume("lv", &paths)], vec![data, parent]);
    assert_eq!(
        step(&mut world).paths,
        ["/dev/disk/by-id/wwn-a", "/dev/nothing", "/dev/sdb", "/dev/sdc"]
    );
    assert_eq!(eligibilities(&world, "uid-lv")[0].1, "Waiting");
    let report = |path: &str, device: Option<&str>, problem: Option<&str>| PathReport {
        path: path.into(),
        device: device.map(str::to_owned),
        problem: problem.map(str::to_owned),
    };
    world.inventory.status.as_mut().unwrap().paths = vec![
        report(paths[0], Some("sda"), None),
        report(paths[1], Some("sdb"), None),
        report(paths[2], None, Some("it does not exist")),
        report(paths[3], Some("sda"), None),
    ];
    assert_eq!(
        eligibilities(&world, "uid-lv").iter().map(|row| row.1).collect::<Vec<_>>(),
        ["Matched", "Refused", "NoDevice", "NoDevice"]
    );
    let plan = step(&mut world);
    assert_eq!(
        (plan.claims.len(), plan.claims[0].content, plan.claims[0].path.as_deref()),
        (1, ClaimContent::Any, Some(paths[0]))
    );
    assert_eq!(plan.claims[0].volume_mode, VolumeMode::Filesystem);
    // The path is not looked up again: whatever it leads to now, the claim keeps its device.
    world.inventory.status.as_mut().unwrap().paths = vec![report(paths[0], Some("sdb"), None)];
    let again = step(&mut world);
    assert_eq!(again.claims, plan.claims);
    assert!(!again.paths.contains(&paths[0].to_owned()));
    // A path that is taken out of the list ends its claim.
    world.demands = vec![local_volume("lv", &paths[1..])];
    assert!(step(&mut world).claims[0].terminating);
}
