use super::*;
use crate::device_claim::publication::{may_apply, publishable};

/// Two confirmed disks that the plan publishes.
fn publishing() -> (NodeWorld, Vec<Step>) {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1), disk("sdb", 2)]);
    step(&mut world);
    confirm(&mut world);
    let steps = step(&mut world).steps;
    assert_eq!(names_of(&steps), ["CreateClass", "CreatePv", "CreatePv"]);
    (world, steps)
}

fn applied(world: &NodeWorld, live: &NodeInventory, steps: &[Step]) -> Vec<bool> {
    let publishable = publishable(world, live, steps);
    steps.iter().map(|step| may_apply(step, steps, &publishable)).collect()
}

// invariant: 1
#[test]
fn only_what_the_inventory_still_confirms_is_published() {
    let (world, steps) = publishing();
    assert_eq!(applied(&world, &world.inventory, &steps), [true, true, true]);
    // The first device claim alone is outdated: its PersistentVolume waits, the other is created, with the class.
    let one: [Change<NodeInventory>; 5] = [
        |live| live.status.as_mut().unwrap().device_claims[0].linked = false,
        |live| live.status.as_mut().unwrap().device_claims[0].state = ClaimState::Refused,
        |live| live.spec.device_claims[0].round = 2,
        |live| live.spec.device_claims[0].terminating = true,
        |live| {
            let device = &mut live.status.as_mut().unwrap().devices[0];
            *device = with_reason(device.clone(), "UnknownData", DeviceState::NotAvailable);
        },
    ];
    for (number, change) in one.into_iter().enumerate() {
        let mut live = world.inventory.clone();
        change(&mut live);
        assert_eq!(applied(&world, &live, &steps), [true, false, true], "{number}");
    }
    let all: [Change<NodeInventory>; 4] = [
        |live| live.metadata.uid = Some("recreated".into()),
        |live| live.spec.device_claims.clear(),
        |live| live.status = None,
        |live| live.status.as_mut().unwrap().machine_id = Some("m2".into()),
    ];
    for (number, change) in all.into_iter().enumerate() {
        let mut live = world.inventory.clone();
        change(&mut live);
        assert_eq!(applied(&world, &live, &steps), [false, false, false], "{number}");
    }
}

#[test]
fn a_step_that_publishes_nothing_needs_no_confirmation() {
    let (world, _) = publishing();
    let steps = [
        Step::DeletePv { name: "p".into(), uid: "u".into(), resource_version: "1".into() },
        Step::ReleasePv { name: "p".into(), resource_version: "1".into(), finalizers: vec![] },
    ];
    let mut live = world.inventory.clone();
    live.spec.device_claims.clear();
    assert_eq!(applied(&world, &live, &steps), [true, true]);
}
