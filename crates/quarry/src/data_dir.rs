//! The data directory of a standalone Quarry: its default, and whether it can be used.

use anyhow::{Context, bail};
use std::{
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The kubeconfig in it, for kubectl and the command line.
pub const KUBECONFIG: &str = "kubeconfig";

/// The data directory of agents, and of a standalone Quarry that runs as root.
pub const SYSTEM: &str = "/var/lib/quarry";

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// For root `SYSTEM`, for other users the XDG data directory.
pub fn default() -> anyhow::Result<PathBuf> {
    if is_root() {
        return Ok(SYSTEM.into());
    }
    // A relative XDG_DATA_HOME is invalid by its specification and ignored.
    let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    match xdg.or_else(|| {
        std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".local/share"))
    }) {
        Some(dir) => Ok(dir.join("quarry")),
        None => bail!("this user has no home directory; choose a directory with --data-dir"),
    }
}

/// The directory as an absolute path, created if missing; readable by its owner only.
pub fn prepare(chosen: Option<&Path>) -> anyhow::Result<PathBuf> {
    let dir = match chosen {
        Some(dir) => std::path::absolute(dir)
            .with_context(|| format!("resolving --data-dir {}", dir.display()))?,
        None => default()?,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(|error| unusable(&dir, &error))?;
    probe(&dir).map_err(|error| unusable(&dir, &error))?;
    Ok(dir)
}

/// Only a write proves that the directory is writable: modes do not show read-only mounts, quotas or a full disk.
fn probe(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".probe-{}", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(&[0; 4096]).and_then(|()| file.sync_all()));
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

fn unusable(dir: &Path, error: &io::Error) -> anyhow::Error {
    let dir = dir.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow::anyhow!(
                "the data directory {dir} is not writable by this user; run as root, or choose another with --data-dir"
            )
        }
        io::ErrorKind::ReadOnlyFilesystem => anyhow::anyhow!(
            "the data directory {dir} is on a read-only file system; choose another with --data-dir"
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            anyhow::anyhow!(
                "no space left for the data directory {dir} ({error}), nothing was overwritten; free some, or choose another with --data-dir"
            )
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("the data directory {dir} is a file; choose another with --data-dir")
        }
        _ => anyhow::anyhow!(
            "the data directory {dir} cannot be used: {error}; choose another with --data-dir"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_instead_of_the_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, "").unwrap();
        let error = prepare(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("is a file") && error.contains("--data-dir"), "{error}");
    }

    #[test]
    fn a_full_disk_is_an_error_with_a_remedy() {
        let error =
            unusable(Path::new("/d"), &io::Error::from(io::ErrorKind::StorageFull)).to_string();
        assert!(
            error.contains("no space left") && error.contains("nothing was overwritten"),
            "{error}"
        );
    }

    #[test]
    fn a_new_directory_is_created_and_left_empty() {
        let dir = tempfile::tempdir().unwrap();
        let made = prepare(Some(&dir.path().join("a/b"))).unwrap();
        assert_eq!(std::fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&made).unwrap().count(), 0);
    }
}
