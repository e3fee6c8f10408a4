//! The power of a host: `spec.online`, and the reboot annotations.

use super::{
    Step, annotations,
    annotations::RebootRequest,
    register::{keep_waiting, trimmed},
    status::{CONDITION_ACCEPTED, CONDITION_POWER, Draft, Flow},
};
use jiff::SignedDuration;
use quarry_api::{bare_metal_host::ErrorType, names};
use quarry_ironic::{Call, Node, PowerState, PowerTarget};

const POLL: SignedDuration = SignedDuration::from_secs(2);
/// How long the operating system may take to shut down, in seconds; as upstream.
const SOFT_LIMIT: u32 = 180;
/// Ironic's fault of a node whose power state it cannot read.
pub(super) const POWER_FAILURE: &str = "power failure";
/// Ironic reads the power state of a new node soon.
const UNKNOWN_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// A host that is as it should be.
pub(super) const AT_REST: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn manage(draft: &mut Draft<'_>) -> Flow {
    let kind = ErrorType::PowerManagement;
    let Some(node) = draft.node() else { return Flow::Stop };
    if let Some(state) = &node.power_state {
        draft.status.powered_on = *state == PowerState::On;
    }
    let request = match annotations::reboot(&draft.seen.host) {
        Ok(request) => request,
        Err(error) => {
            draft.condition(CONDITION_ACCEPTED, "InvalidAnnotation", &error.to_string());
            None
        }
    };
    // A ramdisk runs: Ironic switches the power as it needs.
    if super::is_busy(node) {
        return draft.again_in(POLL);
    }
    if node.target_power_state.is_some() {
        if is_rebooting(draft, node, request.as_ref()) {
            draft.steps.push(Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION]));
        }
        return draft.again_in(POLL);
    }
    if node.maintenance && node.fault.as_deref() == Some(POWER_FAILURE) {
        return power_failure(draft, kind, node);
    }
    let spec = &draft.seen.host.spec;
    let is_on = match &node.power_state {
        Some(PowerState::On) => true,
        Some(PowerState::Off) => false,
        // Ironic has not read it yet, or cannot.
        Some(_) | None => return draft.again_in(UNKNOWN_AGAIN),
    };
    let once = request.as_ref().is_some_and(|request| request.once);
    let wants_on = spec.online && request.is_none();
    // After a request of ours that failed. A BMC that could not be reached says nothing about a shutdown.
    let has_failed = draft.has_error(&kind) && is_requested(draft);
    let hard = has_failed || request.as_ref().is_some_and(|request| request.hard);
    let target = match (is_on, wants_on) {
        (true, false) if spec.disable_power_off && once => PowerTarget::Reboot,
        (true, false) if spec.disable_power_off => return settled(draft),
        (true, false) if hard => PowerTarget::Off,
        (true, false) => PowerTarget::SoftOff { timeout: Some(SOFT_LIMIT) },
        (false, true) => PowerTarget::On,
        (false, false) if once => {
            // Off: the request is answered, and the next reconcile powers the host on.
            draft.steps.push(Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION]));
            return draft.again_in(SignedDuration::ZERO);
        }
        (true, true) | (false, false) => return settled(draft),
    };
    change(draft, kind, node, target)
}

/// `spec.online` alone, for a host that waits for other settings: its error stays.
pub(super) fn switch(draft: &mut Draft<'_>) -> Flow {
    draft.again_in(AT_REST);
    let Some(node) = draft.node() else { return Flow::Stop };
    let spec = &draft.seen.host.spec;
    if let Some(state) = &node.power_state {
        draft.status.powered_on = *state == PowerState::On;
    }
    if node.target_power_state.is_some() || super::is_busy(node) {
        return Flow::Stop;
    }
    let target = match (&node.power_state, spec.online) {
        (Some(PowerState::Off), true) => PowerTarget::On,
        (Some(PowerState::On), false) if !spec.disable_power_off => {
            PowerTarget::SoftOff { timeout: Some(SOFT_LIMIT) }
        }
        _ => return Flow::Stop,
    };
    draft.call(Call::SetPower { id: node.uuid.clone(), target }, POLL)
}

fn change(draft: &mut Draft<'_>, kind: ErrorType, node: &Node, target: PowerTarget) -> Flow {
    let failed = own_error(draft, node);
    if let Some(error) = failed.filter(|_| !draft.has_error(&kind) && !draft.is_changed()) {
        return draft.fail(kind, format!("{error}; check the BMC"));
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    if draft.has_error(&kind) {
        draft.clear_error();
    }
    match target {
        PowerTarget::On => draft.event("PowerOn", "Host powered on"),
        PowerTarget::Off | PowerTarget::SoftOff { .. } => {
            draft.event("PowerOff", "Host powered off")
        }
        PowerTarget::Reboot | PowerTarget::SoftReboot { .. } => {
            // After the call: a reboot that is repeated is a nuisance, one that is lost goes unnoticed, and Ironic
            // keeps no sign of one that has ended. An operator that was killed in between repeats it, unless it finds
            // the reboot under way.
            draft.after.push(Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION]));
            draft.event("Reboot", "Host rebooted");
        }
    }
    request(draft, node, target)
}

/// Requests a change, and notes that it was: from then on an error is an answer to it.
pub(super) fn request(draft: &mut Draft<'_>, node: &Node, target: PowerTarget) -> Flow {
    let message = format!("{} was requested, and Ironic has not reported it yet", target.as_str());
    draft.pending(CONDITION_POWER, "Requested", &message);
    draft.call(Call::SetPower { id: node.uuid.clone(), target }, POLL)
}

fn is_requested(draft: &Draft<'_>) -> bool {
    draft.found_condition(CONDITION_POWER).is_some()
}

/// The answer to a request of ours. Ironic keeps the error of any operation until the next one: only an error about
/// power that it shows after our request, which removed the one before, is an answer to ours.
pub(super) fn own_error(draft: &Draft<'_>, node: &Node) -> Option<String> {
    let error = node.last_error.as_deref().filter(|_| is_requested(draft))?;
    error.to_ascii_lowercase().contains("power").then(|| trimmed(error))
}

/// The reboot that the annotation requests is under way: for a host that is never powered off it is one request, which
/// shows as a change from on to on.
fn is_rebooting(draft: &Draft<'_>, node: &Node, request: Option<&RebootRequest>) -> bool {
    let on = Some(&PowerState::On);
    draft.seen.host.spec.disable_power_off
        && request.is_some_and(|request| request.once)
        && node.power_state.as_ref() == on
        && node.target_power_state.as_ref() == on
}

/// Ironic gave up reading the power state.
fn power_failure(draft: &mut Draft<'_>, kind: ErrorType, node: &Node) -> Flow {
    if !draft.has_error(&kind) {
        let error = node.last_error.as_deref().unwrap_or("Ironic cannot read the power state");
        return draft.fail(kind, format!("{}; check that the BMC can be reached", trimmed(error)));
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    draft.clear_error();
    draft.call(Call::ClearMaintenance { id: node.uuid.clone() }, POLL)
}

/// Any error is over, also one that another version or another operator recorded.
fn settled(draft: &mut Draft<'_>) -> Flow {
    draft.succeed();
    draft.clear_condition(CONDITION_POWER);
    draft.again_in(AT_REST)
}
