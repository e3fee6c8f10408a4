//! The system's own tools, run with arguments and never through a shell.
//!
//! A command is a value before it runs: it renders to an argv for tests and logs. It has a time limit, a fixed
//! search path and an empty environment, and dies with the agent. Only `act/` runs one; nothing does at rest.

use crate::{act::draft::Draft, error::NodeError, sys};
use quarry_api::node_job::FsType;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    ffi::OsString,
    io::{self, Read},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    time::{Duration, Instant},
};

const SEARCH: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// A healthy mkfs of a sparse file takes well below a second; one on a dying disk may take forever.
const LIMIT: Duration = Duration::from_secs(300);
/// Of a tool's complaints only the beginning is kept.
const KEPT: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    MkfsExt4,
    MkfsXfs,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::MkfsExt4 => "mkfs.ext4",
            Tool::MkfsXfs => "mkfs.xfs",
        }
    }

    /// The Debian package that brings it.
    fn package(self) -> &'static str {
        match self {
            Tool::MkfsExt4 => "e2fsprogs",
            Tool::MkfsXfs => "xfsprogs",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    tool: Tool,
    arguments: Vec<OsString>,
    limit: Duration,
}

impl Command {
    /// A file system with this UUID in the draft. Options were checked against the allow-list before the job was made.
    pub fn mkfs(fs: FsType, uid: &str, options: &[String], draft: &Draft) -> Self {
        Self::mkfs_at(fs, uid, options, draft.path())
    }

    fn mkfs_at(fs: FsType, uid: &str, options: &[String], path: &Path) -> Self {
        // Quiet, and forced: the file is new, and there is no one to ask. No discard: it has no blocks yet.
        let (tool, fixed) = match fs {
            FsType::Ext4 => (
                Tool::MkfsExt4,
                vec![
                    "-q".into(),
                    "-F".into(),
                    "-U".into(),
                    uid.into(),
                    "-E".into(),
                    "nodiscard".into(),
                ],
            ),
            FsType::Xfs => (
                Tool::MkfsXfs,
                vec!["-q".into(), "-f".into(), "-K".into(), "-m".into(), format!("uuid={uid}")],
            ),
        };
        let mut arguments: Vec<OsString> =
            fixed.into_iter().map(|text: String| text.into()).collect();
        arguments.extend(options.iter().map(OsString::from));
        arguments.push(path.into());
        Command { tool, arguments, limit: LIMIT }
    }

    pub fn argv(&self) -> Vec<String> {
        let arguments =
            self.arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
        std::iter::once(self.tool.name().to_owned()).chain(arguments).collect()
    }

    /// To the end. Must be called on a thread that lives as long as the agent: see `sys::die_with_parent`.
    pub fn run(&self) -> Result<(), NodeError> {
        let tool = self.tool.name();
        let attempt = || format!("running {tool}");
        let mut command = std::process::Command::new(self.find()?);
        command
            .args(&self.arguments)
            .env_clear()
            .env("PATH", SEARCH.join(":"))
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        sys::die_with_parent(&mut command);
        let mut child = command.spawn().map_err(NodeError::io(attempt()))?;
        let ended = self.wait(&mut child);
        if !matches!(ended, Ok(Some(_))) {
            // It may have ended just now without help; either way it is reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
        match ended.map_err(NodeError::io(attempt()))? {
            None => Err(NodeError::ToolTimeout { tool, seconds: self.limit.as_secs() }),
            Some((status, _)) if status.success() => Ok(()),
            Some((status, said)) => {
                Err(NodeError::Tool { tool, how: how(status), said: useful(&said) })
            }
        }
    }

    fn find(&self) -> Result<PathBuf, NodeError> {
        let found = SEARCH
            .iter()
            .map(|directory| Path::new(directory).join(self.tool.name()))
            .find(|path| path.is_file());
        found.ok_or_else(|| NodeError::MissingTool {
            tool: self.tool.name(),
            package: self.tool.package(),
            looked: SEARCH.join(", "),
        })
    }

    /// Reads its complaints until it ends; `None` when its time is up.
    fn wait(&self, child: &mut Child) -> io::Result<Option<(ExitStatus, Vec<u8>)>> {
        let end = Instant::now() + self.limit;
        let pid = Pid::from_child(child);
        let exit = pidfd_open(pid, PidfdFlags::empty())?;
        let Some(mut errors) = child.stderr.take() else {
            return Err(io::Error::other("its stderr is not a pipe"));
        };
        rustix::io::ioctl_fionbio(&errors, true)?;
        let (mut said, mut open) = (Vec::new(), true);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let ended = {
                let mut fds = vec![PollFd::new(&exit, PollFlags::IN)];
                if open {
                    fds.push(PollFd::new(&errors, PollFlags::IN));
                }
                match poll(&mut fds, Some(&timeout)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                !fds[0].revents().is_empty()
            };
            if open {
                open = drain(&mut errors, &mut said, KEPT)?;
            }
            if ended {
                return Ok(Some((child.wait()?, said)));
            }
        }
    }
}

/// Takes what is there and keeps the first `limit` bytes; `false` at its end. A tool must never block on a full pipe.
pub(crate) fn drain(from: &mut impl Read, into: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(read) => {
                let room = limit.saturating_sub(into.len()).min(read);
                into.extend_from_slice(&buffer[..room]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The lines that say what is wrong: no version banner, no usage text, at most four.
fn useful(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.to_ascii_lowercase().starts_with("usage:"));
    let kept: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with("mke2fs 1.")).take(4).collect();
    if kept.is_empty() {
        "it gave no reason".to_owned()
    } else {
        kept.join("; ").chars().take(500).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab";

    #[test]
    fn the_arguments_of_mkfs() {
        let argv = |fs, options: &[&str]| {
            let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
            Command::mkfs_at(fs, UID, &options, Path::new("/d/volumes/u.draft")).argv().join(" ")
        };
        insta::assert_snapshot!(argv(FsType::Ext4, &["-m", "0"]), @"mkfs.ext4 -q -F -U 0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab -E nodiscard -m 0 /d/volumes/u.draft");
        insta::assert_snapshot!(argv(FsType::Xfs, &[]), @"mkfs.xfs -q -f -K -m uuid=0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab /d/volumes/u.draft");
    }

    #[test]
    fn of_what_a_tool_says_the_useful_lines_are_kept() {
        assert_eq!(useful(b"Filesystem must be larger than 300MB.\nUsage: mkfs.xfs\n/* blocksize */ [-b size=num]\n"), "Filesystem must be larger than 300MB.");
        assert_eq!(
            useful(b"mke2fs 1.47.0 (5-Feb-2023)\nmkfs.ext4: Device size reported to be zero.\n\n"),
            "mkfs.ext4: Device size reported to be zero."
        );
        assert_eq!(useful(b""), "it gave no reason");
    }
}
