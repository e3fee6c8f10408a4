//! The two ioctls that empty a range of a block device (linux/fs.h).

use rustix::{
    fd::AsFd,
    io::Result,
    ioctl::{self, Opcode, Setter, opcode},
};
use std::ops::Range;

const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);

/// The device may forget these bytes; what is read there afterwards is its own affair.
pub fn discard(device: impl AsFd, range: &Range<u64>) -> Result<()> {
    let range = [range.start, range.end.saturating_sub(range.start)];
    // SAFETY: the kernel reads two u64, start and length, and checks them against the device.
    unsafe { ioctl::ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new(range)) }
}

/// These bytes are zero afterwards, by whatever way the device has for that.
pub fn zero_out(device: impl AsFd, range: &Range<u64>) -> Result<()> {
    let range = [range.start, range.end.saturating_sub(range.start)];
    // SAFETY: the kernel reads two u64, start and length, and checks them against the device.
    unsafe { ioctl::ioctl(device, Setter::<BLKZEROOUT, [u64; 2]>::new(range)) }
}
