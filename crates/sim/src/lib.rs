//! A deterministic simulator: the real controllers and the real agent, on the embedded API in memory and on simulated
//! disks, with virtual time, and with a fault before or after any API call, disk operation or watch event.
//!
//! Owns schedules, faults, simulated disks, the rest of a cluster, and the checks. Decides nothing that operator or
//! agent decide. A run follows from a story, a seed and its faults, and from nothing else.
//! Next to read: `story.rs` (what happens), `run.rs` (the scheduler), `invariant/mod.rs`, `explore.rs` (every point).

mod admin_client;
mod agent;
mod clock;
mod cluster;
mod device_claim_stories;
mod device_ops;
mod disk;
pub mod explore;
pub mod fault;
mod fault_proxy;
pub mod hosts;
mod invariant;
pub mod ironic;
mod kind;
pub mod many_nodes;
mod node_ops;
mod operator;
mod operators;
pub mod osds;
mod process;
mod pv_stories;
mod random;
mod raw_disks;
mod report;
mod reused_server;
pub mod run;
mod schedule;
mod steps;
pub mod story;
mod versioned;
mod world;

pub use disk::SeededBug;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A simulated crash may unwind past a lock; what it guards is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
