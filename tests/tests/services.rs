//! The services tier: real Ironic with emulated BMCs and one real machine. Needs root.
//!
//! Run by `scripts/test-tiers` inside the lab of `scripts/services-lab`, several tests at a time: each
//! has a system of its own. Modules named `…alone` contain the tests that use `Lab::alone`; they run
//! last, one at a time, instead of keeping the others waiting.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and read real files"
)]
#![allow(clippy::unwrap_used, reason = "a helper that fails also fails its test")]

#[path = "services/hosts.rs"]
mod hosts;
#[path = "services/hosts_alone.rs"]
mod hosts_alone;
#[path = "services/hosts_faults.rs"]
mod hosts_faults;
#[path = "services/hosts_hardware.rs"]
mod hosts_hardware;
#[path = "services/lab.rs"]
mod lab;
#[path = "services/lab_alone.rs"]
mod lab_alone;
#[path = "services/lab_faults.rs"]
mod lab_faults;
#[path = "services/pivot.rs"]
mod pivot;
#[path = "services/record.rs"]
mod record;
#[path = "services/record_raid.rs"]
mod record_raid;
