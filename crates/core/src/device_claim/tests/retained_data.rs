//! What was used and not wiped.

use super::*;

// invariant: 1
#[test]
fn retained_data_goes_only_to_a_path_that_adopts_it() {
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
    // Also reported by the agent, which changes nothing.
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
    assert_eq!(check(&world, &plan), vec![]);
    world.demands = vec![local_volume("lv", &["/dev/sda"])];
    assert_eq!(check(&world, &plan), vec![Violation::DataPublished("wwn:5000c50000000001".into())]);
}

const IDENTITY: &str = "wwn:5000c50000000001";

fn entry(identity: &str, uid: &str) -> RetainedData {
    RetainedData {
        identity: identity.into(),
        pv_name: names::local_pv("n1", identity),
        pv_uid: uid.into(),
        ..RetainedData::default()
    }
}

/// The plan that changes nothing.
fn same(world: &NodeWorld) -> Plan {
    let spec = &world.inventory.spec;
    Plan {
        claims: spec.device_claims.clone(),
        retained_data: spec.retained_data.clone(),
        machine_id: spec.machine_id.clone(),
        ..Plan::default()
    }
}

fn forgotten(what: &str) -> Vec<Violation> {
    vec![Violation::Forgotten(what.into())]
}

/// A world whose claim has a job in this phase.
fn wiping(phase: &str) -> NodeWorld {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    self::phase(&mut world, "Released");
    change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    step(&mut world);
    let plan = step(&mut world);
    apply(&mut world, &plan.steps);
    let job = world.inventory.spec.device_claims[0].job.clone().unwrap().name;
    let mut made = (*world.jobs[&job]).clone();
    made.status = serde_json::from_value(json!({"phase": phase, "runs": 1})).unwrap();
    world.jobs.insert(job, Arc::new(made));
    world
}

#[test]
fn a_record_ends_only_with_its_wipe_or_its_annotation() {
    let without = |world: &NodeWorld, uid: &str| {
        let mut plan = same(world);
        plan.retained_data.retain(|kept| kept.pv_uid != uid);
        check(world, &plan)
    };
    let reported = |annotation: Option<&str>| {
        let mut world = published();
        world.inventory.spec.retained_data = vec![entry(IDENTITY, "a"), entry("wwn:9", "b")];
        world.inventory.metadata.annotations = annotation.map(|text| {
            [(names::FORGET_RETAINED_DATA_ANNOTATION.to_owned(), text.to_owned())].into()
        });
        world
    };
    assert_eq!(without(&reported(None), "a"), forgotten(IDENTITY));
    assert_eq!(without(&reported(Some("b")), "a"), forgotten(IDENTITY));
    assert_eq!(
        (without(&reported(Some("b, a")), "a"), without(&reported(Some("a")), "a")),
        (vec![], vec![])
    );
    assert_eq!(
        plan(&reported(Some("b")), now()).retained_data,
        [entry(IDENTITY, "a")],
        "only what is named"
    );
    for (phase, erased) in [("Succeeded", true), ("Failed", false), ("Running", false)] {
        let mut world = wiping(phase);
        world.inventory.spec.retained_data = vec![entry(IDENTITY, "a"), entry("wwn:9", "b")];
        assert_eq!(
            without(&world, "a"),
            if erased { vec![] } else { forgotten(IDENTITY) },
            "{phase}"
        );
        assert_eq!(without(&world, "b"), forgotten("wwn:9"), "{phase}: another device");
        let kept = plan(&world, now()).retained_data;
        assert_eq!(
            kept,
            if erased {
                vec![entry("wwn:9", "b")]
            } else {
                vec![entry(IDENTITY, "a"), entry("wwn:9", "b")]
            },
            "{phase}"
        );
    }
}

#[test]
fn used_data_ends_only_with_a_wipe_or_a_record() {
    let mut world = published();
    world.inventory.spec.device_claims[0].last_pv = last_pv("pv-1", false);
    assert_eq!(check(&world, &same(&world)), vec![], "it goes on");
    let over = |world: &NodeWorld, kept: Vec<RetainedData>| {
        let mut plan = Plan { retained_data: kept, ..same(world) };
        plan.claims[0].last_pv = last_pv("pv-1", true);
        check(world, &plan)
    };
    assert_eq!(over(&world, vec![]), forgotten(IDENTITY));
    assert_eq!(over(&world, vec![entry("wwn:9", "pv-1")]), forgotten(IDENTITY));
    assert_eq!(over(&world, vec![entry(IDENTITY, "pv-1")]), vec![]);
    let mut gone = same(&world);
    gone.claims.clear();
    let both = vec![Violation::Forgotten(IDENTITY.into()), Violation::LeftBehind(IDENTITY.into())];
    assert_eq!(check(&world, &gone), both, "nor with its device claim");
    let mut renamed = same(&world);
    renamed.claims[0].last_pv = None;
    assert_eq!(check(&world, &renamed), forgotten(IDENTITY));
    assert_eq!(over(&wiping("Succeeded"), vec![]), vec![]);
    assert_eq!(over(&wiping("Failed"), vec![]), forgotten(IDENTITY));
}

#[test]
fn nothing_is_published_over_used_or_retained_data() {
    let publish = |change: &dyn Fn(&mut NodeWorld)| {
        let mut world = published();
        let made = Step::CreatePv(Box::new((*world.pvs[0]).clone()));
        world.pvs.clear();
        change(&mut world);
        let plan = same(&world);
        check(&world, &Plan { steps: vec![made], ..plan })
    };
    let data = vec![Violation::DataPublished(IDENTITY.into())];
    assert_eq!(publish(&|_| {}), vec![]);
    assert_eq!(
        publish(&|world| world.inventory.spec.retained_data = vec![entry(IDENTITY, "a")]),
        data
    );
    assert_eq!(
        publish(&|world| world.inventory.spec.retained_data = vec![entry("wwn:9", "a")]),
        vec![]
    );
    assert_eq!(
        publish(&|world| world.inventory.spec.device_claims[0].last_pv = last_pv("a", false)),
        data
    );
    assert_eq!(
        publish(&|world| world.inventory.spec.device_claims[0].last_pv = last_pv("a", true)),
        vec![]
    );
    // Named by a path after it was kept: as it is. One that was named before that: not.
    let path = |world: &mut NodeWorld, round: i64| {
        world.inventory.spec.retained_data = vec![entry(IDENTITY, "a")];
        let claim = &mut world.inventory.spec.device_claims[0];
        (claim.content, claim.round) = (ClaimContent::Any, round);
        claim.last_pv = last_pv("b", true).filter(|_| round > 1);
        world.inventory.status.as_mut().unwrap().device_claims[0].round = round;
    };
    assert_eq!(publish(&|world| path(world, 1)), vec![]);
    let mut world = published();
    path(&mut world, 2);
    assert!(device_claim::content::blocks_reuse(
        &world,
        &world.inventory.spec.device_claims[0],
        &disk("sda", 1)
    ));
}

#[test]
fn an_orphaned_pv_is_released_only_if_safe() {
    let with = |change: &dyn Fn(&mut NodeWorld, &str), kept: Vec<RetainedData>| {
        let mut world = published();
        let name = world.pvs[0].metadata.name.clone().unwrap();
        phase(&mut world, "Released");
        change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
        world.inventory.spec.device_claims.clear();
        change(&mut world, &name);
        let steps =
            vec![Step::ReleasePv { name, resource_version: "1".into(), finalizers: vec![] }];
        check(&world, &Plan { retained_data: kept, steps, ..Plan::default() })
    };
    let name = names::local_pv("n1", IDENTITY);
    let kept = || vec![entry(IDENTITY, "pv-1")];
    assert_eq!(with(&|_, _| {}, kept()), vec![]);
    assert_eq!(with(&|_, _| {}, vec![]), forgotten(&name));
    assert_eq!(with(&|_, _| {}, vec![entry(IDENTITY, "another")]), forgotten(&name));
    assert_eq!(with(&|_, _| {}, vec![entry("wwn:9", "pv-1")]), forgotten(&name));
    let unused = |world: &mut NodeWorld, name: &str| {
        change_pv(world, name, |pv| pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d"}))
    };
    assert_eq!(with(&unused, vec![]), vec![], "it was never used");
    let in_use = vec![Violation::InUse(name.clone())];
    let staying = |world: &mut NodeWorld, name: &str| {
        change_pv(world, name, |pv| {
            drop(pv["metadata"].as_object_mut().unwrap().remove("deletionTimestamp"))
        })
    };
    assert_eq!(with(&staying, kept()), in_use, "it is not going");
    assert_eq!(with(&|world, _| phase(world, "Bound"), kept()), in_use);
    let other =
        |world: &mut NodeWorld, _: &str| world.inventory.spec.machine_id = Some("m2".into());
    assert_eq!(with(&other, kept()), in_use, "of another machine");
    let foreign = |world: &mut NodeWorld, name: &str| {
        change_pv(world, name, |pv| pv["metadata"]["finalizers"] = json!(["x/y"]))
    };
    assert_eq!(with(&foreign, kept()), vec![Violation::NotOurs(name.clone())]);
    assert_eq!(with(&|world, _| world.pvs.clear(), kept()), vec![Violation::NotOurs(name)]);
}

#[test]
fn released_device_claims_leave_a_record_of_their_data() {
    let given_up = |change: &dyn Fn(&mut NodeWorld)| {
        let mut world = published();
        let name = world.pvs[0].metadata.name.clone().unwrap();
        phase(&mut world, "Released");
        change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
        world.node = None;
        world.inventory.metadata.annotations =
            Some([(names::RELEASE_DEVICE_CLAIMS_ANNOTATION.to_owned(), "m1".to_owned())].into());
        change(&mut world);
        let plan = step(&mut world);
        (names_of(&plan.steps), plan.claims.len(), plan.retained_data)
    };
    let kept = || vec![entry(IDENTITY, "pv-1")];
    let last = |over: bool| {
        move |world: &mut NodeWorld| {
            world.inventory.spec.device_claims[0].last_pv = last_pv("pv-1", over)
        }
    };
    assert_eq!(given_up(&|_| {}), (vec!["ReleasePv"], 1, kept()));
    assert_eq!(given_up(&last(true)), (vec!["ReleasePv"], 1, vec![]), "erased before");
    let torn = |over: bool| {
        move |world: &mut NodeWorld| {
            world.pvs.clear();
            last(over)(world);
        }
    };
    assert_eq!(given_up(&torn(false)), (vec![], 0, kept()));
    assert_eq!(given_up(&torn(true)), (vec![], 0, vec![]));
}

/// Blank at both ends, and full of data between them: it looks like a new disk.
// invariant: 1
#[test]
fn retained_data_blocks_its_device_until_discarded() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    phase(&mut world, "Bound");
    assert_eq!(
        step(&mut world).claims[0].last_pv,
        last_pv("pv-1", false),
        "on record as soon as it is seen"
    );
    let before = world.clone();
    change_pv(&mut world, &name, |pv| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain")
    });
    phase(&mut world, "Released");
    tear_down(&mut world);
    let kept = RetainedData {
        identity: "wwn:5000c50000000001".into(),
        pv_name: name.clone(),
        pv_uid: "pv-1".into(),
        ..RetainedData::default()
    };
    assert_eq!(world.inventory.spec.retained_data, std::slice::from_ref(&kept));
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Blocked(why) if why.contains("retains the data of a PersistentVolume that was deleted")),
        "{:?}",
        stage(&world)
    );
    // The agent refuses it as well, and says so in its verdict: the claim ends, and no set gets the device.
    let status = world.inventory.status.as_mut().unwrap();
    status.devices = vec![with_reason(disk("sda", 1), "RetainedData", DeviceState::NotAvailable)];
    status.device_claims[0].state = ClaimState::Refused;
    assert!(step(&mut world).claims[0].terminating);
    confirm(&mut world);
    assert!(step(&mut world).claims.is_empty());
    assert_eq!(
        (world.inventory.spec.retained_data.len(), step(&mut world).claims.len()),
        (1, 0),
        "nor by the next plan"
    );
    world.inventory.status.as_mut().unwrap().devices = vec![disk("sda", 1)];
    assert_eq!(
        step(&mut world).claims.len(),
        0,
        "an agent that has not read it yet says nothing of it"
    );
    forget(&mut world, "pv-1");
    step(&mut world);
    assert_eq!((world.inventory.spec.retained_data.len(), step(&mut world).claims.len()), (0, 1));

    // Its object removed by force while it was bound; then during a wipe.
    let mut torn = before.clone();
    torn.pvs.clear();
    let plan = step(&mut torn);
    assert_eq!(
        (plan.steps.len(), plan.claims[0].round, &plan.retained_data),
        (0, 2, &vec![kept.clone()])
    );
    confirm(&mut torn);
    assert!(step(&mut torn).steps.is_empty() && matches!(stage(&torn), Stage::Blocked(_)));
    // Given up with its machine.
    let mut gone = before;
    phase(&mut gone, "Released");
    gone.node = None;
    gone.inventory.metadata.annotations =
        Some([(names::RELEASE_DEVICE_CLAIMS_ANNOTATION.to_owned(), "m1".to_owned())].into());
    for steps in [vec!["DeletePv"], vec!["ReleasePv"], vec![]] {
        let plan = step(&mut gone);
        assert_eq!(names_of(&plan.steps), steps);
        apply(&mut gone, &plan.steps);
    }
    assert_eq!(
        (gone.inventory.spec.device_claims.len(), gone.inventory.spec.retained_data),
        (0, vec![kept])
    );
}

/// The NodeInventory was removed by force, and its device claims with it.
#[test]
fn an_orphaned_pv_is_released_when_deleted_and_unused() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    world.inventory.spec.device_claims.clear();
    world.inventory.status.as_mut().unwrap().device_claims.clear();
    assert!(step(&mut world).steps.is_empty() && orphaned(&world).is_empty(), "it is not going");
    change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    let unused = step(&mut world.clone());
    assert_eq!((names_of(&unused.steps), unused.retained_data.len()), (vec!["ReleasePv"], 0));
    phase(&mut world, "Bound");
    assert!(step(&mut world).steps.is_empty(), "in use");
    phase(&mut world, "Released");
    assert_eq!(orphaned(&world), std::slice::from_ref(&name));
    let mut elsewhere = world.clone();
    change_pv(&mut elsewhere, &name, |pv| {
        pv["metadata"]["name"] = json!("local-pv-of-another-node")
    });
    assert!(step(&mut elsewhere).steps.is_empty());
    let plan = step(&mut world);
    assert_eq!(
        (names_of(&plan.steps), plan.retained_data[0].pv_uid.as_str(), plan.claims.len()),
        (vec!["ReleasePv"], "pv-1", 0)
    );
    let forgetful = Plan { retained_data: vec![], ..plan.clone() };
    world.inventory.spec.retained_data.clear();
    assert_eq!(check(&world, &forgetful), vec![Violation::Forgotten(name)]);
    apply(&mut world, &plan.steps);
    world.inventory.spec.retained_data = plan.retained_data;
    assert!(step(&mut world).claims.is_empty(), "and the disk has no owner");
}

/// Whatever becomes of the annotations: the claim knows which volume it was.
// invariant: 1
#[test]
fn a_pv_with_changed_annotations_is_wiped() {
    for round in [None, Some("0"), Some("-7"), Some("many")] {
        let mut world = published();
        let name = world.pvs[0].metadata.name.clone().unwrap();
        change_pv(&mut world, &name, |pv| {
            match round {
                Some(round) => {
                    pv["metadata"]["annotations"]["quarry.dev/device-claim-round"] = json!(round)
                }
                None => drop(
                    pv["metadata"]["annotations"]
                        .as_object_mut()
                        .unwrap()
                        .remove("quarry.dev/device-claim-round"),
                ),
            }
            pv["metadata"]["deletionTimestamp"] = json!(NOW);
        });
        phase(&mut world, "Bound");
        let plan = step(&mut world);
        assert!(
            plan.steps.is_empty()
                && matches!(stage(&world), Stage::Releasing(why) if why.contains("is bound to PVC d/c")),
            "{round:?}"
        );
        phase(&mut world, "Released");
        assert!(step(&mut world).claims[0].job.is_some(), "{round:?}");
        assert_eq!(names_of(&step(&mut world).steps), ["CreateJob"], "{round:?}");
    }
}

/// Confirmed once; it is mounted since, or another node shows it, too.
// invariant: 1
#[test]
fn a_device_in_use_or_quarantined_is_not_published() {
    for reason in ["Mounted", "Swap", "HasHolders", "LoopOnTop"] {
        let mut world = published();
        world.inventory.status.as_mut().unwrap().devices =
            vec![with_reason(disk("sda", 1), reason, DeviceState::NotAvailable)];
        let plan = step(&mut world);
        assert_eq!(names_of(&plan.steps), ["DeletePv"], "{reason}");
        world.pvs.clear();
        assert!(step(&mut world).steps.is_empty(), "{reason}");
        assert!(
            matches!(stage(&world), Stage::Blocked(why) if why.contains("the device is in use: sda ")),
            "{reason}"
        );
        let made = Step::CreatePv(Box::new((*published().pvs[0]).clone()));
        let wrong = Plan { steps: vec![made], ..step(&mut world) };
        assert_eq!(check(&world, &wrong), vec![Violation::Used("wwn:5000c50000000001".into())]);
    }
    let mut twice = published();
    twice.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "DuplicateIdentity", DeviceState::NotAvailable)];
    let stale = NodeWorld { agent_present: false, ..twice.clone() };
    assert!(
        step(&mut stale.clone()).steps.is_empty(),
        "it may have been moved while the agent was absent"
    );
    let plan = step(&mut twice);
    assert_eq!(names_of(&plan.steps), ["DeletePv"]);
    let mut withdrawn = twice.clone();
    withdrawn.pvs.clear();
    confirm(&mut withdrawn);
    assert!(
        step(&mut withdrawn).steps.is_empty()
            && matches!(stage(&withdrawn), Stage::Blocked(why) if why.contains("same identity")),
        "and the claim stays"
    );
    phase(&mut twice, "Bound");
    assert!(step(&mut twice).steps.is_empty(), "what is in use stays");
    assert!(
        matches!(stage(&twice), Stage::Conflict(why) if why.contains("is bound to PVC d/c")),
        "{:?}",
        stage(&twice)
    );
}
