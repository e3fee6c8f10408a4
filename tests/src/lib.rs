//! Fixtures shared by the test tiers.
//!
//! Each tier is one test target (`tests/disk.rs`, `tests/cluster.rs`), run by `scripts/test-tiers`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and read real files"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a fixture that fails also fails its test"
)]

pub mod ceph;
pub mod device_claim;
pub mod disk;
pub mod fuse;
pub mod guest;
pub mod hooked_node;
pub mod kwok;
pub mod lab;
pub mod nodes;
pub mod parity;
pub mod process;
pub mod services;
pub mod volume_sets;
