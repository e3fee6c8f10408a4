//! The data directory of a standalone Quarry: its default, and whether it can be used.

use anyhow::{Context, bail};
use std::{
    fs::Metadata,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
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
    // Resolved once: what is checked is what is used, even if a link on the way to it changes afterwards.
    let real = std::fs::canonicalize(&dir).map_err(|error| unusable(&dir, &error))?;
    // Before anything in it is read or written.
    check_own(&real, rustix::process::geteuid().as_raw())?;
    probe(&real).map_err(|error| unusable(&real, &error))?;
    Ok(real)
}

/// Files that give access to the API.
const SECRETS: [&str; 3] = ["token", "ca.key", KUBECONFIG];

/// Refuses a directory in which another user may have placed, or may replace, what Quarry trusts: its token, its keys, its
/// store, its ledger. `real` has no symbolic link in it; `me` is the user of this process.
fn check_own(real: &Path, me: u32) -> anyhow::Result<()> {
    let choose = "choose another directory with --data-dir";
    let read = |path: &Path| {
        let found = std::fs::symlink_metadata(path);
        found.with_context(|| format!("reading {}; {choose}", path.display()))
    };
    let shown = real.display();
    for above in real.ancestors().skip(1) {
        let (found, path) = (read(above)?, above.display());
        if ![0, me].contains(&found.uid()) {
            bail!(
                "the data directory {shown} is below {path}, which belongs to user {}, who can replace it; {choose}",
                found.uid()
            );
        }
        let sticky = found.mode() & 0o1000 != 0;
        if is_writable_by_others(&found) && !sticky {
            bail!(
                "the data directory {shown} is below {path}, to which other users can write; {choose}, or run: chmod go-w {path}"
            );
        }
    }
    let found = read(real)?;
    if !found.is_dir() {
        return Err(unusable(real, &io::ErrorKind::NotADirectory.into()));
    }
    if found.uid() != me {
        bail!(
            "the data directory {shown} belongs to user {}, and Quarry runs as user {me}: it would trust tokens, keys and links that user {0} placed there; {choose}, or run Quarry as that user",
            found.uid()
        );
    }
    if found.mode() & 0o022 != 0 {
        bail!(
            "other users can write to the data directory {shown}; check what is in it, then run: chmod go-w {shown}"
        );
    }
    let entries = std::fs::read_dir(real).map_err(|error| unusable(real, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| unusable(real, &error))?.path();
        check_entry(&path, &read(&path)?, me)?;
    }
    Ok(())
}

/// A group counts as other users, except that of root and the one that has the number of its user: many systems give each
/// user a group of their own, and write access to it.
fn is_writable_by_others(found: &Metadata) -> bool {
    let own_group = found.gid() == 0 || found.gid() == found.uid();
    found.mode() & if own_group { 0o002 } else { 0o022 } != 0
}

fn check_entry(path: &Path, found: &Metadata, me: u32) -> anyhow::Result<()> {
    let shown = path.display();
    let kind = found.file_type();
    if !kind.is_file() && !kind.is_dir() {
        let what = if kind.is_symlink() { "a symbolic link" } else { "not a plain file" };
        bail!("{shown} is {what}, and Quarry did not create it; check it, then move it away");
    }
    if found.uid() != me {
        bail!(
            "{shown} belongs to user {}, and Quarry runs as user {me}; check it, then move it away",
            found.uid()
        );
    }
    if kind.is_file() && found.nlink() > 1 {
        bail!("{shown} has another name elsewhere (a hard link); check it, then move it away");
    }
    if found.mode() & 0o022 != 0 {
        bail!("other users can write to {shown}; check it, then run: chmod go-w {shown}");
    }
    let secret = path.file_name().is_some_and(|name| SECRETS.iter().any(|one| name == *one));
    if secret && found.mode() & 0o077 != 0 {
        bail!(
            "other users can read {shown}, which gives access to Quarry; remove it: a new one is created at the next start"
        );
    }
    Ok(())
}

/// Only a write proves that the directory is writable: modes do not show read-only mounts, quotas or a full disk.
fn probe(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".probe-{}", std::process::id()));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file: nothing that is there already is followed or truncated.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
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

    /// As user 0 sees a directory that another user has prepared, and the other way around.
    #[test]
    fn a_directory_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let me = std::fs::metadata(dir.path()).unwrap().uid();
        check_own(dir.path(), me).unwrap();
        let error = check_own(dir.path(), me + 1).unwrap_err().to_string();
        assert!(error.contains(&format!("belongs to user {me}")), "{error}");
        assert!(error.contains(dir.path().to_str().unwrap()), "{error}");
        assert!(error.contains("--data-dir"), "{error}");
    }

    #[test]
    fn what_others_may_have_placed_is_refused() {
        use std::os::unix::fs::symlink;
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let refused = |words: &str| {
            let error = prepare(Some(&data)).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        };
        prepare(Some(&data)).unwrap();
        mode(&data, 0o770);
        refused("other users can write to the data directory");
        mode(&data, 0o755);
        prepare(Some(&data)).unwrap();

        let (precious, token) = (dir.path().join("precious"), data.join("token"));
        std::fs::write(&precious, "precious").unwrap();
        symlink(&precious, &token).unwrap();
        refused("token is a symbolic link");
        std::fs::remove_file(&token).unwrap();
        std::fs::hard_link(&precious, &token).unwrap();
        refused("token has another name elsewhere");
        std::fs::remove_file(&token).unwrap();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
        std::fs::write(&token, "planted").unwrap();
        mode(&token, 0o644);
        refused("a new one is created");
        mode(&token, 0o600);
        prepare(Some(&data)).unwrap();
        mode(&token, 0o620);
        refused("chmod go-w");
        mode(&token, 0o600);

        mode(dir.path(), 0o777);
        refused("to which other users can write");
        mode(dir.path(), 0o1777);
        prepare(Some(&data)).unwrap();
        mode(dir.path(), 0o700);
        // The name of the file that proves that the directory can be written.
        let probe = data.join(format!(".probe-{}", std::process::id()));
        symlink(&precious, &probe).unwrap();
        refused("is a symbolic link");
        super::probe(&data).unwrap();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    }

    #[test]
    fn the_directory_that_was_checked_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let (data, link) = (dir.path().join("data"), dir.path().join("link"));
        std::fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        // The link may lead elsewhere by the time the directory is used.
        assert_eq!(prepare(Some(&link)).unwrap(), std::fs::canonicalize(&data).unwrap());
    }

    #[test]
    fn the_group_of_one_user_is_not_others() {
        let dir = tempfile::tempdir().unwrap();
        let owned = |mode: u32, group: u32| {
            let made = dir.path().join(format!("{mode}-{group}"));
            std::fs::create_dir(&made).unwrap();
            std::fs::set_permissions(&made, std::fs::Permissions::from_mode(mode)).unwrap();
            // Only root may choose any group.
            std::os::unix::fs::chown(&made, None, Some(group)).ok()?;
            Some(is_writable_by_others(&std::fs::symlink_metadata(&made).unwrap()))
        };
        let me = std::fs::metadata(dir.path()).unwrap().uid();
        assert_ne!(owned(0o775, 50), Some(false), "a group of several users");
        assert_ne!(owned(0o775, me), Some(true));
        assert_ne!(owned(0o757, me), Some(false));
        assert_ne!(owned(0o755, 50), Some(true));
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
