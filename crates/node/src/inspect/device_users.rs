//! Who uses a loop device now, and would lose data if it went.
//!
//! Five independent views, because none sees everything: mounts of the node's first process, swaps, holders (dm,
//! md), loops on top (kubelet puts one over every Block volume and opens it without O_EXCL), and O_EXCL itself.

use super::{
    loops::{self, LoopAttachment},
    mounts::{parse_mountinfo, parse_swaps},
};
use crate::{error::NodeError, host_root::HostRoot, sys::DevNumber};
use quarry_core::storage::sparse::User;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{fs, os::unix::fs::MetadataExt};

/// All users that can be seen without opening the device; `all` are the attached loops of the node.
pub fn visible(
    host: &HostRoot,
    name: &str,
    all: &[LoopAttachment],
) -> Result<Vec<User>, NodeError> {
    let mut names = vec![name.to_owned()];
    names.extend(loops::partitions(host, name));
    let numbers: Vec<DevNumber> =
        names.iter().filter_map(|name| loops::number(host, name)).collect();
    let mut users = Vec::new();
    for mount in parse_mountinfo(&host.mountinfo()?) {
        if numbers.contains(&mount.device) {
            users.push(User::Mount(mount.at.display().to_string()));
        }
    }
    for swap in parse_swaps(&host.swaps()?) {
        let number = fs::metadata(host.at(&swap)).map(|meta| DevNumber::from_stat(meta.rdev()));
        if number.is_ok_and(|number| numbers.contains(&number)) {
            users.push(User::Swap);
        }
    }
    for name in &names {
        let directory = host.sys_block(name).join("holders");
        for holder in fs::read_dir(&directory).into_iter().flatten().flatten() {
            users.push(User::Holder(holder.file_name().to_string_lossy().into_owned()));
        }
    }
    for other in all.iter().filter(|other| other.name != name) {
        if other.backing.rdevice != DevNumber::NONE && numbers.contains(&other.backing.rdevice) {
            users.push(User::LoopOnTop(other.name.clone()));
        }
    }
    users.sort();
    users.dedup();
    Ok(users)
}

/// The device, opened so that no other process can mount it, claim it or open it exclusively; `None` when one has.
///
/// Read-only: closing a writable descriptor would make udev probe the device once more.
pub fn hold(host: &HostRoot, name: &str) -> Result<Option<OwnedFd>, NodeError> {
    let device = host.dev(name);
    match rustix::fs::open(&device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
    {
        Ok(held) => Ok(Some(held)),
        Err(Errno::BUSY) => Ok(None),
        Err(error) => {
            Err(NodeError::io(format!("opening {} exclusively", device.display()))(error))
        }
    }
}
