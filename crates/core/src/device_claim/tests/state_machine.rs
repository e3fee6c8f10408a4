//! Device claims with a PersistentVolume.

use super::*;

#[test]
fn a_released_pv_is_deleted_wiped_and_recreated() {
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

#[test]
fn only_our_own_finalizer_is_removed() {
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
fn a_retained_pv_is_left_alone_with_a_remedy() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    phase(&mut world, "Released");
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Retained(why) if why.contains("set persistentVolumeReclaimPolicy to Delete"))
    );
    // Its owner is deleted: still nothing happens to it.
    world.demands[0].terminating = true;
    assert!(step(&mut world).steps.is_empty());
    // An administrator deletes the PersistentVolume: no job, the data stays, and it is not published again.
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
fn a_deleted_owner_releases_unused_devices_and_waits_for_used() {
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

// invariant: 1
#[test]
fn a_published_device_with_data_is_withdrawn_and_not_wiped() {
    let mut world = published();
    world.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)];
    let mut bound = world.clone();
    phase(&mut bound, "Bound");
    assert!(step(&mut bound).steps.is_empty(), "that is whose data it is");
    let name = world.pvs[0].metadata.name.clone().unwrap();
    let mut kept = world.clone();
    change_pv(&mut kept, &name, |pv| pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain"));
    let mut reserved = kept.clone();
    reserved.inventory.spec.device_claims[0].last_pv = last_pv(&uid(&kept), false);
    change_pv(&mut reserved, &name, |pv| {
        pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d"})
    });
    assert!(
        step(&mut reserved).steps.is_empty(),
        "used, and handed over by an administrator, as it is"
    );
    assert_eq!(
        names_of(&step(&mut kept).steps),
        ["DeletePv"],
        "it was never used, and it contains data"
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

/// A pod would get it, and fail. A disk that is slow for a moment is not withdrawn.
// invariant: 4
#[test]
fn an_unused_pv_on_a_dead_or_read_only_disk_is_withdrawn() {
    for reason in [
        "ReadOnly",
        "Unreadable",
        "TimedOut",
        "NoMedium",
        "ZeroSize",
        "Suspended",
        "AmbiguousIdentity",
    ] {
        let mut world = published();
        let show = |world: &mut NodeWorld, settled: bool| {
            let ill = with_reason(disk("sda", 1), reason, DeviceState::NotAvailable);
            world.inventory.status.as_mut().unwrap().devices = vec![Device { settled, ..ill }];
        };
        // A disk that fails now and then never settles.
        let at_once = ["ReadOnly", "Unreadable", "NoMedium", "ZeroSize"].contains(&reason);
        show(&mut world, false);
        assert_eq!(step(&mut world.clone()).steps.len(), usize::from(at_once), "{reason}");
        show(&mut world, true);
        let mut absent = NodeWorld { agent_present: false, ..world.clone() };
        assert!(step(&mut absent).steps.is_empty(), "{reason}: reported by an absent agent");
        let mut bound = world.clone();
        phase(&mut bound, "Bound");
        assert!(step(&mut bound).steps.is_empty(), "{reason}: what is in use stays");
        assert_eq!(names_of(&step(&mut world).steps), ["DeletePv"], "{reason}");
        assert!(
            matches!(stage(&world), Stage::Releasing(why) if why.contains("withdrawing the unused")),
            "{reason}"
        );
        let made = Step::CreatePv(Box::new((*world.pvs.remove(0)).clone()));
        assert!(step(&mut world).steps.is_empty(), "{reason}: nor published again");
        assert!(matches!(stage(&world), Stage::Blocked(why) if why.contains("sda ")), "{reason}");
        let wrong = Plan { steps: vec![made], ..step(&mut world) };
        let identity = world.inventory.spec.device_claims[0].identity.clone();
        assert_eq!(check(&world, &wrong), vec![Violation::Unusable(identity)], "{reason}");
    }
}

/// Any PVC could be bound to it, and would get the data of its last user.
// invariant: 5
#[test]
fn a_used_pv_whose_claim_ref_was_cleared_is_withdrawn() {
    for policy in ["Retain", "Delete"] {
        let mut world = published();
        let name = world.pvs[0].metadata.name.clone().unwrap();
        phase(&mut world, "Bound");
        step(&mut world);
        change_pv(&mut world, &name, |pv| {
            pv["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
            pv["spec"]["claimRef"] = Value::Null;
            pv["status"]["phase"] = json!("Available");
        });
        let plan = step(&mut world);
        assert_eq!(names_of(&plan.steps), ["DeletePv"], "{policy}");
        assert!(
            matches!(stage(&world), Stage::Releasing(why) if why.contains("its claimRef was cleared")),
            "{policy}"
        );
        apply(&mut world, &plan.steps);
        let plan = step(&mut world);
        let kept: Vec<&str> = plan.retained_data.iter().map(|kept| kept.pv_uid.as_str()).collect();
        assert_eq!((plan.steps.len(), kept), (0, vec!["pv-1"]), "{policy}");
        let plan = step(&mut world);
        assert_eq!(names_of(&plan.steps), ["ReleasePv"], "{policy}");
        apply(&mut world, &plan.steps);
        confirm(&mut world);
        assert!(step(&mut world).steps.is_empty() && matches!(stage(&world), Stage::Blocked(_)));
        assert!(world.jobs.is_empty(), "{policy}");
    }
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

/// An administrator reserves it and deletes it again: it was never used, so nothing is erased.
// invariant: 5
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

/// Reserved, deleted, its end recorded: nothing was ever written to it. The finalizer is not removed yet.
fn ended_unused() -> NodeWorld {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d"});
        pv["metadata"]["deletionTimestamp"] = json!(NOW);
    });
    let last = step(&mut world).claims[0].last_pv.clone();
    assert_eq!(last, Some(LastPv { pvc_uid: None, ..last_pv("pv-1", true).unwrap() }));
    world
}

/// kube-controller-manager binds a PVC that names the PersistentVolume although it is being deleted. Whether an operator
/// sees it while it is bound, or only when it is released, does not matter.
// invariant: 5
#[test]
fn a_pv_bound_while_it_is_deleted_is_wiped() {
    for seen in [true, false] {
        let mut world = ended_unused();
        if seen {
            phase(&mut world, "Bound");
            let plan = step(&mut world);
            assert_eq!((plan.steps.len(), &plan.claims[0].last_pv), (0, &last_pv("pv-1", false)));
            assert!(matches!(stage(&world), Stage::Releasing(why) if why.contains("is bound to")));
        }
        phase(&mut world, "Released");
        assert!(step(&mut world).claims[0].job.is_some(), "seen while bound: {seen}");
        let plan = step(&mut world);
        assert_eq!(names_of(&plan.steps), ["CreateJob"]);
        apply(&mut world, &plan.steps);
        finish(&mut world, "Succeeded", NOW);
        assert_eq!(step(&mut world).claims[0].last_pv, last_pv("pv-1", true));
        assert_eq!(names_of(&step(&mut world).steps), ["ReleasePv"]);
    }
}

// invariant: 5
#[test]
fn a_retained_pv_bound_while_it_is_deleted_is_recorded() {
    let mut world = ended_unused();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    phase(&mut world, "Released");
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    let plan = step(&mut world);
    assert_eq!((plan.steps.len(), plan.retained_data.len()), (0, 1));
    assert_eq!(names_of(&step(&mut world).steps), ["ReleasePv"]);
}

/// The job that wiped the data of one PVC says nothing about what another one wrote.
// invariant: 5
#[test]
fn a_wipe_counts_for_the_pvc_that_it_was_recorded_for() {
    let mut world = published();
    wipe_until(&mut world, false);
    let first = world.inventory.spec.device_claims[0].job.clone().unwrap();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| pv["spec"]["claimRef"]["uid"] = json!("later"));
    let claim = step(&mut world).claims[0].clone();
    assert_eq!(claim.last_pv.unwrap().pvc_uid.as_deref(), Some("later"));
    assert_ne!(claim.job.unwrap().name, first.name);
    assert_eq!(names_of(&step(&mut world).steps), ["CreateJob"]);
}

#[test]
fn a_missing_disk_is_reported_and_used_again() {
    let mut world = published();
    let devices = std::mem::take(&mut world.inventory.status.as_mut().unwrap().devices);
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Missing(why) if why.contains("reconnect it")));
    world.inventory.status.as_mut().unwrap().devices = devices;
    assert!(step(&mut world).steps.is_empty());
    assert_eq!(stage(&world), Stage::Available);
}

#[test]
fn a_missing_disk_with_data_is_not_released() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    phase(&mut world, "Bound");
    world.inventory.status.as_mut().unwrap().devices.clear();
    assert!(step(&mut world).steps.is_empty());
    assert!(matches!(stage(&world), Stage::Missing(why) if why.contains("is bound to PVC d/c")));
    // Released: it cannot be wiped until an administrator chooses Retain.
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
fn a_missing_disk_is_reported_with_its_new_node() {
    let mut world = published();
    world.inventory.status.as_mut().unwrap().devices.clear();
    let identity = world.inventory.spec.device_claims[0].identity.clone();
    world.elsewhere = vec![RemoteIdentity {
        identity: "wwn:other".into(),
        node: "n3".into(),
        device: "sdx".into(),
    }];
    assert!(matches!(stage(&world), Stage::Missing(why) if !why.contains("sdx")));
    world.elsewhere = vec![RemoteIdentity { identity, node: "n2".into(), device: "sdk".into() }];
    assert!(
        matches!(stage(&world), Stage::Missing(why) if why.contains("(it is now sdk of node n2)"))
    );
}

/// Two operators at once: one publishes what the other is giving back.
#[test]
fn a_pv_of_a_terminating_device_claim_is_deleted() {
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
fn another_machine_freezes_device_claims_until_released() {
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
fn a_pv_with_the_name_of_a_device_claim_is_left_alone() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    phase(&mut world, "Released");
    change_pv(&mut world, &name, |pv| {
        pv["metadata"]["annotations"][names::IDENTITY_ANNOTATION] = json!("wwn:9")
    });
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Blocked(why) if why.contains(&name) && why.contains("not created from this device claim"))
    );
}

/// The API was restored from a backup: the node knows that the device claim is over.
// invariant: 10
#[test]
fn an_outdated_claim_is_withdrawn_and_ended() {
    let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    let outdated = |world: &mut NodeWorld| {
        confirm(world);
        let status = world.inventory.status.as_mut().unwrap();
        for report in status.device_claims.iter_mut() {
            if report.state == ClaimState::Confirmed {
                (report.state, report.linked) = (ClaimState::Outdated, false);
                report.message = Some("the ledger of this node records a later round".into());
            }
        }
    };
    outdated(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["DeletePv"]);
    apply(&mut world, &plan.steps);
    step(&mut world);
    let plan = step(&mut world);
    assert_eq!(names_of(&plan.steps), ["ReleasePv"]);
    apply(&mut world, &plan.steps);
    let first = world.inventory.spec.device_claims[0].id.clone();
    outdated(&mut world);
    step(&mut world);
    assert!(world.inventory.spec.device_claims[0].terminating);
    confirm(&mut world);
    world.inventory.metadata.resource_version = Some("2".into());
    step(&mut world);
    step(&mut world);
    let claim = &world.inventory.spec.device_claims[0];
    assert!(!claim.terminating && claim.id != first, "claimed again: {claim:?}");
}

// invariant: 10
#[test]
fn another_ledger_freezes_the_device_claims() {
    let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1), disk("sdb", 2)]);
    step(&mut world);
    confirm(&mut world);
    world.inventory.spec.ledger_id = Some("old".into());
    world.inventory.status.as_mut().unwrap().ledger_id = Some("new".into());
    let before = world.inventory.spec.device_claims.clone();
    let plan = step(&mut world);
    assert_eq!((plan.claims, plan.steps), (before, vec![]));
    let ctx = &claim_contexts(&world)[0];
    let Stage::Frozen(why) = decide(&world, ctx, now()).stage else { panic!() };
    assert!(why.contains("quarry.dev/accept-ledger=new"), "{why}");
    world.inventory.spec.ledger_id = Some("new".into());
    assert_eq!(names_of(&step(&mut world).steps), ["CreateClass", "CreatePv", "CreatePv"]);
}
