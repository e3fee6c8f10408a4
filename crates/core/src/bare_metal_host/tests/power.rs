use super::*;
use quarry_api::bare_metal_host::ErrorType;

/// An available host at rest, which asks for this power and has that one.
fn seen(online: bool, node_is: Value) -> Observed {
    let mut seen = with_hardware(observed(rested("available", json!({})), Some(node(node_is))), 1);
    seen.host.spec.online = online;
    seen
}

fn off() -> Value {
    json!({"power_state": "power off"})
}

#[test]
fn power_follows_the_spec_and_the_annotations() {
    let hard = r#"{"mode":"hard"}"#;
    let mut lines = Vec::new();
    for (online, is_on, keep_on, annotation) in [
        (true, true, false, None),
        (true, false, false, None),
        (false, true, false, None),
        (false, false, false, None),
        (true, true, false, Some(("reboot.metal3.io", ""))),
        (true, true, false, Some(("reboot.metal3.io", hard))),
        (true, false, false, Some(("reboot.metal3.io", ""))),
        (false, false, false, Some(("reboot.metal3.io", ""))),
        (true, true, false, Some(("reboot.metal3.io/key", ""))),
        (true, false, false, Some(("reboot.metal3.io/key", ""))),
        (true, true, true, Some(("reboot.metal3.io", ""))),
        (true, true, true, Some(("reboot.metal3.io/key", ""))),
    ] {
        let mut seen =
            seen(online, if is_on { json!({"disable_power_off": keep_on}) } else { off() });
        seen.host.spec.disable_power_off = keep_on;
        if let Some((name, value)) = annotation {
            annotate(&mut seen.host, name, value);
        }
        let plan = planned(&seen);
        let call = call(&plan).replace(NODE, "NODE");
        lines.push(format!(
            "online {online}, is on {is_on}, never off {keep_on}, {annotation:?}: {call:?} {:?}",
            steps(&plan)
        ));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_reboot_goes_through_off_once() {
    let mut seen = seen(true, json!({}));
    annotate(&mut seen.host, names::REBOOT_ANNOTATION, "");
    assert_eq!(call(&planned(&seen)), format!("request soft power off of node {NODE}"));
    ironic_mut(&mut seen).node = Some(node(json!({"target_power_state": "power off"})));
    assert_eq!(call(&planned(&seen)), "", "Ironic is at it");
    ironic_mut(&mut seen).node = Some(node(off()));
    let plan = planned(&seen);
    assert_eq!((steps(&plan), call(&plan).as_str()), (vec!["RemoveAnnotations"], ""));
    seen.host.metadata.annotations = None;
    assert_eq!(call(&planned(&seen)), format!("request power on of node {NODE}"));
}

#[test]
fn a_failed_shutdown_is_followed_by_a_hard_one() {
    let failed = json!({"last_error": "Failed to change power state: timed out"});
    let mut seen = seen(false, failed);
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request soft power off of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    let requested = condition(seen.host.status.as_ref().unwrap(), CONDITION_POWER).unwrap();
    assert_eq!((requested.status.as_str(), requested.reason.as_str()), ("Unknown", "Requested"));
    let plan = planned(&seen);
    assert_eq!(
        (call(&plan).as_str(), status(&plan).error_type.clone()),
        ("", Some(ErrorType::PowerManagement))
    );
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(call(&planned_at(&seen, at(200))), format!("request power off of node {NODE}"));
    ironic_mut(&mut seen).node = Some(node(off()));
    let plan = planned_at(&seen, at(201));
    assert_eq!((status(&plan).error_type.clone(), status(&plan).error_count), (None, 0));
    assert_eq!(condition(status(&plan), CONDITION_POWER), None);
    assert!(!status(&plan).powered_on);
}

/// Ironic keeps an error until the next operation: one from before our request is no answer to it.
#[test]
fn an_old_error_about_power_is_no_answer() {
    let old = json!({"last_error": "Failed to change power state: timed out a week ago"});
    let mut soft = seen(true, old.clone());
    annotate(&mut soft.host, names::REBOOT_ANNOTATION, "");
    let plan = planned(&soft);
    assert_eq!(call(&plan), format!("request soft power off of node {NODE}"));
    assert_eq!(status(&plan).error_type, None);
    let mut deleted = seen(true, old);
    mark_deleted(&mut deleted.host);
    let plan = planned(&deleted);
    assert_eq!(call(&plan), format!("request power off of node {NODE}"));
    assert_eq!((status(&plan).error_count, status(&plan).error_type.clone()), (0, None));
}

#[test]
fn a_bmc_that_was_lost_does_not_make_a_shutdown_hard() {
    let fault = json!({"maintenance": true, "fault": "power failure", "last_error": "no answer"});
    let mut seen = seen(false, fault);
    seen.host.status = planned(&seen).status.map(|status| *status);
    let lost = seen.host.status.as_ref().unwrap();
    assert_eq!(lost.error_type, Some(ErrorType::PowerManagement));
    ironic_mut(&mut seen).node = Some(node(json!({"last_error": "power: no answer"})));
    assert_eq!(call(&planned_at(&seen, at(600))), format!("request soft power off of node {NODE}"));
}

/// One request to the BMC. Killed after the call, and before the annotation was removed.
#[test]
fn a_reboot_that_is_under_way_is_not_repeated() {
    let mut seen = seen(true, json!({"disable_power_off": true}));
    seen.host.spec.disable_power_off = true;
    annotate(&mut seen.host, names::REBOOT_ANNOTATION, "");
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request rebooting of node {NODE}"));
    assert_eq!(plan.after, [Step::RemoveAnnotations(vec![names::REBOOT_ANNOTATION])]);
    let rebooting = json!({"disable_power_off": true, "target_power_state": "power on"});
    ironic_mut(&mut seen).node = Some(node(rebooting));
    let plan = planned(&seen);
    assert_eq!((call(&plan).as_str(), steps(&plan)), ("", vec!["RemoveAnnotations"]));
    // It was not accepted, or has ended: requested, because a lost reboot would go unnoticed.
    ironic_mut(&mut seen).node = Some(node(json!({"disable_power_off": true})));
    assert_eq!(call(&planned(&seen)), format!("request rebooting of node {NODE}"));
    // A key is no request to reboot once.
    let mut kept = seen.clone();
    annotate(&mut kept.host, "reboot.metal3.io/key", "");
    ironic_mut(&mut kept).node =
        Some(node(json!({"disable_power_off": true, "target_power_state": "power on"})));
    assert_eq!(steps(&planned(&kept)), Vec::<&str>::new());
}

#[test]
fn an_error_of_another_operation_is_none_of_the_power() {
    let seen = seen(false, json!({"last_error": "inspection timed out"}));
    assert_eq!(call(&planned(&seen)), format!("request soft power off of node {NODE}"));
}

#[test]
fn a_lost_bmc_is_reported_and_tried_again() {
    let fault = json!({"maintenance": true, "fault": "power failure", "last_error": "no answer"});
    let mut seen = seen(true, fault);
    let plan = planned(&seen);
    assert_eq!(status(&plan).error_type, Some(ErrorType::PowerManagement));
    assert!(status(&plan).error_message.starts_with("no answer; check"));
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(call(&planned_at(&seen, at(200))), format!("clear maintenance of node {NODE}"));
    ironic_mut(&mut seen).node = Some(node(json!({})));
    let plan = planned_at(&seen, at(30));
    assert_eq!(
        (status(&plan).error_message.as_str(), status(&plan).error_count),
        ("", 0),
        "it is back"
    );
}

#[test]
fn what_is_not_supported_is_refused_once() {
    let mut seen = seen(true, json!({}));
    seen.host.spec.custom_deploy = Some(quarry_api::bare_metal_host::CustomDeploy::default());
    let plan = planned(&seen);
    assert_eq!(condition(status(&plan), "quarry.dev/Accepted").unwrap().reason, "NotSupported");
    seen.host.status = plan.status.map(|status| *status);
    let rest = planned_at(&seen, at(60));
    assert_eq!((rest.status, rest.call), (None, None), "not written again each minute");
}
