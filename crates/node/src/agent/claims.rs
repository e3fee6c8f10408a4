//! What the agent says to the claims and paths of its NodeInventory, in every look.
//!
//! A claim that was confirmed stays so, and its device is never opened again by a look: it may be in use. Only its link
//! is kept true. What is not confirmed yet is confirmed together, by one scan while all of it is held. Same input, same
//! answers: at rest nothing is written.

use super::Agent;
use crate::{
    claim::{ConfirmRequest, LinkDevice, LinkOrder, LinkState, LinkWish, NodeView},
    error::HandsError,
    hands::{Hands, Survey},
};
use quarry_api::{
    NodeInventory,
    node_inventory::{Claim, ClaimReport, ClaimState, PathReport},
};
use quarry_core::{
    claim::confirm::{Expected, Stance, find, previous, stance, verify},
    device::{
        Known,
        news::{LINK_MENDED, News, limited},
    },
};
use std::time::Duration;

/// A claim that is refused is looked at again this soon: what keeps it may end without an event.
const REFUSED_AGAIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attended {
    pub claims: Vec<ClaimReport>,
    pub paths: Vec<PathReport>,
    pub again_in: Option<Duration>,
}

/// Confirmed in this look and not written yet: a conflict must not make us open the devices again.
#[derive(Debug, Default)]
pub(super) struct Fresh(Vec<Claim>);

/// A claim and what is to be said about it.
struct Case<'a> {
    claim: &'a Claim,
    stance: Stance,
    before: Option<ClaimReport>,
    /// Why it is refused.
    refused: Option<String>,
}

impl<H: Hands> Agent<H> {
    /// `survey` is looked at anew where devices were held.
    pub(super) async fn attend(
        &self,
        survey: &mut Survey,
        inventory: &NodeInventory,
        fresh: &mut Fresh,
    ) -> Result<Attended, HandsError> {
        let (claims, paths) = (&inventory.spec.claims, inventory.spec.paths.clone());
        let mut attended = Attended::default();
        if !paths.is_empty() {
            attended.paths =
                self.with_hands("following paths", move |hands| hands.resolve(&paths)).await?;
        }
        if !inventory.spec.kept.is_empty() {
            let kept = inventory.spec.kept.clone();
            self.with_hands("remembering what is kept", move |hands| hands.remember_kept(&kept))
                .await?;
        }
        if claims.is_empty() {
            return Ok(attended);
        }
        let view = NodeView::of(inventory);
        let known = view.known(survey);
        let mut cases: Vec<Case<'_>> =
            claims.iter().map(|claim| case(claim, inventory, survey, &known, fresh)).collect();
        self.confirm(survey, &view, &mut cases, fresh).await?;
        let known = view.known(survey);
        let orders: Vec<LinkOrder> = cases.iter().map(|case| order(case, &known)).collect();
        let asked = orders.clone();
        let links = self
            .with_hands("looking at the links of claims", move |hands| hands.follow_links(&asked))
            .await?;
        self.tell(inventory, &mended(&orders, &links)).await;
        attended.claims =
            cases.iter().zip(&links).map(|(case, link)| report(case, &known, link)).collect();
        let waits = attended.claims.iter().any(|report| {
            report.state == ClaimState::Stuck
                || (report.state == ClaimState::Refused && report.device.is_some())
        });
        attended.again_in = waits.then_some(REFUSED_AGAIN);
        Ok(attended)
    }

    /// All that is to be confirmed, at once. What the last look speaks against is not even opened.
    async fn confirm(
        &self,
        survey: &mut Survey,
        view: &NodeView,
        cases: &mut [Case<'_>],
        fresh: &mut Fresh,
    ) -> Result<(), HandsError> {
        let known = view.known(survey);
        for case in cases.iter_mut().filter(|case| case.stance == Stance::Confirm) {
            case.refused =
                verify(case.claim, Expected::of_claim(case.claim), &known, &view.spec).err();
        }
        let mut asked: Vec<&mut Case<'_>> = cases
            .iter_mut()
            .filter(|case| case.stance == Stance::Confirm && case.refused.is_none())
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let request = ConfirmRequest {
            claims: asked.iter().map(|case| case.claim.clone()).collect(),
            view: view.clone(),
            survey: survey.clone(),
        };
        let confirmation =
            self.with_hands("confirming claims", move |hands| hands.confirm(&request)).await?;
        for (case, answer) in asked.iter_mut().zip(confirmation.answers) {
            tracing::info!(
                device = case.claim.identity,
                owner = case.claim.owner.name,
                answer = answer.as_ref().err(),
                "looked at a claimed device"
            );
            case.refused = answer.err();
            if case.refused.is_none() {
                fresh.0.push(case.claim.clone());
            }
        }
        *survey = confirmation.survey;
        Ok(())
    }
}

fn case<'a>(
    claim: &'a Claim,
    inventory: &NodeInventory,
    survey: &Survey,
    known: &[Known],
    fresh: &Fresh,
) -> Case<'a> {
    // The cluster may know more by now than it did when the device was held.
    let still = || verify(claim, Expected::of_claim(claim), known, &inventory.spec).is_ok();
    let before = match previous(claim, inventory.status.as_ref()) {
        _ if fresh.0.contains(claim) && still() => Some(answer(claim, ClaimState::Confirmed)),
        before => before.cloned(),
    };
    let stance = stance(claim, before.as_ref(), &inventory.spec, survey.machine_id.as_deref());
    Case { claim, stance, before, refused: None }
}

fn answer(claim: &Claim, state: ClaimState) -> ClaimReport {
    ClaimReport {
        identity: claim.identity.clone(),
        owner_uid: claim.owner.uid.clone(),
        round: claim.round,
        state,
        ..ClaimReport::default()
    }
}

/// What becomes of the link.
fn order(case: &Case<'_>, known: &[Known]) -> LinkOrder {
    let device =
        find(&case.claim.identity, known).ok().map(|device| LinkDevice::from(&device.facts));
    let nobody =
        !known.iter().any(|device| device.identified.candidates.contains(&case.claim.identity));
    let confirmed = match case.stance {
        Stance::Keep => true,
        Stance::Confirm => case.refused.is_none(),
        Stance::Frozen | Stance::End | Stance::Wait => false,
    };
    let wish = match (case.stance, device) {
        (Stance::End, _) => LinkWish::Remove,
        (_, Some(device)) if confirmed => LinkWish::Lead(device),
        (_, None) if confirmed && nobody => LinkWish::Await,
        (_, device) => LinkWish::Look(device),
    };
    LinkOrder { link: case.claim.link.clone(), wish }
}

/// Links that were not as they should be, and are now.
fn mended(orders: &[LinkOrder], links: &[LinkState]) -> Vec<News> {
    let mended =
        orders.iter().zip(links).filter_map(|(order, state)| match (&order.wish, &state.mended) {
            (LinkWish::Lead(device), Some(before)) => {
                let message = format!(
                    "the link {} leads to {} ({}) again: it {before}",
                    order.link, device.name, device.target
                );
                Some(News { reason: LINK_MENDED, warning: true, message })
            }
            _ => None,
        });
    limited(LINK_MENDED, mended.collect())
}

fn report(case: &Case<'_>, known: &[Known], link: &LinkState) -> ClaimReport {
    let found = find(&case.claim.identity, known);
    let state = match (case.stance, &case.refused) {
        // What could not be removed is not at its end.
        (Stance::End, _) if link.problem.is_none() => ClaimState::Ended,
        (Stance::End, _) => ClaimState::Stuck,
        (Stance::Keep, _) | (Stance::Confirm, None) => ClaimState::Confirmed,
        (Stance::Frozen, _) => case.before.as_ref().map(|before| before.state).unwrap_or_default(),
        (Stance::Wait | Stance::Confirm, _) => ClaimState::Refused,
    };
    let message = match case.stance {
        Stance::End => link.problem.clone(),
        Stance::Keep => link.problem.clone().or_else(|| found.as_ref().err().cloned()),
        Stance::Frozen => Some("this is another machine than the one that the device was claimed on: nothing is done about it".to_owned()),
        Stance::Wait => Some("a job is under way on the device".to_owned()),
        Stance::Confirm => case.refused.clone().or_else(|| link.problem.clone()),
    };
    let device =
        found.ok().filter(|_| state != ClaimState::Ended).map(|device| device.facts.name.clone());
    ClaimReport { device, linked: link.linked, message, ..answer(case.claim, state) }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
