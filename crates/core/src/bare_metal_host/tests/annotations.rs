use super::*;
use crate::bare_metal_host::annotations::{
    RebootRequest, asks_for_inspection, detached, hardware_details, is_inspection_disabled, reboot,
    saved_status,
};
use quarry_api::bare_metal_host::DetachedDeleteAction;

fn annotated(pairs: &[(&str, &str)]) -> BareMetalHost {
    let mut host = host(json!({}));
    pairs.iter().for_each(|(name, value)| annotate(&mut host, name, value));
    host
}

#[test]
fn reboot_requests_are_joined() {
    let soft = RebootRequest { once: true, ..RebootRequest::default() };
    assert_eq!(reboot(&annotated(&[])), Ok(None));
    for value in ["", "please", "true"] {
        assert_eq!(
            reboot(&annotated(&[("reboot.metal3.io", value)])),
            Ok(Some(soft.clone())),
            "{value}"
        );
    }
    let hard = annotated(&[("reboot.metal3.io", r#"{"mode":"hard","force":true}"#)]);
    assert_eq!(reboot(&hard), Ok(Some(RebootRequest { hard: true, force: true, once: true })));
    let two =
        annotated(&[("reboot.metal3.io", ""), ("reboot.metal3.io/capm3", r#"{"mode":"hard"}"#)]);
    assert_eq!(reboot(&two), Ok(Some(RebootRequest { hard: true, force: false, once: false })));
    assert_eq!(reboot(&annotated(&[("reboot.metal3.iox", "")])), Ok(None), "another name");
}

#[test]
fn malformed_annotations_name_themselves() {
    let cases = [
        reboot(&annotated(&[("reboot.metal3.io/key", "{mode")])).unwrap_err(),
        detached(&annotated(&[(names::DETACHED_ANNOTATION, "{\"force\": 1}")])).unwrap_err(),
        hardware_details(&annotated(&[(names::HARDWARE_DETAILS_ANNOTATION, "[]")])).unwrap_err(),
        saved_status(&annotated(&[(names::STATUS_ANNOTATION, "{\"errorCount\": \"x\"}")]))
            .unwrap_err(),
    ];
    insta::assert_snapshot!(cases.map(|error| error.to_string()).join("\n"));
}

#[test]
fn a_malformed_annotation_is_reported_and_stops_nothing_else() {
    for (name, value) in [("reboot.metal3.io", "{"), (names::HARDWARE_DETAILS_ANNOTATION, "{")] {
        let mut seen =
            with_hardware(observed(rested("available", json!({})), Some(node(json!({})))), 2);
        if name == names::HARDWARE_DETAILS_ANNOTATION {
            annotate(&mut seen.host, names::INSPECT_ANNOTATION, names::INSPECT_DISABLED);
        }
        annotate(&mut seen.host, name, value);
        let plan = planned(&seen);
        assert_eq!((call(&plan), status(&plan).error_count), (String::new(), 0));
        let found = condition(status(&plan), "quarry.dev/Accepted").unwrap();
        assert_eq!((found.reason.as_str(), found.status.as_str()), ("InvalidAnnotation", "False"));
        assert!(found.message.contains(name) && found.message.ends_with("correct or remove it"));
        // Reported once, with the time at which it was noticed.
        seen.host.status = plan.status.map(|status| *status);
        assert_eq!(planned_at(&seen, at(60)).status, None);
        seen.host.metadata.annotations = None;
        assert_eq!(condition(status(&planned_at(&seen, at(90))), "quarry.dev/Accepted"), None);
    }
}

#[test]
fn detached_has_options_or_any_text() {
    let of = |value: &str| {
        detached(&annotated(&[(names::DETACHED_ANNOTATION, value)])).unwrap().unwrap()
    };
    assert_eq!((of("").force, of("by me").delete_action), (false, DetachedDeleteAction::None));
    assert!(of(r#"{"force":true}"#).force);
    assert_eq!(of(r#"{"deleteAction":"delay"}"#).delete_action, DetachedDeleteAction::Delay);
    assert_eq!(detached(&annotated(&[])), Ok(None));
}

#[test]
fn inspection_is_disabled_by_spec_or_annotation() {
    let mut by_spec = annotated(&[(names::INSPECT_ANNOTATION, "")]);
    assert!(asks_for_inspection(&by_spec) && !is_inspection_disabled(&by_spec));
    by_spec.spec.inspection_mode = Some(quarry_api::bare_metal_host::InspectionMode::Disabled);
    assert!(!asks_for_inspection(&by_spec) && is_inspection_disabled(&by_spec));
    let by_annotation = annotated(&[(names::INSPECT_ANNOTATION, "disabled")]);
    assert!(!asks_for_inspection(&by_annotation) && is_inspection_disabled(&by_annotation));
}
