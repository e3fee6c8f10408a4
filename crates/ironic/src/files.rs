//! The files that settings name: read whole, and compared without reading them.
//!
//! The only place of this crate that opens files to read. Never interprets or prints their content.
//! Next to read: `config.rs`, `reload.rs`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Larger than any certificate bundle: something else was mounted by mistake.
const MAX_FILE: u64 = 4 << 20;

/// What changes when a file is replaced, rewritten, or reached through another link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[expect(clippy::disallowed_methods, reason = "settings of the operator, not of a node")]
pub(crate) fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok(Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

#[expect(clippy::disallowed_methods, reason = "settings of the operator, not of a node")]
pub(crate) fn is_directory(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.is_dir())
}

#[expect(clippy::disallowed_methods, reason = "settings of the operator, not of a node")]
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > MAX_FILE {
        return Err(io::Error::other(format!("larger than {} MiB", MAX_FILE >> 20)));
    }
    fs::read(path)
}
