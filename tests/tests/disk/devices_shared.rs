//! Bytes that are reached in more than one way: whoever looks free here would be taken twice.

use super::devices::{Loop, MIB, file, folder, scan};
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
    let rows = known.iter().map(|device| row(device, true, &NodeInventorySpec::default()));
    rows.map(|row| {
        (
            row.name,
            (row.state, row.reasons.into_iter().map(|told| told.reason.to_string()).collect()),
        )
    })
    .collect()
}

#[track_caller]
fn assert_refused(name: &str, reason: &str) {
    let verdicts = verdicts();
    let (state, reasons) = &verdicts[name];
    assert!(
        *state == DeviceState::NotAvailable && reasons.iter().any(|told| told == reason),
        "{name} without {reason}: {:?}",
        verdicts[name]
    );
}

/// Unmounts when dropped.
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
    let folder = folder();
    let first = file(folder.path(), "a.img", 8 * MIB);
    let linked = folder.path().join("b.img");
    fs::hard_link(&first, &linked).unwrap();
    let (one, two) = (Loop::new(&first), Loop::new(&linked));
    assert_refused(&one.name, "DuplicateIdentity");
    assert_refused(&two.name, "DuplicateIdentity");
    drop(two);
    assert_eq!(verdicts()[&one.name].0, DeviceState::Available);

    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    let inside = file(&folder.path().join("real"), "c.img", 8 * MIB);
    let bound = Bind::new(&folder.path().join("real"), &elsewhere);
    let (three, four) = (Loop::new(&inside), Loop::new(&elsewhere.join("c.img")));
    assert_refused(&three.name, "DuplicateIdentity");
    assert_refused(&four.name, "DuplicateIdentity");
    drop((three, four));
    drop(bound);
    drop(one);
}

#[test]
fn what_uses_a_whole_disk_uses_its_partitions() {
    let folder = folder();
    let disk = Loop::new(&file(folder.path(), "disk.img", 40 * MIB));
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
    let node = file(folder.path(), "node", 0);
    let bound = Bind::new(Path::new(&disk.dev()), &node);
    for name in &names {
        assert_refused(name, "Mounted");
    }
    drop(bound);
    drop(disk);
}

#[test]
fn a_node_that_somebody_made_elsewhere_is_seen_when_it_is_mounted() {
    let folder = folder();
    let disk = Loop::new(&file(folder.path(), "disk.img", 8 * MIB));
    let number = fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let made = folder.path().join("made");
    run("mknod", &[made.to_str().unwrap(), "b", major, minor]);
    assert_eq!(verdicts()[&disk.name].0, DeviceState::Available);
    let at = file(folder.path(), "at", 0);
    let bound = Bind::new(&made, &at);
    assert_refused(&disk.name, "Mounted");
    drop(bound);
    drop(disk);
}
