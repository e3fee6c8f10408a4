//! One agent a node: an flock on a file in the data folder, held for as long as the value lives.
//!
//! The kernel drops it with the process, so a crash leaves nothing to clean up. What the file says is for people only.

use crate::error::NodeError;
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(path: &Path) -> Result<Self, NodeError> {
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
                return Err(NodeError::Locked { holder, lock: path.to_owned() });
            }
            Err(error) => return Err(NodeError::io(attempt())(error)),
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "PID {}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(lock = %path.display(), %error, "could not write who holds it");
        }
        Ok(Lock { _file: file })
    }
}

/// A file of ours in a directory of ours: never through a planted link, never a device or a pipe.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        let found = fs::metadata(folder)?;
        let me = rustix::process::geteuid().as_raw();
        if found.uid() != me || found.mode() & 0o022 != 0 {
            let shown = folder.display();
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "the folder {shown} can be written by others than this user: chown {me} {shown} && chmod go-w {shown}, after checking what is in it"
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

    #[test]
    fn a_planted_link_or_writable_directory_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "data").unwrap();
        let path = folder.path().join("lock");
        symlink(&precious, &path).unwrap();
        Lock::take(&path).unwrap_err();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
        fs::remove_file(&path).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = Lock::take(&path).unwrap_err();
        assert!(error.message().contains("chmod go-w"), "{}", error.message());
        assert!(!path.exists());
    }

    // invariant: 10
    #[test]
    fn a_second_agent_is_refused_with_the_pid_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take(&path).unwrap();
        let error = Lock::take(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("PID {}", std::process::id())), "{error}");
        drop(first);
        Lock::take(&path).unwrap();
    }
}
