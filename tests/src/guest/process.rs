//! A guest's process: in its own process group, with a time limit, killed on drop.

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
    /// Starts it in `directory`. Its messages and the guest's console go to the file `log`.
    pub fn start(
        program: impl Into<OsString>,
        arguments: &[OsString],
        dir: &Path,
        log: &Path,
        stdout: Option<Stdio>,
    ) -> Self {
        // Left by an earlier run.
        let _ = std::fs::remove_file(log);
        let messages = File::options().create(true).append(true).open(log).unwrap();
        // `leash` kills the group when this process is killed and no destructor runs: its standard
        // input, a pipe, closes.
        let child = Command::new(kit().join("root/usr/lib/quarry/leash"))
            .arg(LIFETIME.as_secs().to_string())
            .arg(program.into())
            .args(arguments)
            .current_dir(dir)
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
        self.child.try_wait().expect("the state of a child process can be read").is_some()
    }

    /// Its last output, for the message of a failing test.
    pub fn last_output(&self) -> String {
        let all = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&all);
        let lines: Vec<&str> = text.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Sends SIGKILL to the whole group, like a power failure.
    pub fn kill(&mut self) {
        // The leader has not been waited for, so the group ID is still ours. The process may have
        // exited already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait().expect("a child process can be waited for");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended() {
            self.kill();
        }
    }
}
