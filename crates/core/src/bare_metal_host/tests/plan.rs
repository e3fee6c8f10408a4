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

pub(super) fn host_state(plan: &Plan, seen: &Observed) -> ProvisioningState {
    plan.status
        .as_ref()
        .map_or_else(|| seen.host.state(), |status| status.provisioning.state.clone())
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

/// A machine that Ironic knows is not forgotten because its BMC is not named any more.
#[test]
fn a_host_that_loses_its_bmc_keeps_state_and_node() {
    for (state, node_is) in [
        ("registering", "enroll"),
        ("registering", "verifying"),
        ("inspecting", "inspect wait"),
        ("available", "manageable"),
        ("provisioned", "active"),
    ] {
        let host = host_in(
            state,
            json!({"status": {"errorMessage": "no answer", "errorType": "registration error", "operationalStatus": "error"}}),
        );
        let mut seen =
            with_hardware(observed(host, Some(node(json!({"provision_state": node_is})))), 1);
        let bmc = seen.host.spec.bmc.take();
        seen.secret = None;
        assert!(needs_ironic(&seen.host), "{state}");
        let plan = planned(&seen);
        assert_eq!((call(&plan).as_str(), steps(&plan)), ("", vec![]), "{state}");
        let found = status(&plan);
        assert_eq!(
            (found.provisioning.state.as_str(), found.provisioning.id.as_str()),
            (state, NODE)
        );
        assert_eq!((found.error_type.clone(), found.error_message.as_str()), (None, ""));
        let reported = condition(found, "quarry.dev/Accepted").unwrap();
        assert_eq!((reported.status.as_str(), reported.reason.as_str()), ("False", "BmcMissing"));
        assert!(
            reported.message.contains(NODE) && reported.message.contains("; set spec.bmc again")
        );
        seen.host.status = plan.status.map(|status| *status);
        assert_eq!(planned_at(&seen, at(60)).status, None, "reported once");
        // Back: it goes on where it was, and the report ends at once.
        (seen.host.spec.bmc, seen.secret) = (bmc, None);
        let plan = planned_at(&seen, at(90));
        assert_eq!(condition(status(&plan), "quarry.dev/Accepted"), None);
        assert_eq!(host_state(&plan, &seen).as_str(), state);
    }
}

#[test]
fn a_host_without_bmc_and_node_becomes_unmanaged() {
    for id in ["", NODE] {
        let registering = json!({"spec": {"bmc": null}, "status": {"provisioning": {"ID": id}}});
        let seen = observed(host_in("registering", registering), None);
        let found = planned(&seen).status.unwrap();
        assert_eq!(found.provisioning.state, ProvisioningState::Unmanaged);
        assert_eq!(
            (found.provisioning.id.as_str(), found.operational_status),
            ("", OperationalStatus::Discovered)
        );
    }
    // The answer to its creation was lost: Ironic is asked before it is forgotten.
    let registering = json!({"spec": {"bmc": null}, "status": {"provisioning": {"ID": ""}}});
    let mut seen = observed(host_in("registering", registering), Some(node(json!({}))));
    let plan = planned(&seen);
    assert_eq!(status(&plan).provisioning.id, NODE);
    assert_eq!(host_state(&plan, &seen), ProvisioningState::Registering);
    seen.ironic = IronicView::Failed(error(quarry_ironic::Meaning::Failed));
    assert_eq!(host_state(&planned(&seen), &seen), ProvisioningState::Registering);
}

/// It would be registered and inspected, and so rebooted, as a new host.
#[test]
fn a_detached_host_without_bmc_keeps_its_state() {
    let detached = json!({"spec": {"bmc": null}, "status": {"operationalStatus": "detached", "provisioning": {"ID": ""}}});
    let mut seen = observed(host_in("provisioned", detached), None);
    annotate(&mut seen.host, names::DETACHED_ANNOTATION, "");
    assert!(!needs_ironic(&seen.host));
    seen.ironic = IronicView::NotAsked;
    let plan = planned(&seen);
    assert_eq!(host_state(&plan, &seen), ProvisioningState::Provisioned);
    assert!(
        plan.status.is_none_or(|status| status.operational_status == OperationalStatus::Detached)
    );
}

/// The status is written when every step before it was accepted.
#[test]
fn a_refused_write_is_reported_until_it_is_accepted() {
    let mut seen =
        with_hardware(observed(rested("available", json!({})), Some(node(json!({})))), 1);
    let attempt = "BareMetalHost ns/h1: CreateHardwareData";
    let answer = format!("forbidden: by policy {PASSWORD}");
    let report = report_refusal(&seen, attempt, &answer, now());
    let found = report.status.as_deref().unwrap();
    let refused = condition(found, CONDITION_WRITTEN).unwrap();
    assert_eq!((refused.status.as_str(), refused.reason.as_str()), ("False", "Refused"));
    assert_eq!(
        refused.message,
        "BareMetalHost ns/h1: CreateHardwareData was refused by the API server, and is retried: forbidden: by policy ******; correct the role of the operator, or the policy or limit that refuses it"
    );
    assert_eq!((report.events.len(), report.events[0].reason), (1, "WriteRefused"));
    seen.host.status = report.status.map(|status| *status);
    let again = report_refusal(&seen, attempt, &answer, at(60));
    assert_eq!((again.status, again.events), (None, vec![]), "reported once");
    let plan = planned_at(&seen, at(120));
    assert_eq!(condition(status(&plan), CONDITION_WRITTEN), None);
    // Ironic refused the call: the steps before it were accepted.
    let failed = report_failure(&seen, None, &error(quarry_ironic::Meaning::Locked), at(130));
    assert_eq!(condition(&failed.status.unwrap(), CONDITION_WRITTEN), None);
}

fn seen_at_rest() -> Observed {
    with_hardware(observed(rested("available", json!({})), Some(node(json!({})))), 1)
}

#[test]
fn a_lock_that_lasts_is_reported() {
    let mut seen = seen_at_rest();
    let locked = error(quarry_ironic::Meaning::Locked);
    seen.host.status.as_mut().unwrap().last_updated =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    assert_eq!(report_failure(&seen, None, &locked, at(299)).status, None, "it may pass");
    let report = report_failure(&seen, None, &locked, at(300));
    let found = report.status.unwrap();
    let reported = condition(&found, CONDITION_IRONIC).unwrap();
    assert!(reported.message.contains("--fields provision_state reservation"), "{reported:?}");
    seen.host.status = Some(*found);
    assert_eq!(report_failure(&seen, None, &locked, at(302)).status, None, "reported once");
    let plan = planned_at(&seen, at(310));
    assert_eq!(condition(status(&plan), CONDITION_IRONIC), None, "it has passed");
}

/// What the spec says of a node at rest is its registration.
#[test]
fn a_refused_update_at_rest_is_an_error_of_the_registration() {
    let seen = seen_at_rest();
    let refused = error(quarry_ironic::Meaning::Refused);
    let call = quarry_ironic::Call::PatchNode { id: "id-1".into(), ops: Vec::new() };
    let kind = |call| report_failure(&seen, call, &refused, at(0)).status.unwrap().error_type;
    assert_eq!(kind(Some(&call)), Some("registration error".into()));
    assert_eq!(kind(None), Some("power management error".into()));
}
