//! What the agent reports about the device claims and paths of its NodeInventory, with every scan.
//!
//! A claim that was confirmed stays so, and its device is never opened again by a scan: it may be in use. Only its link
//! is kept true. What is not confirmed yet is confirmed together, by one scan while all of it is held. Same input, same
//! reports: at rest nothing is written.

use super::Agent;
use crate::{
    device_claim::{ConfirmRequest, LinkDevice, LinkGoal, LinkState, LinkTask, NodeView, frozen},
    error::NodeError,
    node_ops::{DeviceOps, LedgerOps, NodeScan},
};
use quarry_api::{
    NodeInventory,
    node_inventory::{ClaimReport, ClaimState, DeviceClaim, PathReport},
};
use quarry_core::{
    device::{
        GroupedDevice,
        events::{LINK_RECREATED, limited},
    },
    device_claim::confirm::{
        ClaimAction, Expected, decide_action, find, matching, previous, verify,
    },
    event::PendingEvent,
};
use std::time::Duration;

/// A claim that is refused is checked again this soon: what blocks it may end without an event.
const REFUSED_AGAIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimReports {
    pub claims: Vec<ClaimReport>,
    pub paths: Vec<PathReport>,
    pub again_in: Option<Duration>,
}

/// Confirmed in this scan and not written yet: a conflict must not make us open the devices again.
#[derive(Debug, Default)]
pub(super) struct UnreportedClaims(Vec<DeviceClaim>);

/// A claim and what is to be reported about it.
struct ClaimCheck<'a> {
    claim: &'a DeviceClaim,
    action: ClaimAction,
    before: Option<ClaimReport>,
    /// Why it is refused.
    refused: Option<String>,
    /// Why it is over, as far as the ledger knows.
    outdated: Option<String>,
    /// Why nothing is done about it on this node.
    frozen: Option<&'static str>,
}

impl<H: DeviceOps + LedgerOps> Agent<H> {
    /// `scan` is replaced where devices were held.
    pub(super) async fn attend(
        &self,
        scan: &mut NodeScan,
        inventory: &NodeInventory,
        fresh: &mut UnreportedClaims,
    ) -> Result<ClaimReports, NodeError> {
        let (claims, paths) = (&inventory.spec.device_claims, inventory.spec.paths.clone());
        let mut attended = ClaimReports::default();
        if !paths.is_empty() {
            attended.paths =
                self.runner.call("following paths", move |ops| ops.resolve(&paths)).await?;
        }
        if !inventory.spec.retained_data.is_empty() {
            let retained = inventory.spec.retained_data.clone();
            self.runner
                .call("recording retained data", move |ops| ops.record_retained(&retained))
                .await?;
        }
        if claims.is_empty() {
            return Ok(attended);
        }
        let view = NodeView::of(inventory);
        let known = view.known(scan);
        let asked = claims.clone();
        let outdated =
            self.runner.call("reading the ledger", move |ops| ops.outdated(&asked)).await?;
        let mut cases: Vec<ClaimCheck<'_>> = claims
            .iter()
            .zip(outdated)
            .map(|(claim, outdated)| case(claim, inventory, scan, &known, fresh, outdated))
            .collect();
        self.confirm(scan, &view, &mut cases, fresh).await?;
        let known = view.known(scan);
        let found: Vec<_> =
            cases.iter().map(|case| device_of(case, &known, inventory, scan)).collect();
        let tasks: Vec<LinkTask> =
            cases.iter().zip(&found).map(|(case, found)| link_task(case, found)).collect();
        let asked = tasks.clone();
        let links = self
            .runner
            .call("checking the links of device claims", move |ops| ops.follow_links(&asked))
            .await?;
        self.publish_events(inventory, &repaired(&tasks, &links)).await;
        attended.claims = cases
            .iter()
            .zip(&found)
            .zip(&links)
            .map(|((case, found), link)| report(case, found, link))
            .collect();
        // Before it is reported: an API that is restored from a backup must not revive them.
        let released: Vec<DeviceClaim> = claims
            .iter()
            .zip(&attended.claims)
            .filter(|(_, report)| report.state == ClaimState::Removed)
            .map(|(claim, _)| claim.clone())
            .collect();
        if !released.is_empty() {
            self.runner
                .call("recording released device claims", move |ops| ops.record_released(&released))
                .await?;
        }
        let waits = attended.claims.iter().any(|report| {
            report.state == ClaimState::RemovalFailed
                || (report.state == ClaimState::Refused && report.device.is_some())
        });
        attended.again_in = waits.then_some(REFUSED_AGAIN);
        Ok(attended)
    }

    /// All that is to be confirmed, at once. What the last scan speaks against is not even opened.
    async fn confirm(
        &self,
        scan: &mut NodeScan,
        view: &NodeView,
        cases: &mut [ClaimCheck<'_>],
        fresh: &mut UnreportedClaims,
    ) -> Result<(), NodeError> {
        let known = view.known(scan);
        for case in cases.iter_mut().filter(|case| case.action == ClaimAction::Confirm) {
            case.refused =
                verify(case.claim, Expected::of_claim(case.claim), &known, &view.spec).err();
        }
        let mut asked: Vec<&mut ClaimCheck<'_>> = cases
            .iter_mut()
            .filter(|case| case.action == ClaimAction::Confirm && case.refused.is_none())
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let request = ConfirmRequest {
            claims: asked.iter().map(|case| case.claim.clone()).collect(),
            view: view.clone(),
            scan: scan.clone(),
        };
        let confirmation =
            self.runner.call("confirming device claims", move |ops| ops.confirm(&request)).await?;
        for (case, answer) in asked.iter_mut().zip(confirmation.results) {
            tracing::info!(
                device = case.claim.identity,
                owner = case.claim.owner.name,
                answer = answer.as_ref().err(),
                "checked a claimed device"
            );
            case.refused = answer.err();
            if case.refused.is_none() {
                fresh.0.push(case.claim.clone());
            }
        }
        *scan = confirmation.scan;
        Ok(())
    }
}

fn case<'a>(
    claim: &'a DeviceClaim,
    inventory: &NodeInventory,
    scan: &NodeScan,
    known: &[GroupedDevice],
    fresh: &UnreportedClaims,
    outdated: Option<String>,
) -> ClaimCheck<'a> {
    // The cluster may know more by now than it did when the device was held.
    let still = || verify(claim, Expected::of_claim(claim), known, &inventory.spec).is_ok();
    let before = match previous(claim, inventory.status.as_ref()) {
        _ if fresh.0.contains(claim) && still() => Some(report_base(claim, ClaimState::Confirmed)),
        before => before.cloned(),
    };
    let frozen = frozen(&inventory.spec, scan);
    let action = decide_action(claim, before.as_ref(), frozen.is_some(), outdated.is_some());
    ClaimCheck { claim, action, before, refused: None, outdated, frozen }
}

fn report_base(claim: &DeviceClaim, state: ClaimState) -> ClaimReport {
    ClaimReport {
        identity: claim.identity.clone(),
        owner_uid: claim.owner.uid.clone(),
        round: claim.round,
        state,
        ..ClaimReport::default()
    }
}

/// The device of the device claim. Where several show its identity, the link keeps the one that it led to when there was
/// only one; `Err` says why there is none.
struct ClaimedDevice<'a> {
    certain: Result<&'a GroupedDevice, String>,
    linked: Option<&'a GroupedDevice>,
}

fn device_of<'a>(
    case: &ClaimCheck<'_>,
    known: &'a [GroupedDevice],
    inventory: &NodeInventory,
    scan: &NodeScan,
) -> ClaimedDevice<'a> {
    let certain = find(case.claim, known);
    let before = || {
        let status = inventory.status.as_ref().filter(|status| status.boot_id == scan.boot_id)?;
        let name = case.before.as_ref()?.device.as_ref()?;
        let row = status.devices.iter().find(|device| device.name == *name)?;
        let seq = row.diskseq.and_then(|seq| u64::try_from(seq).ok())?;
        let same = |device: &&GroupedDevice| {
            device.facts.name == *name && device.facts.diskseq == Some(seq)
        };
        matching(case.claim, known).into_iter().find(same)
    };
    let linked = certain.as_ref().ok().copied().or_else(before);
    ClaimedDevice { certain, linked }
}

/// What becomes of the link.
fn link_task(case: &ClaimCheck<'_>, found: &ClaimedDevice<'_>) -> LinkTask {
    let device = found.linked.map(|device| LinkDevice::from(&device.facts));
    let confirmed = match case.action {
        ClaimAction::Keep => true,
        ClaimAction::Confirm => case.refused.is_none(),
        ClaimAction::Frozen | ClaimAction::Outdated | ClaimAction::End | ClaimAction::Wait => false,
    };
    let goal = match (case.action, device) {
        (ClaimAction::End | ClaimAction::Outdated, _) => LinkGoal::Remove,
        (_, Some(device)) if confirmed => LinkGoal::Lead(device),
        (_, None) if confirmed => LinkGoal::Await,
        (_, device) => LinkGoal::Observe(device),
    };
    LinkTask { link: case.claim.link.clone(), goal }
}

/// Links that were wrong, and are repaired.
fn repaired(tasks: &[LinkTask], links: &[LinkState]) -> Vec<PendingEvent> {
    let repaired =
        tasks.iter().zip(links).filter_map(|(task, state)| match (&task.goal, &state.repaired) {
            (LinkGoal::Lead(device), Some(before)) => {
                let message =
                    format!("the link {} leads to {} again: it {before}", task.link, device.name);
                Some(PendingEvent { reason: LINK_RECREATED, warning: true, message })
            }
            _ => None,
        });
    limited(LINK_RECREATED, repaired.collect())
}

fn report(case: &ClaimCheck<'_>, found: &ClaimedDevice<'_>, link: &LinkState) -> ClaimReport {
    let state = match (case.action, &case.refused) {
        // What could not be removed is not at its end.
        (ClaimAction::End, _) if link.problem.is_none() => ClaimState::Removed,
        (ClaimAction::End, _) => ClaimState::RemovalFailed,
        (ClaimAction::Keep, _) | (ClaimAction::Confirm, None) => ClaimState::Confirmed,
        (ClaimAction::Frozen, _) => {
            case.before.as_ref().map(|before| before.state).unwrap_or_default()
        }
        (ClaimAction::Outdated, _) => ClaimState::Outdated,
        (ClaimAction::Wait | ClaimAction::Confirm, _) => ClaimState::Refused,
    };
    let message = match case.action {
        ClaimAction::End => link.problem.clone(),
        ClaimAction::Keep => link.problem.clone().or_else(|| found.certain.as_ref().err().cloned()),
        ClaimAction::Frozen => case.frozen.map(|why| format!("{why}: nothing is done about it")),
        ClaimAction::Outdated => link.problem.clone().or_else(|| case.outdated.clone()),
        ClaimAction::Wait => Some("a job is under way on the device".to_owned()),
        ClaimAction::Confirm => case.refused.clone().or_else(|| link.problem.clone()),
    };
    let device = found.linked.filter(|_| state != ClaimState::Removed);
    let device = device.map(|device| device.facts.name.clone());
    ClaimReport { device, linked: link.linked, message, ..report_base(case.claim, state) }
}

#[cfg(test)]
#[path = "device_claims_tests.rs"]
mod tests;
