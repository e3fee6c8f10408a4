//! What uses a device.

use super::*;

// invariant: 3
#[test]
fn another_pv_on_the_device_is_found_at_every_stage() {
    let foreign = |world: &mut NodeWorld| {
        let pv = json!({"metadata": {"name": "lso", "annotations": {names::LSO_DEVICE_ID_ANNOTATION: "wwn-0x5000c50000000001"}}, "spec": {"local": {"path": "/mnt/x"}}});
        world.pvs.push(Arc::new(serde_json::from_value(pv).unwrap()));
    };
    let mut confirmed = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut confirmed);
    confirm(&mut confirmed);
    let published_by_us = plan(&confirmed, now());
    foreign(&mut confirmed);
    assert!(step(&mut confirmed).steps.is_empty());
    assert!(
        matches!(stage(&confirmed), Stage::Blocked(why) if why.contains("PersistentVolume lso is on sda"))
    );
    assert_eq!(
        check(&confirmed, &published_by_us),
        vec![Violation::Used("wwn:5000c50000000001".into())]
    );
    let mut offered = published();
    foreign(&mut offered);
    assert_eq!(names_of(&step(&mut offered).steps), ["DeletePv"]);
    let mut bound = published();
    phase(&mut bound, "Bound");
    foreign(&mut bound);
    assert!(step(&mut bound).steps.is_empty());
    assert!(
        matches!(stage(&bound), Stage::Conflict(why) if why.contains("PersistentVolume lso is on the same device"))
    );
    // Reported by the agent, which resolves paths that only it can follow.
    for reason in ["BacksPersistentVolume", "BacksVolume"] {
        let mut reported = published();
        reported.inventory.status.as_mut().unwrap().devices =
            vec![with_reason(disk("sda", 1), reason, DeviceState::NotAvailable)];
        assert_eq!(names_of(&step(&mut reported).steps), ["DeletePv"], "{reason}");
    }
}
