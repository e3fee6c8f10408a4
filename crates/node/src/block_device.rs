//! One block device by its path, for a process that is not the agent: a pod with a PVC of volume mode Block.
//!
//! Reads only, and needs no privilege beyond read access to the device node: no sysfs, no other device. Content is
//! decided as in a scan that proves it (`inspect/probe.rs`). The descriptor is opened exclusively where that is
//! possible, so that no other process mounts or formats the device while it is judged.

use crate::{
    error::NodeError,
    inspect::probe,
    sys::{self, DevNumber},
};
use quarry_core::device::Content;
use rustix::{
    fd::OwnedFd,
    fs::{Access, FileType, Mode, OFlags},
    io::Errno,
};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct BlockDevice {
    path: PathBuf,
    device: OwnedFd,
    number: DevNumber,
    size: u64,
    exclusive: bool,
}

impl BlockDevice {
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let attempt = || format!("opening {}", path.display());
        let open =
            |more| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | more, Mode::empty());
        let (device, exclusive) = match open(OFlags::EXCL) {
            Ok(device) => (device, true),
            Err(Errno::BUSY) => (open(OFlags::empty()).map_err(NodeError::io(attempt()))?, false),
            Err(error) => return Err(NodeError::io(attempt())(error)),
        };
        let stat = rustix::fs::fstat(&device).map_err(NodeError::io(attempt()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Err(NodeError::Refused(format!("{} is not a block device", path.display())));
        }
        let size = sys::block_size(&device).map_err(NodeError::device(attempt()))?;
        let number = DevNumber::from_stat(stat.st_rdev);
        Ok(Self { path: path.to_owned(), device, number, size, exclusive })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// `false`: another process has it open exclusively.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    pub fn is_same_as(&self, other: &BlockDevice) -> bool {
        self.number == other.number
    }

    /// Whether the kernel refuses writes to it.
    pub fn is_read_only(&self) -> Result<bool, NodeError> {
        sys::is_read_only(&self.device).map_err(NodeError::device(format!(
            "reading whether {} is read-only",
            self.path.display()
        )))
    }

    /// Whether this process may open it for writing, by owner and mode of the device node.
    pub fn may_write(&self) -> bool {
        rustix::fs::access(&self.path, Access::WRITE_OK).is_ok()
    }

    pub fn content(&self) -> Result<Content, NodeError> {
        probe::prove_content(&self.device, self.size)
            .map_err(NodeError::device(format!("reading {}", self.path.display())))
    }

    /// Whether these bytes are at this place; `false` behind the end of the device.
    pub fn has_at(&self, offset: u64, expected: &[u8]) -> Result<bool, NodeError> {
        if offset.saturating_add(expected.len() as u64) > self.size {
            return Ok(false);
        }
        let mut found = vec![0; expected.len()];
        let attempt = format!("reading {} at {offset}", self.path.display());
        let read = rustix::io::pread(&self.device, &mut found, offset)
            .map_err(NodeError::device(attempt.clone()))?;
        if read < expected.len() {
            return Err(NodeError::device(attempt)(Errno::IO));
        }
        Ok(found == expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_block_devices_are_opened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = BlockDevice::open(file.path()).unwrap_err().message();
        assert!(error.ends_with("is not a block device"), "{error}");
        let error = BlockDevice::open(&file.path().join("x")).unwrap_err().message();
        assert!(error.starts_with("opening "), "{error}");
    }
}
