//! The file of a volume, from nothing to finished: made as a draft, formatted, synced, renamed.
//!
//! The rename is the proof: mkfs has ended and everything is on disk. A step that fails takes its draft away, so
//! that a full disk is not fuller for it.

use super::proof;
use crate::{
    command::Command,
    error::NodeError,
    host_root::HostRoot,
    inspect::{gpt, mounts::parse_mountinfo},
    ledger::sync_directory,
    sys::DevNumber,
};
use quarry_api::quantity::Bytes;
use quarry_core::job::Format;
use quarry_failpoint::failpoint;
use rustix::fs::RenameFlags;
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// An existing draft in our volume directory. What writes a format takes this, never a path.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn open(host: &HostRoot, uid: &str) -> Result<Self, NodeError> {
        let path = host.draft_file(uid);
        // No link is followed: a draft is a plain file of ours, or it is nothing.
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(no_follow)
            .open(&path)
            .map_err(NodeError::io(format!("opening {}", path.display())))?;
        Ok(Draft { path, file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

pub fn discard(host: &HostRoot, uid: &str) -> Result<(), NodeError> {
    failpoint!("discard-draft.before");
    remove(&host.draft_file(uid))?;
    failpoint!("discard-draft.after");
    Ok(())
}

/// Sparse, and exact to the byte.
pub fn make(host: &HostRoot, uid: &str, size: Bytes) -> Result<(), NodeError> {
    let path = host.draft_file(uid);
    failpoint!("make-draft.before");
    let attempt = || format!("making {}", path.display());
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(NodeError::io(attempt()));
    let file = file.map_err(|error| explain_full(host, error))?;
    failpoint!("make-draft.created");
    let sized = file.set_len(size.0).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => too_large(host, size),
        _ => NodeError::io(attempt())(error),
    });
    undo_on_error(host, &path, sized)?;
    failpoint!("make-draft.after");
    Ok(())
}

/// A file system or a partition table, synced when this returns.
pub fn format(host: &HostRoot, uid: &str, id: Uuid, format: &Format) -> Result<(), NodeError> {
    failpoint!("format-draft.before");
    let mut draft = Draft::open(host, uid)?;
    let formatted = write_format(&mut draft, uid, id, format);
    failpoint!("format-draft.written");
    let synced = formatted.and_then(|()| {
        draft.file.sync_all().map_err(NodeError::io(format!("syncing {}", draft.path.display())))
    });
    undo_on_error(host, &draft.path, synced)?;
    failpoint!("format-draft.after");
    Ok(())
}

fn write_format(draft: &mut Draft, uid: &str, id: Uuid, format: &Format) -> Result<(), NodeError> {
    match format {
        Format::Filesystem { fs, options } => {
            Command::mkfs(*fs, uid, options, draft).run()?;
            proof::check(&draft.file, *fs, id)
        }
        Format::Partition => {
            let attempt = || format!("writing the partition table into {}", draft.path.display());
            let size = draft.file.metadata().map_err(NodeError::io(attempt()))?.len();
            if size < gpt::MINIMUM.0 {
                return Err(NodeError::TooSmall { size: Bytes(size), minimum: gpt::MINIMUM });
            }
            gpt::write(&mut draft.file, id).map_err(|error| match error {
                gptman::Error::Io(error) => NodeError::io(attempt())(error),
                other => NodeError::Malformed(format!("{}: {other}", attempt())),
            })
        }
    }
}

/// From here on the file counts as finished.
pub fn publish(host: &HostRoot, uid: &str) -> Result<(), NodeError> {
    let (draft, finished) = (host.draft_file(uid), host.volume_file(uid));
    failpoint!("publish-draft.before");
    // Never over an existing file: that may be data.
    let renamed = rustix::fs::renameat_with(
        rustix::fs::CWD,
        &draft,
        rustix::fs::CWD,
        &finished,
        RenameFlags::NOREPLACE,
    );
    renamed.map_err(NodeError::io(format!(
        "renaming {} to {}",
        draft.display(),
        finished.display()
    )))?;
    failpoint!("publish-draft.renamed");
    sync_directory(&host.volumes())?;
    failpoint!("publish-draft.after");
    Ok(())
}

/// What is free is reported without the draft: with it there would be nothing.
fn undo_on_error(
    host: &HostRoot,
    draft: &Path,
    result: Result<(), NodeError>,
) -> Result<(), NodeError> {
    let Err(error) = result else { return Ok(()) };
    tracing::warn!(draft = %draft.display(), error = error.message(), "failed to write the draft; it is removed");
    if let Err(error) = remove(draft) {
        tracing::error!(draft = %draft.display(), error = error.message(), "failed to remove the draft; it stays until the next try or the cleanup");
    }
    Err(explain_full(host, error))
}

/// Gone and durably so when this returns, whether or not it was there.
pub fn remove(path: &Path) -> Result<(), NodeError> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory(path.parent().unwrap_or(Path::new("/"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(NodeError::io(format!("removing {}", path.display()))(error)),
    }
}

/// "No space left" with the place and what is left of it.
fn explain_full(host: &HostRoot, error: NodeError) -> NodeError {
    if !error.is_no_space() {
        return error;
    }
    let free = rustix::fs::statvfs(host.volumes()).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    let attempt = match &error {
        NodeError::Io { attempt, .. } => attempt.clone(),
        other => other.to_string(),
    };
    NodeError::Full { attempt, directory: host.volumes(), free: Bytes(free) }
}

fn too_large(host: &HostRoot, size: Bytes) -> NodeError {
    let directory = host.volumes();
    let fs = file_system(host, &directory).unwrap_or_else(|| "of unknown type".into());
    let block = rustix::fs::statvfs(&directory).map_or(0, |stat| stat.f_frsize);
    // ext4 numbers a file's blocks with 32 bits; the others' limits are beyond what a size can say.
    let limit = match fs.as_str() {
        "ext4" | "ext3" | "ext2" if block > 0 => {
            format!(", whose files end at {}", Bytes(block.saturating_mul(1 << 32) - block))
        }
        _ => String::new(),
    };
    NodeError::TooLarge { size, directory, fs, limit }
}

fn file_system(host: &HostRoot, directory: &Path) -> Option<String> {
    let device = DevNumber::from_stat(fs::metadata(directory).ok()?.dev());
    let mounts = parse_mountinfo(&host.mountinfo().ok()?);
    mounts.into_iter().find(|mount| mount.device == device).map(|mount| mount.fs)
}
