//! Parsers of /proc/PID/mountinfo and /proc/swaps.
//!
//! Both are bytes, not text: a mount point may hold any byte but NUL. Blanks in them are written in octal.

use crate::sys::DevNumber;
use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub device: DevNumber,
    pub at: PathBuf,
    pub fs: String,
    pub source: PathBuf,
}

/// Lines that do not have the kernel's form are skipped: none are known.
pub fn parse_mountinfo(bytes: &[u8]) -> Vec<Mount> {
    bytes.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

// 36 35 98:0 /mnt1 /mnt/parent rw,noatime master:1 - ext3 /dev/root rw,errors=continue
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let at = fields.nth(1)?;
    fields.by_ref().find(|field| *field == b"-")?;
    let fs = fields.next()?;
    let source = fields.next()?;
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    Some(Mount {
        device: DevNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        at: path(at),
        fs: String::from_utf8_lossy(fs).into_owned(),
        source: path(source),
    })
}

/// The files and devices that are used as swap.
pub fn parse_swaps(bytes: &[u8]) -> Vec<PathBuf> {
    let lines = bytes.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| line.split(|byte| *byte == b' ' || *byte == b'\t').next()).filter(|name| !name.is_empty()).map(path).collect()
}

fn path(escaped: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(escaped)))
}

/// `\040` and its like back into the byte they stand for.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|digits| bytes[at] == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal.map(|digits| digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'))) {
            Some(value @ 0..=255) => {
                plain.push(value as u8);
                at += 4;
            }
            _ => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    #[test]
    fn mounts_are_parsed_as_bytes() {
        let bytes = b"22 1 0:20 / /sys rw shared:7 - sysfs sysfs rw\n\
            300 22 7:3 / /mnt/a\\040b\\134\xff rw,relatime shared:1 master:2 - xfs /dev/loop3 rw\n\
            nonsense\n\
            301 22 259:300 /sub /x rw - ext4 /dev/nvme0n1p9 rw\n";
        let mounts = parse_mountinfo(bytes);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[1].device, DevNumber { major: 7, minor: 3 });
        assert_eq!(mounts[1].at.as_os_str(), OsStr::from_bytes(b"/mnt/a b\\\xff"));
        assert_eq!((mounts[1].fs.as_str(), mounts[2].device.minor), ("xfs", 300));
    }

    #[test]
    fn swaps_are_parsed_without_their_heading() {
        let text =
            b"Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n/dev/loop3                              partition\t102396\t0\t-2\n/swap\\040file file 1 0 -3\n";
        assert_eq!(parse_swaps(text), [PathBuf::from("/dev/loop3"), PathBuf::from("/swap file")]);
        assert!(parse_swaps(b"").is_empty());
    }
}
