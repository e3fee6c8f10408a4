//! What was used and not erased: the checks that stand behind the planner.

use super::*;

const IDENTITY: &str = "wwn:5000c50000000001";

fn entry(identity: &str, uid: &str) -> KeptData {
    KeptData { identity: identity.into(), pv_name: names::local_pv("n1", identity), pv_uid: uid.into() }
}

/// The plan that changes nothing.
fn same(world: &NodeWorld) -> Plan {
    let spec = &world.inventory.spec;
    Plan { claims: spec.claims.clone(), kept: spec.kept.clone(), machine_id: spec.machine_id.clone(), ..Plan::default() }
}

fn forgotten(what: &str) -> Result<(), Breach> {
    Err(Breach::Forgotten(what.into()))
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
    let job = world.inventory.spec.claims[0].job.clone().unwrap().name;
    let mut made = (*world.jobs[&job]).clone();
    made.status = serde_json::from_value(json!({"phase": phase, "runs": 1})).unwrap();
    world.jobs.insert(job, Arc::new(made));
    world
}

#[test]
fn a_record_goes_with_a_wipe_of_its_own_device_or_with_a_word_about_its_own_volume() {
    let without = |world: &NodeWorld, uid: &str| {
        let mut plan = same(world);
        plan.kept.retain(|kept| kept.pv_uid != uid);
        check(world, &plan)
    };
    let told = |annotation: Option<&str>| {
        let mut world = published();
        world.inventory.spec.kept = vec![entry(IDENTITY, "a"), entry("wwn:9", "b")];
        world.inventory.metadata.annotations = annotation.map(|text| [(names::FORGET_KEPT_ANNOTATION.to_owned(), text.to_owned())].into());
        world
    };
    assert_eq!(without(&told(None), "a"), forgotten(IDENTITY));
    assert_eq!(without(&told(Some("b")), "a"), forgotten(IDENTITY));
    assert_eq!((without(&told(Some("b, a")), "a"), without(&told(Some("a")), "a")), (Ok(()), Ok(())));
    assert_eq!(plan(&told(Some("b")), now()).kept, [entry(IDENTITY, "a")], "only what is named");
    for (phase, erased) in [("Succeeded", true), ("Failed", false), ("Running", false)] {
        let mut world = wiping(phase);
        world.inventory.spec.kept = vec![entry(IDENTITY, "a"), entry("wwn:9", "b")];
        assert_eq!(without(&world, "a"), if erased { Ok(()) } else { forgotten(IDENTITY) }, "{phase}");
        assert_eq!(without(&world, "b"), forgotten("wwn:9"), "{phase}: another device");
        let kept = plan(&world, now()).kept;
        assert_eq!(kept, if erased { vec![entry("wwn:9", "b")] } else { vec![entry(IDENTITY, "a"), entry("wwn:9", "b")] }, "{phase}");
    }
}

#[test]
fn what_is_used_is_not_over_without_a_wipe_or_a_record() {
    let mut world = published();
    world.inventory.spec.claims[0].last_volume = Some(LastVolume { uid: "pv-1".into(), over: false });
    assert_eq!(check(&world, &same(&world)), Ok(()), "it goes on");
    let over = |world: &NodeWorld, kept: Vec<KeptData>| {
        let mut plan = Plan { kept, ..same(world) };
        plan.claims[0].last_volume = Some(LastVolume { uid: "pv-1".into(), over: true });
        check(world, &plan)
    };
    assert_eq!(over(&world, vec![]), forgotten(IDENTITY));
    assert_eq!(over(&world, vec![entry("wwn:9", "pv-1")]), forgotten(IDENTITY));
    assert_eq!(over(&world, vec![entry(IDENTITY, "pv-1")]), Ok(()));
    let mut gone = same(&world);
    gone.claims.clear();
    assert_eq!(check(&world, &gone), forgotten(IDENTITY), "nor with its claim");
    let mut renamed = same(&world);
    renamed.claims[0].last_volume = None;
    assert_eq!(check(&world, &renamed), forgotten(IDENTITY));
    assert_eq!(over(&wiping("Succeeded"), vec![]), Ok(()));
    assert_eq!(over(&wiping("Failed"), vec![]), forgotten(IDENTITY));
}

#[test]
fn nothing_is_published_over_what_is_used_or_kept() {
    let publish = |change: &dyn Fn(&mut NodeWorld)| {
        let mut world = published();
        let made = Step::CreatePv(Box::new((*world.pvs[0]).clone()));
        world.pvs.clear();
        change(&mut world);
        let plan = same(&world);
        check(&world, &Plan { steps: vec![made], ..plan })
    };
    let data = Err(Breach::DataPublished(IDENTITY.into()));
    assert_eq!(publish(&|_| {}), Ok(()));
    assert_eq!(publish(&|world| world.inventory.spec.kept = vec![entry(IDENTITY, "a")]), data);
    assert_eq!(publish(&|world| world.inventory.spec.kept = vec![entry("wwn:9", "a")]), Ok(()));
    assert_eq!(publish(&|world| world.inventory.spec.claims[0].last_volume = Some(LastVolume { uid: "a".into(), over: false })), data);
    assert_eq!(publish(&|world| world.inventory.spec.claims[0].last_volume = Some(LastVolume { uid: "a".into(), over: true })), Ok(()));
    // Named by a path after it was kept: as it is. One that was named before that: not.
    let path = |world: &mut NodeWorld, round: i64| {
        world.inventory.spec.kept = vec![entry(IDENTITY, "a")];
        let claim = &mut world.inventory.spec.claims[0];
        (claim.content, claim.round) = (ClaimContent::Any, round);
        world.inventory.status.as_mut().unwrap().claims[0].round = round;
    };
    assert_eq!(publish(&|world| path(world, 1)), Ok(()));
    let mut world = published();
    path(&mut world, 2);
    assert!(super::super::life::withholds(&world, &world.inventory.spec.claims[0], &disk("sda", 1)));
}

#[test]
fn a_volume_without_a_claim_is_let_go_for_good_reasons_only() {
    let with = |change: &dyn Fn(&mut NodeWorld, &str), kept: Vec<KeptData>| {
        let mut world = published();
        let name = world.pvs[0].metadata.name.clone().unwrap();
        phase(&mut world, "Released");
        change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
        world.inventory.spec.claims.clear();
        change(&mut world, &name);
        let steps = vec![Step::ReleasePv { name, resource_version: "1".into(), finalizers: vec![] }];
        check(&world, &Plan { kept, steps, ..Plan::default() })
    };
    let name = names::local_pv("n1", IDENTITY);
    let kept = || vec![entry(IDENTITY, "pv-1")];
    assert_eq!(with(&|_, _| {}, kept()), Ok(()));
    assert_eq!(with(&|_, _| {}, vec![]), forgotten(&name));
    assert_eq!(with(&|_, _| {}, vec![entry(IDENTITY, "another")]), forgotten(&name));
    assert_eq!(with(&|_, _| {}, vec![entry("wwn:9", "pv-1")]), forgotten(&name));
    let unused = |world: &mut NodeWorld, name: &str| change_pv(world, name, |pv| pv["spec"]["claimRef"] = json!({"name": "c", "namespace": "d"}));
    assert_eq!(with(&unused, vec![]), Ok(()), "nobody has used it");
    let in_use = Err(Breach::InUse(name.clone()));
    let staying = |world: &mut NodeWorld, name: &str| change_pv(world, name, |pv| drop(pv["metadata"].as_object_mut().unwrap().remove("deletionTimestamp")));
    assert_eq!(with(&staying, kept()), in_use, "it is not going");
    assert_eq!(with(&|world, _| phase(world, "Bound"), kept()), in_use);
    let other = |world: &mut NodeWorld, _: &str| world.inventory.spec.machine_id = Some("m2".into());
    assert_eq!(with(&other, kept()), in_use, "of another machine");
    let foreign = |world: &mut NodeWorld, name: &str| change_pv(world, name, |pv| pv["metadata"]["finalizers"] = json!(["x/y"]));
    assert_eq!(with(&foreign, kept()), Err(Breach::NotOurs(name.clone())));
    assert_eq!(with(&|world, _| world.pvs.clear(), kept()), Err(Breach::NotOurs(name)));
}

#[test]
fn what_is_given_up_with_its_machine_is_on_record_whatever_is_left_of_it() {
    let given_up = |change: &dyn Fn(&mut NodeWorld)| {
        let mut world = published();
        let name = world.pvs[0].metadata.name.clone().unwrap();
        phase(&mut world, "Released");
        change_pv(&mut world, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
        world.node = None;
        world.inventory.metadata.annotations = Some([(names::RELEASE_CLAIMS_ANNOTATION.to_owned(), "m1".to_owned())].into());
        change(&mut world);
        let plan = step(&mut world);
        (names_of(&plan.steps), plan.claims.len(), plan.kept)
    };
    let kept = || vec![entry(IDENTITY, "pv-1")];
    let last = |over: bool| move |world: &mut NodeWorld| world.inventory.spec.claims[0].last_volume = Some(LastVolume { uid: "pv-1".into(), over });
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
