//! Asking a device for one page in a way that the process can be ended in.
//!
//! A direct read sleeps where no signal reaches it, and so does a process that closes a device with a buffered read under way:
//! an agent with one dead disk could not be stopped. A read through io_uring belongs to the kernel; the thread that
//! waits for it can be ended at any time, and the descriptor is closed when the read is over, by the thread that is left. What
//! follows the first page goes the same way, all parts at once: one sleep for a device instead of one for each part.

use io_uring::{IoUring, opcode, types};
use rustix::{
    fd::{AsRawFd, OwnedFd},
    io::Errno,
};
use std::{cell::RefCell, io, ops::Range, thread, time::Duration};

/// As direct reads want it.
#[repr(align(4096))]
struct Page([u8; 4096]);

struct InterruptibleReader {
    ring: IoUring,
    page: Box<Page>,
}

thread_local! {
    /// One for each probing thread, made when it is first needed. A thread that waits for ever keeps its own.
    static READER: RefCell<Option<InterruptibleReader>> = const { RefCell::new(None) };
}

/// How many parts are read at a time.
const MAX_READS: usize = 8;
/// The kernel takes a larger one apart, for which it needs a thread of its own.
const LONGEST: usize = 512 << 10;

/// A part of a device and where in a buffer it goes; both begin where a page does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRange {
    pub offset: u64,
    pub place: Range<usize>,
}

/// Reads all parts into the buffer, from a descriptor that is open for direct reads. After an error nothing is known of
/// what the buffer holds: a caller that needs the cause reads part by part.
pub fn read_all(device: &OwnedFd, buffer: &mut [u8], wanted: &[ReadRange]) -> io::Result<()> {
    let pieces: Vec<ReadRange> = wanted.iter().flat_map(pieces).collect();
    with_ring(|reader| {
        pieces.chunks(MAX_READS).try_for_each(|some| reader.read_some(device, buffer, some))
    })
}

fn pieces(wanted: &ReadRange) -> impl Iterator<Item = ReadRange> {
    let ReadRange { offset, place } = wanted.clone();
    place.clone().step_by(LONGEST).map(move |at| ReadRange {
        offset: offset + (at - place.start) as u64,
        place: at..place.end.min(at + LONGEST),
    })
}

/// Reads the page at `offset` of a descriptor that is open for direct reads; returns when the device has answered.
///
/// `Unsupported` where the kernel or its administrator does not allow io_uring.
pub fn read_page(device: &OwnedFd, offset: u64) -> io::Result<()> {
    with_ring(|reader| reader.read(device, offset))
}

fn with_ring<T>(work: impl FnOnce(&mut InterruptibleReader) -> io::Result<T>) -> io::Result<T> {
    READER.with_borrow_mut(|slot| {
        let reader = match slot {
            Some(reader) => reader,
            None => {
                let ring = IoUring::new(MAX_READS as u32)
                    .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
                slot.insert(InterruptibleReader { ring, page: Box::new(Page([0; 4096])) })
            }
        };
        let answered = work(reader);
        if answered.is_err() {
            // Whatever it was, the next device gets a ring on which nothing is left.
            *slot = None;
        }
        answered
    })
}

impl InterruptibleReader {
    fn read(&mut self, device: &OwnedFd, offset: u64) -> io::Result<()> {
        let read = opcode::Read::new(types::Fd(device.as_raw_fd()), self.page.0.as_mut_ptr(), 4096)
            .offset(offset)
            .build();
        // SAFETY: descriptor and page outlive the read: `wait` returns only when it has completed.
        unsafe { self.ring.submission().push(&read) }
            .map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        self.wait(
            1,
            |_, result| {
                if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
            },
        )
    }

    /// At most as many as the ring has room for.
    fn read_some(
        &mut self,
        device: &OwnedFd,
        buffer: &mut [u8],
        some: &[ReadRange],
    ) -> io::Result<()> {
        for (index, ReadRange { offset, place }) in some.iter().enumerate() {
            let Some(part) = buffer.get_mut(place.clone()) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let length = u32::try_from(part.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            let read = opcode::Read::new(types::Fd(device.as_raw_fd()), part.as_mut_ptr(), length)
                .offset(*offset)
                .build()
                .user_data(index as u64);
            // SAFETY: descriptor and buffer outlive the read: `wait` returns only when all have completed, and nothing
            // is submitted before it.
            unsafe { self.ring.submission().push(&read) }
                .map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        }
        self.wait(some.len(), |index, result| {
            let whole = usize::try_from(index)
                .ok()
                .and_then(|index| some.get(index))
                .map(|part| part.place.len());
            if usize::try_from(result).ok() == whole {
                Ok(())
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        })
    }

    /// Submits what was pushed and returns when `count` reads have completed, whatever happens: until then the kernel
    /// writes into memory that belongs to them.
    fn wait(&mut self, count: usize, judge: impl Fn(u64, i32) -> io::Result<()>) -> io::Result<()> {
        let (mut left, mut answer) = (count, Ok(()));
        while left > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                // Short of memory, or of room for completions: the reads are taken up or end all the same.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            for completion in self.ring.completion() {
                left = left.saturating_sub(1);
                answer = answer.and(judge(completion.user_data(), completion.result()));
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_answers_and_what_cannot_be_read_says_so() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        match read_page(&OwnedFd::from(file), 4096) {
            Ok(()) => {}
            // Not allowed on this machine: the probe reads another way.
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
        let directory = OwnedFd::from(std::fs::File::open("/").unwrap());
        let refused = read_page(&directory, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ISDIR.raw_os_error()), "{refused}");
        // Parts of a file, one of them longer than one read; and one that is not there.
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 512) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        let file = OwnedFd::from(file);
        let mut buffer = vec![0; 2 << 20];
        let wanted = |offset: u64, place: Range<usize>| ReadRange { offset, place };
        let parts: Vec<ReadRange> =
            [wanted(0, 0..(1 << 20) + 4096), wanted(2 << 20, 1052672..1052672 + 512)]
                .into_iter()
                .chain((0..12).map(|number| {
                    wanted(
                        (number + 4) << 16,
                        1060864 + number as usize * 4096..1064960 + number as usize * 4096,
                    )
                }))
                .collect();
        read_all(&file, &mut buffer, &parts).unwrap();
        for part in &parts {
            assert!(
                buffer[part.place.clone()]
                    == bytes[part.offset as usize..part.offset as usize + part.place.len()],
                "{part:?}"
            );
        }
        assert!(read_all(&file, &mut buffer, &[wanted(3 << 20, 0..4096)]).is_err());
        // The ring of the failed one is gone, the next one works.
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        read_page(&OwnedFd::from(file), 0).unwrap();
    }
}
