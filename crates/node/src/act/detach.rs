//! Taking a volume down: the loop device first, then the file.
//!
//! The device is opened exclusively, everybody who could use it is looked for once more while it is held, and it is
//! let go through that same descriptor: between check and act nobody can mount or claim it.

use super::{draft::remove, links};
use crate::{
    error::HandsError,
    host::Host,
    inspect::{loops, users},
    sys, wait,
};
use quarry_core::sparse::User;
use quarry_failpoint::failpoint;
use rustix::io::Errno;
use std::{fs, io, os::fd::OwnedFd, time::Duration};

const LIMIT: Duration = Duration::from_secs(5);

pub fn detach(host: &Host, uid: &str, device: &str) -> Result<(), HandsError> {
    let Some(held) = users::hold(host, device)? else {
        return Err(in_use(device, &[User::Exclusive]));
    };
    if !is_ours(host, uid, device)? {
        // Detached meanwhile, or the number is somebody else's now: the next look tells.
        return Ok(());
    }
    let found = users::visible(host, device, &loops::scan(host)?)?;
    if !found.is_empty() {
        return Err(in_use(device, &found));
    }
    failpoint!("detach.before");
    delete_partitions(host, device, &held)?;
    failpoint!("detach.partitions-deleted");
    sys::loop_clear(&held).map_err(HandsError::io(format!("detaching {device}")))?;
    // The kernel lets go when the last descriptor is closed: ours, or that of a prober who is just looking.
    drop(held);
    failpoint!("detach.cleared");
    let gone = wait::until(LIMIT, || is_ours(host, uid, device).map(|ours| (!ours).then_some(())))?;
    failpoint!("detach.after");
    gone.ok_or_else(|| HandsError::Overdue {
        attempt: format!("detaching {device}"),
        seconds: LIMIT.as_secs(),
        check: format!("check who has /dev/{device} open (fuser -v)"),
    })
}

/// Whether the device is over this volume's file, also if that was unlinked under it.
fn is_ours(host: &Host, uid: &str, device: &str) -> Result<bool, HandsError> {
    let Some(attached) = loops::read(host, device)? else { return Ok(false) };
    match fs::metadata(host.volume_file(uid)) {
        Ok(meta) => Ok(attached.is_over(&meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(attached.deleted && loops::names_the_same(&attached.path, &host.volume_on_node(uid)))
        }
        Err(error) => {
            Err(HandsError::io(format!("reading {}", host.volume_file(uid).display()))(error))
        }
    }
}

/// Where the kernel would keep them: a partition node that outlives its loop shows the next file's bytes.
fn delete_partitions(host: &Host, device: &str, held: &OwnedFd) -> Result<(), HandsError> {
    for name in loops::partitions(host, device) {
        let Some(number) = loops::partition_number(host, &name) else { continue };
        let deleted = wait::until(LIMIT, || match sys::delete_partition(held, number) {
            Ok(()) | Err(Errno::NXIO) => Ok(Some(())),
            // Somebody has it open: a prober is gone in a moment, a user is not.
            Err(Errno::BUSY) => Ok(None),
            Err(error) => Err(HandsError::io(format!("removing the partition {name}"))(error)),
        })?;
        if deleted.is_none() {
            return Err(HandsError::InUse {
                device: name.clone(),
                users: "opened by another process".into(),
            });
        }
    }
    Ok(())
}

/// Takes away a loop device that nothing is attached to; refused while somebody uses or has it open.
///
/// Not for volumes: they leave it idle for the next one. For whoever made hundreds, because every idle one costs each
/// scanner of the node a look.
pub fn remove_idle(host: &Host, number: u32) -> Result<(), HandsError> {
    let path = host.dev("loop-control");
    let control =
        fs::File::open(&path).map_err(HandsError::io(format!("opening {}", path.display())))?;
    sys::loop_remove(&control, number).map_err(HandsError::io(format!("removing loop{number}")))
}

fn in_use(device: &str, users: &[User]) -> HandsError {
    let users = users.iter().map(User::to_string).collect::<Vec<_>>().join(", ");
    HandsError::InUse { device: device.to_owned(), users }
}

/// The end of the data. Only ever called when no loop is over the file.
pub fn remove_file(host: &Host, uid: &str) -> Result<(), HandsError> {
    let path = host.volume_file(uid);
    failpoint!("remove-file.before");
    let over = match fs::metadata(&path) {
        Ok(meta) => loops::scan(host)?.into_iter().find(|attached| attached.is_over(&meta)),
        Err(_) => None,
    };
    if let Some(attached) = over {
        return Err(HandsError::InUse {
            device: path.display().to_string(),
            users: format!("attached to {}", attached.name),
        });
    }
    links::sweep(host, uid)?;
    remove(&path)?;
    failpoint!("remove-file.after");
    Ok(())
}
