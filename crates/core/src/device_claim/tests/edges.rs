//! Every condition by itself: a check that needs two things at once to go wrong is half a check.

use super::*;
use quarry_api::{
    LocalVolumeSetSpec,
    node_inventory::ClaimOwner,
    node_job::{JobOwner, JobPhase, NodeJobStatus, WipePolicy},
};

type Change<T> = fn(&mut T);

/// A free disk, a set that wants it, and what the planner makes of that.
fn taking() -> (NodeWorld, Plan) {
    let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1)]);
    world.inventory.spec.machine_id = Some("m1".into());
    let plan = plan(&world, now());
    assert_eq!((plan.claims.len(), check(&world, &plan)), (1, Ok(())));
    (world, plan)
}

#[test]
fn a_new_claim_needs_all_of_its_reasons() {
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
                world.elsewhere = vec![Elsewhere {
                    identity: world.inventory.status.as_ref().unwrap().devices[0]
                        .identity
                        .clone()
                        .unwrap(),
                    node: "n2".into(),
                    device: "x".into(),
                }]
            },
            Violation::Doubtful(identity.clone()),
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
        assert_eq!(check(&world, &plan), Err(violation), "{number}");
    }
    let mut released = world.clone();
    annotate(&mut released);
    released.inventory.status.as_mut().unwrap().machine_id = Some("m2".into());
    assert_eq!(check(&released, &plan), Err(Violation::Frozen));
    let claims: [Change<DeviceClaim>; 4] = [
        |claim| claim.round = 2,
        |claim| claim.job = Some(ClaimJob { name: "j".into(), attempt: 1 }),
        |claim| claim.terminating = true,
        |claim| claim.link = String::new(),
    ];
    for (number, change) in claims.into_iter().enumerate() {
        let mut plan = plan.clone();
        change(&mut plan.claims[0]);
        assert_eq!(check(&world, &plan), Err(Violation::NotUsable(identity.clone())), "{number}");
    }
    // What is on it stays, if its owner named it by its path.
    let mut any = plan.clone();
    any.claims[0].content = ClaimContent::Any;
    let mut full = world.clone();
    full.inventory.status.as_mut().unwrap().devices =
        vec![with_reason(disk("sda", 1), "UnknownData", DeviceState::NotAvailable)];
    assert_eq!(check(&full, &any), Ok(()));
}

#[test]
fn nobody_gets_more_than_he_asks_for() {
    let asked = |max: i32| {
        world(
            vec![set("s", 1, json!({"maxDeviceCount": max}))],
            vec![disk("sda", 1), disk("sdb", 2)],
        )
    };
    let greedy = plan(&asked(2), now());
    assert_eq!((greedy.claims.len(), check(&asked(2), &greedy)), (2, Ok(())));
    assert_eq!(check(&asked(1), &greedy), Err(Violation::TooMany("s".into())));
    let mut lowered = asked(1);
    lowered.inventory.spec.device_claims = greedy.claims.clone();
    assert_eq!(check(&lowered, &greedy), Ok(()), "what it has it keeps");
}

/// Who cannot say which machine he is, is another one.
#[test]
fn a_machine_without_a_name_is_not_the_one_that_was_claimed_from() {
    let mut world = published();
    world.inventory.spec.machine_id = Some("m1".into());
    assert!(!is_frozen(&world));
    world.inventory.status.as_mut().unwrap().machine_id = None;
    assert!(is_frozen(&world) && matches!(stage(&world), Stage::Frozen(_)));
    world.inventory.status = None;
    assert!(!is_frozen(&world), "it has said nothing yet");
}

#[test]
fn a_volume_is_let_go_only_when_it_is_going_and_its_end_is_on_record() {
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
        world.inventory.spec.device_claims[0].last_pv =
            Some(LastPv { uid: "pv-1".into(), resolved: over });
        let steps = vec![Step::ReleasePv {
            name: name.clone(),
            resource_version: "1".into(),
            finalizers: vec![],
        }];
        check(
            &world,
            &Plan { claims: world.inventory.spec.device_claims.clone(), steps, ..Plan::default() },
        )
        .is_ok()
    };
    assert_eq!(
        [with(false, false), with(true, false), with(false, true), with(true, true)],
        [false, false, false, true]
    );
}

#[test]
fn a_publication_needs_all_of_its_reasons() {
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
    assert_eq!(checked(&world, &made), Ok(()));
    let unconfirmed =
        Err(Violation::Unconfirmed(world.inventory.spec.device_claims[0].identity.clone()));
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
    assert_eq!(changed(|_| {}), Ok(()));
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

#[test]
fn a_wipe_needs_all_of_its_reasons() {
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
    assert_eq!(checked(&world, &job), Ok(()));
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
        assert!(matches!(checked(&world, &job), Err(Violation::UnfoundedWipe(_))), "{number}");
    }
    let mut reserved = world.clone();
    change_pv(&mut reserved, &name, |pv| pv["spec"]["claimRef"]["uid"] = Value::Null);
    assert!(
        matches!(checked(&reserved, &job), Err(Violation::UnfoundedWipe(_))),
        "nobody has used it"
    );
    let mut frozen = world.clone();
    frozen.inventory.spec.machine_id = Some("m2".into());
    assert!(matches!(checked(&frozen, &job), Err(Violation::UnfoundedWipe(_))));
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
        checked(&world, &job).is_ok()
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

#[test]
fn a_path_belongs_to_whoever_claimed_a_device_by_it() {
    let mut world = world(
        vec![local_volume("lv", &["/dev/sda"]), local_volume("other", &["/dev/sda"])],
        vec![disk("sda", 1)],
    );
    world.inventory.status.as_mut().unwrap().paths =
        vec![PathReport { path: "/dev/sda".into(), device: Some("sda".into()), problem: None }];
    step(&mut world);
    assert_eq!(
        (eligibilities(&world, "uid-lv")[0].1, eligibilities(&world, "uid-other")[0].1),
        ("Provisioned", "Taken")
    );
}

#[test]
fn nothing_is_taken_from_a_machine_that_is_another_or_given_up_or_from_an_inventory_that_goes() {
    let eligibility = |change: Change<NodeWorld>| {
        let (mut world, _) = taking();
        change(&mut world);
        eligibilities(&world, "uid-s")[0].1
    };
    assert_eq!(eligibility(|_| {}), "Matched");
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
        "Matched"
    );
}

#[test]
fn a_link_is_named_by_its_id_or_else_by_the_identity() {
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
fn sizes_are_inclusive_and_every_type_is_known_by_its_name() {
    let matches = |spec: Value, device: &Device| {
        let spec: LocalVolumeSetSpec =
            serde_json::from_value(json!({"storageClassName": "s", "deviceInclusionSpec": spec}))
                .unwrap();
        filter::Filter::read(&spec).map(|filter| filter.mismatches(device).is_empty())
    };
    let device = disk("sda", 1);
    let size = |bytes: i64| (device.size + bytes).to_string();
    assert_eq!(matches(json!({"minSize": size(0), "maxSize": size(0)}), &device), Ok(true));
    assert_eq!(matches(json!({"minSize": size(1), "maxSize": size(1)}), &device), Ok(false));
    assert_eq!(matches(json!({"minSize": size(-1), "maxSize": size(-1)}), &device), Ok(false));
    assert!(matches(json!({"minSize": size(1), "maxSize": size(0)}), &device).is_err());
    for kind in ["disk", "part", "loop", "mpath", "lvm"] {
        assert_eq!(
            matches(
                json!({"deviceTypes": [kind]}),
                &Device { kind: kind.into(), ..device.clone() }
            ),
            Ok(true),
            "{kind}"
        );
        assert_eq!(
            matches(
                json!({"deviceTypes": [kind]}),
                &Device { kind: "other".into(), ..device.clone() }
            ),
            Ok(false),
            "{kind}"
        );
    }
}

#[test]
fn a_refusal_without_a_reason_is_told_as_such() {
    assert_eq!(Eligibility::Refused(Vec::new()).message(), "the agent has not judged it");
    let told = DeviceReason { reason: "Mounted".into(), detail: "/data".into() };
    assert!(Eligibility::Refused(vec![told]).message().contains("/data"));
    let owner = ClaimOwner {
        kind: "LocalVolumeSet".into(),
        namespace: Some("ns".into()),
        name: "a".into(),
        uid: "u".into(),
    };
    assert_eq!(Eligibility::Taken(owner).message(), "LocalVolumeSet ns/a has it");
}

#[test]
fn a_volume_of_another_device_takes_nothing() {
    for (path, annotations) in [
        ("/mnt/local-storage/other/wwn-0x5000c50000000009", json!({})),
        ("/gone", json!({names::LSO_DEVICE_ID_ANNOTATION: "wwn-0x5000c50000000009"})),
        ("/dev/sdb", json!({names::IDENTITY_ANNOTATION: "wwn:9"})),
    ] {
        let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1)]);
        let pv = json!({"metadata": {"name": "x", "annotations": annotations}, "spec": {"local": {"path": path}}});
        world.pvs = vec![Arc::new(serde_json::from_value(pv).unwrap())];
        assert_eq!(eligibilities(&world, "uid-s")[0].1, "Matched", "{path}");
    }
}

#[test]
fn a_volume_of_the_claims_name_that_is_not_from_it_is_left_alone() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    phase(&mut world, "Released");
    change_pv(&mut world, &name, |pv| {
        pv["metadata"]["annotations"][names::IDENTITY_ANNOTATION] = json!("wwn:9")
    });
    assert!(step(&mut world).steps.is_empty());
    assert!(
        matches!(stage(&world), Stage::Blocked(why) if why.contains(&name) && why.contains("not made from this claim"))
    );
}

#[test]
fn every_stage_has_its_word_and_its_detail() {
    let text = || "why".to_owned();
    let stages = [
        (Stage::Frozen(text()), "Frozen", false),
        (Stage::Claimed, "Claimed", false),
        (Stage::Refused(text()), "Refused", false),
        (Stage::Blocked(text()), "Blocked", false),
        (Stage::Confirmed, "Confirmed", false),
        (Stage::Available, "Available", true),
        (Stage::Bound(text()), "Bound", true),
        (Stage::Retained(text()), "Retained", false),
        (Stage::Releasing(text()), "Releasing", false),
        (Stage::Wiping(text()), "Wiping", false),
        (Stage::WipeFailed(text()), "WipeFailed", false),
        (Stage::Missing(text()), "Missing", false),
        (Stage::Terminating(text()), "Terminating", false),
        (Stage::RemovalFailed(text()), "RemovalFailed", false),
        (Stage::Conflict(text()), "Conflict", true),
    ];
    for (stage, word, provisioned) in stages {
        let bare = matches!(stage, Stage::Claimed | Stage::Confirmed | Stage::Available);
        assert_eq!(
            (stage.as_str(), stage.is_provisioned(), stage.detail()),
            (word, provisioned, if bare { "" } else { "why" })
        );
    }
}

#[test]
fn a_volume_is_ours_by_its_finalizer() {
    let made = |annotated: bool, held: bool| {
        let annotations =
            if annotated { json!({names::IDENTITY_ANNOTATION: "wwn:1"}) } else { json!({}) };
        let finalizers = if held {
            json!([names::PV_FINALIZER])
        } else {
            json!(["kubernetes.io/pv-protection"])
        };
        pv::is_ours(&serde_json::from_value(json!({"metadata": {"name": "x", "annotations": annotations, "finalizers": finalizers}})).unwrap())
    };
    assert_eq!(
        [made(false, false), made(true, false), made(false, true), made(true, true)],
        [false, false, true, true]
    );
}

#[test]
fn sizes_are_rounded_down_and_small_ones_not_at_all() {
    const MIB: i64 = 1 << 20;
    const GIB: i64 = 1 << 30;
    for (size, rounded) in [
        (5 * MIB + 5, 5 * MIB + 5),
        (10 * MIB - 1, 10 * MIB - 1),
        (15 * MIB + 5, 15 * MIB),
        (9 * GIB + 5 * MIB + 5, 9 * GIB + 5 * MIB),
        (10 * GIB + 5 * MIB, 10 * GIB),
        (25 * GIB + 300 * MIB, 25 * GIB),
    ] {
        assert_eq!(pv::rounded(size).0, rounded.cast_unsigned());
    }
}

#[test]
fn mount_options_of_the_class_are_for_file_systems() {
    let options = |mode: &str, options: Value| {
        let mut world = world(vec![set("s", 1, json!({"volumeMode": mode}))], vec![disk("sda", 1)]);
        let class = json!({"metadata": {"name": "s"}, "provisioner": pv::NO_PROVISIONER, "mountOptions": options});
        world.classes.insert("s".into(), Arc::new(serde_json::from_value(class).unwrap()));
        step(&mut world);
        confirm(&mut world);
        let plan = step(&mut world);
        let [Step::CreatePv(pv)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        pv.spec.as_ref().unwrap().mount_options.clone()
    };
    assert_eq!(options("Filesystem", json!(["noatime"])), Some(vec!["noatime".to_owned()]));
    assert_eq!(
        (options("Filesystem", json!([])), options("Block", json!(["noatime"]))),
        (None, None)
    );
}

#[test]
fn a_class_goes_only_with_the_owner_that_it_was_made_for_or_one_that_names_it() {
    let world = published();
    let class = serde_json::to_value(&*world.classes["fast"]).unwrap();
    let owner = &world.demands[0].owner;
    let naming = |owner: &ClaimOwner, class: &str| Demand {
        owner: owner.clone(),
        ..set("x", 1, json!({"storageClassName": class}))
    };
    let is_his = |class: &Value, owner: &ClaimOwner| {
        pv::is_class_of(&serde_json::from_value(class.clone()).unwrap(), &naming(owner, "another"))
    };
    assert!(is_his(&class, owner));
    let others: [Change<ClaimOwner>; 3] = [
        |owner| owner.name = "other".into(),
        |owner| owner.namespace = Some("other".into()),
        |owner| owner.kind = "LocalVolume".into(),
    ];
    for change in others {
        let mut other = owner.clone();
        change(&mut other);
        assert!(!is_his(&class, &other), "{other:?}");
        assert!(
            pv::is_class_of(&world.classes["fast"], &naming(&other, "fast")),
            "whoever is the last to use it"
        );
    }
    let mut adopted = class.clone();
    adopted["metadata"]["labels"][quarry_api::crds::MANAGED_BY_LABEL] = json!("somebody");
    assert!(!is_his(&adopted, owner));
    assert!(!pv::is_class_of(&serde_json::from_value(adopted).unwrap(), &naming(owner, "fast")));
}

#[test]
fn a_want_tells_its_classes_and_what_it_asks_of_the_agents() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]});
    let set = set("s", 1, json!({"nodeSelector": selector}));
    assert_eq!(set.classes().collect::<Vec<_>>(), ["s"]);
    assert_eq!(local_volume("lv", &["/dev/sda"]).classes().collect::<Vec<_>>(), ["lv"]);
    let asker = set.asker().unwrap();
    assert_eq!(
        (asker.kind.as_str(), asker.name.as_str(), asker.api_version.as_str()),
        ("LocalVolumeSet", "s", "local.storage.openshift.io/v1alpha1")
    );
    assert_eq!(
        local_volume("lv", &["/dev/sda"]).asker().unwrap().api_version,
        "local.storage.openshift.io/v1"
    );
    assert!(
        local_volume("lv", &["sda"]).asker().is_none(),
        "what cannot be understood asks for nothing"
    );
}

#[test]
fn words_without_content_are_left_out() {
    let object = json!({
        "metadata": {"name": "s", "namespace": "quarry-system", "uid": "u", "annotations": {names::INCLUDE_NOT_LOCAL_ANNOTATION: "NBD, ,iscsi"}},
        "spec": {"storageClassName": "s"},
    });
    let DeviceSelection::Set(asked) = of_set(&serde_json::from_value(object).unwrap()).selection
    else {
        panic!()
    };
    assert_eq!(asked.not_local, ["nbd", "iscsi"]);
    let fs_type = |text: &str| {
        let spec = json!({"storageClassDevices": [{"storageClassName": "s", "fsType": text, "devicePaths": ["/dev/sda"]}]});
        let object = json!({"metadata": {"name": "s", "uid": "u"}, "spec": spec});
        let demand = of_local_volume(&serde_json::from_value(object).unwrap());
        let DeviceSelection::Paths(asked) = demand.selection else { panic!() };
        asked[0].settings.fs_type.clone()
    };
    assert_eq!((fs_type("xfs").as_deref(), fs_type("")), (Some("xfs"), None));
}
