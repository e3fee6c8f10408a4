//! A guest's process: a group of its own, a limited life, gone with its owner.

use super::{LIFETIME, kit};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::OsString,
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it in `folder`. Its messages, and what the guest prints on its console, go to the file `log`.
    pub fn start(
        program: impl Into<OsString>,
        arguments: &[OsString],
        folder: &Path,
        log: &Path,
        stdout: Option<Stdio>,
    ) -> Self {
        // Of an earlier run.
        let _ = std::fs::remove_file(log);
        let messages = File::options().create(true).append(true).open(log).unwrap();
        // `leash` ends the group when this process is killed and no destructor runs: the pipe of its standard input closes.
        let child = Command::new(kit().join("root/usr/lib/quarry/leash"))
            .arg(LIFETIME.as_secs().to_string())
            .arg(program.into())
            .args(arguments)
            .current_dir(folder)
            .env("TMPDIR", "/dev/shm")
            .stdin(Stdio::piped())
            .stdout(stdout.unwrap_or_else(|| messages.try_clone().unwrap().into()))
            .stderr(messages)
            .process_group(0)
            .spawn()
            .unwrap();
        Process { child, log: log.to_owned() }
    }

    pub fn ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours can be asked").is_some()
    }

    /// What it said, for the message of a failing test.
    pub fn last_words(&self) -> String {
        let all = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&all);
        let lines: Vec<&str> = text.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// SIGKILL to all of it, as a power cut.
    pub fn kill(&mut self) {
        // The leader is not waited for before: the number of the group is still ours. It may have ended by itself.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait().expect("a child of ours can be waited for");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended() {
            self.kill();
        }
    }
}
