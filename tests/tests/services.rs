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

// Tests begin in the order of their names. The one real machine is the longest part: it begins first.
#[path = "services/raid_software.rs"]
mod agent_raid_software;
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
#[path = "services/provision.rs"]
mod provision;
#[path = "services/raid_alone.rs"]
mod raid_alone;
#[path = "services/raid_hardware.rs"]
mod raid_hardware;
#[path = "services/raid_kills.rs"]
mod raid_kills;
#[path = "services/record.rs"]
mod record;
#[path = "services/record_raid.rs"]
mod record_raid;
