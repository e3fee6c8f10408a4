//! The operator's shell: watches, caches, the driver, and observe/apply of each controller.
//!
//! Owns every API write that the operator makes (`writer.rs`, the one door). Decides nothing: plans come
//! from `quarry-core`. `reconcile_once` of each controller is separate from the scheduling loop, so that
//! the simulator calls it directly.
//! Next to read: `driver.rs` (the loop), `volume/mod.rs` (a controller).

pub mod agent_daemon_set;
pub mod cache;
pub mod context;
pub mod device_claims;
pub mod discovery;
pub mod driver;
pub mod events;
pub mod leader;
pub mod metrics;
pub mod node_inventory;
pub mod node_job;
pub mod preflight;
pub mod queue;
pub mod route;
pub mod volume;
pub mod watch;
pub mod writer;

pub use context::Context;
pub use driver::{ControllerName, OperatorOptions, RunError, run};
