//! The guest tier: other kernels, other hardware. Needs root; runs one or two tests at a time.
//!
//! Run by `scripts/test-tiers`; `scripts/guest` builds what it boots. The expected results come
//! from the tools inside the guests.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and read real files"
)]
#![allow(clippy::unwrap_used, reason = "a helper that fails also fails its test")]

#[path = "guest/binary.rs"]
mod binary;
#[path = "guest/cluster.rs"]
mod cluster;
#[path = "guest/device_claims.rs"]
mod device_claims;
#[path = "guest/device_claims_moved.rs"]
mod device_claims_moved;
#[path = "guest/discard.rs"]
mod discard;
#[path = "guest/hardware.rs"]
mod hardware;
#[path = "guest/hotplug.rs"]
mod hotplug;
#[path = "guest/multipath.rs"]
mod multipath;
#[path = "guest/nodes.rs"]
mod nodes;
#[path = "guest/oracle.rs"]
mod oracle;
#[path = "guest/qemu.rs"]
mod qemu;
#[path = "guest/stack.rs"]
mod stack;
#[path = "guest/uml.rs"]
mod uml;
#[path = "guest/volumes.rs"]
mod volumes;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    thread,
};

/// A web server on the loopback that replies hello to every request, until this process exits.
fn hello_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A guest may be disconnected during a request; ignore that.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            );
        }
    });
    address
}

/// The command in a guest that requests the page of a web server.
fn get(address: &str) -> String {
    format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {}", address.replace(':', " "))
}

/// Number of processes on this machine whose working directory is this one.
fn processes_in(dir: &Path) -> usize {
    processes()
        .filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == dir))
        .count()
}

/// Number of processes on this machine with this file in their arguments.
fn processes_of(file: &Path) -> usize {
    let name = file.to_string_lossy().into_owned();
    processes()
        .filter(|process| {
            fs::read(process.join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&name))
        })
        .count()
}

fn processes() -> impl Iterator<Item = std::path::PathBuf> {
    fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path())
}
