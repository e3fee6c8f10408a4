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

/// One line of mountinfo, its fields still escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub device: DevNumber,
    /// What of the file system is mounted: `/`, or the directory or file of a bind mount.
    pub root: &'a [u8],
    pub at: &'a [u8],
    pub fs: &'a [u8],
    pub source: &'a [u8],
}

/// Lines that do not have the kernel's form are skipped: none are known.
pub fn parse_mountinfo(bytes: &[u8]) -> Vec<Mount> {
    parse_mount_lines(bytes)
        .map(|line| Mount {
            device: line.device,
            at: path(line.at),
            fs: String::from_utf8_lossy(line.fs).into_owned(),
            source: path(line.source),
        })
        .collect()
}

/// The same without copying anything: a node with many pods has thousands of mounts.
pub fn parse_mount_lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    bytes.split(|byte| *byte == b'\n').filter_map(parse_mount)
}

/// The first line that does not have the kernel's form: whatever it says is in use would look free.
pub fn unparsed_mounts(bytes: &[u8]) -> Option<&[u8]> {
    bytes.split(|byte| *byte == b'\n').find(|line| !line.is_empty() && parse_mount(line).is_none())
}

// 36 35 98:0 /mnt1 /mnt/parent rw,noatime master:1 - ext3 /dev/root rw,errors=continue
fn parse_mount(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let root = fields.next()?;
    let at = fields.next()?;
    fields.by_ref().find(|field| *field == b"-")?;
    let fs = fields.next()?;
    let source = fields.next()?;
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    Some(Line {
        device: DevNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        root,
        at,
        fs,
        source,
    })
}

/// File systems that live on another machine, or with its hypervisor.
pub fn is_network(fs: &[u8]) -> bool {
    const KNOWN: [&[u8]; 19] = [
        b"nfs",
        b"nfs4",
        b"cifs",
        b"smb3",
        b"smbfs",
        b"ceph",
        b"9p",
        b"virtiofs",
        b"afs",
        b"lustre",
        b"gfs2",
        b"ocfs2",
        b"fuse.glusterfs",
        b"fuse.sshfs",
        b"beegfs",
        b"gpfs",
        b"orangefs",
        b"panfs",
        b"vboxsf",
    ];
    KNOWN.contains(&fs)
}

/// Where file systems are mounted that another machine or a process serves. A path that leads through
/// one of them may never be walked to its end.
pub fn answered_by_others(bytes: &[u8]) -> Vec<PathBuf> {
    let others = |line: &Line<'_>| {
        is_network(line.fs) || line.fs.starts_with(b"fuse") || line.fs == b"autofs"
    };
    parse_mount_lines(bytes).filter(others).map(|line| path(line.at)).collect()
}

/// The files and devices that are used as swap.
pub fn parse_swaps(bytes: &[u8]) -> Vec<PathBuf> {
    let lines = bytes.split(|byte| *byte == b'\n').skip(1);
    lines
        .filter_map(|line| line.split(|byte| *byte == b' ' || *byte == b'\t').next())
        .filter(|name| !name.is_empty())
        .map(path)
        .collect()
}

/// A field as the path that it stands for.
pub fn path(escaped: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(escaped)))
}

/// `\040` and its like back into the byte they stand for.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|digits| {
            bytes[at] == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d))
        });
        match octal.map(|digits| {
            digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'))
        }) {
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
    use proptest::prelude::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    #[test]
    fn a_path_through_what_others_answer_for_is_known() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:99 / /mnt/dead rw - nfs4 server:/x rw\n\
            31 22 0:98 / /mnt/mine rw - fuse.s3fs s3fs rw\n32 22 0:97 / /net rw - autofs systemd-1 rw\n33 22 0:5 / /dev rw - devtmpfs udev rw\n";
        assert_eq!(
            answered_by_others(table),
            [PathBuf::from("/mnt/dead"), PathBuf::from("/mnt/mine"), PathBuf::from("/net")]
        );
    }

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

    proptest! {
        #[test]
        fn whatever_comes_no_parser_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "([0-9]{1,3} 1 8:1 /[a-z\\\\0-9]{0,9} /x rw - ext4 /dev/sda rw\n){0,4}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                parse_mountinfo(bytes);
                parse_swaps(bytes);
            }
        }
    }

    #[test]
    fn swaps_are_parsed_without_their_heading() {
        let text =
            b"Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n/dev/loop3                              partition\t102396\t0\t-2\n/swap\\040file file 1 0 -3\n";
        assert_eq!(parse_swaps(text), [PathBuf::from("/dev/loop3"), PathBuf::from("/swap file")]);
        assert!(parse_swaps(b"").is_empty());
    }
}
