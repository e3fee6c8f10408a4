use super::{
    check::{Breach, check},
    filter::{DeviceType, Mismatch},
    want::{Asks, of_local_volume, of_set},
    *,
};
use quarry_api::{
    Bytes, NodeInventoryStatus,
    node_inventory::{ClaimContent, ClaimJob, ClaimState, DeviceReason, DeviceState, PathReport},
    volume::VolumeMode,
};
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn set(name: &str, age: u32, spec: Value) -> Want {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "quarry-system", "uid": format!("uid-{name}"), "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", 59 - age), "finalizers": [names::OWNER_FINALIZER]},
        "spec": {"storageClassName": name},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    of_set(&serde_json::from_value(object).unwrap())
}

fn local_volume(name: &str, paths: &[&str]) -> Want {
    let object = json!({
        "metadata": {"name": name, "namespace": "quarry-system", "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:30Z", "finalizers": [names::OWNER_FINALIZER]},
        "spec": {"storageClassDevices": [{"storageClassName": name, "devicePaths": paths}]},
    });
    of_local_volume(&serde_json::from_value(object).unwrap())
}

fn disk(name: &str, number: u8) -> Device {
    Device {
        name: name.into(),
        kind: "disk".into(),
        size: 20 << 30,
        identity: Some(format!("wwn:5000c5000000000{number}")),
        device_id: Some(format!("/dev/disk/by-id/wwn-0x5000c5000000000{number}")),
        settled: true,
        state: DeviceState::Available,
        ..Device::default()
    }
}

fn with_reason(mut device: Device, reason: &str, state: DeviceState) -> Device {
    device.reasons.push(DeviceReason { reason: reason.into(), detail: String::new() });
    device.state = state;
    device
}

fn world(wants: Vec<Want>, devices: Vec<Device>) -> NodeWorld {
    let mut inventory = NodeInventory::new("n1", quarry_api::NodeInventorySpec::default());
    inventory.metadata.uid = Some("inv".into());
    inventory.metadata.resource_version = Some("1".into());
    inventory.status = Some(NodeInventoryStatus { machine_id: Some("m1".into()), devices, ..NodeInventoryStatus::default() });
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-1", "labels": {"kubernetes.io/hostname": "n1"}}})).unwrap();
    NodeWorld { name: "n1".into(), node: Some(Arc::new(node)), inventory, wants, agent_present: true, ..NodeWorld::default() }
}

/// Plans, checks and takes over the inventory's part.
fn step(world: &mut NodeWorld) -> Plan {
    let plan = plan(world, now());
    assert_eq!(check(world, &plan), Ok(()), "{plan:?}");
    world.inventory.spec.claims = plan.claims.clone();
    world.inventory.spec.paths = plan.paths.clone();
    world.inventory.spec.machine_id = plan.machine_id.clone();
    plan
}

/// The agent says yes to everything, and has removed what is ending.
fn confirm(world: &mut NodeWorld) {
    let claims = world.inventory.spec.claims.clone();
    let status = world.inventory.status.as_mut().unwrap();
    status.claims = claims
        .iter()
        .map(|claim| ClaimReport {
            identity: claim.identity.clone(),
            owner_uid: claim.owner.uid.clone(),
            round: claim.round,
            state: if claim.ending { ClaimState::Ended } else { ClaimState::Confirmed },
            linked: !claim.ending,
            ..ClaimReport::default()
        })
        .collect();
}

fn names_of(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(Step::name).collect()
}

/// The API takes the steps.
fn apply(world: &mut NodeWorld, steps: &[Step]) {
    for step in steps {
        match step {
            Step::CreateClass(class) => drop(world.classes.insert(class.metadata.name.clone().unwrap(), Arc::new((**class).clone()))),
            Step::CreatePv(pv) => {
                let mut pv = (**pv).clone();
                pv.metadata.uid = Some("pv-1".into());
                pv.metadata.resource_version = Some("1".into());
                pv.status = serde_json::from_value(json!({"phase": "Available"})).unwrap();
                world.pvs.push(Arc::new(pv));
            }
            Step::DeletePv { name, .. } => change_pv(world, name, |pv| pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z")),
            Step::ReleasePv { name, .. } => world.pvs.retain(|pv| pv.metadata.name.as_ref() != Some(name)),
            Step::CreateJob(job) => drop(world.jobs.insert(job.metadata.name.clone().unwrap(), Arc::new((**job).clone()))),
        }
    }
}

fn change_pv(world: &mut NodeWorld, name: &str, change: impl Fn(&mut Value)) {
    for pv in &mut world.pvs {
        if pv.metadata.name.as_deref() == Some(name) {
            let mut object = serde_json::to_value(&**pv).unwrap();
            change(&mut object);
            *pv = Arc::new(serde_json::from_value(object).unwrap());
        }
    }
}

fn phase(world: &mut NodeWorld, phase: &str) {
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(world, &name, |pv| {
        pv["status"]["phase"] = json!(phase);
        pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d", "uid": "claim"});
    });
}

/// A world with one claimed, confirmed and published disk.
fn published() -> NodeWorld {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["CreateClass", "CreatePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).steps.is_empty(), "at rest");
    world
}

fn stage(world: &NodeWorld) -> Stage {
    let views = views(world);
    decide(world, &views[0], now()).stage
}

fn standings(world: &NodeWorld, uid: &str) -> Vec<(String, &'static str)> {
    account(world, uid).into_iter().map(|row| (row.device, row.standing.word())).collect()
}

/// The two sets of the design document, with the same fields and values.
#[test]
fn the_examples_of_the_design_document_mean_what_its_text_says() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-0", "worker-1"]}]}]});
    let first = set("example-autodetect", 1, json!({
        "nodeSelector": selector, "storageClassName": "example-storageclass", "volumeMode": "Block", "minDeviceCount": 5, "maxDeviceCount": 10,
        "deviceInclusionSpec": {"deviceTypes": ["RawDisk"], "deviceMechanicalProperty": ["Rotational", "NonRotational"], "minSize": "10G", "maxSize": "100G"},
    }));
    let second = set("example-autodetect", 1, json!({
        "nodeSelector": selector, "storageClassName": "example-storageclass", "volumeMode": "filesystem", "fstype": "ext4", "minDeviceCount": 5, "maxDeviceCount": 10,
        "deviceInclusionSpec": {"deviceTypes": ["RawDisk", "Partition"], "deviceMechanicalProperty": ["NonRotational"], "minSize": "10G", "maxSize": "100G",
            "models": ["SAMSUNG", "Crucial_CT525MX3"], "vendors": ["ATA", "ST2000LM"]},
    }));
    assert_eq!((&first.problems, &second.problems), (&vec![], &vec![]));
    let (Asks::Set(first), Asks::Set(second)) = (&first.asks, &second.asks) else { panic!() };
    assert_eq!((first.becomes.mode, first.min, first.max), (VolumeMode::Block, 5, Some(10)));
    assert_eq!((&first.filter.types, first.filter.rotational), (&vec![DeviceType::Disk], None));
    assert_eq!((first.filter.min, first.filter.max), (Bytes(10_000_000_000), Some(Bytes(100_000_000_000))));
    assert_eq!((second.becomes.mode, second.becomes.fs_type.as_deref()), (VolumeMode::Filesystem, Some("ext4")));
    assert_eq!((&second.filter.types, second.filter.rotational), (&vec![DeviceType::Disk, DeviceType::Part], Some(false)));
    let fitting = Device { model: Some("Crucial CT525MX300SSD1".into()), vendor: Some("ata".into()), size: 10_000_000_000, ..disk("sda", 1) };
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
    let filter = |spec: Value| match set("s", 1, spec).asks {
        Asks::Set(set) => set,
        Asks::Paths(_) => panic!(),
    };
    let none = filter(json!({}));
    assert_eq!((&none.filter.types, none.filter.min, none.becomes.mode), (&vec![DeviceType::Disk], Bytes(0), VolumeMode::Block));
    let empty = filter(json!({"deviceInclusionSpec": {}}));
    assert_eq!((&empty.filter.types, empty.filter.min), (&vec![DeviceType::Disk], Bytes(1 << 30)));
    assert_eq!(filter(json!({"deviceInclusionSpec": {"deviceTypes": []}})).filter.types, []);
    assert_eq!(filter(json!({"deviceInclusionSpec": {"devices": ["partition"], "deviceTypes": ["LOOP", "mpath"]}})).filter.types, [DeviceType::Part, DeviceType::Loop, DeviceType::Mpath]);
    assert_eq!(filter(json!({"fsType": "xfs"})).becomes.mode, VolumeMode::Filesystem);
    let excluding = filter(json!({"deviceExclusionSpec": {"deviceNameFilter": ["rbd*"]}}));
    assert_eq!(excluding.filter.mismatches(&disk("rbd1", 1)), [Mismatch::Excluded("rbd*".into())]);
}

#[test]
fn bad_input_names_the_field_and_the_remedy_and_takes_nothing() {
    for (spec, said) in [
        (json!({"storageClassName": ""}), "spec.storageClassName: is empty; name a StorageClass"),
        (json!({"minDeviceCount": 3, "maxDeviceCount": 2}), "spec.minDeviceCount: 3 is greater than maxDeviceCount 2"),
        (json!({"minDeviceCount": -1}), "spec.minDeviceCount: is negative"),
        (json!({"volumeMode": "Block", "fsType": "xfs"}), "spec.fsType: xfs is given for volumeMode Block"),
        (json!({"volumeMode": "Object"}), "spec.volumeMode: there is no volume mode \"object\"; use Block or Filesystem"),
        (json!({"deviceInclusionSpec": {"deviceTypes": ["tape"]}}), "spec.deviceInclusionSpec.deviceTypes: there is no device type \"tape\""),
        (json!({"deviceInclusionSpec": {"deviceMechanicalProperties": ["Fast"]}}), "deviceMechanicalProperties: there is no property \"Fast\""),
        (json!({"deviceInclusionSpec": {"minSize": "2Ti", "maxSize": "1Ti"}}), "spec.deviceInclusionSpec.minSize: 2 TiB is greater than maxSize 1 TiB"),
        (json!({"deviceExclusionSpec": {"deviceNameFilter": ["sd[a"]}}), "deviceNameFilter: the pattern \"sd[a\" has a [ without its ]"),
        (json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]}}), "spec.nodeSelector"),
    ] {
        let want = set("s", 1, spec);
        assert!(want.problems.iter().any(|problem| problem.contains(said)), "{said}: {:?}", want.problems);
        assert!(step(&mut world(vec![want], vec![disk("sda", 1)])).claims.is_empty());
    }
    let lv = local_volume("lv", &["sdb", "/dev/../etc", "/dev/sdc", "/dev/sdc"]);
    assert_eq!(lv.problems.len(), 3, "{:?}", lv.problems);
}

#[test]
fn the_older_object_wins_and_the_other_says_who_has_the_device() {
    let mut world = world(vec![set("young", 1, json!({})), set("old", 2, json!({"maxDeviceCount": 1}))], vec![disk("sdb", 2), disk("sda", 1)]);
    let claims = step(&mut world).claims;
    assert_eq!(claims.iter().map(|claim| (claim.identity.as_str(), claim.owner.name.as_str())).collect::<Vec<_>>(), [("wwn:5000c50000000001", "old"), ("wwn:5000c50000000002", "young")]);
    assert_eq!(claims[0].link, "/mnt/local-storage/old/wwn-0x5000c50000000001");
    assert_eq!(world.inventory.spec.machine_id.as_deref(), Some("m1"));
    assert_eq!(standings(&world, "uid-young"), [("sda".to_owned(), "Taken"), ("sdb".to_owned(), "Provisioned")]);
    assert_eq!(account(&world, "uid-young")[0].standing.sentence(), "LocalVolumeSet quarry-system/old has it");
    assert!(plan(&world, now()).claims == claims, "a plan on its own result is empty");
    // The same rank whatever the order in which they are seen.
    world.inventory.spec.claims.clear();
    world.wants.reverse();
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
    assert!(account(&below, "uid-s")[0].standing.sentence().contains("the node has 4 matching devices, minDeviceCount is 5"));
    // Lowering the maximum gives nothing back.
    let mut lowered = world(vec![set("s", 1, json!({"maxDeviceCount": 3}))], disks());
    assert_eq!(step(&mut lowered).claims.len(), 3);
    lowered.wants = vec![set("s", 1, json!({"maxDeviceCount": 1}))];
    assert_eq!(step(&mut lowered).claims.len(), 3);
    assert_eq!(standings(&lowered, "uid-s").last().unwrap().1, "OverMaximum");
}

/// Confirmed one by one: published only when as many are proven as the minimum says.
#[test]
fn below_the_minimum_nothing_is_published() {
    let mut world = world(vec![set("s", 1, json!({"minDeviceCount": 2}))], vec![disk("sda", 1), disk("sdb", 2)]);
    step(&mut world);
    confirm(&mut world);
    world.inventory.status.as_mut().unwrap().claims.pop();
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Held(why) if why.contains("minDeviceCount is 2")));
    confirm(&mut world);
    assert_eq!(names_of(&step(&mut world).steps), ["CreateClass", "CreatePv", "CreatePv"]);
}

#[test]
fn only_a_settled_available_certain_device_is_taken() {
    let want = || vec![set("s", 1, json!({}))];
    let taken = |world: &mut NodeWorld| step(world).claims.len();
    for (device, word) in [
        (with_reason(disk("sda", 1), "TooNew", DeviceState::Unknown), "Waiting"),
        (with_reason(disk("sda", 1), "Mounted", DeviceState::NotAvailable), "Refused"),
        (with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable), "Refused"),
        (with_reason(disk("sda", 1), "TimedOut", DeviceState::Unknown), "Refused"),
        (with_reason(disk("sda", 1), "ReasonOfALaterVersion", DeviceState::NotAvailable), "Refused"),
        (Device { state: DeviceState::Unknown, ..disk("sda", 1) }, "Refused"),
        (Device { settled: false, ..disk("sda", 1) }, "Waiting"),
        (Device { identity: None, device_id: None, ..disk("sda", 1) }, "Waiting"),
    ] {
        let mut world = world(want(), vec![device.clone()]);
        assert_eq!((taken(&mut world), standings(&world, "uid-s")[0].1), (0, word), "{device:?}");
    }
    let mut elsewhere = world(want(), vec![disk("sda", 1)]);
    elsewhere.elsewhere = vec![Elsewhere { identity: "wwn:5000c50000000001".into(), node: "n2".into(), device: "sdx".into() }];
    assert_eq!(taken(&mut elsewhere), 0);
    let mut quarantined = world(want(), vec![disk("sda", 1)]);
    quarantined.inventory.spec.quarantine =
        vec![quarry_api::node_inventory::Quarantine { identity: "wwn:5000c50000000001".into(), reason: "IdentityChanged".into(), detail: String::new() }];
    assert_eq!(taken(&mut quarantined), 0);
    let mut unlisted = world(want(), vec![disk("sda", 1)]);
    unlisted.inventory.spec.foreign_pvs_left_out = Some(1);
    assert_eq!(taken(&mut unlisted), 0);
    for annotation in ["device-id", "path"] {
        let mut foreign = world(want(), vec![disk("sda", 1)]);
        let pv = match annotation {
            "path" => json!({"metadata": {"name": "x"}, "spec": {"local": {"path": "/mnt/local-storage/other/wwn-0x5000c50000000001"}}}),
            _ => json!({"metadata": {"name": "x", "annotations": {names::LSO_DEVICE_ID_ANNOTATION: "wwn-0x5000c50000000001"}}, "spec": {"local": {"path": "/gone"}}}),
        };
        foreign.pvs = vec![Arc::new(serde_json::from_value(pv).unwrap())];
        assert_eq!((taken(&mut foreign), standings(&foreign, "uid-s")[0].1), (0, "Published"), "{annotation}");
    }
    let unprotected = Want { protected: false, ..set("s", 1, json!({})) };
    assert_eq!(taken(&mut world(vec![unprotected], vec![disk("sda", 1)])), 0);
}

#[test]
fn what_is_not_local_is_taken_only_by_a_set_that_names_it() {
    let mut far = disk("sda", 1);
    far.reasons.push(DeviceReason { reason: "NotLocal".into(), detail: "iscsi".into() });
    far.state = DeviceState::NotAvailable;
    let naming = |kinds: &str| {
        let mut want = set("s", 1, json!({}));
        if let Asks::Set(set) = &mut want.asks {
            set.not_local = kinds.split(',').map(str::to_owned).collect();
        }
        want
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
    assert_eq!(step(&mut world).paths, ["/dev/disk/by-id/wwn-a", "/dev/nothing", "/dev/sdb", "/dev/sdc"]);
    assert_eq!(standings(&world, "uid-lv")[0].1, "Waiting");
    let report = |path: &str, device: Option<&str>, problem: Option<&str>| PathReport { path: path.into(), device: device.map(str::to_owned), problem: problem.map(str::to_owned) };
    world.inventory.status.as_mut().unwrap().paths =
        vec![report(paths[0], Some("sda"), None), report(paths[1], Some("sdb"), None), report(paths[2], None, Some("it does not exist")), report(paths[3], Some("sda"), None)];
    assert_eq!(standings(&world, "uid-lv").iter().map(|row| row.1).collect::<Vec<_>>(), ["Matched", "Refused", "NoDevice", "NoDevice"]);
    let plan = step(&mut world);
    assert_eq!((plan.claims.len(), plan.claims[0].content, plan.claims[0].path.as_deref()), (1, ClaimContent::Any, Some(paths[0])));
    assert_eq!(plan.claims[0].volume_mode, VolumeMode::Filesystem);
    // The path is not looked up again: whatever it leads to now, the claim keeps its device.
    world.inventory.status.as_mut().unwrap().paths = vec![report(paths[0], Some("sdb"), None)];
    let again = step(&mut world);
    assert_eq!(again.claims, plan.claims);
    assert!(!again.paths.contains(&paths[0].to_owned()));
    // A path that is taken out of the list ends its claim.
    world.wants = vec![local_volume("lv", &paths[1..])];
    assert!(step(&mut world).claims[0].ending);
}

#[test]
fn a_confirmed_claim_is_published_as_the_shipped_one_is() {
    let mut world = world(vec![set("fast", 1, json!({"fsType": "xfs"}))], vec![disk("sda", 1)]);
    step(&mut world);
    assert!(step(&mut world).steps.is_empty(), "not before the agent has confirmed it");
    confirm(&mut world);
    let plan = step(&mut world);
    let [Step::CreateClass(class), Step::CreatePv(pv)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    insta::assert_yaml_snapshot!("class", class);
    insta::assert_yaml_snapshot!("pv", pv);
    for (size, rounded) in [(5 << 20, 5 << 20), ((10 << 20) + 5, 10 << 20), ((10 << 30) + 5, 10 << 30), ((9 << 30) + 5, 9 << 30)] {
        assert_eq!(pv::rounded(size).0, rounded);
    }
}

#[test]
fn what_an_administrator_set_on_the_class_is_used_and_never_changed() {
    let mut world = world(vec![set("fast", 1, json!({"fsType": "xfs"}))], vec![disk("sda", 1)]);
    let class = json!({"metadata": {"name": "fast"}, "provisioner": pv::NO_PROVISIONER, "reclaimPolicy": "Retain", "mountOptions": ["noatime"]});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(class).unwrap()));
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    let [Step::CreatePv(made)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let spec = made.spec.as_ref().unwrap();
    assert_eq!((spec.persistent_volume_reclaim_policy.as_deref(), spec.mount_options.as_deref()), (Some("Retain"), Some(&["noatime".to_owned()][..])));
    let other = json!({"metadata": {"name": "fast"}, "provisioner": "csi.example.com"});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(other).unwrap()));
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Held(why) if why.contains("belongs to the provisioner csi.example.com")));
}

#[test]
fn a_released_volume_is_deleted_wiped_and_published_again() {
    let mut world = published();
    phase(&mut world, "Bound");
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Bound(_)));
    phase(&mut world, "Released");
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["DeletePv"]);
    apply(&mut world, &plan.steps);
    let plan = step(&mut world);
    assert!(plan.steps.is_empty() && plan.claims[0].job.is_some(), "on record first");
    let plan = step(&mut world);
    let [Step::CreateJob(job)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    insta::assert_yaml_snapshot!("wipe", job.spec);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Wiping(_)));
    finish(&mut world, "Succeeded", NOW);
    let plan = step(&mut world);
    assert_eq!((plan.claims[0].round, &plan.claims[0].job, names_of(&plan.steps)), (2, &None, vec![]));
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).steps.is_empty(), "the old confirmation is worth nothing");
    confirm(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["CreatePv"]);
    apply(&mut world, &plan.steps);
    assert_eq!(stage(&world), Stage::Available);
}

fn finish(world: &mut NodeWorld, phase: &str, at: &str) {
    let name = world.inventory.spec.claims[0].job.clone().unwrap().name;
    let mut job = (*world.jobs[&name]).clone();
    job.status = serde_json::from_value(json!({"phase": phase, "runs": 1, "message": "the disk is gone", "completionTime": at})).unwrap();
    world.jobs.insert(name, Arc::new(job));
}

#[test]
fn a_failed_wipe_is_told_and_tried_again_later_each_time() {
    let mut world = published();
    phase(&mut world, "Released");
    for _ in 0..3 {
        let plan = step(&mut world);
        apply(&mut world, &plan.steps);
    }
    finish(&mut world, "Failed", NOW);
    let plan = plan(&world, now());
    assert_eq!((plan.requeue, plan.claims[0].job.as_ref().unwrap().attempt), (Some(SignedDuration::from_secs(10)), 1));
    assert!(matches!(stage(&world), Stage::WipeFailed(why) if why.contains("the disk is gone")));
    finish(&mut world, "Failed", "2026-01-01T00:59:00Z");
    let recorded = step(&mut world).claims[0].job.clone().unwrap();
    assert_eq!(recorded.attempt, 2);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["CreateJob"]);
    // A policy that means nothing wipes nothing.
    let class = json!({"metadata": {"name": "fast", "annotations": {names::WIPE_ANNOTATION: "thorough"}}, "provisioner": pv::NO_PROVISIONER});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(class).unwrap()));
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::WipeFailed(why) if why.contains("use Quick, Discard or Zero")));
}

#[test]
fn what_is_retained_is_left_alone_and_says_how_to_give_it_back() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain"));
    phase(&mut world, "Released");
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Retained(why) if why.contains("set its persistentVolumeReclaimPolicy to Delete")));
    // Its owner is deleted: still nothing happens to it.
    world.wants[0].terminating = true;
    assert!(step(&mut world).steps.is_empty());
    // An administrator deletes the PersistentVolume: no job, the data stays, and it is not published again by itself.
    change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z"));
    world.wants[0].terminating = false;
    let plan = step(&mut world);
    assert_eq!((plan.claims[0].round, names_of(&plan.steps)), (2, vec![]));
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).steps.is_empty());
}

#[test]
fn a_deleted_owner_gives_back_what_is_unused_and_waits_for_the_rest() {
    let mut world = published();
    world.wants[0].terminating = true;
    let mut bound = world.clone();
    phase(&mut bound, "Bound");
    assert!(step(&mut bound).steps.is_empty());
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["DeletePv"]);
    apply(&mut world, &plan.steps);
    assert_eq!(step(&mut world).claims[0].round, 2, "never bound: nothing to wipe");
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).claims[0].ending);
    assert_eq!(step(&mut world).claims.len(), 1, "until the agent has removed the link");
    confirm(&mut world);
    let plan = step(&mut world);
    assert!(plan.claims.is_empty() && plan.machine_id.is_none());
}

#[test]
fn a_refused_claim_ends_when_the_device_says_why_and_waits_otherwise() {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let status = world.inventory.status.as_mut().unwrap();
    status.claims[0].state = ClaimState::Refused;
    status.claims[0].message = Some("sda is held exclusively by somebody".into());
    assert!(!step(&mut world).claims[0].ending);
    assert!(matches!(stage(&world), Stage::Refused(why) if why.contains("held exclusively")));
    world.inventory.status.as_mut().unwrap().devices = vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)];
    assert!(step(&mut world).claims[0].ending);
}

#[test]
fn data_that_came_after_the_confirmation_is_not_published() {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    world.inventory.status.as_mut().unwrap().devices = vec![with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable)];
    assert!(step(&mut world).steps.is_empty());
    for doubt in ["elsewhere", "absent agent", "gone"] {
        let mut world = world.clone();
        world.inventory.status.as_mut().unwrap().devices = vec![disk("sda", 1)];
        match doubt {
            "elsewhere" => world.elsewhere = vec![Elsewhere { identity: "wwn:5000c50000000001".into(), node: "n2".into(), device: "sdx".into() }],
            "gone" => world.inventory.status.as_mut().unwrap().devices.clear(),
            _ => world.agent_present = false,
        }
        assert!(step(&mut world).steps.is_empty(), "{doubt}");
    }
}

#[test]
fn a_disk_that_vanished_is_told_and_used_again_when_it_is_back() {
    let mut world = published();
    let devices = std::mem::take(&mut world.inventory.status.as_mut().unwrap().devices);
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Missing(why) if why.contains("plug it in again")));
    world.inventory.status.as_mut().unwrap().devices = devices;
    assert!(step(&mut world).steps.is_empty());
    assert_eq!(stage(&world), Stage::Available);
}

#[test]
fn another_machine_or_none_freezes_the_claims_until_they_are_released() {
    for gone in [true, false] {
        let mut world = published();
        if gone {
            world.node = None;
        } else {
            world.inventory.status.as_mut().unwrap().machine_id = Some("m2".into());
            world.inventory.status.as_mut().unwrap().devices = vec![disk("sda", 7)];
        }
        let before = world.inventory.spec.claims.clone();
        let plan = step(&mut world);
        assert_eq!((plan.steps.len(), &plan.claims), (0, &before), "gone: {gone}");
        assert!(matches!(stage(&world), Stage::Frozen(why) if why.contains("quarry.dev/release-claims=m1")));
        let annotate = |world: &mut NodeWorld, value: &str| world.inventory.metadata.annotations = Some([(names::RELEASE_CLAIMS_ANNOTATION.to_owned(), value.to_owned())].into());
        annotate(&mut world, "m9");
        assert!(step(&mut world).steps.is_empty(), "it must name the machine");
        annotate(&mut world, "m1");
        let mut bound = world.clone();
        phase(&mut bound, "Bound");
        assert!(step(&mut bound).steps.is_empty(), "not while it is in use");
        let plan = step(&mut world);
        assert_eq!(names_of(&plan.steps), ["DeletePv"]);
        apply(&mut world, &plan.steps);
        let plan = step(&mut world);
        assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
        apply(&mut world, &plan.steps);
        let plan = step(&mut world);
        assert!(plan.claims.is_empty() && plan.machine_id.is_none());
    }
}

#[test]
fn check_refuses_what_a_mistaken_planner_could_propose() {
    let good = published();
    let pv_name = good.pvs[0].metadata.name.clone().unwrap();
    let claim = good.inventory.spec.claims[0].clone();
    let empty = Plan { claims: good.inventory.spec.claims.clone(), machine_id: Some("m1".into()), ..Plan::default() };
    assert_eq!(check(&good, &empty), Ok(()));
    let with = |steps: Vec<Step>| Plan { steps, ..empty.clone() };
    let delete = Step::DeletePv { name: pv_name.clone(), uid: "pv-1".into(), resource_version: "1".into() };
    let release = Step::ReleasePv { name: pv_name.clone(), resource_version: "1".into(), finalizers: vec![] };
    let made = Step::CreatePv(Box::new((*good.pvs[0]).clone()));

    let mut bound = good.clone();
    phase(&mut bound, "Bound");
    assert_eq!(check(&bound, &with(vec![delete.clone()])), Err(Breach::InUse(pv_name.clone())));
    assert_eq!(check(&good, &with(vec![release.clone()])), Err(Breach::InUse(pv_name.clone())), "not before it is going and its round is over");
    assert!(matches!(check(&good, &with(vec![made.clone()])), Err(Breach::TwoOwners(_))));
    let stranger = Step::DeletePv { name: "other".into(), uid: "x".into(), resource_version: "1".into() };
    assert_eq!(check(&good, &with(vec![stranger])), Err(Breach::NotOurs("other".into())));

    let mut unconfirmed = good.clone();
    unconfirmed.pvs.clear();
    assert_eq!(check(&unconfirmed, &with(vec![made.clone()])), Ok(()));
    for (change, breach) in [
        (0, Breach::Unconfirmed(claim.identity.clone())),
        (1, Breach::DataPublished(claim.identity.clone())),
        (2, Breach::Doubtful(claim.identity.clone())),
        (3, Breach::Unconfirmed(claim.identity.clone())),
        (4, Breach::Frozen),
        (5, Breach::TwoOwners(claim.identity.clone())),
    ] {
        let mut world = unconfirmed.clone();
        let status = world.inventory.status.as_mut().unwrap();
        match change {
            0 => status.claims.clear(),
            1 => status.devices = vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)],
            2 => world.elsewhere = vec![Elsewhere { identity: claim.identity.clone(), node: "n2".into(), device: "x".into() }],
            3 => status.claims[0].round = 9,
            4 => status.machine_id = Some("m2".into()),
            _ => world.wants[0].terminating = true,
        }
        assert_eq!(check(&world, &with(vec![made.clone()])), Err(breach), "{change}");
    }

    let forgotten = Plan { claims: vec![], ..empty.clone() };
    assert_eq!(check(&good, &forgotten), Err(Breach::LeftBehind(claim.identity.clone())));
    let changed = Plan { claims: vec![Claim { size: 1, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &changed), Err(Breach::Changed(claim.identity.clone())));
    let back = Plan { claims: vec![Claim { round: 0, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &back), Err(Breach::Changed(claim.identity.clone())));
    let rival = Claim { owner: quarry_api::node_inventory::ClaimOwner { uid: "uid-other".into(), ..claim.owner.clone() }, ..claim.clone() };
    let twice = Plan { claims: vec![claim.clone(), rival], ..empty.clone() };
    assert_eq!(check(&good, &twice), Err(Breach::TwoOwners(claim.identity.clone())));

    // A wipe needs its whole reason: recorded, going, released, of this node and size.
    let mut releasing = good.clone();
    phase(&mut releasing, "Released");
    change_pv(&mut releasing, &pv_name, |pv| pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z"));
    let job = life::wipe_job(&releasing, &claim, &releasing.pvs[0], quarry_api::node_job::WipePolicy::Quick, 1).unwrap();
    let wipe = Step::CreateJob(Box::new(job.clone()));
    assert!(matches!(check(&releasing, &with(vec![wipe.clone()])), Err(Breach::UnfoundedWipe(_))), "not on record");
    let record = |world: &mut NodeWorld| world.inventory.spec.claims[0].job = Some(ClaimJob { name: job.metadata.name.clone().unwrap(), attempt: 1 });
    record(&mut releasing);
    let with_job = |world: &NodeWorld| Plan { claims: world.inventory.spec.claims.clone(), ..with(vec![wipe.clone()]) };
    assert_eq!(check(&releasing, &with_job(&releasing)), Ok(()));
    for change in 0..5 {
        let mut world = releasing.clone();
        match change {
            0 => change_pv(&mut world, &pv_name, |pv| pv["metadata"]["deletionTimestamp"] = Value::Null),
            1 => change_pv(&mut world, &pv_name, |pv| pv["status"]["phase"] = json!("Bound")),
            2 => change_pv(&mut world, &pv_name, |pv| pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")),
            3 => change_pv(&mut world, &pv_name, |pv| pv["metadata"]["uid"] = json!("pv-2")),
            _ => world.node = Some(Arc::new(serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-2"}})).unwrap())),
        }
        assert!(check(&world, &with_job(&world)).is_err(), "{change}");
    }
}
