use super::*;

// invariant: 3
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

// invariant: 4
#[test]
fn contradictory_sources_are_reported() {
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

/// A slot keeps its serial when the disk in it is replaced.
// invariant: 3
#[test]
fn a_serial_that_names_a_slot_does_not_identify() {
    let with = |transport: Option<&str>, serial: &str, wwn: Option<&str>| {
        let mut pairs = vec![("sysfs:serial", serial), ("sysfs:model", "QEMU HARDDISK")];
        pairs.extend(wwn.map(|wwn| ("sysfs:wwid", wwn)));
        let facts = Facts {
            name: "sda".into(),
            kind: "disk".into(),
            serial: Some(serial.into()),
            transport: transport.map(str::to_owned),
            evidence: evidence(&pairs),
            content: Content::Blank,
            ..Facts::default()
        };
        let device = group(&[facts], None, None, &[]).remove(0);
        (device.identified.candidates, device.findings)
    };
    let none = Vec::<String>::new();
    for (transport, serial) in [(Some("sata"), "QM00002"), (Some("usb"), "0123ABCD9876")] {
        let (candidates, findings) = with(transport, serial, None);
        assert_eq!(candidates, none, "{serial}");
        let detail = format!("its serial {serial} is that of its slot");
        assert_eq!(findings, [(Reason::NoIdentity, detail)]);
        let (candidates, _) = with(transport, serial, Some("naa.5000c50000000001"));
        assert_eq!(candidates, ["wwn:5000c50000000001"], "{serial}");
    }
    for serial in ["QM0002", "QM00002X", "XQM00002", "S3Z9NB0K"] {
        let expected = format!("serial:QEMU HARDDISK:{serial}");
        assert_eq!(with(Some("sata"), serial, None).0, [expected], "{serial}");
    }
    // The operator sees a row, not the facts: it must come to the same result.
    let facts = Facts {
        name: "sda".into(),
        kind: "disk".into(),
        transport: Some("usb".into()),
        evidence: evidence(&[("sysfs:serial", "0123ABCD9876")]),
        ..Facts::default()
    };
    let device = group(&[facts], None, None, &[]).remove(0);
    let row = row(&device, &[], true, &NodeInventorySpec::default());
    assert!(published_candidates(&row).is_empty());
}
