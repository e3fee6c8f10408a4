//! A wipe, from the first question to the last byte: nobody erases a device on an answer that may be old.
//!
//! The API is asked whether the reason still holds, the device is opened exclusively and verified on the node, and then
//! the API is asked once more, while nobody else can take the device (invariant 2). Only then the intent is recorded
//! and the first byte written, through the descriptor that was held all along. No answer means no.

use super::{Agent, AgentError, JobOutcome, JobRun};
use crate::{
    device_claim::{HeldDevice, HoldRequest, NodeView},
    error::NodeError,
    node_ops::NodeOps,
    progress::Progress,
};
use quarry_api::{NodeJob, node_job::WipePolicy};
use quarry_core::precondition::check_wipe;
use quarry_failpoint::failpoint;
use std::time::Duration;

/// What the operator writes meanwhile makes us look again; it does not write all the time.
const ROUNDS: usize = 5;
/// Somebody who only looks at the device is gone by then.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(25);

impl<H: NodeOps> Agent<H> {
    /// `Err` when the API could not be asked: nothing was touched, and the job is run again later.
    pub(super) async fn wipe(
        &self,
        job: &NodeJob,
        order: &JobRun,
        policy: WipePolicy,
        progress: &Progress,
    ) -> Result<JobOutcome, AgentError> {
        let ended = self.wipe_to_the_end(job, order, policy, progress).await?;
        let outcome = order.outcome(&ended);
        if let Err(error) =
            self.with_hands("recording the outcome", move |ops| ops.record_outcome(&outcome)).await
        {
            tracing::error!(
                job = order.job,
                error = error.message(),
                "the outcome is missing in the ledger"
            );
            // Whoever asks for this wipe again, an API restored from a backup, must be told that it was done: not done
            // until the ledger says so. Erasing the device once more hurts nobody while its PersistentVolume is going.
            if let JobOutcome::Erased(_) = ended {
                return Ok(JobOutcome::Failed(error.message()));
            }
        }
        Ok(ended)
    }

    async fn wipe_to_the_end(
        &self,
        job: &NodeJob,
        order: &JobRun,
        policy: WipePolicy,
        progress: &Progress,
    ) -> Result<JobOutcome, AgentError> {
        for _ in 0..ROUNDS {
            let request = match self.ask_for_wipe(job).await? {
                Ok(request) => request,
                Err(why) => return Ok(JobOutcome::Failed(why)),
            };
            let held = match self.hold(&request).await {
                Ok(held) => held,
                Err(error) => return Ok(JobOutcome::Failed(error.message())),
            };
            failpoint!("wipe.held");
            match self.ask_for_wipe(job).await? {
                Err(why) => return Ok(JobOutcome::Failed(why)),
                // Judged by what the cluster knew then; it knows something else now.
                Ok(now) if now.claim != request.claim || now.view.spec != request.view.spec => {
                    continue;
                }
                Ok(_) => {}
            }
            let (intent, progress) = (order.intent(), progress.clone());
            if let Err(error) =
                self.with_hands("recording the intent", move |ops| ops.record_intent(&intent)).await
            {
                return Ok(JobOutcome::Failed(error.message()));
            }
            let erased = self
                .workers
                .call_apart(&self.ops, "erasing the device", move |_| held.wipe(policy, &progress))
                .await;
            return Ok(match erased {
                Ok(how) => JobOutcome::Erased(how),
                Err(error) => JobOutcome::Failed(error.message()),
            });
        }
        Ok(JobOutcome::Failed(
            "what the cluster knows about this node changes all the time: nothing was touched"
                .into(),
        ))
    }

    /// What is to be held, if the reason for the job still holds; the inner `Err` says why not.
    async fn ask_for_wipe(&self, job: &NodeJob) -> Result<Result<HoldRequest, String>, AgentError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let (fresh, live) = self.read_live_wipe(job).await?;
        let Some(fresh) = fresh else { return Ok(Err("the job was deleted".into())) };
        let claim = match check_wipe(name, &fresh.spec, &live) {
            Ok(claim) => claim.clone(),
            Err(void) => return Ok(Err(void.to_string())),
        };
        let view = live.inventory.as_ref().map(NodeView::of).unwrap_or_default();
        let pv_uid = fresh
            .spec
            .device
            .claimed
            .as_ref()
            .map(|device| device.pv_uid.clone())
            .unwrap_or_default();
        Ok(Ok(HoldRequest { claim, pv_uid, view }))
    }

    async fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        let mut failures = 0;
        loop {
            let asked = request.clone();
            match self.with_hands("holding the device", move |ops| ops.hold(&asked)).await {
                Err(error) if error.retryable() && failures + 1 < TRIES => failures += 1,
                other => return other,
            }
            tokio::time::sleep(FIRST_PAUSE * 2u32.pow(failures)).await;
        }
    }
}
