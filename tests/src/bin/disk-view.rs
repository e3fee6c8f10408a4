//! Which block devices each node of the lab lists (`scripts/kube-nodes`): a FUSE file system on
//! standard input, which the script has mounted.
//!
//! `disk-view DIR NODE...`: below each node `class`, `block` and `dev` (directories of links, as
//! /sys/class/block, /sys/block and /sys/dev/block), `partitions` and `diskstats` (as in /proc).
//! The script binds each over its original in the node's mount namespace. Answers are computed when
//! they are asked for: a loop device is listed from the moment at which it is attached.
//!
//! A loop device is a node's if its file is on the node's own file system (DIR/NODE/fs), or if it is
//! DIR/san/NAME.img and DIR/san/NAME.nodes lists the node. Partitions, and loop devices over a
//! device, are where that device is. No other device is listed at all.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a fixture of tests, which reads real files"
)]

use quarry_node::{HostRoot, inspect::loops};
use quarry_tests::fuse::{self, Answer, Errno, FileSystem, Kind};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The directories of links, by their name in the view.
const DIRECTORIES: [(&str, &str); 3] =
    [("class", "/sys/class/block"), ("block", "/sys/block"), ("dev", "/sys/dev/block")];
/// The tables, with the column that names the device.
const TABLES: [(&str, &str, usize); 2] =
    [("partitions", "/proc/partitions", 3), ("diskstats", "/proc/diskstats", 2)];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let lab = PathBuf::from(arguments.next().expect("the lab's directory is the first argument"));
    let nodes: Vec<String> = arguments.collect();
    let file_system = |path: &Path| fs::metadata(path).expect("the lab has made it").dev();
    let own = nodes.iter().map(|node| (file_system(&lab.join(node).join("fs")), node.clone()));
    let own: HashMap<u64, String> = own.collect();
    assert_eq!(own.len(), nodes.len(), "every node has a file system of its own");
    let san = file_system(&lab.join("san"));
    let host = HostRoot::view("/").expect("the root directory can be opened");
    let mut view = View { lab, nodes, own, san, host, backings: HashMap::new() };
    fuse::serve(&mut view);
}

struct View {
    lab: PathBuf,
    nodes: Vec<String>,
    /// The file systems of the nodes, by device number.
    own: HashMap<u64, String>,
    san: u64,
    host: HostRoot,
    /// By name and sequence number of the disk: a loop device is opened once each time it is attached.
    backings: HashMap<(String, String), Backing>,
}

#[derive(Clone, Copy)]
struct Backing {
    /// The file system that contains the file, and the file.
    device: u64,
    inode: u64,
    /// The device that the file itself is.
    itself: Option<(u32, u32)>,
}

impl View {
    /// `None`: the loop device is not attached.
    fn backing(&mut self, name: &str) -> Option<Backing> {
        let sequence = read(&format!("/sys/block/{name}/diskseq"))?;
        // Only an attached one has this file.
        read(&format!("/sys/block/{name}/loop/backing_file"))?;
        let key = (name.to_owned(), sequence);
        if let Some(known) = self.backings.get(&key) {
            return Some(*known);
        }
        let found = loops::read(&self.host, name).ok()??.backing;
        let itself = (found.rdevice.major, found.rdevice.minor);
        let backing = Backing {
            device: rustix::fs::makedev(found.device.major, found.device.minor),
            inode: found.inode,
            itself: (itself != (0, 0)).then_some(itself),
        };
        self.backings.insert(key, backing);
        Some(backing)
    }

    /// The nodes at which a disk of the lab is plugged in: asked every time, because disks move.
    fn plugged_in(&self, inode: u64) -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(self.lab.join("san")) else { return BTreeSet::new() };
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let disk = paths.find(|path| {
            path.extension().is_some_and(|one| one == "img")
                && fs::metadata(path).is_ok_and(|file| file.ino() == inode)
        });
        let list = disk.and_then(|path| fs::read_to_string(path.with_extension("nodes")).ok());
        list.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// `target` is where an entry of sysfs leads: `…/block/loop3/loop3p1`.
    fn nodes_of(&mut self, target: &Path) -> BTreeSet<String> {
        let text = target.to_string_lossy();
        let disk = text.split_once("/block/").map(|(_, rest)| rest.split('/').next());
        let Some(Some(disk)) = disk.filter(|disk| disk.is_some_and(|one| one.starts_with("loop")))
        else {
            return BTreeSet::new();
        };
        match self.backing(disk) {
            None => BTreeSet::new(),
            Some(Backing { itself: Some((major, minor)), .. }) => {
                let below = fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
                below.map(|below| self.nodes_of(&below)).unwrap_or_default()
            }
            Some(Backing { device, inode, .. }) if device == self.san => self.plugged_in(inode),
            Some(Backing { device, .. }) => self.own.get(&device).cloned().into_iter().collect(),
        }
    }

    /// The text of a link, if the node lists the device.
    fn link(&mut self, node: &str, directory: &str, name: &str) -> Option<String> {
        let (_, real) = DIRECTORIES.into_iter().find(|(name, _)| *name == directory)?;
        let target = fs::read_link(Path::new(real).join(name)).ok()?;
        let listed = self.nodes_of(&target).contains(node);
        listed.then(|| target.to_string_lossy().into_owned())
    }

    fn table(&mut self, node: &str, table: &str) -> Option<Vec<u8>> {
        let (_, real, column) = TABLES.into_iter().find(|(name, _, _)| *name == table)?;
        let text = fs::read_to_string(real).ok()?;
        let lines = text.split_inclusive('\n').filter(|line| {
            match line.split_whitespace().nth(column) {
                // The heading of /proc/partitions, and the empty line after it.
                None | Some("name") => true,
                Some(device) => self.link(node, "class", device).is_some(),
            }
        });
        Some(lines.collect::<String>().into_bytes())
    }

    fn names(&mut self, path: &[&str]) -> Vec<String> {
        match path {
            [] => self.nodes.clone(),
            [_] => {
                let directories = DIRECTORIES.iter().map(|(name, _)| *name);
                let tables = TABLES.iter().map(|(name, _, _)| *name);
                directories.chain(tables).map(str::to_owned).collect()
            }
            [node, directory] => {
                let real = DIRECTORIES.iter().find(|(name, _)| name == directory);
                let entries = real.and_then(|(_, real)| fs::read_dir(real).ok());
                let names = entries.into_iter().flatten().filter_map(Result::ok);
                let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
                let mut names: Vec<String> = names.collect();
                names.retain(|name| self.link(node, directory, name).is_some());
                names.sort();
                names
            }
            [..] => Vec::new(),
        }
    }
}

impl FileSystem for View {
    fn kind(&mut self, path: &[&str]) -> Answer<Kind> {
        let known = |node: &str, nodes: &[String]| nodes.iter().any(|one| one == node);
        let found = match path {
            [] => Some(Kind::Directory),
            [node, ..] if !known(node, &self.nodes) => None,
            [_] => Some(Kind::Directory),
            [_, name] if DIRECTORIES.iter().any(|(one, _)| one == name) => Some(Kind::Directory),
            [node, name] => {
                self.table(node, name).map(|text| Kind::File { size: text.len() as u64 })
            }
            [node, directory, name] => self.link(node, directory, name).map(|_| Kind::Link),
            [..] => None,
        };
        found.ok_or(Errno::NOENT)
    }

    fn link(&mut self, path: &[&str]) -> Answer<String> {
        let [node, directory, name] = path else { return Err(Errno::INVAL) };
        View::link(self, node, directory, name).ok_or(Errno::NOENT)
    }

    fn file(&mut self, path: &[&str]) -> Answer<Vec<u8>> {
        let [node, table] = path else { return Err(Errno::INVAL) };
        self.table(node, table).ok_or(Errno::NOENT)
    }

    fn directory(&mut self, path: &[&str]) -> Answer<BTreeMap<String, Kind>> {
        let names = self.names(path);
        let kind_of = |name: &String| match path {
            [] => Kind::Directory,
            [_] if DIRECTORIES.iter().any(|(one, _)| one == name) => Kind::Directory,
            [_] => Kind::File { size: 0 },
            [..] => Kind::Link,
        };
        Ok(names.into_iter().map(|name| (name.clone(), kind_of(&name))).collect())
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
