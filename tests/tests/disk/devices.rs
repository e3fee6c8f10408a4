//! Devices as the scanner reports them, compared with lsblk and `blkid -p`. Also the loop devices
//! that other tests use, detached on drop.

use quarry_core::device::{Content, Facts, Found};
use quarry_node::{
    HostRoot,
    inspect::{Limits, Scan, ScanResult, Scanner, probe::Certainty},
};
use quarry_tests::disk::run;
use serde_json::Value;
use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;

pub fn dir() -> TempDir {
    tempfile::Builder::new().prefix("quarry-devices-").tempdir().unwrap()
}

/// Creates a sparse file.
pub fn file(dir: &Path, name: &str, size: u64) -> PathBuf {
    let path = dir.join(name);
    let file = fs::File::create(&path).unwrap();
    file.set_len(size).unwrap();
    path
}

pub fn poke(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

/// A loop device over a file, or over another device.
pub struct Loop {
    pub name: String,
}

impl Loop {
    #[track_caller]
    pub fn new(file: &Path) -> Self {
        Loop::with(&[], file)
    }

    #[track_caller]
    pub fn with(options: &[&str], file: &Path) -> Self {
        let path = file.to_string_lossy();
        let device = run("losetup", &[options, &["-f", "--show", &path]].concat());
        Loop { name: device.trim().trim_start_matches("/dev/").to_owned() }
    }

    pub fn dev(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Waits until udev has processed the current content.
    #[track_caller]
    pub fn settle(&self) {
        run("udevadm", &["trigger", "--settle", "--action=change", &self.dev()]);
        run("udevadm", &["settle", "--timeout=20"]);
    }

    /// Adds partitions explicitly: this kernel has no parser for partition tables.
    #[track_caller]
    pub fn add_partitions(&self) -> Vec<String> {
        run("partx", &["-a", &self.dev()]);
        run("udevadm", &["settle", "--timeout=20"]);
        let mut names: Vec<String> = fs::read_dir(format!("/sys/block/{}", self.name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with(&self.name))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let dir = format!("/sys/block/{}", self.name);
        if fs::read_dir(&dir).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().starts_with(&self.name))
        }) {
            let _ = Command::new("partx").args(["-d", &self.dev()]).output();
        }
        // Otherwise the next file on this loop number would be read-only.
        if fs::read_to_string(format!("{dir}/ro")).is_ok_and(|text| text.trim() == "1") {
            let _ = Command::new("blockdev").args(["--setrw", &self.dev()]).output();
        }
        let _ = Command::new("losetup").args(["-d", &self.dev()]).output();
    }
}

pub fn scanner() -> Scanner {
    Scanner::new(HostRoot::view("/").unwrap(), Limits::default())
}

/// A scan; reading every relevant byte must give the same result.
#[track_caller]
pub fn scan() -> ScanResult {
    let scanned = scanner().scan(Scan::Everything).unwrap();
    assert_eq!(scanned.problems, Vec::<String>::new());
    let contents = |scanned: &ScanResult| {
        scanned
            .devices
            .iter()
            .map(|facts| (facts.name.clone(), facts.content.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        contents(&scanned),
        contents(&scanner().scan_with(Scan::Everything, Certainty::Prove).unwrap())
    );
    scanned
}

#[track_caller]
pub fn of<'a>(scanned: &'a ScanResult, name: &str) -> &'a Facts {
    scanned
        .devices
        .iter()
        .find(|device| device.name == name)
        .unwrap_or_else(|| panic!("{name} is not among the devices"))
}

pub fn fs_type(facts: &Facts) -> Option<&str> {
    match &facts.content {
        Content::Found(found) => found.fs_type.as_deref(),
        _ => None,
    }
}

/// Compares every column that both lsblk and the scanner report, for these devices.
#[track_caller]
pub fn assert_like_lsblk(scanned: &ScanResult, names: &[&str]) {
    const COLUMNS: &str = "name,kname,pkname,model,vendor,fstype,type,uuid,label,tran,ro,rm,parttype,partlabel,partuuid,serial,size,rota,mountpoint,mountpoints,state,maj:min";
    for name in names {
        let text = run("lsblk", &["-b", "-d", "--json", "-o", COLUMNS, &format!("/dev/{name}")]);
        let row: Value = serde_json::from_str(&text).unwrap();
        let row = &row["blockdevices"][0];
        let facts = of(scanned, name);
        let found = match &facts.content {
            Content::Found(found) => found.clone(),
            _ => Found::default(),
        };
        let partition = facts.partition.clone().unwrap_or_default();
        let text = |column: &str| {
            row[column].as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let ours = [
            ("name", Some(facts.mapped_name.clone().unwrap_or(facts.name.clone()))),
            ("kname", Some(facts.name.clone())),
            ("model", facts.model.clone()),
            ("vendor", facts.vendor.clone()),
            ("fstype", found.fs_type),
            ("type", Some(facts.kind.clone())),
            ("uuid", found.uuid),
            ("label", found.label),
            ("tran", facts.transport.clone()),
            ("parttype", partition.type_id),
            ("partlabel", partition.label),
            ("partuuid", partition.uuid),
            ("serial", facts.serial.clone()),
            ("state", facts.state.clone()),
            ("maj:min", Some(facts.number.clone())),
        ];
        for (column, value) in ours {
            assert_eq!(value, text(column), "{column} of {name}");
        }
        if let Some(parent) = text("pkname") {
            assert!(
                facts.parent.iter().chain(&facts.slaves).any(|other| *other == parent),
                "parent of {name}: {parent}"
            );
        }
        assert_eq!(Some(facts.size), row["size"].as_u64(), "size of {name}");
        for (column, value) in
            [("ro", facts.read_only), ("rm", facts.removable), ("rota", facts.rotational)]
        {
            assert_eq!(Some(value), row[column].as_bool(), "{column} of {name}");
        }
        let mounts: Vec<&str> =
            row["mountpoints"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(mounts.contains(&"[SWAP]"), facts.swap, "swap of {name}");
        for mount in
            mounts.iter().chain(&row["mountpoint"].as_str()).filter(|mount| **mount != "[SWAP]")
        {
            assert!(
                facts.mounts.iter().any(|ours| ours == mount),
                "{name} is mounted at {mount}: {:?}",
                facts.mounts
            );
        }
    }
}

/// Compares type, UUID, label and table with what `blkid -p` finds on the device.
#[track_caller]
pub fn assert_like_blkid(facts: &Facts) {
    let path = format!("/dev/{}", facts.name);
    let output = Command::new("blkid").args(["-p", "-o", "full", &path]).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |tag: &str| {
        let (_, rest) = output_text.split_once(&format!(" {tag}=\""))?;
        rest.split_once('"').map(|(value, _)| value.trim().to_owned())
    };
    match output.status.code() {
        Some(0) if value("TYPE").is_some() || value("PTTYPE").is_some() => {
            let expected = Found {
                fs_type: value("TYPE"),
                uuid: value("UUID"),
                label: value("LABEL"),
                table: value("PTTYPE"),
                ambivalent: Vec::new(),
            };
            assert_eq!(facts.content, Content::Found(expected), "{}: {output_text}", facts.name);
        }
        // The entry in the partition table is not content.
        Some(0 | 2) => assert!(
            matches!(facts.content, Content::Blank | Content::UnknownData),
            "{}: blkid printed {output_text:?}, we found {:?}",
            facts.name,
            facts.content
        ),
        Some(8) => assert!(
            matches!(&facts.content, Content::Found(found) if found.ambivalent.len() > 1),
            "{}: {:?}",
            facts.name,
            facts.content
        ),
        code => panic!("blkid -p {path}: {code:?} {}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn devices_of_this_machine_agree_with_lsblk() {
    let scanned = scan();
    let table = run("lsblk", &["-d", "-n", "-o", "KNAME,TYPE"]);
    let names: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, kind)| kind.trim() != "loop")
        .map(|(name, _)| name.trim())
        .collect();
    assert!(!names.is_empty());
    for name in names {
        // The machine's own disks are in use: their file systems are not compared.
        let facts = of(&scanned, name);
        assert_eq!(
            run("lsblk", &["-b", "-d", "-n", "-o", "SIZE", &format!("/dev/{name}")]).trim(),
            facts.size.to_string()
        );
    }
    assert!(scanned.boot_id.is_some());
}

// invariant: 8
#[test]
fn unchanged_devices_are_not_opened() {
    let dir = dir();
    let paths: Vec<PathBuf> =
        (0..4).map(|index| file(dir.path(), &format!("f{index}"), 8 * MIB)).collect();
    let loops: Vec<Loop> = paths.iter().map(|path| Loop::new(path)).collect();
    run("udevadm", &["settle", "--timeout=30"]);
    let mut scanner = scanner();
    assert!(scanner.scan(Scan::Everything).unwrap().changed);
    let touched = Default::default();
    let changed = Scan::Changed { touched: &touched };
    scanner.scan(changed).unwrap();
    let again = scanner.scan(changed).unwrap();
    assert!(!loops.iter().any(|device| of(&again, &device.name).content != Content::Blank));
    // The machine's own disk is written to all the time; the test's are not.
    let before: Vec<Facts> =
        again.devices.iter().filter(|device| device.kind == "loop").cloned().collect();
    run(
        "dd",
        &[
            "if=/dev/urandom",
            &format!("of={}", loops[0].dev()),
            "bs=4k",
            "count=1",
            "seek=5",
            "conv=fsync",
            "status=none",
        ],
    );
    let after = scanner.scan(changed).unwrap();
    assert!(after.changed);
    assert_eq!(
        of(&after, &loops[0].name).content,
        Content::UnknownData,
        "found by the write counter"
    );
    let differ = after
        .devices
        .iter()
        .filter(|device| device.kind == "loop" && !before.contains(device))
        .count();
    assert_eq!(differ, 1);

    // Over another file it is another device, with the same name and number.
    let named: std::collections::BTreeSet<String> = [loops[1].name.clone()].into();
    let named = scanner.scan(Scan::Changed { touched: &named }).unwrap();
    assert!(named.probed >= 1, "an event contains its name");
    let number = of(&named, &loops[1].name).number.clone();
    let other = file(dir.path(), "other", 16 * MIB);
    run("losetup", &["-d", &loops[1].dev()]);
    run("losetup", &[&loops[1].dev(), &other.to_string_lossy()]);
    let replaced = scanner.scan(changed).unwrap();
    let facts = of(&replaced, &loops[1].name);
    assert!(replaced.changed);
    assert_eq!((&facts.number, facts.size), (&number, 16 * MIB));
    assert!(facts.evidence.iter().any(|evidence| evidence.source == "loop:file"
        && evidence.value.starts_with(&*other.to_string_lossy())));

    let removed = loops[2].name.clone();
    drop(loops);
    let last = scanner.scan(changed).unwrap();
    assert!(last.changed && !last.devices.iter().any(|device| device.name == removed));
}

#[test]
fn devices_may_appear_and_vanish_during_a_scan() {
    let dir = dir();
    let stays = Loop::new(&file(dir.path(), "stays", 8 * MIB));
    let paths: Vec<PathBuf> =
        (0..4).map(|index| file(dir.path(), &format!("f{index}"), 8 * MIB)).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Also ends when the test fails.
            let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while !done.load(std::sync::atomic::Ordering::Relaxed)
                && std::time::Instant::now() < end
            {
                let loops: Vec<Loop> = paths.iter().map(|path| Loop::new(path)).collect();
                drop(loops);
            }
        });
        let mut scanner = scanner();
        for _ in 0..60 {
            let scanned = scanner.scan(Scan::Everything).unwrap();
            assert_eq!(of(&scanned, &stays.name).content, Content::Blank);
            for device in scanned.devices.iter() {
                let ours = device.backing.as_ref().is_some_and(|backing| {
                    backing.path.starts_with(&*dir.path().to_string_lossy())
                });
                assert!(
                    !ours || device.content == Content::Blank || device.size == 0,
                    "{device:?}"
                );
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn scan_handles_256_devices() {
    let dir = dir();
    let mut loops = Vec::new();
    for index in 0..256 {
        let path = file(dir.path(), &format!("f{index}"), 4 * MIB);
        if index % 2 == 1 {
            poke(&path, 4086, b"SWAPSPACE2");
            poke(&path, 1024, &[1, 0, 0, 0, 0xff, 3, 0, 0]);
        }
        loops.push(Loop::new(&path));
    }
    let mut scanner = scanner();
    let scanned = scanner.scan(Scan::Everything).unwrap();
    for (index, device) in loops.iter().enumerate() {
        let facts = of(&scanned, &device.name);
        match index % 2 {
            0 => assert_eq!(facts.content, Content::Blank, "{}", device.name),
            _ => assert_eq!(fs_type(facts), Some("swap"), "{}", device.name),
        }
    }
    let identities: std::collections::BTreeSet<&str> = loops
        .iter()
        .flat_map(|device| &of(&scanned, &device.name).evidence)
        .map(|evidence| evidence.value.as_str())
        .collect();
    assert_eq!(identities.len(), 256, "each has its own identity");
    let threads = fs::read_dir("/proc/self/task").unwrap().filter(|task| {
        let name =
            fs::read_to_string(task.as_ref().unwrap().path().join("comm")).unwrap_or_default();
        name.starts_with("quarry-probe")
    });
    assert_eq!(threads.count(), 0, "no thread after the scan");
}
