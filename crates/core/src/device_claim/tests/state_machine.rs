//! The life of a claim.

use super::*;

#[test]
fn a_confirmed_claim_is_published_as_the_shipped_one_is() {
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
    assert_eq!(
        (plan.claims[0].round, &plan.claims[0].job, names_of(&plan.steps)),
        (2, &None, vec![])
    );
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
    let name = world.inventory.spec.device_claims[0].job.clone().unwrap().name;
    let mut job = (*world.jobs[&name]).clone();
    job.status = serde_json::from_value(
        json!({"phase": phase, "runs": 1, "message": "the disk is gone", "completionTime": at}),
    )
    .unwrap();
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
    let class = json!({"metadata": {"name": "fast", "annotations": {names::WIPE_ANNOTATION: "thorough"}}, "provisioner": pv::NO_PROVISIONER});
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
fn a_wipe_that_means_something_else_by_now_is_put_on_record_again_first() {
    let mut world = recorded();
    let before = world.inventory.spec.device_claims[0].job.clone().unwrap();
    let class = json!({"metadata": {"name": "fast", "annotations": {names::WIPE_ANNOTATION: "Zero"}}, "provisioner": pv::NO_PROVISIONER});
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
fn a_volume_that_is_torn_away_in_mid_wipe_begins_a_new_round() {
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

#[test]
fn only_our_own_finalizer_is_taken_off() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["metadata"]["deletionTimestamp"] = json!(NOW);
        pv["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection", names::PV_FINALIZER]);
    });
    step(&mut world);
    let plan = step(&mut world);
    assert!(
        matches!(plan.steps.as_slice(), [Step::ReleasePv { finalizers, .. }] if *finalizers == ["kubernetes.io/pv-protection"]),
        "{:?}",
        plan.steps
    );
}

#[test]
fn what_is_retained_is_left_alone_and_says_how_to_give_it_back() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    phase(&mut world, "Released");
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Retained(why) if why.contains("set its persistentVolumeReclaimPolicy to Delete"))
    );
    // Its owner is deleted: still nothing happens to it.
    world.demands[0].terminating = true;
    assert!(step(&mut world).steps.is_empty());
    // An administrator deletes the PersistentVolume: no job, the data stays, and it is not published again by itself.
    change_pv(&mut world, &name, |pv| {
        pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z")
    });
    world.demands[0].terminating = false;
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
    world.demands[0].terminating = true;
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
    assert!(step(&mut world).claims[0].terminating);
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
    status.device_claims[0].state = ClaimState::Refused;
    status.device_claims[0].message = Some("sda is opened exclusively by another process".into());
    assert!(!step(&mut world).claims[0].terminating);
    assert!(matches!(stage(&world), Stage::Refused(why) if why.contains("opened exclusively")));
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)];
    assert!(step(&mut world).claims[0].terminating);
}

#[test]
fn data_that_came_after_the_confirmation_is_not_published() {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable)];
    assert!(step(&mut world).steps.is_empty());
    for doubt in ["elsewhere", "absent agent", "gone"] {
        let mut world = world.clone();
        world.inventory.status.as_mut().unwrap().devices = vec![disk("sda", 1)];
        match doubt {
            "elsewhere" => {
                world.elsewhere = vec![Elsewhere {
                    identity: "wwn:5000c50000000001".into(),
                    node: "n2".into(),
                    device: "sdx".into(),
                }]
            }
            "gone" => world.inventory.status.as_mut().unwrap().devices.clear(),
            _ => world.agent_present = false,
        }
        assert!(step(&mut world).steps.is_empty(), "{doubt}");
    }
}

#[test]
fn what_is_offered_and_holds_data_is_withdrawn_and_nothing_is_erased() {
    let mut world = published();
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)];
    let mut bound = world.clone();
    phase(&mut bound, "Bound");
    assert!(step(&mut bound).steps.is_empty(), "that is whose data it is");
    let name = world.pvs[0].metadata.name.clone().unwrap();
    let mut kept = world.clone();
    change_pv(&mut kept, &name, |pv| pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain"));
    let mut freed = kept.clone();
    let uid = freed.pvs[0].metadata.uid.clone().unwrap();
    freed.inventory.spec.device_claims[0].last_pv = Some(LastPv { uid, resolved: false });
    assert!(
        step(&mut freed).steps.is_empty(),
        "used, and given free by an administrator, as it is"
    );
    assert_eq!(
        names_of(&step(&mut kept).steps),
        ["DeletePv"],
        "nobody has used it, and there is data on it"
    );
    let mut older = world.clone();
    older.inventory.status.as_mut().unwrap().device_claims.clear();
    assert!(step(&mut older).steps.is_empty(), "the look is not about this round");
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["DeletePv"]);
    apply(&mut world, &plan.steps);
    assert_eq!(step(&mut world).claims[0].round, 2);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).steps.is_empty() && world.jobs.is_empty());
}

#[test]
fn a_reserved_volume_waits_for_whom_it_is_reserved() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d"})
    });
    assert!(step(&mut world).steps.is_empty());
    assert_eq!(stage(&world), Stage::Available);
}

/// An administrator keeps it for somebody, and thinks better of it: nobody has used it, so nothing is erased.
#[test]
fn a_reserved_volume_that_is_deleted_is_not_wiped() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d"});
        pv["metadata"]["deletionTimestamp"] = json!(NOW);
    });
    let plan = step(&mut world);
    assert_eq!((plan.claims[0].round, &plan.claims[0].job), (2, &None));
    assert_eq!(names_of(&step(&mut world).steps), ["ReleasePv"]);
    assert!(world.jobs.is_empty());
}

/// A disk that was named by its path, published.
fn named() -> NodeWorld {
    let mut world = world(
        vec![local_volume("lv", &["/dev/sda"])],
        vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)],
    );
    world.inventory.status.as_mut().unwrap().paths =
        vec![PathReport { path: "/dev/sda".into(), device: Some("sda".into()), problem: None }];
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["CreateClass", "CreatePv"]);
    apply(&mut world, &plan.steps);
    world
}

#[test]
fn data_that_was_kept_is_not_offered_to_the_next_one() {
    let mut world = named();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    phase(&mut world, "Released");
    assert!(
        matches!(stage(&world), Stage::Retained(why) if why.contains("and take /dev/sda out of spec.storageClassDevices.devicePaths"))
    );
    tear_down(&mut world);
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Blocked(why) if why.contains("not offered to anybody") && why.contains("/dev/sda"))
    );
    // It looks blank: that is no proof. Somebody has to say so.
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

/// The path may lead to another disk by now: it is looked up again only when somebody has taken it out and put it in again.
#[test]
fn a_missing_disk_that_was_named_by_its_path_is_given_up_with_the_path() {
    let mut world = named();
    world.inventory.status.as_mut().unwrap().devices.clear();
    assert!(
        matches!(stage(&world), Stage::Missing(why) if why.contains("take /dev/sda out of spec.storageClassDevices.devicePaths"))
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
fn what_a_set_makes_of_its_devices_changes_with_the_next_volume() {
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
fn a_disk_that_vanished_is_told_and_used_again_when_it_is_back() {
    let mut world = published();
    let devices = std::mem::take(&mut world.inventory.status.as_mut().unwrap().devices);
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Missing(why) if why.contains("put it back")));
    world.inventory.status.as_mut().unwrap().devices = devices;
    assert!(step(&mut world).steps.is_empty());
    assert_eq!(stage(&world), Stage::Available);
}

#[test]
fn a_missing_disk_is_given_up_by_deleting_its_volume() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    world.inventory.status.as_mut().unwrap().devices.clear();
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Missing(why) if why.contains(&format!("to give it up, delete PersistentVolume {name}")))
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
fn a_missing_disk_is_not_given_up_while_data_may_come_back_with_it() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    phase(&mut world, "Bound");
    world.inventory.status.as_mut().unwrap().devices.clear();
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Missing(why) if why.contains("is bound to claim d/c")));
    // Released: it cannot be wiped, and whoever gives that up says so.
    phase(&mut world, "Released");
    change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    assert!(step(&mut world).steps.is_empty() && world.jobs.is_empty());
    assert!(matches!(stage(&world), Stage::Missing(why) if why.contains("to Retain")));
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    step(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    assert!(step(&mut world).claims[0].terminating);
}

#[test]
fn a_missing_disk_that_another_node_shows_is_said_to_be_there() {
    let mut world = published();
    world.inventory.status.as_mut().unwrap().devices.clear();
    let identity = world.inventory.spec.device_claims[0].identity.clone();
    world.elsewhere =
        vec![Elsewhere { identity: "wwn:other".into(), node: "n3".into(), device: "sdx".into() }];
    assert!(matches!(stage(&world), Stage::Missing(why) if !why.contains("sdx")));
    world.elsewhere = vec![Elsewhere { identity, node: "n2".into(), device: "sdk".into() }];
    assert!(
        matches!(stage(&world), Stage::Missing(why) if why.contains("(it is sdk of node n2 now)"))
    );
}

/// Two operators at once: one publishes what the other is giving back.
#[test]
fn what_is_published_while_its_claim_ends_is_taken_back() {
    let mut world = published();
    world.inventory.spec.device_claims[0].terminating = true;
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["DeletePv"]);
    let mut bound = published();
    phase(&mut bound, "Bound");
    bound.inventory.spec.device_claims[0].terminating = true;
    assert!(step(&mut bound).steps.is_empty());
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
        let before = world.inventory.spec.device_claims.clone();
        let plan = step(&mut world);
        assert_eq!((plan.steps.len(), &plan.claims), (0, &before), "gone: {gone}");
        assert!(
            matches!(stage(&world), Stage::Frozen(why) if why.contains("quarry.dev/release-device-claims=m1"))
        );
        let annotate = |world: &mut NodeWorld, value: &str| {
            world.inventory.metadata.annotations = Some(
                [(names::RELEASE_DEVICE_CLAIMS_ANNOTATION.to_owned(), value.to_owned())].into(),
            )
        };
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
fn a_disk_is_taken_out_of_a_set_by_excluding_it_and_deleting_its_volume() {
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
