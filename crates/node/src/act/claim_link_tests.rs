//! What can be tested without a block device; the disk tier has the rest.

use super::*;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};
use tempfile::TempDir;

const LINK: &str = "/mnt/local-storage/fast/wwn-1";

fn host() -> (TempDir, HostRoot) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    let host = HostRoot::open(root.path(), "/data").unwrap();
    (root, host)
}

fn device() -> LinkDevice {
    LinkDevice {
        name: "sdb".into(),
        number: "8:16".into(),
        diskseq: Some(3),
        persistent_names: Vec::new(),
    }
}

fn task(goal: LinkGoal) -> LinkTask {
    LinkTask { link: LINK.into(), goal }
}

// invariant: 2
#[test]
fn only_a_name_in_a_class_is_a_link() {
    assert_eq!(parse("/mnt/local-storage/fast/wwn-1"), Ok(("fast", "wwn-1")));
    let long = format!("/mnt/local-storage/fast/{}", "x".repeat(256));
    for bad in [
        "",
        "/mnt/local-storage",
        "/mnt/local-storage/fast",
        "/mnt/local-storage/fast/",
        "/mnt/local-storage//x",
        "/mnt/local-storage/../x",
        "/mnt/local-storage/fast/..",
        "/mnt/local-storage/fast/.",
        "/mnt/local-storage/fast/a/b",
        "/mnt/local-storage/fast/.quarry-link",
        "/mnt/local-storage/fast/a\0b",
        "/mnt/local-storagefast/a/b",
        "/etc/passwd",
        "mnt/local-storage/fast/x",
        &long,
    ] {
        assert!(parse(bad).unwrap_err().contains("is not a link of a device claim"), "{bad:?}");
        let (_root, host) = host();
        let state = follow(&host, &LinkTask { link: bad.into(), goal: LinkGoal::Remove });
        assert!(state.problem.is_some(), "{bad:?}");
    }
}

#[test]
fn a_device_that_is_not_there_gets_no_link() {
    let (root, host) = host();
    let state = follow(&host, &task(LinkGoal::Lead(device())));
    assert_eq!(
        (state.linked, state.problem.as_deref()),
        (false, Some("sdb is gone, or is another device now"))
    );
    let directory = root.path().join("mnt/local-storage/fast");
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o755);
    assert!(fs::read_dir(directory).unwrap().next().is_none());
}

// invariant: 2
#[test]
fn an_end_takes_only_the_link_and_its_empty_directory() {
    let (root, host) = host();
    let class = root.path().join("mnt/local-storage/fast");
    assert_eq!(follow(&host, &task(LinkGoal::Remove)), LinkState::default(), "nothing was there");
    fs::create_dir_all(&class).unwrap();
    symlink("/etc/victim", class.join("wwn-1")).unwrap();
    symlink("/dev/sdc", class.join("other")).unwrap();
    symlink("/dev/sdb", class.join(".quarry-link")).unwrap();
    fs::write(root.path().join("etc/victim"), "kept").unwrap();
    assert_eq!(follow(&host, &task(LinkGoal::Remove)), LinkState::default());
    let left: Vec<_> =
        fs::read_dir(&class).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other"], "also what a crash left of a link that was never finished");
    assert!(root.path().join("etc/victim").exists(), "what it led to stays");
    fs::remove_file(class.join("other")).unwrap();
    assert_eq!(follow(&host, &task(LinkGoal::Remove)), LinkState::default());
    assert!(!class.exists() && root.path().join("mnt/local-storage").exists());
    // A file or a directory of that name is not ours.
    fs::create_dir_all(class.join("wwn-1")).unwrap();
    assert_eq!(follow(&host, &task(LinkGoal::Remove)), LinkState::default());
    assert!(class.join("wwn-1").is_dir());
    let refused = follow(&host, &task(LinkGoal::Lead(device()))).problem.unwrap();
    assert!(refused.contains("is not a link: it is left alone"), "{refused}");
}

// invariant: 2
#[test]
fn planted_links_lead_nowhere_else() {
    let outside = tempfile::tempdir().unwrap();
    // /mnt of the node is a link, as on some systems: followed, inside the root.
    let (root, host_a) = host();
    fs::create_dir_all(root.path().join("var/mnt")).unwrap();
    symlink("/var/mnt", root.path().join("mnt")).unwrap();
    follow(&host_a, &task(LinkGoal::Lead(device())));
    assert!(root.path().join("var/mnt/local-storage/fast").is_dir());
    // One that leads out of the root ends at the root.
    let (root, host_b) = host();
    symlink(outside.path(), root.path().join("mnt")).unwrap();
    let state = follow(&host_b, &task(LinkGoal::Lead(device())));
    assert!(state.problem.is_some());
    assert!(fs::read_dir(outside.path()).unwrap().next().is_none(), "nothing was made outside");
    // In place of the class's directory none is followed at all, neither to make nor to remove.
    let (root, host_c) = host();
    fs::create_dir_all(root.path().join("mnt/local-storage")).unwrap();
    for target in ["/etc".to_owned(), outside.path().display().to_string(), "../../etc".to_owned()]
    {
        let class = root.path().join("mnt/local-storage/fast");
        symlink(&target, &class).unwrap();
        symlink("/dev/sdb", root.path().join("etc/wwn-1")).unwrap();
        for goal in
            [LinkGoal::Lead(device()), LinkGoal::Remove, LinkGoal::Await, LinkGoal::Observe(None)]
        {
            let problem = follow(&host_c, &task(goal)).problem.unwrap();
            assert!(problem.contains("is not a directory: it is left alone"), "{problem}");
        }
        assert!(fs::symlink_metadata(root.path().join("etc/wwn-1")).is_ok(), "{target}");
        fs::remove_file(root.path().join("etc/wwn-1")).unwrap();
        fs::remove_file(class).unwrap();
    }
}

// invariant: 2
#[test]
fn a_name_that_lasts_is_kept_and_others_are_replaced() {
    let lasting = |target: &str, names: &[&str]| {
        let persistent_names = names.iter().map(|name| (*name).to_owned()).collect();
        let device = LinkDevice { persistent_names, ..device() };
        is_lasting(Path::new(target), LINK, &device, !names.is_empty())
    };
    let boot = format!("{BOOT_LINK_DIRECTORY}/{}", boot_link(LINK));
    let (wwn, scsi) = ("/dev/disk/by-id/wwn-1", "/dev/disk/by-id/scsi-3");
    assert!(lasting(scsi, &[wwn, scsi]), "as good");
    assert!(lasting(wwn, &[wwn]) && lasting(&boot, &[]));
    for target in
        ["/dev/sdb", "../../dev/sdb", "/dev/mapper/vg-lv", scsi, "/run/quarry/links/other"]
    {
        assert!(!lasting(target, &[]) && !lasting(target, &[wwn]), "{target}");
    }
    assert!(!lasting(&boot, &[wwn]), "there is a better one");
    assert_ne!(boot_link(LINK), boot_link("/mnt/local-storage/fast/wwn-2"));
}

// invariant: 2
#[test]
fn only_hardware_names_a_disk_and_only_its_uuid_a_partition() {
    let names = |kind: &str, serial: &str, by_id: &[&str]| {
        let partition = (kind == "part").then(|| quarry_core::device::Partition {
            uuid: Some("1-2".into()),
            ..Default::default()
        });
        let facts = quarry_core::device::Facts {
            kind: kind.into(),
            serial: Some(serial.into()),
            partition,
            by_id: by_id.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        };
        LinkDevice::from(&facts).persistent_names
    };
    let chosen = ["lvm-pv-uuid-1", "md-name-h:0", "dm-name-vg-lv"];
    assert_eq!(names("disk", "S1", &chosen), Vec::<String>::new());
    let disk = names("disk", "S1", &["ata-X_S1", "lvm-pv-uuid-1", "wwn-0x5"]);
    assert_eq!(disk, ["/dev/disk/by-id/wwn-0x5", "/dev/disk/by-id/ata-X_S1"]);
    let slot = names("disk", "QM00001", &["ata-QEMU_HARDDISK_QM00001", "wwn-0x5"]);
    assert_eq!(slot, ["/dev/disk/by-id/wwn-0x5"]);
    let part = names("part", "S1", &["wwn-0x5-part1"]);
    assert_eq!(part, ["/dev/disk/by-partuuid/1-2"], "its number is chosen by the table");
}
