//! Owns every file operation of this crate: the data directory, private files in it and atomic
//! replacement. Everything it creates is readable by its owner only.
#![expect(
    clippy::disallowed_methods,
    reason = "the embedded API keeps its own data directory; no host device or host root is touched here"
)]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[error("{action} {path}")]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

impl FileError {
    fn of(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    pub fn retryable(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::StorageFull | ErrorKind::Interrupted)
    }
}

/// Whether there is a file. Anything else under its name, such as a symbolic link, is an error.
pub fn is_file(path: &Path) -> Result<bool, FileError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => Ok(true),
        Ok(_) => {
            let why = std::io::Error::new(ErrorKind::InvalidInput, "it is not a plain file");
            Err(FileError::of("opening", path)(why))
        }
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(false),
        Err(why) => Err(FileError::of("opening", path)(why)),
    }
}

pub fn create_private_dir(path: &Path) -> Result<(), FileError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(FileError::of("creating directory", path))
}

pub fn create_private_file(path: &Path) -> Result<(), FileError> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map(drop).map_err(FileError::of("creating", path))
}

pub fn remove_if_there(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(FileError::of("removing", path)(why)),
        _ => Ok(()),
    }
}

/// Renames a file so that the new name survives a power failure.
pub fn rename_durably(from: &Path, to: &Path) -> Result<(), FileError> {
    std::fs::rename(from, to).map_err(FileError::of("renaming to", to))?;
    let parent =
        to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = std::fs::OpenOptions::new()
        .read(true)
        .open(parent)
        .map_err(FileError::of("opening", parent))?;
    directory.sync_all().map_err(FileError::of("flushing", parent))
}

/// Replaces a whole file; it has mode 0600 before its first byte is written.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    remove_if_there(&new)?;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(FileError::of("creating", &new))?;
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(FileError::of("writing", &new))?;
    drop(file);
    rename_durably(&new, path)
}

/// The text of a file, never through a symbolic link; `None` when it does not exist.
pub fn read_text(path: &Path) -> Result<Option<String>, FileError> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let read = opened.and_then(|mut file| {
        let mut text = String::new();
        file.read_to_string(&mut text).map(|_| text)
    });
    match read {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
        Err(why) => Err(FileError::of("reading", path)(why)),
    }
}

/// A copy that is removed on drop.
pub struct TemporaryCopy(PathBuf);

impl TemporaryCopy {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryCopy {
    fn drop(&mut self) {
        // Only a copy: a leftover in the temporary directory is harmless.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn private_copy(path: &Path) -> Result<TemporaryCopy, FileError> {
    let target = std::env::temp_dir().join(format!("quarry-store-{}.redb", uuid::Uuid::new_v4()));
    create_private_file(&target)?;
    let copy = TemporaryCopy(target);
    std::fs::copy(path, copy.path()).map_err(FileError::of("copying", path))?;
    Ok(copy)
}
