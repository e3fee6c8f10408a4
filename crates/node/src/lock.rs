//! One agent a node: an flock on a file in the data folder, held for as long as the value lives.
//!
//! The kernel drops it with the process, so a crash leaves nothing to clean up. What the file says is for people only.

use crate::error::HandsError;
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(path: &Path) -> Result<Self, HandsError> {
        let attempt = || format!("taking the lock {}", path.display());
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(HandsError::io(attempt()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // Its writer may be about to write it: the lock is what counts.
                let _ = file.read_to_string(&mut holder);
                let holder = Some(holder.trim().to_owned()).filter(|text| !text.is_empty()).unwrap_or_else(|| "PID unknown".into());
                return Err(HandsError::Locked { holder, lock: path.to_owned() });
            }
            Err(error) => return Err(HandsError::io(attempt())(error)),
        }
        let told = file.set_len(0).and_then(|()| writeln!(file, "PID {}", std::process::id()));
        if let Err(error) = told {
            tracing::warn!(lock = %path.display(), %error, "could not write who holds it");
        }
        Ok(Lock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_told_who_runs_already() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take(&path).unwrap();
        let error = Lock::take(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("PID {}", std::process::id())), "{error}");
        drop(first);
        Lock::take(&path).unwrap();
    }
}
