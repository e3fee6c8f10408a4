//! At the agent's start: every finished file that the ledger knows gets its loop, partition and link again.
//!
//! One bad volume never holds up the others. What fails is told and stays as it is: its device is missing in the
//! inventory, and it is tried again by the loop, the next start, or a job that needs it.

use super::{Agent, AgentError, execute::words};
use crate::{error::NodeError, node_ops::NodeOps};
use futures::{StreamExt, stream};
use quarry_core::sparse::{Plan, plan_attached};

/// As many as there are workers, give or take.
const MAX_CONCURRENT: usize = 4;
const ROUNDS: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Volumes that were brought back.
    pub changed: Vec<String>,
    /// Volumes that needed nothing.
    pub unchanged: Vec<String>,
    /// Volumes that could not be brought back, and why.
    pub failed: Vec<(String, String)>,
}

impl<H: NodeOps> Agent<H> {
    pub async fn restore(&self) -> Result<Restored, AgentError> {
        let known = self
            .with_hands("listing the volumes", |ops| ops.known_volumes())
            .await
            .map_err(AgentError::ops("listing the volumes of this node"))?;
        let mut results: Vec<_> = stream::iter(known)
            .map(|uid| async { (self.restore_one(&uid).await, uid) })
            .buffer_unordered(MAX_CONCURRENT)
            .collect()
            .await;
        results.sort_by(|(_, a), (_, b)| a.cmp(b));
        let mut restored = Restored::default();
        for (result, uid) in results {
            match result {
                Ok(true) => {
                    tracing::info!(volume = uid, "its device is back");
                    restored.changed.push(uid);
                }
                Ok(false) => restored.unchanged.push(uid),
                Err(why) => {
                    tracing::error!(volume = uid, why, "its device could not be brought back");
                    restored.failed.push((uid, why));
                }
            }
        }
        Ok(restored)
    }

    /// `true` when something had to be done.
    async fn restore_one(&self, uid: &str) -> Result<bool, String> {
        let mut last = "";
        for round in 0..ROUNDS {
            let seen = {
                let uid = uid.to_owned();
                // A pod may be mounting it right now: nothing is opened exclusively.
                self.with_hands("looking at the volume", move |ops| ops.glance(&uid))
                    .await
                    .map_err(|error| error.message())?
            };
            let Some(file) = seen.file.clone() else { return Ok(round > 0) };
            let steps = match plan_attached(uid, file.partitioned, &file, &seen) {
                Plan::Done(_) => return Ok(round > 0),
                Plan::Refused(refusal) => return Err(refusal.to_string()),
                Plan::Steps(steps) => steps,
            };
            for step in steps {
                last = words(&step);
                let uid = uid.to_owned();
                let acted: Result<(), NodeError> =
                    self.with_hands(last, move |ops| ops.act(&uid, &step)).await;
                match acted {
                    Err(error) if !error.retryable() => return Err(error.message()),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Err(format!("still not done after {ROUNDS} rounds, the last one was {last}"))
    }
}
