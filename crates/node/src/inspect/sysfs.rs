//! Reading sysfs: one directory for each device, one short file for each attribute.
//!
//! Everything is opened relative to a directory's descriptor: no path is built or walked twice, which is most of what a
//! rescan costs. Only attributes that the kernel answers from memory are read here; those that ask the device
//! (virtio's `serial`) are read by the probe, which may hang.

use crate::{error::NodeError, host_root::HostRoot, sys::DevNumber};
use quarry_core::device::sanitize::printable;
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, Mode, OFlags, openat},
    io::Errno,
};
use std::{cell::RefCell, str};

/// The largest attribute that is read: sysfs gives at most one page, a VPD page is shorter.
const LARGEST: usize = 4096;

pub struct Sysfs {
    directory: OwnedFd,
    buffer: Box<[u8; LARGEST]>,
    /// An attribute that is there and could not be read. A device that is gone has none.
    trouble: RefCell<Option<String>>,
}

impl Sysfs {
    pub fn open(host: &HostRoot) -> Result<Self, NodeError> {
        let path = host.sys_class_block();
        let directory = rustix::fs::open(
            &path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(NodeError::io(remedy(host)))?;
        Ok(Sysfs { directory, buffer: Box::new([0; LARGEST]), trouble: RefCell::default() })
    }

    /// The kernel names of all block devices and partitions, sorted.
    pub fn names(&self, host: &HostRoot) -> Result<Vec<String>, NodeError> {
        let mut names =
            names(Dir::read_from(&self.directory).map_err(NodeError::io(remedy(host)))?)
                .map_err(NodeError::io(remedy(host)))?;
        names.sort_unstable();
        Ok(names)
    }

    /// `None` when it is gone.
    pub fn device(&self, name: &str) -> Option<OwnedFd> {
        openat(
            &self.directory,
            name,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| self.note("", error))
        .ok()
    }

    /// What could not be read since the last call, though it is there.
    pub fn take_trouble(&self) -> Option<String> {
        self.trouble.take()
    }

    fn note(&self, attribute: &str, error: Errno) {
        if matches!(
            error,
            Errno::ACCESS
                | Errno::PERM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::IO
                | Errno::ISDIR
        ) {
            *self.trouble.borrow_mut() = Some(format!("reading /{attribute}: {error}"));
        }
    }

    /// Where the device hangs in the tree: `../../devices/pci0000:00/…/block/sda`.
    pub fn place(&self, name: &str) -> Option<String> {
        rustix::fs::readlinkat(&self.directory, name, Vec::new()).ok()?.into_string().ok()
    }

    /// An attribute without the line's end; `None` when there is none.
    pub fn bytes(&mut self, device: &OwnedFd, attribute: &str) -> Option<&[u8]> {
        let file = openat(device, attribute, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| self.note(attribute, error))
            .ok()?;
        let length = rustix::io::read(&file, &mut self.buffer[..])
            .map_err(|error| self.note(attribute, error))
            .ok()?;
        let bytes = &self.buffer[..length];
        Some(bytes.strip_suffix(b"\n").unwrap_or(bytes))
    }

    pub fn number(&mut self, device: &OwnedFd, attribute: &str) -> Option<u64> {
        str::from_utf8(self.bytes(device, attribute)?).ok()?.trim().parse().ok()
    }

    pub fn flag(&mut self, device: &OwnedFd, attribute: &str) -> bool {
        self.number(device, attribute).is_some_and(|value| value != 0)
    }

    /// Printable; `None` when it is absent or empty.
    pub fn text(&mut self, device: &OwnedFd, attribute: &str) -> Option<String> {
        self.bytes(device, attribute).and_then(printable)
    }

    /// What the directory below the device holds, sorted.
    pub fn list(&self, device: &OwnedFd, directory: &str) -> Vec<String> {
        let opened = openat(
            device,
            directory,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let mut found = opened
            .and_then(Dir::new)
            .and_then(names)
            .map_err(|error| self.note(directory, error))
            .unwrap_or_default();
        found.sort_unstable();
        found
    }

    /// To be read again and again.
    pub fn open_attribute(&self, device: &OwnedFd, attribute: &str) -> Option<OwnedFd> {
        openat(device, attribute, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    /// Whether a loop device has a file behind it.
    pub fn is_attached(&self, name: &str) -> bool {
        rustix::fs::statat(&self.directory, format!("{name}/loop"), AtFlags::empty()).is_ok()
    }

    pub fn has(&self, device: &OwnedFd, path: &str) -> bool {
        rustix::fs::statat(device, path, AtFlags::empty()).is_ok()
    }

    /// The last part of what a link points to.
    pub fn link(&self, device: &OwnedFd, link: &str) -> Option<String> {
        let target = rustix::fs::readlinkat(device, link, Vec::new()).ok()?.into_string().ok()?;
        target.rsplit('/').next().map(str::to_owned)
    }
}

fn remedy(host: &HostRoot) -> String {
    let (path, root) = (host.sys_class_block(), host.root().display());
    format!(
        "listing {}: check that {root} is the node's root and that /sys is mounted there and may be read",
        path.display()
    )
}

fn names(dir: Dir) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in dir {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && !name.starts_with('.')
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// What the kernel says in a device's `uevent` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uevent {
    pub number: Option<DevNumber>,
    pub is_partition: bool,
    pub diskseq: Option<u64>,
    pub partition_number: Option<u32>,
    pub partition_name: Option<String>,
    pub partition_uuid: Option<String>,
}

/// Lines of `KEY=value`; what is not known or has no form is passed over.
pub fn parse_uevent(bytes: &[u8]) -> Uevent {
    let mut found = Uevent::default();
    let (mut major, mut minor) = (None, None);
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
        let (key, value) = (&line[..at], &line[at + 1..]);
        match key {
            b"MAJOR" => major = number(value),
            b"MINOR" => minor = number(value),
            b"DEVTYPE" => found.is_partition = value == b"partition",
            b"DISKSEQ" => found.diskseq = number(value),
            b"PARTN" => found.partition_number = number(value),
            b"PARTNAME" => found.partition_name = printable(value),
            b"PARTUUID" => found.partition_uuid = printable(value),
            _ => {}
        }
    }
    if let (Some(major), Some(minor)) = (major, minor) {
        found.number = Some(DevNumber { major, minor });
    }
    found
}

pub(super) fn number<T: str::FromStr>(bytes: &[u8]) -> Option<T> {
    str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// How often a device was written to: it changes when its content does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writes {
    pub writes: u64,
    pub sectors: u64,
    pub discards: u64,
}

/// Counters of all devices from /proc/diskstats, by kernel name.
pub fn parse_diskstats(bytes: &[u8]) -> impl Iterator<Item = (&str, Writes)> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = str::from_utf8(line).ok()?.split_ascii_whitespace().skip(2);
        let name = fields.next()?;
        Some((name, counters(fields)?))
    })
}

/// The kernel names of all devices that have a size, from /proc/partitions.
pub fn parse_partitions(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes
        .split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| str::from_utf8(line).ok()?.split_ascii_whitespace().nth(3))
}

/// The same from a device's own `stat` file.
pub fn parse_stat(bytes: &[u8]) -> Option<Writes> {
    counters(str::from_utf8(bytes).ok()?.split_ascii_whitespace())
}

fn counters<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<Writes> {
    let writes = fields.nth(4)?.parse().ok()?;
    let sectors = fields.nth(1)?.parse().ok()?;
    // Kernels before 4.18 do not count discards.
    let discards = fields.nth(4).and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(Writes { writes, sectors, discards })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uevent_file_names_the_device() {
        let text = b"MAJOR=259\nMINOR=300\nDEVNAME=nvme0n1p2\nDEVTYPE=partition\nDISKSEQ=9\nPARTN=2\nPARTNAME=my \x1bdata\nPARTUUID=abc\n";
        let found = parse_uevent(text);
        assert_eq!(found.number, Some(DevNumber { major: 259, minor: 300 }));
        assert!(found.is_partition);
        assert_eq!((found.diskseq, found.partition_number), (Some(9), Some(2)));
        assert_eq!(
            (found.partition_name.as_deref(), found.partition_uuid.as_deref()),
            (Some("my \\u{1b}data"), Some("abc"))
        );
        assert_eq!(parse_uevent(b"MAJOR=x\nMINOR=3\nrubbish\n=\n"), Uevent::default());
    }

    #[test]
    fn counters_are_found_in_both_forms() {
        let line = b"   7       0 loop0 604464 34 19619013 92916 22311 81771 40008426 17404 0 77212 112411 292 0 612368384 96 1764 1995\n   8 0 sda 1 2 3 4 5 6 7 8 9 10 11\nshort 1 x\n";
        let found: Vec<_> = parse_diskstats(line).collect();
        assert_eq!(found[0], ("loop0", Writes { writes: 22311, sectors: 40008426, discards: 292 }));
        assert_eq!(found[1], ("sda", Writes { writes: 5, sectors: 7, discards: 0 }));
        assert_eq!(found.len(), 2);
        assert_eq!(parse_stat(b"  604464 34 19619013 92916 22311 81771 40008426 17404 0 77212 112411 292 0 1 2 3 4\n"), Some(found[0].1));
        assert_eq!(parse_stat(b""), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_no_parser_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse_uevent(&bytes);
            parse_stat(&bytes);
            parse_diskstats(&bytes).count();
        }
    }
}
