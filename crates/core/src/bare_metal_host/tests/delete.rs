use super::*;
use quarry_api::bare_metal_host::ErrorType;

fn deleted(state: &str, node_is: Option<Value>) -> Observed {
    let mut seen = observed(host_in(state, json!({})), node_is.map(node));
    seen = with_hardware(seen, 1);
    mark_deleted(&mut seen.host);
    seen
}

#[test]
fn a_host_is_powered_off_then_deleted_then_released() {
    let mut seen = deleted("available", Some(json!({})));
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request power off of node {NODE}"));
    assert_eq!(status(&plan).provisioning.state, ProvisioningState::PoweringOffBeforeDelete);
    seen.host.status = plan.status.map(|status| *status);
    ironic_mut(&mut seen).node = Some(node(json!({"power_state": "power off"})));
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("delete node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    ironic_mut(&mut seen).node = None;
    let plan = planned(&seen);
    assert_eq!(steps(&plan), ["ReleaseSecret", "ReleaseHardwareData", "RemoveFinalizer"]);
}

#[test]
fn a_deletion_needs_neither_secret_nor_credentials() {
    let mut seen = deleted("registering", Some(json!({"provision_state": "enroll"})));
    seen.secret = None;
    assert_eq!(call(&planned(&seen)), format!("delete node {NODE}"));
}

#[test]
fn a_running_inspection_is_aborted_first() {
    let mut seen = deleted("inspecting", Some(json!({"provision_state": "inspect wait"})));
    assert_eq!(call(&planned(&seen)), format!("request abort of node {NODE}"));
    ironic_mut(&mut seen).node = Some(node(json!({"provision_state": "inspecting"})));
    assert_eq!(call(&planned(&seen)), "", "it cannot be aborted yet");
    let failed = json!({"provision_state": "inspect failed", "power_state": "power off"});
    ironic_mut(&mut seen).node = Some(node(failed));
    assert_eq!(call(&planned(&seen)), format!("set maintenance of node {NODE}"));
}

#[test]
fn a_node_with_an_instance_is_removed_from_maintenance() {
    let known = json!({"power_state": "power off", "instance_uuid": "u-1"});
    let mut seen = deleted("deleting", Some(known.clone()));
    assert_eq!(call(&planned(&seen)), format!("set maintenance of node {NODE}"));
    let mut maintained = known;
    merge(
        &mut maintained,
        &json!({"maintenance": true, "maintenance_reason": "the host is deleted"}),
    );
    ironic_mut(&mut seen).node = Some(node(maintained));
    assert_eq!(call(&planned(&seen)), format!("delete node {NODE}"));
}

#[test]
fn a_host_that_cannot_be_powered_off_is_deleted_in_the_end() {
    let mut seen =
        deleted("powering off before delete", Some(json!({"last_error": "power: no answer"})));
    let mut time = 0;
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request power off of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    for count in 1..=4 {
        let plan = planned_at(&seen, at(time));
        assert_eq!((status(&plan).error_count, call(&plan).as_str()), (count, ""));
        time += plan.requeue.unwrap().as_secs() + 1;
        seen.host.status = plan.status.map(|status| *status);
        if count < 4 {
            let plan = planned_at(&seen, at(time));
            assert_eq!(call(&plan), format!("request power off of node {NODE}"));
            seen.host.status = plan.status.map(|status| *status);
        }
    }
    assert_eq!(call(&planned_at(&seen, at(time))), format!("delete node {NODE}"));
}

#[test]
fn power_is_left_alone_where_the_spec_says_so() {
    let mut seen = deleted("available", Some(json!({})));
    seen.host.spec.disable_power_off = true;
    assert_eq!(call(&planned(&seen)), format!("delete node {NODE}"));
}

#[test]
fn detaching_removes_the_node_and_nothing_else() {
    let mut seen =
        with_hardware(observed(rested("available", json!({})), Some(node(json!({})))), 1);
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, "");
    assert_eq!(call(&planned(&seen)), format!("delete node {NODE}"));
    ironic_mut(&mut seen).node = None;
    let plan = planned(&seen);
    assert_eq!(
        (steps(&plan), call(&plan).as_str(), plan.events[0].reason),
        (vec![], "", "Detached")
    );
    let found = status(&plan);
    assert_eq!(
        (&found.operational_status, found.provisioning.id.as_str()),
        (&OperationalStatus::Detached, "")
    );
    assert_eq!(
        (&found.provisioning.state, found.hardware.is_some()),
        (&ProvisioningState::Available, true)
    );
    seen.host.status = plan.status.map(|status| *status);
    assert!(!needs_ironic(&seen.host));
    seen.ironic = IronicView::NotAsked;
    assert_eq!(planned_at(&seen, at(60)).status, None);
    // And back: registered again, and not inspected.
    seen.host.metadata.annotations = None;
    assert!(needs_ironic(&seen.host));
    seen.ironic = IronicView::Seen(Box::default());
    let plan = planned_at(&seen, at(90));
    assert!(call(&plan).starts_with("create node"));
    assert_eq!(status(&plan).provisioning.state, ProvisioningState::Available);
}

#[test]
fn a_host_is_detached_once_it_is_available_or_by_force() {
    let mut seen = observed(host(json!({})), None);
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, "");
    assert!(needs_ironic(&seen.host), "it is registered and inspected first, as upstream");
    let plan = planned(&seen);
    assert!(call(&plan).starts_with("create node"));
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(json!({}))));
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, "");
    let plan = planned(&seen);
    assert_eq!(condition(status(&plan), "quarry.dev/Accepted").unwrap().reason, "DetachWaits");
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, r#"{"force":true}"#);
    assert_eq!(call(&planned(&seen)), format!("delete node {NODE}"));
}

#[test]
fn a_detached_host_is_deleted_unless_that_is_delayed() {
    let detached = json!({"status": {"operationalStatus": "detached", "provisioning": {"ID": ""}}});
    for (value, goes) in [
        ("", true),
        ("text", true),
        (r#"{"deleteAction":"delete"}"#, true),
        (r#"{"deleteAction":"delay"}"#, false),
    ] {
        let mut host = host_in("available", detached.clone());
        annotate(&mut host, names::DETACHED_ANNOTATION, value);
        mark_deleted(&mut host);
        let mut seen = observed(host, None);
        seen.ironic = IronicView::NotAsked;
        let plan = planned(&seen);
        assert_eq!(steps(&plan).contains(&"RemoveFinalizer"), goes, "{value}");
        if !goes {
            assert_eq!(condition(status(&plan), "quarry.dev/Accepted").unwrap().reason, "Detached");
        }
    }
}

#[test]
fn a_detach_error_ends_with_its_cause() {
    let kept = json!({"maintenance": true, "maintenance_reason": "by hand"});
    let mut seen = with_hardware(observed(rested("available", json!({})), Some(node(kept))), 1);
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, "");
    let plan = planned(&seen);
    assert_eq!(
        (status(&plan).error_type.clone(), call(&plan).as_str()),
        (Some(ErrorType::Detach), "")
    );
    seen.host.status = plan.status.map(|status| *status);
    seen.host.metadata.annotations = None;
    ironic_mut(&mut seen).node = Some(node(json!({})));
    let plan = planned_at(&seen, at(5));
    assert_eq!((status(&plan).error_type.clone(), status(&plan).error_count), (None, 0));
}

#[test]
fn an_unreachable_ironic_delays_a_deletion_unless_forced() {
    let mut seen = deleted("available", None);
    seen.ironic = IronicView::Failed(error(quarry_ironic::Meaning::Failed));
    assert_eq!(steps(&planned(&seen)), Vec::<&str>::new());
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, "");
    assert_eq!(steps(&planned(&seen)), Vec::<&str>::new(), "its node may exist");
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, r#"{"deleteAction":"delete"}"#);
    assert!(steps(&planned(&seen)).contains(&"RemoveFinalizer"));
}

#[test]
fn a_released_host_is_not_ours_any_more() {
    let mut seen = deleted("deleting", None);
    seen.host.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
    assert_eq!(planned(&seen), Plan::default());
}
