//! Zeros on a device, and proof of them: direct writes and reads through one descriptor.

use crate::{inspect::image::is_zero, sys::erase};
use rustix::{
    fd::OwnedFd,
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

pub const PAGE: u64 = 4096;
pub const MIB: u64 = 1 << 20;

/// A piece of memory as direct reads and writes want it.
pub struct Buffer {
    bytes: Vec<u8>,
    from: usize,
}

impl Buffer {
    pub fn new() -> Self {
        let bytes = vec![0; (MIB + PAGE) as usize];
        let from = bytes.as_ptr().align_offset(PAGE as usize).min(PAGE as usize);
        Buffer { bytes, from }
    }

    fn slice(&mut self, length: u64) -> &mut [u8] {
        let length = usize::try_from(length.min(MIB)).unwrap_or(MIB as usize);
        &mut self.bytes[self.from..self.from + length]
    }
}

/// Direct, where the device can do that; past the cache, so that what is read is what the device has.
pub struct Direct<'a> {
    device: &'a OwnedFd,
    buffer: Buffer,
}

impl<'a> Direct<'a> {
    pub fn new(device: &'a OwnedFd) -> Self {
        // A device that cannot is written and read as any other file, and synced all the same.
        let _ = fcntl_getfl(device).and_then(|flags| fcntl_setfl(device, flags | OFlags::DIRECT));
        Direct { device, buffer: Buffer::new() }
    }

    /// Overwrites with zeros.
    pub fn zero(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        self.write(range, |piece| {
            piece.fill(0);
            Ok(())
        })
    }

    /// Overwrites with random bytes, in each page some that are not zero.
    pub fn randomize(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        self.write(range, |piece| {
            let mut filled = 0;
            while filled < piece.len() {
                filled += rustix::rand::getrandom(
                    &mut piece[filled..],
                    rustix::rand::GetRandomFlags::empty(),
                )?;
            }
            piece.iter_mut().step_by(PAGE as usize).for_each(|first| *first |= 1);
            Ok(())
        })
    }

    fn write(
        &mut self,
        range: &Range<u64>,
        fill: impl Fn(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            let piece = self.buffer.slice(range.end - at);
            fill(piece)?;
            match rustix::io::pwrite(self.device, piece, at) {
                // A device that is full or shorter than it said.
                Ok(0) => return Err(Errno::NOSPC),
                Ok(written) => at += written as u64,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if is_direct(self.device)? => buffered(self.device)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn is_zero(&mut self, range: &Range<u64>) -> Result<bool, Errno> {
        let mut at = range.start;
        while at < range.end {
            let piece = self.buffer.slice(range.end - at);
            match rustix::io::pread(self.device, &mut *piece, at) {
                Ok(0) => return Err(Errno::IO),
                Ok(read) if !is_zero(&piece[..read]) => return Ok(false),
                Ok(read) => at += read as u64,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if is_direct(self.device)? => buffered(self.device)?,
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        // libblkid reads pieces of any size.
        let _ = buffered(self.device);
    }
}

fn is_direct(device: &OwnedFd) -> Result<bool, Errno> {
    Ok(fcntl_getfl(device)?.contains(OFlags::DIRECT))
}

fn buffered(device: &OwnedFd) -> Result<(), Errno> {
    fcntl_setfl(device, fcntl_getfl(device)? - OFlags::DIRECT)
}

/// The first and the last MiB.
pub fn ends(size: u64) -> [Range<u64>; 2] {
    let head = MIB.min(size);
    [0..head, (size.saturating_sub(MIB) / PAGE * PAGE).max(head)..size]
}

/// Single pages, evenly all over the device.
pub fn spread(size: u64, count: u64) -> impl Iterator<Item = Range<u64>> {
    let step = size / count.max(1);
    (0..count)
        .map(move |index| (index * step + step / 2) / PAGE * PAGE)
        .filter(move |at| at + PAGE <= size)
        .map(|at| at..at + PAGE)
}

/// How large the pieces are in which a whole device is emptied.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub first: u64,
    pub largest: u64,
}

/// A piece takes about this long: progress is seen, and the calls cost nothing.
const SOON: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(1);
const SMALLEST: u64 = 16 * MIB;

/// Empties all of it, piece by piece; `done` hears after each. `Err` with how far it was.
pub fn piecewise(
    size: u64,
    pace: Pace,
    mut empty: impl FnMut(&Range<u64>) -> Result<(), Errno>,
    mut done: impl FnMut(u64),
) -> Result<(), (u64, Errno)> {
    let (mut at, mut piece) = (0, pace.first);
    while at < size {
        let range = at..size.min(at.saturating_add(piece));
        let begun = Instant::now();
        loop {
            match empty(&range) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err((at, error)),
            }
        }
        at = range.end;
        done(at);
        piece = pace.next(piece, begun.elapsed());
    }
    Ok(())
}

impl Pace {
    /// The piece after one that took this long.
    fn next(self, piece: u64, took: Duration) -> u64 {
        match piece {
            small if took < SOON => (small * 2).min(self.largest),
            large if took > LATE => (large / 2).max(SMALLEST.min(self.first)),
            right => right,
        }
    }
}

/// By the device's own way of writing zeros, or by writing them.
pub fn zero_out(device: &OwnedFd, range: &Range<u64>) -> Result<(), Errno> {
    match erase::zero_out(device, range) {
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY) => Direct::new(device).zero(range),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn file(size: u64) -> OwnedFd {
        let fd = memfd_create("zeros-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, size).unwrap();
        let ones = vec![1; usize::try_from(size).unwrap()];
        assert_eq!(rustix::io::pwrite(&fd, &ones, 0).unwrap(), ones.len());
        fd
    }

    #[test]
    fn exactly_the_range_is_zeroed() {
        let fd = file(3 * MIB);
        let mut direct = Direct::new(&fd);
        direct.zero(&(PAGE..2 * MIB + 512)).unwrap();
        assert!(direct.is_zero(&(PAGE..2 * MIB + 512)).unwrap());
        for seen in [0..PAGE + 1, 2 * MIB..2 * MIB + 513, 3 * MIB - 1..3 * MIB] {
            assert!(!direct.is_zero(&seen).unwrap(), "{seen:?}");
        }
        direct.randomize(&(PAGE..2 * PAGE)).unwrap();
        assert!(!direct.is_zero(&(PAGE..2 * PAGE)).unwrap());
        direct.zero(&(PAGE..2 * PAGE)).unwrap();
        assert_eq!(
            direct.is_zero(&(3 * MIB..3 * MIB + 1)),
            Err(Errno::IO),
            "behind the end there is nothing"
        );
        // What is no block device has no such ioctl: written instead.
        zero_out(&fd, &(0..3 * MIB)).unwrap();
        assert!(Direct::new(&fd).is_zero(&(0..3 * MIB)).unwrap());
    }

    #[test]
    fn a_buffer_is_as_long_as_asked_up_to_a_mebibyte_and_on_a_page() {
        let mut buffer = Buffer::new();
        for (asked, length) in
            [(1, 1), (PAGE + 1, PAGE + 1), (MIB, MIB), (MIB + 1, MIB), (u64::MAX, MIB)]
        {
            let slice = buffer.slice(asked);
            assert_eq!((slice.len() as u64, slice.as_ptr() as u64 % PAGE), (length, 0), "{asked}");
        }
    }

    /// A file on a disk, which a direct read or write of odd bytes is refused for.
    #[test]
    fn what_cannot_be_done_directly_is_done_all_the_same() {
        let file = OwnedFd::from(
            tempfile::tempfile_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap(),
        );
        assert_eq!(
            rustix::io::pwrite(&file, &vec![1; 3 * PAGE as usize], 0).unwrap(),
            3 * PAGE as usize
        );
        let direct = Direct::new(&file);
        assert_eq!(is_direct(&file), Ok(true));
        drop(direct);
        assert_eq!(is_direct(&file), Ok(false), "libblkid reads pieces of any size");
        Direct::new(&file).zero(&(PAGE + 1..2 * PAGE - 1)).unwrap();
        assert!(Direct::new(&file).is_zero(&(PAGE + 1..2 * PAGE - 1)).unwrap());
        for seen in [PAGE..PAGE + 1, 2 * PAGE - 1..2 * PAGE] {
            assert!(!Direct::new(&file).is_zero(&seen).unwrap(), "{seen:?}");
        }
        // What is refused for another reason is an error, and not tried for ever.
        let nowhere = u64::MAX - 2 * PAGE..u64::MAX - PAGE;
        assert_eq!(
            (Direct::new(&file).is_zero(&nowhere), Direct::new(&file).zero(&nowhere)),
            (Err(Errno::INVAL), Err(Errno::INVAL))
        );
    }

    #[test]
    fn probed_places_are_where_they_should_be() {
        assert_eq!(ends(10 * MIB + 512), [0..MIB, 9 * MIB..10 * MIB + 512]);
        assert_eq!(ends(MIB + 512), [0..MIB, MIB..MIB + 512]);
        assert_eq!(ends(512), [0..512, 512..512]);
        let page = |at: u64| at..at + PAGE;
        assert_eq!(
            spread(64 * MIB, 4).collect::<Vec<_>>(),
            [page(8 * MIB), page(24 * MIB), page(40 * MIB), page(56 * MIB)]
        );
        assert_eq!(spread(3 * PAGE + 512, 1).collect::<Vec<_>>(), [page(PAGE)]);
        assert_eq!(
            spread(PAGE, 2).collect::<Vec<_>>(),
            [page(0), page(0)],
            "what fills the device is inside"
        );
        assert_eq!(spread(PAGE - 1, 2).count(), 0);
        assert_eq!(spread(MIB, 0).count(), 0);
    }

    #[test]
    fn pieces_grow_and_shrink_with_the_time_that_they_take() {
        let pace = Pace { first: 64 * MIB, largest: 256 * MIB };
        let millis = Duration::from_millis;
        for (piece, took, next) in [
            (64 * MIB, millis(249), 128 * MIB),
            (64 * MIB, millis(250), 64 * MIB),
            (64 * MIB, millis(1000), 64 * MIB),
            (64 * MIB, millis(1001), 32 * MIB),
            (20 * MIB, millis(1001), 16 * MIB),
            (256 * MIB, millis(1), 256 * MIB),
        ] {
            assert_eq!(pace.next(piece, took), next, "{piece} {took:?}");
        }
        assert_eq!(
            Pace { first: MIB, largest: MIB }.next(MIB, millis(1001)),
            MIB,
            "no smaller than the first"
        );
    }

    #[test]
    fn an_error_says_how_far_it_was() {
        let pace = Pace { first: MIB, largest: MIB };
        let mut seen = Vec::new();
        let failed = piecewise(
            10 * MIB,
            pace,
            |range| if range.start < 3 * MIB { Ok(()) } else { Err(Errno::IO) },
            |at| seen.push(at),
        );
        assert_eq!((failed, seen), (Err((3 * MIB, Errno::IO)), vec![MIB, 2 * MIB, 3 * MIB]));
    }

    proptest! {
        #[test]
        fn all_of_it_once_and_in_order(size in 0u64..1 << 40, first in 1u64..1 << 34) {
            let mut next = 0;
            let mut whole = true;
            piecewise(size, Pace { first, largest: 1 << 36 }, |range| { whole &= range.start == next && range.end > range.start; next = range.end; Ok(()) }, |_| {}).unwrap();
            prop_assert!(whole && next == size);
        }

        #[test]
        fn ends_and_samples_are_inside(size in 512u64..1 << 44) {
            let [head, tail] = ends(size);
            prop_assert!(head.start == 0 && head.end <= tail.start && tail.end == size);
            prop_assert!(size < 2 * MIB || size - tail.start >= MIB);
            prop_assert!(spread(size, 64).all(|page| page.end <= size && page.start % PAGE == 0));
        }
    }
}
