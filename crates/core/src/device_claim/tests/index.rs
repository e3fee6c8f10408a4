//! A later rival: another node shows the identity of a disk that is published here.

use super::*;

const IDENTITY: &str = "wwn:5000c50000000001";

/// The ways in which this node learns that another one shows the identity of its disk.
fn rivals() -> Vec<NodeWorld> {
    let known =
        || RemoteIdentity { identity: IDENTITY.into(), node: "n2".into(), device: "sdx".into() };
    let quarantined = |world: &mut NodeWorld| {
        world.inventory.spec.quarantine =
            crate::quarantine::plan(&world.inventory.clone(), &[known()])
    };
    let shown = |world: &mut NodeWorld| {
        let finding =
            DeviceReason { reason: "IdentityElsewhere".into(), detail: "sdx of node n2".into() };
        world.inventory.status.as_mut().unwrap().devices[0].reasons = vec![finding];
    };
    let changes: [&dyn Fn(&mut NodeWorld); 3] =
        [&|world| world.elsewhere = vec![known()], &quarantined, &shown];
    let with = |change: &&dyn Fn(&mut NodeWorld)| {
        let mut world = published();
        change(&mut world);
        world
    };
    changes.iter().map(with).collect()
}

/// One agent that lies about its disks must not withdraw the PersistentVolumes of other nodes.
// invariant: 3
#[test]
fn a_later_rival_withdraws_no_published_pv() {
    for (number, mut world) in rivals().into_iter().enumerate() {
        assert!(step(&mut world).steps.is_empty(), "{number}");
        assert!(
            matches!(stage(&world), Stage::Conflict(why) if why.contains("is published") && why.contains("n2")),
            "{number}: {:?}",
            stage(&world)
        );
        assert!(stage(&world).is_provisioned(), "{number}: it can be used");
        // It is bound, and stays so.
        let mut bound = world.clone();
        phase(&mut bound, "Bound");
        assert!(step(&mut bound).steps.is_empty() && matches!(stage(&bound), Stage::Conflict(_)));
        // Nothing new: once it is deleted it is not published again.
        tear_down(&mut world);
        assert!(step(&mut world).steps.is_empty(), "{number}");
        assert!(matches!(stage(&world), Stage::Blocked(why) if why.contains("n2")), "{number}");
    }
}

// invariant: 3
#[test]
fn a_later_rival_stops_wipes() {
    for (number, mut world) in rivals().into_iter().enumerate() {
        phase(&mut world, "Released");
        let plan = step(&mut world);
        assert_eq!(names_of(&plan.steps), ["DeletePv"]);
        apply(&mut world, &plan.steps);
        let plan = step(&mut world);
        assert_eq!((plan.steps.len(), &plan.claims[0].job), (0, &None), "{number}");
        assert!(
            matches!(stage(&world), Stage::WipeFailed(why) if why.contains("n2") && why.contains("to Retain")),
            "{number}"
        );
        // Recorded before the rival came: it is not created now, and the checker refuses it.
        let job = device_claim::wipe::wipe_job(
            &world,
            &world.inventory.spec.device_claims[0],
            &world.pvs[0],
            WipePolicy::Discard,
            1,
        )
        .unwrap();
        let name = job.metadata.name.clone().unwrap();
        world.inventory.spec.device_claims[0].job = Some(ClaimJob { name, attempt: 1 });
        let plan = step(&mut world);
        assert!(plan.steps.is_empty(), "{number}");
        let wrong = Plan { steps: vec![Step::CreateJob(Box::new(job.clone()))], ..plan };
        assert_eq!(
            check(&world, &wrong),
            vec![Violation::Quarantined(IDENTITY.into())],
            "{number}"
        );
        // One that was done is believed.
        apply(&mut world, &wrong.steps);
        finish(&mut world, "Succeeded", NOW);
        assert_eq!(step(&mut world).claims[0].round, 2, "{number}");
    }
}
