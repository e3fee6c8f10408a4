//! Fixture of the disk tier: a separate root and data directory for the node, and volumes on real
//! loop devices.
//!
//! `Bed::new(Links::Udev)` is the machine with its udev daemon; `Bed::new(Links::Own)` is a host
//! root made of bind mounts, in which no udev daemon is visible. Dropping the bed removes
//! everything a test left; it only ever touches loop devices over files in its own directory.

use quarry_api::{names, node_job::FsType, quantity::Bytes};
use quarry_core::{
    job::{CleanupVolume, Format, JobOutcome, JobRun, PrepareVolume, Task, VolumeTask},
    storage::sparse::Sparse,
};
use quarry_node::{
    DeviceOps, HostRoot, JobRunner, LinuxNode, NodeError, Progress, ScanRequest, Workers,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
/// Time limit for every wait of a test.
const PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PATIENCE: Duration = Duration::from_secs(120);

/// Who creates the links in /dev/disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// The udev daemon, which the tier's script has started.
    Udev,
    /// The agent: the host root has no udev socket.
    Own,
}

impl Links {
    pub const BOTH: [Links; 2] = [Links::Udev, Links::Own];
}

pub struct Bed {
    // Dropped in this order: mounts before the directory that contains them.
    mounts: Vec<Mounted>,
    pub root: PathBuf,
    /// The data directory, as a path on the node.
    pub data_on_node: PathBuf,
    /// The data directory, as a path for this process.
    pub data: PathBuf,
    _directory: TempDir,
}

impl Bed {
    pub fn new(links: Links) -> Self {
        let directory = scratch();
        let path = fs::canonicalize(directory.path()).unwrap();
        match links {
            Links::Udev => {
                assert!(
                    Path::new("/run/udev/control").exists(),
                    "no udev daemon is running; start one with scripts/udevd start NAME"
                );
                // A run that was killed may have left it paused.
                run("udevadm", &["control", "--start-exec-queue"]);
                let data = path.join("data");
                Bed {
                    mounts: Vec::new(),
                    root: "/".into(),
                    data_on_node: data.clone(),
                    data,
                    _directory: directory,
                }
            }
            Links::Own => {
                let root = path.join("root");
                let mounts = host_root(&root);
                Bed {
                    mounts,
                    data: root.join("data"),
                    data_on_node: "/data".into(),
                    root,
                    _directory: directory,
                }
            }
        }
    }

    /// With the data directory on a separate file system, so that it can be full.
    pub fn on(links: Links, size: &str) -> Self {
        let mut bed = Bed::new(links);
        fs::create_dir_all(&bed.data).unwrap();
        bed.mounts.push(Mounted::new(
            &["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "none"],
            &bed.data,
        ));
        bed
    }

    pub fn host(&self) -> HostRoot {
        HostRoot::open(&self.root, &self.data_on_node).unwrap()
    }

    /// Takes the locks of the node and of its disks, as an agent does when it starts. Tests of another checkout may
    /// have the disks of this machine for a moment.
    pub fn ops(&self) -> Arc<LinuxNode> {
        let end = Instant::now() + LOCK_PATIENCE;
        loop {
            match LinuxNode::open(self.host(), false) {
                Err(NodeError::RealDisksLocked { .. }) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                opened => return Arc::new(opened.unwrap()),
            }
        }
    }

    /// A path on this bed's node, as a path for this process.
    pub fn at(&self, on_node: &str) -> PathBuf {
        self.root.join(on_node.trim_start_matches('/'))
    }

    /// The end of a device claim's link, also through a link of this boot; `None` if it leads nowhere.
    pub fn link_target(&self, link: &str) -> Option<PathBuf> {
        let target = fs::read_link(self.at(link)).ok()?;
        if target.starts_with(names::BOOT_LINK_DIRECTORY) {
            return fs::read_link(self.at(target.to_str()?)).ok();
        }
        Some(target)
    }

    pub fn file(&self, uid: &str) -> PathBuf {
        self.data.join("volumes").join(uid)
    }

    /// Loop devices over files of this bed, from `losetup` as an independent source.
    pub fn loops(&self) -> Vec<String> {
        let table = run("losetup", &["-l", "-n", "-O", "NAME,BACK-FILE"]);
        let mine = self.data.to_string_lossy().into_owned();
        let lines = table.lines().filter_map(|line| line.split_once(char::is_whitespace));
        lines
            .filter(|(_, file)| file.trim().starts_with(&mine))
            .map(|(name, _)| name.trim_start_matches("/dev/").to_owned())
            .collect()
    }

    /// Names of everything in the volume directory.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.data.join("volumes")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn links(&self, uid: &str) -> Vec<String> {
        let candidates = ["by-uuid", "by-partlabel", "by-partuuid"]
            .map(|kind| format!("/dev/disk/{kind}/{uid}"));
        let made = candidates.iter().flat_map(|link| [link.clone(), format!("{link}.quarry")]);
        made.filter(|link| fs::symlink_metadata(self.at(link)).is_ok()).collect()
    }

    /// Asserts that no file, loop device or link of this volume exists.
    #[track_caller]
    pub fn assert_clean(&self, uid: &str) {
        assert_eq!(self.files(), Vec::<String>::new(), "files are left");
        assert_eq!(self.loops(), Vec::<String>::new(), "loops are left");
        // Only udev manages by-partuuid; its link disappears a moment after the one that is waited
        // for.
        let end = Instant::now() + PATIENCE;
        while !self.links(uid).is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let left: Vec<_> =
            self.links(uid).into_iter().map(|link| (fs::read_link(self.at(&link)), link)).collect();
        assert!(left.is_empty(), "links are left: {left:?}");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for name in self.loops() {
            let device = format!("/dev/{name}");
            // The kernel keeps partitions until they are deleted.
            let _ = Command::new("partx").args(["-d", &device]).output();
            let _ = Command::new("losetup").args(["-d", &device]).output();
        }
        while let Some(mount) = self.mounts.pop() {
            drop(mount);
        }
    }
}

/// A mount; unmounted on drop.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn new(arguments: &[&str], at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let path = at.to_string_lossy().into_owned();
        run("mount", &[arguments, &[&path]].concat());
        Mounted(at.to_owned())
    }

    /// Mounts on an existing file.
    pub fn new_file(arguments: &[&str], at: &Path) -> Self {
        let path = at.to_string_lossy().into_owned();
        run("mount", &[arguments, &[&path]].concat());
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let tried = Command::new("umount").arg(&self.0).output();
        if !tried.is_ok_and(|output| output.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        }
    }
}

/// A root as a pod sees its node: the machine's /dev, /sys and /proc, a separate /dev/disk, no udev
/// socket.
fn host_root(root: &Path) -> Vec<Mounted> {
    fs::create_dir_all("/dev/disk").unwrap();
    fs::create_dir_all(root.join("run")).unwrap();
    let mut mounts = Vec::new();
    for part in ["dev", "sys", "proc"] {
        mounts.push(Mounted::new(&["--bind", &format!("/{part}")], &root.join(part)));
        // Mounts on top of it must not appear on the machine.
        run("mount", &["--make-private", &root.join(part).to_string_lossy()]);
    }
    mounts.push(Mounted::new(&["-t", "tmpfs", "none"], &root.join("dev/disk")));
    mounts
}

fn scratch() -> TempDir {
    assert!(
        rustix::process::geteuid().is_root(),
        "the disk tier needs root; run it with scripts/test-tiers"
    );
    tempfile::Builder::new().prefix("quarry-disk-").tempdir().unwrap()
}

pub fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub fn filesystem(fs: FsType) -> Format {
    Format::Filesystem { fs, options: Vec::new() }
}

pub fn prepare_order(uid: &str, size: u64, format: Format) -> JobRun {
    let task = PrepareVolume { uid: uid.into(), size: Bytes(size), format };
    JobRun { job: format!("prepare-{uid}").into(), task: Task::Volume(VolumeTask::Prepare(task)) }
}

pub fn cleanup_order(uid: &str) -> JobRun {
    let task = CleanupVolume { uid: uid.into() };
    JobRun { job: format!("cleanup-{uid}").into(), task: Task::Volume(VolumeTask::Cleanup(task)) }
}

/// Runs a job as the agent does, without an API.
#[track_caller]
pub fn execute(ops: &Arc<LinuxNode>, order: &JobRun) -> JobOutcome {
    let Task::Volume(task) = &order.task else { panic!("{order:?} needs an API") };
    let runner = JobRunner::new(ops.clone(), Workers::Inline);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(runner.run_volume::<Sparse>(&order.job, task, &Progress::default()))
}

/// The devices of our volumes, as the agent would publish them.
pub fn volumes_of(ops: &LinuxNode) -> Vec<quarry_core::device::Facts> {
    let scan = ops.scan_node(&ScanRequest::default()).unwrap();
    scan.devices.into_iter().filter(|facts| facts.volume_uid.is_some()).collect()
}

#[track_caller]
pub fn succeed(ops: &Arc<LinuxNode>, order: &JobRun) -> Option<quarry_api::node_job::JobResult> {
    match execute(ops, order) {
        JobOutcome::Prepared(result) => Some(result),
        JobOutcome::Removed => None,
        JobOutcome::Erased(how) => panic!("{:?} erased a device: {how}", order.task),
        JobOutcome::Failed(why) => panic!("{:?} failed: {why}", order.task),
    }
}

#[track_caller]
pub fn fail(ops: &Arc<LinuxNode>, order: &JobRun) -> String {
    match execute(ops, order) {
        JobOutcome::Failed(why) => why,
        other => panic!("{:?} succeeded: {other:?}", order.task),
    }
}

/// Runs a tool that must succeed; returns its output.
#[track_caller]
pub fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{tool}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Detaches a device without the agent's knowledge, and removes its partitions: a kernel without a
/// partition parser keeps them.
#[track_caller]
pub fn snatch(name: &str) {
    drop_partitions(name);
    run("losetup", &["-d", &format!("/dev/{name}")]);
    eventually("the device is idle", || !Path::new(&format!("/sys/block/{name}/loop")).exists());
}

/// Removes the partitions of a device from the kernel.
#[track_caller]
pub fn drop_partitions(name: &str) {
    // Refused while udev has one open.
    eventually("the partitions are gone", || {
        let _ = Command::new("partx").args(["-d", &format!("/dev/{name}")]).output();
        !Path::new(&format!("/sys/block/{name}/{name}p1")).exists()
    });
}

/// Polls until the condition holds; panics after the time limit.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
