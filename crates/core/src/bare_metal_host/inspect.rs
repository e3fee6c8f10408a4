//! The inspection of a host by a ramdisk, and what becomes of its result.

use super::{
    IronicView, Step, annotations, clean, hardware, hardware_data, prepare, raid,
    register::keep_waiting,
    state_machine,
    status::{Draft, Flow},
};
use jiff::SignedDuration;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{ErrorType, InspectionMode, OperationalStatus, ProvisioningState as State},
    names,
};
use quarry_ironic::{Call, Node, PatchOp, ProvisionState, ProvisionTarget};

/// A ramdisk needs half a minute at least. Later ones are polled less often.
const POLL: SignedDuration = SignedDuration::from_secs(2);
const POLL_LATER: SignedDuration = SignedDuration::from_secs(5);
const LATER: SignedDuration = SignedDuration::from_mins(3);
const DELAYED_AGAIN: SignedDuration = SignedDuration::from_secs(15);

/// The inventory is read only where it is used: it may be megabytes.
pub(super) fn wants_inventory(host: &BareMetalHost, node: &Node) -> bool {
    host.state() == State::Inspecting
        && !annotations::asks_for_inspection(host)
        && !is_recorded_only(host, node)
}

/// The last inspection that Ironic knows, as it is recorded before another one is requested. Ironic forgets it when
/// an inspection begins, so that an equal one says that none has begun since. No clock is compared with another.
fn last_inspection(node: &Node) -> String {
    node.inspection_finished_at.map_or_else(|| "none".to_owned(), |at| at.to_string())
}

/// An inspection was requested from us, and not yet from Ironic.
fn is_recorded_only(host: &BareMetalHost, node: &Node) -> bool {
    annotations::get(host, names::INSPECTION_ANNOTATION)
        .is_some_and(|before| before == last_inspection(node))
}

/// The state `inspecting`. `Continue` when it has ended.
pub(super) fn inspect(draft: &mut Draft<'_>) -> Flow {
    let kind = ErrorType::Inspection;
    let host = &draft.seen.host;
    if annotations::is_inspection_disabled(host) {
        // One that has begun is ended first: its ramdisk runs.
        match draft.node() {
            Some(node) if node.provision_state == ProvisionState::InspectWait => {
                let target = ProvisionTarget::Abort;
                return draft.call(Call::SetProvisionState { id: node.uuid.clone(), target }, POLL);
            }
            Some(node) if node.provision_state == ProvisionState::Inspecting => {
                return draft.again_in(POLL);
            }
            Some(_) | None => {}
        }
        forget_record(draft);
        draft.enter(State::Preparing);
        return Flow::Continue;
    }
    if host.spec.inspection_mode == Some(InspectionMode::Fast) {
        return draft.refuse(
            kind,
            "spec.inspectionMode fast is not supported; set it to agent, or to disabled",
        );
    }
    let Some(node) = draft.node() else { return Flow::Stop };
    match node.provision_state {
        ProvisionState::Manageable => start_or_finish(draft, kind, node),
        ProvisionState::Available => {
            let target = ProvisionTarget::Manage;
            draft.call(Call::SetProvisionState { id: node.uuid.clone(), target }, POLL)
        }
        ProvisionState::Inspecting | ProvisionState::InspectWait => wait(draft, node),
        ProvisionState::InspectFailed => failed(draft, kind, node),
        ProvisionState::CleanFailed | ProvisionState::AdoptFailed => {
            state_machine::recover(draft, node)
        }
        ProvisionState::Active if host.spec.externally_provisioned => {
            draft.enter(State::ExternallyProvisioned);
            Flow::Continue
        }
        ProvisionState::Active => {
            draft.refuse(kind, format!(
                "node {} is active in Ironic although this host was never provisioned here: it is not inspected, because that would reboot it; restore status.provisioning.state of the host (kubectl edit --subresource=status), or delete the host and create it with spec.externallyProvisioned",
                node.uuid
            ));
            // It may be undeployed or deleted in Ironic.
            draft.again_in(super::power::AT_REST)
        }
        _ => state_machine::unexpected(draft, node, POLL_LATER),
    }
}

fn start_or_finish(draft: &mut Draft<'_>, kind: ErrorType, node: &Node) -> Flow {
    let host = &draft.seen.host;
    let again = annotations::asks_for_inspection(host) || is_recorded_only(host, node);
    let IronicView::Seen(seen) = &draft.seen.ironic else { return Flow::Stop };
    if node.inspection_finished_at.is_some() && !again && !prepare::is_list_of_drives(node) {
        if !wants_inventory(host, node) {
            // Ironic knows the hardware from before. It is read once the state is written.
            return draft.again_in(SignedDuration::ZERO);
        }
        match &seen.inventory {
            Some(inventory) => {
                finish(draft, &hardware::details(inventory));
                return Flow::Continue;
            }
            // Another inspection may end in the same way: with a backoff, each reboots the host.
            None if !draft.has_error(&kind) => {
                return draft.fail(kind, "Ironic has no inventory of the inspection that has ended; set data_backend to database in section inventory of its configuration");
            }
            None => {}
        }
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    if seen.busy >= draft.seen.settings.max_busy_hosts {
        draft.status.operational_status = OperationalStatus::Delayed;
        return draft.again_in(DELAYED_AGAIN);
    }
    start(draft, node)
}

fn start(draft: &mut Draft<'_>, node: &Node) -> Flow {
    let mut ops: Vec<PatchOp> = prepare::restored_inspection(node).into_iter().collect();
    if prepare::is_list_of_drives(node) {
        ops.extend(clean::Mark::remove(node));
    }
    if !ops.is_empty() && draft.seen.host.state() == State::Inspecting {
        return draft.call(Call::PatchNode { id: node.uuid.clone(), ops }, SignedDuration::ZERO);
    }
    draft.clear_error();
    // The state first: an operator that is killed after the request must find that an inspection was requested.
    if draft.seen.host.state() != State::Inspecting {
        return draft.again_in(SignedDuration::ZERO);
    }
    if annotations::asks_for_inspection(&draft.seen.host) {
        draft.steps.push(Step::RecordInspection(last_inspection(node)));
    }
    draft.event("InspectionStarted", "Hardware inspection started");
    let target = ProvisionTarget::Inspect;
    draft.call(Call::SetProvisionState { id: node.uuid.clone(), target }, POLL)
}

fn wait(draft: &mut Draft<'_>, node: &Node) -> Flow {
    draft.clear_error();
    if asks_to_restart(draft) && node.provision_state == ProvisionState::InspectWait {
        draft.after.push(Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION]));
        let target = ProvisionTarget::Abort;
        return draft.call(Call::SetProvisionState { id: node.uuid.clone(), target }, POLL);
    }
    let start = draft.status.operation_history.inspect.start.as_ref();
    let since = start.map_or(SignedDuration::ZERO, |start| draft.now.duration_since(start.0));
    draft.again_in(if since > LATER { POLL_LATER } else { POLL })
}

/// It has ended, or is not wanted any more.
fn forget_record(draft: &mut Draft<'_>) {
    if annotations::get(&draft.seen.host, names::INSPECTION_ANNOTATION).is_some() {
        draft.steps.push(Step::RemoveAnnotations(vec![names::INSPECTION_ANNOTATION]));
    }
}

/// A ramdisk that hangs is restarted on request: the inspection is aborted, and begins again after its backoff.
fn asks_to_restart(draft: &Draft<'_>) -> bool {
    let request = annotations::reboot(&draft.seen.host);
    request.is_ok_and(|request| request.is_some_and(|request| request.force && request.once))
}

fn failed(draft: &mut Draft<'_>, kind: ErrorType, node: &Node) -> Flow {
    // What was requested has happened: the next ramdisk is not aborted, too.
    if asks_to_restart(draft) {
        draft.steps.push(Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION]));
    }
    if !draft.has_error(&kind) {
        let Some(error) = state_machine::error_of(draft, node) else { return draft.again_in(POLL) };
        return draft
            .fail(kind, format!("{error}; check the console of the host and Ironic's log"));
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    if node.maintenance {
        return draft.call(Call::ClearMaintenance { id: node.uuid.clone() }, SignedDuration::ZERO);
    }
    start(draft, node)
}

pub(super) fn finish(draft: &mut Draft<'_>, found: &quarry_api::bare_metal_host::HardwareDetails) {
    hardware_data::store(draft, found);
    forget_record(draft);
    let architecture = &found.cpu.arch;
    if draft.seen.host.spec.architecture.is_empty() && !architecture.is_empty() {
        draft.steps.push(Step::SetArchitecture(architecture.clone()));
    }
    draft.event("InspectionComplete", "Hardware inspection completed");
    raid::seen(draft, &found.storage);
    draft.enter(State::Preparing);
}
