//! Rivals for a device: other processes that open it exclusively, mount it, format it, put a loop
//! device over it or swap it.
//!
//! A rival that gets the device keeps it until it is ended; then its own tools check what it
//! created.

use super::{device_claims::O_EXCL, devices::Loop};
use quarry_tests::disk::{Mounted, eventually, run};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::{
    fs::{self, File, OpenOptions},
    io::Read,
    mem::ManuallyDrop,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

const O_NONBLOCK: i32 = 0o4000;

/// A loop device over a file, and another file of the same size.
pub struct Disk {
    device: ManuallyDrop<Loop>,
    pub path: PathBuf,
    pub other: PathBuf,
    /// Directory for other files that rivals need.
    pub dir: PathBuf,
}

impl Disk {
    pub fn new(dir: &Path, path: &Path, other: &Path) -> Self {
        Disk {
            device: ManuallyDrop::new(Loop::new(path)),
            path: path.to_owned(),
            other: other.to_owned(),
            dir: dir.to_owned(),
        }
    }

    pub fn dev(&self) -> String {
        self.device.dev()
    }

    fn is_over(&self, file: &Path) -> bool {
        fs::read_to_string(format!("/sys/block/{}/loop/backing_file", self.device.name))
            .is_ok_and(|over| Path::new(over.trim_end()) == file)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After a failed swap it vanished with its holder, and another process may use its name
        // now.
        if self.is_over(&self.path) || self.is_over(&self.other) {
            // Dropped once, here.
            drop(Loop { name: std::mem::take(&mut self.device.name) });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    Opens,
    Mounts,
    /// Is formatting it; the format is paused until it is ended.
    Formats(Tool),
    /// Has formatted it and exited.
    Formatted(Tool),
    /// Created a loop device over it, as the kubelet does for a Block volume: the kernel always
    /// allows that.
    Loops,
    /// Put another disk under the same name.
    Swaps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Ext4,
    Xfs,
}

/// What a rival got.
pub enum Got {
    Opened(#[expect(dead_code, reason = "held until it is dropped")] File),
    Mounted(Mounted),
    Formatting(Formatting),
    Formatted,
    Loop(Loop),
    Swapped,
}

impl Rival {
    /// Whether the refusal of a job that came too late names this rival.
    pub fn is_named_in(self, message: &str, got: &Got) -> bool {
        match (self, got) {
            (_, Got::Loop(top)) => message.contains(&top.name),
            (Rival::Mounts, _) => message.contains("mounted"),
            (Rival::Swaps, _) => message.contains("is missing"),
            (Rival::Formatted(tool), _) => message.contains(tool.name()),
            // In the middle of a format a signature may be present already.
            (Rival::Formats(tool), _) => {
                message.contains("exclusively") || message.contains(tool.name())
            }
            (Rival::Opens | Rival::Loops, _) => message.contains("exclusively"),
        }
    }

    /// `Err` is the message of the kernel or the tool.
    pub fn try_it(self, disk: &Disk) -> Result<Got, String> {
        let (dev, dir) = (disk.dev(), disk.dir.as_path());
        match self {
            Rival::Opens => OpenOptions::new()
                .read(true)
                .custom_flags(O_EXCL)
                .open(dev)
                .map(Got::Opened)
                .map_err(|error| error.to_string()),
            Rival::Mounts => {
                let at = dir.join("mnt");
                fs::create_dir_all(&at).unwrap();
                tried(Command::new("mount").args(["-t", "ext4", "-o", "noatime", &dev]).arg(&at))?;
                let mounted = Mounted(at);
                fs::write(mounted.0.join("mine"), "mine").unwrap();
                run("sync", &["-f", &mounted.0.to_string_lossy()]);
                Ok(Got::Mounted(mounted))
            }
            Rival::Formats(tool) => Formatting::begin(tool, disk).map(Got::Formatting),
            Rival::Formatted(tool) => tried(tool.command().arg(dev)).map(|()| Got::Formatted),
            Rival::Loops => Ok(Got::Loop(Loop::new(Path::new(&dev)))),
            Rival::Swaps => {
                if disk.is_over(&disk.path) {
                    run("losetup", &["-d", &dev]);
                }
                tried(Command::new("losetup").arg(dev).arg(&disk.other)).map(|()| Got::Swapped)
            }
        }
    }
}

impl Got {
    /// Asserts that nothing it created is damaged.
    pub fn end(self, disk: &Disk) {
        match self {
            Got::Opened(_) | Got::Loop(_) | Got::Swapped | Got::Formatted => {}
            Got::Mounted(mounted) => {
                assert_eq!(fs::read_to_string(mounted.0.join("mine")).unwrap(), "mine");
                drop(mounted);
                Tool::Ext4.check(disk);
            }
            Got::Formatting(formatting) => formatting.end(disk),
        }
    }
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Ext4 => "ext4",
            Tool::Xfs => "xfs",
        }
    }

    pub fn command(self) -> Command {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        match self {
            // Without a journal and lazy initialization, only a mount writes to it later.
            Tool::Ext4 => {
                command.args(["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0"])
            }
            // As xfs's own tests do: otherwise mkfs.xfs refuses devices below 300 MB.
            Tool::Xfs => command.args(["-q", "-f"]).envs([
                ("TEST_DIR", "-"),
                ("TEST_DEV", "-"),
                ("QA_CHECK_FS", "-"),
            ]),
        };
        command
    }

    #[track_caller]
    fn check(self, disk: &Disk) {
        match self {
            Tool::Ext4 => run("fsck.ext4", &["-fn", &disk.dev()]),
            Tool::Xfs => run("xfs_repair", &["-n", "-o", "force_geometry", &disk.dev()]),
        };
    }
}

fn tried(command: &mut Command) -> Result<(), String> {
    let output = command.output().unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A format that has opened the device and waits for a pipe without a writer: a list of bad blocks,
/// or the content of a file.
pub struct Formatting {
    tool: Tool,
    process: Process,
    awaited: PathBuf,
}

impl Formatting {
    fn begin(tool: Tool, disk: &Disk) -> Result<Self, String> {
        let awaited = disk.dir.join("awaited");
        if !awaited.exists() {
            run("mkfifo", &[&awaited.to_string_lossy()]);
        }
        let mut command = tool.command();
        match tool {
            Tool::Ext4 => command.arg("-l").arg(&awaited),
            Tool::Xfs => {
                let prototype = disk.dir.join("prototype");
                fs::write(
                    &prototype,
                    format!("/none\n0 0\nd--755 0 0\nfile ---644 0 0 {}\n$\n", awaited.display()),
                )
                .unwrap();
                command.arg("-p").arg(prototype)
            }
        };
        let mut process = Process::start(command.arg(disk.dev()));
        let mut ended = None;
        eventually("a format is refused, or in its middle", || {
            ended = process.has_ended();
            ended.is_some()
                || fs::read_to_string(format!("/proc/{}/wchan", process.0.id()))
                    .is_ok_and(|call| call == "wait_for_partner")
        });
        match ended {
            None => {
                // What it has written so far is in the kernel's cache of the device.
                File::open(disk.dev()).unwrap().sync_all().unwrap();
                Ok(Formatting { tool, process, awaited })
            }
            Some(output) => {
                assert!(!output.status.success(), "{tool:?} did not wait");
                Err(String::from_utf8_lossy(&output.stderr).into_owned())
            }
        }
    }

    fn end(self, disk: &Disk) {
        drop(OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(self.awaited).unwrap());
        let output = self.process.end();
        assert!(
            output.status.success(),
            "{:?}: {}",
            self.tool,
            String::from_utf8_lossy(&output.stderr)
        );
        self.tool.check(disk);
    }
}

/// A process; killed on drop, because a stopped one would keep the device forever.
pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Process(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// `Err` when it exited without stopping.
    pub fn stopped(mut self) -> Result<Self, Output> {
        let mut changed = None;
        eventually("a process stops or ends", || {
            let options = WaitIdOptions::STOPPED
                | WaitIdOptions::EXITED
                | WaitIdOptions::NOHANG
                | WaitIdOptions::NOWAIT;
            changed = waitid(WaitId::Pid(Pid::from_child(&self.0)), options).unwrap();
            changed.is_some()
        });
        if changed.is_some_and(|changed| changed.stopped()) {
            Ok(self)
        } else {
            Err(self.has_ended().unwrap())
        }
    }

    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
    }

    fn has_ended(&mut self) -> Option<Output> {
        let status = self.0.try_wait().unwrap()?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        Some(Output { status, stdout, stderr })
    }

    /// Its output is short enough for the pipe buffers.
    #[track_caller]
    pub fn end(mut self) -> Output {
        let mut ended = None;
        eventually("a process ends", || {
            ended = self.has_ended();
            ended.is_some()
        });
        ended.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
