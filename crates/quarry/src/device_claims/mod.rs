//! The commands about LocalVolumeSets and LocalVolumes: `quarry sets`, `quarry plan`, and what `quarry explain` tells
//! of them.
//!
//! Who gets which device is asked of `quarry_core::claim`, the functions by which the operator decides; here the world
//! is only gathered (`observe.rs`, or `local.rs` for this machine) and written down (`shown.rs`, `table.rs`, `words.rs`).

pub mod describe;
pub mod file;
pub mod list;
mod local;
pub mod observe;
pub mod plan;
mod table;
pub mod view;
