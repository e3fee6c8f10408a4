use super::*;
use quarry_api::bare_metal_host::CredentialsStatus;

/// Claimed by the host, which does not name it any more.
fn former(extra: Value, is_shared: bool) -> FormerSecret {
    let mut secret = secret(extra);
    secret.metadata.name = Some("old".to_owned());
    FormerSecret { secret, is_shared }
}

fn available() -> Observed {
    with_hardware(observed(rested("available", json!({})), Some(node(json!({})))), 1)
}

#[test]
fn a_secret_that_the_spec_names_no_more_is_released() {
    let mut seen = available();
    seen.former_secrets = vec![former(json!({}), false)];
    let plan = planned(&seen);
    assert_eq!(plan.steps, [Step::ReleaseFormerSecret("old".to_owned())]);
    // Released, and still named by the status: once is enough.
    let released = json!({"metadata": {"finalizers": null, "ownerReferences": null}});
    seen.former_secrets = vec![former(released, false)];
    assert_eq!(planned(&seen), Plan { requeue: planned(&seen).requeue, ..Plan::default() });
    // Another host uses it: only the owner reference to this one goes.
    seen.former_secrets = vec![former(json!({}), true)];
    assert_eq!(steps(&planned(&seen)), ["ReleaseFormerSecret"]);
    let not_owned = json!({"metadata": {"ownerReferences": null}});
    seen.former_secrets = vec![former(not_owned.clone(), true)];
    assert_eq!(steps(&planned(&seen)), Vec::<&str>::new());
    seen.former_secrets = vec![former(not_owned, false)];
    assert_eq!(
        steps(&planned(&seen)),
        ["ReleaseFormerSecret"],
        "its finalizer would stay for ever"
    );
}

/// Released before the status names another one: its name is known nowhere else.
#[test]
fn a_former_secret_is_released_with_the_change() {
    let mut seen = available();
    seen.host.spec.bmc.as_mut().unwrap().credentials_name = "new".to_owned();
    seen.host.metadata.generation = Some(2);
    seen.secret = Some(secret(json!({"metadata": {"name": "new", "resourceVersion": "30"}})));
    assert_eq!(former_names(&seen.host), ["bmc"]);
    seen.former_secrets = vec![FormerSecret { secret: secret(json!({})), is_shared: false }];
    let plan = planned(&seen);
    assert_eq!(plan.steps, [Step::ReleaseFormerSecret("bmc".to_owned())]);
    assert_eq!(call(&plan), format!("update /driver_info/redfish_password of node {NODE}"));
    assert_eq!(
        status(&plan).tried_credentials,
        CredentialsStatus::of(seen.secret.as_ref().unwrap())
    );
}

#[test]
fn former_secrets_are_released_without_a_bmc_and_at_deletion() {
    let mut seen = available();
    seen.host.spec.bmc = None;
    assert_eq!(former_names(&seen.host), ["bmc"]);
    seen.secret = None;
    seen.former_secrets = vec![FormerSecret { secret: secret(json!({})), is_shared: false }];
    assert_eq!(steps(&planned(&seen)), ["ReleaseFormerSecret"]);
    mark_deleted(&mut seen.host);
    seen.host.status.as_mut().unwrap().provisioning.state = ProvisioningState::Deleting;
    ironic_mut(&mut seen).node = None;
    assert_eq!(
        steps(&planned(&seen)),
        ["ReleaseFormerSecret", "ReleaseHardwareData", "RemoveFinalizer"]
    );
    // Never registered, and without a BMC from then on.
    let mut seen = observed(host(json!({"spec": {"bmc": null}})), None);
    seen.ironic = IronicView::NotAsked;
    seen.former_secrets = vec![former(json!({}), false)];
    assert_eq!(steps(&planned(&seen)), ["ReleaseFormerSecret"]);
}

#[test]
fn a_host_that_keeps_its_secret_has_no_former_one() {
    assert_eq!(former_names(&available().host), Vec::<String>::new());
    assert_eq!(former_names(&host(json!({}))), Vec::<String>::new());
}

/// A Secret of another version, which Ironic has been given.
fn renewed() -> Observed {
    let mut seen = available();
    seen.secret = Some(secret(json!({"metadata": {"resourceVersion": "8"}})));
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("update /driver_info/redfish_password of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    seen
}

fn good(status: &BareMetalHostStatus) -> &str {
    &status.good_credentials.version
}

#[test]
fn new_credentials_are_good_when_no_failure_follows() {
    let mut seen = renewed();
    let known = seen.host.status.as_ref().unwrap();
    assert_eq!((known.tried_credentials.version.as_str(), good(known)), ("8", "7"));
    let waits = condition(known, CONDITION_CREDENTIALS).unwrap();
    assert_eq!((waits.status.as_str(), waits.reason.as_str()), ("Unknown", "NotUsedYet"));
    assert_eq!(planned_at(&seen, at(299)).status, None, "Ironic may not have noticed");
    let plan = planned_at(&seen, at(300));
    assert_eq!((good(status(&plan)), plan.events[0].reason), ("8", "BMCAccessValidated"));
    assert_eq!(condition(status(&plan), CONDITION_CREDENTIALS), None);
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(planned_at(&seen, at(360)).status, None);
}

#[test]
fn credentials_that_fail_are_not_good() {
    let mut seen = renewed();
    let fault = json!({"maintenance": true, "fault": "power failure", "last_error": "401"});
    ironic_mut(&mut seen).node = Some(node(fault));
    let plan = planned_at(&seen, at(600));
    assert_eq!(good(status(&plan)), "7");
    assert!(condition(status(&plan), CONDITION_CREDENTIALS).is_some());
    // Corrected: the time begins again.
    seen.host.status = plan.status.map(|status| *status);
    seen.secret = Some(secret(json!({"metadata": {"resourceVersion": "9"}})));
    ironic_mut(&mut seen).node = Some(node(json!({})));
    let plan = planned_at(&seen, at(700));
    seen.host.status = plan.status.map(|status| *status);
    let plan = planned_at(&seen, at(701));
    assert_eq!(good(plan.status.as_deref().unwrap_or(seen.host.status.as_ref().unwrap())), "7");
    assert_eq!(good(status(&planned_at(&seen, at(1000)))), "9");
}

/// Ironic logs in to verify a node: no time has to pass.
#[test]
fn verified_credentials_are_good_at_once() {
    let enrolled = node(json!({"provision_state": "enroll"}));
    let mut seen = observed(host_in("registering", json!({})), Some(enrolled));
    seen.secret = Some(secret(json!({"metadata": {"resourceVersion": "8"}})));
    for wanted in ["update /driver_info/redfish_password of node", "request manage of node"] {
        let plan = planned(&seen);
        assert_eq!(call(&plan), format!("{wanted} {NODE}"));
        seen.host.status = plan.status.map(|status| *status).or(seen.host.status);
    }
    ironic_mut(&mut seen).node = Some(node(json!({})));
    let plan = planned(&seen);
    assert_eq!(good(status(&plan)), "8");
    assert_eq!(condition(status(&plan), CONDITION_CREDENTIALS), None);
}

/// Ironic refuses changes of a node that it works on.
#[test]
fn credentials_wait_until_ironic_can_take_them() {
    let busy = node(json!({"provision_state": "inspect wait"}));
    let mut seen = observed(host_in("inspecting", json!({})), Some(busy));
    seen.secret = Some(secret(json!({"metadata": {"resourceVersion": "8"}})));
    let plan = planned(&seen);
    let known = plan.status.as_deref().unwrap_or(seen.host.status.as_ref().unwrap());
    assert_eq!((known.tried_credentials.version.as_str(), good(known)), ("7", "7"));
    seen.host.status = plan.status.map(|status| *status).or(seen.host.status);
    ironic_mut(&mut seen).node = Some(node(json!({})));
    assert_eq!(
        call(&planned(&seen)),
        format!("update /driver_info/redfish_password of node {NODE}")
    );
}
