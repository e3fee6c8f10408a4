//! `quarry osd install`: this binary, with the loader and libraries that it runs with, into a directory.
//!
//! The prepare pod runs it in the container of the Ceph image, whose C library may be older than ours. So it is started by
//! its own loader: `DIR/ld.so --library-path DIR DIR/quarry`. What is mapped into this process is what it needs.

use anyhow::{Context, bail};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

pub fn run(directory: &Path) -> anyhow::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps").context("reading what this process uses")?;
    let own = std::env::current_exe().context("finding this binary")?;
    copy(&own, &directory.join("quarry"))?;
    let libraries = libraries(&maps);
    for library in &libraries {
        let Some(name) = library.file_name() else { continue };
        copy(library, &directory.join(name))?;
    }
    let Some(loader) = libraries.iter().find(|one| is_loader(one)) else {
        bail!(
            "no loader is mapped into this process; install an image with a dynamically linked binary"
        );
    };
    copy(loader, &directory.join("ld.so"))
}

/// Shared objects that are mapped, by path.
fn libraries(maps: &str) -> BTreeSet<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let shared = paths.filter(|path| path.starts_with('/') && path.contains(".so"));
    shared.map(PathBuf::from).collect()
}

fn is_loader(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let what = || format!("copying {} to {}", from.display(), to.display());
    // A container that is started again finds what it copied before, perhaps in part.
    match fs::remove_file(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(what);
        }
        _ => {}
    }
    fs::copy(from, to).with_context(what)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).with_context(what)
}

#[cfg(test)]
#[allow(clippy::disallowed_types, reason = "a test starts what it installed")]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn mapped_libraries_are_found() {
        let maps = "55-56 r-xp 0 08:01 1 /usr/bin/quarry\n7f-80 r--p 0 08:01 2 /lib/libc.so.6\n7f-80 r-xp 0 08:01 2 /lib/libc.so.6\n7f-80 r--p 0 08:01 3 /lib64/ld-linux-x86-64.so.2\n7f-80 rw-p 0 00:00 0\n7f-80 r-xp 0 00:00 0 [vdso]\n";
        let found: Vec<PathBuf> = libraries(maps).into_iter().collect();
        assert_eq!(found, ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from));
    }

    /// The test binary itself, started from the copy alone.
    #[test]
    fn an_installed_binary_runs_with_its_own_libraries() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path()).unwrap();
        run(dir.path()).unwrap();
        let started = Command::new(dir.path().join("ld.so"))
            .arg("--library-path")
            .arg(dir.path())
            .arg(dir.path().join("quarry"))
            .arg("--list")
            .output()
            .unwrap();
        assert!(started.status.success(), "{started:?}");
        let text = String::from_utf8_lossy(&started.stdout);
        assert!(text.contains("an_installed_binary_runs_with_its_own_libraries"), "{text}");
    }
}
