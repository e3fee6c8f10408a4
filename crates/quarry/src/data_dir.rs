//! The data directory of a standalone Quarry: where it is by default, and that it can be used.

use anyhow::{Context, bail};
use std::{
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The file in it that kubectl and the command line use.
pub const KUBECONFIG: &str = "kubeconfig";

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Root: /var/lib/quarry. Anybody else: the XDG data folder.
pub fn default() -> anyhow::Result<PathBuf> {
    if is_root() {
        return Ok("/var/lib/quarry".into());
    }
    // A relative XDG_DATA_HOME is invalid by its specification and ignored.
    let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    match xdg.or_else(|| {
        std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".local/share"))
    }) {
        Some(dir) => Ok(dir.join("quarry")),
        None => bail!("this user has no home directory; choose a folder with --data-dir"),
    }
}

/// The folder as an absolute path, made if it is missing; readable by its owner only.
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

/// Writing is the only proof that one may write: modes say nothing about read-only mounts, quotas or a full disk.
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
                "the data directory {dir} may not be written by this user; run as root, or choose another with --data-dir"
            )
        }
        io::ErrorKind::ReadOnlyFilesystem => anyhow::anyhow!(
            "the data directory {dir} is on a read-only file system; choose another with --data-dir"
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            anyhow::anyhow!(
                "no space is left for the data directory {dir} ({error}); free some, or choose another with --data-dir. Nothing was overwritten"
            )
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!(
                "the data directory {dir} cannot be a folder: a file is in its place; choose another with --data-dir"
            )
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
    fn a_file_in_the_place_of_the_folder_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, "").unwrap();
        let error = prepare(Some(&path)).unwrap_err().to_string();
        assert!(
            error.contains("a file is in its place") && error.contains("--data-dir"),
            "{error}"
        );
    }

    #[test]
    fn a_full_disk_is_told_without_blame() {
        let error =
            unusable(Path::new("/d"), &io::Error::from(io::ErrorKind::StorageFull)).to_string();
        assert!(
            error.contains("no space is left") && error.contains("Nothing was overwritten"),
            "{error}"
        );
    }

    #[test]
    fn a_new_folder_is_made_and_left_clean() {
        let dir = tempfile::tempdir().unwrap();
        let made = prepare(Some(&dir.path().join("a/b"))).unwrap();
        assert_eq!(std::fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&made).unwrap().count(), 0);
    }
}
