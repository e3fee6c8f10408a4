//! Every decision that Quarry makes, as pure functions.
//!
//! Owns: planners, checkers, the agent's step functions, invariants. Never does I/O, reads no clock, starts
//! no task, draws no random number: time and world come in as arguments, plans come out as values.
//! Next to read: `volume/mod.rs` (a controller's planner), `sparse.rs` (an agent's step function).

pub mod agent_set;
pub mod claim;
pub mod device;
pub mod discovery;
pub mod event;
pub mod foreign_pv;
pub mod live;
pub mod mkfs_options;
pub mod node_inventory;
pub mod node_job;
pub mod node_selector;
pub mod presence;
pub mod quarantine;
pub mod sparse;
pub mod volume;
