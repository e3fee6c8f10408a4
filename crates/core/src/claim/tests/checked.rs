//! What the checker refuses.

use super::*;

#[test]
fn check_refuses_what_a_mistaken_planner_could_propose() {
    let good = published();
    let pv_name = good.pvs[0].metadata.name.clone().unwrap();
    let claim = good.inventory.spec.claims[0].clone();
    let empty = Plan {
        claims: good.inventory.spec.claims.clone(),
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
    assert_eq!(check(&bound, &with(vec![delete.clone()])), Err(Breach::InUse(pv_name.clone())));
    assert_eq!(
        check(&good, &with(vec![release.clone()])),
        Err(Breach::InUse(pv_name.clone())),
        "not before it is going and its round is over"
    );
    assert!(matches!(check(&good, &with(vec![made.clone()])), Err(Breach::TwoOwners(_))));
    let stranger =
        Step::DeletePv { name: "other".into(), uid: "x".into(), resource_version: "1".into() };
    assert_eq!(check(&good, &with(vec![stranger])), Err(Breach::NotOurs("other".into())));

    let mut unconfirmed = good.clone();
    unconfirmed.pvs.clear();
    assert_eq!(check(&unconfirmed, &with(vec![made.clone()])), Ok(()));
    for (change, breach) in [
        (0, Breach::Unconfirmed(claim.identity.clone())),
        (1, Breach::DataPublished(claim.identity.clone())),
        (2, Breach::Doubtful(claim.identity.clone())),
        (3, Breach::Unconfirmed(claim.identity.clone())),
        (4, Breach::Frozen),
        (5, Breach::TwoOwners(claim.identity.clone())),
    ] {
        let mut world = unconfirmed.clone();
        let status = world.inventory.status.as_mut().unwrap();
        match change {
            0 => status.claims.clear(),
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
            3 => status.claims[0].round = 9,
            4 => status.machine_id = Some("m2".into()),
            _ => world.wants[0].terminating = true,
        }
        assert_eq!(check(&world, &with(vec![made.clone()])), Err(breach), "{change}");
    }

    let forgotten = Plan { claims: vec![], ..empty.clone() };
    assert_eq!(check(&good, &forgotten), Err(Breach::LeftBehind(claim.identity.clone())));
    let changed = Plan { claims: vec![Claim { size: 1, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &changed), Err(Breach::Changed(claim.identity.clone())));
    let back = Plan { claims: vec![Claim { round: 0, ..claim.clone() }], ..empty.clone() };
    assert_eq!(check(&good, &back), Err(Breach::Changed(claim.identity.clone())));
    let rival = Claim {
        owner: quarry_api::node_inventory::ClaimOwner {
            uid: "uid-other".into(),
            ..claim.owner.clone()
        },
        ..claim.clone()
    };
    let twice = Plan { claims: vec![claim.clone(), rival], ..empty.clone() };
    assert_eq!(check(&good, &twice), Err(Breach::TwoOwners(claim.identity.clone())));

    // A wipe needs its whole reason: recorded, going, released, of this node and size.
    let mut releasing = good.clone();
    phase(&mut releasing, "Released");
    change_pv(&mut releasing, &pv_name, |pv| {
        pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z")
    });
    let job = wiping::wipe_job(
        &releasing,
        &claim,
        &releasing.pvs[0],
        quarry_api::node_job::WipePolicy::Quick,
        1,
    )
    .unwrap();
    let wipe = Step::CreateJob(Box::new(job.clone()));
    assert!(
        matches!(check(&releasing, &with(vec![wipe.clone()])), Err(Breach::UnfoundedWipe(_))),
        "not on record"
    );
    let record = |world: &mut NodeWorld| {
        world.inventory.spec.claims[0].job =
            Some(ClaimJob { name: job.metadata.name.clone().unwrap(), attempt: 1 })
    };
    record(&mut releasing);
    let with_job = |world: &NodeWorld| Plan {
        claims: world.inventory.spec.claims.clone(),
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
    let second = Claim { owner: free.wants[1].owner.clone(), ..first.clone() };
    let twice = Plan { claims: vec![first.clone(), second], ..planned.clone() };
    assert_eq!(check(&free, &twice), Err(Breach::TwoOwners(first.identity.clone())));
    assert_eq!(check(&free, &planned), Ok(()));

    // It is forgotten when it was ending, the agent says that it has ended, and no PersistentVolume is left.
    free.inventory.spec.claims = vec![Claim { ending: true, ..first.clone() }];
    confirm(&mut free);
    let forgotten = Plan { claims: vec![], ..Plan::default() };
    assert_eq!(check(&free, &forgotten), Ok(()));
    let left = Err(Breach::LeftBehind(first.identity.clone()));
    let mut alive = free.clone();
    alive.inventory.spec.claims[0].ending = false;
    assert_eq!(check(&alive, &forgotten), left, "nobody ended it");
    let mut silent = free.clone();
    silent.inventory.status.as_mut().unwrap().claims.clear();
    assert_eq!(check(&silent, &forgotten), left, "the agent has not said so");
    let mut refused = free.clone();
    refused.inventory.status.as_mut().unwrap().claims[0].state = ClaimState::Refused;
    assert_eq!(check(&refused, &forgotten), left, "the agent says something else");
    let mut published = published();
    published.inventory.spec.claims[0].ending = true;
    confirm(&mut published);
    assert!(
        matches!(check(&published, &forgotten), Err(Breach::LeftBehind(_))),
        "its PersistentVolume is there"
    );
}
