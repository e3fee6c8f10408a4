//! Which demand takes which device.

use super::*;

#[test]
fn a_path_belongs_to_the_owner_of_its_device_claim() {
    let mut world = world(
        vec![local_volume("lv", &["/dev/sda"]), local_volume("other", &["/dev/sda"])],
        vec![disk("sda", 1)],
    );
    world.inventory.status.as_mut().unwrap().paths =
        vec![PathReport { path: "/dev/sda".into(), device: Some("sda".into()), problem: None }];
    step(&mut world);
    assert_eq!(
        (eligibilities(&world, "uid-lv")[0].1, eligibilities(&world, "uid-other")[0].1),
        ("Claimed", "Taken")
    );
}

#[test]
fn nothing_is_claimed_on_a_frozen_node() {
    let eligibility = |change: Change<NodeWorld>| {
        let (mut world, _) = taking();
        change(&mut world);
        eligibilities(&world, "uid-s")[0].1
    };
    assert_eq!(eligibility(|_| {}), "Selected");
    assert_eq!(
        eligibility(|world| world.inventory.status.as_mut().unwrap().machine_id = Some("m2".into())),
        "Frozen"
    );
    assert_eq!(
        eligibility(|world| world.inventory.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!(NOW)).unwrap())),
        "Waiting"
    );
    assert_eq!(
        eligibility(|world| world.inventory.spec.unmanaged_pvs_omitted = Some(0)),
        "Selected"
    );
}

#[test]
fn a_link_is_named_by_device_id_or_identity() {
    let link = |id: Option<&str>| {
        let device = Device { device_id: id.map(str::to_owned), ..disk("sda", 1) };
        let mut world = world(vec![set("s", 1, json!({}))], vec![device]);
        step(&mut world).claims[0].link.clone()
    };
    assert_eq!(link(Some("/dev/disk/by-id/wwn-1")), "/mnt/local-storage/s/wwn-1");
    for none in [None, Some(""), Some("/dev/disk/by-id/"), Some("."), Some("/x/..")] {
        assert!(
            link(none).starts_with("/mnt/local-storage/s/disk-") && link(none).len() == 42,
            "{none:?}: {}",
            link(none)
        );
    }
}

#[test]
fn a_pv_of_another_device_does_not_count() {
    for (path, annotations) in [
        ("/mnt/local-storage/other/wwn-0x5000c50000000009", json!({})),
        ("/gone", json!({names::LSO_DEVICE_ID_ANNOTATION: "wwn-0x5000c50000000009"})),
        ("/dev/sdb", json!({names::IDENTITY_ANNOTATION: "wwn:9"})),
    ] {
        let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1)]);
        let pv = json!({"metadata": {"name": "x", "annotations": annotations}, "spec": {"local": {"path": path}}});
        world.pvs = vec![Arc::new(serde_json::from_value(pv).unwrap())];
        assert_eq!(eligibilities(&world, "uid-s")[0].1, "Selected", "{path}");
    }
}

// invariant: 3
#[test]
fn the_older_object_wins_and_the_other_names_the_owner() {
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
        [("sda".to_owned(), "Taken"), ("sdb".to_owned(), "Claimed")]
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
fn device_counts_apply_per_node() {
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
            .contains("the node has 4 matching devices, spec.minDeviceCount is 5")
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
fn below_the_minimum_nothing_is_claimed() {
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

// invariant: 3, 6
#[test]
fn only_a_settled_available_certain_device_is_claimed() {
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
    elsewhere.elsewhere = vec![RemoteIdentity {
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
            (0, "BacksPersistentVolume"),
            "{annotation}"
        );
    }
    let update =
        |device: Device| account(&world(demand(), vec![device]), "uid-s")[0].eligibility.message();
    assert!(
        update(with_reason(disk("sda", 1), "Claimed", DeviceState::NotAvailable))
            .contains("since its last device claim ended")
    );
    assert!(
        update(with_reason(disk("sda", 1), "TooNew", DeviceState::Unknown))
            .contains("the settling time")
    );
    let unprotected = Demand { protected: false, ..set("s", 1, json!({})) };
    assert_eq!(taken(&mut world(vec![unprotected], vec![disk("sda", 1)])), 0);
}

// invariant: 7
#[test]
fn non_local_devices_need_include_not_local() {
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
fn a_local_volume_claims_its_paths_and_keeps_their_content() {
    let paths = ["/dev/disk/by-id/wwn-a", "/dev/sdb", "/dev/nothing", "/dev/sdc"];
    let mut data = with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable);
    data.reasons[0].detail = "xfs".into();
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
        ["Selected", "Refused", "NoDevice", "NoDevice"]
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

// invariant: 1
#[test]
fn a_path_to_unrecognized_data_is_no_file_system() {
    let claims = |mode: &str| {
        let object = json!({
            "metadata": {"name": "lv", "uid": "uid-lv", "finalizers": [names::OWNER_FINALIZER]},
            "spec": {"storageClassDevices": [{"storageClassName": "lv", "volumeMode": mode, "devicePaths": ["/dev/sda"]}]},
        });
        let unknown = with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable);
        let mut world =
            world(vec![of_local_volume(&serde_json::from_value(object).unwrap())], vec![unknown]);
        at_path(&mut world, "sda");
        step(&mut world).claims.len()
    };
    assert_eq!((claims("Filesystem"), claims("Block")), (0, 1));
}

// invariant: 1
#[test]
fn a_path_is_a_file_system_only_with_one_that_fits() {
    let row = |settings: Value, signatures: &[&str]| {
        let mut entry = json!({"storageClassName": "lv", "devicePaths": ["/dev/sda"]});
        for (key, value) in settings.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let object = json!({
            "metadata": {"name": "lv", "uid": "uid-lv", "finalizers": [names::OWNER_FINALIZER]},
            "spec": {"storageClassDevices": [entry]},
        });
        let mut device = disk("sda", 1);
        for signature in signatures {
            device = with_reason(device, "Signature", DeviceState::NotAvailable);
            device.reasons.last_mut().unwrap().detail = (*signature).into();
        }
        let demand = of_local_volume(&serde_json::from_value(object).unwrap());
        let mut world = world(vec![demand], vec![device]);
        at_path(&mut world, "sda");
        let eligibility = account(&world, "uid-lv").remove(0).eligibility;
        let claims = step(&mut world).claims;
        assert_eq!(claims.len() == 1, eligibility == Eligibility::Selected);
        // What the planner refuses, `check` refuses as well.
        if let [claim] = claims.as_slice() {
            let mut other = world.clone();
            other.inventory.spec.device_claims.clear();
            let found = other.inventory.status.as_mut().unwrap();
            found.devices[0].reasons =
                vec![DeviceReason { reason: "Signature".into(), detail: "swap".into() }];
            let plan = Plan { claims: vec![claim.clone()], ..Plan::default() };
            let violations = check(&other, &plan);
            let refused = violations.contains(&Violation::DataPublished(claim.identity.clone()));
            assert_eq!(refused, claim.volume_mode == VolumeMode::Filesystem, "{violations:?}");
        }
        (eligibility.as_str(), eligibility.message())
    };
    let any = || json!({});
    for fits in [vec![], vec!["ext2"], vec!["ext3"], vec!["ext4"], vec!["xfs"], vec!["btrfs"]] {
        assert_eq!(row(any(), &fits).0, "Selected", "{fits:?}");
    }
    for found in ["LVM2_member", "linux_raid_member", "crypto_LUKS", "swap", "vfat", "ntfs", ""] {
        assert_eq!(row(any(), &[found]).0, "UnfitFileSystem", "{found}");
        assert_eq!(row(json!({"volumeMode": "Block"}), &[found]).0, "Selected", "{found}");
    }
    assert_eq!(row(any(), &["ext4", "xfs"]).0, "UnfitFileSystem", "one of them is old");
    assert_eq!(row(json!({"fsType": "vfat"}), &["vfat"]).0, "Selected");
    let wrong = row(json!({"fsType": "xfs"}), &["ext4"]);
    assert_eq!(wrong, ("UnfitFileSystem", "contains ext4, and fsType is xfs".into()));
    assert_eq!(
        row(any(), &["LVM2_member"]).1,
        "contains LVM2_member; without fsType only ext2, ext3, ext4, xfs, btrfs are mounted as they are"
    );
}

#[test]
fn include_not_local_matches_whole_words() {
    let claims = |detail: &str, kinds: &str| {
        let mut far = with_reason(disk("sda", 1), "NotLocal", DeviceState::NotAvailable);
        far.reasons[0].detail = detail.into();
        let object = json!({"metadata": {"name": "s", "uid": "u", "finalizers": [names::OWNER_FINALIZER], "annotations": {names::INCLUDE_NOT_LOCAL_ANNOTATION: kinds}},
            "spec": {"storageClassName": "s"}});
        step(&mut world(vec![of_set(&serde_json::from_value(object).unwrap())], vec![far]))
            .claims
            .len()
    };
    assert_eq!(
        [
            claims("iscsi", "i"),
            claims("iscsi", "fc, iSCSI"),
            claims("nvme-tcp", "nvme"),
            claims("nvme-tcp", "nvme-tcp"),
            claims("nvme-tcp", "nvme-t")
        ],
        [0, 1, 1, 1, 0]
    );
    assert_eq!([claims("a file on nfs", "nfs"), claims("a file on nfs", "fs")], [1, 0]);
}
