//! Asking a device for one page in a way that the process can be ended in.
//!
//! A direct read sleeps where no signal reaches it, and so does whoever closes a device with a buffered read under way:
//! an agent with one dead disk could not be stopped. A read through io_uring belongs to the kernel; the thread that
//! waits for it can be ended at any time, and the descriptor is closed when the read is over, by whoever is left.

use io_uring::{IoUring, opcode, types};
use rustix::{
    fd::{AsRawFd, OwnedFd},
    io::Errno,
};
use std::{cell::RefCell, io};

/// As direct reads want it.
#[repr(align(4096))]
struct Page([u8; 4096]);

struct Knocker {
    ring: IoUring,
    page: Box<Page>,
}

thread_local! {
    /// One for each probing thread, made when it is first needed. A thread that waits for ever keeps its own.
    static KNOCKER: RefCell<Option<Knocker>> = const { RefCell::new(None) };
}

/// Reads the page at `offset` of a descriptor that is open for direct reads; returns when the device has answered.
///
/// `Unsupported` where the kernel or its administrator does not allow io_uring.
pub fn knock(device: &OwnedFd, offset: u64) -> io::Result<()> {
    KNOCKER.with_borrow_mut(|slot| {
        let knocker = match slot {
            Some(knocker) => knocker,
            None => {
                let ring = IoUring::new(1).map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
                slot.insert(Knocker { ring, page: Box::new(Page([0; 4096])) })
            }
        };
        let answered = knocker.read(device, offset);
        if answered.is_err() {
            // Whatever it was, the next device gets a ring on which nothing is left.
            *slot = None;
        }
        answered
    })
}

impl Knocker {
    fn read(&mut self, device: &OwnedFd, offset: u64) -> io::Result<()> {
        let read = opcode::Read::new(types::Fd(device.as_raw_fd()), self.page.0.as_mut_ptr(), 4096).offset(offset).build();
        // SAFETY: descriptor and page outlive the read: this function returns only when it has completed, and the page
        // belongs to the thread, which ends no sooner.
        unsafe { self.ring.submission().push(&read) }.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            if let Some(answer) = self.ring.completion().next() {
                return if answer.result() < 0 { Err(io::Error::from_raw_os_error(-answer.result())) } else { Ok(()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_answers_and_what_cannot_be_read_says_so() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        match knock(&OwnedFd::from(file), 4096) {
            Ok(()) => {}
            // Not allowed on this machine: the probe reads another way.
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
        let folder = OwnedFd::from(std::fs::File::open("/").unwrap());
        let refused = knock(&folder, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ISDIR.raw_os_error()), "{refused}");
        // The ring of the failed one is gone, the next one works.
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        knock(&OwnedFd::from(file), 0).unwrap();
    }
}
