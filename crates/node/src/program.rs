//! A program of the image that this process runs in, such as Ceph's: arguments, text on its standard input, a time limit.
//!
//! In contrast to `command.rs` it is found in `PATH` and keeps the environment, because the image has set up both for
//! its programs. Never through a shell. It dies with the thread that starts it.

use crate::{
    command::{drain, how},
    error::NodeError,
    sys,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    io::{self, Write},
    process::{Child, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// What to run.
pub struct Program<'a> {
    pub name: &'a str,
    pub args: &'a [String],
    /// Added to the environment.
    pub env: &'a [(&'a str, String)],
    /// Removed from the environment.
    pub removed_env: &'a [&'a str],
    /// At most a few KiB: it is written at once. Empty input if `None`.
    pub stdin: Option<&'a [u8]>,
    pub limit: Duration,
}

/// Started, and killed when this is dropped.
pub struct Running {
    name: String,
    child: Child,
    end: Instant,
    limit: Duration,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// `None`: ended by a signal.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    /// The last lines of standard error, at most four.
    pub said: String,
    /// As `exit code 2`.
    pub how: String,
}

impl Program<'_> {
    /// Must be called on a thread that lives until the program has ended.
    pub fn start(&self) -> Result<Running, NodeError> {
        let attempt = || format!("running {}", self.name);
        let mut command = std::process::Command::new(self.name);
        command.args(self.args).current_dir("/").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        self.removed_env.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        sys::die_with_parent(&mut command);
        let child = command.spawn().map_err(NodeError::io(attempt()))?;
        let (name, end) = (self.name.to_owned(), Instant::now() + self.limit);
        let mut running = Running { name, child, end, limit: self.limit };
        if let (Some(text), Some(mut input)) = (self.stdin, running.child.stdin.take()) {
            match input.write_all(text) {
                // It ended without reading; its exit code says more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                written => written.map_err(NodeError::io(attempt()))?,
            }
        }
        Ok(running)
    }

    pub fn run(&self) -> Result<Output, NodeError> {
        self.start()?.wait()
    }
}

/// How it ended, its output and its errors.
type Ended = (ExitStatus, Vec<u8>, Vec<u8>);

impl Running {
    /// Reads what it prints until it ends or its time is up.
    pub fn wait(mut self) -> Result<Output, NodeError> {
        let ended = self.collect().map_err(NodeError::io(format!("running {}", self.name)))?;
        let Some((status, stdout, stderr)) = ended else {
            return Err(NodeError::Other {
                attempt: format!(
                    "{} did not end within {} s and was stopped",
                    self.name,
                    self.limit.as_secs()
                ),
                retryable: true,
                source: None,
            });
        };
        Ok(Output { code: status.code(), stdout, said: last_lines(&stderr), how: how(status) })
    }

    fn collect(&mut self) -> io::Result<Option<Ended>> {
        let exit = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let (Some(mut output), Some(mut errors)) =
            (self.child.stdout.take(), self.child.stderr.take())
        else {
            return Err(io::Error::other("its output is not a pipe"));
        };
        rustix::io::ioctl_fionbio(&output, true)?;
        rustix::io::ioctl_fionbio(&errors, true)?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (mut output_open, mut errors_open) = (true, true);
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let ended = {
                let mut fds = vec![PollFd::new(&exit, PollFlags::IN)];
                if output_open {
                    fds.push(PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN));
                }
                if errors_open {
                    fds.push(PollFd::from_borrowed_fd(errors.as_fd(), PollFlags::IN));
                }
                let timeout = Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                };
                match poll(&mut fds, Some(&timeout)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                !fds[0].revents().is_empty()
            };
            if output_open {
                output_open = drain(&mut output, &mut stdout, OUTPUT)?;
            }
            if errors_open {
                errors_open = drain(&mut errors, &mut stderr, ERRORS)?;
            }
            if ended {
                return Ok(Some((self.child.wait()?, stdout, stderr)));
            }
        }
    }
}

/// `osd dump` of a large cluster has a few MiB.
const OUTPUT: usize = 64 << 20;
const ERRORS: usize = 1 << 20;

/// A daemon of Ceph logs to standard error; what it failed of comes last.
fn last_lines(stderr: &[u8]) -> String {
    let text = without_colors(&String::from_utf8_lossy(stderr));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(4)..] {
        [] => "it gave no reason".to_owned(),
        last => last.join("; ").chars().take(1000).collect(),
    }
}

/// Ceph colors its errors, whatever standard error is.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut plain, part| {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
        plain
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; either way it is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, stdin: Option<&[u8]>, limit: Duration) -> Result<Output, NodeError> {
        let args = ["-c".to_owned(), script.to_owned()];
        let env = [("ADDED", "1".to_owned())];
        Program { name: "sh", args: &args, env: &env, removed_env: &["HOME"], stdin, limit }.run()
    }

    #[test]
    fn input_output_and_exit_code_are_passed_on() {
        let script = "cat; echo $ADDED$HOME; echo no >&2; exit 5";
        let output = shell(script, Some(b"in"), Duration::from_secs(20)).unwrap();
        assert_eq!((output.code, output.stdout.as_slice()), (Some(5), &b"in1\n"[..]));
        assert_eq!((output.said.as_str(), output.how.as_str()), ("no", "exit code 5"));
    }

    #[test]
    fn last_lines_are_kept_without_colors() {
        let said = b"a\n\nb\nc\nd\n\x1b[0;31m ** ERROR: e\x1b[0m\n";
        assert_eq!(last_lines(said), "b; c; d; ** ERROR: e");
        assert_eq!(last_lines(b"\n"), "it gave no reason");
    }

    #[test]
    fn large_output_does_not_block_it() {
        let script = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2";
        let output = shell(script, None, Duration::from_secs(20)).unwrap();
        assert_eq!((output.code, output.stdout.len()), (Some(0), 300_000));
    }

    #[test]
    fn time_limit_ends_it() {
        let error = shell("sleep 60", None, Duration::from_millis(200)).unwrap_err();
        assert!(error.message().contains("did not end within"), "{error}");
        assert!(error.retryable());
    }
}
