//! Hardware that this machine does not have, as the kernel would show it below a host root.

use super::scan::{Limits, Reach, Scan, ScanResult, Scanner};
use crate::host_root::HostRoot;
use quarry_core::device::{Content, ExclusiveOpen, Facts};
use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        let node = Node(tempfile::tempdir().unwrap());
        node.write("proc/1/mountinfo", "");
        fs::create_dir_all(node.0.path().join("sys/class/block")).unwrap();
        node
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// A device at this place of the kernel's tree; its name is the last part. Minor numbers are given by the caller.
    fn device(&self, place: &str, number: &str, more: &[(&str, &str)]) {
        let name = place.rsplit('/').next().unwrap();
        let (major, minor) = number.split_once(':').unwrap();
        let directory = format!("sys/devices/{place}");
        let kind =
            if more.iter().any(|(key, _)| *key == "partition") { "partition" } else { "disk" };
        let partition = more
            .iter()
            .find(|(key, _)| *key == "partition")
            .map_or(String::new(), |(_, number)| format!("PARTN={number}\n"));
        self.write(&format!("{directory}/uevent"), format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE={kind}\nDISKSEQ=7\n{partition}"));
        for (key, value) in [
            ("size", "2048"),
            ("ro", "0"),
            ("removable", "0"),
            ("queue/rotational", "1"),
            ("dev", number),
        ]
        .iter()
        .chain(more)
        {
            if kind == "disk" || !["removable", "queue/rotational"].contains(key) {
                self.write(&format!("{directory}/{key}"), format!("{value}\n"));
            }
        }
        self.link(&format!("sys/class/block/{name}"), &format!("../../devices/{place}"));
    }

    fn scanner(&self) -> Scanner {
        Scanner::new(HostRoot::view(self.0.path()).unwrap(), Limits::default())
    }

    #[track_caller]
    fn scan(&self) -> ScanResult {
        self.scanner().scan(Scan::Everything).unwrap()
    }

    #[track_caller]
    fn facts(&self, name: &str) -> Facts {
        self.scan()
            .devices
            .iter()
            .find(|facts| facts.name == name)
            .unwrap_or_else(|| panic!("no {name}"))
            .clone()
    }
}

fn evidence(facts: &Facts) -> Vec<(&str, &str)> {
    facts
        .evidence
        .iter()
        .map(|evidence| (evidence.source.as_str(), evidence.value.as_str()))
        .collect()
}

/// A SCSI disk on `host2` below this part of the tree.
fn scsi(node: &Node, above: &str, name: &str, more: &[(&str, &str)]) {
    let unit = format!("{above}/2:0:0:1");
    node.device(&format!("{unit}/block/{name}"), "8:16", more);
    for (key, value) in [
        ("vendor", "ATA     "),
        ("model", "SAMSUNG MZ7LN51 "),
        ("type", "0"),
        ("state", "running"),
        ("wwid", "naa.5002538d42a0b1c2"),
    ] {
        node.write(&format!("sys/devices/{unit}/{key}"), format!("{value}\n"));
    }
    node.write(&format!("sys/devices/{unit}/vpd_pg80"), b"\0\x80\0\x08  SN1234");
    node.write(
        &format!("sys/devices/{unit}/vpd_pg83"),
        b"\0\x83\0\x0c\x01\x03\0\x08\x50\x02\x53\x8d\x42\xa0\xb1\xc2",
    );
    node.link(&format!("sys/devices/{unit}/block/{name}/device"), "../../../2:0:0:1");
}

// invariant: 7
#[test]
fn a_scsi_disk_and_the_way_to_it() {
    for (above, host, driver, transport, not_local) in [
        ("pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0", "", "ahci", Some("sata"), None),
        ("pci0000:00/ata3/host2/target2:0:0", "", "ata_piix", Some("ata"), None),
        ("pci0000:00/host2/target2:0:0", "", "virtio_scsi", None, None),
        (
            "pci0000:00/host2/port-2:0/end_device-2:0/target2:0:0",
            "sas",
            "mpt3sas",
            Some("sas"),
            None,
        ),
        ("pci0000:00/usb1/1-1/host2/target2:0:0", "", "usb-storage", Some("usb"), None),
        ("platform/host2/session1/target2:0:0", "iscsi", "iscsi_tcp", Some("iscsi"), Some("iscsi")),
        ("pci0000:00/host2/rport-2:0-1/target2:0:0", "fc", "qla2xxx", Some("fc"), Some("fc")),
        ("pci0000:00/host2/rport-2:0-1/target2:0:0", "", "lpfc", None, Some("fc")),
    ] {
        let node = Node::new();
        scsi(&node, above, "sdb", &[]);
        node.write("sys/class/scsi_host/host2/proc_name", driver);
        if !host.is_empty() {
            node.write(&format!("sys/class/{host}_host/host2/symbolic_name"), "QLE2562 FW:v8");
        }
        let facts = node.facts("sdb");
        assert_eq!(
            (facts.transport.as_deref(), facts.not_local.as_deref()),
            (transport, not_local),
            "{above}"
        );
        assert_eq!(
            (facts.kind.as_str(), facts.size, facts.rotational, facts.diskseq),
            ("disk", 1 << 20, true, Some(7))
        );
        assert_eq!(
            (facts.vendor.as_deref(), facts.model.as_deref(), facts.state.as_deref()),
            (Some("ATA"), Some("SAMSUNG MZ7LN51"), Some("running"))
        );
        let said = [
            ("sysfs:wwid", "naa.5002538d42a0b1c2"),
            ("sysfs:vpd83", "naa.5002538d42a0b1c2"),
            ("sysfs:model", "SAMSUNG MZ7LN51"),
            ("sysfs:vpd80", "SN1234"),
        ];
        assert_eq!(evidence(&facts), said);
        assert_eq!(facts.content, Content::Unreadable("there is no node /dev/sdb".into()));
    }
}

#[test]
fn an_optical_drive_and_a_card_reader_without_medium() {
    let node = Node::new();
    scsi(&node, "pci0000:00/host2/target2:0:0", "sr0", &[("removable", "1")]);
    node.write("sys/devices/pci0000:00/host2/target2:0:0/2:0:0:1/type", "5");
    let facts = node.facts("sr0");
    assert_eq!((facts.kind.as_str(), facts.removable), ("rom", true));
}

// invariant: 7
#[test]
fn an_nvme_namespace_is_local_only_on_pci_express() {
    for (transport, not_local) in [
        ("pcie", None),
        ("tcp", Some("nvme-tcp")),
        ("rdma", Some("nvme-rdma")),
        ("fc", Some("nvme-fc")),
    ] {
        let node = Node::new();
        let about = [
            ("nguid", "01000000-0000-0000-5cd2-e4b1c2d3e4f5"),
            ("eui", "5cd2e4b1c2d3e4f5"),
            ("wwid", "eui.01000000000000005cd2e4b1c2d3e4f5"),
        ];
        node.device("pci0000:00/nvme/nvme0/nvme0n1", "259:0", &about);
        node.link("sys/devices/pci0000:00/nvme/nvme0/nvme0n1/device", "../../nvme0");
        for (key, value) in [
            ("transport", transport),
            ("serial", "PHLJ1  "),
            ("model", "INTEL SSDPE2KX"),
            ("state", "live"),
        ] {
            node.write(&format!("sys/devices/pci0000:00/nvme/nvme0/{key}"), value);
        }
        let facts = node.facts("nvme0n1");
        assert_eq!(
            (facts.transport.as_deref(), facts.not_local.as_deref()),
            (Some("nvme"), not_local)
        );
        assert_eq!(
            (facts.serial.as_deref(), facts.model.as_deref(), facts.state.as_deref()),
            (Some("PHLJ1"), Some("INTEL SSDPE2KX"), Some("live"))
        );
        let sources: Vec<&str> = evidence(&facts).iter().map(|(source, _)| *source).collect();
        assert_eq!(
            sources,
            ["sysfs:nguid", "sysfs:eui", "sysfs:wwid", "sysfs:model", "sysfs:serial"]
        );

        // With native multipath the namespace hangs on the subsystem, which has the controllers below it.
        let node = Node::new();
        node.device("virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "259:0", &[]);
        node.link(
            "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/device",
            "../../nvme-subsys0",
        );
        node.write("sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme3/transport", transport);
        assert_eq!(node.facts("nvme0n1").not_local.as_deref(), not_local);
    }
}

// invariant: 7
#[test]
fn stacked_devices_show_holders_and_the_locality_of_parts() {
    let node = Node::new();
    scsi(&node, "platform/host2/session1/target2:0:0", "sdb", &[]);
    node.device(
        "platform/host2/session1/target2:0:0/2:0:0:1/block/sdb/sdb1",
        "8:17",
        &[("partition", "1"), ("start", "2048")],
    );
    node.device(
        "virtual/block/dm-0",
        "253:0",
        &[
            ("dm/name", "mpatha"),
            ("dm/uuid", "mpath-360000"),
            ("dm/suspended", "0"),
            ("slaves/sdb", ""),
        ],
    );
    node.device(
        "virtual/block/dm-1",
        "253:1",
        &[("dm/name", "vg-lv"), ("dm/uuid", "LVM-abc"), ("dm/suspended", "1"), ("slaves/dm-0", "")],
    );
    node.device(
        "virtual/block/md0",
        "9:0",
        &[("md/level", "raid1"), ("md/uuid", "a1b2"), ("slaves/sdb1", "")],
    );
    node.device("virtual/block/rbd3", "252:0", &[]);
    node.device("virtual/block/ram0", "1:0", &[]);
    node.write("sys/devices/virtual/block/loop0/uevent", "MAJOR=7\nMINOR=0\n");
    node.link("sys/class/block/loop0", "../../devices/virtual/block/loop0");
    let scanned = node.scan();
    let names: Vec<&str> = scanned.devices.iter().map(|facts| facts.name.as_str()).collect();
    assert_eq!(
        names,
        ["dm-0", "dm-1", "md0", "rbd3", "sdb", "sdb1"],
        "neither RAM disks nor idle loops"
    );
    let of = |name: &str| scanned.devices.iter().find(|facts| facts.name == name).unwrap();
    assert_eq!(
        (of("sdb").holders.as_slice(), of("sdb").partitions.as_slice()),
        (&["dm-0".to_owned()][..], &["sdb1".to_owned()][..])
    );
    assert_eq!(
        (of("sdb1").parent.as_deref(), of("sdb1").kind.as_str(), of("sdb1").rotational),
        (Some("sdb"), "part", true)
    );
    assert_eq!(
        of("sdb1").partition.as_ref().map(|partition| (partition.number, partition.start)),
        Some((1, 1 << 20))
    );
    assert_eq!(
        (
            of("dm-0").kind.as_str(),
            of("dm-0").mapped_name.as_deref(),
            of("dm-0").holders.as_slice()
        ),
        ("mpath", Some("mpatha"), &["dm-1".to_owned()][..])
    );
    assert_eq!(
        (of("dm-1").kind.as_str(), of("dm-1").state.as_deref(), &of("dm-1").content),
        ("lvm", Some("suspended"), &Content::Unread)
    );
    assert_eq!(
        (of("md0").kind.as_str(), evidence(of("md0"))),
        ("raid1", vec![("sysfs:md-uuid", "a1b2")])
    );
    assert_eq!(evidence(of("dm-0")), [("sysfs:dm-uuid", "mpath-360000")]);
    for (name, why) in [
        ("sdb", "iscsi"),
        ("sdb1", "iscsi"),
        ("dm-0", "iscsi"),
        ("dm-1", "iscsi"),
        ("md0", "iscsi"),
        ("rbd3", "rbd"),
    ] {
        assert_eq!(of(name).not_local.as_deref(), Some(why), "{name}");
    }
}

#[test]
fn a_partition_of_a_map_is_a_partition() {
    let node = Node::new();
    scsi(&node, "pci0000:00/host2/target2:0:0", "sdb", &[]);
    node.device(
        "virtual/block/dm-0",
        "253:0",
        &[
            ("dm/name", "mpatha"),
            ("dm/uuid", "mpath-360000"),
            ("dm/suspended", "0"),
            ("slaves/sdb", ""),
        ],
    );
    node.device(
        "virtual/block/dm-1",
        "253:1",
        &[
            ("dm/name", "mpatha2"),
            ("dm/uuid", "part2-mpath-360000"),
            ("dm/suspended", "0"),
            ("slaves/dm-0", ""),
        ],
    );
    let (uuid, efi) =
        ("58f4ff06-8bb1-47c2-8611-b0a1ffe4c50b", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
    let lines = format!(
        "I:1\nE:ID_PART_ENTRY_UUID={uuid}\nE:ID_PART_ENTRY_TYPE={efi}\nE:ID_PART_ENTRY_NAME=EFI\\x20System\nE:ID_PART_ENTRY_OFFSET=2048\n"
    );
    node.write("run/udev/data/b253:1", &lines);
    let facts = node.facts("dm-1");
    assert_eq!((facts.kind.as_str(), facts.mapped_name.as_deref()), ("part", Some("mpatha2")));
    let partition = facts.partition.clone().unwrap();
    assert_eq!(
        (
            partition.number,
            partition.start,
            partition.type_id.as_deref(),
            partition.label.as_deref()
        ),
        (2, 1 << 20, Some(efi), Some("EFI System"))
    );
    assert_eq!(
        evidence(&facts),
        [("partition:uuid", uuid), ("sysfs:dm-uuid", "part2-mpath-360000")]
    );
    assert_eq!(node.facts("dm-0").partition, None);
}

// invariant: 8
#[test]
fn a_rescan_probes_what_looks_different_and_nothing_else() {
    let node = Node::new();
    let place = "sys/devices/virtual/block/xx0";
    node.device("virtual/block/xx0", "240:0", &[]);
    node.device("virtual/block/xx1", "240:1", &[]);
    node.write(
        "proc/diskstats",
        " 240 0 xx0 1 0 0 0 5 0 8 0 0 0 0\n 240 1 xx1 1 0 0 0 5 0 8 0 0 0 0\n",
    );
    let mut scanner = node.scanner();
    let nothing = BTreeSet::new();
    let changed = Scan::Changed { touched: &nothing };
    assert_eq!(scanner.scan(changed).unwrap().probed, 2, "all are new");
    let again = scanner.scan(changed).unwrap();
    assert_eq!((again.probed, again.changed), (0, false));
    let named = BTreeSet::from(["xx1".to_owned(), "unknown".to_owned()]);
    let touched = scanner.scan(Scan::Changed { touched: &named }).unwrap();
    assert_eq!(
        (touched.probed, touched.changed),
        (1, false),
        "an event names it, and it is as it was"
    );
    for (path, text, differs) in [
        (
            "proc/diskstats",
            " 240 0 xx0 1 0 0 0 6 0 8 0 0 0 0\n 240 1 xx1 1 0 0 0 5 0 8 0 0 0 0\n",
            false,
        ),
        (&format!("{place}/size"), "4096\n", true),
        (&format!("{place}/ro"), "1\n", true),
        (&format!("{place}/uevent"), "MAJOR=240\nMINOR=0\nDEVTYPE=disk\nDISKSEQ=8\n", true),
        ("proc/1/mountinfo", "9 1 240:0 / /mnt rw - ext4 /dev/xx0 rw\n", true),
    ] {
        node.write(path, text);
        let scanned = scanner.scan(changed).unwrap();
        assert_eq!((scanned.probed, scanned.changed), (1, differs), "{path}");
    }
    // udev's word comes later and costs no probe.
    node.write("run/udev/data/b240:0", "I:1\nE:ID_MODEL=Later\n");
    let scanned = scanner.scan(changed).unwrap();
    assert_eq!(
        (scanned.probed, scanned.changed, scanned.devices[0].model.as_deref()),
        (0, true, Some("Later"))
    );
    assert_eq!(scanned.devices[0].mounts, ["/mnt"], "what was known stays");
    fs::remove_file(node.0.path().join("sys/class/block/xx1")).unwrap();
    let scanned = scanner.scan(changed).unwrap();
    assert_eq!((scanned.devices.len(), scanned.probed, scanned.changed), (1, 0, true));
}

#[test]
fn unreadable_attributes_make_a_device_neither_gone_nor_free() {
    let node = Node::new();
    node.device("virtual/block/xx0", "240:0", &[]);
    let mut scanner = node.scanner();
    let none = BTreeSet::new();
    let changed = Scan::Changed { touched: &none };
    assert_eq!(scanner.scan(Scan::Everything).unwrap().problems.len(), 1, "about diskstats");
    for attribute in ["size", "ro", "uevent"] {
        let path = node.0.path().join("sys/devices/virtual/block/xx0").join(attribute);
        let text = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let scanned = scanner.scan(changed).unwrap();
        assert!(
            scanned.problems.iter().any(
                |problem| problem.contains("xx0 cannot be read") && problem.contains(attribute)
            ),
            "{:?}",
            scanned.problems
        );
        assert!(
            matches!(&scanned.devices[0].content, Content::Unreadable(why) if why.contains(attribute)),
            "{:?}",
            scanned.devices[0]
        );
        let fresh = node.scan();
        assert!(
            fresh.devices.is_empty()
                && fresh.problems.iter().any(|problem| problem.contains("xx0")),
            "reported, though there is nothing to list"
        );
        fs::remove_dir(&path).unwrap();
        fs::write(&path, text).unwrap();
        let scanned = scanner.scan(changed).unwrap();
        assert_eq!((scanned.probed, scanned.problems.len()), (1, 1), "{attribute}: read again");
        assert!(
            !matches!(&scanned.devices[0].content, Content::Unreadable(why) if why.contains(attribute))
        );
    }
}

/// Without the right to open a loop device, its name still shows what it is over.
#[test]
fn a_loop_over_a_device_is_seen_by_its_path_alone() {
    let node = Node::new();
    node.device("virtual/block/xx0", "240:0", &[]);
    node.device("virtual/block/loop3", "7:3", &[("loop/backing_file", "/dev/xx0")]);
    assert_eq!(node.facts("xx0").loops_on_top, ["loop3"]);
}

#[test]
fn an_unchanged_device_is_equal_and_any_difference_counts() {
    let node = Node::new();
    let place = "sys/devices/virtual/block/vdx";
    let stats = |writes: u32| {
        format!(" 252 0 vdx 1 0 0 0 5 0 {writes} 0 0 0 0\n 7 1 loop1 1 0 0 0 5 0 8 0 0 0 0\n")
    };
    node.device("virtual/block/vdx", "252:0", &[("diskseq", "7")]);
    node.device(
        "virtual/block/loop1",
        "7:1",
        &[("loop/backing_file", "/a/file"), ("diskseq", "7")],
    );
    node.write("proc/diskstats", stats(8));
    let mut scanner = node.scanner();
    let nothing = BTreeSet::new();
    let changed = Scan::Changed { touched: &nothing };
    // Once to know them, once to keep them open.
    scanner.scan(changed).unwrap();
    let mut last = scanner.scan(changed).unwrap();
    let mut is_same = |scanner: &mut Scanner| {
        let now = scanner.scan(changed).unwrap();
        let same = std::sync::Arc::ptr_eq(&now.devices, &last.devices);
        last = now;
        same
    };
    assert!(is_same(&mut scanner));
    for (path, text) in [
        ("proc/diskstats", stats(16)),
        (&format!("{place}/size"), "4096\n".into()),
        (&format!("{place}/ro"), "1\n".into()),
        ("sys/devices/virtual/block/loop1/loop/backing_file", "/a/file (deleted)\n".into()),
        ("proc/1/mountinfo", "9 1 252:0 / /mnt rw - ext4 /dev/vdx rw\n".into()),
        ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n".into()),
        // Changed just now: it may change again without looking different.
        ("run/udev/data/b252:0", "I:1\n".into()),
    ] {
        node.write(path, &text);
        let counts = path != "proc/swaps";
        assert_eq!(is_same(&mut scanner), !counts, "{path}");
        // Read in full, then kept open again.
        scanner.scan(changed).unwrap();
        is_same(&mut scanner);
        assert_eq!(is_same(&mut scanner), !path.starts_with("run/udev"), "{path}, afterwards");
    }
    let touched = BTreeSet::from(["vdx".to_owned()]);
    assert_eq!(scanner.scan(Scan::Changed { touched: &touched }).unwrap().probed, 1);
    // A device in use is written to all the time.
    let directory = node.0.path().join("run/udev/data");
    fs::File::open(&directory).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    scanner.scan(changed).unwrap();
    is_same(&mut scanner);
    node.write("proc/diskstats", stats(24));
    assert!(is_same(&mut scanner));
}

#[test]
fn what_is_only_observed_is_not_held() {
    let node = Node::new();
    node.device("virtual/block/loop1", "7:1", &[("loop/backing_file", "/elsewhere/file")]);
    let limits = Limits { reach: Reach::OwnLoops, ..Limits::default() };
    let scanned = Scanner::new(HostRoot::view(node.0.path()).unwrap(), limits)
        .scan(Scan::Everything)
        .unwrap();
    assert!(scanned.devices[0].observed_only);
    assert_eq!(scanned.devices[0].exclusive_open, ExclusiveOpen::Unasked);
}

#[test]
fn hostile_text_is_spelt_out_everywhere() {
    let node = Node::new();
    let model = "E:ID_MODEL_ENC=a\\x1b[2J\\xff\nE:ID_SERIAL=\x1b]0;x\x07\nE:ID_PART_ENTRY_NAME=\\x0d\\x0aroot\n";
    node.device("virtual/block/xx0", "240:0", &[("device/vendor", "\x1b[31mEvil\u{202e}")]);
    node.device("virtual/block/xx0/xx0p1", "240:1", &[("partition", "1"), ("start", "0")]);
    node.write("run/udev/data/b240:0", model);
    node.write("run/udev/data/b240:1", model);
    let by_id = node.0.path().join("dev/disk/by-id");
    fs::create_dir_all(&by_id).unwrap();
    symlink("../../xx0", by_id.join("x\x1b[2J")).unwrap();
    node.write("proc/1/mountinfo", "9 1 240:0 / /mnt\\033[2J rw - ext4 /dev/xx0 rw\n");
    let shown = format!(
        "{:?}",
        node.scan().devices.iter().map(|facts| format!("{facts:?}")).collect::<Vec<_>>()
    );
    assert!(!shown.chars().any(quarry_core::device::sanitize::is_hostile), "{shown}");
    let facts = node.facts("xx0");
    for text in facts
        .model
        .iter()
        .chain(&facts.serial)
        .chain(&facts.vendor)
        .chain(&facts.by_id)
        .chain(&facts.mounts)
    {
        assert!(!text.contains(quarry_core::device::sanitize::is_hostile), "{text:?}");
        assert!(text.contains("\\u{1b}"), "{text}");
    }
}

// invariant: 4
#[test]
fn a_root_without_sysfs_is_an_error_with_its_remedy() {
    let empty = tempfile::tempdir().unwrap();
    let error = Scanner::new(HostRoot::view(empty.path()).unwrap(), Limits::default())
        .scan(Scan::Everything)
        .unwrap_err()
        .message();
    assert!(
        error.contains(&*empty.path().to_string_lossy()) && error.contains("/sys is mounted there"),
        "{error}"
    );
    assert!(HostRoot::view(Path::new("/no/such/root")).is_err());
}
