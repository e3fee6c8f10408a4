//! The plan of a node as a whole.

use super::*;

/// Who cannot say which machine he is, is another one.
#[test]
fn a_machine_without_id_is_another_machine() {
    let mut world = published();
    world.inventory.spec.machine_id = Some("m1".into());
    assert!(!is_frozen(&world));
    world.inventory.status.as_mut().unwrap().machine_id = None;
    assert!(is_frozen(&world) && matches!(stage(&world), Stage::Frozen(_)));
    world.inventory.status = None;
    assert!(!is_frozen(&world), "it has said nothing yet");
}

/// A cache shows a volume that was wiped and let go; its successor is on record already.
#[test]
fn a_pv_unknown_to_its_device_claim_is_read_live() {
    let mut world = published();
    phase(&mut world, "Released");
    let mut older = world.clone();
    assert_eq!(unfamiliar(&older), [""; 0], "of a first volume there is no other");
    older.inventory.spec.device_claims[0].last_pv = last_pv("another", true);
    let name = older.pvs[0].metadata.name.clone().unwrap();
    assert_eq!(unfamiliar(&older), std::slice::from_ref(&name));
    older.inventory.spec.device_claims[0].last_pv = last_pv(&uid(&older), false);
    assert_eq!(unfamiliar(&older), [""; 0]);
    let mut fresh = published();
    fresh.inventory.spec.device_claims[0].last_pv = last_pv("another", true);
    assert_eq!(unfamiliar(&fresh), [""; 0], "it was never used, and it stays");
    change_pv(&mut fresh, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    assert_eq!(unfamiliar(&fresh), std::slice::from_ref(&name));
    // Should it be on record all the same that an older one was used: its data is taken to be there, and all goes on.
    fresh.inventory.spec.device_claims[0].last_pv = last_pv("another", false);
    let plan = step(&mut fresh);
    assert_eq!(
        (
            plan.retained_data.len(),
            plan.retained_data[0].pv_uid.as_str(),
            plan.claims[0].last_pv.as_ref().unwrap().resolved
        ),
        (1, "another", true)
    );
}
