//! Reading the node: block devices and what is on them, partition tables, who uses what.
//!
//! Never writes, starts no process. Parsers take bytes; files are opened here, below the host root.
//! Next to read: `scan.rs` (every device of the node), then `probe.rs` (what is on one); `loops.rs` and
//! `device_users.rs` serve the volumes.

mod detail_reader;
pub mod details;
pub mod device_users;
pub mod gpt;
mod holes;
pub(crate) mod image;
pub mod link_read;
pub mod loops;
mod merge;
pub mod mounts;
mod node_tables;
mod open_attrs;
mod pool;
pub mod probe;
mod relations;
pub mod scan;
pub mod sysfs;
pub mod udev;
pub mod unmanaged_pvs;
pub mod vpd;

#[cfg(test)]
mod tests;

pub use scan::{Limits, Scan, ScanResult, Scanner};
