//! Ways in which a disk could be lost or shown to the wrong one, and what stands in each.

use super::*;
use crate::{
    device::{Content, Facts, group},
    device_claim::{
        confirm::{Expected, verify},
        state_machine, wipe_remnant_on,
    },
};
use quarry_api::node_inventory::Evidence;

fn uid(world: &NodeWorld) -> String {
    world.pvs[0].metadata.uid.clone().unwrap()
}

/// A set's disk whose data was kept, and that nobody claims any more.
fn kept() -> NodeWorld {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    phase(&mut world, "Released");
    step(&mut world);
    tear_down(&mut world);
    assert_eq!(world.inventory.spec.retained_data.len(), 1);
    world.inventory.spec.device_claims.clear();
    world.demands.clear();
    world
}

fn at_path(world: &mut NodeWorld, device: &str) {
    world.inventory.status.as_mut().unwrap().paths =
        vec![PathReport { path: "/dev/sda".into(), device: Some(device.into()), problem: None }];
}

#[test]
fn what_was_kept_goes_to_no_path_that_does_not_ask_for_it() {
    let mut world = kept();
    at_path(&mut world, "sda");
    world.demands = vec![local_volume("lv", &["/dev/sda"])];
    assert_eq!(step(&mut world).claims, []);
    assert!(
        account(&world, "uid-lv")[0]
            .eligibility
            .message()
            .contains("retains the data of a PersistentVolume"),
        "{:?}",
        account(&world, "uid-lv")
    );
    // Told by the agent as well, which changes nothing.
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "RetainedData", DeviceState::NotAvailable)];
    assert_eq!(step(&mut world).claims, []);
    let adopting = |uids: &str| {
        let object = json!({
            "metadata": {"name": "lv", "namespace": "quarry-system", "uid": "uid-lv", "finalizers": [names::OWNER_FINALIZER],
                "annotations": {names::ADOPT_RETAINED_DATA_ANNOTATION: uids}},
            "spec": {"storageClassDevices": [{"storageClassName": "lv", "devicePaths": ["/dev/sda"]}]},
        });
        of_local_volume(&serde_json::from_value(object).unwrap())
    };
    let pv_uid = world.inventory.spec.retained_data[0].pv_uid.clone();
    world.demands = vec![adopting("another")];
    assert_eq!(step(&mut world).claims, []);
    world.demands = vec![adopting(&format!("another, {pv_uid}"))];
    let plan = super::plan(&world, now());
    assert_eq!(
        (plan.claims.len(), plan.retained_data.len()),
        (1, 1),
        "it is taken as it is, and what is on it stays on record"
    );
    assert_eq!(check(&world, &plan), Ok(()));
    world.demands = vec![local_volume("lv", &["/dev/sda"])];
    assert_eq!(check(&world, &plan), Err(Violation::DataPublished("wwn:5000c50000000001".into())));
}

/// The disk of a Filesystem set, released and wiped quickly.
fn quickly_wiped() -> NodeWorld {
    let mut world =
        world(vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    wipe(&mut world);
    world
}

/// Uses the world's volume, releases it, and lets the wipe succeed.
fn wipe(world: &mut NodeWorld) {
    wipe_until(world, true);
}

/// `ended`: the plan that follows the wipe is carried out, too.
fn wipe_until(world: &mut NodeWorld, ended: bool) {
    phase(world, "Released");
    let plan = step(world);
    apply(world, &plan.steps);
    step(world);
    let plan = step(world);
    assert_eq!(names_of(&plan.steps), ["CreateJob"]);
    apply(world, &plan.steps);
    for job in world.jobs.values_mut() {
        let mut object = serde_json::to_value(&**job).unwrap();
        object["status"] = json!({"phase": "Succeeded"});
        *job = Arc::new(serde_json::from_value(object).unwrap());
    }
    if ended {
        step(world);
    }
}

#[test]
fn what_was_wiped_quickly_is_a_file_systems_and_no_block_devices() {
    let mut world = quickly_wiped();
    let left = world.inventory.spec.wipe_remnants.clone();
    assert_eq!(
        (left.len(), left[0].pv_uid == uid(&world), world.inventory.spec.retained_data.len()),
        (1, true, 0)
    );
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    confirm(&mut world);
    assert_eq!(
        names_of(&step(&mut world).steps),
        ["CreatePv"],
        "as a file system it is offered again"
    );
    // The set makes Block devices of its disks by now: the claim ends, and is not made anew.
    world.demands = vec![set("fast", 1, json!({"volumeMode": "Block"}))];
    assert!(step(&mut world).claims[0].terminating);
    confirm(&mut world);
    assert_eq!(step(&mut world).claims, []);
    assert_eq!(step(&mut world).claims, []);
    let told = account(&world, "uid-fast")[0].eligibility.clone();
    assert_eq!(told.as_str(), "Residue");
    assert!(
        told.message().contains(&format!(
            "{}={}",
            names::FORGET_RETAINED_DATA_ANNOTATION,
            left[0].pv_uid
        )),
        "{}",
        told.message()
    );
    let mut files = world.clone();
    files.demands = vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))];
    assert_eq!(step(&mut files).claims.len(), 1);
    // The checker says so by itself, for a claim and for a volume.
    let mut plan = super::plan(&files, now());
    plan.claims[0].volume_mode = VolumeMode::Block;
    files.inventory.spec.device_claims.clear();
    assert_eq!(check(&files, &plan), Err(Violation::DataPublished("wwn:5000c50000000001".into())));
    plan.claims[0].volume_mode = VolumeMode::Filesystem;
    plan.wipe_remnants.clear();
    assert_eq!(check(&files, &plan), Err(Violation::Forgotten("wwn:5000c50000000001".into())));
    forget(&mut world, &left[0].pv_uid);
    assert_eq!(step(&mut world).wipe_remnants, []);
    assert_eq!(step(&mut world).claims.len(), 1);
}

#[test]
fn a_whole_wipe_leaves_nothing_to_remember() {
    let mut world = published();
    world.inventory.spec.wipe_remnants = vec![WipeRemnant {
        identity: "wwn:5000c50000000001".into(),
        pv_name: "older".into(),
        pv_uid: "older".into(),
    }];
    wipe(&mut world);
    assert_eq!(
        (world.inventory.spec.wipe_remnants.len(), world.inventory.spec.retained_data.len()),
        (0, 0)
    );
    // Quick by the class's own word is the class's own decision; another claim may not see it.
    let mut world = published();
    let class = json!({"metadata": {"name": "fast", "annotations": {names::WIPE_ANNOTATION: "Quick"}}, "provisioner": pv::NO_PROVISIONER});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(class).unwrap()));
    wipe(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    confirm(&mut world);
    assert_eq!(names_of(&step(&mut world).steps), ["CreatePv"]);
    let device = &world.inventory.status.as_ref().unwrap().devices[0];
    assert!(
        wipe_remnant_on(&world, device).is_some()
            && state_machine::exposed_remnant(
                &world,
                &DeviceClaim { last_pv: None, ..world.inventory.spec.device_claims[0].clone() },
                device
            )
            .is_some()
    );
}

#[test]
fn the_agent_shows_no_residue_and_no_unnamed_data_to_kubelet_either() {
    let evidence =
        vec![Evidence { source: "sysfs:wwid".into(), value: "naa.5000c50000000001".into() }];
    let facts = |content| Facts {
        name: "sda".into(),
        kind: "disk".into(),
        size: 20 << 30,
        evidence: evidence.clone(),
        content,
        ..Facts::default()
    };
    let claim = |mode: VolumeMode, content: ClaimContent, round: i64| DeviceClaim {
        identity: "wwn:5000c50000000001".into(),
        size: 20 << 30,
        volume_mode: mode,
        content,
        round,
        ..DeviceClaim::default()
    };
    let entry = WipeRemnant {
        identity: "wwn:5000c50000000001".into(),
        pv_name: "p".into(),
        pv_uid: "u".into(),
    };
    let asked = |claim: &DeviceClaim, expected: Expected, content, wipe_remnants: bool| {
        let spec = NodeInventorySpec {
            wipe_remnants: wipe_remnants.then(|| entry.clone()).into_iter().collect(),
            ..NodeInventorySpec::default()
        };
        verify(claim, expected, &group(&[facts(content)], None, None, &[]), &spec)
    };
    for (mode, content) in [
        (VolumeMode::Block, ClaimContent::Blank),
        (VolumeMode::Block, ClaimContent::Any),
        (VolumeMode::Filesystem, ClaimContent::Blank),
    ] {
        let (first, second) = (claim(mode, content, 1), claim(mode, content, 2));
        let refused = mode == VolumeMode::Block;
        assert_eq!(
            asked(&first, Expected::of_claim(&first), Content::Blank, true).is_err(),
            refused,
            "{mode:?} {content:?}"
        );
        assert_eq!(
            asked(&second, Expected::of_claim(&second), Content::Blank, true),
            Ok(()),
            "the class's own way of wiping"
        );
        assert_eq!(
            asked(&first, Expected::Erasable, Content::Blank, true),
            Ok(()),
            "what is erased is no longer there"
        );
    }
    // A signature that says nothing about itself is still one.
    let nameless = || Content::Found(crate::device::Found::default());
    let blank = claim(VolumeMode::Filesystem, ClaimContent::Blank, 1);
    assert!(asked(&blank, Expected::Blank, nameless(), false).is_err());
    assert_eq!(asked(&blank, Expected::Erasable, nameless(), false), Ok(()));
    // Other devices' claims say nothing about this one.
    let others = NodeInventorySpec {
        device_claims: vec![
            blank.clone(),
            DeviceClaim { identity: "wwn:9".into(), ..blank.clone() },
        ],
        ..NodeInventorySpec::default()
    };
    assert_eq!(
        verify(&blank, Expected::Blank, &group(&[facts(Content::Blank)], None, None, &[]), &others),
        Ok(())
    );
    // What is kept is for the first round of a path that has taken it over, and for nobody else; a wipe ends it.
    let spec = NodeInventorySpec {
        retained_data: vec![RetainedData {
            identity: entry.identity.clone(),
            pv_name: entry.pv_name.clone(),
            pv_uid: entry.pv_uid.clone(),
        }],
        ..NodeInventorySpec::default()
    };
    let kept = |content: ClaimContent, round: i64, expected: Expected| {
        verify(
            &claim(VolumeMode::Filesystem, content, round),
            expected,
            &group(&[facts(Content::Blank)], None, None, &[]),
            &spec,
        )
        .is_ok()
    };
    assert_eq!(
        [
            kept(ClaimContent::Any, 1, Expected::Named),
            kept(ClaimContent::Any, 2, Expected::Named),
            kept(ClaimContent::Any, 2, Expected::Any)
        ],
        [true, false, false]
    );
    assert_eq!(
        [
            kept(ClaimContent::Blank, 1, Expected::Blank),
            kept(ClaimContent::Blank, 1, Expected::Erasable),
            kept(ClaimContent::Blank, 2, Expected::Erasable)
        ],
        [false, true, true]
    );
    let (block, files) = (
        claim(VolumeMode::Block, ClaimContent::Any, 1),
        claim(VolumeMode::Filesystem, ClaimContent::Any, 1),
    );
    assert_eq!(
        (Expected::of_claim(&block), Expected::of_claim(&files)),
        (Expected::Any, Expected::Named)
    );
    assert_eq!(asked(&block, Expected::Any, Content::UnknownData, false), Ok(()));
    assert!(
        asked(&files, Expected::Named, Content::UnknownData, false).is_err(),
        "kubelet would format it"
    );
    let found = || {
        Content::Found(crate::device::Found { fs_type: Some("ext4".into()), ..Default::default() })
    };
    assert_eq!(
        (
            asked(&block, Expected::Any, found(), false),
            asked(&files, Expected::Named, found(), false)
        ),
        (Ok(()), Ok(()))
    );
}

#[test]
fn a_path_to_data_that_nobody_can_name_is_no_file_system() {
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

#[test]
fn another_volume_on_the_device_is_seen_at_every_stage() {
    let foreign = |world: &mut NodeWorld| {
        let pv = json!({"metadata": {"name": "lso", "annotations": {names::LSO_DEVICE_ID_ANNOTATION: "wwn-0x5000c50000000001"}}, "spec": {"local": {"path": "/mnt/x"}}});
        world.pvs.push(Arc::new(serde_json::from_value(pv).unwrap()));
    };
    let mut confirmed = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut confirmed);
    confirm(&mut confirmed);
    let published_by_us = plan(&confirmed, now());
    foreign(&mut confirmed);
    assert!(step(&mut confirmed).steps.is_empty());
    assert!(
        matches!(stage(&confirmed), Stage::Blocked(why) if why.contains("PersistentVolume lso is on sda"))
    );
    assert_eq!(
        check(&confirmed, &published_by_us),
        Err(Violation::Used("wwn:5000c50000000001".into()))
    );
    let mut offered = published();
    foreign(&mut offered);
    assert_eq!(names_of(&step(&mut offered).steps), ["DeletePv"]);
    let mut bound = published();
    phase(&mut bound, "Bound");
    foreign(&mut bound);
    assert!(step(&mut bound).steps.is_empty());
    assert!(
        matches!(stage(&bound), Stage::Conflict(why) if why.contains("PersistentVolume lso is on the same device"))
    );
    // By the agent's word, who follows paths that tell nobody else anything.
    for reason in ["BacksPersistentVolume", "BacksVolume"] {
        let mut told = published();
        told.inventory.status.as_mut().unwrap().devices =
            vec![with_reason(disk("sda", 1), reason, DeviceState::NotAvailable)];
        assert_eq!(names_of(&step(&mut told).steps), ["DeletePv"], "{reason}");
    }
}

/// The usual way to give a retained volume free again, and then nobody wants it.
#[test]
fn a_volume_whose_claim_reference_was_cleared_was_used_all_the_same() {
    for policy in ["Retain", "Delete"] {
        let mut world = published();
        phase(&mut world, "Bound");
        step(&mut world);
        let name = world.pvs[0].metadata.name.clone().unwrap();
        change_pv(&mut world, &name, |pv| {
            pv["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
            pv["spec"]["claimRef"] = Value::Null;
            pv["status"]["phase"] = json!("Available");
        });
        step(&mut world);
        assert_eq!(stage(&world), Stage::Available);
        change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
        let plan = step(&mut world);
        assert_eq!(
            (plan.retained_data.len(), plan.steps.len(), plan.claims[0].job.is_none()),
            (1, 0, true),
            "{policy}"
        );
    }
}

/// A cache shows a volume that was wiped and let go; its successor is on record already.
#[test]
fn a_volume_that_its_claim_does_not_know_is_asked_for() {
    let mut world = published();
    phase(&mut world, "Released");
    let mut older = world.clone();
    assert_eq!(unfamiliar(&older), [""; 0], "of a first volume there is no other");
    older.inventory.spec.device_claims[0].last_pv =
        Some(LastPv { uid: "another".into(), resolved: true });
    let name = older.pvs[0].metadata.name.clone().unwrap();
    assert_eq!(unfamiliar(&older), std::slice::from_ref(&name));
    older.inventory.spec.device_claims[0].last_pv =
        Some(LastPv { uid: uid(&older), resolved: false });
    assert_eq!(unfamiliar(&older), [""; 0]);
    let mut fresh = published();
    fresh.inventory.spec.device_claims[0].last_pv =
        Some(LastPv { uid: "another".into(), resolved: true });
    assert_eq!(unfamiliar(&fresh), [""; 0], "nobody has used it, and it stays");
    change_pv(&mut fresh, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    assert_eq!(unfamiliar(&fresh), std::slice::from_ref(&name));
    // Should it be on record all the same that an older one was used: its data is taken to be there, and all goes on.
    fresh.inventory.spec.device_claims[0].last_pv =
        Some(LastPv { uid: "another".into(), resolved: false });
    let plan = step(&mut fresh);
    assert_eq!(
        (
            plan.retained_data.len(),
            plan.retained_data[0].pv_uid.as_str(),
            plan.claims[0].last_pv.as_ref().unwrap().resolved
        ),
        (1, "another", true)
    );
}

#[test]
fn a_device_of_another_size_is_claimed_anew_and_never_erased() {
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

#[test]
fn a_volume_that_lost_its_annotations_goes_like_any_other() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| pv["metadata"]["annotations"] = json!({}));
    assert_eq!(stage(&world), Stage::Available);
    tear_down(&mut world);
    assert!(world.pvs.is_empty());
    // One that says that it is another device's is nobody's to take away, and says what to do.
    let mut other = published();
    change_pv(&mut other, &name, |pv| {
        pv["metadata"]["annotations"][names::IDENTITY_ANNOTATION] = json!("wwn:9");
        pv["metadata"]["deletionTimestamp"] = json!(NOW);
    });
    assert!(step(&mut other).steps.is_empty());
    assert!(matches!(stage(&other), Stage::Blocked(why) if why.contains("put back what it was")));
}

/// What is named by a path keeps its device, and becomes what is asked for now as soon as nobody has it.
#[test]
fn what_a_path_becomes_changes_with_the_next_volume() {
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
    let made = step(&mut world).steps;
    assert_eq!(names_of(&made), ["CreatePv"]);
    let Step::CreatePv(pv) = &made[0] else { panic!() };
    assert_eq!(pv.spec.as_ref().unwrap().volume_mode.as_deref(), Some("Block"));
    // Never while it is published, and never to what would show another's data.
    apply(&mut world, &made);
    let mut wrong = step(&mut world);
    wrong.claims[0].volume_mode = VolumeMode::Filesystem;
    assert_eq!(check(&world, &wrong), Err(Violation::Changed("wwn:5000c50000000001".into())));
    tear_down(&mut world);
    world.demands = vec![asking("Filesystem", None)];
    step(&mut world);
    world.inventory.spec.wipe_remnants = vec![WipeRemnant {
        identity: "wwn:5000c50000000001".into(),
        pv_name: "p".into(),
        pv_uid: "u".into(),
    }];
    world.demands = vec![asking("Block", None)];
    assert_eq!(step(&mut world).claims[0].volume_mode, VolumeMode::Filesystem);
    assert!(matches!(stage(&world), Stage::Blocked(why) if why.contains("use it as a Filesystem")));
    // Another file system is as good as the one before.
    world.demands = vec![asking("Filesystem", Some("xfs"))];
    assert_eq!(step(&mut world).claims[0].fs_type.as_deref(), Some("xfs"));
}

/// By the checker alone, whatever a planner proposes.
#[test]
fn a_claim_by_its_path_changes_its_size_only_to_be_looked_at_anew() {
    let mut world = world(vec![local_volume("lv", &["/dev/sda"])], vec![disk("sda", 1)]);
    at_path(&mut world, "sda");
    let mut plan = step(&mut world);
    plan.claims[0].size += 4096;
    assert_eq!(check(&world, &plan), Err(Violation::Changed("wwn:5000c50000000001".into())));
    plan.claims[0].round += 1;
    assert_eq!(check(&world, &plan), Ok(()));
    plan.claims[0].path = None;
    assert!(check(&world, &plan).is_err());
}

#[test]
fn a_quick_wipe_is_on_record_in_the_very_plan_that_ends_it() {
    let mut world =
        world(vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    let mut before = world.clone();
    wipe_until(&mut before, false);
    let lost = Err(Violation::Forgotten("wwn:5000c50000000001".into()));
    let good = super::plan(&before, now());
    assert_eq!((good.wipe_remnants.len(), check(&before, &good)), (1, Ok(())));
    let mut forgetful = Plan { wipe_remnants: vec![], ..good.clone() };
    assert_eq!(check(&before, &forgetful), lost);
    // Of a claim that has not moved yet nothing is due.
    let unmoved = Plan {
        claims: before.inventory.spec.device_claims.clone(),
        wipe_remnants: vec![],
        retained_data: vec![],
        steps: vec![],
        ..good.clone()
    };
    assert_eq!(check(&before, &unmoved), Ok(()));
    // Another device's remnant is not its own, and another claim with the same job does not stand for it.
    forgetful.wipe_remnants =
        vec![WipeRemnant { identity: "wwn:9".into(), ..good.wipe_remnants[0].clone() }];
    assert_eq!(check(&before, &forgetful), lost);
    // A whole wipe leaves nothing.
    let mut whole = before.clone();
    for job in whole.jobs.values_mut() {
        let mut object = serde_json::to_value(&**job).unwrap();
        object["spec"]["parameters"]["wipe"]["policy"] = json!("Zero");
        *job = Arc::new(serde_json::from_value(object).unwrap());
    }
    let good = super::plan(&whole, now());
    assert_eq!((good.wipe_remnants.len(), check(&whole, &good)), (0, Ok(())));
}

#[test]
fn a_class_of_another_provisioner_is_told_before_anything_is_claimed() {
    let provisioner = |class: &str| match class {
        "fast" => Some("csi.example.com".to_owned()),
        "ours" => Some(pv::NO_PROVISIONER.to_owned()),
        _ => None,
    };
    let demand = set("fast", 1, json!({})).with_classes(provisioner);
    assert_eq!(
        demand.problems,
        [
            "spec.storageClassName: the StorageClass fast belongs to the provisioner csi.example.com; use another name; one that does not exist yet is made"
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
    for (class, said) in [("Fast_Disks", "is no name"), ("", "is empty"), ("a..b", "is no name")] {
        assert!(
            set("s", 1, json!({"storageClassName": class})).problems[0].contains(said),
            "{class}"
        );
    }
}

#[test]
fn what_is_paused_takes_nothing_and_gives_nothing_back() {
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
fn a_second_path_to_a_claimed_device_is_told_for_as_long_as_it_is_listed() {
    let mut world =
        world(vec![local_volume("lv", &["/dev/sda", "/dev/again"])], vec![disk("sda", 1)]);
    let report =
        |path: &str| PathReport { path: path.into(), device: Some("sda".into()), problem: None };
    world.inventory.status.as_mut().unwrap().paths = vec![report("/dev/sda"), report("/dev/again")];
    for _ in 0..3 {
        let told = account(&world, "uid-lv")[1].eligibility.clone();
        assert_eq!(
            told,
            super::super::Eligibility::NoDevice(
                "another path of this object leads to the same device".into()
            )
        );
        assert_eq!(step(&mut world).claims.len(), 1);
    }
}

#[test]
fn a_taint_keeps_a_set_away_unless_it_is_tolerated() {
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

#[test]
fn a_kind_that_is_not_local_is_a_whole_word() {
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

#[test]
fn the_smallest_device_of_a_small_maximum_is_any() {
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
