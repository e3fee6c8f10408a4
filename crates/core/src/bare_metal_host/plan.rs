//! The order of the questions: paused, restored, detached, deleted, registered, then the state.

use super::{
    IronicView, Observed, Plan, Step, annotations, clean, delete, deprovision, hardware_data,
    power::AT_REST,
    register, restore, secret, state_machine,
    status::{self, CONDITION_ACCEPTED, CONDITION_IRONIC, CONDITION_WRITTEN, Draft, Flow},
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{OperationalStatus, ProvisioningState as State},
    names,
};
use quarry_ironic::ProvisionState;

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let host = &seen.host;
    if annotations::get(host, names::PAUSED_ANNOTATION).is_some() || is_released(host) {
        return Plan::default();
    }
    let mut draft = Draft::new(seen, now);
    // Its status is written last: then no write was refused.
    draft.clear_condition(CONDITION_WRITTEN);
    if restore::restore(&mut draft) == Flow::Continue {
        decide(&mut draft);
    }
    let plan = draft.finish();
    clean::withdraw_first(seen, &plan, now).unwrap_or(plan)
}

fn is_held(host: &BareMetalHost) -> bool {
    host.finalizers().iter().any(|one| one == names::HOST_FINALIZER)
}

/// Others hold it: nothing of it is ours any more.
fn is_released(host: &BareMetalHost) -> bool {
    host.metadata.deletion_timestamp.is_some() && !is_held(host)
}

fn decide(draft: &mut Draft<'_>) {
    let host = &draft.seen.host;
    let is_deleted = draft.is_deleted();
    if !is_held(host) {
        draft.steps.push(Step::AddFinalizer);
    }
    secret::release_former(draft);
    let is_new = matches!(draft.state(), State::None | State::Unmanaged);
    if host.bmc().is_none() && !is_deleted && is_new && draft.status.provisioning.id.is_empty() {
        return unmanage(draft);
    }
    // First: what an administrator describes wins over what the status has from before.
    take_details(draft);
    if *draft.state() != State::Inspecting && !is_deleted {
        hardware_data::synchronize(draft);
    }
    if delete::detach(draft) == Flow::Stop {
        return;
    }
    match &draft.seen.ironic {
        IronicView::Failed(error) => {
            status::unreachable(draft, error);
            if is_deleted {
                delete::without_ironic(draft, error);
            }
            return;
        }
        IronicView::NotAsked if !is_deleted => return,
        IronicView::NotAsked | IronicView::Seen(_) => {
            if is_deleted && delete::is_away(host) {
                // It is back: attempts of the deletion begin again.
                draft.status.error_count = 0;
                draft.clear_error();
            }
            draft.clear_condition(CONDITION_IRONIC);
        }
    }
    if is_deleted {
        delete::begin(draft);
        if *draft.state() == State::Deprovisioning && host.state() != State::Deprovisioning {
            // Recorded first: when it began names what is erased.
            draft.again_in(SignedDuration::ZERO);
            return;
        }
        // What is erased needs its node. One that Ironic has lost is registered again.
        let is_unregistered = draft.node().is_none_or(|node| {
            matches!(node.provision_state, ProvisionState::Enroll | ProvisionState::Verifying)
        });
        if *draft.state() == State::Deprovisioning
            && is_unregistered
            && draft.seen.secret.is_some()
            && !deprovision::gives_up(draft)
            && register::register(draft) == Flow::Stop
        {
            return;
        }
    } else if host.bmc().is_none() {
        return without_bmc(draft);
    } else {
        draft.status.conditions.retain(|one| one.reason != BMC_MISSING);
        if matches!(draft.state(), State::None | State::Unmanaged) {
            draft.enter(State::Registering);
        }
        if register::register(draft) == Flow::Stop {
            return;
        }
    }
    state_machine::run(draft);
}

fn unmanage(draft: &mut Draft<'_>) {
    if *draft.state() != State::Unmanaged {
        draft.enter(State::Unmanaged);
        draft.event("Discovered", "Discovered host with no BMC details");
    }
    draft.status.operational_status = OperationalStatus::Discovered;
}

/// The reason of `quarry.dev/Accepted` for a host that lost its BMC.
const BMC_MISSING: &str = "BmcMissing";

/// `spec.bmc` was removed from a host that Ironic knows, or has worked on. State and node stay: a host that became
/// unmanaged would leave its node behind, and would be inspected, and so rebooted, as a new one once its BMC is back.
fn without_bmc(draft: &mut Draft<'_>) {
    let node = draft.node();
    if node.is_none() && *draft.state() == State::Registering {
        draft.status.provisioning.id.clear();
        draft.consider_all();
        return unmanage(draft);
    }
    let known = match node {
        Some(node) => {
            draft.status.provisioning.id.clone_from(&node.uuid);
            format!("node {} of this host stays in Ironic", node.uuid)
        }
        None => "Ironic has no node of this host".to_owned(),
    };
    let message = format!(
        "spec.bmc was removed, and {known}: its state is kept, and nothing is done to it; set spec.bmc again, or delete the host, which removes its node"
    );
    draft.clear_error();
    draft.condition(CONDITION_ACCEPTED, BMC_MISSING, &message);
    draft.again_in(AT_REST);
}

/// Hardware that an administrator describes, instead of an inspection. A HardwareData that exists wins.
fn take_details(draft: &mut Draft<'_>) {
    let host = &draft.seen.host;
    if draft.is_deleted() || annotations::get(host, names::HARDWARE_DETAILS_ANNOTATION).is_none() {
        return;
    }
    if !annotations::is_inspection_disabled(host) {
        let message = format!(
            "annotation {} counts only while inspection is disabled; set spec.inspectionMode to disabled, or remove the annotation",
            names::HARDWARE_DETAILS_ANNOTATION
        );
        draft.condition(CONDITION_ACCEPTED, "AnnotationIgnored", &message);
        return;
    }
    match annotations::hardware_details(host) {
        Ok(Some(details)) => {
            if draft.seen.hardware_data.is_none() {
                hardware_data::store(draft, &details);
            }
            let forget = vec![names::HARDWARE_DETAILS_ANNOTATION];
            draft.steps.push(Step::RemoveAnnotations(forget));
        }
        Ok(None) => {}
        Err(error) => {
            draft.condition(CONDITION_ACCEPTED, "InvalidAnnotation", &error.to_string());
        }
    }
}
