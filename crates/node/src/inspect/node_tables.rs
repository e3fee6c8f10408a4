//! What is read once for all devices: mounts, swaps, links.
//!
//! Cheap, and read on every scan: none of it opens a device, and a mount changes without any event of the device.

use super::mounts::{
    answered_by_others, is_network, parse_mount_lines, parse_swaps, path, unparsed_mounts,
};
use crate::{error::NodeError, host_root::HostRoot, sys::DevNumber};
use quarry_core::device::sanitize::{is_hostile, printable};
use rustix::fs::{Dir, Mode, OFlags};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct NodeTables {
    mounts: HashMap<DevNumber, Vec<String>>,
    /// Bind mounts of device nodes whose node is not in /dev any more, by name.
    mounts_by_name: BTreeMap<String, Vec<String>>,
    swaps: Vec<DevNumber>,
    /// Where file systems of other machines are mounted.
    network: Vec<(PathBuf, String)>,
    by_id: HashMap<String, Vec<String>>,
}

impl NodeTables {
    /// Mounts or swaps that cannot be read are an error: every device would look unused.
    pub fn read(host: &HostRoot) -> Result<Self, NodeError> {
        let mut tables = NodeTables::default();
        let mountinfo = host.mountinfo()?;
        if let Some(line) = unparsed_mounts(&mountinfo) {
            return Err(NodeError::Malformed(format!(
                "the mounts of this node cannot be understood, so no device is known to be free: {}",
                shown_text(line)
            )));
        }
        tables.take_mounts(host, &mountinfo);
        tables.swaps = parse_swaps(&host.swaps()?)
            .iter()
            .filter_map(|swap| device_at(&host.at(swap)))
            .collect();
        tables.take_links(host);
        Ok(tables)
    }

    pub fn mounts(&self, number: DevNumber, name: &str) -> Vec<String> {
        let mut found = self.mounts.get(&number).cloned().unwrap_or_default();
        found.extend(self.mounts_by_name.get(name).into_iter().flatten().cloned());
        found
    }

    pub fn is_used(&self, number: DevNumber, name: &str) -> bool {
        self.is_swap(number)
            || self.mounts.contains_key(&number)
            || self.mounts_by_name.contains_key(name)
    }

    pub fn is_swap(&self, number: DevNumber) -> bool {
        self.swaps.contains(&number)
    }

    /// The file system of another machine that holds this file.
    pub fn network_of(&self, file: &Path) -> Option<&str> {
        let holds = self.network.iter().filter(|(at, _)| file.starts_with(at));
        holds.max_by_key(|(at, _)| at.components().count()).map(|(_, fs)| fs.as_str())
    }

    /// Sorted.
    pub fn by_id(&self, name: &str) -> &[String] {
        self.by_id.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    fn take_mounts(&mut self, host: &HostRoot, bytes: &[u8]) {
        let others = answered_by_others(bytes);
        for line in parse_mount_lines(bytes) {
            let at = || Some(shown(&path(line.at)));
            // A file system without a number of its own (btrfs) says by which device it was mounted.
            let number = match line.device.major {
                0 if line.source.starts_with(b"/dev/") => device_at(&host.at(path(line.source))),
                0 => None,
                _ => Some(line.device),
            };
            if let Some(number) = number {
                self.mounts.entry(number).or_default().extend(at());
            }
            if is_network(line.fs) {
                self.network.push((path(line.at), String::from_utf8_lossy(line.fs).into_owned()));
                continue;
            }
            // The bind mount of a device node, as kubelet makes it for a Block volume: of devtmpfs, or of any directory
            // with nodes in it. Only where this machine itself answers for the whole way: a dead server must not
            // be asked.
            if line.root != b"/"
                && !others.iter().any(|other| path(line.at).starts_with(other))
                && let Some(number) = device_at(&host.at(path(line.at)))
            {
                self.mounts.entry(number).or_default().extend(at());
            } else if line.root != b"/" && line.fs == b"devtmpfs" {
                let root = path(line.root);
                match device_at(&host.at("dev").join(root.strip_prefix("/").unwrap_or(&root))) {
                    Some(number) => self.mounts.entry(number).or_default().extend(at()),
                    None => {
                        let name = root.to_string_lossy();
                        let name = name.trim_start_matches('/').trim_end_matches("//deleted");
                        self.mounts_by_name.entry(name.to_owned()).or_default().extend(at());
                    }
                }
            }
        }
    }

    fn take_links(&mut self, host: &HostRoot) {
        let Ok(directory) = rustix::fs::open(
            host.by_id(),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return;
        };
        let Ok(entries) = Dir::read_from(&directory) else { return };
        let mut buffer = Vec::new();
        for entry in entries.flatten() {
            let Ok(target) = rustix::fs::readlinkat(&directory, entry.file_name(), buffer) else {
                buffer = Vec::new();
                continue;
            };
            // udev's links lead to ../../NAME.
            let name = target.to_string_lossy().trim_start_matches("../").to_owned();
            self.by_id.entry(name).or_default().extend(printable(entry.file_name().to_bytes()));
            buffer = target.into_bytes();
        }
        self.by_id.values_mut().for_each(|links| links.sort());
    }
}

fn shown_text(line: &[u8]) -> String {
    printable(line).unwrap_or_default()
}

/// A path whole, however long, with what could not be shown spelt out.
pub fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_hostile(c) { text.extend(c.escape_default()) } else { text.push(c) }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// The number of the device node at this path, if it is one.
fn device_at(path: &Path) -> Option<DevNumber> {
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_block_device().then(|| DevNumber::from_stat(meta.rdev()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn bind_mounts_of_nodes_and_links_are_found_by_name() {
        let root = tempfile::tempdir().unwrap();
        let by_id = root.path().join("dev/disk/by-id");
        fs::create_dir_all(&by_id).unwrap();
        for (link, target) in [
            ("wwn-b", "../../sda"),
            ("wwn-a", "../../sda"),
            ("x-part1", "../../sda1"),
            ("bad\x1b", "../../sdb"),
        ] {
            symlink(target, by_id.join(link)).unwrap();
        }
        fs::create_dir_all(root.path().join("proc/1")).unwrap();
        let lines = "30 1 8:1 / /boot rw,relatime - ext4 /dev/sda1 rw\n31 1 0:5 /sdb /var/lib/kubelet/plugins/x\\040y rw - devtmpfs udev rw\n\
                     32 1 0:5 / /dev rw - devtmpfs udev rw\n33 1 0:5 /gone//deleted /c rw - devtmpfs udev rw\n34 1 8:1 /sub /bind rw - ext4 /dev/sda1 rw\n";
        fs::write(root.path().join("proc/1/mountinfo"), lines).unwrap();
        let tables = NodeTables::read(&HostRoot::view(root.path()).unwrap()).unwrap();
        assert_eq!(tables.by_id("sda"), ["wwn-a", "wwn-b"]);
        assert_eq!(tables.by_id("sdb"), ["bad\\u{1b}"]);
        assert!(tables.by_id("sdc").is_empty());
        assert_eq!(tables.mounts(DevNumber { major: 8, minor: 1 }, "sda1"), ["/boot", "/bind"]);
        assert_eq!(
            tables.mounts(DevNumber { major: 8, minor: 16 }, "sdb"),
            ["/var/lib/kubelet/plugins/x y"]
        );
        assert_eq!(tables.mounts(DevNumber::NONE, "gone"), ["/c"]);
    }

    // invariant: 4
    #[test]
    fn mounts_that_cannot_be_read_are_an_error() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/1/mountinfo")).unwrap();
        let error = NodeTables::read(&HostRoot::view(root.path()).unwrap()).unwrap_err();
        assert!(error.message().contains("proc/1/mountinfo"), "{}", error.message());
    }

    #[test]
    fn a_path_is_shown_whole() {
        let long = format!("/{}", "a".repeat(1000));
        assert_eq!(shown(Path::new(&long)), long);
        assert_eq!(
            shown(Path::new(std::ffi::OsStr::from_bytes(b"/a\x1b\xff "))),
            "/a\\u{1b}\\xff "
        );
    }
}
