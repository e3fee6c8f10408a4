use super::*;

#[test]
fn a_paused_host_is_left_alone_in_every_state() {
    for state in ProvisioningState::ALL {
        let mut seen = observed(host_in(state, json!({})), None);
        annotate(&mut seen.host, names::PAUSED_ANNOTATION, "metal3.io/capm3");
        mark_deleted(&mut seen.host);
        assert!(!needs_ironic(&seen.host));
        assert_eq!(planned(&seen), Plan::default(), "{state}");
    }
}

#[test]
fn a_host_without_bmc_is_unmanaged() {
    let mut seen =
        observed(host(json!({"spec": {"bmc": null}, "metadata": {"finalizers": null}})), None);
    assert!(!needs_ironic(&seen.host));
    seen.ironic = IronicView::NotAsked;
    let plan = planned(&seen);
    assert_eq!((steps(&plan), plan.events[0].reason), (vec!["AddFinalizer"], "Discovered"));
    let found = status(&plan);
    assert_eq!(
        (&found.provisioning.state, &found.operational_status),
        (&ProvisioningState::Unmanaged, &OperationalStatus::Discovered)
    );
    seen.host.status = plan.status.map(|status| *status);
    seen.host.metadata.finalizers = Some(vec![names::HOST_FINALIZER.to_owned()]);
    assert_eq!(planned_at(&seen, at(60)), Plan::default());
}

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
    let [Step::WriteStatus(restored), Step::RemoveAnnotations(gone)] = &plan.steps[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(gone, &[names::STATUS_ANNOTATION]);
    assert_eq!(
        (&restored.provisioning.state, restored.provisioning.id.as_str()),
        (&ProvisioningState::Available, NODE)
    );
    assert_eq!(restored.hardware.as_ref().unwrap().hostname, "from-annotation");
    assert_eq!((&plan.call, plan.requeue), (&None, Some(SignedDuration::ZERO)));
    seen.hardware_data = Some(data_of(&seen.host, 4));
    let plan = planned(&seen);
    let [Step::WriteStatus(restored), _] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(restored.hardware, Some(hardware_of(4)));
    // Restored: neither registered nor inspected again.
    seen.host.status = Some((**restored).clone());
    seen.host.metadata.annotations = None;
    // The Secret has another version here: its credentials are given to Ironic once.
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("update /driver_info/redfish_password of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    let plan = planned(&seen);
    assert_eq!(
        (call(&plan).as_str(), host_state(&plan, &seen)),
        ("", ProvisioningState::Available)
    );
}

fn host_state(plan: &Plan, seen: &Observed) -> ProvisioningState {
    plan.status
        .as_ref()
        .map_or_else(|| seen.host.state(), |status| status.provisioning.state.clone())
}

#[test]
fn an_outdated_status_annotation_is_removed() {
    let mut seen = moved();
    seen.host.status = host_in("inspecting", json!({})).status;
    let plan = planned(&seen);
    assert!(steps(&plan).contains(&"RemoveAnnotations"));
    assert_eq!(host_state(&plan, &seen), ProvisioningState::Inspecting);
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
    assert_eq!(steps(&planned_at(&seen, at(90))), ["WriteStatus", "RemoveAnnotations"]);
}

#[test]
fn answers_of_ironic_may_be_old_only_at_rest() {
    let rest = SignedDuration::from_secs(50);
    let mut host = rested("available", json!({}));
    assert_eq!(max_age(&host), rest);
    host.metadata.generation = Some(2);
    assert!(max_age(&host) < FRESH, "its spec was changed");
    let mut host = rested("available", json!({}));
    mark_deleted(&mut host);
    assert!(max_age(&host) < FRESH);
    let failed = json!({"status": {"operationalStatus": "error"}});
    assert!(max_age(&host_in("available", failed)) < FRESH);
    assert!(max_age(&host_in("inspecting", json!({}))) < FRESH);
    for state in ["provisioned", "externally provisioned", "ready"] {
        assert_eq!(max_age(&host_in(state, json!({}))), rest);
    }
}

#[test]
fn a_state_of_a_newer_version_is_left_alone() {
    let mut seen =
        with_hardware(observed(host_in("defragmenting", json!({})), Some(node(json!({})))), 1);
    let plan = planned(&seen);
    assert_eq!((call(&plan).as_str(), host_state(&plan, &seen).as_str()), ("", "defragmenting"));
    assert_eq!(condition(status(&plan), "quarry.dev/Accepted").unwrap().reason, "UnknownState");
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(planned_at(&seen, at(60)).status, None);
}

#[test]
fn an_externally_provisioned_host_is_adopted() {
    let mut seen = observed(
        host_in("registering", json!({"spec": {"externallyProvisioned": true}})),
        Some(node(json!({}))),
    );
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request adopt of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(seen.host.state(), ProvisioningState::ExternallyProvisioned);
    ironic_mut(&mut seen).node =
        Some(node(json!({"provision_state": "adopt failed", "last_error": "no boot"})));
    let plan = planned(&seen);
    assert_eq!((call(&plan).as_str(), status(&plan).error_message.as_str()), ("", "no boot"));
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(call(&planned_at(&seen, at(200))), format!("request adopt of node {NODE}"));
    ironic_mut(&mut seen).node = Some(node(json!({"provision_state": "active"})));
    let plan = planned_at(&seen, at(201));
    assert_eq!((call(&plan).as_str(), status(&plan).error_count), ("", 0));
}
