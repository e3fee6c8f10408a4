//! What a kernel builds on disks: RAID, LVM, maps, partitions, swap. Compared with lsblk, with
//! verdicts.

use crate::oracle::{Seen, agreed, reasons};
use quarry_tests::guest::{Image, MIB, Uml};

// invariant: 1
#[test]
fn raid_lvm_maps_and_partitions_agree_with_lsblk() {
    let disks: Vec<Image> = (0..15).map(|_| Image::raw(64 * MIB)).collect();
    let mut uml = Uml::boot("stack", &disks);
    uml.bring_quarry();
    let create = "mdadm --create --homehost=any --run";
    uml.run(&format!(
        "set -e
         {create} /dev/md/mirror --level=1 --raid-devices=2 --assume-clean /dev/ubda /dev/ubdb
         {create} /dev/md/stripe --level=0 --raid-devices=2 /dev/ubdc /dev/ubdd
         {create} /dev/md/both --level=10 --raid-devices=4 --assume-clean /dev/ubd[efgh]
         pvcreate -q /dev/ubdi /dev/ubdj; vgcreate -q rocks /dev/ubdi /dev/ubdj
         lvcreate -q -y -n data -L 80M rocks; lvcreate -q -y -n free -L 16M rocks
         mkfs.ext4 -q /dev/md/both; mount /dev/md/both /mnt
         mkfs.ext4 -q -L rocky /dev/rocks/data
         dmsetup create asleep --table '0 65536 linear /dev/ubdk 0'; dmsetup suspend asleep
         dmsetup create secret -u CRYPT-LUKS2-0123456789abcdef0123456789abcdef-secret --table '0 65536 linear /dev/ubdk 65536'
         sgdisk -n 1:0:+8M -t 1:ef00 -c 1:'EFI System' -n 2:0:+8M -c 2:'bios thing' -n 3:0:+16M -c 3:'with blanks' -n 4:0:0 /dev/ubdl
         printf 'label: dos\\nlabel-id: 0xcafe1234\\nsize=16M, type=83\\nsize=16M, type=5\\n size=8M, type=82\\n' | sfdisk -q /dev/ubdm
         mkfs.ext4 -q /dev/ubdl3; mkdir /run/third; mount /dev/ubdl3 /run/third
         /usr/sbin/mkswap -q -L swapped /dev/ubdn; swapon /dev/ubdn
         # mdadm and udev race: udev may have read a member before it was one.
         udevadm trigger --action=change --subsystem-match=block --sysname-match='ubd*'"
    ));
    uml.scsi_debug(1, 16);
    let seen = agreed(&mut uml);
    assert_stack(&seen);
    assert_partitions(&seen);
    assert_eq!(
        reasons_of(&seen, "ubdn"),
        ["NoIdentity", "Swap", "HeldExclusively", "Signature: swap"]
    );
    assert_eq!(seen.named("sda")["identity"], "wwn:33333330000007d0");
    assert!(reasons_of(&seen, "sda").is_empty());
    assert_hung_map_is_skipped(&mut uml);
    assert_incomplete_array(&mut uml);
}

fn reasons_of(seen: &Seen, name: &str) -> Vec<String> {
    reasons(seen.named(name))
}

/// Asserts arrays, volumes and maps, and the disks below them.
fn assert_stack(seen: &Seen) {
    for (name, kind, level, members) in [
        ("mirror", "md", "raid1", "ab"),
        ("stripe", "md", "raid0", "cd"),
        ("both", "md", "raid10", "efgh"),
    ] {
        let array = seen
            .0
            .iter()
            .find(|device| device["type"] == level)
            .unwrap_or_else(|| panic!("no {level}"));
        assert!(
            array["identity"].as_str().is_some_and(|identity| identity
                .starts_with(&format!("{kind}:"))
                && identity.len() == 35),
            "{array}"
        );
        assert_eq!(array["deviceID"], format!("/dev/disk/by-id/md-name-any:{name}"));
        let mounted = ["Mounted: /mnt", "HeldExclusively", "Signature: ext4"];
        assert_eq!(reasons(array), if name == "both" { &mounted[..] } else { &[] });
        for member in members.chars().map(|letter| format!("ubd{letter}")) {
            let holder = format!("HasHolders: {}", array["name"].as_str().unwrap());
            assert_eq!(
                reasons_of(seen, &member),
                ["NoIdentity", &holder, "HeldExclusively", "Signature: linux_raid_member"],
                "{member}"
            );
        }
    }
    for (name, kind, form, why) in [
        ("rocks-data", "lvm", "lvm:", &["Signature: ext4"][..]),
        ("rocks-free", "lvm", "lvm:", &[]),
        ("secret", "crypt", "dm:CRYPT-LUKS2-", &[]),
        ("asleep", "dm", "", &["Suspended"]),
    ] {
        let device = seen.named(name);
        assert_eq!(device["type"], kind, "{name}");
        assert!(device["identity"].as_str().unwrap_or_default().starts_with(form), "{device}");
        assert_eq!(reasons(device), why, "{name}");
    }
    assert_eq!(reasons_of(seen, "ubdi").last().unwrap(), "Signature: LVM2_member");
    assert_eq!(
        reasons_of(seen, "ubdk").iter().filter(|why| why.starts_with("HasHolders: dm-")).count(),
        2
    );
}

/// Asserts the partitions that the kernel finds in a GPT and in an MBR.
fn assert_partitions(seen: &Seen) {
    assert_eq!(
        reasons_of(seen, "ubdl"),
        [
            "NoIdentity",
            "HasChildren: ubdl1, ubdl2, ubdl3, ubdl4",
            "HeldExclusively",
            "PartitionTable: gpt"
        ]
    );
    assert_eq!(
        reasons_of(seen, "ubdm"),
        ["NoIdentity", "HasChildren: ubdm1, ubdm2, ubdm3", "PartitionTable: dos"]
    );
    for (name, why) in [
        ("ubdl1", &["BootLabel: type c12a7328-f81f-11d2-ba4b-00a0c93ec93b"][..]),
        ("ubdl2", &["BootLabel: bios thing"]),
        ("ubdl3", &["Mounted: /run/third", "HeldExclusively", "Signature: ext4"]),
        ("ubdl4", &[]),
        ("ubdm1", &[]),
        ("ubdm2", &["PartitionTable: dos"]),
        ("ubdm3", &[]),
    ] {
        let partition = seen.named(name);
        assert_eq!(reasons(partition), why, "{name}");
        assert_eq!(
            (&partition["type"], partition["parent"].as_str()),
            (&"part".into(), Some(&name[..4]))
        );
        assert_eq!(
            partition["identity"],
            format!("part:{}", partition["partUUID"].as_str().unwrap()),
            "{name}"
        );
    }
    assert_eq!(seen.named("ubdm3")["identity"], "part:cafe1234-03");
    assert_eq!(seen.named("ubdl3")["partLabel"], "with blanks");
}

/// A map on a suspended map is not suspended itself: a read of it waits. The other devices are
/// still reported, before this one responds. The process exits only afterwards: the kernel waits
/// for the read when the last user closes the device.
fn assert_hung_map_is_skipped(uml: &mut Uml) {
    uml.run("udevadm control --stop-exec-queue; dmsetup create --noudevsync waiting --table '0 2048 linear /dev/mapper/asleep 0'");
    uml.run("/run/quarry-bin devices --local --all -o json >/run/devices </dev/null 2>&1 &");
    let text = uml
        .until("everything is reported", "cat /run/devices", |text| text.trim_end().ends_with(']'));
    let seen = Seen(serde_json::from_str(&text).unwrap());
    assert_eq!(
        (reasons_of(&seen, "waiting"), &seen.named("waiting")["state"]),
        (vec!["TimedOut".to_owned()], &"Unknown".into())
    );
    assert_stack_unchanged(&seen);
    uml.run("dmsetup --noudevsync resume asleep; udevadm control --start-exec-queue");
    let seen = agreed(uml);
    assert_eq!(reasons_of(&seen, "waiting"), ["NoIdentity"]);
    assert!(reasons_of(&seen, "asleep").iter().any(|why| why.starts_with("HasHolders: dm-")));
}

fn assert_stack_unchanged(seen: &Seen) {
    assert_eq!(reasons_of(seen, "rocks-data"), ["Signature: ext4"]);
    assert_eq!(reasons_of(seen, "asleep").last().unwrap(), "Suspended");
    assert!(reasons_of(seen, "ubdl4").is_empty());
}

/// One of two disks is left: the kernel keeps it in an array without a size.
fn assert_incomplete_array(uml: &mut Uml) {
    uml.run("mdadm --stop /dev/md/mirror && mdadm --zero-superblock /dev/ubdb && udevadm settle && (mdadm -I /dev/ubda || true)");
    let seen = agreed(uml);
    let disk = reasons_of(&seen, "ubda");
    let array = disk
        .iter()
        .find_map(|why| why.strip_prefix("HasHolders: "))
        .unwrap_or_else(|| panic!("{disk:?}"));
    assert!(
        reasons_of(&seen, array).iter().any(|why| why == "ZeroSize"),
        "{:?}",
        reasons_of(&seen, array)
    );
}
