//! Attributes that every scan reads of a device that it knows, kept open.
//!
//! Opening a file of sysfs costs four times as much as reading it, and a rescan of a node at rest is nothing but
//! that. An open attribute keeps no device alive: once that is gone, reading fails and the scan looks in full. Only
//! devices without slaves are read this way. Next to read: `scan.rs`.

use super::{
    loops::parse_backing_file,
    scan::DeviceObservation,
    sysfs::{Sysfs, Writes, number},
};
use quarry_core::device::sanitize::printable;
use rustix::{
    fd::OwnedFd,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Of one device.
pub struct OpenAttrs {
    size: OwnedFd,
    read_only: OwnedFd,
    /// Of the disk, for a partition as well; older kernels have none.
    diskseq: Option<OwnedFd>,
    /// The file of a loop device, or the state of another disk.
    last: Option<OwnedFd>,
}

/// How many descriptors that is at most.
const EACH: u64 = 4;
/// More is not asked of the kernel.
const MOST_FILES: u64 = 65536;

/// For how many devices gauges may be kept: half of all files that this process may open, of which it asks for more.
pub fn affordable() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    let mut current = limit.current.unwrap_or(MOST_FILES);
    if current < wanted
        && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
            .is_ok()
    {
        current = wanted;
    }
    usize::try_from(current / 2 / EACH).unwrap_or(usize::MAX)
}

impl OpenAttrs {
    pub fn open(sysfs: &Sysfs, device: &OwnedFd, seen: &DeviceObservation) -> Option<Self> {
        let last = match (&seen.backing, &seen.state) {
            (Some(_), _) => Some(sysfs.open_attribute(device, "loop/backing_file")?),
            (None, Some(_)) => Some(sysfs.open_attribute(device, "device/state")?),
            (None, None) => None,
        };
        let diskseq = if seen.parent.is_some() { "../diskseq" } else { "diskseq" };
        Some(OpenAttrs {
            size: sysfs.open_attribute(device, "size")?,
            read_only: sysfs.open_attribute(device, "ro")?,
            diskseq: match seen.diskseq {
                Some(_) => Some(sysfs.open_attribute(device, diskseq)?),
                None => None,
            },
            last,
        })
    }

    /// Whether the device looks as it did before, but for what was written to it.
    pub fn agree(&self, before: &DeviceObservation) -> bool {
        let mut buffer = [0; 4096];
        let mut is = |file: &OwnedFd, wanted: u64| {
            bytes(file, &mut buffer).and_then(number::<u64>) == Some(wanted)
        };
        let numbers =
            is(&self.size, before.size / 512) && is(&self.read_only, u64::from(before.read_only));
        let same_disk = match (&self.diskseq, before.diskseq) {
            (Some(file), Some(wanted)) => is(file, wanted),
            (None, None) => true,
            _ => false,
        };
        let same_text = self.last.as_ref().is_none_or(|file| {
            bytes(file, &mut buffer).is_some_and(|text| match &before.backing {
                Some(backing) => parse_backing_file(text) == *backing,
                None => printable(text) == before.state,
            })
        });
        numbers && same_disk && same_text
    }

    /// What the device looks like now; `None` when it is gone or may be another one.
    pub fn read(
        &self,
        before: &DeviceObservation,
        writes: Option<Writes>,
    ) -> Option<DeviceObservation> {
        let mut buffer = [0; 4096];
        let size = number::<u64>(bytes(&self.size, &mut buffer)?)?.saturating_mul(512);
        let read_only = number::<u64>(bytes(&self.read_only, &mut buffer)?)? != 0;
        let diskseq = match &self.diskseq {
            Some(file) => Some(number(bytes(file, &mut buffer)?)?),
            None => None,
        };
        if diskseq != before.diskseq {
            return None;
        }
        let mut seen =
            DeviceObservation { size, read_only, writes: Some(writes?), ..before.clone() };
        if let Some(file) = &self.last {
            let text = bytes(file, &mut buffer)?;
            match before.backing {
                Some(_) => seen.backing = Some(parse_backing_file(text)),
                None => seen.state = printable(text),
            }
        }
        Some(seen)
    }
}

fn bytes<'b>(file: &OwnedFd, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let length = rustix::io::pread(file, &mut *buffer, 0).ok()?;
    let bytes = &buffer[..length];
    Some(bytes.strip_suffix(b"\n").unwrap_or(bytes))
}
