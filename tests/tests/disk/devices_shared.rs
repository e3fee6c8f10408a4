//! Bytes that are reachable through several devices: a device that looks free here would be used
//! twice.

use super::devices::{Loop, MIB, dir, file, scan};
use quarry_api::{NodeInventorySpec, node_inventory::DeviceState};
use quarry_core::device::{group, inventory::row};
use quarry_tests::disk::run;
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// State and reasons of each device, as if all had settled.
fn verdicts() -> BTreeMap<String, (DeviceState, Vec<String>)> {
    let known = group(&scan().devices, None, None, &[]);
    let rows = known.iter().map(|device| row(device, &known, true, &NodeInventorySpec::default()));
    rows.map(|row| {
        (
            row.name,
            (row.state, row.reasons.into_iter().map(|entry| entry.reason.to_string()).collect()),
        )
    })
    .collect()
}

#[track_caller]
fn assert_refused(name: &str, reason: &str) {
    let verdicts = verdicts();
    let (state, reasons) = &verdicts[name];
    assert!(
        *state == DeviceState::NotAvailable && reasons.iter().any(|entry| entry == reason),
        "{name} without {reason}: {:?}",
        verdicts[name]
    );
}

/// A bind mount; unmounted on drop.
struct Bind(String);

impl Bind {
    fn new(from: &Path, to: &Path) -> Self {
        run("mount", &["--bind", from.to_str().unwrap(), to.to_str().unwrap()]);
        Bind(to.to_str().unwrap().to_owned())
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        if !Command::new("umount").arg(&self.0).status().is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.0);
        }
    }
}

#[test]
fn one_file_under_two_names_is_one_device() {
    let dir = dir();
    let first = file(dir.path(), "a.img", 8 * MIB);
    let linked = dir.path().join("b.img");
    fs::hard_link(&first, &linked).unwrap();
    let (one, two) = (Loop::new(&first), Loop::new(&linked));
    assert_refused(&one.name, "DuplicateIdentity");
    assert_refused(&two.name, "DuplicateIdentity");
    drop(two);
    assert_eq!(verdicts()[&one.name].0, DeviceState::Available);

    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    let inside = file(&dir.path().join("real"), "c.img", 8 * MIB);
    let bound = Bind::new(&dir.path().join("real"), &elsewhere);
    let (three, four) = (Loop::new(&inside), Loop::new(&elsewhere.join("c.img")));
    assert_refused(&three.name, "DuplicateIdentity");
    assert_refused(&four.name, "DuplicateIdentity");
    drop((three, four));
    drop(bound);
    drop(one);
}

#[test]
fn use_of_a_whole_disk_includes_its_partitions() {
    let dir = dir();
    let disk = Loop::new(&file(dir.path(), "disk.img", 40 * MIB));
    let mut child = Command::new("sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel", &disk.dev()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"label: gpt\nsize=8M\nsize=8M\n").unwrap();
    assert!(child.wait().unwrap().success());
    let names = disk.add_partitions();
    disk.settle();
    for name in &names {
        assert_eq!(verdicts()[name].0, DeviceState::Available, "{:?}", verdicts()[name]);
    }
    let top = Loop::new(Path::new(&disk.dev()));
    for name in &names {
        assert_refused(name, "LoopOnTop");
    }
    drop(top);
    // As kubelet gives a Block volume to a pod.
    let node = file(dir.path(), "node", 0);
    let bound = Bind::new(Path::new(&disk.dev()), &node);
    for name in &names {
        assert_refused(name, "Mounted");
    }
    drop(bound);
    drop(disk);
}

#[test]
fn mounted_device_node_outside_dev_is_found() {
    let dir = dir();
    let disk = Loop::new(&file(dir.path(), "disk.img", 8 * MIB));
    let number = fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let device_node = dir.path().join("device-node");
    run("mknod", &[device_node.to_str().unwrap(), "b", major, minor]);
    assert_eq!(verdicts()[&disk.name].0, DeviceState::Available);
    let at = file(dir.path(), "at", 0);
    let bound = Bind::new(&device_node, &at);
    assert_refused(&disk.name, "Mounted");
    drop(bound);
    drop(disk);
}
