//! `quarry sets` and `quarry plan`: LocalVolumeSets and LocalVolumes with the devices of each node.
//!
//! What is shown is computed by `quarry_view::sets`; here it is read (`file.rs` a file, `local.rs` this machine) and laid
//! out (`table.rs`). Decides nothing. Next to read: `list.rs`, `plan.rs`.

pub mod file;
pub mod list;
mod local;
pub mod plan;
mod table;
