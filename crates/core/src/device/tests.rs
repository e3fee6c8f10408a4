use super::{
    events::changes,
    facts::{BackingFile, Content, Facts, Found, Held, Partition},
    group::{GroupedDevice, group},
    identity::identify,
    inventory::{self, NodeFacts},
    reason::{Reason, TABLE},
    settle::{SETTLING_TIME, Settling},
    verdict::judge,
};
use quarry_api::{
    NodeInventorySpec, NodeInventoryStatus,
    node_inventory::{ClaimOwner, DeviceClaim, DeviceState, Evidence, Quarantine, RetainedData},
};
use std::time::Duration;

fn evidence(pairs: &[(&str, &str)]) -> Vec<Evidence> {
    pairs
        .iter()
        .map(|(source, value)| Evidence { source: (*source).into(), value: (*value).into() })
        .collect()
}

/// A disk that nothing speaks against.
fn blank(name: &str, wwn: &str) -> Facts {
    Facts {
        name: name.into(),
        number: "8:0".into(),
        kind: "disk".into(),
        size: 1 << 30,
        diskseq: Some(7),
        evidence: evidence(&[("sysfs:wwid", &format!("naa.{wwn}"))]),
        held: Held::Free,
        content: Content::Blank,
        ..Facts::default()
    }
}

fn reasons_of(facts: &Facts) -> (DeviceState, Vec<String>) {
    let verdict = judge(facts, &[], &NodeInventorySpec::default(), Vec::new());
    (verdict.state, verdict.reasons.into_iter().map(|found| found.reason.to_string()).collect())
}

#[test]
fn only_a_blank_free_disk_is_available() {
    assert_eq!(reasons_of(&blank("sda", "5000c50000000001")), (DeviceState::Available, vec![]));
    for (content, held) in [(Content::Unread, Held::Free), (Content::Blank, Held::Unasked)] {
        let (state, reasons) = reasons_of(&Facts { content, held, ..blank("sda", "5") });
        assert_eq!((state, reasons.len()), (DeviceState::Unknown, 1), "unknown is no: {reasons:?}");
    }
}

/// Each reason of the node by the one fact that brings it about.
#[test]
fn each_fact_gives_its_reason() {
    let found = |fs: Option<&str>, table: Option<&str>| {
        Content::Found(Found {
            fs_type: fs.map(Into::into),
            table: table.map(Into::into),
            ..Found::default()
        })
    };
    type Change = Box<dyn Fn(&mut Facts)>;
    let cases: Vec<(Reason, Change)> = vec![
        (Reason::ReadOnly, Box::new(|facts| facts.read_only = true)),
        (Reason::Removable, Box::new(|facts| facts.removable = true)),
        (Reason::HasChildren, Box::new(|facts| facts.partitions = vec!["sda1".into()])),
        (Reason::HasHolders, Box::new(|facts| facts.holders = vec!["dm-0".into()])),
        (Reason::Mounted, Box::new(|facts| facts.mounts = vec!["/mnt".into()])),
        (Reason::Swap, Box::new(|facts| facts.swap = true)),
        (Reason::Signature, Box::new(move |facts| facts.content = found(Some("ext4"), None))),
        (Reason::PartitionTable, Box::new(move |facts| facts.content = found(None, Some("gpt")))),
        (
            Reason::BootLabel,
            Box::new(|facts| {
                facts.partition = Some(Partition {
                    label: Some("BIOS Boot Partition".into()),
                    ..Partition::default()
                })
            }),
        ),
        (
            Reason::BootLabel,
            Box::new(|facts| {
                facts.partition = Some(Partition {
                    type_id: Some("C12A7328-F81F-11D2-BA4B-00A0C93EC93B".into()),
                    ..Partition::default()
                })
            }),
        ),
        (Reason::Suspended, Box::new(|facts| facts.state = Some("suspended".into()))),
        (Reason::HeldExclusively, Box::new(|facts| facts.held = Held::Exclusively)),
        (Reason::LoopOnTop, Box::new(|facts| facts.loops_on_top = vec!["loop3".into()])),
        (Reason::UnknownData, Box::new(|facts| facts.content = Content::UnknownData)),
        (Reason::BacksPersistentVolume, Box::new(|facts| facts.backs = vec!["local-pv-1".into()])),
        (Reason::BacksVolume, Box::new(|facts| facts.volume_uid = Some("u".into()))),
        (Reason::ObservedOnly, Box::new(|facts| facts.observed_only = true)),
        (Reason::NotLocal, Box::new(|facts| facts.not_local = Some("iscsi".into()))),
        (Reason::Unreadable, Box::new(|facts| facts.content = Content::Unreadable("EIO".into()))),
        (Reason::TimedOut, Box::new(|facts| facts.content = Content::TimedOut)),
        (Reason::NotPermitted, Box::new(|facts| facts.content = Content::NotPermitted)),
        (Reason::NoMedium, Box::new(|facts| facts.content = Content::NoMedium)),
        (Reason::ZeroSize, Box::new(|facts| facts.size = 0)),
    ];
    for (reason, change) in cases {
        let mut facts = blank("sda", "5000c50000000001");
        change(&mut facts);
        assert_eq!(reasons_of(&facts), (reason.row().state, vec![reason.as_str().to_owned()]));
    }
}

#[test]
fn all_reasons_are_told_and_what_is_certain_decides() {
    let facts = Facts {
        read_only: true,
        content: Content::TimedOut,
        mounts: (0..9).map(|n| format!("/m{n}")).collect(),
        ..blank("sda", "5")
    };
    let (state, reasons) = reasons_of(&facts);
    assert_eq!(state, DeviceState::NotAvailable);
    assert_eq!(
        reasons.iter().filter(|reason| *reason == "Mounted").count(),
        5,
        "four by name, the rest by number"
    );
    assert!(reasons.contains(&"TimedOut".into()) && reasons.contains(&"ReadOnly".into()));
}

#[test]
fn the_cluster_speaks_by_identity() {
    let owner = ClaimOwner {
        kind: "LocalVolumeSet".into(),
        namespace: Some("ns".into()),
        name: "fast".into(),
        uid: "u".into(),
    };
    let spec = NodeInventorySpec {
        device_claims: vec![DeviceClaim {
            identity: "wwn:1".into(),
            owner,
            ..DeviceClaim::default()
        }],
        quarantine: vec![Quarantine {
            identity: "wwn:2".into(),
            reason: "IdentityElsewhere".into(),
            detail: "n2/sdb".into(),
        }],
        retained_data: vec![RetainedData {
            identity: "wwn:4".into(),
            pv_name: "local-pv-1".into(),
            pv_uid: "u".into(),
        }],
        ..NodeInventorySpec::default()
    };
    let of = |identity: &str| {
        judge(&blank("sda", "5"), &["serial:m:s".into(), identity.into()], &spec, Vec::new())
            .reasons
    };
    assert_eq!(
        (of("wwn:1")[0].reason.as_str(), of("wwn:1")[0].detail.as_str()),
        ("Claimed", "LocalVolumeSet ns/fast")
    );
    assert_eq!(
        (of("wwn:2")[0].reason.as_str(), of("wwn:2")[0].detail.as_str()),
        ("IdentityElsewhere", "n2/sdb")
    );
    assert_eq!(
        (of("wwn:4")[0].reason.as_str(), of("wwn:4")[0].detail.as_str()),
        ("RetainedData", "local-pv-1, UID u")
    );
    assert!(of("wwn:3").is_empty());
}

#[test]
fn the_strongest_evidence_is_the_identity() {
    let of = |kind: &str, pairs: &[(&str, &str)]| {
        let facts = Facts { kind: kind.into(), evidence: evidence(pairs), ..Facts::default() };
        identify(&facts).identity.unwrap_or_default()
    };
    type Said<'a> = &'a [(&'a str, &'a str)];
    let table: &[(&str, Said<'_>, &str)] = &[
        (
            "disk",
            &[("udev:ID_SERIAL_SHORT", "S1"), ("udev:ID_WWN_WITH_EXTENSION", "0x5000C500A1B2C3D4")],
            "wwn:5000c500a1b2c3d4",
        ),
        (
            "disk",
            &[
                ("sysfs:wwid", "naa.600140512345678901234567890abcde"),
                ("udev:ID_WWN", "0x6001405123456789"),
            ],
            "wwn:600140512345678901234567890abcde",
        ),
        (
            "disk",
            &[("sysfs:wwid", "eui.0025385b71b0c0de"), ("sysfs:serial", "S2")],
            "eui:0025385b71b0c0de",
        ),
        (
            "disk",
            &[
                ("sysfs:nguid", "00000000-0000-0000-0000-000000000000"),
                ("sysfs:eui", "00 25 38 5b 71 b0 c0 de"),
            ],
            "eui:0025385b71b0c0de",
        ),
        (
            "disk",
            &[
                ("sysfs:wwid", "t10.QEMU    H1"),
                ("sysfs:vpd80", "H1X"),
                ("sysfs:model", "QEMU  HARDDISK"),
            ],
            "serial:QEMU HARDDISK:H1X",
        ),
        (
            "disk",
            &[
                ("sysfs:wwid", "nvme.1b36-4e56-51-00000001"),
                ("sysfs:serial", "NV1"),
                ("sysfs:model", "QEMU NVMe Ctrl"),
            ],
            "serial:QEMU NVMe Ctrl:NV1",
        ),
        ("disk", &[("sysfs:serial", "VBLK0001")], "serial::VBLK0001"),
        ("disk", &[("sysfs:serial", "0000 0000")], ""),
        ("disk", &[("udev:ID_WWN", "0x0000000000000000")], ""),
        ("disk", &[("udev:ID_SERIAL", "QEMU_HARDDISK_drive0")], ""),
        (
            "part",
            &[
                ("udev:ID_WWN", "0x5000c500a1b2c3d4"),
                ("partition:uuid", "0FC63DAF-8483-4772-8E79-3D69D8477DE4"),
            ],
            "part:0fc63daf-8483-4772-8e79-3d69d8477de4",
        ),
        ("part", &[("udev:ID_WWN", "0x5000c500a1b2c3d4")], ""),
        ("part", &[("partition:uuid", "00000000-01")], ""),
        ("part", &[("partition:uuid", "a1b2c3d4-01")], "part:a1b2c3d4-01"),
        (
            "raid1",
            &[("udev:MD_UUID", "abcd0123:45670123:89ab0123:cdef0123")],
            "md:abcd0123456701238",
        ),
        ("lvm", &[("sysfs:dm-uuid", "LVM-abc")], "lvm:abc"),
        ("crypt", &[("sysfs:dm-uuid", "CRYPT-LUKS2-x-y")], "dm:CRYPT-LUKS2-x-y"),
        ("mpath", &[("sysfs:dm-uuid", "mpath-3600")], ""),
        ("part", &[("sysfs:dm-uuid", "part1-mpath-3600")], "dm:part1-mpath-3600"),
        (
            "part",
            &[
                ("sysfs:dm-uuid", "part1-mpath-3600"),
                ("partition:uuid", "58F4FF06-8bb1-47c2-8611-b0a1ffe4c50b"),
            ],
            "part:58f4ff06-8bb1-47c2-8611-b0a1ffe4c50b",
        ),
        ("loop", &[("loop:file", "/d/a.img#12#1.2")], "file:/d/a.img#12#1.2"),
        (
            "loop",
            &[("loop:file", "/d/a.img#12#1.2"), ("udev:ID_WWN", "0x5000c500a1b2c3d4")],
            "wwn:5000c500a1b2c3d4",
        ),
        ("disk", &[], ""),
    ];
    for (kind, pairs, wanted) in table {
        let found = of(kind, pairs);
        assert!(
            if kind == &"raid1" { found.starts_with(wanted) } else { found == *wanted },
            "{pairs:?}: {found}"
        );
    }
}

#[test]
fn sources_that_cannot_both_be_right_are_a_contradiction() {
    let findings = |pairs: &[(&str, &str)]| {
        identify(&Facts { kind: "disk".into(), evidence: evidence(pairs), ..Facts::default() })
            .contradiction
    };
    assert!(
        findings(&[("sysfs:wwid", "naa.5000c50000000001"), ("udev:ID_WWN", "0x5000c50000000002")])
            .is_some()
    );
    assert_eq!(
        findings(&[
            ("sysfs:wwid", "naa.5000c50000000001"),
            ("sysfs:vpd83", "naa.5000c50000000002"),
            ("udev:ID_WWN", "0x5000c50000000002")
        ]),
        None
    );
    assert_eq!(
        findings(&[
            ("sysfs:wwid", "naa.600140512345678901234567890abcde"),
            ("udev:ID_WWN", "0x6001405123456789")
        ]),
        None
    );
    assert_eq!(findings(&[("udev:ID_WWN", "0x5000c50000000002")]), None);
}

fn names(known: &[GroupedDevice]) -> Vec<&str> {
    known.iter().map(|device| device.facts.name.as_str()).collect()
}

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
    // A name that leads to one of its paths tells which disk it is; whoever looks for a way to the map is not misled.
    assert_eq!(
        (map.facts.by_id.len(), map.path_links.as_slice()),
        (0, &["wwn-0x6000c50000000001".to_owned()][..])
    );
    assert_eq!(
        inventory::row(map, true, &NodeInventorySpec::default()).device_id.as_deref(),
        Some("/dev/disk/by-id/wwn-0x6000c50000000001")
    );
    // Without the map they are two devices that claim to be one: nobody guesses.
    let known = group(&seen[..2], None, None, &[]);
    assert_eq!(known[0].findings, [(Reason::DuplicateIdentity, "sdb".to_owned())]);
    assert_eq!(known[1].findings, [(Reason::DuplicateIdentity, "sda".to_owned())]);
    // Paths that disagree are not one device.
    seen[1].evidence = evidence(&[("sysfs:wwid", "naa.6000c50000000002")]);
    assert_eq!(group(&seen, None, None, &[])[0].findings[0].0, Reason::AmbiguousIdentity);
}

fn published(
    seen: &[Facts],
    previous: Option<&NodeInventoryStatus>,
    accepted: &[String],
    settling: &mut Settling,
    now: Duration,
) -> NodeInventoryStatus {
    let known = group(seen, previous, Some("boot"), accepted);
    settling.observe(&known, previous, Some("boot"), now, SETTLING_TIME);
    inventory::status(
        NodeFacts { boot_id: Some("boot".into()), ..NodeFacts::default() },
        &known,
        settling,
        &NodeInventorySpec::default(),
    )
}

fn state(status: &NodeInventoryStatus, at: usize) -> (DeviceState, Vec<&str>) {
    let device = &status.devices[at];
    (device.state, device.reasons.iter().map(|findings| findings.reason.as_str()).collect())
}

#[test]
fn a_disk_that_changes_its_identity_in_place_is_quarantined_until_accepted() {
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

#[test]
fn evidence_that_comes_and_goes_is_no_other_disk() {
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

#[test]
fn settling_restarts_with_every_change_and_not_with_the_agent() {
    let mut settling = Settling::default();
    let at = Duration::from_secs;
    let disk = || [blank("sda", "5000c50000000001")];
    let first = published(&disk(), None, &[], &mut settling, at(0));
    assert_eq!((state(&first, 0).1, settling.next(SETTLING_TIME)), (vec!["TooNew"], Some(at(60))));
    let settled = published(&disk(), Some(&first), &[], &mut settling, at(60));
    assert_eq!(
        (state(&settled, 0), settling.next(SETTLING_TIME)),
        ((DeviceState::Available, vec![]), None)
    );
    // A write to a disk that nobody uses, a re-plug, another size: anew.
    for change in [
        Facts { writes: 8, ..blank("sda", "5000c50000000001") },
        Facts { diskseq: Some(9), ..blank("sda", "5000c50000000001") },
        Facts { size: 2 << 30, ..blank("sda", "5000c50000000001") },
    ] {
        let mut settling = settling.clone();
        assert_eq!(
            state(&published(&[change], Some(&settled), &[], &mut settling, at(70)), 0).1,
            ["TooNew"]
        );
    }
    let mut restarted = Settling::default();
    assert_eq!(
        state(&published(&disk(), Some(&settled), &[], &mut restarted, at(0)), 0).0,
        DeviceState::Available
    );
    let mut swapped = Settling::default();
    let other = [Facts { diskseq: Some(9), ..blank("sda", "5000c50000000002") }];
    assert_eq!(
        state(&published(&other, Some(&settled), &[], &mut swapped, at(0)), 0).1,
        ["TooNew"]
    );
}

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
    assert!(bytes < inventory::LARGEST * 2 / 3, "{bytes}");
    // Ten times as many do not fit: it says so instead of dropping silently.
    let seen: Vec<Facts> = (0..10_000)
        .map(|n| blank(&format!("sd{n}"), &format!("600a098038303742695d4933{n:08x}")))
        .collect();
    let status = published(&seen, None, &[], &mut Settling::default(), Duration::ZERO);
    assert!(serde_json::to_vec(&status).unwrap().len() <= inventory::LARGEST + 1000);
    assert_eq!(
        (status.summary.unwrap().disks, status.problems.len()),
        (10_000, 2),
        "{:?}",
        status.problems
    );
}

#[test]
fn news_names_what_came_went_and_changed() {
    let mut settling = Settling::default();
    let disks = |names: &[&str]| -> Vec<Facts> {
        names
            .iter()
            .enumerate()
            .map(|(n, name)| blank(name, &format!("5000c5000000000{n}")))
            .collect()
    };
    let before = published(&disks(&["sda", "sdb"]), None, &[], &mut settling, Duration::ZERO);
    let mut now = disks(&["sda"]);
    now[0].content = Content::Found(Found { fs_type: Some("ext4".into()), ..Found::default() });
    now.push(Facts { volume_uid: Some("u".into()), ..blank("sdc", "5000c50000000009") });
    let after = published(&now, Some(&before), &[], &mut settling, Duration::from_secs(1));
    let findings: Vec<String> = changes(&before, &after)
        .into_iter()
        .map(|one| format!("{} {}", one.reason, one.message))
        .collect();
    assert_eq!(
        findings,
        [
            "DeviceAppeared sdc (disk, 1 GiB, wwn:5000c50000000009) appeared: NotAvailable, because it is the storage of a Volume: u",
            "DeviceDisappeared sdb (disk, 1 GiB, wwn:5000c50000000001) disappeared; it was Unknown, because it has been unchanged for less than the settling time",
            "DeviceVerdictChanged sda (disk, 1 GiB, wwn:5000c50000000000) was Unknown, now NotAvailable, because it contains data: ext4; it has been unchanged for less than the settling time",
        ]
    );
    assert!(changes(&after, &after).is_empty());
    let many: Vec<Facts> =
        (0..50).map(|n| blank(&format!("sd{n}"), &format!("5000c500000001{n:02}"))).collect();
    let crowd = published(&many, Some(&after), &[], &mut settling, Duration::from_secs(2));
    assert!(changes(&after, &crowd).len() <= 20);
}

#[test]
fn devices_are_listed_as_people_count() {
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
fn every_reason_of_the_table_can_be_met() {
    // Those that need other devices or the cluster; the others are in `each_fact_gives_its_reason`.
    let elsewhere = [
        Reason::IdentityElsewhere,
        Reason::DuplicateIdentity,
        Reason::IdentityChanged,
        Reason::AmbiguousIdentity,
        Reason::NoIdentity,
        Reason::Claimed,
        Reason::RetainedData,
        Reason::UnlistedPersistentVolumes,
        Reason::TooNew,
    ];
    assert_eq!(TABLE.len(), elsewhere.len() + 22);
}

#[test]
fn whoever_owns_a_disk_owns_its_partitions() {
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
    let reasons: Vec<String> = inventory::row(&known[1], true, &spec)
        .reasons
        .into_iter()
        .map(|found| found.reason.to_string())
        .collect();
    assert_eq!(reasons, ["Claimed", "BacksPersistentVolume"]);
}

#[test]
fn a_device_that_could_not_be_asked_is_unknown_and_not_without_identity() {
    for (content, reason) in
        [(Content::TimedOut, "TimedOut"), (Content::NotPermitted, "NotPermitted")]
    {
        let hung =
            Facts { evidence: Vec::new(), held: Held::Unasked, content, ..blank("loop0", "0") };
        let known = group(&[hung], None, None, &[]);
        let row = inventory::row(&known[0], true, &NodeInventorySpec::default());
        assert_eq!(
            (row.state, row.reasons.len(), row.reasons[0].reason.as_str()),
            (DeviceState::Unknown, 1, reason)
        );
    }
}

#[test]
fn what_nobody_can_look_at_any_more_is_not_available_and_the_status_says_why() {
    let mut settling = Settling::default();
    published(&[blank("sda", "5000c50000000001")], None, &[], &mut settling, Duration::ZERO);
    let free =
        published(&[blank("sda", "5000c50000000001")], None, &[], &mut settling, SETTLING_TIME);
    assert_eq!(free.summary.as_ref().unwrap().available, 1);
    let unseen = inventory::unseen(free, "listing /sys/class/block: permission denied");
    assert_eq!(
        (state(&unseen, 0), unseen.summary.as_ref().unwrap().available),
        ((DeviceState::Unknown, vec!["Unreadable"]), 0)
    );
    assert_eq!(unseen.problems, ["listing /sys/class/block: permission denied"]);
    assert_eq!(
        inventory::unseen(unseen.clone(), "listing /sys/class/block: permission denied"),
        unseen,
        "told once"
    );
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
fn a_path_that_says_less_is_still_the_same_disk() {
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
fn what_uses_a_disk_uses_its_partitions_and_what_is_built_on_them() {
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
    // Nobody is sure which disk it is: nor is anybody of its partitions.
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

#[test]
fn writes_of_somebody_who_holds_a_device_do_not_make_it_new() {
    let mut settling = Settling::default();
    let held =
        |writes| [Facts { held: Held::Exclusively, writes, ..blank("sda", "5000c50000000001") }];
    published(&held(1), None, &[], &mut settling, Duration::ZERO);
    let settled = published(&held(2), None, &[], &mut settling, SETTLING_TIME);
    assert_eq!(state(&settled, 0).1, ["HeldExclusively"]);
}
