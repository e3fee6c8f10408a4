//! Wipes: jobs, retries, what the device may contain.

use super::*;
use crate::{
    device::{Content, Facts, Found, group},
    device_claim::confirm::{Expected, Remembered, verify},
};
use quarry_api::node_inventory::Evidence;

#[test]
fn a_failed_wipe_is_reported_and_retried_with_backoff() {
    let mut world = published();
    phase(&mut world, "Released");
    for _ in 0..3 {
        let plan = step(&mut world);
        apply(&mut world, &plan.steps);
    }
    finish(&mut world, "Failed", NOW);
    let plan = plan(&world, now());
    assert_eq!(
        (plan.requeue, plan.claims[0].job.as_ref().unwrap().attempt),
        (Some(SignedDuration::from_secs(10)), 1)
    );
    assert!(matches!(stage(&world), Stage::WipeFailed(why) if why.contains("the disk is gone")));
    finish(&mut world, "Failed", "2026-01-01T00:59:00Z");
    let recorded = step(&mut world).claims[0].job.clone().unwrap();
    assert_eq!(recorded.attempt, 2);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["CreateJob"]);
    // A policy that means nothing wipes nothing.
    let class = json!({"metadata": {"name": "fast", "annotations": {names::WIPE_ANNOTATION: "thorough"}}, "provisioner": device_claim::pv::NO_PROVISIONER});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(class).unwrap()));
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::WipeFailed(why) if why.contains("use Quick, Discard or Zero"))
    );
}

/// Released, with the wipe on record and not yet asked for.
fn recorded() -> NodeWorld {
    let mut world = published();
    phase(&mut world, "Released");
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).claims[0].job.is_some());
    world
}

#[test]
fn a_wipe_that_changed_is_recorded_again_first() {
    let mut world = recorded();
    let before = world.inventory.spec.device_claims[0].job.clone().unwrap();
    let class = json!({"metadata": {"name": "fast", "annotations": {names::WIPE_ANNOTATION: "Zero"}}, "provisioner": device_claim::pv::NO_PROVISIONER});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(class).unwrap()));
    let plan = step(&mut world);
    let after = plan.claims[0].job.clone().unwrap();
    assert!(plan.steps.is_empty() && after.name != before.name && after.attempt == before.attempt);
    assert_eq!(names_of(&step(&mut world).steps), ["CreateJob"]);
}

#[test]
fn each_failure_doubles_the_pause_up_to_an_hour() {
    let mut world = recorded();
    for (attempt, pause) in [(1, 10), (2, 20), (3, 40), (9, 2560), (10, 3600), (i32::MAX, 3600)] {
        let job = super::super::wipe::wipe_job(
            &world,
            &world.inventory.spec.device_claims[0],
            &world.pvs[0],
            quarry_api::node_job::WipePolicy::Discard,
            attempt,
        )
        .unwrap();
        let name = job.metadata.name.clone().unwrap();
        world.inventory.spec.device_claims[0].job = Some(ClaimJob { name: name.clone(), attempt });
        world.jobs = [(name, Arc::new(job))].into();
        finish(&mut world, "Failed", NOW);
        assert_eq!(
            plan(&world, now()).requeue,
            Some(SignedDuration::from_secs(pause)),
            "{attempt}"
        );
        let due = now() + SignedDuration::from_secs(pause);
        let next = plan(&world, due);
        assert_eq!(
            (next.requeue, next.claims[0].job.as_ref().unwrap().attempt),
            (None, attempt.saturating_add(1)),
            "on the second"
        );
    }
}

#[test]
fn a_pv_removed_by_force_during_a_wipe_starts_a_new_round() {
    let mut world = recorded();
    let round = world.inventory.spec.device_claims[0].round;
    world.pvs.clear();
    let mut absent = world.clone();
    absent.inventory.status.as_mut().unwrap().devices.clear();
    for world in [&mut world, &mut absent] {
        let claim = step(world).claims[0].clone();
        assert_eq!((claim.round, claim.job, claim.terminating), (round + 1, None, false));
    }
    assert!(step(&mut absent).claims[0].terminating, "only then is it given up");
}

fn facts(content: Content) -> Facts {
    let evidence =
        vec![Evidence { source: "sysfs:wwid".into(), value: "naa.5000c50000000001".into() }];
    Facts {
        name: "sda".into(),
        kind: "disk".into(),
        size: 20 << 30,
        removable: true,
        evidence,
        content,
        ..Facts::default()
    }
}

// invariant: 10
#[test]
fn a_device_is_not_wiped_twice_for_one_pv() {
    let claim = DeviceClaim {
        identity: "wwn:5000c50000000001".into(),
        size: 20 << 30,
        ..DeviceClaim::default()
    };
    let asked = |expected: Expected, content: Content| {
        verify(&claim, expected, &group(&[facts(content)], None, None, &[]), &Default::default())
    };
    let data = || Content::Found(Found { fs_type: Some("ext4".into()), ..Found::default() });
    let expected = |erased: Option<WipePolicy>| {
        Expected::of_wipe(&claim, &Remembered { erased, ..Remembered::default() }).unwrap()
    };
    let (first, again) = (expected(None), expected(Some(WipePolicy::Quick)));
    for content in [Content::Blank, Content::UnknownData, data()] {
        assert_eq!(asked(first, content), Ok(()));
    }
    assert_eq!(
        asked(again, Content::Blank),
        Ok(()),
        "killed before it could say so: nothing is left to do"
    );
    for content in [Content::UnknownData, data()] {
        let why = asked(again, content).unwrap_err();
        assert!(again.explain(why).contains("set its persistentVolumeReclaimPolicy to Retain"));
    }
    assert_eq!(first.explain("busy".into()), "busy");
}

/// An API that was restored from a backup asks for what has been decided otherwise since.
// invariant: 5
#[test]
fn an_outdated_wipe_is_refused_by_the_ledger() {
    let owner = |uid: &str| quarry_api::node_inventory::ClaimOwner {
        uid: uid.into(),
        ..Default::default()
    };
    let claim = DeviceClaim {
        identity: "wwn:1".into(),
        owner: owner("a"),
        round: 3,
        ..DeviceClaim::default()
    };
    let asked = |confirmed: Option<(&str, i64)>, kept: bool| {
        let confirmed = confirmed.map(|(owner, round)| (owner.to_owned(), round));
        Expected::of_wipe(&claim, &Remembered { confirmed, retained: kept, erased: None })
    };
    for confirmed in [None, Some(("a", 3)), Some(("a", 2))] {
        assert_eq!(asked(confirmed, false), Ok(Expected::Erasable), "{confirmed:?}");
        assert!(
            asked(confirmed, true)
                .unwrap_err()
                .contains("its data is retained; the API may have been restored from a backup")
        );
    }
    for confirmed in [("a", 4), ("b", 1), ("b", 3)] {
        assert!(
            asked(Some(confirmed), false).unwrap_err().contains("records a later device claim"),
            "{confirmed:?}"
        );
    }
}

// invariant: 1
#[test]
fn after_a_quick_wipe_only_a_file_system_is_allowed() {
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
    // The set has volumeMode Block now: the device claim ends, and is not created again.
    world.demands = vec![set("fast", 1, json!({"volumeMode": "Block"}))];
    assert!(step(&mut world).claims[0].terminating);
    confirm(&mut world);
    assert_eq!(step(&mut world).claims, []);
    assert_eq!(step(&mut world).claims, []);
    let reported = account(&world, "uid-fast")[0].eligibility.clone();
    assert_eq!(reported.as_str(), "WipeRemnant");
    assert!(
        reported.message().contains(&format!(
            "{}={}",
            names::FORGET_RETAINED_DATA_ANNOTATION,
            left[0].pv_uid
        )),
        "{}",
        reported.message()
    );
    let mut files = world.clone();
    files.demands = vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))];
    assert_eq!(step(&mut files).claims.len(), 1);
    // The checker finds it, for a device claim and for a PersistentVolume.
    let mut plan = super::plan(&files, now());
    plan.claims[0].volume_mode = VolumeMode::Block;
    files.inventory.spec.device_claims.clear();
    assert_eq!(check(&files, &plan), vec![Violation::DataPublished("wwn:5000c50000000001".into())]);
    plan.claims[0].volume_mode = VolumeMode::Filesystem;
    plan.wipe_remnants.clear();
    assert_eq!(check(&files, &plan), vec![Violation::Forgotten("wwn:5000c50000000001".into())]);
    forget(&mut world, &left[0].pv_uid);
    assert_eq!(step(&mut world).wipe_remnants, []);
    assert_eq!(step(&mut world).claims.len(), 1);
}

#[test]
fn a_whole_wipe_leaves_no_record() {
    let mut world = published();
    world.inventory.spec.wipe_remnants = vec![WipeRemnant {
        identity: "wwn:5000c50000000001".into(),
        pv_name: "older".into(),
        pv_uid: "older".into(),
        ..WipeRemnant::default()
    }];
    wipe(&mut world);
    assert_eq!(
        (world.inventory.spec.wipe_remnants.len(), world.inventory.spec.retained_data.len()),
        (0, 0)
    );
    // Quick by the class's own word is the class's own decision; another claim may not see it.
    let mut world = published();
    let class = json!({"metadata": {"name": "fast", "annotations": {names::WIPE_ANNOTATION: "Quick"}}, "provisioner": device_claim::pv::NO_PROVISIONER});
    world.classes.insert("fast".into(), Arc::new(serde_json::from_value(class).unwrap()));
    wipe(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    confirm(&mut world);
    assert_eq!(names_of(&step(&mut world).steps), ["CreatePv"]);
    let device = &world.inventory.status.as_ref().unwrap().devices[0];
    assert!(
        !wipe_remnants_on(&world, device, Partitions::New).is_empty()
            && device_claim::content::exposed_remnant(
                &world,
                &DeviceClaim { last_pv: None, ..world.inventory.spec.device_claims[0].clone() },
                device
            )
            .is_some()
    );
}

/// The job was lost, and the class has another policy when it is asked for again.
// invariant: 10
#[test]
fn an_earlier_wipe_counts_only_if_it_was_as_thorough() {
    use WipePolicy::{Discard, Quick, Zero};
    let covers = |erased: Option<WipePolicy>| {
        let known = Remembered { erased, ..Remembered::default() };
        WipePolicy::ALL.map(|policy| known.covers(policy))
    };
    assert_eq!(covers(None), [false, false, false]);
    assert_eq!(covers(Some(Quick)), [true, false, false]);
    assert_eq!(covers(Some(Discard)), [true, true, false]);
    assert_eq!(covers(Some(Zero)), [true, true, true]);
}
