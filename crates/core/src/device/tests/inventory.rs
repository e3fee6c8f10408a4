use super::*;
use crate::inventory_room::OBJECT;
use quarry_api::node_inventory::{ClaimReport, PathReport};

/// What an API server stores for the largest node we promise: 706 bytes a device.
#[test]
fn a_thousand_multipath_disks_fit_whole() {
    let mut seen = Vec::new();
    for disk in 0..1000 {
        let wwn = format!("600a098038303742695d4933{disk:08x}");
        let paths: Vec<String> = (0..4).map(|path| format!("sd{}", disk * 4 + path)).collect();
        for path in &paths {
            let mut facts = Facts { holders: vec![format!("dm-{disk}")], ..blank(path, &wwn) };
            facts.evidence.extend(evidence(&[
                ("udev:ID_WWN_WITH_EXTENSION", &format!("0x{wwn}")),
                ("sysfs:vpd80", &format!("80807Bi]I3{disk:06}")),
                ("sysfs:model", "LUN C-Mode"),
                ("udev:ID_SERIAL", &format!("3{wwn}")),
            ]));
            (facts.model, facts.vendor, facts.serial) = (
                Some("LUN C-Mode".into()),
                Some("NETAPP".into()),
                Some(format!("80807Bi]I3{disk:06}")),
            );
            facts.by_id = vec![format!("wwn-0x{wwn}"), format!("scsi-3{wwn}")];
            seen.push(facts);
        }
        seen.push(Facts {
            slaves: paths,
            mapped_name: Some(format!("mpath{disk}")),
            evidence: vec![],
            kind: "mpath".into(),
            ..blank(&format!("dm-{disk}"), "0")
        });
    }
    let mut settling = Settling::default();
    let status = published(&seen, None, &[], &mut settling, Duration::ZERO);
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert_eq!((status.devices.len(), status.problems.len()), (1000, 0));
    assert!(bytes < OBJECT * 2 / 3, "{bytes}");
    // Ten times as many do not fit: it says so instead of dropping silently.
    let seen: Vec<Facts> = (0..10_000)
        .map(|n| blank(&format!("sd{n}"), &format!("600a098038303742695d4933{n:08x}")))
        .collect();
    let status = published(&seen, None, &[], &mut Settling::default(), Duration::ZERO);
    assert!(serde_json::to_vec(&status).unwrap().len() <= OBJECT);
    assert_eq!(
        (status.summary.unwrap().disks, status.problems.len()),
        (10_000, 2),
        "{:?}",
        status.problems
    );
}

/// More than fits: claimed devices are listed before others, and every omission is reported.
// invariant: 9
#[test]
fn claimed_devices_are_the_last_to_be_omitted() {
    let wwn = |n: usize| format!("600a098038303742695d4933{n:08x}");
    let seen: Vec<Facts> = (0..9000).map(|n| blank(&format!("sd{n}"), &wwn(n))).collect();
    let claims: Vec<DeviceClaim> = (8500..9000)
        .map(|n| DeviceClaim { identity: format!("wwn:{}", wwn(n)), ..DeviceClaim::default() })
        .collect();
    let report = |claim: &DeviceClaim| ClaimReport {
        identity: claim.identity.clone(),
        ..ClaimReport::default()
    };
    let path = |n: usize| PathReport {
        path: format!("/dev/disk/by-id/wwn-{n:0100}"),
        ..PathReport::default()
    };
    let facts = NodeFacts {
        claims: claims.iter().map(report).collect(),
        paths: (0..6400).map(path).collect(),
        ..NodeFacts::default()
    };
    let spec = NodeInventorySpec { device_claims: claims, ..NodeInventorySpec::default() };
    let found = status(facts, &group(&seen, None, None, &[]), &Settling::default(), &spec);
    let size = |value: &NodeInventoryStatus| serde_json::to_vec(value).unwrap().len();
    let both = size(&found) + serde_json::to_vec(&spec).unwrap().len();
    assert!((OBJECT - 2000..=OBJECT).contains(&both), "{both}");
    assert_eq!(found.device_claims.len(), 500, "every device claim has its report");
    let listed = |n: usize| found.devices.iter().any(|device| device.name == format!("sd{n}"));
    assert!((8500..9000).all(listed) && found.devices.len() < 9000);
    assert!(listed(0) && !listed(8499), "of the others the last are omitted");
    let [paths, evidence, devices] = found.problems.as_slice() else {
        panic!("{:?}", found.problems)
    };
    assert!(paths.contains("of 6400 are not resolved; remove paths"), "{paths}");
    assert!(evidence.contains("the evidence of their identities is omitted"), "{evidence}");
    let omitted = 9000 - found.devices.len();
    assert!(devices.contains(&format!("{omitted} of 9000 are not listed")), "{devices}");
}

#[test]
fn devices_are_listed_in_natural_order() {
    let mut settling = Settling::default();
    let seen: Vec<Facts> = ["sda10", "sda2", "sda", "nvme0n1p1", "loop12", "loop3"]
        .iter()
        .map(|name| blank(name, "5000c50000000001"))
        .collect();
    let status = published(&seen, None, &[], &mut settling, Duration::ZERO);
    let names: Vec<&str> = status.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["loop3", "loop12", "nvme0n1p1", "sda", "sda2", "sda10"]);
}

#[test]
fn a_failed_scan_leaves_no_device_available() {
    let mut settling = Settling::default();
    published(&[blank("sda", "5000c50000000001")], None, &[], &mut settling, Duration::ZERO);
    let free =
        published(&[blank("sda", "5000c50000000001")], None, &[], &mut settling, SETTLING_TIME);
    assert_eq!(free.summary.as_ref().unwrap().available, 1);
    let after = unseen(free, "listing /sys/class/block: permission denied");
    assert_eq!(
        (state(&after, 0), after.summary.as_ref().unwrap().available),
        ((DeviceState::Unknown, vec!["Unreadable"]), 0)
    );
    assert_eq!(after.problems, ["listing /sys/class/block: permission denied"]);
    assert_eq!(
        unseen(after.clone(), "listing /sys/class/block: permission denied"),
        after,
        "reported once"
    );
}
