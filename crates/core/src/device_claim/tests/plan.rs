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

/// Firmware gives two disks the same by-id name: each still gets a link of its own.
// invariant: 2
#[test]
fn every_device_claim_has_an_id_and_a_link_of_its_own() {
    let twin = Device { device_id: disk("sda", 1).device_id, ..disk("sdb", 2) };
    let mut world = world(vec![set("s", 1, json!({}))], vec![disk("sda", 1), twin]);
    let claims = step(&mut world).claims;
    assert_eq!(claims.len(), 2);
    assert_ne!(claims[0].link, claims[1].link);
    assert!(claims[1].link.starts_with(&claims[0].link));
    assert!(claims[0].id.len() == 16 && claims[0].id != claims[1].id);
    assert_eq!(claims[0].identifiers, [claims[0].identity.clone()]);
    assert_eq!(step(&mut world).claims, claims, "a plan on its own result changes nothing");
    let mut shared = super::plan(&world, now());
    world.inventory.spec.device_claims.clear();
    shared.claims[1].link = shared.claims[0].link.clone();
    let expected = Violation::SharedLink(shared.claims[0].link.clone());
    assert!(check(&world, &shared).contains(&expected));
}

/// Read rather once too often: whatever could end a device claim must not be decided from a cache.
// invariant: 5
#[test]
fn a_pv_that_a_cache_lacks_is_read_unless_nothing_depends_on_it() {
    let mut plain = published();
    plain.pvs.clear();
    assert_eq!(reads::absent_pvs(&plain), [""; 0], "it is on its way to a PersistentVolume");
    let name = names::local_pv("n1", disk("sda", 1).identity.as_deref().unwrap());
    let changes: [Change<NodeWorld>; 12] = [
        |world| world.inventory.spec.device_claims[0].terminating = true,
        |world| {
            world.inventory.spec.device_claims[0].job =
                Some(ClaimJob { name: "j".into(), attempt: 1 })
        },
        |world| {
            world.inventory.spec.device_claims[0].last_pv =
                Some(LastPv { uid: "pv-1".into(), ..LastPv::default() })
        },
        |world| world.demands.clear(),
        |world| world.demands[0].terminating = true,
        |world| world.demands = vec![set("fast", 1, json!({"volumeMode": "Filesystem"}))],
        |world| {
            let models = json!({"deviceInclusionSpec": {"models": ["other"]}});
            world.demands = vec![set("fast", 1, models)]
        },
        |world| world.inventory.status.as_mut().unwrap().devices.clear(),
        |world| world.inventory.status.as_mut().unwrap().devices[0].size += 1,
        |world| {
            let status = world.inventory.status.as_mut().unwrap();
            status.device_claims[0].state = ClaimState::Refused
        },
        |world| world.inventory.status = None,
        |world| {
            world.node = None;
            world.inventory.metadata.annotations =
                Some([(names::RELEASE_DEVICE_CLAIMS_ANNOTATION.to_owned(), "m1".to_owned())].into())
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut world = plain.clone();
        change(&mut world);
        assert_eq!(reads::absent_pvs(&world), std::slice::from_ref(&name), "{number}");
    }
}
