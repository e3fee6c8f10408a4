//! Disks of every bus, present from a cold boot on: compared with lsblk, recognized under other
//! names, with verdicts.

use crate::oracle::{Seen, agreed, reasons, sources};
use quarry_tests::guest::{Disk, MIB, Qemu};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const HDD: u64 = 0x5000_c500_0000_0001;
const PAIR: u64 = 0x5000_c500_0000_0002;
const SAS: u64 = 0x5000_c500_0000_0003;

fn disks() -> Vec<Disk> {
    let pair = Disk::scsi("MPATH1").vendor("DELL").model("MD32xx").wwn(PAIR);
    vec![
        Disk::nvme("NV1"),
        Disk::virtio("VIRT1"),
        Disk::virtio(""),
        Disk::scsi("HDD1").vendor("SEAGATE").model("ST2000LM").wwn(HDD).rotation(7200),
        Disk::scsi("FOURK").rotation(1).four_k(),
        Disk::scsi("READONLY").read_only(),
        Disk::scsi("EQUAL"),
        Disk::scsi("EQUAL"),
        pair.clone(),
        pair.second_path(),
        Disk::sata("SATA1").model("INTEL_SSDSC2").rotation(1).size(512 * MIB),
        // QEMU numbers its SATA ports where no serial is given.
        Disk::sata(""),
        Disk::sas("SAS1").wwn(SAS),
        Disk::usb("USB1"),
    ]
}

// invariant: 3
#[test]
fn disks_of_every_bus_agree_with_lsblk() {
    let disks = disks();
    let mut guest = Qemu::boot("hardware", &disks);
    guest.bring_quarry();
    guest.qmp(
        "device_add",
        json!({"driver": "scsi-cd", "bus": "scsi0.0", "id": "drive", "serial": "CD1"}),
    );
    guest.until("the slowest, USB, exists", "ls /dev/disk/by-id", |names| {
        names.contains("usb-QEMU_QEMU_HARDDISK_USB1")
    });
    guest.until("the optical drive exists", "ls /dev/sr0", |names| names.contains("sr0"));
    // One path writes a table, and both show its partition.
    guest.run(
        "set -e
         mkfs.xfs -q -f -L labelled /dev/disk/by-id/ata-INTEL_SSDSC2_SATA1; mkfs.ext4 -q /dev/disk/by-id/virtio-VIRT1
         sgdisk -n 1:0:0 -c 1:four /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_FOURK
         paths=$(lsblk -dpnro NAME,SERIAL | sed -n 's/ MPATH1$//p'); set -- $paths
         sgdisk -n 1:0:0 -u 1:11111111-2222-3333-4444-555555555555 $1; blockdev --flushbufs $2; blockdev --rereadpt $2",
    );
    let seen = agreed(&mut guest);
    assert_eq!(seen.0.iter().filter(|device| device["type"] == "disk").count(), disks.len());
    assert_hardware(&seen);
    assert_verdicts(&seen);
    drop(guest);

    let again = under_other_names(&disks, &seen);
    for (serial, before) in unique(&seen)
        .iter()
        .filter(|(serial, _)| !["SATA1", "SAS1", "CD1"].contains(&serial.as_str()))
        .filter(|(serial, _)| !serial.starts_with("QM"))
    {
        let after = again.serial(serial);
        assert_eq!(
            (&after["identity"], &after["deviceID"]),
            (&before["identity"], &before["deviceID"]),
            "{serial}"
        );
        assert!(after["identity"].is_string() || serial == "USB1", "{after}");
        assert!(after["deviceID"].is_string(), "{after}");
    }
}

/// Asserts that the emulated hardware is what the test requested.
fn assert_hardware(seen: &Seen) {
    for (serial, wanted) in [
        ("NV1", json!({"transport": "nvme", "model": "QEMU NVMe Ctrl"})),
        ("VIRT1", json!({"vendor": "0x1af4", "rotational": true, "fsType": "ext4"})),
        (
            "HDD1",
            json!({"vendor": "SEAGATE", "model": "ST2000LM", "rotational": true, "kernelState": "running"}),
        ),
        ("FOURK", json!({"vendor": "QEMU", "rotational": null, "tableType": "gpt"})),
        ("READONLY", json!({"readOnly": true})),
        (
            "SATA1",
            json!({"vendor": "ATA", "transport": "sata", "model": "INTEL_SSDSC2", "fsType": "xfs", "fsLabel": "labelled"}),
        ),
        ("SAS1", json!({"transport": "sas"})),
        ("USB1", json!({"transport": "usb", "removable": true})),
        ("CD1", json!({"type": "rom", "removable": true})),
    ] {
        let device = seen.serial(serial);
        for (field, value) in wanted.as_object().unwrap() {
            assert_eq!(&device[field], value, "{serial}: {field}");
        }
    }
}

/// Asserts the identity of each disk, its evidence, its link and its reasons.
fn assert_verdicts(seen: &Seen) {
    let four = format!("HasChildren: {}1", seen.serial("FOURK")["name"].as_str().unwrap());
    let four = [four.as_str(), "PartitionTable: gpt"];
    for (serial, identity, source, link, why) in [
        (
            "NV1",
            "serial:QEMU NVMe Ctrl:NV1",
            ("sysfs:serial", "NV1"),
            "nvme-QEMU_NVMe_Ctrl_NV1",
            &[][..],
        ),
        ("VIRT1", "serial::VIRT1", ("sysfs:serial", "VIRT1"), "virtio-VIRT1", &["Signature: ext4"]),
        (
            "HDD1",
            "wwn:5000c50000000001",
            ("sysfs:wwid", "naa.5000c50000000001"),
            "wwn-0x5000c50000000001",
            &[],
        ),
        (
            "FOURK",
            "serial:QEMU HARDDISK:FOURK",
            ("sysfs:vpd80", "FOURK"),
            "scsi-0QEMU_QEMU_HARDDISK_FOURK",
            &four,
        ),
        (
            "READONLY",
            "serial:QEMU HARDDISK:READONLY",
            ("sysfs:vpd80", "READONLY"),
            "scsi-0QEMU_QEMU_HARDDISK_READONLY",
            &["ReadOnly"],
        ),
        (
            "SATA1",
            "serial:INTEL_SSDSC2:SATA1",
            ("sysfs:vpd80", "SATA1"),
            "ata-INTEL_SSDSC2_SATA1",
            &["Signature: xfs"],
        ),
        (
            "SAS1",
            "wwn:5000c50000000003",
            ("sysfs:wwid", "naa.5000c50000000003"),
            "wwn-0x5000c50000000003",
            &[],
        ),
        // The serial of a USB bridge: another disk in the same case has it, too.
        (
            "USB1",
            "",
            ("udev:ID_SERIAL_SHORT", "USB1"),
            "usb-QEMU_QEMU_HARDDISK_USB1-0:0",
            &["NoIdentity: its serial USB1 is that of its slot", "Removable"],
        ),
        (
            "CD1",
            "serial:QEMU CD-ROM:CD1",
            ("udev:ID_SERIAL_SHORT", "CD1"),
            "scsi-0QEMU_QEMU_CD-ROM_CD1",
            &["ReadOnly", "Removable", "NoMedium"],
        ),
    ] {
        let device = seen.serial(serial);
        assert_eq!(device["identity"].as_str().unwrap_or_default(), identity, "{serial}");
        assert_eq!(sources(device).get(source.0), Some(&source.1), "{serial}: {device}");
        assert_eq!(device["deviceID"], format!("/dev/disk/by-id/{link}"), "{serial}");
        assert_eq!(reasons(device), why, "{serial}");
        assert_eq!(
            device["state"],
            if why.is_empty() { "Available" } else { "NotAvailable" },
            "{serial}"
        );
    }
    let nameless: Vec<&Value> = seen
        .0
        .iter()
        .filter(|device| device["vendor"] == "0x1af4" && device["serial"].is_null())
        .collect();
    assert_eq!(nameless.len(), 1);
    assert_eq!(
        (&nameless[0]["identity"], reasons(nameless[0])),
        (&Value::Null, vec!["NoIdentity".to_owned()])
    );

    let is_port = |device: &&&Value| {
        device["serial"].as_str().is_some_and(|serial| serial.starts_with("QM000"))
    };
    let ports: Vec<&Value> = seen.0.iter().filter(|device| is_port(&device)).collect();
    assert_eq!(ports.len(), 1);
    let serial = ports[0]["serial"].as_str().unwrap();
    assert_eq!(
        (&ports[0]["identity"], reasons(ports[0])),
        (&Value::Null, vec![format!("NoIdentity: its serial {serial} is that of its slot")])
    );

    // Two disks with equal properties, and one disk that appears twice: both sides name the other,
    // also for partitions.
    assert_eq!(twins(seen, "EQUAL", ""), ["serial:QEMU HARDDISK:EQUAL"; 2]);
    assert_eq!(twins(seen, "MPATH1", ""), ["wwn:5000c50000000002"; 2]);
    assert_eq!(twins(seen, "MPATH1", "1"), ["part:11111111-2222-3333-4444-555555555555"; 2]);
}

/// Identities of two equal disks, or of a partition on each.
fn twins(seen: &Seen, serial: &str, partition: &str) -> Vec<String> {
    let names: Vec<String> = seen
        .serials(serial)
        .iter()
        .map(|device| format!("{}{partition}", device["name"].as_str().unwrap()))
        .collect();
    assert_eq!(names.len(), 2, "{serial}");
    for (name, other) in [(&names[0], &names[1]), (&names[1], &names[0])] {
        let why = reasons(seen.named(name));
        // A partition reports the reason of its disk too.
        assert!(why.contains(&format!("DuplicateIdentity: {other}")), "{name}: {why:?}");
        assert_eq!(seen.named(name)["state"], "NotAvailable");
    }
    names.iter().map(|name| seen.named(name)["identity"].as_str().unwrap().to_owned()).collect()
}

/// Disks with a unique identity.
fn unique(seen: &Seen) -> BTreeMap<String, &Value> {
    let serials = seen.0.iter().filter_map(|device| device["serial"].as_str());
    serials
        .filter(|serial| seen.serials(serial).len() == 1)
        .map(|serial| (serial.to_owned(), seen.serial(serial)))
        .collect()
}

/// The same disks in another guest, as after a reboot, plugged in an order that guarantees another
/// letter for one of them.
fn under_other_names(disks: &[Disk], before: &Seen) -> Seen {
    let mut guest = Qemu::restore("renamed");
    guest.bring_quarry();
    let (hdd, rest): (Vec<&Disk>, Vec<&Disk>) = disks
        .iter()
        .filter(|disk| disk.can_be_plugged())
        .partition(|disk| disk.serial() == Some("HDD1"));
    let was = before.serial("HDD1")["name"].clone();
    let all: Vec<&Disk> = if was == "sda" {
        rest.into_iter().rev().chain(hdd).collect()
    } else {
        hdd.into_iter().chain(rest).collect()
    };
    for (index, disk) in all.iter().enumerate() {
        guest.plug(disk);
        guest.until("it exists", "lsblk -dnro NAME", |names| names.lines().count() == index + 1);
    }
    guest.until("all have their links", "ls /dev/disk/by-id", |names| {
        ["NV1", "VIRT1", "5000c50000000001", "FOURK", "READONLY", "USB1"]
            .iter()
            .all(|name| names.contains(name))
    });
    let seen = agreed(&mut guest);
    assert_ne!(seen.serial("HDD1")["name"], was);
    seen
}
