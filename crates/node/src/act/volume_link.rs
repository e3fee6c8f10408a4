//! The persistent link of a volume in /dev/disk.
//!
//! Where a udev daemon runs, the links are its business: it is asked to look again, and waited for. Only without
//! one the agent makes and removes them, and only those that lead to a loop device or nowhere.

use crate::{
    error::NodeError,
    host_root::HostRoot,
    inspect::{
        link_read::{self, LinkTarget},
        loops,
    },
    wait,
};
use quarry_core::storage::sparse::link_path;
use quarry_failpoint::failpoint;
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(10);
/// An attach is followed by an event of its own: udev is asked once more only when that did not suffice.
const PATIENCE: Duration = Duration::from_millis(100);
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The two links that a volume can have: by file system UUID, by partition label.
pub fn both(uid: &str) -> [String; 2] {
    [link_path(uid, false), link_path(uid, true)]
}

/// The link that leads, or should lead, to this device.
pub fn of_device(uid: &str, device: &str) -> String {
    let [by_uuid, by_partlabel] = both(uid);
    if is_partition(device) { by_partlabel } else { by_uuid }
}

// loop3p1
fn is_partition(device: &str) -> bool {
    device.strip_prefix("loop").is_some_and(|rest| rest.contains('p'))
}

/// Without a udev daemon: in one piece, so that it is never seen half made.
pub fn make(host: &HostRoot, uid: &str, device: &str) -> Result<(), NodeError> {
    let link = of_device(uid, device);
    let path = host.at(&link);
    let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
    let attempt = || format!("making the link {link}");
    fs::create_dir_all(&directory).map_err(NodeError::io(attempt()))?;
    let temporary = host.at(temporary_name(&link));
    unlink(&temporary).map_err(NodeError::io(attempt()))?;
    failpoint!("make-link.before");
    symlink(format!("../../{device}"), &temporary).map_err(NodeError::io(attempt()))?;
    failpoint!("make-link.made");
    fs::rename(&temporary, &path).map_err(NodeError::io(attempt()))?;
    failpoint!("make-link.after");
    Ok(())
}

/// Takes away what a crash in the middle of `make` may have left.
pub fn sweep(host: &HostRoot, uid: &str) -> Result<(), NodeError> {
    for link in both(uid) {
        let temporary = host.at(temporary_name(&link));
        unlink(&temporary).map_err(NodeError::io(format!("removing {}", temporary.display())))?;
    }
    Ok(())
}

fn temporary_name(link: &str) -> String {
    format!("{link}.quarry")
}

fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// With a udev daemon: asks it to process the device, and waits until it has.
pub fn wait_for(host: &HostRoot, uid: &str, device: &str) -> Result<(), NodeError> {
    let link = of_device(uid, device);
    failpoint!("await-link.before");
    let mut asked: Option<Instant> = None;
    let begun = Instant::now();
    let arrived = wait::until(LIMIT, || {
        if link_read::read(host, &link) == LinkTarget::To(device.to_owned()) {
            return Ok(Some(()));
        }
        let due = asked.map_or(begun + PATIENCE, |last| last + ASK_AGAIN);
        if Instant::now() >= due {
            ask(host, device)?;
            asked = Some(Instant::now());
        }
        Ok::<_, NodeError>(None)
    })?;
    failpoint!("await-link.after");
    if arrived.is_some() {
        return Ok(());
    }
    let found = match link_read::read(host, &link) {
        LinkTarget::Nowhere => "is missing".to_owned(),
        LinkTarget::To(other) => format!(
            "leads to {other} instead of {device}: another device carries this volume's UUID"
        ),
        LinkTarget::Dangling(other) => format!("leads to {other}, which is not there,"),
    };
    Err(NodeError::LinkMissing { link, found, device: device.to_owned(), seconds: LIMIT.as_secs() })
}

/// Makes the kernel send the device's event again.
fn ask(host: &HostRoot, device: &str) -> Result<(), NodeError> {
    let path = host.sys_block(device).join("uevent");
    fs::write(&path, "change").map_err(NodeError::io(format!(
        "asking udev to process {device}: writing to {}",
        path.display()
    )))
}

/// Without a udev daemon. A link to a device that is not a loop is not ours and stays.
pub fn remove(host: &HostRoot, uid: &str) -> Result<(), NodeError> {
    for link in both(uid) {
        let ours = match link_read::read(host, &link) {
            LinkTarget::Nowhere => false,
            LinkTarget::To(device) => is_loop_of(host, uid, &device)?,
            LinkTarget::Dangling(_) => true,
        };
        if !ours {
            continue;
        }
        failpoint!("remove-link.before");
        unlink(&host.at(&link)).map_err(NodeError::io(format!("removing the link {link}")))?;
        failpoint!("remove-link.after");
    }
    Ok(())
}

/// A loop that is idle or over this volume's file: no other volume can mean it by this link.
fn is_loop_of(host: &HostRoot, uid: &str, device: &str) -> Result<bool, NodeError> {
    let Some(whole) = whole_loop(device) else { return Ok(false) };
    match (loops::read(host, whole)?, fs::metadata(host.volume_file(uid))) {
        (None, _) => Ok(true),
        (Some(attached), Ok(meta)) => Ok(attached.is_over(&meta)),
        (Some(_), Err(_)) => Ok(false),
    }
}

/// `loop3` of `loop3` and of `loop3p1`; `None` for anything else.
fn whole_loop(device: &str) -> Option<&str> {
    let rest = device.strip_prefix("loop")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| &device[..4 + digits])
}

/// With a udev daemon: it removes the link once the device is gone.
pub fn wait_gone(host: &HostRoot, uid: &str) -> Result<(), NodeError> {
    failpoint!("await-no-link.before");
    let begun = Instant::now();
    let mut asked: Option<Instant> = None;
    for link in both(uid) {
        let mut last = String::new();
        let gone = wait::until(LIMIT, || {
            last = match link_read::read(host, &link) {
                LinkTarget::Nowhere => return Ok(Some(())),
                // Another disk with this UUID: its link is not ours to wait for.
                LinkTarget::To(device) if whole_loop(&device).is_none() => return Ok(Some(())),
                LinkTarget::To(device) | LinkTarget::Dangling(device) => device,
            };
            let due = asked.map_or(begun + PATIENCE, |last| last + ASK_AGAIN);
            if Instant::now() >= due && host.sys_block(&last).exists() {
                ask(host, &last)?;
                asked = Some(Instant::now());
            }
            Ok::<_, NodeError>(None)
        })?;
        if gone.is_none() {
            return Err(NodeError::LinkMissing {
                link,
                found: format!(
                    "still leads to {last}: a copy of this volume is attached there, or udev is stuck"
                ),
                device: last,
                seconds: LIMIT.as_secs(),
            });
        }
    }
    failpoint!("await-no-link.after");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_follows_from_the_device() {
        assert_eq!(of_device("u", "loop3"), "/dev/disk/by-uuid/u");
        assert_eq!(of_device("u", "loop3p1"), "/dev/disk/by-partlabel/u");
        assert_eq!(whole_loop("loop13p1"), Some("loop13"));
        assert_eq!(whole_loop("loop7"), Some("loop7"));
        assert_eq!(whole_loop("sda1"), None);
        assert_eq!(whole_loop("loop-control"), None);
    }
}
