//! A node's eyes and hands, and the agent that drives them.
//!
//! `inspect/` reads the node and never writes. `act/` carries out one step at a time and decides nothing: what to
//! do comes from `quarry_core::sparse`. `hands.rs` joins the two behind the trait that the simulator implements
//! as well. `agent/` is the loop between the Kubernetes API and the hands. `unsafe` is in `sys.rs` alone.
//! Next to read: `hands.rs`, then `agent/mod.rs`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is where the node's files are touched and its tools are run"
)]

pub mod act;
pub mod agent;
pub mod command;
pub mod device_claim;
pub mod error;
pub mod failpoints;
pub mod host_root;
pub mod inspect;
pub mod ledger;
pub mod lock;
pub mod node_ops;
pub mod progress;
mod sys;
pub mod wait;

pub use agent::{Agent, AgentOptions, run, uevent};
pub use device_claim::{
    ConfirmRequest, Confirmation, HeldDevice, HoldRequest, LinkDevice, LinkOrder, LinkState,
    LinkWish, NodeView, Spare,
};
pub use error::NodeError;
pub use host_root::HostRoot;
pub use node_ops::{
    Intent, LinuxNode, NodeOps, NodeScan, Outcome, OutcomeResult, ScanRequest, Subject,
};
pub use progress::Progress;
pub use sys::keep_memory_small;
