//! Reading the node: loop devices, partition tables, who uses what.
//!
//! Never writes, starts no process. Parsers take bytes; files are opened here, below the host root.
//! Next to read: `loops.rs` (which device is over which file), `users.rs` (who would be hurt).

pub mod gpt;
pub mod link;
pub mod loops;
pub mod mounts;
pub mod users;
