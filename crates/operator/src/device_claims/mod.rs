//! Claims in the operator: what is known of one node (`observe.rs`), what a plan asks of the API (`apply.rs`), and the
//! kinds that own claims (`owner.rs`). Decided in `quarry_core::claim`; driven node by node by `node_inventory.rs`.

pub mod apply;
pub mod observe;
pub mod owner;
