//! A device that does not respond: a loop device over a file of a stopped FUSE daemon.

use super::{
    devices::{Loop, MIB, dir, file, of, scanner},
    exported_file::ExportedFile,
};
use quarry_core::device::Content;
use quarry_node::{
    HostRoot,
    inspect::{Limits, Scan, Scanner, probe::Certainty},
};
use quarry_tests::disk::{eventually, run};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

const SHORT: Duration = Duration::from_millis(1500);

/// A process that has mapped the first page of a device, as file systems and databases do.
struct Holder(Child);

impl Holder {
    fn new(device: &str) -> Self {
        let script = "import mmap,sys\nf=open('/dev/'+sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),4096,prot=mmap.PROT_READ)\nm[0]\nprint('held',flush=True)\nsys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", script, device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "held");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn probe_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter(|task| {
            fs::read_to_string(task.as_ref().unwrap().path().join("comm"))
                .is_ok_and(|name| name.starts_with("quarry-probe"))
        })
        .count()
}

/// Another process scans the devices, including this one, and exits.
#[track_caller]
fn assert_process_exits_with(hung: &Loop) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "devices_hung::process_with_a_stuck_thread", "--nocapture"])
        .env("QUARRY_STUCK", &hung.name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the process ends", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

// invariant: 4
#[test]
fn hung_device_times_out_alone_and_leaks_no_thread() {
    let dir = dir();
    let daemon =
        ExportedFile::new(&file(dir.path(), "image", 16 * MIB), &dir.path().join("export"));
    let hung = Loop::new(&dir.path().join("export"));
    let healthy: Vec<Loop> =
        (0..8).map(|index| Loop::new(&file(dir.path(), &format!("f{index}"), 8 * MIB))).collect();
    let mut fresh = scanner();
    assert_eq!(of(&fresh.scan(Scan::Everything).unwrap(), &hung.name).content, Content::Blank);
    // udev must not hang on it too.
    run("udevadm", &["settle", "--timeout=30"]);
    // Its first page stays in memory: a read from there is not a response of the device.
    let holder = Holder::new(&hung.name);
    let stopped = daemon.stopped();

    let mut scanner = Scanner::new(
        HostRoot::view("/").unwrap(),
        Limits { answer_within: SHORT, ..Limits::default() },
    );
    for round in 0..10 {
        // It returns: a scan that waited for the device would not.
        let scanned = scanner.scan(Scan::Everything).unwrap();
        assert_eq!(of(&scanned, &hung.name).content, Content::TimedOut);
        assert_eq!(of(&scanned, &hung.name).size, 16 * MIB, "the rest is known");
        for device in &healthy {
            assert_eq!(of(&scanned, &device.name).content, Content::Blank, "the others are fine");
        }
        assert_eq!(probe_threads(), 1, "round {round}: one stuck thread, regardless of retries");
    }

    // A process with such a thread still exits.
    assert_process_exits_with(&hung);

    drop((stopped, holder));
    eventually("the thread ends", || probe_threads() == 0);
    let touched = Default::default();
    let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
    assert_eq!(of(&scanned, &hung.name).content, Content::Blank, "it is probed again");
    drop(hung);
}

// invariant: 4
#[test]
fn slow_device_does_not_delay_the_others() {
    let dir = dir();
    let daemon =
        ExportedFile::new(&file(dir.path(), "image", 16 * MIB), &dir.path().join("export"));
    let slow = Loop::new(&dir.path().join("export"));
    let healthy = Loop::new(&file(dir.path(), "healthy", 8 * MIB));
    run("udevadm", &["settle", "--timeout=30"]);
    let stopped = daemon.stopped();
    // The limit for the device is so long that it never times out; the scan does not wait at all.
    let limits = Limits {
        answer_within: Duration::from_secs(3600),
        patience: Duration::from_millis(100),
        ..Limits::default()
    };
    let mut scanner = Scanner::new(HostRoot::view("/").unwrap(), limits);
    scanner.scan(Scan::Everything).unwrap();
    let touched = Default::default();
    // On a busy machine the healthy device may be slow at first too.
    eventually("the others are read, and the slow one is pending", || {
        let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
        of(&scanned, &healthy.name).content == Content::Blank
            && of(&scanned, &slow.name).content == Content::Unread
            && scanned.again_in.is_some()
    });
    drop(stopped);
    eventually("its response is used", || {
        let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
        of(&scanned, &slow.name).content == Content::Blank && scanned.again_in.is_none()
    });
    drop((slow, healthy));
}

/// A confirmation needs the device's response: without waiting, a device that is always slow would
/// never be confirmed.
#[test]
fn confirmation_waits_for_a_slow_device() {
    let dir = dir();
    let daemon =
        ExportedFile::new(&file(dir.path(), "image", 16 * MIB), &dir.path().join("export"));
    let slow = Loop::new(&dir.path().join("export"));
    run("udevadm", &["settle", "--timeout=30"]);
    let limits = Limits {
        answer_within: Duration::from_secs(3600),
        patience: Duration::ZERO,
        ..Limits::default()
    };
    let mut scanner = Scanner::new(HostRoot::view("/").unwrap(), limits);
    let stopped = daemon.stopped();
    let scanned = std::thread::scope(|scope| {
        let scan = scope.spawn(|| scanner.scan_with(Scan::Everything, Certainty::Prove).unwrap());
        eventually("it is being read", || probe_threads() > 0);
        drop(stopped);
        scan.join().unwrap()
    });
    assert_eq!((&of(&scanned, &slow.name).content, scanned.silent.len()), (&Content::Blank, 0));
    drop(slow);
}

/// The hardest case: no other process has the device open, so the exiting process is the one that
/// closes it.
#[test]
fn process_exits_although_its_only_device_hangs() {
    let dir = dir();
    let daemon =
        ExportedFile::new(&file(dir.path(), "image", 16 * MIB), &dir.path().join("export"));
    let hung = Loop::new(&dir.path().join("export"));
    run("udevadm", &["settle", "--timeout=30"]);
    let stopped = daemon.stopped();
    assert_process_exits_with(&hung);
    drop(stopped);
    drop(hung);
}

/// The child process of the tests above.
#[test]
fn process_with_a_stuck_thread() {
    let Ok(name) = std::env::var("QUARRY_STUCK") else { return };
    let mut scanner = Scanner::new(
        HostRoot::view("/").unwrap(),
        Limits { answer_within: SHORT, ..Limits::default() },
    );
    let scanned = scanner.scan(Scan::Everything).unwrap();
    assert_eq!(of(&scanned, &name).content, Content::TimedOut);
}

/// A dead file system is on the path to a mount point: the other mounts are still read.
#[test]
fn dead_file_system_on_the_path_to_a_mount_is_skipped() {
    let dir = dir();
    let root = dir.path();
    for dir_name in ["sys/class/block", "proc/1", "x"] {
        fs::create_dir_all(root.join(dir_name)).unwrap();
    }
    let daemon = ExportedFile::new(&file(root, "image", MIB), &root.join("x/export"));
    let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:99 / /x/export rw - fuse.x x rw\n33 30 8:1 /sub /x/export rw - ext4 /dev/sda1 rw\n";
    fs::write(root.join("proc/1/mountinfo"), mounts).unwrap();
    let stopped = daemon.stopped();
    let scan = std::thread::spawn({
        let host = HostRoot::view(root).unwrap();
        move || Scanner::new(host, Limits::default()).scan(Scan::Everything).map(drop)
    });
    eventually("the scan ends", || scan.is_finished());
    scan.join().unwrap().unwrap();
    drop(stopped);
}
