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

fn bucket(name: &str) -> usize {
    // The alias of a map: another disk may have it after a reboot, so any other link is better.
    if name.starts_with("dm-name-") {
        return BUCKETS.len();
    }
    BUCKETS.iter().position(|prefix| name.starts_with(prefix)).unwrap_or(BUCKETS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(best([]), None);
    }
}
