//! The fixtures that the tiers share.
//!
//! Each tier is one test target (`tests/disk.rs`, `tests/cluster.rs`), run by `scripts/test-tiers`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and look at real files"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a fixture that cannot go on fails its test"
)]

pub mod device_claim;
pub mod disk;
pub mod guest;
pub mod hooked_node;
pub mod lab;
pub mod parity;
pub mod process;
