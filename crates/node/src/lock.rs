//! One agent per data directory, and one per machine that uses real disks: an flock on a file, held for as long as the
//! value lives.
//!
//! The kernel drops it with the process, so a crash leaves nothing to clean up. What the file says is for people only.

use crate::{error::NodeError, host_root::HostRoot};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Of the data directory.
    pub fn take(host: &HostRoot) -> Result<Self, NodeError> {
        let locked = |holder, lock| NodeError::Locked { holder, lock };
        Self::take_at(&host.lock(), &holder(host), locked)
    }

    /// Of the disks of this machine, whatever the data directories are: an agent of a cluster and a standalone Quarry
    /// with another directory know nothing of each other's device claims.
    pub fn take_real_disks(host: &HostRoot) -> Result<Self, NodeError> {
        let path = host.real_disks_lock();
        let directory = path.parent().unwrap_or(&path);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(NodeError::io(format!("making the directory {}", directory.display())))?;
        let locked = |holder, lock| NodeError::RealDisksLocked { holder, lock };
        Self::take_at(&path, &holder(host), locked)
    }

    fn take_at(
        path: &Path,
        who: &str,
        locked: impl Fn(String, PathBuf) -> NodeError,
    ) -> Result<Self, NodeError> {
        let attempt = || format!("taking the lock {}", path.display());
        let mut file = open_own(path).map_err(NodeError::io(attempt()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // Its writer may be about to write it: the lock is what counts.
                let _ = file.read_to_string(&mut holder);
                let holder = Some(holder.trim().to_owned())
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(|| "PID unknown".into());
                return Err(locked(holder, path.to_owned()));
            }
            Err(error) => return Err(NodeError::io(attempt())(error)),
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{who}"));
        if let Err(error) = written {
            tracing::warn!(lock = %path.display(), %error, "failed to write the holder of the lock");
        }
        Ok(Lock { _file: file })
    }
}

/// In a pod the PID is that of its own namespace; the host name is then that of the pod.
fn holder(host: &HostRoot) -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let data = host.data_on_node().display();
    format!("PID {} on {name}, data directory {data}", std::process::id())
}

/// A file of ours in a directory of ours: never through a planted link, never a device or a pipe.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        let found = fs::metadata(directory)?;
        let me = rustix::process::geteuid().as_raw();
        if found.uid() != me || found.mode() & 0o022 != 0 {
            let shown = directory.display();
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "the directory {shown} can be written by others than this user: chown {me} {shown} && chmod go-w {shown}, after checking what is in it"
                ),
            ));
        }
    }
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a plain file: move it away",
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with its own root, and its data directory there.
    fn node(root: &Path, data: &str) -> HostRoot {
        HostRoot::open(root, data).unwrap()
    }

    #[test]
    fn a_planted_link_or_writable_directory_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().unwrap();
        let host = node(root.path(), "/data");
        let precious = root.path().join("precious");
        fs::write(&precious, "data").unwrap();
        symlink(&precious, host.lock()).unwrap();
        Lock::take(&host).unwrap_err();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
        fs::remove_file(host.lock()).unwrap();
        fs::set_permissions(host.data(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = Lock::take(&host).unwrap_err();
        assert!(error.message().contains("chmod go-w"), "{}", error.message());
        assert!(!host.lock().exists());
    }

    // invariant: 10
    #[test]
    fn a_second_agent_is_refused_with_the_pid_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        let host = node(root.path(), "/data");
        let first = Lock::take(&host).unwrap();
        let error = Lock::take(&host).unwrap_err().to_string();
        assert!(error.contains(&format!("PID {}", std::process::id())), "{error}");
        drop(first);
        Lock::take(&host).unwrap();
    }

    /// Different data directories, and so different locks of these, on one machine.
    // invariant: 10
    #[test]
    fn real_disks_have_one_user_per_machine() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (node(root.path(), "/var/lib/quarry"), node(root.path(), "/other"));
        let _both = (Lock::take(&first).unwrap(), Lock::take(&second).unwrap());
        let disks = Lock::take_real_disks(&first).unwrap();
        let refused = Lock::take_real_disks(&second).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, NodeError::RealDisksLocked { .. }), "{text}");
        assert!(text.contains(&format!("PID {}", std::process::id())), "{text}");
        assert!(text.contains("data directory /var/lib/quarry"), "{text}");
        assert!(text.contains("run/quarry/real-disks"), "{text}");
        assert!(!text.contains("--data-dir"), "another directory would share the disks: {text}");
        drop(disks);
        Lock::take_real_disks(&second).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        Lock::take_real_disks(&node(elsewhere.path(), "/other")).unwrap();
    }
}
