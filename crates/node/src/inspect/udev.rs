//! udev's database: one file per device, with what its rules found out.
//!
//! Optional everywhere: small systems have none. Only properties that name or describe the device are taken; the
//! file system's type and UUID come from our own probe, because udev's may be minutes old.

use crate::{host_root::HostRoot, sys::DevNumber};
use quarry_core::device::sanitize::printable;
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Mode, OFlags, openat, statat},
};
use std::time::{SystemTime, UNIX_EPOCH};

/// All of it printable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    pub model: Option<String>,
    /// As lsblk chooses it.
    pub serial: Option<String>,
    pub serial_short: Option<String>,
    pub serial_full: Option<String>,
    pub wwn: Option<String>,
    pub wwn_extended: Option<String>,
    pub md_uuid: Option<String>,
    pub partition_uuid: Option<String>,
    pub partition_type: Option<String>,
    pub partition_label: Option<String>,
    /// In sectors of 512 bytes.
    pub partition_start: Option<u64>,
    /// udev has finished with the device.
    pub initialized: bool,
}

/// Shows whether a device's file was written again: udev replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    seconds: i64,
    nanoseconds: u64,
}

/// The directory, if there is one.
pub struct Database(Option<OwnedFd>);

impl Database {
    pub fn open(host: &HostRoot) -> Self {
        Database(
            rustix::fs::open(
                host.udev_data(),
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .ok(),
        )
    }

    /// Of the directory: udev writes a new file and renames it, which changes this. `None` when that was so lately that the
    /// next change may look the same.
    pub fn calm(&self) -> Option<Stamp> {
        let Some(directory) = &self.0 else { return Some(Stamp::default()) };
        let stat = statat(directory, "", AtFlags::EMPTY_PATH).ok()?;
        let now =
            i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
        (now - stat.st_mtime > 1).then_some(Stamp {
            inode: stat.st_ino,
            seconds: stat.st_mtime,
            nanoseconds: stat.st_mtime_nsec,
        })
    }

    pub fn stamp(&self, number: DevNumber) -> Option<Stamp> {
        let stat = statat(self.0.as_ref()?, file(number), AtFlags::empty()).ok()?;
        Some(Stamp { inode: stat.st_ino, seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec })
    }

    pub fn read(&self, number: DevNumber) -> Option<Properties> {
        let opened =
            openat(self.0.as_ref()?, file(number), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .ok()?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::from(opened), &mut bytes).ok()?;
        Some(parse_udev(&bytes))
    }
}

fn file(number: DevNumber) -> String {
    format!("b{}:{}", number.major, number.minor)
}

/// `E:KEY=value` are properties; links, tags and the rest are passed over.
pub fn parse_udev(bytes: &[u8]) -> Properties {
    let mut found = Properties::default();
    let (mut model, mut model_encoded) = (None, None);
    let mut serials: [Option<String>; 4] = Default::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.starts_with(b"I:") {
            found.initialized = true;
        }
        let Some(line) = line.strip_prefix(b"E:") else { continue };
        let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
        let (key, value) = (&line[..at], &line[at + 1..]);
        match key {
            b"ID_MODEL" => model = squeezed(value),
            b"ID_MODEL_ENC" => model_encoded = squeezed(&unhex(value)),
            b"SCSI_IDENT_SERIAL" => serials[0] = squeezed(value),
            b"ID_SCSI_SERIAL" => serials[1] = squeezed(value),
            b"ID_SERIAL_SHORT" => serials[2] = squeezed(value),
            b"ID_SERIAL" => serials[3] = squeezed(value),
            b"ID_WWN" => found.wwn = printable(value),
            b"ID_WWN_WITH_EXTENSION" => found.wwn_extended = printable(value),
            b"MD_UUID" => found.md_uuid = printable(value),
            b"ID_PART_ENTRY_UUID" => found.partition_uuid = printable(value),
            b"ID_PART_ENTRY_TYPE" => found.partition_type = printable(value),
            b"ID_PART_ENTRY_NAME" => found.partition_label = printable(&unhex(value)),
            b"ID_PART_ENTRY_OFFSET" => {
                found.partition_start =
                    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok())
            }
            _ => {}
        }
    }
    found.model = model_encoded.or(model);
    (found.serial_short, found.serial_full) = (serials[2].clone(), serials[3].clone());
    found.serial = serials.into_iter().flatten().next();
    found
}

/// `\x20` back into the byte it stands for.
fn unhex(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        let digits = rest
            .strip_prefix(b"\\x")
            .and_then(|rest| rest.get(..2))
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        match digits
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        {
            Some(byte) => {
                plain.push(byte);
                rest = &rest[4..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// Printable, with single blanks: firmware pads in the middle, too.
fn squeezed(bytes: &[u8]) -> Option<String> {
    let text = printable(bytes)?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn properties_are_taken_as_lsblk_does() {
        let found = parse_udev(
            b"S:disk/by-id/ata-X\nL:10\nI:12345\nE:ID_MODEL=QEMU_HARDDISK\nE:ID_MODEL_ENC=QEMU\\x20\\x20HARDDISK\\x20\\x20\n\
              E:ID_SERIAL=QEMU_HARDDISK_QM1\nE:ID_SERIAL_SHORT=QM1\nE:ID_WWN=0x5000\nE:ID_PART_ENTRY_NAME=a\\x20b\nE:broken\nG:systemd\n",
        );
        assert_eq!(found.model.as_deref(), Some("QEMU HARDDISK"));
        assert_eq!(
            (found.serial.as_deref(), found.serial_full.as_deref()),
            (Some("QM1"), Some("QEMU_HARDDISK_QM1"))
        );
        assert_eq!(
            (found.wwn.as_deref(), found.partition_label.as_deref()),
            (Some("0x5000"), Some("a b"))
        );
        assert!(found.initialized);
        assert_eq!(
            parse_udev(b"E:ID_SERIAL=v\n").serial.as_deref(),
            Some("v"),
            "a virtio disk has no short one"
        );
        assert_eq!(
            parse_udev(b"E:ID_SCSI_SERIAL=s\nE:ID_SERIAL_SHORT=n\n").serial.as_deref(),
            Some("s")
        );
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        for (from, to) in [
            ("a\\x2", "a\\x2"),
            ("\\x", "\\x"),
            ("\\xzz", "\\xzz"),
            ("\\x41\\", "A\\"),
            ("\\x+1", "\\x+1"),
        ] {
            assert_eq!(unhex(from.as_bytes()), to.as_bytes(), "{from}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_it_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in "(E:ID_[A-Z_]{0,20}=[\\\\x0-9a-f ]{0,30}\n){0,5}") {
            parse_udev(&bytes);
            parse_udev(text.as_bytes());
        }
    }
}
