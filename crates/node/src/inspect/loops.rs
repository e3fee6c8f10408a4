//! Which loop devices are attached, and to what.
//!
//! The backing file is compared by file system and inode, as the kernel reports them: a path would mislead after a
//! rename, through a bind mount, or from another mount namespace. Devices are opened read-only, which causes no event.

use crate::{
    error::NodeError,
    host_root::HostRoot,
    sys::{self, Backing, DevNumber},
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopAttachment {
    /// `loop3`
    pub name: String,
    pub number: DevNumber,
    pub backing: Backing,
    /// The backing file as the kernel spells it.
    pub path: PathBuf,
    /// The backing file has been unlinked.
    pub deleted: bool,
}

impl LoopAttachment {
    /// Whether it is over this very file.
    pub fn is_over(&self, file: &fs::Metadata) -> bool {
        self.backing.inode == file.ino() && self.backing.device == DevNumber::from_stat(file.dev())
    }
}

/// Every attached loop device of the node.
pub fn scan(host: &HostRoot) -> Result<Vec<LoopAttachment>, NodeError> {
    scan_named(host, |_| true)
}

/// Those over a file of such a name (empty where the kernel knows none: a bind mount that is gone); the others are not
/// even opened.
pub fn scan_named(
    host: &HostRoot,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<LoopAttachment>, NodeError> {
    let directory = host.at("sys/block");
    let entries = fs::read_dir(&directory)
        .map_err(NodeError::io(format!("listing {}", directory.display())))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(NodeError::io(format!("listing {}", directory.display())))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with("loop")
            && fs::read(host.at("sys/block").join(&name).join("loop/backing_file")).is_ok_and(
                |text| {
                    wanted(
                        &parse_backing_file(&text)
                            .0
                            .file_name()
                            .unwrap_or_default()
                            .to_string_lossy(),
                    )
                },
            )
            && let Some(attached) = read(host, &name)?
        {
            found.push(attached);
        }
    }
    found.sort_by_key(|attached| attached.number);
    Ok(found)
}

/// `None` when nothing is attached to it, or it went away meanwhile.
pub fn read(host: &HostRoot, name: &str) -> Result<Option<LoopAttachment>, NodeError> {
    let directory = host.at("sys/block").join(name);
    // Only an attached loop has this file: the idle ones are not opened.
    let Ok(text) = fs::read(directory.join("loop/backing_file")) else { return Ok(None) };
    let Some(number) = number(host, name) else { return Ok(None) };
    let device = host.dev(name);
    let opened = match rustix::fs::open(
        &device,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    ) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) => return Ok(None),
        Err(error) => return Err(NodeError::io(format!("opening {}", device.display()))(error)),
    };
    let backing = match sys::loop_backing(&opened) {
        Ok(Some(backing)) => backing,
        Ok(None) => return Ok(None),
        Err(error) => {
            return Err(
                NodeError::io(format!("asking {} for its backing file", device.display()))(error),
            );
        }
    };
    let (path, deleted) = parse_backing_file(&text);
    Ok(Some(LoopAttachment { name: name.to_owned(), number, backing, path, deleted }))
}

/// sysfs appends this to the path of an unlinked file.
pub fn parse_backing_file(bytes: &[u8]) -> (PathBuf, bool) {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let (path, deleted) = match line.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (line, false),
    };
    (PathBuf::from(OsString::from_vec(path.to_vec())), deleted)
}

/// Major and minor number of a block device or partition, by kernel name.
pub fn number(host: &HostRoot, name: &str) -> Option<DevNumber> {
    let text = fs::read_to_string(host.sys_block(name).join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(DevNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// The kernel names of a device's partitions.
pub fn partitions(host: &HostRoot, name: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(host.sys_block(name)) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|child| {
            child.starts_with(name) && host.sys_block(name).join(child).join("partition").exists()
        })
        .collect();
    found.sort();
    found
}

/// The partition's number in its table.
pub fn partition_number(host: &HostRoot, name: &str) -> Option<i32> {
    fs::read_to_string(host.sys_block(name).join("partition")).ok()?.trim().parse().ok()
}

/// Whether the loop was attached with the flag that makes the kernel read its partition table.
pub fn scans_partitions(host: &HostRoot, name: &str) -> bool {
    fs::read_to_string(host.sys_block(name).join("loop/partscan"))
        .is_ok_and(|text| text.trim() == "1")
}

/// In bytes. sysfs counts in 512 whatever the device's block size is.
pub fn size(host: &HostRoot, name: &str) -> Option<u64> {
    let sectors: u64 =
        fs::read_to_string(host.sys_block(name).join("size")).ok()?.trim().parse().ok()?;
    Some(sectors * 512)
}

/// Where a partition begins, in bytes.
pub fn start(host: &HostRoot, name: &str) -> Option<u64> {
    let sectors: u64 =
        fs::read_to_string(host.sys_block(name).join("start")).ok()?.trim().parse().ok()?;
    Some(sectors * 512)
}

/// Whether a loop's path ends like `wanted`: the file is gone, so its inode says nothing any more.
pub fn names_the_same(attached: &Path, wanted: &Path) -> bool {
    let mut parts = wanted.components().rev().take(2);
    let mut found = attached.components().rev();
    parts.all(|part| {
        found
            .next()
            .is_some_and(|other| other.as_os_str().as_bytes() == part.as_os_str().as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_backing_file_is_recognised() {
        assert_eq!(
            parse_backing_file(b"/d/volumes/u (deleted)\n"),
            (PathBuf::from("/d/volumes/u"), true)
        );
        assert_eq!(parse_backing_file(b"/d/volumes/u\n"), (PathBuf::from("/d/volumes/u"), false));
        assert!(names_the_same(Path::new("/host/d/volumes/u"), Path::new("/d/volumes/u")));
        assert!(!names_the_same(Path::new("/d/other/u"), Path::new("/d/volumes/u")));
    }
}
