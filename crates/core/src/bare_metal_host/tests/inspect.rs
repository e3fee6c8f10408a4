use super::*;
use quarry_api::bare_metal_host::{ErrorType, InspectionMode};

#[test]
fn fast_inspection_is_refused_with_a_reason() {
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(json!({}))));
    seen.host.spec.inspection_mode = Some(InspectionMode::Fast);
    let plan = planned(&seen);
    assert_eq!((call(&plan).as_str(), plan.requeue), ("", None));
    assert_eq!(status(&plan).error_type, Some(ErrorType::Inspection));
    assert!(status(&plan).error_message.ends_with("set it to agent, or to disabled"));
}

#[test]
fn a_node_in_use_is_never_inspected() {
    let seen = observed(
        host_in("inspecting", json!({})),
        Some(node(json!({"provision_state": "active"}))),
    );
    let plan = planned(&seen);
    assert_eq!((call(&plan).as_str(), status(&plan).error_count), ("", 1));
}

#[test]
fn too_many_busy_hosts_delay_an_inspection() {
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(json!({}))));
    ironic_mut(&mut seen).busy = seen.settings.max_busy_hosts;
    let plan = planned(&seen);
    assert_eq!(
        (call(&plan).as_str(), &status(&plan).operational_status),
        ("", &OperationalStatus::Delayed)
    );
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(planned_at(&seen, at(15)).status, None);
    ironic_mut(&mut seen).busy -= 1;
    let plan = planned_at(&seen, at(30));
    assert_eq!(call(&plan), format!("request inspect of node {NODE}"));
    assert_eq!(status(&plan).operational_status, OperationalStatus::Ok);
}

/// Intent first: the state, then the record that the request becomes, then the call.
#[test]
fn a_requested_inspection_is_recorded_then_started() {
    let done = json!({"inspection_finished_at": "2025-12-31T00:00:00Z"});
    let mut seen = with_hardware(observed(rested("available", json!({})), Some(node(done))), 1);
    annotate(&mut seen.host, names::INSPECT_ANNOTATION, "");
    let plan = planned(&seen);
    assert_eq!((call(&plan).as_str(), steps(&plan)), ("", vec![]));
    assert_eq!(status(&plan).provisioning.state, ProvisioningState::Inspecting);
    seen.host.status = plan.status.map(|status| *status);
    let plan = planned_at(&seen, at(1));
    assert_eq!(call(&plan), format!("request inspect of node {NODE}"));
    assert_eq!(plan.steps, [Step::RecordInspection("2025-12-31T00:00:00Z".to_owned())]);
    assert_eq!((plan.events[0].reason, plan.after), ("InspectionStarted", vec![]));
}

/// Recorded, and the operator was killed: before the call, after it, after the inspection.
#[test]
fn a_recorded_inspection_is_started_exactly_once() {
    let before = "2025-12-31T00:00:00Z";
    let of = |extra: Value| {
        let mut seen = observed(host_in("inspecting", json!({})), Some(node(extra)));
        annotate(&mut seen.host, names::INSPECTION_ANNOTATION, before);
        ironic_mut(&mut seen).inventory = Some(inventory(2));
        with_hardware(seen, 1)
    };
    let seen = of(json!({"inspection_finished_at": before}));
    assert!(!wants_inventory(&seen), "that of the inspection before");
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request inspect of node {NODE}"));
    assert_eq!(steps(&plan), Vec::<&str>::new());
    let plan = planned(&of(json!({"provision_state": "inspect wait"})));
    assert_eq!((call(&plan).as_str(), steps(&plan)), ("", vec![]));
    // Whatever the clock of Ironic says.
    for finished in ["2025-12-31T00:01:00Z", "2020-01-01T00:00:00Z"] {
        let seen = of(json!({"inspection_finished_at": finished}));
        assert!(wants_inventory(&seen));
        let plan = planned(&seen);
        assert_eq!(call(&plan), "");
        assert_eq!(
            steps(&plan),
            [
                "ReleaseHardwareData",
                "DeleteHardwareData",
                "CreateHardwareData",
                "RemoveAnnotations"
            ]
        );
        let gone = Step::RemoveAnnotations(vec![names::INSPECTION_ANNOTATION]);
        assert_eq!(plan.steps.last(), Some(&gone));
    }
}

fn wants_inventory(seen: &Observed) -> bool {
    let IronicView::Seen(ironic) = &seen.ironic else { return false };
    reads(&seen.host, ironic.node.as_ref()).inventory
}

/// The abort was accepted, and the operator killed before the annotation was removed.
#[test]
fn a_ramdisk_is_restarted_once() {
    let failed = json!({"provision_state": "inspect failed", "last_error": "aborted"});
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(failed)));
    annotate(&mut seen.host, names::REBOOT_ANNOTATION, r#"{"force":true}"#);
    let plan = planned(&seen);
    assert_eq!(plan.steps, [Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION])]);
    assert_eq!((call(&plan).as_str(), status(&plan).error_count), ("", 1));
}

#[test]
fn an_unexpected_state_of_the_node_is_reported_while_it_lasts() {
    for (state, extra, remedy) in [
        ("inspecting", json!({"provision_state": "rescue"}), "; bring it back to manageable"),
        ("inspecting", json!({"provision_state": "cleaning"}), "; wait until Ironic has ended it"),
        ("inspecting", json!({"provision_state": "polishing"}), "; bring it back to manageable"),
        (
            "provisioned",
            json!({"provision_state": "deploy failed"}),
            "to active if the machine is in use",
        ),
    ] {
        let mut seen = observed(host_in(state, json!({})), Some(node(extra.clone())));
        let plan = planned(&seen);
        assert_eq!(call(&plan), "");
        let found = condition(status(&plan), "quarry.dev/Accepted").unwrap();
        assert_eq!(
            (found.status.as_str(), found.reason.as_str()),
            ("False", "UnexpectedNodeState")
        );
        let named = extra["provision_state"].to_string();
        assert!(
            found.message.contains(&named) && found.message.contains(remedy),
            "{}",
            found.message
        );
        seen.host.status = plan.status.map(|status| *status);
        assert_eq!(planned_at(&seen, at(60)).status, None, "reported once");
        let usual = if state == "provisioned" { "active" } else { "inspect wait" };
        ironic_mut(&mut seen).node = Some(node(json!({"provision_state": usual})));
        assert_eq!(condition(status(&planned_at(&seen, at(90))), "quarry.dev/Accepted"), None);
    }
}

#[test]
fn an_ironic_without_inventories_is_reported() {
    let done = json!({"inspection_finished_at": "2026-01-01T00:00:00Z"});
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(done)));
    let plan = planned(&seen);
    assert_eq!((call(&plan).as_str(), status(&plan).error_count), ("", 1));
    assert!(status(&plan).error_message.contains("data_backend"));
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(call(&planned_at(&seen, at(20))), "");
    assert_eq!(call(&planned_at(&seen, at(200))), format!("request inspect of node {NODE}"));
}

#[test]
fn a_forced_reboot_restarts_a_ramdisk_that_hangs() {
    let mut seen = observed(
        host_in("inspecting", json!({})),
        Some(node(json!({"provision_state": "inspect wait"}))),
    );
    annotate(&mut seen.host, names::REBOOT_ANNOTATION, "");
    assert_eq!(call(&planned(&seen)), "", "only with force");
    annotate(&mut seen.host, names::REBOOT_ANNOTATION, r#"{"force":true}"#);
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request abort of node {NODE}"));
    assert_eq!(plan.after, [Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION])]);
}

#[test]
fn the_architecture_is_written_where_the_spec_has_none() {
    let done = node(json!({"inspection_finished_at": "2026-01-01T00:00:00Z"}));
    let mut seen =
        observed(host_in("inspecting", json!({"spec": {"architecture": null}})), Some(done));
    ironic_mut(&mut seen).inventory = Some(inventory(1));
    assert_eq!(steps(&planned(&seen)), ["CreateHardwareData", "SetArchitecture"]);
}

#[test]
fn the_state_and_its_error_arrive_one_after_the_other() {
    let early = json!({"provision_state": "inspect failed", "reservation": "lab"});
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(early)));
    let plan = planned(&seen);
    assert_eq!((status(&plan).error_count, plan.requeue), (0, Some(SignedDuration::from_secs(2))));
    // A change of power has removed it since: not waited for.
    ironic_mut(&mut seen).node = Some(node(json!({"provision_state": "inspect failed"})));
    assert!(
        status(&planned(&seen))
            .error_message
            .starts_with("inspect failed, and Ironic gives no reason")
    );
}
