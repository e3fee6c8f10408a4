//! The operator's shell: watches, caches, the driver, and observe/apply of each controller.
//!
//! Owns every API write that the operator makes (`writer.rs`). Decides nothing: plans come from `quarry-core`.
//! `Registration::reconcile` is separate from the scheduling loop, so that the simulator calls it directly.
//! Next to read: `controller.rs` (what a controller is), `registry.rs` (all of them), `driver.rs` (the loop).

pub mod agent_daemon_set;
pub mod bare_metal_host;
pub mod cache;
pub mod ceph_cluster;
pub mod context;
pub mod controller;
pub mod device_claim_owner;
pub mod driver;
pub mod events;
pub mod leader;
pub mod local_volume;
pub mod local_volume_discovery;
pub mod local_volume_discovery_result;
pub mod local_volume_set;
pub mod metrics;
pub mod node_index;
pub mod node_inventory;
pub mod node_job;
pub mod preflight;
pub mod queue;
pub mod registry;
pub mod trigger;
pub mod volume;
pub mod watch;
pub mod writer;

pub use context::Context;
pub use driver::{OperatorOptions, RunError, run};
pub use registry::{Registry, group};
