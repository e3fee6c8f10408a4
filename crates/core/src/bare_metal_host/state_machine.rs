//! The states of a host that is registered: what each does, and which follows.

use super::{
    IronicView, Step, annotations, delete, deprovision, hardware_data, inspect,
    power::{self, AT_REST},
    prepare, provision, raid,
    register::{cause, keep_waiting},
    status::{CONDITION_ACCEPTED, Draft, Flow},
};
use jiff::SignedDuration;
use quarry_api::bare_metal_host::{ErrorType, ProvisioningState as State};
use quarry_ironic::{Call, Node, ProvisionState, ProvisionTarget};

const POLL: SignedDuration = SignedDuration::from_secs(2);

/// One state after the other, until one needs Ironic's answer.
pub(super) fn run(draft: &mut Draft<'_>) {
    run_states(draft);
    // Of the state that was reached.
    raid::report(draft);
}

fn run_states(draft: &mut Draft<'_>) {
    // There are fewer states than this: no input makes a loop of them.
    for _ in 0..State::ALL.len() {
        let before = draft.state().clone();
        if step(draft) == Flow::Stop || *draft.state() == before {
            return;
        }
    }
}

fn step(draft: &mut Draft<'_>) -> Flow {
    match draft.state() {
        State::None | State::Unmanaged => {
            draft.enter(State::Registering);
            Flow::Continue
        }
        State::Registering => {
            let host = &draft.seen.host;
            draft.event("Registered", "Registered new host");
            draft.enter(match host.spec.externally_provisioned {
                true => State::ExternallyProvisioned,
                false if annotations::is_inspection_disabled(host) => State::Preparing,
                false => State::Inspecting,
            });
            Flow::Continue
        }
        State::Inspecting => inspect::inspect(draft),
        State::MatchProfile => {
            draft.enter(State::Preparing);
            Flow::Continue
        }
        State::Preparing => prepare::prepare(draft),
        State::Ready | State::Available => available(draft),
        State::Provisioned | State::ExternallyProvisioned => adopted(draft),
        State::Provisioning => provision::provision(draft),
        State::Deprovisioning => deprovision::deprovision(draft),
        State::PoweringOffBeforeDelete => delete::power_off(draft),
        State::Deleting => delete::delete(draft),
        State::Other(state) => {
            let message = format!(
                "the state {state:?} is that of a newer version; the host is left as it is"
            );
            draft.condition(CONDITION_ACCEPTED, "UnknownState", &message);
            Flow::Stop
        }
    }
}

fn available(draft: &mut Draft<'_>) -> Flow {
    let host = &draft.seen.host;
    if *draft.state() == State::Ready {
        draft.enter(State::Available);
    }
    if host.spec.externally_provisioned {
        draft.enter(State::ExternallyProvisioned);
        return Flow::Continue;
    }
    // Recorded first: the annotation is removed when the inspection has started, and its end must be noticed.
    if annotations::asks_for_inspection(host) || lacks_hardware(draft) {
        draft.enter(State::Inspecting);
        return draft.again_in(SignedDuration::ZERO);
    }
    if let Some(node) = draft.node().filter(|node| has_failed(node)) {
        return recover(draft, node);
    }
    if let Some(node) = draft.node()
        && !matches!(node.provision_state, ProvisionState::Manageable | ProvisionState::Available)
    {
        // Work that others requested is waited for; what they deployed is not switched off.
        return match super::is_busy(node) {
            true => draft.again_in(POLL),
            false => unexpected(draft, node, AT_REST),
        };
    }
    // Invalid settings are reported there, also where the record covers them.
    let is_invalid = raid::desired(host).is_some() && !raid::problems(host).is_empty();
    if is_invalid || !raid::is_prepared(host, &draft.status) {
        draft.enter(State::Preparing);
        return draft.again_in(SignedDuration::ZERO);
    }
    if provision::begin(draft) == Flow::Stop {
        return Flow::Stop;
    }
    power::manage(draft)
}

/// Nothing is known about its hardware, and an inspection can find it.
fn lacks_hardware(draft: &Draft<'_>) -> bool {
    let is_stored = draft.steps.iter().any(|step| matches!(step, Step::CreateHardwareData(_)));
    draft.seen.hardware_data.is_none()
        && !is_stored
        && draft.status.hardware.is_none()
        && !annotations::is_inspection_disabled(&draft.seen.host)
        && !hardware_data::is_too_large(draft)
}

/// An operation of Ironic failed, and the node waits to be managed again.
pub(super) fn has_failed(node: &Node) -> bool {
    matches!(
        node.provision_state,
        ProvisionState::InspectFailed | ProvisionState::CleanFailed | ProvisionState::AdoptFailed
    )
}

/// An operation failed, and the node does not say why.
pub(super) fn lacks_reason(node: &Node) -> bool {
    let failed = has_failed(node)
        || matches!(node.provision_state, ProvisionState::DeployFailed | ProvisionState::Error);
    failed && node.reservation.is_none() && node.last_error.as_deref().is_none_or(str::is_empty)
}

/// Why an operation failed. `None`: Ironic writes the state before the error, and keeps the node locked meanwhile.
pub(super) fn error_of(draft: &Draft<'_>, node: &Node) -> Option<String> {
    if let Some(error) = node.last_error.as_deref().filter(|error| !error.is_empty()) {
        return Some(cause(error));
    }
    if node.reservation.is_some() {
        return None;
    }
    let history = match &draft.seen.ironic {
        IronicView::Seen(seen) => seen.history.as_deref().unwrap_or_default(),
        IronicView::NotAsked | IronicView::Failed(_) => &[],
    };
    let last = history.iter().rev().find(|entry| entry.is_error() && !entry.event.is_empty());
    Some(match last {
        Some(entry) => cause(&entry.event),
        None => format!("{}, and Ironic gives no reason", node.provision_state),
    })
}

pub(super) fn recover(draft: &mut Draft<'_>, node: &Node) -> Flow {
    let id = node.uuid.clone();
    if node.maintenance {
        return draft.call(Call::ClearMaintenance { id }, SignedDuration::ZERO);
    }
    draft.call(Call::SetProvisionState { id, target: ProvisionTarget::Manage }, POLL)
}

/// A host with an operating system that Ironic must leave alone: its node becomes `active` without a deployment.
fn adopted(draft: &mut Draft<'_>) -> Flow {
    let kind = ErrorType::ProvisionedRegistration;
    let Some(node) = draft.node() else { return Flow::Stop };
    let id = node.uuid.clone();
    if *draft.state() == State::Provisioned {
        let host = &draft.seen.host;
        if provision::is_unwanted(host, &draft.status) {
            draft.enter(State::Deprovisioning);
            return draft.again_in(SignedDuration::ZERO);
        }
        if draft.status.provisioning.image.url.is_empty()
            && let Some(image) = provision::image(host)
        {
            // Another operator, or a backup, did not say so.
            draft.status.provisioning.image = image.clone();
        }
    }
    match node.provision_state {
        ProvisionState::Active => power::manage(draft),
        ProvisionState::Manageable | ProvisionState::AdoptFailed if !draft.may_retry(&kind) => {
            keep_waiting(draft, kind)
        }
        ProvisionState::AdoptFailed if !draft.has_error(&kind) => {
            let Some(error) = error_of(draft, node) else { return draft.again_in(POLL) };
            draft.fail(kind, error)
        }
        ProvisionState::Manageable | ProvisionState::AdoptFailed => {
            if draft.has_error(&kind) {
                draft.clear_error();
            }
            let ops = provision::adoption_changes(draft, node);
            if !ops.is_empty() {
                return draft.call(Call::PatchNode { id, ops }, SignedDuration::ZERO);
            }
            draft.call(Call::SetProvisionState { id, target: ProvisionTarget::Adopt }, POLL)
        }
        ProvisionState::Available => {
            draft.call(Call::SetProvisionState { id, target: ProvisionTarget::Manage }, POLL)
        }
        ProvisionState::InspectFailed | ProvisionState::CleanFailed => recover(draft, node),
        ProvisionState::Adopting => draft.again_in(POLL),
        _ => unexpected(draft, node, AT_REST),
    }
}

/// A node in a state that nothing here leads to: another client of Ironic did that, or an operator of another version.
/// It is left alone, and reported until it is over.
pub(super) fn unexpected(draft: &mut Draft<'_>, node: &Node, again: SignedDuration) -> Flow {
    let Node { uuid, provision_state, .. } = node;
    let remedy = match super::is_busy(node) || node.target_provision_state.is_some() {
        true => "wait until Ironic has ended it".to_owned(),
        false => format!(
            "bring it back to manageable, or to active if the machine is in use: baremetal node show {uuid}"
        ),
    };
    let message = format!(
        "node {uuid} is in state {provision_state:?} in Ironic, which is unexpected while the host is {}; {remedy}",
        draft.state(),
        provision_state = provision_state.as_str(),
    );
    draft.condition(CONDITION_ACCEPTED, "UnexpectedNodeState", &message);
    draft.again_in(again)
}
