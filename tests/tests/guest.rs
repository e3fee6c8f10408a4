//! The guest tier: other kernels, other hardware. Root; one or two tests at a time.
//!
//! Run by `scripts/test-tiers`; what it boots is made by `scripts/guest`. Oracles are the tools inside the guests.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and look at real files"
)]
#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

#[path = "guest/binary.rs"]
mod binary;
#[path = "guest/cluster.rs"]
mod cluster;
#[path = "guest/device_claims.rs"]
mod device_claims;
#[path = "guest/device_claims_moved.rs"]
mod device_claims_moved;
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

/// A web server on the loopback that says hello to everybody, until this process ends.
fn answering_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A guest that was cut off in mid-request is none of this server's business.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            );
        }
    });
    address
}

/// The command in a guest that asks a web server for its page.
fn get(address: &str) -> String {
    format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {}", address.replace(':', " "))
}

/// How many processes of this machine work in this folder.
fn processes_in(folder: &Path) -> usize {
    processes()
        .filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder))
        .count()
}

/// How many processes of this machine name this file in their arguments.
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
