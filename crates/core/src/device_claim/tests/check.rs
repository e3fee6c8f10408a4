//! What the checker refuses.

use super::*;

#[test]
fn check_refuses_what_a_mistaken_planner_could_propose() {
    let good = published();
    let pv_name = good.pvs[0].metadata.name.clone().unwrap();
    let claim = good.inventory.spec.device_claims[0].clone();
    let empty = Plan {
        claims: good.inventory.spec.device_claims.clone(),
        machine_id: Some("m1".into()),
        ..Plan::default()
    };
    assert_eq!(check(&good, &empty), Ok(()));
    let with = |steps: Vec<Step>| Plan { steps, ..empty.clone() };
    let delete =
        Step::DeletePv { name: pv_name.clone(), uid: "pv-1".into(), resource_version: "1".into() };
    let release =
        Step::ReleasePv { name: pv_name.clone(), resource_version: "1".into(), finalizers: vec![] };
    let made = Step::CreatePv(Box::new((*good.pvs[0]).clone()));

    let mut bound = good.clone();
    phase(&mut bound, "Bound");
    assert_eq!(check(&bound, &with(vec![delete.clone()])), Err(Violation::InUse(pv_name.clone())));
    assert_eq!(
        check(&good, &with(vec![release.clone()])),
        Err(Violation::InUse(pv_name.clone())),
        "not before it is going and its round is over"
    );
    assert!(matches!(check(&good, &with(vec![made.clone()])), Err(Violation::TwoOwners(_))));
    let stranger =
        Step::DeletePv { name: "other".into(), uid: "x".into(), resource_version: "1".into() };
    assert_eq!(check(&good, &with(vec![stranger])), Err(Violation::NotOurs("other".into())));

    let mut unconfirmed = good.clone();
    unconfirmed.pvs.clear();
    assert_eq!(check(&unconfirmed, &with(vec![made.clone()])), Ok(()));
    for (change, violation) in [
        (0, Violation::Unconfirmed(claim.identity.clone())),
        (1, Violation::DataPublished(claim.identity.clone())),
        (2, Violation::Doubtful(claim.identity.clone())),
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
                world.elsewhere = vec![Elsewhere {
                    identity: claim.identity.clone(),
                    node: "n2".into(),
                    device: "x".into(),
                }]
            }
            3 => status.device_claims[0].round = 9,
            4 => status.machine_id = Some("m2".into()),
            _ => world.demands[0].terminating = true,
        }
        assert_eq!(check(&world, &with(vec![made.clone()])), Err(violation), "{change}");
    }

    let forgotten = Plan { claims: vec![], ..empty.clone() };
    assert_eq!(check(&good, &forgotten), Err(Violation::LeftBehind(claim.identity.clone())));
    let changed = Plan { claims: vec![DeviceClaim { size: 1, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &changed), Err(Violation::Changed(claim.identity.clone())));
    let back = Plan { claims: vec![DeviceClaim { round: 0, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &back), Err(Violation::Changed(claim.identity.clone())));
    let rival = DeviceClaim {
        owner: quarry_api::node_inventory::ClaimOwner {
            uid: "uid-other".into(),
            ..claim.owner.clone()
        },
        ..claim.clone()
    };
    let twice = Plan { claims: vec![claim.clone(), rival], ..empty.clone() };
    assert_eq!(check(&good, &twice), Err(Violation::TwoOwners(claim.identity.clone())));

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
        matches!(check(&releasing, &with(vec![wipe.clone()])), Err(Violation::UnfoundedWipe(_))),
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
    assert_eq!(check(&releasing, &with_job(&releasing)), Ok(()));
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
        assert!(check(&world, &with_job(&world)).is_err(), "{change}");
    }
}

#[test]
fn check_refuses_two_new_claims_on_one_device_and_a_claim_forgotten_too_soon() {
    let mut free =
        world(vec![set("old", 2, json!({})), set("young", 1, json!({}))], vec![disk("sda", 1)]);
    let planned = plan(&free, now());
    let [first] = planned.claims.as_slice() else { panic!("{planned:?}") };
    let second = DeviceClaim { owner: free.demands[1].owner.clone(), ..first.clone() };
    let twice = Plan { claims: vec![first.clone(), second], ..planned.clone() };
    assert_eq!(check(&free, &twice), Err(Violation::TwoOwners(first.identity.clone())));
    assert_eq!(check(&free, &planned), Ok(()));

    // It is forgotten when it was ending, the agent says that it has ended, and no PersistentVolume is left.
    free.inventory.spec.device_claims = vec![DeviceClaim { terminating: true, ..first.clone() }];
    confirm(&mut free);
    let forgotten = Plan { claims: vec![], ..Plan::default() };
    assert_eq!(check(&free, &forgotten), Ok(()));
    let left = Err(Violation::LeftBehind(first.identity.clone()));
    let mut alive = free.clone();
    alive.inventory.spec.device_claims[0].terminating = false;
    assert_eq!(check(&alive, &forgotten), left, "nobody ended it");
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
        matches!(check(&published, &forgotten), Err(Violation::LeftBehind(_))),
        "its PersistentVolume is there"
    );
}
