//! Reading the node: block devices and what is on them, partition tables, who uses what.
//!
//! Never writes, starts no process. Parsers take bytes; files are opened here, below the host root.
//! Next to read: `scan.rs` (every device of the node), then `probe.rs` (what is on one); `loops.rs` and `users.rs`
//! serve the volumes.

mod desk;
pub mod details;
mod gauges;
pub mod gpt;
mod holes;
pub(crate) mod image;
pub mod link;
pub mod loops;
mod merge;
pub mod mounts;
pub mod owners;
mod pool;
pub mod probe;
pub mod scan;
pub mod sysfs;
pub mod udev;
pub mod users;
pub mod vpd;
mod wide;

#[cfg(test)]
mod tests;

pub use scan::{Limits, Scan, Scanned, Scanner};
