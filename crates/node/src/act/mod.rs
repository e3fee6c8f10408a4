//! Applying one step: each function does one thing, proves it done, and decides nothing.
//!
//! `draft.rs` builds the file, `attach.rs` puts a loop device and its partition over it, `volume_link.rs` names it,
//! `detach.rs` takes it down again. What a step may be done to was decided in `quarry_core::storage::sparse`; what can
//! only be known while the device is held is checked again here. Claimed devices: `hold.rs` (checked while held),
//! `wipe.rs`, `claim_link.rs`. Next to read: `draft.rs`, `hold.rs`.

pub mod attach;
pub mod claim_link;
pub mod detach;
pub mod draft;
pub mod hold;
mod proof;
pub mod volume_link;
pub mod wipe;
mod zeros;

use crate::{error::NodeError, host_root::HostRoot};
use quarry_core::storage::sparse::Step;
use uuid::Uuid;

/// One step for one volume.
pub fn apply(host: &HostRoot, uid: &str, step: &Step) -> Result<(), NodeError> {
    let id = Uuid::parse_str(uid).map_err(|_| NodeError::NotAUid(uid.to_owned()))?;
    match step {
        Step::DiscardDraft => draft::discard(host, uid),
        Step::MakeDraft { size } => draft::make(host, uid, *size),
        Step::FormatDraft(format) => draft::format(host, uid, id, format),
        Step::PublishDraft => draft::publish(host, uid),
        Step::Attach { partitioned } => attach::attach(host, uid, *partitioned),
        Step::AddPartition { device } => attach::add_partition(host, uid, id, device),
        Step::MakeLink { device } => volume_link::make(host, uid, device),
        Step::AwaitLink { device } => volume_link::wait_for(host, uid, device),
        Step::Detach { device } => detach::detach(host, uid, device),
        Step::RemoveLink => volume_link::remove(host, uid),
        Step::AwaitNoLink => volume_link::wait_gone(host, uid),
        Step::RemoveFile => detach::remove_file(host, uid),
    }
}
