//! The devices of this machine, scanned by the agent's own inspector. Never writes; without root it shows less.

use anyhow::anyhow;
use quarry_core::device::Facts;
use quarry_node::{
    HostRoot, NodeError,
    host_root::is_uid,
    inspect::{Limits, Scan, Scanner},
};
use quarry_view::devices::{DeviceView, of_facts};
use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

pub struct Machine {
    host: HostRoot,
    scanner: Scanner,
}

/// The result of one scan.
#[derive(Debug, Default)]
pub struct LocalScan {
    pub devices: Vec<DeviceView>,
    /// What could not be read.
    pub problems: Vec<String>,
}

impl Machine {
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let host = HostRoot::view(root).map_err(|error| with_remedy(root, &error))?;
        let scanner = Scanner::new(host.clone(), Limits::default());
        Ok(Machine { host, scanner })
    }

    /// Blocks until every device has answered or timed out.
    pub fn scan(&mut self, scan: Scan<'_>) -> anyhow::Result<LocalScan> {
        let found =
            self.scanner.scan(scan).map_err(|error| with_remedy(self.host.root(), &error))?;
        let mut facts = found.devices.to_vec();
        mark_volumes(&mut facts);
        let devices = of_facts(&crate::host_name(), &facts, found.boot_id.as_deref());
        Ok(LocalScan { devices, problems: found.problems })
    }

    /// The device at a path, as `MAJ:MIN`; `None` for a path that does not exist.
    pub fn number_at(&self, path: &Path) -> anyhow::Result<Option<String>> {
        let real = self.host.find(path).map_err(|error| with_remedy(self.host.root(), &error))?;
        match std::fs::metadata(&real) {
            Ok(found) if found.file_type().is_block_device() => {
                let number = found.rdev();
                Ok(Some(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))))
            }
            Ok(found) => Err(anyhow!(
                "{} is {}, not a block device; run `quarry devices --local` to list the devices of this machine",
                path.display(),
                kind(found.file_type())
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(anyhow::Error::new(error).context(format!("reading {}", path.display())))
            }
        }
    }
}

fn kind(found: std::fs::FileType) -> &'static str {
    match () {
        () if found.is_dir() => "a directory",
        () if found.is_char_device() => "a character device",
        () if found.is_file() => "a plain file",
        () if found.is_socket() => "a socket",
        () if found.is_fifo() => "a pipe",
        () => "something else",
    }
}

/// The file of a Volume has its UID for a name, in a directory `volumes`.
fn mark_volumes(devices: &mut [Facts]) {
    for facts in devices {
        let Some(file) = facts.backing.as_ref().map(|file| PathBuf::from(&file.path)) else {
            continue;
        };
        let directory = file.parent().and_then(Path::file_name);
        let uid = file.file_name().and_then(|name| name.to_str()).filter(|name| is_uid(name));
        if let (Some(uid), true) = (uid, directory.is_some_and(|directory| directory == "volumes"))
        {
            facts.volume_uid = Some(uid.to_owned());
        }
    }
}

/// Why this machine could not be scanned, and what to do.
fn with_remedy(root: &Path, error: &NodeError) -> anyhow::Error {
    let message = error.message();
    let remedy = match error {
        // It has a remedy already.
        NodeError::Io { .. } if message.contains("check that") => String::new(),
        NodeError::Io { source, .. } => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if root == Path::new("/") => {
                "; check that /sys and /proc are mounted here".to_owned()
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                format!(
                    "; set --host-root (now {}) to the root directory of a running machine, with its /sys, /proc and /dev (usually /)",
                    root.display()
                )
            }
            io::ErrorKind::PermissionDenied => "; run the command as root (sudo)".to_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    anyhow!("{message}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_core::device::BackingFile;

    #[test]
    fn an_invalid_host_root_is_an_error_with_a_remedy() {
        let error = Machine::open(Path::new("/nowhere")).err().unwrap().to_string();
        assert!(error.contains("/nowhere") && error.contains("usually /"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let error =
            Machine::open(empty.path()).unwrap().scan(Scan::Everything).unwrap_err().to_string();
        assert!(error.contains("sys/class/block") && error.contains("check that"), "{error}");
    }

    #[test]
    fn the_file_of_a_volume_is_recognized_by_its_name() {
        let over = |path: &str| Facts {
            backing: Some(BackingFile { path: path.into(), deleted: false, file: None }),
            ..Facts::default()
        };
        let uid = "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab";
        let mut devices = [
            over(&format!("/data/volumes/{uid}")),
            over(&format!("/data/{uid}")),
            over("/data/volumes/x"),
            Facts::default(),
        ];
        mark_volumes(&mut devices);
        assert_eq!(devices.map(|facts| facts.volume_uid), [Some(uid.to_owned()), None, None, None]);
    }
}
