//! Mounts and swap cause no uevent: a process that polls the kernel's tables of them is woken.
//!
//! A node with pods mounts all the time, and nearly all of it has no disk of its own. Only when the disks that are in use
//! differ is a scan needed. Mounts of other namespaces are not in the first process's table; they are found by the
//! scans that are made anyway.

use super::events::RescanTrigger;
use crate::{
    host_root::HostRoot,
    inspect::mounts::{parse_mount_lines, parse_swaps},
    sys,
};
use quarry_core::agent_schedule::MOUNT_DEBOUNCE;
use rustix::fd::{AsFd, OwnedFd};
use std::{collections::BTreeSet, io};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc::Sender,
    time::sleep,
};

type Uses = fn(&[u8]) -> BTreeSet<Vec<u8>>;

/// The kernel's tables of what is in use, as they were when they were opened.
pub(super) struct MountWatch(Vec<Table>);

struct Table {
    file: AsyncFd<OwnedFd>,
    uses: Uses,
    before: BTreeSet<Vec<u8>>,
}

impl MountWatch {
    /// Before the first scan: what changes after it is then seen.
    pub(super) fn open(host: &HostRoot) -> Self {
        let tables: [(io::Result<OwnedFd>, Uses); 2] =
            [(host.open_mountinfo(), mounted), (host.open_swaps(), swapped)];
        let opened = tables.into_iter().filter_map(|(table, uses)| {
            let opened = table.and_then(|table| Table::open(table, uses));
            opened.inspect_err(warn_unless_missing).ok()
        });
        MountWatch(opened.collect())
    }

    /// Sends a trigger when a disk is mounted that was not, or not any more; likewise for swap.
    pub(super) async fn run(self, triggers: Sender<RescanTrigger>) {
        let watches = self.0.into_iter().map(|table| {
            let triggers = triggers.clone();
            async move {
                if let Err(error) = table.watch(&triggers).await {
                    warn_unless_missing(&error);
                }
            }
        });
        futures::future::join_all(watches).await;
    }
}

fn warn_unless_missing(error: &io::Error) {
    if error.kind() != io::ErrorKind::NotFound {
        tracing::warn!(%error, "failed to watch mounts; changes are seen at the next scan only");
    }
}

impl Table {
    fn open(table: OwnedFd, uses: Uses) -> io::Result<Self> {
        let file = sys::wait_for(table, Interest::PRIORITY)?;
        let before = uses(&read(&file)?);
        Ok(Table { file, uses, before })
    }

    async fn watch(mut self, triggers: &Sender<RescanTrigger>) -> io::Result<()> {
        loop {
            let mut changed = self.file.ready(Interest::PRIORITY).await?;
            // A scan for another reason may report a disk that is out of use again when the burst is over.
            let at_first = (self.uses)(&read(&self.file)?);
            sleep(MOUNT_DEBOUNCE).await;
            // Before it is read: a change meanwhile wakes us again.
            changed.clear_ready();
            let now = (self.uses)(&read(&self.file)?);
            if now != self.before || at_first != self.before {
                self.before = now;
                if triggers.send(RescanTrigger::MountsChanged).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// From its beginning, whatever was read before.
fn read(table: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 16 << 10];
        match rustix::io::pread(table.get_ref().as_fd(), &mut part, bytes.len() as u64)? {
            0 => return Ok(bytes),
            length => bytes.extend_from_slice(&part[..length]),
        }
    }
}

/// The disks that are mounted, by number and by name: btrfs has numbers of its own.
fn mounted(table: &[u8]) -> BTreeSet<Vec<u8>> {
    let of_disk = parse_mount_lines(table)
        .filter(|line| line.device.major != 0 || line.source.starts_with(b"/dev/"));
    // The node of a device itself may be mounted elsewhere: a container's disk.
    let of_node = parse_mount_lines(table)
        .filter(|line| line.fs == b"devtmpfs" && line.root != b"/")
        .map(|line| line.root.to_vec());
    of_disk
        .map(|line| {
            [format!("{}:{} ", line.device.major, line.device.minor).as_bytes(), line.source]
                .concat()
        })
        .chain(of_node)
        .collect()
}

fn swapped(table: &[u8]) -> BTreeSet<Vec<u8>> {
    parse_swaps(table).into_iter().map(|path| path.into_os_string().into_encoded_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disks_that_come_into_use_or_go_out_of_it_count() {
        let node = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /proc rw - proc proc rw\n";
        let with =
            |line: &str| mounted(format!("{node}{line}\n").as_bytes()) != mounted(node.as_bytes());
        for nothing in [
            "30 22 0:50 / /run/pod rw - overlay overlay rw,lowerdir=/a",
            "31 22 0:51 / /run/tmp rw - tmpfs tmpfs rw",
            "32 22 8:1 /var/log /run/log rw - ext4 /dev/sda1 rw",
            "33 22 0:5 / /run/dev rw - devtmpfs devtmpfs rw",
        ] {
            assert!(!with(nothing), "{nothing}");
        }
        for news in [
            "40 22 8:16 / /data rw - xfs /dev/sdb rw",
            "41 22 0:60 / /data rw - btrfs /dev/sdc rw",
            "42 22 0:5 /sdd /run/disk rw - devtmpfs devtmpfs rw",
        ] {
            assert!(with(news), "{news}");
        }
        let header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert_eq!(swapped(header.as_bytes()).len(), 0);
        let (a, b) = (
            format!("{header}/dev/sdb partition 1 0 -2\n"),
            format!("{header}/dev/sdb partition 1 1 -2\n"),
        );
        assert_eq!(
            swapped(a.as_bytes()),
            swapped(b.as_bytes()),
            "how much of it is used is no news"
        );
        assert_eq!(swapped(a.as_bytes()).len(), 1);
    }
}
