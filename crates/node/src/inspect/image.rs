//! The parts of a device that say what it is, in memory: read once, and shown to libblkid as a sparse file.
//!
//! libblkid on the device makes 45 small buffered reads, each of which costs as much as reading a megabyte directly.
//! A file in memory that holds only the pages with something in them gives the same answer for formats that keep
//! everything it reports in those parts; for all others the answer here is "ask the device".

use crate::sys::{
    self,
    blkid::{self, Answer, Values},
    interruptible_read::{ReadRange, read_all},
};
use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create},
    io::Errno,
};
use std::{iter, ops::Range};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const LARGE_PAGE: usize = 2 << 20;
/// The first MiB, and the page behind it: VMFS and the last but two LUKS2 headers begin at 1 MiB.
const HEAD: u64 = MIB + PAGE;
/// Two labels of ZFS and the page behind them: libblkid looks everywhere in there, and at nothing between it and 1 MiB.
const START: u64 = 2 * LABEL + PAGE;
/// A label of ZFS: two at the beginning of a device, two at its end, which lies on a multiple of this.
const LABEL: u64 = 256 << 10;
/// In the second half of each label, one a KiB. libblkid wants to see several.
const UBERBLOCK: u64 = 0x00ba_b10c;

/// What libblkid reports of these lies whole in head, tail and spots: superblock, UUID and label.
const WHOLE: &[&str] = &[
    "ext2",
    "ext3",
    "ext4",
    "jbd",
    "xfs",
    "btrfs",
    "f2fs",
    "swap",
    "swsuspend",
    "LVM2_member",
    "linux_raid_member",
    "crypto_LUKS",
    "zfs_member",
    "bcache",
    "ceph_bluestore",
    "squashfs",
    "erofs",
    "jfs",
    "reiserfs",
    "nilfs2",
];

/// Made once for a scan and used for one device after another.
pub struct Image {
    buffer: Vec<u8>,
    /// Where the buffer's first large page begins: direct reads want it to be a page.
    aligned: usize,
    parts: Vec<Part>,
    /// Zero wherever no part was read.
    sparse: Vec<Range<u64>>,
    size: u64,
    file: Option<OwnedFd>,
}

/// Which bytes of the device are where in the buffer.
struct Part {
    device: u64,
    buffer: Range<usize>,
}

/// Single pages outside head and tail where libblkid looks.
///
/// 1 MiB: VMFS, a LUKS2 header. 2 MiB: the same. 4 MiB: the last LUKS2 header. 3087 sectors before the end: Promise
/// FastTrak.
fn spots(size: u64) -> impl Iterator<Item = u64> {
    [
        Some(MIB),
        Some(2 * MIB),
        Some(4 * MIB),
        size.checked_sub(3087 * 512).map(|at| at / PAGE * PAGE),
    ]
    .into_iter()
    .flatten()
}

/// Where the last two labels of ZFS begin on a device of this size.
fn last_labels(size: u64) -> u64 {
    (size / LABEL * LABEL).saturating_sub(2 * LABEL)
}

/// What is read of a device of this size after its start, in order and apart from each other.
///
/// `blank`: the start holds nothing, so the first and the last MiB are read whole. Otherwise the device is not blank
/// whatever else is on it, and only libblkid's places matter: half as many bytes.
fn ranges(size: u64, blank: bool) -> Vec<Range<u64>> {
    let start = START.min(size);
    let head = if blank { HEAD.min(size) } else { start };
    let tail = if blank { size.saturating_sub(MIB) / PAGE * PAGE } else { last_labels(size) };
    let mut spots: Vec<u64> = spots(size).filter(|at| *at >= head && at + PAGE <= tail).collect();
    spots.sort_unstable();
    spots.dedup();
    let (head_range, tail_range) = (start..head, tail.max(head)..size);
    let all = [head_range]
        .into_iter()
        .chain(spots.into_iter().map(|at| at..at + PAGE))
        .chain([tail_range]);
    all.filter(|range| !range.is_empty()).collect()
}

/// Everything that is ever read of a device of this size: whatever is there is erased with a quick wipe.
pub fn probed_ranges(size: u64) -> Vec<Range<u64>> {
    iter::once(0..START.min(size)).chain(ranges(size, true)).collect()
}

impl Image {
    pub fn new() -> Self {
        let length = (HEAD + MIB + 6 * PAGE) as usize;
        // Begins where a large page does: a direct read into one costs a third less than into 512 small ones. What is
        // in front of it is never touched and costs nothing.
        let mut buffer = vec![0; length + LARGE_PAGE];
        let aligned = buffer.as_ptr().align_offset(LARGE_PAGE).min(LARGE_PAGE);
        sys::prefer_a_large_page(&mut buffer[aligned..aligned + LARGE_PAGE]);
        Image { buffer, aligned, parts: Vec::new(), sparse: Vec::new(), size: 0, file: None }
    }

    /// Reads the parts of the device, past its page cache.
    pub fn take(&mut self, device: &OwnedFd, size: u64) -> Result<(), Errno> {
        self.take_some(device, size, |_| None)
    }

    /// As `take`, but of a part of which `data` knows where something may be only that: the rest is zero.
    pub fn take_some(
        &mut self,
        device: &OwnedFd,
        size: u64,
        data: impl Fn(&Range<u64>) -> Option<Vec<Range<u64>>>,
    ) -> Result<(), Errno> {
        self.parts.clear();
        self.sparse.clear();
        self.size = size;
        // A device that cannot do direct reads is read as any other file.
        let direct = fcntl_getfl(device)
            .and_then(|flags| fcntl_setfl(device, flags | OFlags::DIRECT))
            .is_ok();
        self.add(device, iter::once(0..START.min(size)), &data, direct)?;
        self.add(device, ranges(size, self.is_zero()), &data, direct)?;
        if direct {
            fcntl_getfl(device).and_then(|flags| fcntl_setfl(device, flags - OFlags::DIRECT))?;
        }
        Ok(())
    }

    /// The next parts of the device, all at once where that can be done.
    fn add(
        &mut self,
        device: &OwnedFd,
        ranges: impl IntoIterator<Item = Range<u64>>,
        data: impl Fn(&Range<u64>) -> Option<Vec<Range<u64>>>,
        direct: bool,
    ) -> Result<(), Errno> {
        let ranges: Vec<Range<u64>> = ranges
            .into_iter()
            .flat_map(|range| {
                let pieces = data(&range);
                if pieces.is_some() {
                    self.sparse.push(range.clone());
                }
                pieces.unwrap_or_else(|| vec![range])
            })
            .collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let first = self.parts.len();
        for range in ranges {
            let at = self.parts.last().map_or(self.aligned, |part| {
                part.buffer.start + part.buffer.len().next_multiple_of(PAGE as usize)
            });
            let length = (range.end - range.start) as usize;
            self.parts.push(Part { device: range.start, buffer: at..at + length });
        }
        let wanted: Vec<ReadRange> = self.parts[first..]
            .iter()
            .map(|part| ReadRange { offset: part.device, place: part.buffer.clone() })
            .collect();
        // A last part that ends within a page may be too short for a direct read.
        let whole = wanted.iter().all(|part| part.place.len().is_multiple_of(PAGE as usize));
        if direct && whole && read_all(device, &mut self.buffer, &wanted).is_ok() {
            return Ok(());
        }
        for ReadRange { offset, place } in wanted {
            self.fill(
                device,
                place.start,
                place.len().next_multiple_of(PAGE as usize),
                place.len(),
                offset,
            )?;
        }
        Ok(())
    }

    /// `length` bytes of the device into the buffer; `room` is what there is place for, so that the last, short page
    /// can be asked for whole.
    fn fill(
        &mut self,
        device: &OwnedFd,
        at: usize,
        room: usize,
        length: usize,
        offset: u64,
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < length {
            match rustix::io::pread(
                device,
                &mut self.buffer[at + done..at + room],
                offset + done as u64,
            ) {
                // Shorter than the kernel said: not the device that was asked about.
                Ok(0) => return Err(Errno::IO),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if fcntl_getfl(device)?.contains(OFlags::DIRECT) => {
                    fcntl_setfl(device, fcntl_getfl(device)? - OFlags::DIRECT)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn is_zero(&self) -> bool {
        self.parts
            .iter()
            .all(|part| self.buffer[part.buffer.clone()].chunks(PAGE as usize).all(is_zero))
    }

    /// Whether first and last MiB are zero, whatever is at the spots between them.
    pub fn is_blank(&self) -> bool {
        let tail = self.size.saturating_sub(MIB);
        self.parts.iter().all(|part| {
            let sectors = self.buffer[part.buffer.clone()].chunks(512).enumerate();
            sectors
                .map(|(index, sector)| (part.device + index as u64 * 512, sector))
                .all(|(at, sector)| (at >= MIB && at < tail) || is_zero(sector))
        })
    }

    /// libblkid's answer, if it is certain to be the one that it would give for the device.
    pub fn ask(&mut self, sector: u32) -> Option<Answer> {
        if self.is_optical_format() || self.has_extended_partition() {
            return None;
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => memfd_create("quarry-probe", MemfdFlags::CLOEXEC).ok()?,
        };
        // It reads and copies a whole MiB to look for ZFS.
        let without = if self.may_be_zfs() { None } else { Some(c"zfs_member") };
        let answer = self
            .show(&file)
            .ok()
            .and_then(|()| blkid::ask_without(&file, self.size, sector, without).ok());
        // Gives the pages back and leaves nothing for the next device to be mistaken for its own.
        if ftruncate(&file, 0).is_ok() {
            self.file = Some(file);
        }
        answer.filter(|answer| match answer {
            Answer::Nothing | Answer::Ambivalent(_) => false,
            Answer::One(Values { fs_type: Some(fs_type), .. }) => {
                WHOLE.iter().any(|known| known.as_bytes() == fs_type)
            }
            Answer::One(Values { table, .. }) => matches!(table.as_deref(), Some(b"gpt" | b"dos")),
        })
    }

    fn show(&self, file: &OwnedFd) -> Result<(), Errno> {
        ftruncate(file, self.size)?;
        for part in &self.parts {
            let bytes = &self.buffer[part.buffer.clone()];
            let mut at = 0;
            while at < bytes.len() {
                // Neighbours that hold something are written together.
                let pages = bytes[at..].chunks(PAGE as usize);
                let empty = is_zero(&bytes[at..bytes.len().min(at + PAGE as usize)]);
                let length: usize =
                    pages.take_while(|page| is_zero(page) == empty).map(<[u8]>::len).sum();
                let mut rest = if empty { &[][..] } else { &bytes[at..at + length] };
                let mut offset = part.device + at as u64;
                while !rest.is_empty() {
                    let written = rustix::io::pwrite(file, rest, offset)?;
                    (rest, offset) = (&rest[written..], offset + written as u64);
                }
                at += length;
            }
        }
        Ok(())
    }

    /// Of the device, as far as it was read at its beginning.
    fn head(&self, range: Range<usize>) -> &[u8] {
        self.bytes(range.start as u64..range.end as u64)
            .filter(|_| self.size >= START)
            .unwrap_or_default()
    }

    /// Whether an uberblock lies in any of the four labels, in either byte order; also when not all of them were read.
    fn may_be_zfs(&self) -> bool {
        let last = last_labels(self.size);
        let labels = [0, LABEL, last, last + LABEL];
        let mut blocks = labels
            .into_iter()
            .flat_map(|label| (LABEL / 2..LABEL).step_by(1024).map(move |at| label + at));
        blocks.any(|at| match self.bytes(at..at + 8) {
            Some(bytes) => [UBERBLOCK.to_le_bytes(), UBERBLOCK.to_be_bytes()]
                .iter()
                .any(|magic| bytes == magic),
            None => !self.sparse.iter().any(|range| at >= range.start && at + 8 <= range.end),
        })
    }

    /// Of the device, if one part holds them.
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let part = self.parts.iter().find(|part| {
            range.start >= part.device && range.end <= part.device + part.buffer.len() as u64
        })?;
        let at = part.buffer.start + (range.start - part.device) as usize;
        self.buffer.get(at..at + (range.end - range.start) as usize)
    }

    /// ISO 9660 and UDF lead libblkid all over the device, and may lie beside another format.
    fn is_optical_format(&self) -> bool {
        let ids: [&[u8]; 6] = [b"CD001", b"BEA01", b"NSR02", b"NSR03", b"CDW02", b"BOOT2"];
        (0..32).map(|index| 32768 + index * 2048 + 1).any(|at| ids.contains(&self.head(at..at + 5)))
    }

    /// A chain of tables through the whole disk.
    fn has_extended_partition(&self) -> bool {
        let table = self.head(446..512);
        table.ends_with(&[0x55, 0xaa])
            && table.chunks_exact(16).any(|line| matches!(line[4], 0x05 | 0x0f | 0x85))
    }
}

/// Written so that the compiler compares many bytes at once.
pub fn is_zero(page: &[u8]) -> bool {
    page.iter().fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(size: u64, parts: &[(u64, &[u8])]) -> OwnedFd {
        let fd = memfd_create("image-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, size).unwrap();
        for (offset, bytes) in parts {
            rustix::io::pwrite(&fd, bytes, *offset).unwrap();
        }
        fd
    }

    // invariant: 1
    #[test]
    fn head_tail_and_spots_are_read_and_nothing_else() {
        let size = 64 * MIB + 512;
        let mut image = Image::new();
        for (at, seen) in [
            (0, true),
            (MIB - 1, true),
            (MIB + 4095, true),
            (MIB + 4096, false),
            (2 * MIB + 5, true),
            (3 * MIB, false),
            (4 * MIB + 4095, true),
            (size - 3087 * 512, true),
            (size - MIB - 4096, false),
            (size - MIB, true),
            (size - 1, true),
        ] {
            image.take(&device(size, &[(at, b"x")]), size).unwrap();
            assert_eq!(!image.is_zero(), seen, "a byte at {at}");
        }
    }

    // invariant: 1
    #[test]
    fn answers_that_may_be_incomplete_are_not_given() {
        let size = 16 * MIB;
        let mut image = Image::new();
        let swap: [(u64, &[u8]); 2] =
            [(4086, b"SWAPSPACE2"), (1024, &[1, 0, 0, 0, 0xff, 0x0f, 0, 0])];
        image.take(&device(size, &swap), size).unwrap();
        assert!(
            matches!(image.ask(512), Some(Answer::One(values)) if values.fs_type.as_deref() == Some(b"swap"))
        );
        image.take(&device(size, &[(12345, b"hello")]), size).unwrap();
        assert_eq!(image.ask(512), None, "bytes that nothing explains");
        image.take(&device(size, &[swap[0], swap[1], (32769, b"CD001")]), size).unwrap();
        assert_eq!(image.ask(512), None, "ISO 9660 beside it");
        image.take(&device(size, &swap), size).unwrap();
        assert!(image.ask(512).is_some(), "nothing is left of the device before");
    }

    // invariant: 1
    #[test]
    fn holes_are_zero_whatever_the_buffer_held_before() {
        let size = 16 * MIB;
        let swap: [(u64, &[u8]); 2] =
            [(4086, b"SWAPSPACE2"), (1024, &[1, 0, 0, 0, 0xff, 0x0f, 0, 0])];
        let mut image = Image::new();
        let full = device(size, &[swap[0], swap[1], (32769, b"CD001")]);
        image.take(&full, size).unwrap();
        image.take_some(&full, size, |_| Some(Vec::new())).unwrap();
        assert!(image.is_zero() && image.is_blank());
        // Nothing but a signature near the end, and everything in front of it is a hole.
        let promise = device(size, &[(size - 63 * 512, b"Promise Technology, Inc.")]);
        image.take(&full, size).unwrap();
        image.take_some(&promise, size, |range| (range.end < size).then(Vec::new)).unwrap();
        assert!(
            !image.is_zero()
                && !image.is_blank()
                && !image.is_optical_format()
                && !image.may_be_zfs()
        );
        // A hole that is none is never asked for its bytes, so what says so must be right.
        image.take_some(&full, size, |range| (range.start == 0).then(Vec::new)).unwrap();
        assert!(image.is_zero());
        // In pieces: the same answer as from the whole.
        let pieces = |range: &Range<u64>| {
            Some(if range.start == 0 { vec![0..PAGE, 2 * PAGE..3 * PAGE] } else { Vec::new() })
        };
        let swap = device(size, &swap);
        image.take_some(&swap, size, pieces).unwrap();
        assert!(
            matches!(image.ask(512), Some(Answer::One(values)) if values.fs_type.as_deref() == Some(b"swap"))
        );
    }

    /// A device that holds something at its start is not read whole: nothing that libblkid would see there may be missed.
    #[test]
    fn a_second_signature_is_seen_wherever_libblkid_looks() {
        let swap: [(u64, &[u8]); 2] =
            [(4086, b"SWAPSPACE2"), (1024, &[1, 0, 0, 0, 0xff, 0x0f, 0, 0])];
        let mut image = Image::new();
        for size in [64 * MIB, 64 * MIB + 200 * 1024, 65 * MIB - 512] {
            let mut seconds: Vec<Vec<(u64, &[u8])>> = Vec::new();
            for label in [0, LABEL, last_labels(size), last_labels(size) + LABEL] {
                for magic in
                    [&[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]]
                {
                    seconds.push(
                        (120..128)
                            .map(|number| (label + LABEL / 2 + number * 1024, &magic[..]))
                            .collect(),
                    );
                }
            }
            for sectors in [63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087] {
                seconds.push(vec![(size - sectors * 512, b"Promise Technology, Inc.")]);
            }
            seconds.push(vec![(MIB, &[0x0d, 0xd0, 0x01, 0xc0])]);
            seconds.push(vec![(2 * MIB, &[0x5e, 0xf1, 0xab, 0x2f])]);
            seconds.push(vec![(65600, b"_BHRfS_M")]);
            for second in seconds {
                let both = device(size, &[&swap[..], &second].concat());
                let seen = blkid::ask(&both, size, 512).unwrap();
                assert!(
                    !matches!(&seen, Answer::One(values) if values.fs_type.as_deref() == Some(b"swap"))
                        || second[0].0 == 65600,
                    "{second:?} of {size}: {seen:?}"
                );
                image.take(&both, size).unwrap();
                assert!(!image.is_blank());
                let shown = image.ask(512);
                assert!(
                    shown.is_none() || shown.as_ref() == Some(&seen),
                    "{second:?} of {size}: {shown:?}, and the device: {seen:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn ranges_are_apart_and_cover_both_ends(size in 1u64..12 * MIB) {
            for blank in [true, false] {
                let all: Vec<_> = iter::once(0..START.min(size)).chain(ranges(size, blank)).collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start));
                prop_assert_eq!(all[all.len() - 1].end, size);
                let gaps: Vec<_> = all.windows(2).map(|pair| pair[0].end..pair[1].start).filter(|gap| !gap.is_empty()).collect();
                if blank {
                    prop_assert!(gaps.iter().all(|gap| gap.start >= HEAD && gap.end <= size - MIB));
                }
                for place in spots(size).filter(|at| at + PAGE <= size).chain([last_labels(size)]) {
                    prop_assert!(gaps.iter().all(|gap| place < gap.start || place >= gap.end), "{place} of {size}");
                }
                let total: u64 = all.iter().map(|range| (range.end - range.start).next_multiple_of(PAGE)).sum();
                prop_assert!(total as usize <= Image::new().buffer.len() - LARGE_PAGE);
            }
        }
    }
}
