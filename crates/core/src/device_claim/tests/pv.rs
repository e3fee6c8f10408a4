//! PersistentVolumes of device claims.

use super::*;

#[test]
fn a_pv_is_ours_by_its_finalizer() {
    let made = |annotated: bool, held: bool| {
        let annotations =
            if annotated { json!({names::IDENTITY_ANNOTATION: "wwn:1"}) } else { json!({}) };
        let finalizers = if held {
            json!([names::PV_FINALIZER])
        } else {
            json!(["kubernetes.io/pv-protection"])
        };
        device_claim::pv::is_ours(&serde_json::from_value(json!({"metadata": {"name": "x", "annotations": annotations, "finalizers": finalizers}})).unwrap())
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
        assert_eq!(device_claim::pv::rounded(size).0, rounded.cast_unsigned());
    }
}

#[test]
fn mount_options_of_the_class_are_for_file_systems() {
    let options = |mode: &str, options: Value| {
        let mut world = world(vec![set("s", 1, json!({"volumeMode": mode}))], vec![disk("sda", 1)]);
        let class = json!({"metadata": {"name": "s"}, "provisioner": device_claim::pv::NO_PROVISIONER, "mountOptions": options});
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
fn a_class_is_deleted_only_with_its_owner() {
    let world = published();
    let class = serde_json::to_value(&*world.classes["fast"]).unwrap();
    let owner = &world.demands[0].owner;
    let naming = |owner: &ClaimOwner, class: &str| Demand {
        owner: owner.clone(),
        ..set("x", 1, json!({"storageClassName": class}))
    };
    let is_his = |class: &Value, owner: &ClaimOwner| {
        device_claim::pv::is_class_of(
            &serde_json::from_value(class.clone()).unwrap(),
            &naming(owner, "another"),
        )
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
            device_claim::pv::is_class_of(&world.classes["fast"], &naming(&other, "fast")),
            "the last owner that uses it"
        );
    }
    let mut adopted = class.clone();
    adopted["metadata"]["labels"][quarry_api::crds::MANAGED_BY_LABEL] = json!("other");
    assert!(!is_his(&adopted, owner));
    assert!(!device_claim::pv::is_class_of(
        &serde_json::from_value(adopted).unwrap(),
        &naming(owner, "fast")
    ));
}

#[test]
fn a_pv_without_annotations_is_deleted_normally() {
    let mut world = published();
    let name = world.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut world, &name, |pv| pv["metadata"]["annotations"] = json!({}));
    assert_eq!(stage(&world), Stage::Available);
    tear_down(&mut world);
    assert!(world.pvs.is_empty());
    // One with the annotation of another device is not removed, and the message has a remedy.
    let mut other = published();
    change_pv(&mut other, &name, |pv| {
        pv["metadata"]["annotations"][names::IDENTITY_ANNOTATION] = json!("wwn:9");
        pv["metadata"]["deletionTimestamp"] = json!(NOW);
    });
    assert!(step(&mut other).steps.is_empty());
    assert!(
        matches!(stage(&other), Stage::Blocked(why) if why.contains("restore the original value"))
    );
}
