//! The node's files, as seen from where the agent runs: relative to a host root.
//!
//! Standalone the root is `/`; in the pod it is where the node's own root is mounted. Owns every path that the
//! agent uses. Nothing else in this crate spells `/dev`, `/sys` or `/proc`.

use crate::{error::NodeError, sys::DevNumber};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};
use std::{
    fs,
    io::{self, Read},
    os::{fd::AsRawFd, unix::fs::DirBuilderExt},
    path::{Component, Path, PathBuf},
};

/// Where volumes and the ledger live on the node by default.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/quarry";

#[derive(Clone, Debug)]
pub struct HostRoot {
    root: PathBuf,
    /// The data directory, as a path on the node.
    data_on_node: PathBuf,
    /// The same directory, as this process reaches it.
    data: PathBuf,
}

impl HostRoot {
    /// Makes the data directory where it is missing.
    ///
    /// Symbolic links on the way are followed inside the host root: an absolute link of the node must not lead
    /// into the agent's own container.
    pub fn open(
        root: impl Into<PathBuf>,
        data_on_node: impl Into<PathBuf>,
    ) -> Result<Self, NodeError> {
        let (root, data_on_node) = (root.into(), data_on_node.into());
        if !data_on_node.is_absolute() {
            return Err(NodeError::Malformed(format!(
                "the data directory {} is not an absolute path",
                data_on_node.display()
            )));
        }
        let root = fs::canonicalize(&root)
            .map_err(NodeError::io(format!("finding the host root {}", root.display())))?;
        let data = resolve(&root, &data_on_node)?;
        let host = HostRoot { root, data_on_node, data };
        // Other people's data is in there: only root reads it.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(host.volumes())
            .map_err(NodeError::io(format!("making the directory {}", host.volumes().display())))?;
        Ok(host)
    }

    /// To look only: makes no directory, and needs no rights.
    pub fn view(root: impl Into<PathBuf>) -> Result<Self, NodeError> {
        let root = root.into();
        let root = fs::canonicalize(&root)
            .map_err(NodeError::io(format!("finding the host root {}", root.display())))?;
        let data = root.join(relative(Path::new(DEFAULT_DATA_DIR)));
        Ok(HostRoot { root, data_on_node: DEFAULT_DATA_DIR.into(), data })
    }

    /// A path of the node, as this process reaches it.
    pub fn at(&self, on_node: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative(on_node.as_ref()))
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn volumes(&self) -> PathBuf {
        self.data.join("volumes")
    }

    pub fn ledger(&self) -> PathBuf {
        self.data.join("ledger")
    }

    pub fn lock(&self) -> PathBuf {
        self.data.join("lock")
    }

    /// Held by the one agent of the machine that may use real disks. On tmpfs: a boot leaves nothing of it.
    pub fn real_disks_lock(&self) -> PathBuf {
        self.at("run/quarry/real-disks")
    }

    /// The data directory, as the node's administrator would spell it.
    pub fn data_on_node(&self) -> &Path {
        &self.data_on_node
    }

    /// The finished file of a volume.
    pub fn volume_file(&self, uid: &str) -> PathBuf {
        self.volumes().join(uid)
    }

    /// The file under construction.
    pub fn draft_file(&self, uid: &str) -> PathBuf {
        self.volumes().join(format!("{uid}.draft"))
    }

    /// The finished file, as the node's administrator would spell it.
    pub fn volume_on_node(&self, uid: &str) -> PathBuf {
        self.data_on_node.join("volumes").join(uid)
    }

    pub fn dev(&self, name: &str) -> PathBuf {
        self.at("dev").join(name)
    }

    /// The sysfs directory of a block device or partition, by kernel name.
    pub fn sys_block(&self, name: &str) -> PathBuf {
        self.at("sys/class/block").join(name)
    }

    /// Every block device and partition, by kernel name.
    pub fn sys_class_block(&self) -> PathBuf {
        self.at("sys/class/block")
    }

    /// Counters of all block devices in one file.
    pub fn partitions(&self) -> PathBuf {
        self.at("proc/partitions")
    }

    pub fn diskstats(&self) -> PathBuf {
        self.at("proc/diskstats")
    }

    /// Where udev keeps what it found out.
    pub fn udev_data(&self) -> PathBuf {
        self.at("run/udev/data")
    }

    pub fn by_id(&self) -> PathBuf {
        self.at("dev/disk/by-id")
    }

    /// A path that the kernel spelt, as the node's administrator would: without the host root in front of it.
    pub fn on_node(&self, spelt: &Path) -> PathBuf {
        match spelt.strip_prefix(&self.root) {
            Ok(rest) => Path::new("/").join(rest),
            Err(_) => spelt.to_owned(),
        }
    }

    /// Changes with every boot of the node.
    pub fn boot_id(&self) -> Option<String> {
        let text = fs::read_to_string(self.at("proc/sys/kernel/random/boot_id")).ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    }

    /// A daemon that keeps `/dev/disk` true listens on this node.
    pub fn has_udev(&self) -> bool {
        self.at("run/udev/control").exists()
    }

    pub fn swaps(&self) -> Result<Vec<u8>, NodeError> {
        let path = self.at("proc/swaps");
        match fs::read(&path) {
            // A kernel without swap has no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(NodeError::io(format!("reading {}", path.display()))),
        }
    }

    /// To wait for changes.
    pub fn open_swaps(&self) -> io::Result<OwnedFd> {
        fs::File::open(self.at("proc/swaps")).map(OwnedFd::from)
    }

    /// The mounts of the node's first process: those of the agent's own pod say nothing about the node.
    pub fn mountinfo(&self) -> Result<Vec<u8>, NodeError> {
        let mut bytes = Vec::new();
        let read =
            self.open_mountinfo().and_then(|file| fs::File::from(file).read_to_end(&mut bytes));
        read.map(|_| bytes)
            .map_err(NodeError::io(format!("reading {}", self.at("proc/1/mountinfo").display())))
    }

    pub fn open_mountinfo(&self) -> io::Result<OwnedFd> {
        let error = match fs::File::open(self.at("proc/1/mountinfo")) {
            Ok(file) => return Ok(file.into()),
            Err(error) => error,
        };
        let fallback = if self.root == Path::new("/") {
            // Without root rights there is no better view than one's own.
            (error.kind() == io::ErrorKind::PermissionDenied).then_some("/proc/self/mountinfo")
        } else {
            // The pod shares the node's processes when their first one has other mounts than we have.
            let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
            (namespace("1").is_some() && namespace("1") != namespace("self"))
                .then_some("/proc/1/mountinfo")
        };
        match fallback {
            Some(path) => fs::File::open(path).map(OwnedFd::from),
            None => Err(error),
        }
    }

    /// Where a path of the node really is, links followed inside the host root.
    pub fn find(&self, on_node: &Path) -> Result<PathBuf, NodeError> {
        resolve(&self.root, on_node)
    }

    /// What is at the end of a path of the node; links, absolute ones too, are followed inside the host root alone.
    pub fn stat(&self, on_node: &Path) -> Result<Stat, Errno> {
        let root = self.open_root()?;
        let found = open_inside(&root, on_node, OFlags::PATH)?;
        rustix::fs::fstat(&found)
    }

    /// A directory of the node, reached as `stat` does.
    pub fn open_directory(&self, on_node: &Path) -> Result<OwnedFd, Errno> {
        let root = self.open_root()?;
        open_inside(&root, on_node, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn open_root(&self) -> Result<OwnedFd, Errno> {
        rustix::fs::open(
            &self.root,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    /// The kernel's name of a block device.
    pub fn block_name(&self, number: DevNumber) -> Option<String> {
        let entry = self.at("sys/dev/block").join(format!("{}:{}", number.major, number.minor));
        let target = fs::read_link(entry).ok()?;
        target.file_name().map(|name| name.to_string_lossy().replace('!', "/"))
    }

    pub fn machine_id(&self) -> Result<Option<String>, NodeError> {
        let path = resolve(&self.root, Path::new("/etc/machine-id"))?;
        match fs::read_to_string(&path) {
            Ok(text) => {
                Ok(Some(text.trim().to_owned())
                    .filter(|id| !id.is_empty() && id != "uninitialized"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(NodeError::Io { attempt: format!("reading {}", path.display()), source: error })
            }
        }
    }
}

fn relative(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// Follows links inside the root alone. When anything on the machine is renamed or mounted just then the kernel cannot be sure
/// that `..` stays inside, and asks to be asked again.
fn open_inside(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    const TRIES: usize = 1000;
    let open = || {
        rustix::fs::openat2(
            root,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )
    };
    (1..TRIES)
        .map(|_| open())
        .find(|opened| !matches!(opened, Err(Errno::AGAIN)))
        .unwrap_or_else(open)
}

/// Where `on_node` really is, below `root`: its longest existing part is resolved inside the root, the rest appended.
fn resolve(root: &Path, on_node: &Path) -> Result<PathBuf, NodeError> {
    let wanted = relative(on_node);
    let attempt = || format!("finding {} below {}", on_node.display(), root.display());
    let dir =
        rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(NodeError::io(attempt()))?;
    let mut existing = wanted.as_path();
    loop {
        let probe = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
        match open_inside(&dir, probe, OFlags::PATH) {
            Ok(found) => {
                let real = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
                    .map_err(NodeError::io(attempt()))?;
                let rest = wanted.strip_prefix(existing).unwrap_or(Path::new(""));
                return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
            }
            Err(rustix::io::Errno::NOENT) => existing = existing.parent().unwrap_or(Path::new("")),
            Err(error) => return Err(NodeError::io(attempt())(error)),
        }
    }
}

/// Whether `text` has the form of a Kubernetes UID: only such names are ever joined to the volume directory.
pub fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_absolute_link_on_the_node_stays_below_the_host_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("var")).unwrap();
        fs::create_dir_all(root.path().join("big/lib")).unwrap();
        symlink("/big/lib", root.path().join("var/lib")).unwrap();
        let host = HostRoot::open(root.path(), "/var/lib/quarry").unwrap();
        assert_eq!(host.volume_on_node("u"), Path::new("/var/lib/quarry/volumes/u"));
        assert!(root.path().join("big/lib/quarry/volumes").is_dir(), "{}", host.data().display());
        assert_eq!(host.at("/dev/x"), root.path().canonicalize().unwrap().join("dev/x"));
    }

    #[test]
    fn only_a_uid_names_a_file() {
        assert!(is_uid("0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab"));
        for bad in [
            "",
            "../../etc/passwd",
            "0b0f1f9e-3c1c-4a5e-8e0e-0123456789aB",
            "0b0f1f9e-3c1c-4a5e-8e0e-0123456789a/",
            "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab.draft",
        ] {
            assert!(!is_uid(bad), "{bad}");
        }
    }

    #[test]
    fn a_path_is_followed_while_others_rename_things() {
        let (root, busy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(root.path().join("a")).unwrap();
        std::os::unix::fs::symlink("../a/../a/../a", root.path().join("a/link")).unwrap();
        let host = HostRoot::view(root.path()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (one, other) = (busy.path().join("one"), busy.path().join("other"));
                fs::create_dir(&one).unwrap();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::rename(&one, &other).unwrap();
                    fs::rename(&other, &one).unwrap();
                }
            });
            let found: Vec<_> =
                (0..5000).map(|_| host.stat(Path::new("a/link"))).filter(Result::is_err).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(found.len(), 0, "{:?}", found.first());
        });
    }

    #[test]
    fn an_absent_or_unset_machine_id_is_none() {
        let root = tempfile::tempdir().unwrap();
        let host = HostRoot::open(root.path(), "/data").unwrap();
        assert_eq!(host.machine_id().unwrap(), None);
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/machine-id"), "uninitialized\n").unwrap();
        assert_eq!(host.machine_id().unwrap(), None);
        fs::write(root.path().join("etc/machine-id"), "abc\n").unwrap();
        assert_eq!(host.machine_id().unwrap().as_deref(), Some("abc"));
    }
}
