//! A device that does not answer: a loop over a file of a FUSE daemon that has been stopped.

use super::devices::{Loop, MIB, file, folder, of, scanner};
use quarry_core::device::Content;
use quarry_node::{
    HostRoot,
    inspect::{Limits, Scan, Scanner, probe::Care},
};
use quarry_tests::disk::{eventually, run};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

const SHORT: Duration = Duration::from_millis(1500);

/// Exports a file through FUSE.
struct Daemon(Child);

impl Daemon {
    fn new(file: &Path, at: &Path) -> Self {
        fs::write(at, "").unwrap();
        let (file, at) = (file.to_string_lossy(), at.to_string_lossy());
        let child = Command::new("qemu-storage-daemon")
            .args(["--blockdev", &format!("driver=file,node-name=f,filename={file}")])
            .args(["--export", &format!("type=fuse,id=e,node-name=f,mountpoint={at},writable=on")])
            .stdout(Stdio::null())
            .spawn()
            .expect("qemu-storage-daemon of package qemu-system-common");
        eventually("the daemon serves the file", || {
            fs::metadata(&*at).is_ok_and(|meta| meta.len() > 0)
        });
        Daemon(child)
    }

    /// Answers nothing until what is returned is dropped.
    fn stopped(&self) -> Stopped<'_> {
        self.signal(rustix::process::Signal::STOP);
        // What the kernel remembers of the file would answer in its place.
        fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        Stopped(self)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }
}

/// A test that fails must not leave a device that nobody can detach.
struct Stopped<'a>(&'a Daemon);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(rustix::process::Signal::CONT);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Somebody who has the first page of a device mapped, as file systems and databases do.
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

/// Another process looks at the devices, this one among them, and ends.
#[track_caller]
fn assert_a_process_ends_with(hung: &Loop) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "devices_hung::a_process_with_a_stuck_thread", "--nocapture"])
        .env("QUARRY_STUCK", &hung.name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the process ends", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_hung_device_times_out_alone_and_leaks_no_thread() {
    let folder = folder();
    let daemon =
        Daemon::new(&file(folder.path(), "image", 16 * MIB), &folder.path().join("export"));
    let hung = Loop::new(&folder.path().join("export"));
    let healthy: Vec<Loop> = (0..8)
        .map(|index| Loop::new(&file(folder.path(), &format!("f{index}"), 8 * MIB)))
        .collect();
    let mut fresh = scanner();
    assert_eq!(of(&fresh.scan(Scan::Everything).unwrap(), &hung.name).content, Content::Blank);
    // udev must not hang in it as well.
    run("udevadm", &["settle", "--timeout=30"]);
    // Its first page stays in memory: an answer from there is none of the device's.
    let holder = Holder::new(&hung.name);
    let stopped = daemon.stopped();

    let mut scanner = Scanner::new(
        HostRoot::view("/").unwrap(),
        Limits { answer_within: SHORT, ..Limits::default() },
    );
    for round in 0..10 {
        // Returns at all: a scan that waited for the device would not.
        let scanned = scanner.scan(Scan::Everything).unwrap();
        assert_eq!(of(&scanned, &hung.name).content, Content::TimedOut);
        assert_eq!(of(&scanned, &hung.name).size, 16 * MIB, "the rest is known");
        for device in &healthy {
            assert_eq!(of(&scanned, &device.name).content, Content::Blank, "the others are fine");
        }
        assert_eq!(
            probe_threads(),
            1,
            "round {round}: one stuck thread, however often it is tried"
        );
    }

    // A process that has such a thread ends nevertheless.
    assert_a_process_ends_with(&hung);

    drop((stopped, holder));
    eventually("the thread comes back", || probe_threads() == 0);
    let touched = Default::default();
    let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
    assert_eq!(of(&scanned, &hung.name).content, Content::Blank, "it is probed anew");
    drop(hung);
}

#[test]
fn a_slow_device_is_seen_as_soon_as_it_answers_and_the_others_at_once() {
    let folder = folder();
    let daemon =
        Daemon::new(&file(folder.path(), "image", 16 * MIB), &folder.path().join("export"));
    let slow = Loop::new(&folder.path().join("export"));
    let healthy = Loop::new(&file(folder.path(), "healthy", 8 * MIB));
    run("udevadm", &["settle", "--timeout=30"]);
    let stopped = daemon.stopped();
    // So patient with the device that it never times out, and not at all with the scan.
    let limits = Limits {
        answer_within: Duration::from_secs(3600),
        patience: Duration::from_millis(100),
        ..Limits::default()
    };
    let mut scanner = Scanner::new(HostRoot::view("/").unwrap(), limits);
    scanner.scan(Scan::Everything).unwrap();
    let touched = Default::default();
    // On a busy machine the healthy one may be slow at first, too.
    eventually("the others are seen, and the slow one is waited for", || {
        let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
        of(&scanned, &healthy.name).content == Content::Blank
            && of(&scanned, &slow.name).content == Content::Unread
            && scanned.again_in.is_some()
    });
    drop(stopped);
    eventually("its answer is taken", || {
        let scanned = scanner.scan(Scan::Changed { touched: &touched }).unwrap();
        of(&scanned, &slow.name).content == Content::Blank && scanned.again_in.is_none()
    });
    drop((slow, healthy));
}

/// Who holds a device needs its answer: asked in passing, one that is slow every time would never be confirmed.
#[test]
fn a_slow_device_is_waited_for_when_something_is_to_be_proven() {
    let folder = folder();
    let daemon =
        Daemon::new(&file(folder.path(), "image", 16 * MIB), &folder.path().join("export"));
    let slow = Loop::new(&folder.path().join("export"));
    run("udevadm", &["settle", "--timeout=30"]);
    let limits = Limits {
        answer_within: Duration::from_secs(3600),
        patience: Duration::ZERO,
        ..Limits::default()
    };
    let mut scanner = Scanner::new(HostRoot::view("/").unwrap(), limits);
    let stopped = daemon.stopped();
    let scanned = std::thread::scope(|scope| {
        let looks = scope.spawn(|| scanner.scan_with(Scan::Everything, Care::Prove).unwrap());
        eventually("it is being read", || probe_threads() > 0);
        drop(stopped);
        looks.join().unwrap()
    });
    assert_eq!((&of(&scanned, &slow.name).content, scanned.silent.len()), (&Content::Blank, 0));
    drop(slow);
}

/// The hardest case: nobody else has the device open, so the process that ends is the one that closes it.
#[test]
fn a_process_ends_although_its_only_device_hangs() {
    let folder = folder();
    let daemon =
        Daemon::new(&file(folder.path(), "image", 16 * MIB), &folder.path().join("export"));
    let hung = Loop::new(&folder.path().join("export"));
    run("udevadm", &["settle", "--timeout=30"]);
    let stopped = daemon.stopped();
    assert_a_process_ends_with(&hung);
    drop(stopped);
    drop(hung);
}

/// The other half of the tests above.
#[test]
fn a_process_with_a_stuck_thread() {
    let Ok(name) = std::env::var("QUARRY_STUCK") else { return };
    let mut scanner = Scanner::new(
        HostRoot::view("/").unwrap(),
        Limits { answer_within: SHORT, ..Limits::default() },
    );
    let scanned = scanner.scan(Scan::Everything).unwrap();
    assert_eq!(of(&scanned, &name).content, Content::TimedOut);
}

/// A file system that nobody answers for any more lies on the way to a mount: the others are looked at all the same.
#[test]
fn a_dead_file_system_on_the_way_to_a_mount_is_not_asked() {
    let folder = folder();
    let root = folder.path();
    for made in ["sys/class/block", "proc/1", "x"] {
        fs::create_dir_all(root.join(made)).unwrap();
    }
    let daemon = Daemon::new(&file(root, "image", MIB), &root.join("x/export"));
    let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:99 / /x/export rw - fuse.x x rw\n33 30 8:1 /sub /x/export rw - ext4 /dev/sda1 rw\n";
    fs::write(root.join("proc/1/mountinfo"), mounts).unwrap();
    let stopped = daemon.stopped();
    let looks = std::thread::spawn({
        let host = HostRoot::view(root).unwrap();
        move || Scanner::new(host, Limits::default()).scan(Scan::Everything).map(drop)
    });
    eventually("the look ends", || looks.is_finished());
    looks.join().unwrap().unwrap();
    drop(stopped);
}
