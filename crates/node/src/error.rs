//! What can go wrong on a node, with the remedy.
//!
//! The text names the attempt, the cause is the source; `message()` joins them for a job's message.

use quarry_api::quantity::Bytes;
use std::{error::Error, io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("{attempt}")]
    Io { attempt: String, source: io::Error },
    #[error(
        "{attempt}: the file system of {directory} is full, {free} would be free without this volume; free space, then retry the volume"
    )]
    Full { attempt: String, directory: PathBuf, free: Bytes },
    #[error(
        "a file of {size} is larger than the file system of {directory} ({fs}) can hold even sparsely{limit}; choose a smaller size"
    )]
    TooLarge { size: Bytes, directory: PathBuf, fs: String, limit: String },
    #[error("{size} is too small for a partitioned volume: at least {minimum} are needed")]
    TooSmall { size: Bytes, minimum: Bytes },
    #[error(
        "{tool} is not installed: install the package {package} where the agent runs (looked in {looked})"
    )]
    MissingTool { tool: &'static str, package: &'static str, looked: String },
    #[error("{tool} failed ({how}): {said}")]
    Tool { tool: &'static str, how: String, said: String },
    #[error("{tool} did not end within {seconds} s and was stopped")]
    ToolTimeout { tool: &'static str, seconds: u64 },
    #[error("{device} is {users}: end that use; it is retried")]
    InUse { device: String, users: String },
    #[error("{attempt}: nothing happened within {seconds} s; {check}")]
    Overdue { attempt: String, seconds: u64, check: String },
    #[error(
        "{link} {found} after {seconds} s; check that systemd-udevd runs on the node and what `udevadm info /dev/{device}` shows"
    )]
    LinkMissing { link: String, found: String, device: String, seconds: u64 },
    /// The device is not what was claimed, or not free.
    #[error("{0}")]
    Refused(String),
    #[error("{attempt}: the device may be broken or unplugged; check the node's kernel log")]
    Device { attempt: String, source: io::Error },
    #[error("{0:?} is not a volume's UID")]
    NotAUid(String),
    #[error("{0}")]
    Malformed(String),
    #[error("another agent runs on this node ({holder}): it holds {lock}")]
    Locked { holder: String, lock: PathBuf },
    #[error(
        "another Quarry uses the disks of this machine ({holder}): it holds {lock}; stop it first, because two of them must not share disks"
    )]
    RealDisksLocked { holder: String, lock: PathBuf },
    #[error("the agent's worker ended while {0}")]
    WorkerLost(String),
    /// For operations other than those of `LinuxNode`.
    #[error("{attempt}")]
    Other { attempt: String, retryable: bool, source: Option<Box<dyn Error + Send + Sync>> },
}

impl NodeError {
    /// `map_err(NodeError::io("opening x"))`
    pub fn io<E: Into<io::Error>>(attempt: impl Into<String>) -> impl FnOnce(E) -> NodeError {
        move |source| NodeError::Io { attempt: attempt.into(), source: source.into() }
    }

    /// While reading or writing a device: its trouble is not the software's.
    pub fn device<E: Into<io::Error>>(attempt: impl Into<String>) -> impl FnOnce(E) -> NodeError {
        move |source| NodeError::Device { attempt: attempt.into(), source: source.into() }
    }

    /// Whether the same step may succeed a moment later without help.
    pub fn retryable(&self) -> bool {
        match self {
            NodeError::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::ResourceBusy
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                )
            }
            NodeError::Other { retryable, .. } => *retryable,
            // A user of the device who is just looking (udev, blkid) is gone in a moment.
            NodeError::InUse { .. } => true,
            NodeError::WorkerLost(_) => true,
            NodeError::Full { .. }
            | NodeError::TooLarge { .. }
            | NodeError::TooSmall { .. }
            | NodeError::MissingTool { .. }
            | NodeError::Tool { .. }
            | NodeError::ToolTimeout { .. }
            | NodeError::Overdue { .. }
            | NodeError::LinkMissing { .. }
            | NodeError::Refused(_)
            | NodeError::Device { .. }
            | NodeError::NotAUid(_)
            | NodeError::Malformed(_)
            | NodeError::Locked { .. }
            | NodeError::RealDisksLocked { .. } => false,
        }
    }

    /// The error and every cause, in one line for people.
    pub fn message(&self) -> String {
        chain(self)
    }

    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            NodeError::Full { .. } => true,
            NodeError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            NodeError::Tool { said, .. } => {
                said.contains("No space left on device") || said.contains("Disk quota exceeded")
            }
            _ => false,
        }
    }
}

/// An error and its causes, joined; a cause whose text its parent repeats is left out.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_attempt_and_the_cause() {
        let error = NodeError::io("opening /dev/loop3")(io::Error::from_raw_os_error(16));
        assert!(error.retryable());
        assert_eq!(error.message(), "opening /dev/loop3: Device or resource busy (os error 16)");
    }
}
