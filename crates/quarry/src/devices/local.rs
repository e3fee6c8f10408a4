//! The devices of this machine, read by the same inspector as the agent's. Never writes, needs no rights.

use super::view::{Local, Shown};
use anyhow::anyhow;
use quarry_api::NodeInventorySpec;
use quarry_core::device::{Facts, group, inventory};
use quarry_node::{
    HostRoot, NodeError,
    host_root::is_uid,
    inspect::{Limits, Scan, Scanner},
};
use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

pub struct Machine {
    host: HostRoot,
    scanner: Scanner,
}

/// What one look saw.
#[derive(Debug, Default)]
pub struct Look {
    pub devices: Vec<Shown>,
    /// What kept us from seeing everything.
    pub problems: Vec<String>,
}

impl Machine {
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let host = HostRoot::view(root).map_err(|error| explained(root, &error))?;
        let scanner = Scanner::new(host.clone(), Limits::default());
        Ok(Machine { host, scanner })
    }

    /// Blocks until every device has answered or its time is over.
    pub fn look(&mut self, scan: Scan<'_>) -> anyhow::Result<Look> {
        let seen = self.scanner.scan(scan).map_err(|error| explained(self.host.root(), &error))?;
        let mut devices = seen.devices.to_vec();
        mark_volumes(&mut devices);
        let node = crate::host_name();
        let known = group(&devices, None, seen.boot_id.as_deref(), &[]);
        let devices = known.iter().map(|known| {
            // One look cannot tell how long a device has been there: that is no reason against it, nor is it claimed.
            let mut device = inventory::row(known, true, &NodeInventorySpec::default());
            device.settled = false;
            Shown { node: node.clone(), device, local: Some(Local::new(known)) }
        });
        Ok(Look { devices: devices.collect(), problems: seen.problems })
    }

    /// Which device a path leads to, as `MAJ:MIN`; `None` for a path that does not exist.
    pub fn number_at(&self, path: &Path) -> anyhow::Result<Option<String>> {
        let real = self.host.find(path).map_err(|error| explained(self.host.root(), &error))?;
        match std::fs::metadata(&real) {
            Ok(found) if found.file_type().is_block_device() => {
                let number = found.rdev();
                Ok(Some(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))))
            }
            Ok(found) => Err(anyhow!(
                "{} is {}, not a block device; `quarry devices` lists those of this machine",
                path.display(),
                kind(found.file_type())
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(anyhow::Error::new(error).context(format!("looking at {}", path.display())))
            }
        }
    }
}

fn kind(found: std::fs::FileType) -> &'static str {
    match () {
        () if found.is_dir() => "a folder",
        () if found.is_char_device() => "a character device",
        () if found.is_file() => "a plain file",
        () if found.is_socket() => "a socket",
        () if found.is_fifo() => "a pipe",
        () => "something else",
    }
}

/// The file of a volume has the volume's UID for a name, in a folder `volumes`.
fn mark_volumes(devices: &mut [Facts]) {
    for facts in devices {
        let Some(file) = facts.backing.as_ref().map(|file| PathBuf::from(&file.path)) else {
            continue;
        };
        let folder = file.parent().and_then(Path::file_name);
        let uid = file.file_name().and_then(|name| name.to_str()).filter(|name| is_uid(name));
        if let (Some(uid), true) = (uid, folder.is_some_and(|folder| folder == "volumes")) {
            facts.volume_uid = Some(uid.to_owned());
        }
    }
}

/// What kept us from looking, and what to do.
fn explained(root: &Path, error: &NodeError) -> anyhow::Error {
    let said = error.message();
    let remedy = match error {
        // It names its own.
        NodeError::Io { .. } if said.contains("check that") => String::new(),
        NodeError::Io { source, .. } => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if root == Path::new("/") => {
                "; check that /sys and /proc are mounted here".to_owned()
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                format!(
                    "; --host-root {} must be the root folder of a running machine, with its /sys, /proc and /dev (usually just /)",
                    root.display()
                )
            }
            io::ErrorKind::PermissionDenied => "; run it as root (sudo)".to_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    anyhow!("{said}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_core::device::BackingFile;

    #[test]
    fn a_bogus_root_is_told_with_what_is_wanted() {
        let error = Machine::open(Path::new("/nowhere")).err().unwrap().to_string();
        assert!(error.contains("/nowhere") && error.contains("usually just /"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let error =
            Machine::open(empty.path()).unwrap().look(Scan::Everything).unwrap_err().to_string();
        assert!(error.contains("sys/class/block") && error.contains("check that"), "{error}");
    }

    #[test]
    fn the_file_of_a_volume_is_known_by_its_name() {
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
