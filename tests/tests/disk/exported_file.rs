//! A file exported through FUSE by a process that can be stopped or killed: a loop device over it
//! is a disk that hangs or is pulled.

use quarry_tests::disk::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub struct ExportedFile(Child);

impl ExportedFile {
    /// Exports `file` as `at`.
    pub fn new(file: &Path, at: &Path) -> Self {
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
        ExportedFile(child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Kills the daemon, like pulling the disk.
    pub fn pull(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// The daemon does not respond until the returned guard is dropped.
    pub fn stopped(&self) -> Stopped<'_> {
        self.signal(Signal::STOP);
        // The kernel's cache of the file would respond instead.
        fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        Stopped(self)
    }
}

impl Drop for ExportedFile {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|code| code.is_some());
        if has_ended(&mut self.0) {
            return;
        }
        // A stopped process does not handle SIGTERM, which unmounts the export.
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        while !has_ended(&mut self.0) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Guard: a failing test must not leave a device that cannot be detached.
pub struct Stopped<'a>(&'a ExportedFile);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}
