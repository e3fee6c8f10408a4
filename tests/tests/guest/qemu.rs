//! QEMU guests as a fixture: hot plug and resizing, several nodes, power failures. Properties of
//! disks: `hardware.rs`.

use crate::{get, hello_server};
use quarry_tests::guest::{API_IN_GUEST, Disk, Image, MIB, Qemu};
use std::{fs, thread};

#[test]
fn disks_are_plugged_resized_and_unplugged() {
    let mut guest = Qemu::restore("hotplug");
    let disks = [
        Disk::nvme("HOTNVME"),
        Disk::virtio("HOTVIRTIO"),
        Disk::scsi("HOTSCSI"),
        Disk::usb("HOTUSB"),
    ];
    for disk in &disks {
        guest.plug(disk);
    }
    let all = |names: &str| {
        ["HOTNVME", "HOTVIRTIO", "HOTSCSI", "HOTUSB"].iter().all(|serial| names.contains(serial))
    };
    guest.until("all have their links", "ls /dev/disk/by-id", all);
    for disk in &disks[1..3] {
        guest.resize(disk, 96 * MIB);
    }
    guest.until("two have grown", "lsblk -bdnro SIZE", |sizes| {
        sizes.matches(&(96 * MIB).to_string()).count() == 2
    });
    for disk in &disks {
        guest.unplug(disk);
    }
    guest.until("all are removed", "lsblk -dnro NAME; ls /dev/disk/by-id", |left| {
        left.trim().is_empty()
    });
    // An unplugged disk can be plugged in again.
    guest.plug(&disks[0]);
    guest.until("it is back", "ls /dev/disk/by-id", |names| names.contains("HOTNVME"));
}

#[test]
fn three_concurrent_guests_differ() {
    let server = hello_server();
    let nodes: Vec<_> = ["node-a", "node-b", "node-c"]
        .map(|name| thread::spawn(move || Qemu::restore(name)))
        .into_iter()
        .map(|node| node.join().unwrap())
        .collect();
    let mut seen = Vec::new();
    for mut node in nodes {
        let disk = Disk::nvme(&format!("OF-{}", node.name()));
        node.plug(&disk);
        node.until("its disk exists", "ls /dev/disk/by-id", |names| names.contains("OF-"));
        node.api_at(Some(server.port()));
        let answer = node.run(&get(API_IN_GUEST));
        assert!(answer.ends_with("hello"), "{answer}");
        fs::write(node.share().join("in"), "from the host").unwrap();
        assert_eq!(node.run("cat /share/in; hostname > /share/out"), "from the host");
        assert_eq!(fs::read_to_string(node.share().join("out")).unwrap().trim(), node.name());
        let drift = node.run("date +%s").trim().parse::<i64>().unwrap()
            - jiff::Timestamp::now().as_second();
        assert!(drift.abs() < 60, "its clock is not the saved one: {drift} s off");
        seen.push(node.run(
            "hostname; cat /proc/sys/kernel/random/boot_id /etc/machine-id; lsblk -dnro SERIAL",
        ));
        let past = node.exec(&get(&format!("10.0.2.2:{}", server.port())));
        assert!(past.stdout.is_empty(), "the host's other ports are out of reach: {past:?}");
        node.api_at(None);
        assert_eq!(node.exec(&get(API_IN_GUEST)).stdout, "", "cut off");
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn power_failure_keeps_flushed_data() {
    let disk = Disk::scsi("CUT").image(Image::volatile(64 * MIB));
    let mut guest = Qemu::restore("before-the-cut");
    guest.plug(&disk);
    let device = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_CUT";
    guest.until("it exists", &format!("ls {device}"), |shown| !shown.is_empty());
    guest.run(&format!("echo flushed | dd of={device} bs=4096 conv=fsync,sync 2>/dev/null"));
    guest.run(&format!("yes lost | head -c 4096 > /run/block; dd if=/run/block of={device} bs=4096 seek=1000 oflag=direct"));
    let disks = guest.power_cut();
    let mut guest = Qemu::restore("after-the-cut");
    guest.plug(&disks[0]);
    guest.until("it exists again", &format!("ls {device}"), |shown| !shown.is_empty());
    assert_eq!(guest.run(&format!("head -c 7 {device}")), "flushed");
    assert_eq!(
        guest.run(&format!("dd if={device} bs=4096 skip=1000 count=1 2>/dev/null | tr -d '\\000'")),
        "",
        "unflushed data is lost"
    );
}

#[test]
fn dropped_guest_leaves_no_process() {
    let guest = Qemu::restore("dropped");
    let share = guest.share();
    let dir = share.parent().unwrap().to_owned();
    assert!(crate::processes_in(&dir) > 0, "it runs");
    drop(guest);
    assert_eq!(crate::processes_in(&dir), 0, "all its processes have ended");
    assert!(!dir.exists(), "its directory is removed");
}

#[test]
fn command_output_and_exit_code_are_returned() {
    let mut guest = Qemu::restore("commands");
    let output = guest.exec("echo out; echo err >&2; exit 3");
    assert_eq!(
        (output.code, output.stdout.as_str(), output.stderr.as_str()),
        (3, "out\n", "err\n")
    );
    let long = guest.run("seq 1 60000");
    assert_eq!(long.lines().count(), 60000);
    assert_eq!(long.lines().last(), Some("60000"));
    let stuck = guest.exec_within("exec sleep 600", std::time::Duration::from_secs(1));
    assert_eq!(stuck.code, 137, "a command is killed at its time limit");
    let pid = guest.spawn("daemon", "sh -c \"echo started; sleep 600\"");
    guest.until(
        "it keeps running",
        &format!("ls -d /proc/{pid}; cat /share/daemon.log"),
        |shown| shown.contains("started") && shown.contains("/proc/"),
    );
    assert_eq!(guest.log_of("daemon"), "started\n");
}
