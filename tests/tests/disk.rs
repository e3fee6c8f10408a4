//! The disk tier: the agent's hands on real files, loop devices, udev, mkfs. Root; one test at a time.
//!
//! Run by `scripts/test-tiers`, which starts a udev daemon where the machine has none. Oracles are the system's own
//! tools: losetup, blkid, sgdisk, mount.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and look at real files"
)]
#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

#[path = "disk/agent.rs"]
mod agent;
#[path = "disk/claims.rs"]
mod claims;
#[path = "disk/claims_story.rs"]
mod claims_story;
#[path = "disk/crash.rs"]
mod crash;
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
#[path = "disk/foreigner.rs"]
mod foreigner;
#[path = "disk/hotplug.rs"]
mod hotplug;
#[path = "disk/life.rs"]
mod life;
#[path = "disk/refusal.rs"]
mod refusal;
#[path = "disk/story.rs"]
mod story;
#[path = "disk/trouble.rs"]
mod trouble;
#[path = "disk/wipe.rs"]
mod wipe;
#[path = "disk/wipe_live.rs"]
mod wipe_live;
#[path = "disk/wipe_points.rs"]
mod wipe_points;
