//! A loop device over a finished file, and the partition on it.

use super::detach::detach;
use crate::{
    error::NodeError,
    host_root::HostRoot,
    inspect::{gpt, loops},
    sys, wait,
};
use quarry_failpoint::failpoint;
use rustix::io::Errno;
use std::{
    fs::{File, OpenOptions},
    io::{self, Cursor},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt},
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use uuid::Uuid;

/// The kernel and devtmpfs make a node within milliseconds.
const NODE_LIMIT: Duration = Duration::from_secs(5);
/// How many times a free device may be taken by another process.
const RACES: usize = 32;

/// Set once this kernel has shown that it does not read partition tables.
static NO_PARSER: AtomicBool = AtomicBool::new(false);

/// Does nothing if a loop is over the file already: two would write past each other.
pub fn attach(host: &HostRoot, uid: &str, partitioned: bool) -> Result<(), NodeError> {
    let path = host.volume_file(uid);
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let opening = || format!("opening {}", path.display());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(no_follow)
        .open(&path)
        .map_err(NodeError::io(opening()))?;
    let meta = file.metadata().map_err(NodeError::io(opening()))?;
    if loops::scan(host)?.iter().any(|attached| attached.is_over(&meta)) {
        return Ok(());
    }
    let control_path = host.dev("loop-control");
    let control = open_device(&control_path)
        .map_err(NodeError::io(format!("opening {}", control_path.display())))?;
    let name_for_people = host.volume_on_node(uid);
    failpoint!("attach.before");
    for _ in 0..RACES {
        let number =
            sys::loop_get_free(&control).map_err(NodeError::io("finding a free loop device"))?;
        let name = format!("loop{number}");
        let device = open_node(host, &name)?;
        let scan = partitioned && !NO_PARSER.load(Ordering::Relaxed);
        match sys::loop_configure(&device, &file, scan, name_for_people.as_os_str().as_bytes()) {
            Ok(()) => {}
            Err(Errno::BUSY) => continue,
            Err(error) => {
                return Err(NodeError::io(format!("attaching {} to {name}", path.display()))(
                    error,
                ));
            }
        }
        failpoint!("attach.configured");
        if scan && loops::partitions(host, &name).is_empty() {
            // No parser. udev asks the kernel to read the table again whenever a process closes the device, which here
            // would drop the partition that we add: a loop without the scan flag refuses that.
            NO_PARSER.store(true, Ordering::Relaxed);
            let_go(host, &name, device)?;
            continue;
        }
        check(host, &name, &device, meta.len(), scan)?;
        failpoint!("attach.after");
        return Ok(());
    }
    Err(NodeError::io("attaching a loop device: others took every free one first")(Errno::BUSY))
}

/// The device is ours now; what its number's last user left on it goes.
fn check(
    host: &HostRoot,
    name: &str,
    device: &File,
    file_size: u64,
    scanned: bool,
) -> Result<(), NodeError> {
    let size = sys::block_size(device).map_err(NodeError::io(format!("measuring {name}")))?;
    if size != file_size / gpt::SECTOR * gpt::SECTOR {
        return Err(NodeError::Malformed(format!(
            "{name} shows {size} of the {file_size} bytes of its file"
        )));
    }
    // `blockdev --setro` sticks to the number.
    if sys::is_read_only(device).unwrap_or(false) {
        sys::set_writable(device).map_err(NodeError::io(format!("making {name} writable")))?;
    }
    if !scanned {
        for stale in loops::partitions(host, name) {
            if let Some(number) = loops::partition_number(host, &stale) {
                sys::delete_partition(device, number)
                    .map_err(NodeError::io(format!("removing the stale partition {stale}")))?;
            }
        }
    }
    Ok(())
}

fn let_go(host: &HostRoot, name: &str, device: File) -> Result<(), NodeError> {
    sys::loop_clear(&device).map_err(NodeError::io(format!("detaching {name}")))?;
    drop(device);
    let gone = wait::until(NODE_LIMIT, || {
        loops::read(host, name).map(|attached| attached.is_none().then_some(()))
    })?;
    gone.ok_or_else(|| NodeError::io(format!("detaching {name}"))(Errno::BUSY))
}

/// For kernels that do not read partition tables themselves.
pub fn add_partition(host: &HostRoot, uid: &str, id: Uuid, device: &str) -> Result<(), NodeError> {
    if loops::scans_partitions(host, device) {
        // The kernel was asked to find it and did not; an agent that died at that moment left the device like this.
        NO_PARSER.store(true, Ordering::Relaxed);
        return detach(host, uid, device);
    }
    // Read-only: closing a writable descriptor would make udev process the device once more.
    let path = host.dev(device);
    let opened = File::open(&path).map_err(NodeError::io(format!("opening {}", path.display())))?;
    let attempt = || format!("adding the partition of {device}");
    let Some(partition) = find_partition(&opened, id).map_err(NodeError::io(attempt()))? else {
        return Err(NodeError::Malformed(format!(
            "{device} holds no partition table with this volume's partition"
        )));
    };
    let (start, length) = (to_i64(partition.start)?, to_i64(partition.length)?);
    failpoint!("add-partition.before");
    match sys::add_partition(&opened, partition.number, start, length) {
        // Busy: the kernel knows it already.
        Ok(()) | Err(Errno::BUSY) => {}
        Err(error) => return Err(NodeError::io(attempt())(error)),
    }
    failpoint!("add-partition.after");
    let name = format!("{device}p{}", partition.number);
    let node = host.dev(&name);
    let made = wait::until(NODE_LIMIT, || Ok::<_, NodeError>(node.exists().then_some(())))?;
    made.ok_or_else(|| overdue(&node))
}

/// Our partition in a file or device, read without moving its position.
pub fn find_partition(file: &File, id: Uuid) -> io::Result<Option<gpt::Partition>> {
    // MBR, header and 128 entries, and what the parser reads ahead: one read instead of one an entry.
    let mut head = vec![0; 64 * gpt::SECTOR as usize];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => Ok(gpt::find(&mut Cursor::new(head), id)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The device node, once it is there: the kernel makes it while we look.
fn open_node(host: &HostRoot, name: &str) -> Result<File, NodeError> {
    let path = host.dev(name);
    let attempt = format!("opening {}", path.display());
    let opened = wait::until(NODE_LIMIT, || match open_device(&path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(NodeError::io(attempt.clone())(error)),
    })?;
    opened.ok_or_else(|| overdue(&path))
}

fn overdue(path: &Path) -> NodeError {
    NodeError::Overdue {
        attempt: format!("opening {}", path.display()),
        seconds: NODE_LIMIT.as_secs(),
        check: "check that /dev of the node is a devtmpfs and is mounted into the agent".into(),
    }
}

fn open_device(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn to_i64(value: u64) -> Result<i64, NodeError> {
    i64::try_from(value).map_err(|_| NodeError::Malformed(format!("{value} is beyond any device")))
}
