//! Every violation on its own: a check that needs two faults at once is half a check.

use super::*;

#[test]
fn a_new_device_claim_needs_every_condition() {
    let (world, plan) = taking();
    let identity = plan.claims[0].identity.clone();
    let annotate = |world: &mut NodeWorld| {
        world.inventory.metadata.annotations =
            Some([(names::RELEASE_DEVICE_CLAIMS_ANNOTATION.to_owned(), "m1".to_owned())].into());
    };
    let worlds: [(Change<NodeWorld>, Violation); 10] = [
        (|world| world.node = None, Violation::Frozen),
        (
            |world| world.inventory.status.as_mut().unwrap().machine_id = Some("m2".into()),
            Violation::Frozen,
        ),
        (
            |world| world.inventory.status.as_mut().unwrap().devices.clear(),
            Violation::NotUsable(identity.clone()),
        ),
        (
            |world| world.inventory.status.as_mut().unwrap().devices[0].settled = false,
            Violation::TooNew(identity.clone()),
        ),
        (
            |world| {
                world.elsewhere = vec![RemoteIdentity {
                    identity: world.inventory.status.as_ref().unwrap().devices[0]
                        .identity
                        .clone()
                        .unwrap(),
                    node: "n2".into(),
                    device: "x".into(),
                }]
            },
            Violation::Quarantined(identity.clone()),
        ),
        (
            |world| {
                world.inventory.status.as_mut().unwrap().devices =
                    vec![with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable)]
            },
            Violation::DataPublished(identity.clone()),
        ),
        (|world| world.demands[0].terminating = true, Violation::NotUsable(identity.clone())),
        (|world| world.demands[0].paused = true, Violation::NotUsable(identity.clone())),
        (|world| world.demands.clear(), Violation::NotUsable(identity.clone())),
        (
            |world| {
                let pv =
                    json!({"metadata": {"name": "x"}, "spec": {"local": {"path": "/dev/sda"}}});
                world.pvs = vec![Arc::new(serde_json::from_value(pv).unwrap())];
            },
            Violation::TwoOwners(identity.clone()),
        ),
    ];
    for (number, (change, violation)) in worlds.into_iter().enumerate() {
        let mut world = world.clone();
        change(&mut world);
        assert_eq!(check(&world, &plan), vec![violation], "{number}");
    }
    let mut released = world.clone();
    annotate(&mut released);
    released.inventory.status.as_mut().unwrap().machine_id = Some("m2".into());
    assert_eq!(check(&released, &plan), vec![Violation::Frozen]);
    let claims: [Change<DeviceClaim>; 4] = [
        |claim| claim.round = 2,
        |claim| claim.job = Some(ClaimJob { name: "j".into(), attempt: 1 }),
        |claim| claim.terminating = true,
        |claim| claim.link = String::new(),
    ];
    for (number, change) in claims.into_iter().enumerate() {
        let mut plan = plan.clone();
        change(&mut plan.claims[0]);
        assert_eq!(check(&world, &plan), vec![Violation::NotUsable(identity.clone())], "{number}");
    }
    // What is on it stays, if its owner named it by its path.
    let mut any = plan.clone();
    any.claims[0].content = ClaimContent::Any;
    let mut full = world.clone();
    full.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable)];
    assert_eq!(check(&full, &any), vec![]);
}

// invariant: 3
#[test]
fn max_device_count_is_never_exceeded() {
    let asked = |max: i32| {
        world(
            vec![set("s", 1, json!({"maxDeviceCount": max}))],
            vec![disk("sda", 1), disk("sdb", 2)],
        )
    };
    let greedy = plan(&asked(2), now());
    assert_eq!((greedy.claims.len(), check(&asked(2), &greedy)), (2, vec![]));
    assert_eq!(check(&asked(1), &greedy), vec![Violation::TooMany("s".into())]);
    let mut lowered = asked(1);
    lowered.inventory.spec.device_claims = greedy.claims.clone();
    assert_eq!(check(&lowered, &greedy), vec![], "what it has it keeps");
}

// invariant: 1
#[test]
fn a_pv_is_released_only_after_its_end_is_recorded() {
    let world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    let with = |going: bool, over: bool| {
        let mut world = world.clone();
        if going {
            change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
        }
        // What it says of itself does not count.
        change_pv(&mut world, &name, |pv| {
            pv["metadata"]["annotations"]["quarry.dev/device-claim-round"] = json!("0")
        });
        world.inventory.spec.device_claims[0].last_pv = last_pv("pv-1", over);
        let steps = vec![Step::ReleasePv {
            name: name.clone(),
            resource_version: "1".into(),
            finalizers: vec![],
        }];
        check(
            &world,
            &Plan { claims: world.inventory.spec.device_claims.clone(), steps, ..Plan::default() },
        )
        .is_empty()
    };
    assert_eq!(
        [with(false, false), with(true, false), with(false, true), with(true, true)],
        [false, false, false, true]
    );
}

/// By the PersistentVolume itself: a PVC was bound to it after its end was recorded.
// invariant: 5
#[test]
fn a_used_pv_is_released_only_wiped_or_retained() {
    let with = |pvc: Option<&str>, change: Change<NodeWorld>, kept: Vec<RetainedData>| {
        let mut world = published();
        let name = world.pvs[0].metadata.name.clone().unwrap();
        phase(&mut world, "Released");
        change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
        world.inventory.spec.device_claims[0].last_pv =
            Some(LastPv { pvc_uid: pvc.map(str::to_owned), ..last_pv("pv-1", true).unwrap() });
        change(&mut world);
        let steps =
            vec![Step::ReleasePv { name, resource_version: "1".into(), finalizers: vec![] }];
        let claims = world.inventory.spec.device_claims.clone();
        check(&world, &Plan { claims, steps, retained_data: kept, ..Plan::default() })
    };
    let same: Change<NodeWorld> = |_| {};
    let unresolved = || vec![Violation::Unresolved(names::local_pv("n1", "wwn:5000c50000000001"))];
    assert_eq!(with(Some("claim"), same, vec![]), vec![], "what it wrote was wiped");
    for pvc in [None, Some("another")] {
        let mut found = with(pvc, same, vec![]);
        found.retain(|one| !matches!(one, Violation::Forgotten(_)));
        assert_eq!(found, unresolved(), "{pvc:?}");
    }
    // An administrator releases the device claims of a machine that is gone.
    let released: Change<NodeWorld> = |world| {
        world.node = None;
        world.inventory.spec.device_claims[0].last_pv = last_pv("pv-1", false);
        world.inventory.metadata.annotations =
            Some([(names::RELEASE_DEVICE_CLAIMS_ANNOTATION.to_owned(), "m1".to_owned())].into());
    };
    let kept = RetainedData {
        identity: "wwn:5000c50000000001".into(),
        pv_uid: "pv-1".into(),
        ..RetainedData::default()
    };
    assert_eq!(with(None, released, vec![]), unresolved());
    assert_eq!(with(None, released, vec![kept]), vec![]);
}

/// A PVC that no device claim knows of yet was bound: its data does not end with the plan that sees it first.
// invariant: 5
#[test]
fn the_end_of_an_unknown_use_is_recorded_as_retained() {
    let mut world = published();
    phase(&mut world, "Released");
    let claims = world.inventory.spec.device_claims.clone();
    let mut plan = Plan { claims, ..Plan::default() };
    assert_eq!(check(&world, &plan), vec![]);
    plan.claims[0].last_pv = last_pv("pv-1", true);
    let lost = vec![Violation::Forgotten("wwn:5000c50000000001".into())];
    assert_eq!(check(&world, &plan), lost);
    let kept = |pv_uid: &str| RetainedData {
        identity: "wwn:5000c50000000001".into(),
        pv_uid: pv_uid.into(),
        ..RetainedData::default()
    };
    plan.retained_data = vec![kept("another")];
    assert_eq!(check(&world, &plan), lost);
    plan.retained_data = vec![kept("pv-1")];
    assert_eq!(check(&world, &plan), vec![]);
}

#[test]
fn a_publication_needs_every_condition() {
    let mut world = published();
    let made = Step::CreatePv(Box::new((*world.pvs.remove(0)).clone()));
    let checked = |world: &NodeWorld, made: &Step| {
        check(
            world,
            &Plan {
                claims: world.inventory.spec.device_claims.clone(),
                steps: vec![made.clone()],
                ..Plan::default()
            },
        )
    };
    assert_eq!(checked(&world, &made), vec![]);
    let unconfirmed =
        vec![Violation::Unconfirmed(world.inventory.spec.device_claims[0].identity.clone())];
    let worlds: [Change<NodeWorld>; 5] = [
        |world| world.inventory.status.as_mut().unwrap().device_claims[0].linked = false,
        |world| {
            world.inventory.status.as_mut().unwrap().device_claims[0].state = ClaimState::Refused
        },
        |world| world.inventory.spec.device_claims[0].terminating = true,
        |world| {
            world.inventory.spec.device_claims[0].job =
                Some(ClaimJob { name: "j".into(), attempt: 1 })
        },
        |world| world.inventory.status.as_mut().unwrap().devices.clear(),
    ];
    for (number, change) in worlds.into_iter().enumerate() {
        let mut world = world.clone();
        change(&mut world);
        assert_eq!(checked(&world, &made), unconfirmed, "{number}");
    }
    let changed = |change: Change<Value>| {
        let Step::CreatePv(pv) = &made else { panic!("{made:?}") };
        let mut pv = serde_json::to_value(pv).unwrap();
        change(&mut pv);
        checked(&world, &Step::CreatePv(Box::new(serde_json::from_value(pv).unwrap())))
    };
    assert_eq!(changed(|_| {}), vec![]);
    assert_eq!(
        changed(|pv| pv["metadata"]["annotations"][names::ROUND_ANNOTATION] = json!("7")),
        unconfirmed,
        "another round's"
    );
    assert_eq!(
        changed(|pv| pv["metadata"]["annotations"][names::IDENTITY_ANNOTATION] = json!("wwn:9")),
        unconfirmed,
        "another device's"
    );
}

// invariant: 5
#[test]
fn a_wipe_needs_every_condition() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    phase(&mut world, "Released");
    change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    let job = super::super::wipe::wipe_job(
        &world,
        &world.inventory.spec.device_claims[0],
        &world.pvs[0],
        WipePolicy::Quick,
        1,
    )
    .unwrap();
    world.inventory.spec.device_claims[0].job =
        Some(ClaimJob { name: job.metadata.name.clone().unwrap(), attempt: 1 });
    let checked = |world: &NodeWorld, job: &NodeJob| {
        check(
            world,
            &Plan {
                claims: world.inventory.spec.device_claims.clone(),
                steps: vec![Step::CreateJob(Box::new(job.clone()))],
                ..Plan::default()
            },
        )
    };
    assert_eq!(checked(&world, &job), vec![]);
    let jobs: [Change<NodeJob>; 7] = [
        |job| job.spec.device.claimed.as_mut().unwrap().identity = "wwn:9".into(),
        |job| job.spec.device.claimed.as_mut().unwrap().size += 1,
        |job| job.spec.device.claimed.as_mut().unwrap().pv_uid = "pv-9".into(),
        |job| job.spec.owner = JobOwner { uid: "uid-9".into(), ..job.spec.owner.clone() },
        |job| job.spec.node_name = "n9".into(),
        |job| job.spec.precondition.node_uid = "node-9".into(),
        |job| job.metadata.name = Some("other".into()),
    ];
    for (number, change) in jobs.into_iter().enumerate() {
        let mut job = job.clone();
        change(&mut job);
        assert!(
            matches!(checked(&world, &job).as_slice(), [Violation::UnfoundedWipe(_), ..]),
            "{number}"
        );
    }
    let mut reserved = world.clone();
    change_pv(&mut reserved, &name, |pv| pv["spec"]["claimRef"]["uid"] = Value::Null);
    assert!(
        matches!(checked(&reserved, &job).as_slice(), [Violation::UnfoundedWipe(_), ..]),
        "it was never used"
    );
    let mut frozen = world.clone();
    frozen.inventory.spec.machine_id = Some("m2".into());
    assert!(matches!(checked(&frozen, &job).as_slice(), [Violation::UnfoundedWipe(_), ..]));
    // Another wipe of the same device runs; of another device, or of this very job, it does not matter.
    let other = |name: &str, identity: &str, phase: Option<JobPhase>| {
        let mut other = NodeJob {
            status: Some(NodeJobStatus { phase, ..NodeJobStatus::default() }),
            ..job.clone()
        };
        other.metadata.name = Some(name.into());
        other.spec.device.claimed.as_mut().unwrap().identity = identity.into();
        let mut world = world.clone();
        world.jobs.insert(name.into(), Arc::new(other));
        checked(&world, &job).is_empty()
    };
    let identity = world.inventory.spec.device_claims[0].identity.clone();
    let own = job.metadata.name.clone().unwrap();
    assert!(!other("x", &identity, Some(JobPhase::Running)) && !other("x", &identity, None));
    assert!(
        other("x", &identity, Some(JobPhase::Failed))
            && other("x", "wwn:9", Some(JobPhase::Running))
            && other(&own, &identity, None)
    );
}

/// By the checker alone, whatever a planner proposes.
#[test]
fn device_claim_by_path_changes_size_only_with_a_new_round() {
    let mut world = world(vec![local_volume("lv", &["/dev/sda"])], vec![disk("sda", 1)]);
    at_path(&mut world, "sda");
    let mut plan = step(&mut world);
    plan.claims[0].size += 4096;
    assert_eq!(check(&world, &plan), vec![Violation::Changed("wwn:5000c50000000001".into())]);
    plan.claims[0].round += 1;
    assert_eq!(check(&world, &plan), vec![]);
    plan.claims[0].path = None;
    assert!(!check(&world, &plan).is_empty());
}

#[test]
fn a_quick_wipe_is_recorded_in_the_plan_that_ends_it() {
    let mut world =
        world(vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))], vec![disk("sda", 1)]);
    step(&mut world);
    confirm(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    let mut before = world.clone();
    wipe_until(&mut before, false);
    let lost = vec![Violation::Forgotten("wwn:5000c50000000001".into())];
    let good = super::plan(&before, now());
    assert_eq!((good.wipe_remnants.len(), check(&before, &good)), (1, vec![]));
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
    assert_eq!(check(&before, &unmoved), vec![]);
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
    assert_eq!((good.wipe_remnants.len(), check(&whole, &good)), (0, vec![]));
}

// invariant: 1, 3, 5
#[test]
fn check_finds_every_violation() {
    let good = published();
    let pv_name = good.pvs[0].metadata.name.clone().unwrap();
    let claim = good.inventory.spec.device_claims[0].clone();
    let empty = Plan {
        claims: good.inventory.spec.device_claims.clone(),
        machine_id: Some("m1".into()),
        ..Plan::default()
    };
    assert_eq!(check(&good, &empty), vec![]);
    let with = |steps: Vec<Step>| Plan { steps, ..empty.clone() };
    let delete =
        Step::DeletePv { name: pv_name.clone(), uid: "pv-1".into(), resource_version: "1".into() };
    let release =
        Step::ReleasePv { name: pv_name.clone(), resource_version: "1".into(), finalizers: vec![] };
    let made = Step::CreatePv(Box::new((*good.pvs[0]).clone()));

    let mut bound = good.clone();
    phase(&mut bound, "Bound");
    assert_eq!(check(&bound, &with(vec![delete.clone()])), vec![Violation::InUse(pv_name.clone())]);
    assert_eq!(
        check(&good, &with(vec![release.clone()])),
        vec![Violation::InUse(pv_name.clone())],
        "not before it is going and its round is over"
    );
    assert!(matches!(
        check(&good, &with(vec![made.clone()])).as_slice(),
        [Violation::TwoOwners(_), ..]
    ));
    let stranger =
        Step::DeletePv { name: "other".into(), uid: "x".into(), resource_version: "1".into() };
    assert_eq!(check(&good, &with(vec![stranger])), vec![Violation::NotOurs("other".into())]);

    let mut unconfirmed = good.clone();
    unconfirmed.pvs.clear();
    assert_eq!(check(&unconfirmed, &with(vec![made.clone()])), vec![]);
    for (change, violation) in [
        (0, Violation::Unconfirmed(claim.identity.clone())),
        (1, Violation::DataPublished(claim.identity.clone())),
        (2, Violation::Quarantined(claim.identity.clone())),
        (3, Violation::Unconfirmed(claim.identity.clone())),
        (4, Violation::Frozen),
        (5, Violation::TwoOwners(claim.identity.clone())),
    ] {
        let mut world = unconfirmed.clone();
        let status = world.inventory.status.as_mut().unwrap();
        match change {
            0 => status.device_claims.clear(),
            1 => {
                status.devices =
                    vec![with_reason(disk("sda", 1), "Signature", DeviceState::NotAvailable)]
            }
            2 => {
                world.elsewhere = vec![RemoteIdentity {
                    identity: claim.identity.clone(),
                    node: "n2".into(),
                    device: "x".into(),
                }]
            }
            3 => status.device_claims[0].round = 9,
            4 => status.machine_id = Some("m2".into()),
            _ => world.demands[0].terminating = true,
        }
        assert_eq!(check(&world, &with(vec![made.clone()])), vec![violation], "{change}");
    }

    let forgotten = Plan { claims: vec![], ..empty.clone() };
    assert_eq!(check(&good, &forgotten), vec![Violation::LeftBehind(claim.identity.clone())]);
    let changed = Plan { claims: vec![DeviceClaim { size: 1, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &changed), vec![Violation::Changed(claim.identity.clone())]);
    let back = Plan { claims: vec![DeviceClaim { round: 0, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &back), vec![Violation::Changed(claim.identity.clone())]);
    let rival = DeviceClaim {
        owner: quarry_api::node_inventory::ClaimOwner {
            uid: "uid-other".into(),
            ..claim.owner.clone()
        },
        link: "/mnt/local-storage/s/other".into(),
        ..claim.clone()
    };
    let twice = Plan { claims: vec![claim.clone(), rival], ..empty.clone() };
    assert_eq!(
        check(&good, &twice),
        vec![
            Violation::TwoOwners(claim.identity.clone()),
            Violation::NotUsable(claim.identity.clone())
        ],
        "every violation is reported"
    );

    // A wipe needs its whole reason: recorded, going, released, of this node and size.
    let mut releasing = good.clone();
    phase(&mut releasing, "Released");
    change_pv(&mut releasing, &pv_name, |pv| {
        pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z")
    });
    let job = super::super::wipe::wipe_job(
        &releasing,
        &claim,
        &releasing.pvs[0],
        quarry_api::node_job::WipePolicy::Quick,
        1,
    )
    .unwrap();
    let wipe = Step::CreateJob(Box::new(job.clone()));
    assert!(
        matches!(
            check(&releasing, &with(vec![wipe.clone()])).as_slice(),
            [Violation::UnfoundedWipe(_), ..]
        ),
        "not on record"
    );
    let record = |world: &mut NodeWorld| {
        world.inventory.spec.device_claims[0].job =
            Some(ClaimJob { name: job.metadata.name.clone().unwrap(), attempt: 1 })
    };
    record(&mut releasing);
    let with_job = |world: &NodeWorld| Plan {
        claims: world.inventory.spec.device_claims.clone(),
        ..with(vec![wipe.clone()])
    };
    assert_eq!(check(&releasing, &with_job(&releasing)), vec![]);
    for change in 0..5 {
        let mut world = releasing.clone();
        match change {
            0 => change_pv(&mut world, &pv_name, |pv| {
                pv["metadata"]["deletionTimestamp"] = Value::Null
            }),
            1 => change_pv(&mut world, &pv_name, |pv| pv["status"]["phase"] = json!("Bound")),
            2 => change_pv(&mut world, &pv_name, |pv| {
                pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
            }),
            3 => change_pv(&mut world, &pv_name, |pv| pv["metadata"]["uid"] = json!("pv-2")),
            _ => {
                world.node = Some(Arc::new(
                    serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-2"}}))
                        .unwrap(),
                ))
            }
        }
        assert!(!check(&world, &with_job(&world)).is_empty(), "{change}");
    }
}

#[test]
fn check_finds_double_and_lost_device_claims() {
    let mut free =
        world(vec![set("old", 2, json!({})), set("young", 1, json!({}))], vec![disk("sda", 1)]);
    let planned = plan(&free, now());
    let [first] = planned.claims.as_slice() else { panic!("{planned:?}") };
    let link = "/mnt/local-storage/young/x".to_owned();
    let second = DeviceClaim { owner: free.demands[1].owner.clone(), link, ..first.clone() };
    let twice = Plan { claims: vec![first.clone(), second], ..planned.clone() };
    assert_eq!(check(&free, &twice), vec![Violation::TwoOwners(first.identity.clone())]);
    assert_eq!(check(&free, &planned), vec![]);

    // It is forgotten when it was ending, the agent says that it has ended, and no PersistentVolume is left.
    free.inventory.spec.device_claims = vec![DeviceClaim { terminating: true, ..first.clone() }];
    confirm(&mut free);
    let forgotten = Plan { claims: vec![], ..Plan::default() };
    assert_eq!(check(&free, &forgotten), vec![]);
    let left = vec![Violation::LeftBehind(first.identity.clone())];
    let mut alive = free.clone();
    alive.inventory.spec.device_claims[0].terminating = false;
    assert_eq!(check(&alive, &forgotten), left, "it is not terminating");
    let mut silent = free.clone();
    silent.inventory.status.as_mut().unwrap().device_claims.clear();
    assert_eq!(check(&silent, &forgotten), left, "the agent has not said so");
    let mut refused = free.clone();
    refused.inventory.status.as_mut().unwrap().device_claims[0].state = ClaimState::Refused;
    assert_eq!(check(&refused, &forgotten), left, "the agent says something else");
    let mut published = published();
    published.inventory.spec.device_claims[0].terminating = true;
    confirm(&mut published);
    assert!(
        matches!(check(&published, &forgotten).as_slice(), [Violation::LeftBehind(_), ..]),
        "its PersistentVolume is there"
    );
}
