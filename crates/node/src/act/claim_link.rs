//! The link of a device claim, `/mnt/local-storage/<class>/<name>`: the path of its PersistentVolume.
//!
//! The way there is walked inside the host root, `/mnt` may be a link of the node. The class's own directory must be one:
//! a link in its place is left alone, whatever it leads to. A link is replaced in one piece, and only links are
//! replaced or removed.
//!
//! A link must lead to its device or to nothing, also after a reboot and before the agent has scanned: kubelet follows it
//! then. It names the device by what the hardware gives it, else it leads through a directory that is empty after a boot
//! (`BOOT_LINK_DIRECTORY`) and is filled when this boot has seen the identity.

use crate::{
    device_claim::{LinkDevice, LinkGoal, LinkState, LinkTask},
    error::NodeError,
    host_root::HostRoot,
    sys::DevNumber,
};
use quarry_api::{
    names::{BOOT_LINK_DIRECTORY, LINK_DIRECTORY},
    node_job::hex_digest,
};
use quarry_core::device::sanitize::printable;
use quarry_failpoint::failpoint;
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// One at a time: a left-over of a crash is the next one's to remove.
const TEMPORARY: &str = ".quarry-link";

/// Class and name of a link, both of which are one name in a directory.
pub fn parse(link: &str) -> Result<(&str, &str), String> {
    let is_name = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.len() <= 255
            && !part.contains(['/', '\0'])
            && part != TEMPORARY
    };
    let inside = link.strip_prefix(LINK_DIRECTORY).and_then(|rest| rest.strip_prefix('/'));
    inside
        .and_then(|rest| rest.split_once('/'))
        .filter(|(class, name)| is_name(class) && is_name(name))
        .ok_or_else(|| {
            format!(
                "{link:?} is not a link of a device claim: {LINK_DIRECTORY}/CLASS/NAME is expected"
            )
        })
}

/// Where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LinkTarget {
    Nowhere,
    /// Something else has its place.
    NoLink,
    To {
        number: DevNumber,
        target: PathBuf,
    },
    /// To nothing, or to what is no block device.
    Dangling,
}

/// One task, to its end; what keeps it from that is in the result.
pub fn follow(host: &HostRoot, task: &LinkTask) -> LinkState {
    let done = match &task.goal {
        LinkGoal::Lead(device) => lead(host, &task.link, device).map(|repaired| (true, repaired)),
        LinkGoal::Observe(device) => {
            is_linked(host, &task.link, device.as_ref()).map(|linked| (linked, None))
        }
        LinkGoal::Await => await_device(host, &task.link).map(|()| (false, None)),
        LinkGoal::Remove => remove(host, &task.link).map(|()| (false, None)),
    };
    match done {
        Ok((linked, repaired)) => LinkState { linked, problem: None, repaired },
        Err(error) => LinkState { linked: false, problem: Some(error.message()), repaired: None },
    }
}

/// Makes it lead to the device, unless it does; what it did instead.
pub fn lead(host: &HostRoot, link: &str, device: &LinkDevice) -> Result<Option<String>, NodeError> {
    let (class, name) = parse(link).map_err(NodeError::Refused)?;
    let directory = match open_directory(host, class)? {
        Some(directory) => directory,
        None => make_directory(host, class)?,
    };
    let persistent = device.persistent_names.iter().find(|name| leads_to(host, name, device));
    let before = match read(host, &directory, class, name)? {
        LinkTarget::NoLink => {
            return Err(NodeError::Refused(format!(
                "{link} is not a link: it is left alone; move it away"
            )));
        }
        LinkTarget::To { number, target }
            if is_number(device, number)
                && is_lasting(&target, link, device, persistent.is_some()) =>
        {
            return Ok(None);
        }
        LinkTarget::To { number, target } if is_number(device, number) => {
            format!("led there by {}, which does not last", shown(&target))
        }
        LinkTarget::To { target, .. } => {
            format!("led to {}, which is another device", shown(&target))
        }
        LinkTarget::Dangling => "led to no device".to_owned(),
        LinkTarget::Nowhere => "was missing".to_owned(),
    };
    check(host, device)?;
    let target = match persistent {
        Some(name) => name.clone(),
        None => make_boot_link(host, link, device)?,
    };
    replace(&directory, name, &target, &format!("making the link {link}"))?;
    failpoint!("claim-link.after");
    match read(host, &directory, class, name)? {
        LinkTarget::To { number, .. } if is_number(device, number) => Ok(Some(before)),
        _ => Err(NodeError::Refused(format!(
            "{link} does not lead to {} although it was just made: {target} is not that device",
            device.name
        ))),
    }
}

/// In one piece: it leads to what it led to before, or to this.
fn replace(directory: &OwnedFd, name: &str, target: &str, attempt: &str) -> Result<(), NodeError> {
    let failed = || NodeError::io(attempt.to_owned());
    unlink(directory, TEMPORARY).map_err(failed())?;
    failpoint!("claim-link.before");
    rustix::fs::symlinkat(target, directory, TEMPORARY).map_err(failed())?;
    failpoint!("claim-link.made");
    rustix::fs::renameat(directory, TEMPORARY, directory, name).map_err(failed())?;
    rustix::fs::fsync(directory).map_err(failed())
}

/// The name of a link below `BOOT_LINK_DIRECTORY`: one per link of a device claim.
fn boot_link(link: &str) -> String {
    hex_digest(&[link])[..40].to_owned()
}

/// Leads to the kernel's name, for this boot. Its path.
fn make_boot_link(host: &HostRoot, link: &str, device: &LinkDevice) -> Result<String, NodeError> {
    let directory = make_path(host, Path::new(BOOT_LINK_DIRECTORY))?;
    let name = boot_link(link);
    let path = format!("{BOOT_LINK_DIRECTORY}/{name}");
    replace(
        &directory,
        &name,
        &format!("/dev/{}", device.name),
        &format!("making the link {path}"),
    )?;
    Ok(path)
}

/// Without one there is nothing to do.
fn remove_boot_link(host: &HostRoot, link: &str) -> Result<(), NodeError> {
    let attempt = || format!("removing the link {BOOT_LINK_DIRECTORY}/{}", boot_link(link));
    match host.open_directory(Path::new(BOOT_LINK_DIRECTORY)) {
        Ok(directory) => unlink(&directory, &boot_link(link)).map_err(NodeError::io(attempt())),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(NodeError::io(attempt())(error)),
    }
}

fn leads_to(host: &HostRoot, path: &str, device: &LinkDevice) -> bool {
    host.stat(Path::new(path)).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
            && is_number(device, DevNumber::from_stat(stat.st_rdev))
    })
}

/// Any program may have written it.
fn shown(target: &Path) -> String {
    printable(target.as_os_str().as_bytes()).unwrap_or_default()
}

/// No other device has this name after a reboot: given by the hardware, or, where there is no such name, made for this
/// boot alone.
fn is_lasting(target: &Path, link: &str, device: &LinkDevice, has_name: bool) -> bool {
    let boot_link = Path::new(BOOT_LINK_DIRECTORY).join(boot_link(link));
    device.persistent_names.iter().any(|name| target == Path::new(name))
        || (!has_name && target == boot_link)
}

fn is_number(device: &LinkDevice, number: DevNumber) -> bool {
    DevNumber::parse(&device.number) == Some(number)
}

/// What had this name a moment ago may be gone, and another disk may have got its number.
fn check(host: &HostRoot, device: &LinkDevice) -> Result<(), NodeError> {
    let directory = host.sys_block(&device.name.replace('/', "!"));
    let read = |attribute: &str| std::fs::read_to_string(directory.join(attribute)).ok();
    let number = read("dev").and_then(|text| DevNumber::parse(&text));
    // A partition has its disk's.
    let diskseq =
        read("diskseq").or_else(|| read("../diskseq")).and_then(|text| text.trim().parse().ok());
    let same = number.is_some_and(|number| is_number(device, number))
        && (device.diskseq.is_none() || diskseq.is_none() || device.diskseq == diskseq);
    if same {
        Ok(())
    } else {
        Err(NodeError::Refused(format!("{} is gone, or is another device now", device.name)))
    }
}

fn is_linked(host: &HostRoot, link: &str, device: Option<&LinkDevice>) -> Result<bool, NodeError> {
    let (class, name) = parse(link).map_err(NodeError::Refused)?;
    let Some(directory) = open_directory(host, class)? else { return Ok(false) };
    let leads = read(host, &directory, class, name)?;
    Ok(
        matches!((leads, device), (LinkTarget::To { number, .. }, Some(device)) if is_number(device, number)),
    )
}

/// A pod must not get another device because it has the kernel name of one that is gone.
fn await_device(host: &HostRoot, link: &str) -> Result<(), NodeError> {
    let (class, name) = parse(link).map_err(NodeError::Refused)?;
    let Some(directory) = open_directory(host, class)? else { return Ok(()) };
    match read(host, &directory, class, name)? {
        // By a kernel name, or by one of udev's that outlives the device (a partition's, an array's).
        LinkTarget::To { target, .. } => {
            tracing::warn!(link, target = %target.display(), "deleted the link: its device is gone and another has its name; it is created again with the device");
            remove_boot_link(host, link)?;
            unlink(&directory, name).map_err(NodeError::io(format!("removing the link {link}")))
        }
        LinkTarget::Nowhere | LinkTarget::NoLink | LinkTarget::Dangling => Ok(()),
    }
}

/// Of the link alone; then of its directory, if nothing else is in it.
fn remove(host: &HostRoot, link: &str) -> Result<(), NodeError> {
    let (class, name) = parse(link).map_err(NodeError::Refused)?;
    remove_boot_link(host, link)?;
    let Some(directory) = open_directory(host, class)? else { return Ok(()) };
    let attempt = || format!("removing the link {link}");
    match read(host, &directory, class, name)? {
        LinkTarget::Nowhere | LinkTarget::NoLink => {}
        LinkTarget::To { .. } | LinkTarget::Dangling => {
            failpoint!("claim-unlink.before");
            unlink(&directory, name).map_err(NodeError::io(attempt()))?;
        }
    }
    unlink(&directory, TEMPORARY).map_err(NodeError::io(attempt()))?;
    rustix::fs::fsync(&directory).map_err(NodeError::io(attempt()))?;
    drop(directory);
    failpoint!("claim-unlink.after");
    let above = host.open_directory(Path::new(LINK_DIRECTORY)).map_err(NodeError::io(attempt()))?;
    match rustix::fs::unlinkat(&above, class, AtFlags::REMOVEDIR) {
        // Other links are in it, or another program was faster.
        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::BUSY) => Ok(()),
        Err(error) => {
            Err(NodeError::io(format!("removing the directory {LINK_DIRECTORY}/{class}"))(error))
        }
    }
}

fn unlink(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn read(
    host: &HostRoot,
    directory: &OwnedFd,
    class: &str,
    name: &str,
) -> Result<LinkTarget, NodeError> {
    let target = match rustix::fs::readlinkat(directory, name, Vec::new()) {
        Ok(target) => PathBuf::from(OsStr::from_bytes(target.as_bytes())),
        Err(Errno::NOENT) => return Ok(LinkTarget::Nowhere),
        Err(Errno::INVAL) => return Ok(LinkTarget::NoLink),
        Err(error) => {
            return Err(
                NodeError::io(format!("reading the link {LINK_DIRECTORY}/{class}/{name}"))(error),
            );
        }
    };
    // As the node would follow it, and never out of its root.
    let Ok(stat) = host.stat(&Path::new(LINK_DIRECTORY).join(class).join(&target)) else {
        return Ok(LinkTarget::Dangling);
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => {
            Ok(LinkTarget::To { number: DevNumber::from_stat(stat.st_rdev), target })
        }
        _ => Ok(LinkTarget::Dangling),
    }
}

/// `None` when there is none.
fn open_directory(host: &HostRoot, class: &str) -> Result<Option<OwnedFd>, NodeError> {
    let attempt = || format!("opening the directory {LINK_DIRECTORY}/{class}");
    let above = match host.open_directory(Path::new(LINK_DIRECTORY)) {
        Ok(above) => above,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(NodeError::io(attempt())(error)),
    };
    match open_below(&above, class) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => Err(NodeError::Refused(format!(
            "{LINK_DIRECTORY}/{class} is not a directory: it is left alone; move it away"
        ))),
        Err(error) => Err(NodeError::io(attempt())(error)),
    }
}

fn open_below(above: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        above,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// The directory of a class.
fn make_directory(host: &HostRoot, class: &str) -> Result<OwnedFd, NodeError> {
    make_path(host, &Path::new(LINK_DIRECTORY).join(class))
}

/// With everything above it that is missing. All may read it: kubelet's helpers are not all root.
fn make_path(host: &HostRoot, wanted: &Path) -> Result<OwnedFd, NodeError> {
    let attempt = || format!("making the directory {}", wanted.display());
    let mode = Mode::from_raw_mode(0o755);
    let mut path = PathBuf::from("/");
    let mut directory = host.open_directory(&path).map_err(NodeError::io(attempt()))?;
    for part in wanted.components().skip(1) {
        path.push(part);
        let name = part.as_os_str();
        let last = path == wanted;
        let open = || {
            if last {
                open_below(&directory, &name.to_string_lossy())
            } else {
                host.open_directory(&path)
            }
        };
        directory = match open() {
            Ok(found) => found,
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&directory, name, mode).map_err(NodeError::io(attempt()))?;
                let made = open_below(&directory, &name.to_string_lossy())
                    .map_err(NodeError::io(attempt()))?;
                // Whatever this process masks.
                rustix::fs::fchmod(&made, mode).map_err(NodeError::io(attempt()))?;
                rustix::fs::fsync(&directory).map_err(NodeError::io(attempt()))?;
                made
            }
            Err(error) => return Err(NodeError::io(attempt())(error)),
        };
    }
    Ok(directory)
}

#[cfg(test)]
#[path = "claim_link_tests.rs"]
mod tests;
