//! The order of the questions: paused, restored, detached, deleted, registered, then the state.

use super::{
    IronicView, Observed, Plan, Step, annotations, delete, deprovision, hardware_data, register,
    state_machine,
    status::{self, CONDITION_ACCEPTED, CONDITION_IRONIC, Draft, Flow},
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
    if restore(&mut draft) == Flow::Continue {
        decide(&mut draft);
    }
    draft.finish()
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
    if host.bmc().is_none() && !is_deleted && draft.status.provisioning.id.is_empty() {
        if *draft.state() != State::Unmanaged {
            draft.enter(State::Unmanaged);
            draft.event("Discovered", "Discovered host with no BMC details");
        }
        draft.status.operational_status = OperationalStatus::Discovered;
        return;
    }
    if *draft.state() != State::Inspecting && !is_deleted {
        hardware_data::synchronize(draft);
    }
    if take_details(draft) == Flow::Stop || delete::detach(draft) == Flow::Stop {
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
        IronicView::NotAsked | IronicView::Seen(_) => draft.clear_condition(CONDITION_IRONIC),
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
            && !deprovision::gives_up(draft)
            && register::register(draft) == Flow::Stop
        {
            return;
        }
    } else {
        if matches!(draft.state(), State::None | State::Unmanaged) {
            draft.enter(State::Registering);
        }
        if register::register(draft) == Flow::Stop {
            return;
        }
    }
    state_machine::run(draft);
}

/// A host that was moved here, or restored from a backup, brings its status along. Only where it has none: the
/// annotation of a host that lives here is out of date.
fn restore(draft: &mut Draft<'_>) -> Flow {
    let host = &draft.seen.host;
    if annotations::get(host, names::STATUS_ANNOTATION).is_none() {
        return Flow::Continue;
    }
    let forget = Step::RemoveAnnotations(vec![names::STATUS_ANNOTATION]);
    // A report about an annotation that cannot be read gives it no state: once corrected, it is restored.
    let is_new = host.status.as_ref().is_none_or(|status| {
        let provisioning = &status.provisioning;
        status.last_updated.is_none()
            || (provisioning.state == State::None && provisioning.id.is_empty())
    });
    if !is_new {
        draft.steps.push(forget);
        return Flow::Continue;
    }
    match annotations::saved_status(host) {
        Ok(Some(mut saved)) => {
            let data = draft.seen.hardware_data.as_ref();
            saved.hardware = data.and_then(|data| data.spec.hardware.clone()).or(saved.hardware);
            if saved.hardware.as_ref().is_some_and(|hardware| {
                hardware_data::size(hardware) > super::STATUS_HARDWARE_LIMIT
            }) {
                saved.hardware = None;
            }
            // It counts from now on: a backoff begins again.
            saved.last_updated =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(draft.now));
            draft.status = saved.clone();
            draft.steps.extend([Step::WriteStatus(Box::new(saved)), forget]);
            draft.again_in(SignedDuration::ZERO);
        }
        // Nothing is done to a machine whose state is unknown.
        Ok(None) => {}
        Err(error) => {
            draft.condition(CONDITION_ACCEPTED, "InvalidAnnotation", &error.to_string());
        }
    }
    Flow::Stop
}

/// Hardware that an administrator describes, instead of an inspection. One that exists wins.
fn take_details(draft: &mut Draft<'_>) -> Flow {
    let host = &draft.seen.host;
    if draft.is_deleted() || annotations::get(host, names::HARDWARE_DETAILS_ANNOTATION).is_none() {
        return Flow::Continue;
    }
    if !annotations::is_inspection_disabled(host) {
        let message = format!(
            "annotation {} counts only while inspection is disabled; set spec.inspectionMode to disabled, or remove the annotation",
            names::HARDWARE_DETAILS_ANNOTATION
        );
        draft.condition(CONDITION_ACCEPTED, "AnnotationIgnored", &message);
        return Flow::Continue;
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
    Flow::Continue
}
