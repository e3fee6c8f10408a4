use super::*;

fn names(known: &[GroupedDevice]) -> Vec<&str> {
    known.iter().map(|device| device.facts.name.as_str()).collect()
}

// invariant: 3
#[test]
fn paths_under_a_map_are_one_device() {
    let mut seen: Vec<Facts> = ["sda", "sdb", "sdc", "sdd"]
        .iter()
        .map(|name| Facts {
            holders: vec!["dm-0".into()],
            model: Some("MD32xx".into()),
            ..blank(name, "6000c50000000001")
        })
        .collect();
    seen[2].mounts = vec!["/oops".into()];
    seen[1].by_id = vec!["wwn-0x6000c50000000001".into()];
    let slaves = seen.iter().map(|facts| facts.name.clone()).collect();
    seen.push(Facts {
        name: "dm-0".into(),
        kind: "mpath".into(),
        slaves,
        evidence: evidence(&[("sysfs:dm-uuid", "mpath-36000c5")]),
        ..blank("dm-0", "0")
    });
    let known = group(&seen, None, None, &[]);
    assert_eq!(names(&known), ["dm-0"]);
    let map = &known[0];
    assert_eq!(
        (map.identified.identity.as_deref(), map.paths.len()),
        (Some("wwn:6000c50000000001"), 4)
    );
    assert_eq!(
        (map.facts.model.as_deref(), &map.facts.mounts, map.facts.holders.len()),
        (Some("MD32xx"), &vec!["/oops".to_owned()], 0)
    );
    assert!(map.findings.is_empty());
    // A link to one of its paths names the disk, but is not a link to the map.
    assert_eq!(
        (map.facts.by_id.len(), map.path_links.as_slice()),
        (0, &["wwn-0x6000c50000000001".to_owned()][..])
    );
    assert_eq!(
        row(map, &known, true, &NodeInventorySpec::default()).device_id.as_deref(),
        Some("/dev/disk/by-id/wwn-0x6000c50000000001")
    );
    // Without the map they are two devices with one identity: both are quarantined.
    let known = group(&seen[..2], None, None, &[]);
    assert_eq!(known[0].findings, [(Reason::DuplicateIdentity, "sdb".to_owned())]);
    assert_eq!(known[1].findings, [(Reason::DuplicateIdentity, "sda".to_owned())]);
    // Paths that disagree are not one device.
    seen[1].evidence = evidence(&[("sysfs:wwid", "naa.6000c50000000002")]);
    assert_eq!(group(&seen, None, None, &[])[0].findings[0].0, Reason::AmbiguousIdentity);
}

// invariant: 3
#[test]
fn a_changed_identity_is_quarantined_until_accepted() {
    let mut settling = Settling::default();
    let first =
        published(&[blank("sda", "5000c50000000001")], None, &[], &mut settling, Duration::ZERO);
    let other = [blank("sda", "5000c50000000002")];
    let second = published(&other, Some(&first), &[], &mut settling, Duration::from_secs(100));
    assert_eq!(state(&second, 0).1, ["IdentityChanged", "TooNew"]);
    assert_eq!(second.devices[0].reasons[0].detail, "it was wwn:5000c50000000001");
    let third = published(&other, Some(&second), &[], &mut settling, Duration::from_secs(200));
    assert_eq!(state(&third, 0), (DeviceState::NotAvailable, vec!["IdentityChanged"]), "it stays");
    assert_eq!(third.summary.as_ref().unwrap().quarantined, 1);
    let accepted = published(
        &other,
        Some(&third),
        &["wwn:5000c50000000002".into()],
        &mut settling,
        Duration::from_secs(300),
    );
    assert_eq!(state(&accepted, 0), (DeviceState::Available, vec![]));
    // Unplugged and another one plugged in: the kernel says so by its sequence number.
    let replaced = [Facts { diskseq: Some(8), ..blank("sda", "5000c50000000003") }];
    let fourth =
        published(&replaced, Some(&accepted), &[], &mut settling, Duration::from_secs(400));
    assert_eq!(state(&fourth, 0), (DeviceState::Unknown, vec!["TooNew"]));
}

// invariant: 3
#[test]
fn changing_evidence_is_no_other_disk() {
    let serial = [("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
    let full = [("sysfs:vpd80", "S1"), ("sysfs:model", "M"), ("udev:ID_WWN", "0x5000c50000000001")];
    let with = |pairs: &[(&str, &str)]| [Facts { evidence: evidence(pairs), ..blank("sda", "0") }];
    let mut settling = Settling::default();
    let first = published(&with(&serial), None, &[], &mut settling, Duration::ZERO);
    let second = published(&with(&full), Some(&first), &[], &mut settling, Duration::ZERO);
    let third = published(&with(&serial), Some(&second), &[], &mut settling, Duration::ZERO);
    for status in [&second, &third] {
        assert_eq!(state(status, 0).1, ["TooNew"]);
    }
}

// invariant: 3
#[test]
fn the_owner_of_a_disk_owns_its_partitions() {
    let mut disk = blank("sda", "5000c50000000001");
    disk.partitions = vec!["sda1".into()];
    disk.backs = vec!["pv".into()];
    let mut part = blank("sda1", "0");
    (part.kind, part.parent, part.evidence) =
        ("part".into(), Some("sda".into()), evidence(&[("partition:uuid", "a1b2c3d4-01")]));
    let known = group(&[disk, part], None, None, &[]);
    let owner = ClaimOwner {
        kind: "LocalVolumeSet".into(),
        namespace: None,
        name: "fast".into(),
        uid: "u".into(),
    };
    let spec = NodeInventorySpec {
        device_claims: vec![DeviceClaim {
            identity: "wwn:5000c50000000001".into(),
            owner,
            ..DeviceClaim::default()
        }],
        ..NodeInventorySpec::default()
    };
    let reasons: Vec<String> = row(&known[1], &known, true, &spec)
        .reasons
        .into_iter()
        .map(|found| found.reason.to_string())
        .collect();
    assert_eq!(reasons, ["Claimed", "BacksPersistentVolume"]);
}

// invariant: 4
#[test]
fn a_device_that_could_not_be_read_is_unknown() {
    for (content, reason) in
        [(Content::TimedOut, "TimedOut"), (Content::NotPermitted, "NotPermitted")]
    {
        let hung = Facts {
            evidence: Vec::new(),
            exclusive_open: ExclusiveOpen::Unasked,
            content,
            ..blank("loop0", "0")
        };
        let known = group(&[hung], None, None, &[]);
        let row = row(&known[0], &known, true, &NodeInventorySpec::default());
        assert_eq!(
            (row.state, row.reasons.len(), row.reasons[0].reason.as_str()),
            (DeviceState::Unknown, 1, reason)
        );
    }
}

#[test]
fn loops_over_one_file_are_one_device_under_any_path() {
    let over = |name: &str, path: &str, file: &str| Facts {
        kind: "loop".into(),
        evidence: evidence(&[("loop:file", &format!("{path}#7#1.0"))]),
        backing: Some(BackingFile { path: path.into(), deleted: false, file: Some(file.into()) }),
        ..blank(name, "0")
    };
    let known = group(
        &[
            over("loop0", "/d/a.img", "8:1:7"),
            over("loop1", "/d/hard-link.img", "8:1:7"),
            over("loop2", "/d/c.img", "8:2:7"),
        ],
        None,
        None,
        &[],
    );
    assert_eq!(known[0].findings, [(Reason::DuplicateIdentity, "loop1".to_owned())]);
    assert_eq!(known[1].findings, [(Reason::DuplicateIdentity, "loop0".to_owned())]);
    assert_eq!(known[2].findings, []);
}

#[test]
fn a_path_with_less_evidence_is_the_same_disk() {
    let with = |name: &str, pairs: &[(&str, &str)]| Facts {
        evidence: evidence(pairs),
        ..blank(name, "0")
    };
    let serial = [("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
    let full = |wwn: &str| with("sda", &[serial[0], serial[1], ("sysfs:wwid", wwn)]);
    let known = group(&[full("naa.5000c50000000001"), with("sdb", &serial)], None, None, &[]);
    assert_eq!(known[0].findings, [(Reason::DuplicateIdentity, "sdb".to_owned())]);
    assert_eq!(known[1].findings, [(Reason::DuplicateIdentity, "sda".to_owned())]);
    let two = [
        full("naa.5000c50000000001"),
        Facts { name: "sdc".into(), ..full("naa.5000c50000000002") },
    ];
    assert!(
        group(&two, None, None, &[]).iter().all(|device| device.findings.is_empty()),
        "equal serials of two disks"
    );
    let namespace = |name: &str, number: u32| {
        with(
            name,
            &[
                ("sysfs:serial", "NV1"),
                ("sysfs:model", "M"),
                ("sysfs:wwid", &format!("nvme.1b36-4e56-51-{number:08x}")),
            ],
        )
    };
    assert!(
        group(&[namespace("nvme0n1", 1), namespace("nvme0n2", 2)], None, None, &[])
            .iter()
            .all(|device| device.findings.is_empty())
    );
}

#[test]
fn use_of_a_disk_counts_for_what_is_built_on_it() {
    let part = |name: &str, parent: &str| Facts {
        kind: "part".into(),
        parent: Some(parent.into()),
        evidence: evidence(&[("partition:uuid", "a1b2c3d4-01")]),
        ..blank(name, "0")
    };
    type Change = fn(&mut Facts);
    let disk = |change: Change| {
        let mut disk =
            Facts { partitions: vec!["sda1".into()], ..blank("sda", "5000c50000000001") };
        change(&mut disk);
        disk
    };
    let cases: [(Change, Reason); 4] = [
        (|disk| disk.mounts = vec!["/node".into()], Reason::Mounted),
        (|disk| disk.loops_on_top = vec!["loop9".into()], Reason::LoopOnTop),
        (|disk| disk.swap = true, Reason::Swap),
        (|disk| disk.backs = vec!["pv".into()], Reason::BacksPersistentVolume),
    ];
    let top = Facts {
        kind: "lvm".into(),
        slaves: vec!["sda1".into()],
        evidence: evidence(&[("sysfs:dm-uuid", "LVM-x")]),
        ..blank("dm-0", "0")
    };
    for (change, reason) in cases {
        let known = group(&[disk(change), part("sda1", "sda"), top.clone()], None, None, &[]);
        for device in &known[1..] {
            assert!(
                device.findings.iter().any(|(findings, _)| *findings == reason),
                "{reason} of {}: {:?}",
                device.facts.name,
                device.findings
            );
        }
    }
    // It is not certain which disk it is, so the same holds for its partitions.
    let twin = Facts {
        name: "sdb".into(),
        partitions: vec!["sdb1".into()],
        ..blank("sdb", "5000c50000000001")
    };
    let mut other = part("sdb1", "sdb");
    other.evidence = evidence(&[("partition:uuid", "ffffffff-01")]);
    let known = group(&[disk(|_| {}), part("sda1", "sda"), twin, other], None, None, &[]);
    assert!(
        known.iter().all(|device| device
            .findings
            .iter()
            .any(|(findings, _)| *findings == Reason::DuplicateIdentity)),
        "{known:?}"
    );
}

/// A claimed disk is missing, and a disk with its serial and another world-wide name is there.
// invariant: 3
#[test]
fn a_disk_with_some_names_of_a_missing_one_is_not_taken() {
    let claim = DeviceClaim {
        identity: "wwn:5000c50000000001".into(),
        identifiers: vec!["wwn:5000c50000000001".into(), "serial::S1".into()],
        ..DeviceClaim::default()
    };
    let spec = NodeInventorySpec { device_claims: vec![claim], ..NodeInventorySpec::default() };
    let disk = |name: &str, wwn: Option<&str>, serial: &str| {
        let wwn = wwn.map(|wwn| ("sysfs:wwid", wwn));
        let pairs: Vec<_> = wwn.into_iter().chain([("sysfs:serial", serial)]).collect();
        Facts {
            name: name.into(),
            kind: "disk".into(),
            size: 1 << 30,
            evidence: evidence(&pairs),
            exclusive_open: ExclusiveOpen::Free,
            content: Content::Blank,
            ..Facts::default()
        }
    };
    let reasons = |seen: &[Facts], accepted: &[String]| {
        let mut known = group(seen, None, None, accepted);
        partial_matches(&mut known, &spec.device_claims, accepted);
        let of = |device: &GroupedDevice| {
            let row = row(device, &known, true, &spec);
            (row.state, row.reasons.iter().map(|one| one.reason.to_string()).collect::<Vec<_>>())
        };
        known.iter().map(of).collect::<Vec<_>>()
    };
    let (own, other) = (Some("naa.5000c50000000001"), Some("naa.5000c50000000002"));
    let not_available = |reason: &str| (DeviceState::NotAvailable, vec![reason.to_owned()]);
    assert_eq!(reasons(&[disk("sda", other, "S1")], &[]), [not_available("IdentityChanged")]);
    // Claimed by its serial when nothing else was known: the recorded world-wide name still counts.
    let by_serial = DeviceClaim { identity: "serial::S1".into(), ..spec.device_claims[0].clone() };
    let mut known = group(&[disk("sda", other, "S1")], None, None, &[]);
    partial_matches(&mut known, &[by_serial], &[]);
    assert!(known[0].findings.iter().any(|(reason, _)| *reason == Reason::IdentityChanged));
    let accepted = ["wwn:5000c50000000002".to_owned()];
    let available = (DeviceState::Available, Vec::new());
    let free = std::slice::from_ref(&available);
    assert_eq!(reasons(&[disk("sda", other, "S1")], &accepted), free);
    assert_eq!(reasons(&[disk("sda", other, "S2")], &[]), free, "another disk");
    // Its own disk is there, too: two disks of a vendor that used a serial twice.
    assert_eq!(
        reasons(&[disk("sda", own, "S1"), disk("sdb", other, "S1")], &[]),
        [not_available("Claimed"), available.clone()]
    );
    // Less than before, and nothing contradicts: it is the claimed disk.
    assert_eq!(reasons(&[disk("sda", None, "S1")], &[]), [not_available("Claimed")]);
}
