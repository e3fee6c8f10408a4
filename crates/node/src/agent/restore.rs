//! At the agent's start: every finished file that the ledger knows gets its loop, partition and link again.
//!
//! One bad volume never delays the others. What fails is reported and stays as it is: its device is missing in the
//! inventory, and it is tried again by the loop, the next start, or a job that needs it.

use super::{Agent, AgentError};
use crate::node_ops::VolumeOps;
use futures::{StreamExt, stream};
use quarry_api::ids::Uid;
use quarry_core::storage::sparse::Sparse;

/// As many as there are workers, give or take.
const MAX_CONCURRENT: usize = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Volumes that have their device again.
    pub changed: Vec<Uid>,
    /// Volumes that needed nothing.
    pub unchanged: Vec<Uid>,
    /// Volumes that could not be restored, and why.
    pub failed: Vec<(Uid, String)>,
}

impl<H: VolumeOps<Sparse>> Agent<H> {
    pub async fn restore(&self) -> Result<Restored, AgentError> {
        let known = self
            .runner
            .call("listing the volumes", |ops| ops.known_volumes())
            .await
            .map_err(AgentError::ops("listing the volumes of this node"))?;
        let mut results: Vec<_> = stream::iter(known)
            .map(|uid| async { (self.runner.restore_volume::<Sparse>(&uid).await, uid) })
            .buffer_unordered(MAX_CONCURRENT)
            .collect()
            .await;
        results.sort_by(|(_, a), (_, b)| a.cmp(b));
        let mut restored = Restored::default();
        for (result, uid) in results {
            match result {
                Ok(true) => {
                    tracing::info!(volume = %uid, "restored its device");
                    restored.changed.push(uid);
                }
                Ok(false) => restored.unchanged.push(uid),
                Err(why) => {
                    tracing::error!(volume = %uid, why, "failed to restore its device");
                    restored.failed.push((uid, why));
                }
            }
        }
        Ok(restored)
    }
}
