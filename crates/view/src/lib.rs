//! What CLI and console show, as serializable values: devices, sets, plans, volumes, hosts, OSDs
//! and explanations.
//!
//! Owns: which rows a table has, which checks an explanation has, and their wording. Every value is built by a pure
//! function over a `quarry_core::source::Source` (the operator's caches, or a `Snapshot` that a client listed), or over
//! facts that the caller read on this machine. Never does: layout, colors, terminal escapes (the CLI does), writes.
//! Next to read: `snapshot.rs` (what is read), `devices/mod.rs`, `sets/mod.rs`, `volumes.rs`, `hosts/mod.rs`,
//! `osds/mod.rs`, `explain/mod.rs`.

pub mod devices;
pub mod events;
pub mod explain;
pub mod hosts;
pub mod osds;
pub mod reader;
pub mod sets;
pub mod snapshot;
pub mod text;
pub mod tone;
pub mod volumes;

pub use reader::{Reader, optional};
pub use snapshot::Snapshot;
pub use tone::Tone;
