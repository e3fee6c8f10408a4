//! Ceph: its commands as values, what they print as types, and what may be done with a device.
//!
//! Nothing here starts a process, opens a file or knows the time: the caller runs a `Command` and passes on what it
//! printed. Keys are never shown by `Debug`. Why OSDs are prepared this way: ADR 0038.
//! Next to read: `judge.rs` (the decision before a device is written), `command.rs` (every command that is run),
//! `result.rs` (what a prepare run reports).

pub mod activate;
pub mod command;
pub mod config;
pub mod judge;
pub mod key;
pub mod label;
pub mod osd;
pub mod parse;
pub mod registered;
pub mod result;
pub mod status;
pub mod uuid;

pub use activate::{Activate, activate};
pub use command::{Command, DeviceTuning, Mkfs, RunOsd, Session};
pub use judge::{Content, Device, Role, Verdict, judge};
pub use key::{Key, Secret};
pub use label::Label;
pub use parse::ParseError;
pub use result::{OsdInfo, PrepareResult, RunStatus};
pub use uuid::Uuid;
