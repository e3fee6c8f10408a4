//! Identities that two nodes show, and identities that change.

use super::*;
use quarry_api::{
    NodeInventoryStatus,
    node_inventory::{ClaimOwner, DeviceClaim, DeviceReason, Evidence, RetainedData},
};

fn device(name: &str, identity: &str) -> Device {
    Device { name: name.into(), identity: Some(identity.into()), ..Device::default() }
}

fn inventory(devices: Vec<Device>) -> NodeInventory {
    let mut made = NodeInventory::new("n1", NodeInventorySpec::default());
    made.status = Some(NodeInventoryStatus { devices, ..NodeInventoryStatus::default() });
    made
}

fn having(claims: Vec<DeviceClaim>) -> NodeInventorySpec {
    NodeInventorySpec { device_claims: claims, ..NodeInventorySpec::default() }
}

fn accepting(text: &str) -> Option<BTreeMap<String, String>> {
    Some([(names::ACCEPT_IDENTITY_ANNOTATION.to_owned(), text.to_owned())].into())
}

// invariant: 3
#[test]
fn an_identity_on_two_nodes_concerns_both() {
    let mut known = Identities::default();
    let shared = vec![device("sda", "wwn:1"), device("sdb", "wwn:2")];
    assert!(known.follow("n1", &shared, None).is_empty());
    assert_eq!(known.follow("n2", &[device("sdx", "wwn:2")], None), ["n1".to_owned()].into());
    let plan_of = |known: &Identities| plan(&inventory(shared.clone()), &known.elsewhere("n1"));
    let planned = plan_of(&known);
    assert_eq!(
        planned,
        [Quarantine {
            identity: "wwn:2".into(),
            reason: "IdentityElsewhere".into(),
            detail: "sdx of node n2".into()
        }]
    );
    assert_eq!(known.elsewhere("n2")[0].node, "n1");
    // Nothing new: no node is concerned.
    assert!(known.follow("n2", &[device("sdx", "wwn:2")], None).is_empty());
    // It has another name there now: the text changes.
    assert_eq!(known.follow("n2", &[device("sdy", "wwn:2")], None), ["n1".to_owned()].into());
    assert_eq!(known.follow("n2", &[], None), ["n1".to_owned()].into());
    assert_eq!(plan_of(&known), []);
    known.follow("n1", &[], None);
    assert!(known.shown.is_empty() && known.of_node.is_empty(), "what is gone takes no room");
}

// invariant: 3
#[test]
fn a_disk_claimed_by_another_node_is_quarantined() {
    let claim = |identity: &str| DeviceClaim {
        identity: identity.into(),
        owner: ClaimOwner {
            kind: "LocalVolumeSet".into(),
            namespace: Some("s".into()),
            name: "fast".into(),
            uid: "u".into(),
        },
        ..DeviceClaim::default()
    };
    let (disk, claims) = ([device("sda", "wwn:1")], having(vec![claim("wwn:1")]));
    let mut known = Identities::default();
    known.follow("n1", &disk, None);
    assert!(known.follow("n1", &disk, Some(&claims)).is_empty());
    assert_eq!(known.elsewhere("n1"), [], "its own device claim is not on another node");
    // Pulled, and plugged in elsewhere.
    known.follow("n1", &[], Some(&claims));
    assert_eq!(known.follow("n2", &[device("sdb", "wwn:1")], None), ["n1".to_owned()].into());
    let planned = |node: &str, shown: Vec<Device>| {
        plan(&inventory(shown), &known.elsewhere(node))
            .into_iter()
            .map(|entry| entry.detail)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        planned("n2", vec![device("sdb", "wwn:1")]),
        ["the device claim of LocalVolumeSet s/fast on a missing device of node n1"]
    );
    assert_eq!(
        planned("n1", vec![]),
        ["sdb of node n2"],
        "the node that claims it learns where it is"
    );
    // Nothing new: no node is concerned. Released: the other one is.
    assert!(known.follow("n1", &[], Some(&claims)).is_empty());
    assert_eq!(known.follow("n1", &[], None), ["n2".to_owned()].into());
    assert_eq!((known.elsewhere("n1"), known.elsewhere("n2")), (vec![], vec![]));
    // Two device claims and one disk: both are blocked.
    known.follow("n1", &[], Some(&claims));
    known.follow("n2", &[device("sdb", "wwn:1")], Some(&claims));
    assert_eq!((known.elsewhere("n1").len(), known.elsewhere("n2").len()), (1, 1));
    // Another disk does not count, and neither does a file of the same path.
    known.follow("n3", &[device("sdc", "wwn:2"), device("loop0", "file:/x:1:2")], None);
    known.follow("n4", &[], Some(&having(vec![claim("file:/x:1:2")])));
    assert_eq!(known.elsewhere("n3"), []);
}

/// Its data is recorded for the node that it was unplugged from: it is not claimed elsewhere, even if it looks blank.
// invariant: 3
#[test]
fn retained_data_is_known_on_every_node() {
    let kept = NodeInventorySpec {
        retained_data: vec![RetainedData {
            identity: "wwn:1".into(),
            pv_name: "local-pv-1".into(),
            pv_uid: "p".into(),
            ..RetainedData::default()
        }],
        ..NodeInventorySpec::default()
    };
    let mut known = Identities::default();
    known.follow("n1", &[], Some(&kept));
    known.follow("n2", &[device("sdb", "wwn:1")], None);
    let planned = plan(&inventory(vec![device("sdb", "wwn:1")]), &known.elsewhere("n2"));
    assert_eq!(
        (planned.len(), planned[0].detail.as_str()),
        (1, "the data that PersistentVolume local-pv-1 left on a device of node n1")
    );
    assert_eq!(
        known.follow("n1", &[], None),
        ["n2".to_owned()].into(),
        "forgotten there, free here"
    );
}

// invariant: 3
#[test]
fn device_claim_by_weaker_identity_is_found_on_another_node() {
    let evidence =
        [("sysfs:vpd80", "S1"), ("sysfs:model", "M"), ("sysfs:wwid", "naa.5000c50000000001")];
    let evidence = evidence
        .map(|(source, value)| Evidence { source: source.into(), value: value.into() })
        .into();
    let shown = Device { kind: "disk".into(), evidence, ..device("sdb", "wwn:5000c50000000001") };
    let mut known = Identities::default();
    known.follow(
        "n1",
        &[],
        Some(&having(vec![DeviceClaim {
            identity: "serial:M:S1".into(),
            ..DeviceClaim::default()
        }])),
    );
    known.follow("n2", std::slice::from_ref(&shown), None);
    assert_eq!(known.elsewhere("n2")[0].identity, "wwn:5000c50000000001");
    known.follow(
        "n1",
        &[],
        Some(&having(vec![DeviceClaim {
            identity: "wwn:5000c50000000002".into(),
            ..DeviceClaim::default()
        }])),
    );
    assert_eq!(known.elsewhere("n2"), []);
}

#[test]
fn less_evidence_on_another_node_is_still_the_same_disk() {
    let with = |name: &str, identity: &str, evidence: &[(&str, &str)]| Device {
        kind: "disk".into(),
        evidence: evidence
            .iter()
            .map(|(source, value)| Evidence { source: (*source).into(), value: (*value).into() })
            .collect(),
        ..device(name, identity)
    };
    let serial = [("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
    let full = [serial[0], serial[1], ("sysfs:wwid", "naa.5000c50000000001")];
    let other = [serial[0], serial[1], ("sysfs:wwid", "naa.5000c50000000002")];
    let mut known = Identities::default();
    known.follow("n1", &[with("sda", "wwn:5000c50000000001", &full)], None);
    assert_eq!(
        known.follow("n2", &[with("sdb", "serial:M:S1", &serial)], None),
        ["n1".to_owned()].into()
    );
    assert_eq!((known.elsewhere("n1").len(), known.elsewhere("n2").len()), (1, 1));
    assert_eq!(known.elsewhere("n1")[0].identity, "wwn:5000c50000000001");
    known.follow("n2", &[with("sdb", "wwn:5000c50000000002", &other)], None);
    assert_eq!(known.elsewhere("n1"), [], "equal serials, but different WWNs");
}

/// Many disks with the same serial, each with its own WWN: a disk that shows only the serial may be any of them.
#[test]
fn all_nodes_that_list_a_node_are_concerned() {
    let serial = [("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
    let with = |identity: &str, wwid: Option<&str>| Device {
        kind: "disk".into(),
        evidence: serial
            .iter()
            .copied()
            .chain(wwid.map(|wwid| ("sysfs:wwid", wwid)))
            .map(|(source, value)| Evidence { source: source.into(), value: value.into() })
            .collect(),
        ..device("sda", identity)
    };
    let mut known = Identities::default();
    for number in 0..8 {
        let (identity, wwid) =
            (format!("wwn:5000c5000000000{number}"), format!("naa.5000c5000000000{number}"));
        assert!(
            known.follow(&format!("n{number}"), &[with(&identity, Some(&wwid))], None).is_empty()
        );
    }
    assert_eq!(known.follow("n9", &[with("serial:M:S1", None)], None).len(), 8);
    assert!((0..8).all(|number| known.elsewhere(&format!("n{number}")).len() == 1));
    assert_eq!(known.follow("n9", &[], None).len(), 8);
}

#[test]
fn loop_files_and_missing_identities_are_not_compared() {
    let mut known = Identities::default();
    let own =
        [device("loop0", "file:/var/x:12:3"), Device { name: "sdz".into(), ..Device::default() }];
    known.follow("n1", &own, None);
    assert!(known.follow("n2", &own, None).is_empty());
    assert_eq!(known.elsewhere("n1"), []);
}

#[test]
fn a_thousand_nodes_from_one_image_are_summarized() {
    let mut known = Identities::default();
    let devices: Vec<Device> =
        (0..24).map(|number| device(&format!("sda{number}"), &format!("part:{number}"))).collect();
    for node in 0..1000 {
        known.follow(&format!("n{node}"), &devices, None);
    }
    assert_eq!(known.elsewhere("n500").len(), 24 * 4);
    assert!(known.follow("n999", &[], None).is_empty(), "no node lists it");
    assert_eq!(known.follow("n1", &[], None).len(), 998);
    known.follow("n1", &devices, None);
    let planned = plan(&inventory(devices), &known.elsewhere("n500"));
    assert_eq!(
        (planned.len(), planned[0].detail.as_str()),
        (24, "sda0 of node n0, sda0 of node n1, sda0 of node n10 and others")
    );
}

// invariant: 3
#[test]
fn a_changed_identity_is_held_until_it_is_accepted() {
    let mut changed = device("sda", "serial:m:2");
    changed.reasons =
        vec![DeviceReason { reason: "IdentityChanged".into(), detail: "was serial:m:1".into() }];
    let mut seen = inventory(vec![changed]);
    let held = plan(&seen, &[]);
    assert_eq!(
        held,
        [Quarantine {
            identity: "serial:m:2".into(),
            reason: "IdentityChanged".into(),
            detail: "was serial:m:1".into()
        }]
    );
    seen.spec.quarantine = held.clone();
    // The agent repeats the quarantine, has lost it, or the disk is unplugged for a moment: no change.
    seen.status.as_mut().unwrap().devices[0].reasons[0].detail = "other words".into();
    assert_eq!(plan(&seen, &[]), held);
    seen.status.as_mut().unwrap().devices.clear();
    assert_eq!(plan(&seen, &[]), held);
    let mut accepted = seen.clone();
    accepted.metadata.annotations = accepting("wwn:9, serial:m:2");
    assert_eq!(plan(&accepted, &[]), []);
    // The disk reports its WWN since, and administrators accept the identity that is shown.
    let mut grown = device("sda", "wwn:5000c50000000002");
    grown.kind = "disk".into();
    grown.evidence =
        [("sysfs:wwid", "naa.5000c50000000002"), ("sysfs:vpd80", "22"), ("sysfs:model", "m")]
            .map(|(source, value)| Evidence { source: source.into(), value: value.into() })
            .into();
    seen.spec.quarantine[0].identity = "serial:m:22".into();
    seen.status.as_mut().unwrap().devices = vec![grown];
    assert_eq!(plan(&seen, &[]).len(), 1);
    seen.metadata.annotations = accepting("wwn:5000c50000000002");
    assert_eq!(plan(&seen, &[]), []);
}

#[test]
fn an_identity_with_a_comma_can_be_accepted() {
    let mut changed = device("sda", "serial:ACME, Inc. X1:S2");
    changed.reasons =
        vec![DeviceReason { reason: "IdentityChanged".into(), detail: "was serial:m:1".into() }];
    let mut seen = inventory(vec![changed]);
    assert_eq!(plan(&seen, &[]).len(), 1);
    seen.metadata.annotations = accepting("serial:ACME, Inc. X1:S2");
    assert_eq!(plan(&seen, &[]), []);
}

/// A tenant writes the UUID of another node's partition into the table of its own disk.
// invariant: 3
#[test]
fn content_on_a_disk_with_an_owner_does_not_count() {
    let claim =
        |identity: &str| DeviceClaim { identity: identity.into(), ..DeviceClaim::default() };
    let because = |reason: Reason, device: Device| Device {
        reasons: vec![DeviceReason::new(reason, "")],
        ..device
    };
    let disk = || device("sda", "wwn:1");
    let part = || Device {
        parent: Some("sda".into()),
        kind: "part".into(),
        ..device("sda1", "part:a1b2c3d4-01")
    };
    let group = || device("dm-0", "lvm:vg");
    for (counts, devices, claims) in [
        (true, vec![disk(), part()], vec![]),
        (true, vec![disk(), part()], vec![claim("wwn:2")]),
        (false, vec![disk(), part()], vec![claim("wwn:1")]),
        (false, vec![because(Reason::BacksVolume, disk()), part()], vec![]),
        (false, vec![because(Reason::BacksPersistentVolume, disk()), part()], vec![]),
        // The partition itself is claimed.
        (true, vec![disk(), because(Reason::Claimed, part())], vec![claim("part:a1b2c3d4-01")]),
        (true, vec![group()], vec![]),
        (false, vec![because(Reason::Claimed, group())], vec![claim("wwn:1")]),
        (true, vec![because(Reason::Claimed, group())], vec![claim("lvm:vg")]),
        // What the hardware says counts in any case.
        (true, vec![because(Reason::Claimed, device("sdc", "wwn:7"))], vec![claim("wwn:1")]),
    ] {
        let mut known = Identities::default();
        let rivals =
            [device("sdb1", "part:a1b2c3d4-01"), device("dm-9", "lvm:vg"), device("sdd", "wwn:7")];
        known.follow("n2", &rivals, None);
        let concerned = known.follow("n1", &devices, Some(&having(claims.clone())));
        assert_eq!(!concerned.is_empty(), counts, "{devices:?} {claims:?}");
        assert_eq!(!known.elsewhere("n2").is_empty(), counts, "{devices:?} {claims:?}");
    }
}
