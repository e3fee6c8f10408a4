//! Devices for tests, here and in crates that render views.

#![expect(clippy::unwrap_used, reason = "a sample that cannot be read fails its test")]

use super::DeviceView;
use serde_json::{Value, json};

/// A disk of node n1, with these fields.
pub fn device(fields: Value) -> DeviceView {
    let mut object = json!({"name": "sda", "type": "disk", "size": 0, "state": "NotAvailable"});
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
    DeviceView::of_node("n1", serde_json::from_value(object).unwrap())
}

/// A server with a system disk, an available disk, one that could not be read and the device of a Volume.
pub fn machine() -> Vec<DeviceView> {
    vec![
        device(json!({
            "name": "sda", "size": 480_103_981_056_i64, "model": "INTEL SSDSC2KB480G8", "vendor": "ATA", "serial": "PHYF1234567890AB", "transport": "sata",
            "identity": "wwn:55cd2e414f4cd4ba", "deviceID": "/dev/disk/by-id/ata-INTEL_SSDSC2KB480G8_PHYF1234567890AB",
            "evidence": [{"source": "sysfs:wwid", "value": "naa.55cd2e414f4cd4ba"}, {"source": "sysfs:vpd80", "value": "PHYF1234567890AB"}],
            "reasons": [{"reason": "HasChildren", "detail": "sda1, sda2"}, {"reason": "PartitionTable", "detail": "gpt"}],
        })),
        device(json!({
            "name": "sda1", "type": "part", "parent": "sda", "size": 536_870_912, "fsType": "vfat", "identity": "part:0f2c-1",
            "reasons": [{"reason": "Mounted", "detail": "/boot/efi"}, {"reason": "BootLabel", "detail": "EFI"}, {"reason": "Signature", "detail": "vfat"}],
        })),
        device(json!({
            "name": "sda2", "type": "part", "parent": "sda", "size": 479_000_000_000_i64, "fsType": "LVM2_member", "identity": "part:0f2c-2",
            "reasons": [{"reason": "HasHolders", "detail": "dm-0"}, {"reason": "Signature", "detail": "LVM2_member"}],
        })),
        device(json!({
            "name": "dm-0", "mappedName": "vg-root", "type": "lvm", "size": 479_000_000_000_i64, "fsType": "ext4", "identity": "lvm:abc",
            "reasons": [{"reason": "Mounted", "detail": "/"}, {"reason": "Mounted", "detail": "/var/lib/docker"}, {"reason": "Signature", "detail": "ext4"}],
        })),
        device(json!({
            "name": "sdb", "size": 4_000_787_030_016_i64, "model": "ST4000NM0035", "rotational": true, "identity": "wwn:5000c500a1b2c3d4",
            "deviceID": "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4", "state": "Available", "settled": true,
        })),
        device(
            json!({"name": "sdc", "size": 4_000_787_030_016_i64, "state": "Unknown", "reasons": [{"reason": "NotPermitted"}]}),
        ),
        device(json!({
            "name": "loop0", "type": "loop", "size": 1_073_741_824, "fsType": "xfs", "volumeUID": "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab",
            "backingFile": "/var/lib/quarry/volumes/0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab", "identity": "file:/var/lib/quarry/volumes/0b0f#12#1.5",
            "reasons": [{"reason": "BacksVolume", "detail": "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab"}, {"reason": "Signature", "detail": "xfs"}],
        })),
    ]
}

/// A disk whose strings contain escape sequences. The inspector escapes them already; a terminal must be safe without.
pub fn hostile() -> DeviceView {
    device(json!({
        "name": "sdx", "size": 1024, "model": "a\u{1b}[2J\u{1b}]0;owned\u{7}", "vendor": "b\u{202e}c", "serial": "d\ne\tf", "identity": "serial:\u{1b}[31m:x",
        "deviceID": "/dev/disk/by-id/ata-\u{1b}[8m", "fsType": "x\u{9b}31m", "partLabel": "\u{1b}c", "transport": "\r",
        "evidence": [{"source": "sysfs:vpd80", "value": "\u{1b}[1A"}],
        "reasons": [{"reason": "Mounted", "detail": "/mnt/\u{1b}[2K\nfine"}, {"reason": "New\u{1b}[1m", "detail": "\u{7}"}],
    }))
}
