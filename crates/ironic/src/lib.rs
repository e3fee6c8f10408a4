//! Ironic: its resources as types, its requests as values, its errors by meaning, and a client.
//!
//! Without the feature `client` nothing here opens a socket, reads a file or knows the time: `core`
//! plans with these types. Decides nothing about hosts, and keeps no state of a node.
//! Next to read: `call.rs` (every change that can be requested), `error.rs` (what an answer means),
//! `client.rs` (the requests themselves), `reload.rs` (credentials that change on disk).

pub mod call;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod config;
pub mod error;
#[cfg(feature = "client")]
mod files;
#[cfg(feature = "client")]
mod http;
pub mod inventory;
pub mod node;
pub mod raid;
#[cfg(feature = "client")]
pub mod recorder;
#[cfg(feature = "client")]
pub mod reload;
pub mod secret;
pub mod state;
pub mod transport;

pub use call::{Call, CleanStep, PatchOp, PowerTarget, ProvisionTarget};
#[cfg(feature = "client")]
pub use client::{Client, Performed};
#[cfg(feature = "client")]
pub use config::{Auth, Config, ConfigError, Settings};
pub use error::{Error, Meaning, Reach};
#[cfg(feature = "client")]
pub use http::http_transport;
pub use inventory::Inventory;
pub use node::{HistoryEntry, NewNode, NewPort, Node, Port, Validation};
pub use raid::{LogicalDisk, PhysicalDisks, RaidConfig, SizeGb};
#[cfg(feature = "client")]
pub use recorder::Recorder;
#[cfg(feature = "client")]
pub use reload::Reloading;
pub use secret::{Guarded, Secret};
pub use state::{PowerState, ProvisionState};
pub use transport::{Method, Microversion, Request, Response, Transport, TransportError};
