//! Every decision that Quarry makes, as pure functions.
//!
//! Owns: planners, checkers, the agent's step functions, invariants. Never does I/O, reads no clock, starts
//! no task, draws no random number: time and world come in as arguments, plans come out as values.
//! Next to read: `volume/mod.rs` (a controller's planner), `job/mod.rs` and `storage/sparse.rs` (tasks and their steps),
//! `agent_schedule.rs` (when an agent does what).

pub mod agent_daemon_set;
pub mod agent_schedule;
pub mod backoff;
pub mod bare_metal_host;
pub mod device;
pub mod device_claim;
pub mod device_set;
pub mod discovery;
pub mod event;
pub mod host_join;
pub mod host_rival;
pub mod inventory_room;
pub mod job;
pub mod mkfs_options;
pub mod node_inventory;
pub mod node_job;
pub mod node_selector;
pub mod packed;
pub mod precondition;
pub mod presence;
pub mod quarantine;
pub mod source;
pub mod storage;
pub mod unmanaged_pv;
pub mod violation;
pub mod volume;
