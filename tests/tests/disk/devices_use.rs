//! Who uses a device and how: partitions, mounts, swap, exclusive opens, loop devices on top; with
//! and without udev's database.

use super::devices::{
    Loop, MIB, assert_like_blkid, assert_like_lsblk, dir, file, of, poke, scan, scanner,
};
use quarry_core::device::{Content, ExclusiveOpen};
use quarry_node::inspect::{Limits, Scan, Scanner};
use quarry_tests::disk::{Bed, Links, Mounted, run};
use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Command, Stdio},
};

const O_EXCL: i32 = 0o200;

#[track_caller]
fn sfdisk(device: &str, script: &str) {
    let mut child = Command::new("sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel", device])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "sfdisk {device}");
}

#[test]
fn partitions_are_read_for_every_table_and_sector_size() {
    let dir = dir();
    let gpt = "label: gpt\n- 4M L my data\n";
    let gpt = gpt.replace(
        "- 4M L my data",
        "size=4M, type=L, name=\"my data\"\nsize=4M, type=U, name=BOOT-efi\n",
    );
    let dos =
        "label: dos\nsize=4M, type=83\nsize=16M, type=5\nsize=4M, type=82\nsize=4M, type=fd\n";
    for (table, script, options, partitions) in [
        ("gpt", gpt.as_str(), &[][..], 2),
        ("gpt", gpt.as_str(), &["-b", "4096"][..], 2),
        ("dos", dos, &[][..], 4),
    ] {
        let path = file(dir.path(), "disk", 40 * MIB);
        let device = Loop::with(options, &path);
        sfdisk(&device.dev(), script);
        let names = device.add_partitions();
        assert_eq!(names.len(), partitions, "{names:?}");
        device.settle();
        run("mkfs.ext4", &["-q", &format!("/dev/{}", names[0])]);
        run("udevadm", &["trigger", "--settle", "--action=change", &format!("/dev/{}", names[0])]);
        let scanned = scan();
        let all: Vec<&str> =
            std::iter::once(device.name.as_str()).chain(names.iter().map(String::as_str)).collect();
        assert_like_lsblk(&scanned, &all);
        let disk = of(&scanned, &device.name);
        assert!(
            matches!(&disk.content, Content::Found(found) if found.table.as_deref() == Some(table)),
            "{:?}",
            disk.content
        );
        assert_like_blkid(disk);
        assert_eq!(disk.partitions, names);
        for (name, number) in names.iter().zip(1..) {
            let facts = of(&scanned, name);
            let partition = facts.partition.as_ref().unwrap();
            assert_eq!(
                (facts.parent.as_deref(), facts.diskseq),
                (Some(device.name.as_str()), disk.diskseq)
            );
            assert!(partition.start >= MIB && partition.start.is_multiple_of(512));
            assert!(table == "dos" || partition.number == number);
            assert_eq!(facts.evidence.len(), 1, "{:?}", facts.evidence);
            assert_eq!(
                (facts.evidence[0].source.as_str(), Some(&facts.evidence[0].value)),
                ("partition:uuid", partition.uuid.as_ref())
            );
            assert_like_blkid(facts);
        }

        // The same without udev's database: from the kernel and the partition table on the disk.
        let bed = Bed::new(Links::Own);
        let bare = Scanner::new(bed.host(), Limits::default()).scan(Scan::Everything).unwrap();
        for name in &names {
            assert_eq!(
                of(&bare, name).partition,
                of(&scanned, name).partition,
                "{name} in a {table} table"
            );
            assert_eq!(of(&bare, name).evidence, of(&scanned, name).evidence);
            assert_eq!(of(&bare, name).content, of(&scanned, name).content);
        }
    }
}

#[test]
fn every_kind_of_mount_is_found() {
    let dir = dir();
    for (fs, mib) in [("ext4", 16), ("xfs", 320), ("btrfs", 128)] {
        let path = file(dir.path(), fs, mib * MIB);
        run(&format!("mkfs.{fs}"), &["-q", &path.to_string_lossy()]);
        let device = Loop::new(&path);
        device.settle();
        let mut scanner = scanner();
        let free = scanner.scan(Scan::Everything).unwrap();
        assert_eq!(
            (&of(&free, &device.name).mounts[..], of(&free, &device.name).exclusive_open),
            (&[][..], ExclusiveOpen::Free)
        );
        let mount = Mounted::new(&[&device.dev()], &dir.path().join("mount point"));
        run("mount", &["--make-private", &mount.0.to_string_lossy()]);
        let bind = Mounted::new(&["--bind", &mount.0.to_string_lossy()], &dir.path().join("bind"));
        // The kernel sends no event for a mount.
        let touched = Default::default();
        let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
        let facts = of(&scanned, &device.name);
        assert_eq!(facts.mounts, [mount.0.to_string_lossy(), bind.0.to_string_lossy()], "{fs}");
        assert_eq!(facts.exclusive_open, ExclusiveOpen::Exclusively, "{fs}");
        assert!(scanned.changed);
        assert_like_lsblk(&scanned, &[&device.name]);
        drop((bind, mount));
        let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
        assert_eq!(
            (&of(&scanned, &device.name).mounts[..], of(&scanned, &device.name).exclusive_open),
            (&[][..], ExclusiveOpen::Free),
            "{fs}"
        );
    }
}

#[test]
fn bind_mounted_device_node_counts_as_mounted() {
    let dir = dir();
    let device = Loop::new(&file(dir.path(), "f", 8 * MIB));
    let at = dir.path().join("node");
    fs::write(&at, "").unwrap();
    run("mount", &["--bind", &device.dev(), &at.to_string_lossy()]);
    let bound = Bound(&at);
    let scanned = scan();
    let facts = of(&scanned, &device.name);
    assert_eq!(facts.mounts, [at.to_string_lossy()]);
    assert_eq!(
        (facts.exclusive_open, &facts.content),
        (ExclusiveOpen::Free, &Content::Blank),
        "only the mount table shows it"
    );
    drop(bound);
    assert!(of(&scan(), &device.name).mounts.is_empty());
}

struct Bound<'a>(&'a Path);

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn swap_exclusive_opens_and_stacked_loops_are_found() {
    let dir = dir();
    let path = file(dir.path(), "swap", 16 * MIB);
    run("mkswap", &["-q", &path.to_string_lossy()]);
    let device = Loop::new(&path);
    device.settle();
    run("swapon", &[&device.dev()]);
    let scanned = scan();
    let like = std::panic::catch_unwind(|| assert_like_lsblk(&scanned, &[&device.name]));
    run("swapoff", &[&device.dev()]);
    assert!(like.is_ok() && of(&scanned, &device.name).swap);

    let base = Loop::new(&file(dir.path(), "base", 16 * MIB));
    let exclusive_open =
        OpenOptions::new().read(true).custom_flags(O_EXCL).open(base.dev()).unwrap();
    let facts = scan();
    assert_eq!(of(&facts, &base.name).exclusive_open, ExclusiveOpen::Exclusively);
    assert_eq!(of(&facts, &base.name).content, Content::Blank, "it is read nevertheless");
    drop(exclusive_open);

    let top = Loop::new(Path::new(&base.dev()));
    let scanned = scan();
    assert_eq!(of(&scanned, &base.name).loops_on_top, std::slice::from_ref(&top.name));
    assert_eq!(of(&scanned, &top.name).backing.as_ref().unwrap().path, base.dev());
    assert_like_lsblk(&scanned, &[&base.name, &top.name]);
    assert!(
        !of(&scanned, &top.name).evidence.iter().any(|evidence| evidence.source == "loop:file"),
        "a device is not a file"
    );
}

#[test]
fn read_only_empty_and_deleted_loops_are_described() {
    let dir = dir();
    let read_only = Loop::with(&["-r"], &file(dir.path(), "ro", 8 * MIB));
    let empty_file = file(dir.path(), "empty", 0);
    let empty = Loop::new(&empty_file);
    let deleted_file = file(dir.path(), "deleted", 8 * MIB);
    let deleted = Loop::new(&deleted_file);
    let odd_file = file(dir.path(), "odd", 3 * MIB + 512);
    poke(&odd_file, 3 * MIB + 511, b"x");
    let odd = Loop::new(&odd_file);
    let tiny = Loop::new(&file(dir.path(), "tiny", 512));
    run("udevadm", &["settle", "--timeout=30"]);
    let mut scanner = scanner();
    let scanned = scanner.scan(Scan::Everything).unwrap();
    assert_like_lsblk(
        &scanned,
        &[&read_only.name, &empty.name, &deleted.name, &odd.name, &tiny.name],
    );
    assert!(of(&scanned, &read_only.name).read_only);
    assert_eq!(of(&scanned, &read_only.name).content, Content::Blank);
    assert_eq!(
        (of(&scanned, &empty.name).size, &of(&scanned, &empty.name).content),
        (0, &Content::Unread)
    );
    assert_eq!(of(&scanned, &odd.name).content, Content::UnknownData);
    assert_eq!(of(&scanned, &tiny.name).content, Content::Blank);
    let facts = of(&scanned, &deleted.name);
    let backing = facts.backing.as_ref().unwrap();
    assert_eq!((backing.path.as_str(), backing.deleted), (&*deleted_file.to_string_lossy(), false));
    let identity =
        &facts.evidence.iter().find(|evidence| evidence.source == "loop:file").unwrap().value;
    let parts: Vec<&str> = identity.split('#').collect();
    assert_eq!((parts.len(), parts[0]), (3, &*deleted_file.to_string_lossy()));

    fs::remove_file(&deleted_file).unwrap();
    let touched = Default::default();
    let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
    assert!(of(&scanned, &deleted.name).backing.as_ref().unwrap().deleted && scanned.changed);
}

#[test]
fn backing_file_path_is_relative_to_the_node() {
    let bed = Bed::new(Links::Own);
    let host = bed.host();
    let path = file(&bed.data, "inside", 8 * MIB);
    let device = Loop::new(&path);
    let scanned = Scanner::new(host, Limits::default()).scan(Scan::Everything).unwrap();
    let facts = of(&scanned, &device.name);
    assert_eq!(facts.backing.as_ref().unwrap().path, "/data/inside");
    assert!(
        facts.evidence.iter().any(|evidence| evidence.source == "loop:file"
            && evidence.value.starts_with("/data/inside#")),
        "{:?}",
        facts.evidence
    );
}

/// A udev rule sets model, serial and WWN, including hostile values.
#[test]
fn udev_properties_are_decoded_like_lsblk_does() {
    let dir = dir();
    let path = file(dir.path(), "faked.quarry-disk", 8 * MIB);
    let env = "ID_MODEL=QEMU_HARD\nID_MODEL_ENC=QEMU\\x20\\x20HARD\\x20\nID_SERIAL=QEMU_HARD_S1\nID_SERIAL_SHORT=S1\nID_WWN=0x5000\nID_WWN_WITH_EXTENSION=0x50001234\n";
    fs::write(dir.path().join("faked.quarry-disk.env"), env).unwrap();
    let rules = Rules::new(
        "SUBSYSTEM==\"block\", KERNEL==\"loop*\", ATTR{loop/backing_file}==\"*.quarry-disk\", IMPORT{program}=\"/bin/cat $attr{loop/backing_file}.env\"\n\
         SUBSYSTEM==\"block\", KERNEL==\"loop*\", ENV{ID_SERIAL}==\"QEMU_HARD*\", SYMLINK+=\"disk/by-id/scsi-$env{ID_SERIAL}\"\n",
    );
    let device = Loop::new(&path);
    device.settle();
    let scanned = scan();
    assert_like_lsblk(&scanned, &[&device.name]);
    let facts = of(&scanned, &device.name);
    assert_eq!(facts.model.as_deref(), Some("QEMU HARD"));
    assert_eq!(facts.by_id, ["scsi-QEMU_HARD_S1"]);
    let properties: Vec<(&str, &str)> = facts
        .evidence
        .iter()
        .map(|evidence| (evidence.source.as_str(), evidence.value.as_str()))
        .collect();
    assert_eq!(
        properties[..3],
        [
            ("udev:ID_WWN_WITH_EXTENSION", "0x50001234"),
            ("udev:ID_SERIAL_SHORT", "S1"),
            ("udev:ID_SERIAL", "QEMU_HARD_S1")
        ]
    );
    drop(device);
    run("udevadm", &["settle", "--timeout=30"]);
    drop(rules);
}

struct Rules;

impl Rules {
    const FILE: &str = "/run/udev/rules.d/99-quarry-devices-test.rules";

    fn new(text: &str) -> Self {
        fs::create_dir_all("/run/udev/rules.d").unwrap();
        fs::write(Self::FILE, text).unwrap();
        run("udevadm", &["control", "--reload"]);
        Rules
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = fs::remove_file(Self::FILE);
        let _ = Command::new("udevadm").args(["control", "--reload"]).output();
    }
}

// invariant: 4
#[test]
fn invalid_host_root_is_reported_with_the_remedy() {
    let dir = dir();
    let error = Scanner::new(quarry_node::HostRoot::view(dir.path()).unwrap(), Limits::default())
        .scan(Scan::Everything)
        .unwrap_err()
        .message();
    assert!(error.contains("check that") && error.contains("/sys is mounted there"), "{error}");
    let error = quarry_node::HostRoot::view("/nowhere/at/all").unwrap_err().message();
    assert!(error.contains("/nowhere/at/all"), "{error}");
}
