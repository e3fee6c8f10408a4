//! Device claims without a PersistentVolume.

use super::*;

#[test]
fn a_confirmed_device_claim_is_published_as_upstream() {
    let mut world = world(vec![set("fast", 1, json!({"fsType": "xfs"}))], vec![disk("sda", 1)]);
    step(&mut world);
    assert!(step(&mut world).steps.is_empty(), "not before the agent has confirmed it");
    confirm(&mut world);
    let plan = step(&mut world);
    let [Step::CreateClass(class), Step::CreatePv(pv)] = plan.steps.as_slice() else {
        panic!("{plan:?}")
    };
    insta::assert_yaml_snapshot!("class", class);
    insta::assert_yaml_snapshot!("pv", pv);
    for (size, rounded) in [
        (5 << 20, 5 << 20),
        ((10 << 20) + 5, 10 << 20),
        ((10 << 30) + 5, 10 << 30),
        ((9 << 30) + 5, 9 << 30),
    ] {
        assert_eq!(device_claim::pv::rounded(size).0, rounded);
    }
}

#[test]
fn settings_of_an_existing_class_are_never_changed() {
    let mut world = world(vec![set("fast", 1, json!({"fsType": "xfs"}))], vec![disk("sda", 1)]);
    let class = json!({"metadata": {"name": "fast"}, "provisioner": device_claim::pv::NO_PROVISIONER, "reclaimPolicy": "Retain", "mountOptions": ["noatime"]});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(class).unwrap()));
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    let [Step::CreatePv(made)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let spec = made.spec.as_ref().unwrap();
    assert_eq!(
        (spec.persistent_volume_reclaim_policy.as_deref(), spec.mount_options.as_deref()),
        (Some("Retain"), Some(&["noatime".to_owned()][..]))
    );
    let other = json!({"metadata": {"name": "fast"}, "provisioner": "csi.example.com"});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(other).unwrap()));
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Blocked(why) if why.contains("belongs to the provisioner csi.example.com"))
    );
}

#[test]
fn a_refused_device_claim_ends_only_for_a_lasting_reason() {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let status = world.inventory.status.as_mut().unwrap();
    status.device_claims[0].state = ClaimState::Refused;
    status.device_claims[0].message = Some("sda is opened exclusively by another process".into());
    assert!(!step(&mut world).claims[0].terminating);
    assert!(matches!(stage(&world), Stage::Refused(why) if why.contains("opened exclusively")));
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)];
    assert!(step(&mut world).claims[0].terminating);
}

#[test]
fn data_written_after_confirmation_is_not_published() {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable)];
    assert!(step(&mut world).steps.is_empty());
    for quarantine in ["elsewhere", "absent agent", "gone"] {
        let mut world = world.clone();
        world.inventory.status.as_mut().unwrap().devices = vec![disk("sda", 1)];
        match quarantine {
            "elsewhere" => {
                world.elsewhere = vec![RemoteIdentity {
                    identity: "wwn:5000c50000000001".into(),
                    node: "n2".into(),
                    device: "sdx".into(),
                }]
            }
            "gone" => world.inventory.status.as_mut().unwrap().devices.clear(),
            _ => world.agent_present = false,
        }
        assert!(step(&mut world).steps.is_empty(), "{quarantine}");
    }
}

/// A disk that was named by its path, published.
fn named() -> NodeWorld {
    let mut data = with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable);
    data.reasons[0].detail = "ext4".into();
    let mut world = world(vec![local_volume("lv", &["/dev/sda"])], vec![data]);
    world.inventory.status.as_mut().unwrap().paths =
        vec![PathReport { path: "/dev/sda".into(), device: Some("sda".into()), problem: None }];
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["CreateClass", "CreatePv"]);
    apply(&mut world, &plan.steps);
    world
}

// invariant: 1
#[test]
fn retained_data_is_not_published_again() {
    let mut world = named();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    phase(&mut world, "Released");
    assert!(
        matches!(stage(&world), Stage::Retained(why) if why.contains("and remove /dev/sda from spec.storageClassDevices.devicePaths"))
    );
    tear_down(&mut world);
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Blocked(why) if why.contains("is not published") && why.contains("/dev/sda"))
    );
    // It looks blank, which proves nothing: an administrator has to discard the data.
    world.inventory.status.as_mut().unwrap().devices = vec![disk("sda", 1)];
    assert!(step(&mut world).steps.is_empty() && matches!(stage(&world), Stage::Blocked(_)));
    forget(&mut world, "pv-1");
    assert_eq!(
        (
            names_of(&step(&mut world).steps),
            names_of(&step(&mut world).steps),
            world.inventory.spec.retained_data.len()
        ),
        (vec![], vec!["CreatePv"], 0)
    );
}

/// The path may resolve to another disk now: it is resolved again only after it was removed and added again.
#[test]
fn removing_its_path_releases_a_missing_disk() {
    let mut world = named();
    world.inventory.status.as_mut().unwrap().devices.clear();
    assert!(
        matches!(stage(&world), Stage::Missing(why) if why.contains("remove /dev/sda from spec.storageClassDevices.devicePaths"))
    );
    tear_down(&mut world);
    world.inventory.status.as_mut().unwrap().devices = vec![disk("sda", 2)];
    let plan = step(&mut world);
    assert_eq!(
        (plan.claims.len(), plan.claims[0].terminating, plan.paths.len()),
        (1, false, 0),
        "another disk is there now, and not taken"
    );
    world.demands = vec![local_volume("lv", &[])];
    assert!(step(&mut world).claims[0].terminating);
}

#[test]
fn new_settings_of_a_set_apply_to_the_next_pv() {
    let mut world = published();
    world.demands = vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))];
    assert!(step(&mut world).steps.is_empty(), "what is published stays");
    tear_down(&mut world);
    assert!(step(&mut world).claims[0].terminating);
    confirm(&mut world);
    step(&mut world);
    assert_eq!(step(&mut world).claims[0].volume_mode, VolumeMode::Filesystem);
}

#[test]
fn deleting_its_pv_releases_a_missing_disk() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    world.inventory.status.as_mut().unwrap().devices.clear();
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Missing(why) if why.contains(&format!("to release it, delete PersistentVolume {name}")))
    );
    change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    step(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    // Only by the word of an agent that is there.
    for blind in [true, false] {
        let mut unsure = world.clone();
        if blind {
            unsure.inventory.status = None;
        } else {
            unsure.agent_present = false;
        }
        assert!(!step(&mut unsure).claims[0].terminating, "blind: {blind}");
        assert!(
            matches!(stage(&unsure), Stage::Missing(why) if why.contains("the agent on node n1 is absent"))
        );
    }
    assert!(step(&mut world).claims[0].terminating);
    confirm(&mut world);
    assert!(step(&mut world).claims.is_empty());
}

#[test]
fn an_excluded_disk_leaves_its_set_with_its_pv() {
    let mut world = published();
    let excluding =
        || set("fast", 1, json!({"deviceExclusionSpec": {"deviceNameFilter": ["sda"]}}));
    world.demands = vec![excluding()];
    assert!(step(&mut world).steps.is_empty(), "what is published stays");
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z")
    });
    step(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).claims[0].terminating);
    confirm(&mut world);
    assert!(step(&mut world).claims.is_empty());
}

#[test]
fn a_device_of_another_size_is_claimed_again_and_not_wiped() {
    let grown =
        |world: &mut NodeWorld| world.inventory.status.as_mut().unwrap().devices[0].size += 4096;
    let mut claimed = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut claimed);
    grown(&mut claimed);
    assert!(step(&mut claimed).claims[0].terminating);
    // One that says nothing about its size for a moment is no other.
    let mut silent = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut silent);
    silent.inventory.status.as_mut().unwrap().devices[0].size = 0;
    assert!(!step(&mut silent).claims[0].terminating);
    let mut named = world(vec![local_volume("lv", &["/dev/sda"])], vec![disk("sda", 1)]);
    at_path(&mut named, "sda");
    step(&mut named);
    grown(&mut named);
    let plan = step(&mut named);
    assert_eq!(
        (plan.claims[0].size, plan.claims[0].round, plan.claims[0].terminating),
        ((20 << 30) + 4096, 2, false),
        "its path is not looked up again"
    );
    let mut released = published();
    phase(&mut released, "Released");
    let name = released.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut released, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    let mut silent = released.clone();
    silent.inventory.status.as_mut().unwrap().devices[0].size = 0;
    assert!(step(&mut silent).claims[0].job.is_some(), "the agent is asked");
    grown(&mut released);
    let plan = step(&mut released);
    assert!(plan.steps.is_empty() && plan.claims[0].job.is_none());
    assert!(
        matches!(stage(&released), Stage::WipeFailed(why) if why.contains("erase it by hand") && why.contains("to Retain"))
    );
}

/// A path keeps its device and gets new settings as soon as it is unused.
#[test]
fn new_settings_of_a_path_apply_to_the_next_pv() {
    let asking = |mode: &str, fs_type: Option<&str>| {
        let object = json!({
            "metadata": {"name": "lv", "uid": "uid-lv", "finalizers": [names::OWNER_FINALIZER]},
            "spec": {"storageClassDevices": [{"storageClassName": "lv", "volumeMode": mode, "fsType": fs_type, "devicePaths": ["/dev/sda"]}]},
        });
        of_local_volume(&serde_json::from_value(object).unwrap())
    };
    let mut world = world(vec![asking("Filesystem", Some("ext4"))], vec![disk("sda", 1)]);
    at_path(&mut world, "sda");
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    world.demands = vec![asking("Block", None)];
    assert!(step(&mut world).steps.is_empty(), "a volume that exists stays as it is");
    tear_down(&mut world);
    let plan = step(&mut world);
    assert_eq!(
        (plan.claims[0].volume_mode, &plan.claims[0].fs_type, plan.steps.len()),
        (VolumeMode::Block, &None, 0)
    );
    assert_eq!(plan.claims[0].path.as_deref(), Some("/dev/sda"));
    assert!(
        step(&mut world).steps.is_empty(),
        "what it may contain was confirmed for other settings"
    );
    confirm(&mut world);
    let made = step(&mut world).steps;
    assert_eq!(names_of(&made), ["CreatePv"]);
    let Step::CreatePv(pv) = &made[0] else { panic!() };
    assert_eq!(pv.spec.as_ref().unwrap().volume_mode.as_deref(), Some("Block"));
    // Never while it is published, and never to what would show another's data.
    apply(&mut world, &made);
    let mut wrong = step(&mut world);
    wrong.claims[0].volume_mode = VolumeMode::Filesystem;
    assert_eq!(check(&world, &wrong), vec![Violation::Changed("wwn:5000c50000000001".into())]);
    tear_down(&mut world);
    world.demands = vec![asking("Filesystem", None)];
    step(&mut world);
    world.inventory.spec.wipe_remnants = vec![WipeRemnant {
        identity: "wwn:5000c50000000001".into(),
        pv_name: "p".into(),
        pv_uid: "u".into(),
        ..WipeRemnant::default()
    }];
    world.demands = vec![asking("Block", None)];
    assert_eq!(step(&mut world).claims[0].volume_mode, VolumeMode::Filesystem);
    assert!(matches!(stage(&world), Stage::Blocked(why) if why.contains("use it as Filesystem")));
    // Another file system is as good as the one before.
    world.demands = vec![asking("Filesystem", Some("xfs"))];
    assert_eq!(step(&mut world).claims[0].fs_type.as_deref(), Some("xfs"));
}

/// It was confirmed while it was blank: the agent has not read it again since.
// invariant: 1
#[test]
fn a_device_with_an_unfit_file_system_is_not_published() {
    let object = json!({
        "metadata": {"name": "lv", "uid": "uid-lv", "finalizers": [names::OWNER_FINALIZER]},
        "spec": {"storageClassDevices": [{"storageClassName": "lv", "volumeMode": "Filesystem", "fsType": "xfs", "devicePaths": ["/dev/sda"]}]},
    });
    let demand = of_local_volume(&serde_json::from_value(object).unwrap());
    let mut world = world(vec![demand], vec![disk("sda", 1)]);
    at_path(&mut world, "sda");
    step(&mut world);
    confirm(&mut world);
    let good = step(&mut world.clone());
    assert!(names_of(&good.steps).contains(&"CreatePv"));
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)];
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Blocked(why) if why.contains("fsType is xfs")));
    let wrong = Plan { steps: good.steps, ..step(&mut world) };
    assert_eq!(
        check(&world, &wrong),
        vec![Violation::DataPublished("wwn:5000c50000000001".into())]
    );
}
