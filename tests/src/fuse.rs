//! A read-only FUSE file system whose content is computed when it is asked for: the part of the
//! kernel's protocol (linux/fuse.h, 7.31) that listing directories and reading links and files needs.
//!
//! The kernel's end is standard input: who mounts it opens /dev/fuse and passes it on. Nothing is
//! cached, neither here nor by the kernel. One request at a time.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::AsFd,
};

pub use rustix::io::Errno;

pub type Answer<T> = Result<T, Errno>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File { size: u64 },
    Link,
}

impl Kind {
    /// The type and permissions of `st_mode`.
    fn mode(self) -> u32 {
        match self {
            Kind::Directory => 0o040_555,
            Kind::File { .. } => 0o100_444,
            Kind::Link => 0o120_777,
        }
    }
}

/// What is shown; paths are relative to the root, without empty parts.
pub trait FileSystem {
    fn kind(&mut self, path: &[&str]) -> Answer<Kind>;
    fn link(&mut self, path: &[&str]) -> Answer<String>;
    fn file(&mut self, path: &[&str]) -> Answer<Vec<u8>>;
    fn directory(&mut self, path: &[&str]) -> Answer<BTreeMap<String, Kind>>;
}

const REQUEST_HEADER: usize = 40;
/// At least what the kernel may send: a header, and a write of `MAX_WRITE` bytes.
const BUFFER: usize = 1 << 18;
const MAX_WRITE: u32 = 1 << 16;

/// Until the file system is unmounted.
pub fn serve(file_system: &mut impl FileSystem) {
    let kernel = std::io::stdin();
    let mut session =
        Session { file_system, nodes: Nodes::default(), open: HashMap::new(), next: 1 };
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = match rustix::io::read(kernel.as_fd(), &mut buffer) {
            Ok(length) => length,
            // Interrupted before it was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(Errno::NODEV) => return,
            Err(error) => panic!("reading a request: {error}"),
        };
        let request = Request::parse(&buffer[..length]);
        let Some(answer) = session.answer(&request) else { continue };
        let (code, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let mut out = Out::default();
        out.u32(16 + body.len() as u32).u32(code as u32).u64(request.unique);
        out.0.extend(body);
        // The process that asked may be gone: then the kernel refuses the answer.
        let _ = rustix::io::write(kernel.as_fd(), &out.0);
    }
}

struct Request<'a> {
    operation: u32,
    unique: u64,
    node: u64,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        Request {
            operation: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
            node: u64_at(bytes, 16),
            body: &bytes[REQUEST_HEADER..],
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
    u32::from_ne_bytes(four.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|part| part.try_into().ok());
    u64::from_ne_bytes(eight.unwrap_or_default())
}

/// The numbers by which the kernel refers to paths. They are never forgotten: a lab is short.
struct Nodes {
    paths: Vec<Vec<String>>,
    numbers: HashMap<Vec<String>, u64>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes { paths: vec![Vec::new()], numbers: HashMap::from([(Vec::new(), 1)]) }
    }
}

impl Nodes {
    fn path(&self, number: u64) -> Vec<String> {
        // The root is number 1.
        let index = usize::try_from(number).unwrap_or_default().saturating_sub(1);
        self.paths.get(index).cloned().unwrap_or_default()
    }

    fn number(&mut self, path: Vec<String>) -> u64 {
        if let Some(known) = self.numbers.get(&path) {
            return *known;
        }
        self.paths.push(path.clone());
        let number = self.paths.len() as u64;
        self.numbers.insert(path, number);
        number
    }
}

enum Open {
    File(Vec<u8>),
    Directory(Vec<(String, Kind)>),
}

struct Session<'a, F> {
    file_system: &'a mut F,
    nodes: Nodes,
    open: HashMap<u64, Open>,
    next: u64,
}

impl<F: FileSystem> Session<'_, F> {
    /// `None`: the kernel expects no answer.
    fn answer(&mut self, request: &Request<'_>) -> Option<Answer<Vec<u8>>> {
        let path = self.nodes.path(request.node);
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        Some(match request.operation {
            operation::INIT => Ok(greeting()),
            operation::LOOKUP => self.lookup(path.clone(), request.body),
            operation::GETATTR => self.file_system.kind(&parts).map(|kind| {
                let mut out = Out::default();
                out.u64(0).u32(0).u32(0).attributes(request.node, kind);
                out.0
            }),
            operation::READLINK => self.file_system.link(&parts).map(String::into_bytes),
            operation::OPEN => {
                self.file_system.file(&parts).map(|text| self.keep(Open::File(text)))
            }
            operation::OPENDIR => self.list(&parts).map(|list| self.keep(Open::Directory(list))),
            operation::READ => self.read(request.body),
            operation::READDIR => self.read_directory(&path, request.body),
            operation::RELEASE | operation::RELEASEDIR => {
                self.open.remove(&u64_at(request.body, 0));
                Ok(Vec::new())
            }
            operation::STATFS => Ok(statistics()),
            operation::FORGET | operation::INTERRUPT | operation::BATCH_FORGET => return None,
            _ => Err(Errno::NOSYS),
        })
    }

    fn lookup(&mut self, mut path: Vec<String>, name: &[u8]) -> Answer<Vec<u8>> {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        path.push(String::from_utf8_lossy(name).into_owned());
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        let kind = self.file_system.kind(&parts)?;
        let number = self.nodes.number(path);
        let mut out = Out::default();
        // Valid for no time at all.
        out.u64(number).u64(0).u64(0).u64(0).u32(0).u32(0).attributes(number, kind);
        Ok(out.0)
    }

    fn list(&mut self, parts: &[&str]) -> Answer<Vec<(String, Kind)>> {
        Ok(self.file_system.directory(parts)?.into_iter().collect())
    }

    /// What an open file or directory contains is computed once.
    fn keep(&mut self, open: Open) -> Vec<u8> {
        const DIRECT_IO: u32 = 1;
        let handle = self.next;
        self.next += 1;
        self.open.insert(handle, open);
        let mut out = Out::default();
        out.u64(handle).u32(DIRECT_IO).u32(0);
        out.0
    }

    fn read(&mut self, body: &[u8]) -> Answer<Vec<u8>> {
        let (handle, from, size) = (u64_at(body, 0), u64_at(body, 8), u32_at(body, 16));
        let Some(Open::File(text)) = self.open.get(&handle) else { return Err(Errno::BADF) };
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
        let to = from.saturating_add(size as usize).min(text.len());
        Ok(text[from..to].to_vec())
    }

    fn read_directory(&mut self, path: &[String], body: &[u8]) -> Answer<Vec<u8>> {
        let (handle, from, size) = (u64_at(body, 0), u64_at(body, 8), u32_at(body, 16));
        if from == 0 {
            // Also after a rewind: a new listing.
            let parts: Vec<&str> = path.iter().map(String::as_str).collect();
            let list = self.list(&parts)?;
            self.open.insert(handle, Open::Directory(list));
        }
        let Some(Open::Directory(list)) = self.open.get(&handle) else { return Err(Errno::BADF) };
        let mut out = Out::default();
        for (position, (name, kind)) in list.iter().enumerate().skip(from as usize) {
            let number = self.nodes.number([path, std::slice::from_ref(name)].concat());
            let mut entry = Out::default();
            entry
                .u64(number)
                .u64(position as u64 + 1)
                .u32(name.len() as u32)
                .u32(kind.mode() >> 12);
            entry.0.extend(name.as_bytes());
            entry.0.resize(entry.0.len().next_multiple_of(8), 0);
            if out.0.len() + entry.0.len() > size as usize {
                break;
            }
            out.0.extend(entry.0);
        }
        Ok(out.0)
    }
}

fn greeting() -> Vec<u8> {
    let mut out = Out::default();
    let (major, minor, readahead, flags) = (7, 31, MAX_WRITE, 0);
    out.u32(major).u32(minor).u32(readahead).u32(flags);
    let (background, congestion) = (16u32, 12u32);
    // Two numbers of 16 bits each.
    out.u32(background | congestion << 16).u32(MAX_WRITE);
    let time_granularity = 1;
    let (max_pages, map_alignment) = (16u32, 0u32);
    out.u32(time_granularity).u32(max_pages | map_alignment << 16);
    out.0.resize(64, 0);
    out.0
}

fn statistics() -> Vec<u8> {
    let mut out = Out::default();
    out.u64(0).u64(0).u64(0).u64(0).u64(0);
    let (block, name_length) = (4096, 255);
    out.u32(block).u32(name_length).u32(block);
    out.0.resize(80, 0);
    out.0
}

#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn attributes(&mut self, number: u64, kind: Kind) -> &mut Self {
        let size = match kind {
            Kind::File { size } => size,
            Kind::Directory | Kind::Link => 0,
        };
        self.u64(number).u64(size).u64(0);
        // Three times, their nanoseconds.
        self.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        let (links, user, group, device, block, flags) = (1, 0, 0, 0, 4096, 0);
        self.u32(kind.mode()).u32(links).u32(user).u32(group).u32(device).u32(block).u32(flags)
    }
}

/// The requests that are answered, by their numbers in linux/fuse.h.
mod operation {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const READLINK: u32 = 5;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
}
