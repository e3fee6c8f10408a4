use super::*;

/// A moved host: its status was written to the annotation without hardware, by this operator or by Cluster API's.
fn moved() -> Observed {
    let mut seen = observed(host(json!({})), Some(node(json!({}))));
    let saved = json!({
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
        "lastUpdated": "2025-06-01T00:00:00Z", "futureField": {"x": 1},
        "provisioning": {"state": "available", "ID": NODE, "image": {"url": ""}, "futureField": true},
        "hardware": {"hostname": "from-annotation", "cpu": {}, "systemVendor": {}, "firmware": {"bios": {}}},
    });
    annotate(&mut seen.host, names::STATUS_ANNOTATION, &saved.to_string());
    seen
}

#[test]
fn a_status_annotation_is_restored_and_hardware_data_wins() {
    let mut seen = moved();
    let plan = planned(&seen);
    let [Step::RestoreStatus(restored), Step::RemoveAnnotations(gone)] = &plan.steps[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(gone, &[names::STATUS_ANNOTATION]);
    let restored = typed(restored);
    assert_eq!(
        (&restored.provisioning.state, restored.provisioning.id.as_str()),
        (&ProvisioningState::Available, NODE)
    );
    assert_eq!(restored.hardware.as_ref().unwrap().hostname, "from-annotation");
    assert_eq!((&plan.call, plan.requeue), (&None, Some(SignedDuration::ZERO)));
    seen.hardware_data = Some(data_of(&seen.host, 4));
    let plan = planned(&seen);
    let [Step::RestoreStatus(restored), _] = &plan.steps[..] else { panic!("{plan:?}") };
    let restored = typed(restored);
    assert_eq!(restored.hardware, Some(hardware_of(4)));
    // Restored: neither registered nor inspected again.
    seen.host.status = Some(restored);
    seen.host.metadata.annotations = None;
    // The Secret has another version here: its credentials are given to Ironic once.
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("update /driver_info/redfish_password of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    let plan = planned(&seen);
    assert_eq!(
        (call(&plan).as_str(), super::plan::host_state(&plan, &seen)),
        ("", ProvisioningState::Available)
    );
}

#[test]
fn an_outdated_status_annotation_is_removed() {
    let mut seen = moved();
    seen.host.status = host_in("inspecting", json!({})).status;
    let plan = planned(&seen);
    assert!(steps(&plan).contains(&"RemoveAnnotations"));
    assert_eq!(super::plan::host_state(&plan, &seen), ProvisioningState::Inspecting);
}

#[test]
fn an_unreadable_status_annotation_stops_everything() {
    let mut seen = moved();
    annotate(&mut seen.host, names::STATUS_ANNOTATION, "{\"provisioning\": 7}");
    let plan = planned(&seen);
    assert_eq!((steps(&plan), call(&plan).as_str()), (vec![], ""));
    let found = condition(status(&plan), "quarry.dev/Accepted").unwrap();
    assert_eq!(found.reason, "InvalidAnnotation");
    assert!(
        found
            .message
            .starts_with(&format!("annotation {} cannot be read", names::STATUS_ANNOTATION))
    );
    seen.host.status = plan.status.map(|status| *status);
    let plan = planned_at(&seen, at(60));
    assert_eq!(
        (steps(&plan), call(&plan).as_str(), plan.status),
        (vec![], "", None),
        "still: nothing is known"
    );
    let corrected = moved().host.metadata.annotations;
    seen.host.metadata.annotations = corrected;
    assert_eq!(steps(&planned_at(&seen, at(90))), ["RestoreStatus", "RemoveAnnotations"]);
}

fn typed(status: &Value) -> BareMetalHostStatus {
    serde_json::from_value(status.clone()).unwrap()
}

fn restored(saved: &Value, data: Option<usize>) -> Value {
    let mut seen = observed(host(json!({})), Some(node(json!({}))));
    annotate(&mut seen.host, names::STATUS_ANNOTATION, &saved.to_string());
    seen.hardware_data = data.map(|disks| data_of(&seen.host, disks));
    let plan = planned(&seen);
    let [Step::RestoreStatus(restored), _] = &plan.steps[..] else { panic!("{plan:?}") };
    restored.clone()
}

/// As it was saved by a newer version: at the top, in a part, and in an item of a list.
#[test]
fn unknown_fields_of_a_saved_status_survive() {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Provisioned", "message": "", "future": 1,
        "lastTransitionTime": "2025-06-01T00:00:00Z",
    });
    let saved = json!({
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true, "errorType": "",
        "future": {"x": 1, "y": []}, "futureEmpty": "", "conditions": [condition],
        "provisioning": {"state": "available", "ID": NODE, "image": {"url": ""}, "future": [1, 2]},
        "hardware": {"hostname": "h", "future": true, "cpu": {"future": 7}},
    });
    let found = restored(&saved, None);
    for path in ["/future", "/conditions/0/future", "/provisioning/future", "/hardware/future"] {
        assert_eq!(found.pointer(path), saved.pointer(path), "{path}");
    }
    assert_eq!(found.pointer("/hardware/cpu/future"), Some(&json!(7)));
    // Known fields are written as always: an empty errorType would be refused.
    assert_eq!((found.get("errorType"), found.get("futureEmpty")), (None, None));
    assert_eq!(found["lastUpdated"], json!("2026-01-01T00:00:00Z"), "it counts from now on");
    assert_eq!(found["provisioningFailCount"], json!(0));
}

#[test]
fn hardware_data_replaces_all_of_the_saved_hardware() {
    let saved = json!({
        "provisioning": {"state": "available", "ID": NODE},
        "hardware": {"hostname": "h", "future": true, "cpu": {"future": 7}},
    });
    let found = restored(&saved, Some(2));
    assert_eq!(found["hardware"], json!(hardware_of(2)));
}
