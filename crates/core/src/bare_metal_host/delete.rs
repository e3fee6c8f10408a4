//! The end of a host: powered off, removed from Ironic, released. And a host that is detached from Ironic.

use super::{
    Step, annotations, deprovision, power,
    register::{MAINTENANCE, is_maintained_by_hand, keep_waiting},
    status::{CONDITION_ACCEPTED, CONDITION_IRONIC, Draft, Flow, error_type},
};
use crate::event::PendingEvent;
use jiff::SignedDuration;
use quarry_api::bare_metal_host::{
    DetachedDeleteAction, ErrorType, OperationalStatus, ProvisioningState as State,
};
use quarry_ironic::{Call, Node, PowerState, PowerTarget, ProvisionState, ProvisionTarget};

const POLL: SignedDuration = SignedDuration::from_secs(2);
/// A host that cannot be powered off is deleted all the same after this many failures; as upstream.
const POWER_OFF_TRIES: i64 = 3;

/// Which state the deletion of a host leads to.
pub(super) fn begin(draft: &mut Draft<'_>) {
    // What was built for the host goes with it. Volumes that it came with stay: nothing says whose they are.
    let is_built = draft.status.provisioning.raid.is_some();
    let is_external = draft.seen.host.spec.externally_provisioned;
    let next = match draft.state() {
        State::None | State::Unmanaged | State::Registering => State::Deleting,
        State::Inspecting
        | State::MatchProfile
        | State::Preparing
        | State::Ready
        | State::Available
            if is_built && !is_external =>
        {
            State::Deprovisioning
        }
        State::Provisioning | State::Provisioned if is_external => State::PoweringOffBeforeDelete,
        State::Inspecting
        | State::MatchProfile
        | State::Preparing
        | State::Ready
        | State::Available
        | State::ExternallyProvisioned => State::PoweringOffBeforeDelete,
        State::Provisioning | State::Provisioned => State::Deprovisioning,
        State::Deprovisioning
        | State::PoweringOffBeforeDelete
        | State::Deleting
        | State::Other(_) => return,
    };
    draft.enter(next);
}

/// The state `powering off before delete`. `Continue` when it has ended.
pub(super) fn power_off(draft: &mut Draft<'_>) -> Flow {
    let kind = ErrorType::PowerManagement;
    let Some(node) = draft.node().filter(|_| !draft.seen.host.spec.disable_power_off) else {
        draft.enter(State::Deleting);
        return Flow::Continue;
    };
    let is_off = node.power_state.as_ref().is_none_or(|state| *state == PowerState::Off);
    if is_off && node.target_power_state.is_none() || draft.status.error_count > POWER_OFF_TRIES {
        draft.enter(State::Deleting);
        return Flow::Continue;
    }
    // A ramdisk that waits for its answer holds the node.
    if matches!(node.provision_state, ProvisionState::InspectWait | ProvisionState::CleanWait) {
        let target = ProvisionTarget::Abort;
        return draft.call(Call::SetProvisionState { id: node.uuid.clone(), target }, POLL);
    }
    if node.target_power_state.is_some() || super::is_busy(node) {
        return draft.again_in(POLL);
    }
    if let Some(error) = power::own_error(draft, node).filter(|_| !draft.has_error(&kind)) {
        return draft.fail(kind, format!("{error}; the host is deleted without being powered off after {POWER_OFF_TRIES} more failures"));
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    if draft.has_error(&kind) {
        draft.clear_error();
    }
    power::request(draft, node, PowerTarget::Off)
}

/// The state `deleting`: the node first, then what holds the objects.
pub(super) fn delete(draft: &mut Draft<'_>) -> Flow {
    match draft.node() {
        Some(node) => remove_node(draft, node),
        None => release(draft),
    }
}

fn remove_node(draft: &mut Draft<'_>, node: &Node) -> Flow {
    let id = node.uuid.clone();
    let plain = matches!(
        node.provision_state,
        ProvisionState::Enroll | ProvisionState::Manageable | ProvisionState::Available
    ) && node.instance_uuid.is_none();
    if super::is_busy(node) && node.provision_state != ProvisionState::InspectWait {
        return draft.again_in(POLL);
    }
    // Ironic removes others only from maintenance: also one with an instance that was never deployed.
    if !plain && !node.maintenance {
        let call = Call::SetMaintenance { id, reason: MAINTENANCE.to_owned() };
        return draft.call(call, SignedDuration::ZERO);
    }
    draft.call(Call::DeleteNode { id }, SignedDuration::ZERO)
}

/// Ironic has no node of this host. The HardwareData goes last, with its owner.
fn release(draft: &mut Draft<'_>) -> Flow {
    draft.status.provisioning.id.clear();
    let seen = draft.seen;
    if seen.secret.as_ref().is_some_and(|secret| super::register::is_claimed(secret, &seen.host)) {
        draft.steps.push(Step::ReleaseSecret);
    }
    let is_held = |data: &quarry_api::HardwareData| {
        let all = data.metadata.finalizers.iter().flatten();
        all.into_iter().any(|one| super::hardware_data::is_ours(one))
    };
    if seen.hardware_data.as_ref().is_some_and(is_held) {
        draft.steps.push(Step::ReleaseHardwareData);
    }
    draft.steps.push(Step::RemoveFinalizer);
    Flow::Stop
}

/// Ironic could not be asked the last time either.
pub(super) fn is_away(host: &quarry_api::BareMetalHost) -> bool {
    let conditions = host.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.type_ == CONDITION_IRONIC)
}

/// A deletion while Ironic cannot be asked: it ends after some failures, as upstream, and an Event says what stays.
pub(super) fn without_ironic(draft: &mut Draft<'_>, error: &quarry_ironic::Error) -> Flow {
    begin(draft);
    let kind = error_type(draft.state());
    // What failed before Ironic went away does not count.
    if !is_away(&draft.seen.host) {
        draft.status.error_count = 0;
        draft.clear_error();
    }
    if draft.status.error_count > deprovision::TRIES {
        deprovision::report_left(draft);
        let id = &draft.status.provisioning.id;
        if !id.is_empty() {
            let message = format!(
                "the host is deleted without Ironic, which may still have its node {id}; delete it there: baremetal node delete {id}"
            );
            draft.events.push(PendingEvent { warning: true, reason: "NodeLeft", message });
        }
        return release(draft);
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    // Each time is a failure of its own, also with the same answer.
    draft.status.error_message.clear();
    draft.fail(
        kind,
        format!(
            "{error}; the host is deleted without Ironic after {} more failures",
            deprovision::TRIES - draft.status.error_count
        ),
    )
}

/// Whether the host is detached, and what follows. `Continue`: it is attached.
pub(super) fn detach(draft: &mut Draft<'_>) -> Flow {
    let arguments = match annotations::detached(&draft.seen.host) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            if draft.has_error(&ErrorType::Detach) {
                draft.succeed();
            }
            if draft.status.operational_status == OperationalStatus::Detached {
                draft.clear_error();
                draft.event("Attached", "Host is attached to Ironic again");
            }
            return Flow::Continue;
        }
        Err(error) => {
            return draft.refuse(ErrorType::Detach, error.to_string());
        }
    };
    let detached = draft.status.operational_status == OperationalStatus::Detached;
    if draft.is_deleted() && detached {
        return match arguments.delete_action {
            DetachedDeleteAction::Delete | DetachedDeleteAction::None => release(draft),
            DetachedDeleteAction::Delay | DetachedDeleteAction::Other(_) => {
                draft.condition(CONDITION_ACCEPTED, "Detached", "a detached host whose deleteAction is delay is not deleted; remove annotation baremetalhost.metal3.io/detached, or set its deleteAction to delete");
                Flow::Stop
            }
        };
    }
    // Ironic cannot be asked: the host is removed without it, because the administrator said so.
    if draft.is_deleted()
        && arguments.delete_action == DetachedDeleteAction::Delete
        && matches!(draft.seen.ironic, super::IronicView::Failed(_))
    {
        return release(draft);
    }
    let stable = matches!(
        draft.state(),
        State::Provisioned | State::ExternallyProvisioned | State::Ready | State::Available
    );
    if !stable && !arguments.force && !detached {
        draft.condition(CONDITION_ACCEPTED, "DetachWaits", "a host is detached only while it is available, provisioned or externally provisioned; wait, or set force in annotation baremetalhost.metal3.io/detached");
        return Flow::Continue;
    }
    match draft.node() {
        Some(node)
            if is_maintained_by_hand(node)
                && node.maintenance_reason.as_deref() != Some(MAINTENANCE) =>
        {
            let message = format!(
                "node {} is in maintenance in Ironic; end it before the host is detached",
                node.uuid
            );
            draft.fail(ErrorType::Detach, message)
        }
        Some(node) => remove_node(draft, node),
        None if matches!(draft.seen.ironic, super::IronicView::Failed(_)) => Flow::Continue,
        None => {
            if !detached {
                draft.event("Detached", "Host is detached: Ironic does not manage it");
            }
            draft.succeed();
            draft.consider_all();
            draft.clear_condition(CONDITION_IRONIC);
            draft.status.provisioning.id.clear();
            draft.status.operational_status = OperationalStatus::Detached;
            Flow::Stop
        }
    }
}
