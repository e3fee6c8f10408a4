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
pub mod claim;
pub mod command;
pub mod error;
pub mod failpoints;
pub mod hands;
pub mod host;
pub mod inspect;
pub mod ledger;
pub mod lock;
pub mod progress;
mod sys;
pub mod wait;

pub use agent::{Agent, AgentOptions, run, uevent};
pub use claim::{
    ConfirmRequest, Confirmation, HeldDevice, HoldRequest, LinkDevice, LinkOrder, LinkState,
    LinkWish, NodeView, Spare,
};
pub use error::HandsError;
pub use hands::{Hands, Intent, Outcome, OutcomeResult, RealHands, Subject, Survey, SurveyRequest};
pub use host::Host;
pub use progress::Progress;
pub use sys::keep_memory_small;
