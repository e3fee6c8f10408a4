//! Taking a volume down: the loop device first, then the file.
//!
//! The device is opened exclusively, its possible users are read once more while it is held, and it is
//! let go through that same descriptor: between check and step no other process can mount or claim it.

use super::{draft::remove, volume_link};
use crate::{
    error::NodeError,
    host_root::HostRoot,
    inspect::{device_users, loops},
    sys, wait,
};
use quarry_core::storage::sparse::User;
use quarry_failpoint::failpoint;
use rustix::io::Errno;
use std::{fs, io, os::fd::OwnedFd, time::Duration};

const LIMIT: Duration = Duration::from_secs(5);

pub fn detach(host: &HostRoot, uid: &str, device: &str) -> Result<(), NodeError> {
    let Some(held) = device_users::hold(host, device)? else {
        return Err(in_use(device, &[User::Exclusive]));
    };
    if !is_ours(host, uid, device)? {
        // Detached meanwhile, or the number is another file's now: the next observation shows it.
        return Ok(());
    }
    let found = device_users::visible(host, device, &loops::scan(host)?)?;
    if !found.is_empty() {
        return Err(in_use(device, &found));
    }
    failpoint!("detach.before");
    delete_partitions(host, device, &held)?;
    failpoint!("detach.partitions-deleted");
    sys::loop_clear(&held).map_err(NodeError::io(format!("detaching {device}")))?;
    // The kernel lets go when the last descriptor is closed: ours, or that of a prober who is just looking.
    drop(held);
    failpoint!("detach.cleared");
    let gone = wait::until(LIMIT, || is_ours(host, uid, device).map(|ours| (!ours).then_some(())))?;
    failpoint!("detach.after");
    gone.ok_or_else(|| NodeError::Overdue {
        attempt: format!("detaching {device}"),
        seconds: LIMIT.as_secs(),
        check: format!("check who has /dev/{device} open (fuser -v)"),
    })
}

/// Whether the device is over this volume's file, also if that was unlinked under it.
fn is_ours(host: &HostRoot, uid: &str, device: &str) -> Result<bool, NodeError> {
    let Some(attached) = loops::read(host, device)? else { return Ok(false) };
    match fs::metadata(host.volume_file(uid)) {
        Ok(meta) => Ok(attached.is_over(&meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(attached.deleted && loops::names_the_same(&attached.path, &host.volume_on_node(uid)))
        }
        Err(error) => {
            Err(NodeError::io(format!("reading {}", host.volume_file(uid).display()))(error))
        }
    }
}

/// Where the kernel would keep them: a partition node that outlives its loop shows the next file's bytes.
fn delete_partitions(host: &HostRoot, device: &str, held: &OwnedFd) -> Result<(), NodeError> {
    for name in loops::partitions(host, device) {
        let Some(number) = loops::partition_number(host, &name) else { continue };
        let deleted = wait::until(LIMIT, || match sys::delete_partition(held, number) {
            Ok(()) | Err(Errno::NXIO) => Ok(Some(())),
            // Another process has it open: a prober is gone in a moment, a user is not.
            Err(Errno::BUSY) => Ok(None),
            Err(error) => Err(NodeError::io(format!("removing the partition {name}"))(error)),
        })?;
        if deleted.is_none() {
            return Err(NodeError::InUse {
                device: name.clone(),
                users: "opened by another process".into(),
            });
        }
    }
    Ok(())
}

/// Takes away a loop device that nothing is attached to; refused while it is in use or open.
///
/// Not for volumes: they leave it idle for the next one. For a caller that made hundreds, because every idle one costs each
/// scanner of the node a look.
pub fn remove_idle(host: &HostRoot, number: u32) -> Result<(), NodeError> {
    let path = host.dev("loop-control");
    let control =
        fs::File::open(&path).map_err(NodeError::io(format!("opening {}", path.display())))?;
    sys::loop_remove(&control, number).map_err(NodeError::io(format!("removing loop{number}")))
}

fn in_use(device: &str, users: &[User]) -> NodeError {
    let users = users.iter().map(User::to_string).collect::<Vec<_>>().join(", ");
    NodeError::InUse { device: device.to_owned(), users }
}

/// The end of the data. Only ever called when no loop is over the file.
pub fn remove_file(host: &HostRoot, uid: &str) -> Result<(), NodeError> {
    let path = host.volume_file(uid);
    failpoint!("remove-file.before");
    let over = match fs::metadata(&path) {
        Ok(meta) => loops::scan(host)?.into_iter().find(|attached| attached.is_over(&meta)),
        Err(_) => None,
    };
    if let Some(attached) = over {
        return Err(NodeError::InUse {
            device: path.display().to_string(),
            users: format!("attached to {}", attached.name),
        });
    }
    volume_link::sweep(host, uid)?;
    remove(&path)?;
    failpoint!("remove-file.after");
    Ok(())
}
