//! The disk tier: the agent's NodeOps on real files, loop devices, udev and mkfs. Needs root; runs
//! one test at a time.
//!
//! Run by `scripts/test-tiers`, which starts a udev daemon on machines without one. The expected
//! results come from the system's tools: losetup, blkid, sgdisk, mount.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and read real files"
)]
#![allow(clippy::unwrap_used, reason = "a helper that fails also fails its test")]

#[path = "disk/agent.rs"]
mod agent;
#[path = "disk/contention.rs"]
mod contention;
#[path = "disk/crash.rs"]
mod crash;
#[path = "disk/device_claims.rs"]
mod device_claims;
#[path = "disk/device_claims_end_to_end.rs"]
mod device_claims_end_to_end;
#[path = "disk/device_claims_records.rs"]
mod device_claims_records;
#[path = "disk/device_claims_withdrawn.rs"]
mod device_claims_withdrawn;
#[path = "disk/devices.rs"]
mod devices;
#[path = "disk/devices_content.rs"]
mod devices_content;
#[path = "disk/devices_hung.rs"]
mod devices_hung;
#[path = "disk/devices_shared.rs"]
mod devices_shared;
#[path = "disk/devices_use.rs"]
mod devices_use;
#[path = "disk/end_to_end.rs"]
mod end_to_end;
#[path = "disk/exported_file.rs"]
mod exported_file;
#[path = "disk/failures.rs"]
mod failures;
#[path = "disk/hotplug.rs"]
mod hotplug;
#[path = "disk/kills.rs"]
mod kills;
#[path = "disk/known_devices.rs"]
mod known_devices;
#[path = "disk/lifecycle.rs"]
mod lifecycle;
#[path = "disk/refusal.rs"]
mod refusal;
#[path = "disk/wipe.rs"]
mod wipe;
#[path = "disk/wipe_live.rs"]
mod wipe_live;
#[path = "disk/wipe_points.rs"]
mod wipe_points;
