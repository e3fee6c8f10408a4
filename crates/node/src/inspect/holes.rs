//! Where the file behind a loop device holds nothing: those bytes are zero, and need not be read to be known.
//!
//! For looking alone, never for proof: what is about to be published or was just erased is read, byte by byte
//! (`Certainty::Prove`). Only for plain files on file systems that are known to tell holes apart from data that is still in
//! memory; for all others everything counts as data.

use super::probe::Question;
use crate::sys::{self, DevNumber};
use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, SeekFrom, fstat, fstatfs, open, seek},
    io::Errno,
};
use std::ops::Range;

/// ext2 to ext4, XFS, Btrfs, tmpfs.
const HONEST: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

const PAGE: u64 = 4096;
const MOST: usize = 8;

pub struct Holes {
    file: OwnedFd,
    length: u64,
}

impl Holes {
    /// `None` when it is not known.
    pub fn of(question: &Question, device: &OwnedFd) -> Option<Self> {
        let path = question.backing.as_ref()?;
        let backing = sys::loop_backing(device).ok()??;
        if backing.offset != 0 || backing.rdevice != DevNumber::NONE {
            return None;
        }
        let path = question.host.at(question.host.on_node(path));
        let file = open(
            &path,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
            Mode::empty(),
        )
        .ok()?;
        let stat = fstat(&file).ok()?;
        let is_it = stat.st_ino == backing.inode
            && DevNumber::from_stat(stat.st_dev) == backing.device
            && FileType::from_raw_mode(stat.st_mode).is_file();
        #[allow(
            clippy::cast_sign_loss,
            clippy::useless_conversion,
            reason = "a number of the kernel's, of another type on other machines"
        )]
        let kind = fstatfs(&file).ok()?.f_type as u64;
        if !is_it || !HONEST.contains(&kind) {
            return None;
        }
        // What was written to the device and is still in its cache is not in the file yet.
        sys::write_cached(device).ok()?;
        Some(Holes { file, length: u64::try_from(stat.st_size).ok()? })
    }

    /// The pieces of this part of the device that may hold something, page by page; `None` when that is not known.
    pub fn data(&self, range: &Range<u64>) -> Option<Vec<Range<u64>>> {
        if range.end > self.length {
            return None;
        }
        let mut pieces: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let begin = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(begin) if begin < range.end => begin / PAGE * PAGE,
                // From here on there is nothing: to the end of this part, or of the file.
                Ok(_) | Err(Errno::NXIO) => break,
                Err(_) => return None,
            };
            let end = seek(&self.file, SeekFrom::Hole(begin.max(at)))
                .ok()?
                .next_multiple_of(PAGE)
                .min(range.end);
            let begin = begin.max(at);
            match pieces.last_mut() {
                Some(last) if begin <= last.end => last.end = end,
                _ => pieces.push(begin..end),
            }
            at = end;
        }
        // Many small reads cost more than one large one.
        (pieces.len() <= MOST).then_some(pieces)
    }
}
