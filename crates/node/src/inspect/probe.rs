//! What is on one device, and whether it is held. The only part of a scan that opens devices; read-only.
//!
//! Runs on a thread of its own (`pool.rs`), because any step here may hang with the device. One pass: one page
//! first, in a way that leaves a thread whose device does not answer in a sleep which a signal can end (`sys::interruptible_read`;
//! plain direct reads are not killable); then head, tail and a few spots, directly into one buffer. All zero is blank.
//! Otherwise libblkid sees those bytes through a sparse file in memory, or the device itself where that could differ.
//! Next to read: `image.rs`.

use super::{details::Traits, holes::Holes, image::Image, loops, node_tables::shown};
use crate::{
    host_root::HostRoot,
    sys::{self, Backing, DevNumber, blkid},
};
use quarry_core::device::{Content, ExclusiveOpen, Found, sanitize::printable};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, MemfdFlags, Mode, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, memfd_create},
    io::Errno,
};
use std::{
    fs, io,
    ops::DerefMut,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What a probe needs to know of its device.
#[derive(Clone, Debug)]
pub struct Question {
    pub host: Arc<HostRoot>,
    pub name: String,
    pub number: DevNumber,
    pub diskseq: Option<u64>,
    pub size: u64,
    pub traits: Traits,
    /// Whether an exclusive open may be tried.
    pub exclusively: bool,
    /// The file behind a loop device, as the kernel spells it.
    pub backing: Option<PathBuf>,
    pub certainty: Certainty,
    /// Whether the lines of its partition table are wanted.
    pub lines: bool,
}

/// How certain an answer has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// For showing: what the kernel says to be a hole is taken for zeros.
    Look,
    /// Before something is done: every byte that counts is read, however long that takes.
    Prove,
}

/// What a probe found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResult {
    /// It went away meanwhile, or is another one now: nothing here counts.
    pub gone: bool,
    pub exclusive_open: ExclusiveOpen,
    pub content: Content,
    pub serial: Option<String>,
    pub backing: Option<LoopFile>,
    pub lines: Vec<blkid::Entry>,
}

/// The file behind a loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopFile {
    pub backing: Backing,
    /// `path#inode#birth`, if the file is still where the kernel says.
    pub identity: Option<String>,
}

/// `image` is asked for only when the device has answered: one that hangs holds no buffer.
pub fn probe<I: DerefMut<Target = Image>>(
    question: &Question,
    image: impl FnOnce() -> I,
) -> ProbeResult {
    let mut probed = ProbeResult::default();
    let device = match open(question, &mut probed) {
        Ok(Some(device)) => device,
        Ok(None) => return probed,
        Err(error) => {
            refuse(question, &mut probed, error);
            return probed;
        }
    };
    if question.size == 0 {
        return probed;
    }
    match content(question, &device, image) {
        Ok((content, lines)) => (probed.content, probed.lines) = (content, lines),
        Err(error) => refuse(question, &mut probed, error),
    }
    // What has been read counts only if it is still that device's: a loop may be over another file by now.
    if check(question, &device, &mut probed) {
        if question.traits.asks_serial {
            let attribute = question.host.sys_block(&question.name).join("serial");
            probed.serial = fs::read(attribute).ok().and_then(|bytes| printable(&bytes));
        }
        if question.backing.is_some() {
            probed.backing = loop_file(question, &device);
        }
    }
    probed
}

/// The device, opened for reading; `None` when there is nothing to read and `probed` says why.
fn open(question: &Question, probed: &mut ProbeResult) -> Result<Option<OwnedFd>, Errno> {
    let node = question.host.dev(&question.name.replace('!', "/"));
    let open = |more: OFlags| {
        rustix::fs::open(&node, OFlags::RDONLY | OFlags::CLOEXEC | more, Mode::empty())
    };
    if question.traits.optical {
        let device = open(OFlags::NONBLOCK)?;
        if let Ok(false) = sys::has_disc(&device) {
            probed.content = Content::NoMedium;
            return Ok(None);
        }
        return Ok(check(question, &device, probed).then_some(device));
    }
    if question.exclusively {
        // Closed again at once: a process that mounts or claims the device now must not fail because of us.
        probed.exclusive_open = match open(OFlags::EXCL) {
            Ok(_) => ExclusiveOpen::Free,
            Err(Errno::BUSY) => ExclusiveOpen::Exclusively,
            Err(error) => return Err(error),
        };
    }
    let device = open(OFlags::empty())?;
    Ok(check(question, &device, probed).then_some(device))
}

/// Whether the node in /dev is this device, and still the same disk.
fn check(question: &Question, device: &OwnedFd, probed: &mut ProbeResult) -> bool {
    let number = rustix::fs::fstat(device).map(|stat| DevNumber::from_stat(stat.st_rdev));
    if number != Ok(question.number) {
        *probed = ProbeResult {
            content: Content::Unreadable(format!(
                "the node /dev/{} is another device",
                question.name.replace('!', "/")
            )),
            ..ProbeResult::default()
        };
        return false;
    }
    probed.gone = match (question.diskseq, sys::disk_sequence(device)) {
        (Some(expected), Ok(found)) => expected != found,
        _ => false,
    };
    !probed.gone
}

fn refuse(question: &Question, probed: &mut ProbeResult, error: Errno) {
    let still_there = || question.host.sys_block(&question.name).join("dev").exists();
    match error {
        Errno::ACCESS | Errno::PERM => probed.content = Content::NotPermitted,
        Errno::NOMEDIUM => probed.content = Content::NoMedium,
        Errno::NOENT | Errno::NXIO | Errno::NODEV if !still_there() => probed.gone = true,
        Errno::NOENT => {
            probed.content = Content::Unreadable(format!(
                "there is no node /dev/{}",
                question.name.replace('!', "/")
            ));
        }
        error => {
            probed.content = Content::Unreadable(
                printable(io::Error::from(error).to_string().as_bytes()).unwrap_or_default(),
            )
        }
    }
}

fn content<I: DerefMut<Target = Image>>(
    question: &Question,
    device: &OwnedFd,
    image: impl FnOnce() -> I,
) -> Result<(Content, Vec<blkid::Entry>), Errno> {
    await_answer(device, question.size);
    let sector = sys::sector_size(device)?;
    let mut image = image();
    let holes = match question.certainty {
        Certainty::Look => Holes::of(question, device),
        Certainty::Prove => None,
    };
    image.take_some(device, question.size, |range| holes.as_ref()?.data(range))?;
    let content = if image.is_zero() {
        // The same answer as libblkid's. Every signature that it knows holds bytes other than zero, at a fixed place;
        // all those places are in the head, the tail or a spot (`image::spots`), which the tests check against it.
        Content::Blank
    } else {
        let answer = match image.ask(sector) {
            Some(answer) if !question.traits.unlike_a_file => answer,
            _ => blkid::ask(device, question.size, sector)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
        };
        found(answer, image.is_blank())
    };
    let lines = match &content {
        Content::Found(Found { table: Some(_), .. }) if question.lines => {
            blkid::table(device, question.size, sector).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    Ok((content, lines))
}

/// Waits for the device to answer at all, in a sleep that a signal can end. What it answers is of no interest here.
///
/// A page from the middle, past the cache: a process that has the device open (a file system, a scanner) keeps its beginning
/// there, and an answer from memory says nothing about the device.
fn await_answer(device: &OwnedFd, size: u64) {
    let at = size / 2 / 4096 * 4096;
    let direct =
        fcntl_getfl(device).and_then(|flags| fcntl_setfl(device, flags | OFlags::DIRECT)).is_ok();
    match sys::interruptible_read::read_page(device, at) {
        // Any error of the read is an answer, too.
        Err(error) if error.kind() == io::ErrorKind::Unsupported || !direct => {}
        _ => return,
    }
    // Without io_uring: a buffered read can be ended as well, though the last one to close the device waits for it.
    if let Ok(flags) = fcntl_getfl(device) {
        let _ = fcntl_setfl(device, flags - OFlags::DIRECT);
    }
    let mut page = [0; 4096];
    let _ = rustix::fs::fadvise(
        device,
        at,
        std::num::NonZero::new(page.len() as u64),
        rustix::fs::Advice::DontNeed,
    );
    let _ = rustix::io::pread(device, &mut page, at);
}

/// `blank`: first and last MiB are zero.
fn found(answer: blkid::Answer, blank: bool) -> Content {
    let text = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| printable(&bytes));
    match answer {
        blkid::Answer::Nothing if blank => Content::Blank,
        blkid::Answer::Nothing => Content::UnknownData,
        blkid::Answer::One(values) => Content::Found(Found {
            fs_type: text(values.fs_type),
            uuid: text(values.uuid),
            label: text(values.label),
            table: text(values.table),
            ambivalent: Vec::new(),
        }),
        blkid::Answer::Ambivalent(types) => {
            let types: Vec<String> = types.iter().filter_map(|found| printable(found)).collect();
            Content::Found(Found {
                fs_type: types.first().cloned(),
                ambivalent: types,
                ..Found::default()
            })
        }
    }
}

/// The content of a block device that is open for reading, every byte that counts read (`Certainty::Prove`). libblkid
/// reads the device itself: nothing is known here that would allow it a copy.
pub(crate) fn prove_content(device: &OwnedFd, size: u64) -> io::Result<Content> {
    await_answer(device, size);
    let sector = sys::sector_size(device)?;
    let mut image = Image::new();
    image.take(device, size)?;
    if image.is_zero() {
        return Ok(Content::Blank);
    }
    blkid::ask(device, size, sector).map(|answer| found(answer, image.is_blank()))
}

/// What a device that holds these bytes would be said to hold.
pub fn parse_content(bytes: &[u8]) -> io::Result<Content> {
    let device = memfd_create("quarry-content", MemfdFlags::CLOEXEC)?;
    let (size, sector) = (bytes.len() as u64, 512);
    rustix::fs::ftruncate(&device, size)?;
    rustix::io::pwrite(&device, bytes, 0)?;
    let mut image = Image::new();
    image.take(&device, size)?;
    if image.is_zero() {
        return Ok(Content::Blank);
    }
    match image.ask(sector) {
        Some(answer) => Ok(found(answer, image.is_blank())),
        None => blkid::ask(&device, size, sector).map(|answer| found(answer, image.is_blank())),
    }
}

/// By inode, not by path alone: the file at that path may be another one by now.
fn loop_file(question: &Question, device: &OwnedFd) -> Option<LoopFile> {
    let backing = sys::loop_backing(device).ok()??;
    let text = fs::read(question.host.sys_block(&question.name).join("loop/backing_file")).ok()?;
    let (path, deleted) = loops::parse_backing_file(&text);
    let path = question.host.on_node(&path);
    let identity = (!deleted && backing.rdevice == DevNumber::NONE)
        .then(|| identity(question, &path, &backing))
        .flatten();
    Some(LoopFile { backing, identity })
}

fn identity(question: &Question, path: &Path, backing: &Backing) -> Option<String> {
    let file = question.host.at(path);
    let stat = rustix::fs::statx(
        rustix::fs::CWD,
        &file,
        AtFlags::empty(),
        StatxFlags::INO | StatxFlags::BTIME,
    )
    .ok()?;
    let device = DevNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
    if stat.stx_ino != backing.inode || device != backing.device {
        return None;
    }
    // Not every file system remembers when a file was made.
    let knows = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let birth = if knows {
        format!("{}.{:09}", stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
    } else {
        "-".to_owned()
    };
    Some(format!("{}#{}#{birth}", shown(path), stat.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_is_what_has_zeros_at_both_ends_whatever_lies_between() {
        const MIB: usize = 1 << 20;
        let with = |at: usize| {
            let mut bytes = vec![0; 16 * MIB];
            bytes[at] = 1;
            parse_content(&bytes).unwrap()
        };
        for inside in [2 * MIB + 5, 4 * MIB, 16 * MIB - 3087 * 512, MIB, 8 * MIB] {
            assert_eq!(with(inside), Content::Blank, "a byte at {inside}");
        }
        for end in [5000, MIB - 1, 15 * MIB, 16 * MIB - 1] {
            assert_eq!(with(end), Content::UnknownData, "a byte at {end}");
        }
    }
}
