//! Each violation, by a plan that is wrong in one way only.

use super::*;
use crate::bare_metal_host::check::{Violation, check};
use crate::event::PendingEvent;
use quarry_ironic::{Call, ProvisionTarget};

fn seen() -> Observed {
    with_hardware(observed(rested("available", json!({})), Some(node(json!({})))), 1)
}

fn calls(call: Call) -> Plan {
    Plan { call: Some(call), ..Plan::default() }
}

fn does(steps: Vec<Step>) -> Plan {
    Plan { steps, ..Plan::default() }
}

fn request(target: ProvisionTarget) -> Plan {
    calls(Call::SetProvisionState { id: NODE.to_owned(), target })
}

#[test]
fn an_empty_plan_violates_nothing() {
    assert_eq!(check(&seen(), &Plan::default()), []);
}

#[test]
fn a_paused_host_must_not_change() {
    let mut seen = seen();
    annotate(&mut seen.host, names::PAUSED_ANNOTATION, "");
    assert_eq!(check(&seen, &does(vec![Step::AddFinalizer])), [Violation::Paused]);
}

#[test]
fn another_node_must_not_change() {
    let other = || "bbbbbbbb-0000-4000-8000-000000000001".to_owned();
    let plan = calls(Call::ClearMaintenance { id: other() });
    assert_eq!(check(&seen(), &plan), [Violation::OtherNode(other())]);
    let mut gone = seen();
    ironic_mut(&mut gone).node = None;
    let plan = calls(Call::ClearMaintenance { id: NODE.to_owned() });
    assert_eq!(check(&gone, &plan), [Violation::OtherNode(NODE.to_owned())]);
}

#[test]
fn a_second_node_must_not_be_created() {
    assert_eq!(check(&seen(), &calls(Call::CreateNode(Box::default()))), [Violation::SecondNode]);
}

#[test]
fn an_active_node_must_not_be_touched() {
    let mut seen = seen();
    for state in
        ["active", "deploying", "wait call-back", "deploy hold", "servicing", "service wait"]
    {
        let found: Node = node(json!({"provision_state": state}));
        let known = !matches!(found.provision_state, ProvisionState::Unknown(_));
        ironic_mut(&mut seen).node = Some(found);
        for target in [
            ProvisionTarget::Inspect,
            ProvisionTarget::Manage,
            ProvisionTarget::Deleted,
            ProvisionTarget::Provide,
        ] {
            let found = check(&seen, &request(target));
            assert!(found.contains(&Violation::ActiveNode), "{state} {known}: {found:?}");
        }
        assert_eq!(check(&seen, &request(ProvisionTarget::Adopt)), []);
    }
}

#[test]
fn an_inspection_must_be_recorded_first() {
    let mut seen = seen();
    let plan = request(ProvisionTarget::Inspect);
    assert_eq!(check(&seen, &plan), [Violation::UnrecordedInspection]);
    let status = seen.host.status.as_mut().unwrap();
    status.provisioning.state = ProvisioningState::Inspecting;
    assert_eq!(check(&seen, &plan), []);
    // The request must be recorded as well: left as it is, it would be carried out again.
    annotate(&mut seen.host, names::INSPECT_ANNOTATION, "");
    assert_eq!(check(&seen, &plan), [Violation::UnrecordedInspection]);
    let steps = vec![Step::RecordInspection("none".to_owned())];
    assert_eq!(check(&seen, &Plan { steps, ..plan }), []);
}

#[test]
fn a_node_must_not_be_deleted_without_a_request() {
    let plan = calls(Call::DeleteNode { id: NODE.to_owned() });
    assert_eq!(check(&seen(), &plan), [Violation::NodeDeleted]);
    let mut detached = seen();
    annotate(&mut detached.host, names::DETACHED_ANNOTATION, "");
    assert_eq!(check(&detached, &plan), []);
}

#[test]
fn a_host_must_not_be_released_early() {
    let plan = does(vec![Step::RemoveFinalizer]);
    assert_eq!(check(&seen(), &plan), [Violation::ReleasedEarly], "not deleted");
    let mut deleted = seen();
    mark_deleted(&mut deleted.host);
    assert_eq!(check(&deleted, &plan), [Violation::ReleasedEarly], "its node exists");
    deleted.ironic = IronicView::Failed(error(quarry_ironic::Meaning::Failed));
    assert_eq!(check(&deleted, &plan), [Violation::ReleasedEarly], "its node may exist");
    deleted.ironic = IronicView::Seen(Box::default());
    assert_eq!(check(&deleted, &plan), []);
}

#[test]
fn hardware_data_must_not_be_lost() {
    let plan = does(vec![Step::DeleteHardwareData]);
    assert_eq!(check(&seen(), &plan), [Violation::HardwareLost]);
    let made = Box::new(data_of(&seen().host, 1));
    let plan = does(vec![Step::DeleteHardwareData, Step::CreateHardwareData(made)]);
    assert_eq!(check(&seen(), &plan), []);
    // Nor because what was found is too large.
    let mut status = seen().host.status.unwrap();
    status.conditions[0].type_ = CONDITION_HARDWARE_DATA.to_owned();
    status.conditions[0].reason = "TooLarge".to_owned();
    let status = Some(Box::new(status));
    let plan = Plan { status, ..does(vec![Step::DeleteHardwareData]) };
    assert_eq!(check(&seen(), &plan), [Violation::HardwareLost]);
}

#[test]
fn hardware_data_of_a_host_in_use_must_not_change() {
    let seen = with_hardware(
        observed(
            host_in("provisioned", json!({})),
            Some(node(json!({"provision_state": "active"}))),
        ),
        1,
    );
    let made = Box::new(data_of(&seen.host, 2));
    assert_eq!(
        check(&seen, &does(vec![Step::CreateHardwareData(made)])),
        [Violation::HardwareReplaced]
    );
}

#[test]
fn the_id_of_a_node_must_not_be_forgotten() {
    let status = BareMetalHostStatus::default();
    let plan = Plan { status: Some(Box::new(status)), ..Plan::default() };
    assert_eq!(check(&seen(), &plan), [Violation::NodeForgotten]);
}

#[test]
fn credentials_must_not_be_written() {
    let message = format!("tried admin and {PASSWORD}");
    let shown = PendingEvent { warning: true, reason: "Error", message: message.clone() };
    let plan = Plan { events: vec![shown], ..Plan::default() };
    assert_eq!(check(&seen(), &plan), [Violation::CredentialShown]);
    let mut status = seen().host.status.unwrap();
    status.error_message = message;
    let plan = Plan { status: Some(Box::new(status)), ..Plan::default() };
    assert_eq!(check(&seen(), &plan), [Violation::CredentialShown]);
}

#[test]
fn a_secret_in_use_must_not_be_released() {
    let former = |name: &str| does(vec![Step::ReleaseFormerSecret(name.to_owned())]);
    assert_eq!(check(&seen(), &former("bmc")), [Violation::SecretReleased]);
    assert_eq!(check(&seen(), &former("other")), []);
    let plan = does(vec![Step::ReleaseSecret]);
    assert_eq!(check(&seen(), &plan), [Violation::SecretReleased]);
    let mut deleted = seen();
    mark_deleted(&mut deleted.host);
    assert_eq!(check(&deleted, &plan), []);
}
