//! Operations on a node, and the agent that drives them.
//!
//! `inspect/` reads the node and never writes. `act/` applies one step at a time and decides nothing: what to do comes
//! from `quarry_core::storage`. `linux/` joins the two behind the traits of `node_ops.rs`, which the simulator
//! implements as well. `job_runner/` runs tasks on them, `agent/` is the loop between them and the Kubernetes API.
//! `unsafe` is in `sys/` alone. Next to read: `node_ops.rs`, `job_runner/mod.rs`, then `agent/mod.rs`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is where the node's files are touched and its tools are run"
)]

pub mod act;
pub mod agent;
pub mod block_device;
pub mod command;
pub mod device_claim;
pub mod error;
pub mod failpoints;
pub mod host_root;
pub mod inspect;
pub mod job_runner;
pub mod ledger;
mod linux;
pub mod lock;
pub mod node_ops;
pub mod program;
pub mod progress;
mod sys;
pub mod wait;
pub mod workers;

pub use agent::{Agent, AgentOptions, run, uevent};
pub use device_claim::{
    ConfirmRequest, Confirmation, HeldDevice, HoldRequest, LinkDevice, LinkGoal, LinkState,
    LinkTask, NodeView, Spare,
};
pub use error::NodeError;
pub use host_root::HostRoot;
pub use job_runner::JobRunner;
pub use linux::LinuxNode;
pub use node_ops::{DeviceOps, LedgerOps, NodeOps, NodeScan, ScanRequest, VolumeOps};
pub use progress::Progress;
pub use quarry_core::job::OutcomeResult;
pub use sys::keep_memory_small;
pub use workers::Workers;
