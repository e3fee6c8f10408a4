//! The device ID: which link below /dev/disk/by-id names a device, ranked as the Local Storage Operator does.

/// The first bucket with a link wins, within a bucket the first by name.
const BUCKETS: &[&str] = &[
    "wwn", "scsi-3", "scsi-2", "scsi-8", "scsi-S", "scsi-1", "scsi-0", "scsi", "nvme-eui", "nvme",
    "",
];

/// The name of the best link; `None` when there is no link.
pub fn best<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names.into_iter().min_by_key(|name| (bucket(name), *name))
}

/// Names that the content of a device chooses, or an administrator: another disk may have them after a reboot. That of a
/// multipath map is its disks' own.
const CHOSEN_BY_CONTENT: &[&str] = &["lvm-pv-uuid-", "md-", "dm-"];

/// Whether the hardware gives the device this name, whatever is written to it.
pub fn is_given_by_hardware(name: &str) -> bool {
    let is_map = name.starts_with("dm-uuid-") && name.contains("mpath-");
    is_map || !CHOSEN_BY_CONTENT.iter().any(|prefix| name.starts_with(prefix))
}

fn bucket(name: &str) -> usize {
    // The alias of a map comes last of all.
    if name.starts_with("dm-name-") {
        return BUCKETS.len() + 1;
    }
    if !is_given_by_hardware(name) {
        return BUCKETS.len();
    }
    BUCKETS.iter().position(|prefix| name.starts_with(prefix)).unwrap_or(BUCKETS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    // invariant: 2
    #[test]
    fn a_name_that_content_chooses_is_not_the_hardwares() {
        for chosen in [
            "lvm-pv-uuid-aBcDeF",
            "md-name-host:0",
            "md-uuid-12345678:0:0:0",
            "dm-name-vg-lv",
            "dm-uuid-LVM-abcdef",
            "dm-uuid-CRYPT-LUKS2-1-luks",
        ] {
            assert!(!is_given_by_hardware(chosen), "{chosen}");
        }
        for given in ["wwn-0x5000c500a1b2c3d4-part1", "virtio-1", "dm-uuid-part1-mpath-3500"] {
            assert!(is_given_by_hardware(given), "{given}");
        }
    }

    #[test]
    fn the_upstream_order_holds() {
        let order = [
            "wwn-0x5000c500a1b2c3d4",
            "scsi-35000c500a1b2c3d4",
            "scsi-2abc",
            "scsi-8abc",
            "scsi-SATA_X",
            "scsi-1ATA_X",
            "scsi-0QEMU",
            "scsi-Xother",
            "nvme-eui.0025385b71b0c0de",
            "nvme-SAMSUNG_1",
            "ata-INTEL_1",
            "virtio-1",
        ];
        for (at, name) in order.iter().enumerate() {
            assert_eq!(best(order[at..].iter().rev().copied()), Some(*name));
        }
        assert_eq!(best(["ata-b", "ata-a"]), Some("ata-a"));
        assert_eq!(
            best(["dm-name-mpatha", "dm-uuid-mpath-35000c500a1b2c3d4"]),
            Some("dm-uuid-mpath-35000c500a1b2c3d4")
        );
        assert_eq!(best(["dm-name-mpatha"]), Some("dm-name-mpatha"));
        assert_eq!(best(["lvm-pv-uuid-1", "virtio-1"]), Some("virtio-1"));
        assert_eq!(best(["md-name-h:0", "md-uuid-1", "dm-name-a"]), Some("md-name-h:0"));
        assert_eq!(best([]), None);
    }
}
