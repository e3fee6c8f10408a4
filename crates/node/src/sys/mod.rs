//! What has no safe wrapper elsewhere: loop and partition ioctls, a child that dies with us, waiting for a descriptor.
//!
//! The only module of the crate with `unsafe`. Owns the kernel's structs and numbers (linux/loop.h, linux/blkpg.h);
//! decides nothing. `blkid.rs` is the binding to libblkid, `memory.rs` keeps the process small. Next to read: `act/attach.rs`.
#![expect(
    unsafe_code,
    reason = "ioctls by hand, work between fork and exec, a descriptor handed to tokio, C libraries"
)]

pub mod blkid;
pub mod erase;
pub mod interruptible_read;
mod memory;

pub use memory::{give_memory_back, keep_memory_small, prefer_a_large_page};

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    io::Result,
    ioctl::{self, Getter, IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, opcode},
};
use std::{
    ffi::{c_int, c_uint, c_void},
    os::unix::process::CommandExt,
    process::Command,
};
use tokio::io::{Interest, unix::AsyncFd};

const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_GET_STATUS64: Opcode = 0x4C05;
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_REMOVE: Opcode = 0x4C81;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const BLKROSET: Opcode = opcode::none(0x12, 93);
const BLKROGET: Opcode = opcode::none(0x12, 94);
const BLKPG: Opcode = opcode::none(0x12, 105);
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
const BLKSSZGET: Opcode = opcode::none(0x12, 104);
const BLKGETDISKSEQ: Opcode = opcode::read::<u64>(0x12, 128);
const CDROM_DRIVE_STATUS: Opcode = 0x5326;
const LO_FLAGS_PARTSCAN: u32 = 8;
const LO_NAME_SIZE: usize = 64;

#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LO_NAME_SIZE],
    crypt_name: [u8; LO_NAME_SIZE],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl LoopInfo64 {
    const ZERO: LoopInfo64 = LoopInfo64 {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; LO_NAME_SIZE],
        crypt_name: [0; LO_NAME_SIZE],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    number: i32,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

#[repr(C)]
struct BlkpgArgument {
    operation: i32,
    flags: i32,
    length: i32,
    data: *mut BlkpgPartition,
}

/// Major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevNumber {
    pub major: u32,
    pub minor: u32,
}

impl DevNumber {
    pub const NONE: DevNumber = DevNumber { major: 0, minor: 0 };

    /// From `st_dev` or `st_rdev`.
    pub fn from_stat(dev: u64) -> Self {
        DevNumber { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) }
    }

    /// From `8:16`, as sysfs writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(DevNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// From the kernel's own encoding, which is not the C library's for large minors.
    fn from_kernel(dev: u64) -> Self {
        DevNumber {
            major: ((dev & 0xfff00) >> 8) as u32,
            minor: ((dev & 0xff) | ((dev >> 12) & 0xfff00)) as u32,
        }
    }
}

/// What a loop device is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The file system that holds the backing file.
    pub device: DevNumber,
    pub inode: u64,
    /// The device that the backing file itself is, `NONE` for a plain file.
    pub rdevice: DevNumber,
    /// Where in the file the device begins.
    pub offset: u64,
}

/// The number of a loop device that was free a moment ago; the kernel makes one if there is none.
pub fn loop_get_free(control: impl AsFd) -> Result<u32> {
    // SAFETY: the ioctl takes no argument and answers with a number.
    unsafe { ioctl::ioctl(control, Returned::<LOOP_CTL_GET_FREE>) }
}

/// Takes the device of this number away. EBUSY: it is over a file, or another process has it open.
pub fn loop_remove(control: impl AsFd, number: u32) -> Result<()> {
    // SAFETY: the argument is a number; nothing is read or written through it.
    unsafe { ioctl::ioctl(control, IntegerSetter::<LOOP_CTL_REMOVE>::new_usize(number as usize)) }
}

/// Puts the loop device over `file`. EBUSY: another process took it since.
pub fn loop_configure(
    device: impl AsFd,
    file: impl AsFd,
    partitions: bool,
    name: &[u8],
) -> Result<()> {
    let mut info = LoopInfo64::ZERO;
    info.flags = if partitions { LO_FLAGS_PARTSCAN } else { 0 };
    let kept = name.len().min(LO_NAME_SIZE - 1);
    info.file_name[..kept].copy_from_slice(&name[..kept]);
    let fd = file.as_fd().as_raw_fd() as u32;
    let config = LoopConfig { fd, block_size: 0, info, reserved: [0; 8] };
    // SAFETY: LoopConfig is linux/loop.h's loop_config; the kernel only reads it, and takes its own reference to the file.
    unsafe { ioctl::ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// Lets go of the backing file; with other openers the kernel does it when the last of them closes.
pub fn loop_clear(device: impl AsFd) -> Result<()> {
    // SAFETY: the ioctl takes no argument.
    unsafe { ioctl::ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }
}

/// `None` when nothing is attached.
pub fn loop_backing(device: impl AsFd) -> Result<Option<Backing>> {
    // SAFETY: LoopInfo64 is linux/loop.h's loop_info64, which the kernel fills in; every bit pattern is valid.
    match unsafe { ioctl::ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo64>::new()) } {
        Ok(info) => Ok(Some(Backing {
            device: DevNumber::from_kernel(info.device),
            inode: info.inode,
            rdevice: DevNumber::from_kernel(info.rdevice),
            offset: info.offset,
        })),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes what is in the cache of a block device to it, and waits. Needs no right to write, and does not wait for the
/// medium: a later read of the device, past the cache, sees it all.
pub fn write_cached(device: impl AsFd) -> Result<()> {
    const WAIT_BEFORE_WRITE_AND_WAIT: c_uint = 1 | 2 | 4;
    // SAFETY: takes a descriptor and numbers; from 0 for 0 bytes means all of it.
    match unsafe { sync_file_range(device.as_fd().as_raw_fd(), 0, 0, WAIT_BEFORE_WRITE_AND_WAIT) } {
        0 => Ok(()),
        _ => Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error())
            .unwrap_or(rustix::io::Errno::IO)),
    }
}

unsafe extern "C" {
    fn sync_file_range(fd: c_int, offset: i64, length: i64, flags: c_uint) -> c_int;
}

/// The size of a block device in bytes.
pub fn block_size(device: impl AsFd) -> Result<u64> {
    // SAFETY: the kernel writes one u64, whatever the size in the number says.
    unsafe { ioctl::ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// The size of its logical sectors in bytes.
pub fn sector_size(device: impl AsFd) -> Result<u32> {
    // SAFETY: the kernel writes one int.
    unsafe { ioctl::ioctl(device, Getter::<BLKSSZGET, u32>::new()) }
}

/// Which disk this is among all that the kernel has seen; older kernels do not know.
pub fn disk_sequence(device: impl AsFd) -> Result<u64> {
    // SAFETY: the kernel writes one u64.
    unsafe { ioctl::ioctl(device, Getter::<BLKGETDISKSEQ, u64>::new()) }
}

/// Whether there is a disc in an optical drive. Asked before reading: an open for reading would close its tray.
pub fn has_disc(device: impl AsFd) -> Result<bool> {
    // SAFETY: without a pointer the ioctl asks for the current slot and answers with a number.
    unsafe { ioctl::ioctl(device, Returned::<CDROM_DRIVE_STATUS>) }.map(|status| status == 4)
}

pub fn is_read_only(device: impl AsFd) -> Result<bool> {
    // SAFETY: the kernel writes one int.
    unsafe { ioctl::ioctl(device, Getter::<BLKROGET, i32>::new()) }.map(|flag| flag != 0)
}

pub fn set_writable(device: impl AsFd) -> Result<()> {
    // SAFETY: the kernel reads one int.
    unsafe { ioctl::ioctl(device, Setter::<BLKROSET, i32>::new(0)) }
}

/// Adds a partition to the kernel's table; offsets in bytes.
pub fn add_partition(device: impl AsFd, number: i32, start: i64, length: i64) -> Result<()> {
    blkpg(device, 1, number, start, length)
}

/// EBUSY while a process has the partition open.
pub fn delete_partition(device: impl AsFd, number: i32) -> Result<()> {
    blkpg(device, 2, number, 0, 0)
}

fn blkpg(device: impl AsFd, operation: i32, number: i32, start: i64, length: i64) -> Result<()> {
    let mut partition =
        BlkpgPartition { start, length, number, device_name: [0; 64], volume_name: [0; 64] };
    let size = size_of::<BlkpgPartition>() as i32;
    let argument = BlkpgArgument { operation, flags: 0, length: size, data: &raw mut partition };
    // SAFETY: both structs are linux/blkpg.h's; `partition` outlives the call, which only reads it.
    unsafe { ioctl::ioctl(device, Setter::<BLKPG, BlkpgArgument>::new(argument)) }
}

/// The child is killed when the thread that starts it ends, however that happens.
///
/// The thread, not the process: the caller must be a thread that lives as long as the agent.
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // A parent that died before the call above sends no signal any more.
        if rustix::process::getppid() != Some(parent) {
            return Err(std::io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes two system calls and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// For tokio to wait until the descriptor can be read, or has news.
pub fn wait_for(fd: OwnedFd, what: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open and stays the same descriptor for as long as AsyncFd owns it.
    unsafe { AsyncFd::register_with_interest(fd, what) }.map_err(|error| error.into_parts().1)
}

/// An ioctl without argument whose answer is its return value.
struct Returned<const OPCODE: Opcode>;

// SAFETY: no pointer is passed, and the output is the plain return value.
unsafe impl<const OPCODE: Opcode> Ioctl for Returned<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<u32> {
        u32::try_from(output).map_err(|_| rustix::io::Errno::RANGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_have_the_kernels_size() {
        assert_eq!(size_of::<LoopInfo64>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
        assert_eq!(size_of::<BlkpgPartition>(), 152);
        assert_eq!(size_of::<BlkpgArgument>(), 24);
    }

    #[test]
    fn large_device_numbers_are_decoded() {
        assert_eq!(DevNumber::from_kernel(0x0712), DevNumber { major: 7, minor: 0x12 });
        assert_eq!(DevNumber::from_kernel(0x0010_0701), DevNumber { major: 7, minor: 0x101 });
    }
}
