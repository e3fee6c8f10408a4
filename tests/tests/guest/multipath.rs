//! Two paths to one disk: two quarantined devices, until multipathd combines them.

use crate::oracle::{Seen, agreed, reasons};
use quarry_tests::guest::{Disk, Qemu};
use std::collections::BTreeSet;

// invariant: 3
#[test]
fn two_paths_are_quarantined_until_multipathd_maps_them() {
    let mut guest = Qemu::restore("multipath");
    guest.bring_quarry();
    // A vendor that multipathd does not know: otherwise it would send commands of a real array's
    // controller.
    let disk = Disk::scsi("MP1").vendor("ACME").model("ARRAY").wwn(0x5000_c500_0000_0009);
    let second = disk.second_path();
    guest.plug(&disk);
    guest.plug(&second);
    guest.until("both paths exist", "lsblk -dnro WWN", |shown| {
        shown.matches("0x5000c50000000009").count() == 2
    });
    let seen = agreed(&mut guest);
    let pair = seen.serials("MP1");
    assert_eq!(pair.len(), 2, "{seen:?}");
    for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
        assert_eq!(one["identity"], "wwn:5000c50000000009");
        assert_eq!(
            (&one["state"], reasons(one)),
            (
                &"NotAvailable".into(),
                vec![format!("DuplicateIdentity: {}", other["name"].as_str().unwrap())]
            )
        );
    }
    let names: BTreeSet<String> =
        pair.iter().map(|path| path["name"].as_str().unwrap().to_owned()).collect();

    guest.start_multipathd();
    guest.until("one map over two paths", "lsblk -nro NAME,TYPE", |shown| {
        shown.matches(" mpath").count() == 2
    });
    let seen = agreed(&mut guest);
    let map = seen.serial("MP1");
    assert_eq!(
        (&map["type"], &map["mappedName"], &map["identity"]),
        (&"mpath".into(), &"mpatha".into(), &"wwn:5000c50000000009".into())
    );
    assert_eq!(paths(map), names);
    assert_eq!((&map["state"], reasons(map)), (&"Available".into(), vec![]));
    assert_eq!(
        (&map["vendor"], &map["model"]),
        (&"ACME".into(), &"ARRAY".into()),
        "the properties of its paths"
    );
    assert_eq!(map["deviceID"], "/dev/disk/by-id/wwn-0x5000c50000000009");
    assert_eq!(seen.0.len(), 1, "the paths are not separate devices: {seen:?}");

    // A lost path only changes the number of paths.
    guest.unplug(&second);
    guest.until("one path is left", "lsblk -nro NAME,TYPE", |shown| {
        shown.matches(" mpath").count() == 1
    });
    let seen = agreed(&mut guest);
    let map = seen.serial("MP1");
    assert_eq!(
        (&map["identity"], &map["state"], paths(map).len()),
        (&"wwn:5000c50000000009".into(), &"Available".into(), 1)
    );
    guest.plug(&second);
    guest.until("two paths again", "lsblk -nro NAME,TYPE", |shown| {
        shown.matches(" mpath").count() == 2
    });

    // Changes of the map are reported for the map.
    guest.run("sgdisk -n 1:0:+16M -c 1:inside -n 2:0:0 -t 2:ef00 /dev/mapper/mpatha && kpartx -a /dev/mapper/mpatha && udevadm settle && mkfs.ext4 -q /dev/mapper/mpatha1");
    guest.run("mount /dev/mapper/mpatha1 /mnt");
    let seen: Seen = agreed(&mut guest);
    let (map, part) = (seen.named("mpatha"), seen.named("mpatha1"));
    let holder = |name: &str| format!("HasHolders: {}", seen.named(name)["name"].as_str().unwrap());
    assert_eq!(
        reasons(map),
        [
            holder("mpatha1"),
            holder("mpatha2"),
            "HeldExclusively".into(),
            "PartitionTable: gpt".into()
        ]
    );
    assert_eq!(
        (&part["type"], reasons(part)),
        (
            &"part".into(),
            vec!["Mounted: /mnt".to_owned(), "HeldExclusively".into(), "Signature: ext4".into()]
        )
    );
    assert_eq!(
        part["identity"],
        format!("part:{}", part["partUUID"].as_str().unwrap()),
        "as before the map existed"
    );
    let efi = reasons(seen.named("mpatha2"));
    assert!(efi.iter().any(|why| why.starts_with("BootLabel: type c12a7328")), "{efi:?}");
    guest.run("umount /mnt");
}

fn paths(map: &serde_json::Value) -> BTreeSet<String> {
    map["paths"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}
