//! Devices: what they are (identity), whether they may be used (verdict), and why not (reasons).
//!
//! Facts come from the inspector, the cluster's knowledge from NodeInventory.spec. The same functions serve agent,
//! operator, CLI and console. Next to read: `facts.rs` (what is known), `quarry_api::reason` (the one table of
//! reasons), `verdict.rs`, `group.rs` (devices beside each other), `inventory.rs` (what is published).

pub mod accepted_identity;
pub mod by_id_link;
pub mod events;
pub mod facts;
pub mod group;
pub mod identity;
pub mod inventory;
pub mod records;
pub mod returning_path;
pub mod sanitize;
pub mod settle;
pub mod status_patch;
pub mod verdict;

pub use accepted_identity::{accepted_identities, accepts};
pub use facts::{BackingFile, Content, ExclusiveOpen, Facts, Found, Partition};
pub use group::{GroupedDevice, group, group_with_overdue, partial_matches};
pub use quarry_api::reason::{self, Reason};
pub use settle::{SETTLING_TIME, Settling};

#[cfg(test)]
mod tests;
