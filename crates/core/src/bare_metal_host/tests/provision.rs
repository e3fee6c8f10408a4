//! Images: recorded, then deployed; never over something else, and never without what the spec asks for.

use super::*;
use quarry_api::bare_metal_host::ImageFormat;

fn provisioning(node_is: &str) -> Observed {
    let mut host = host_in("provisioning", json!({}));
    give_image(&mut host);
    with_hardware(observed(host, Some(node(json!({"provision_state": node_is})))), 1)
}

#[test]
fn the_image_is_recorded_before_anything_is_requested() {
    let mut host = host_in("available", json!({}));
    host.spec.image = Some(image());
    let seen = with_hardware(observed(host, Some(node(json!({})))), 1);
    let plan = planned(&seen);
    assert_eq!(call(&plan), "");
    assert_eq!(status(&plan).provisioning.state, ProvisioningState::Provisioning);
    assert_eq!(status(&plan).provisioning.image, image());
    assert_eq!(plan.events[0].reason, "ProvisioningStarted");
}

#[test]
fn a_host_that_is_to_be_off_is_not_provisioned() {
    let mut host = host_in("available", json!({"spec": {"online": false}}));
    host.spec.image = Some(image());
    let plan = planned(&with_hardware(observed(host, Some(node(json!({})))), 1));
    assert_eq!(call(&plan), format!("request soft power off of node {NODE}"));
}

fn instance(plan: &Plan) -> Value {
    let Some(Call::PatchNode { ops, .. }) = &plan.call else { panic!("{:?}", plan.call) };
    serde_json::to_value(ops).unwrap()
}

#[test]
fn the_node_gets_image_checksum_and_root_disk() {
    let mut seen = provisioning("available");
    seen.host.spec.root_device_hints = serde_json::from_value(json!({"wwn": "0x1"})).unwrap();
    let recorded = planned(&seen);
    assert_eq!(call(&recorded), "", "hints that were corrected are recorded first");
    seen.host.status = recorded.status.map(|status| *status);
    let expected = json!([
        {"op": "add", "path": "/deploy_interface", "value": "direct"},
        {"op": "add", "path": "/instance_uuid", "value": UID},
        {"op": "add", "path": "/instance_info", "value": {
            "capabilities": {"boot_mode": "uefi"}, "image_disk_format": "qcow2",
            "image_os_hash_algo": "sha256", "image_os_hash_value": "0123",
            "image_source": "http://files/image.qcow2", "root_device": {"wwn": "s== 0x1"},
        }},
    ]);
    assert_eq!(instance(&planned(&seen)), expected);

    seen.host.spec.image.as_mut().unwrap().format = Some(ImageFormat::LiveIso);
    seen.host.status = planned(&seen).status.map(|status| *status);
    let ops = instance(&planned(&seen));
    assert_eq!(ops[0]["value"], "ramdisk");
    assert_eq!(ops[2]["value"]["boot_iso"], "http://files/image.qcow2");
    assert!(ops[2]["value"].get("image_source").is_none());
    // Volumes that Ironic does not know matter only to what is written to a disk.
    let volumes = json!({"hardwareRAIDVolumes": [{"level": "1"}]});
    let recorded = seen.host.status.as_mut().unwrap();
    recorded.provisioning.raid = serde_json::from_value(volumes).unwrap();
    seen.host.spec.root_device_hints = None;
    recorded.provisioning.root_device_hints = None;
    assert_eq!(instance(&planned(&seen))[0]["value"], "ramdisk");
}

#[test]
fn a_prepared_node_is_activated_with_user_data() {
    let mut seen = provisioning("available");
    let Call::PatchNode { ops, .. } = planned(&seen).call.unwrap() else { panic!() };
    let node = ironic_mut(&mut seen).node.as_mut().unwrap();
    super::model::patch(node, &ops);
    seen.host.spec.user_data =
        serde_json::from_value(json!({"name": "cloud", "namespace": "ns"})).unwrap();

    let plan = planned(&seen);
    assert_eq!(call(&plan), "", "the Secret is missing");
    assert!(status(&plan).error_message.contains("ns/cloud, which spec.userData names"));

    seen.user_data =
        Some(serde_json::from_value(json!({"data": {"userData": base64("#!/bin/true")}})).unwrap());
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request active of node {NODE}"));
    let body = plan.call.as_ref().unwrap().request().unwrap().body.unwrap();
    assert_eq!(body["configdrive"]["user_data"], "#!/bin/true");
    assert_eq!(body["configdrive"]["meta_data"]["metal3-name"], "h1");
    assert!(!format!("{plan:?}").contains("/bin/true"), "user data is not printed");
}

#[test]
fn a_failed_deployment_is_repeated_and_given_up() {
    let mut seen = provisioning("deploy failed");
    let found = ironic_mut(&mut seen);
    found.history = Some(vec![
        serde_json::from_value(
            json!({"uuid": "1", "severity": "ERROR", "event": "No suitable device"}),
        )
        .unwrap(),
    ]);
    let plan = planned(&seen);
    let message = &status(&plan).error_message;
    assert!(
        message.starts_with("No suitable device (attempt 1 of 5)"),
        "from the history: {message}"
    );
    assert_eq!(status(&plan).provisioning_fail_count, 1);
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(call(&planned_at(&seen, at(10))), "", "not before its backoff is over");
    let again = planned_at(&seen, at(600));
    assert!(call(&again).starts_with("update /deploy_interface"), "{}", call(&again));
    // The attempt has several calls: one of them is not another failure.
    let status = again.status.as_deref().expect("the attempt is recorded");
    assert_eq!((status.provisioning_fail_count, status.error_message.as_str()), (1, ""));
    let mut next = seen.clone();
    next.host.status = again.status.map(|status| *status);
    let Call::PatchNode { ops, .. } = again.call.unwrap() else { panic!() };
    super::model::patch(ironic_mut(&mut next).node.as_mut().unwrap(), &ops);
    assert_eq!(call(&planned_at(&next, at(601))), format!("request active of node {NODE}"));
    seen.host.status.as_mut().unwrap().provisioning_fail_count = 5;
    let rest = planned_at(&seen, at(6000));
    assert_eq!((call(&rest).as_str(), rest.requeue), ("", None), "not a sixth time");
    // Another checksum is another attempt.
    seen.host.spec.image.as_mut().unwrap().checksum = "4567".to_owned();
    let corrected = planned_at(&seen, at(6001));
    assert_eq!(super::status(&corrected).provisioning_fail_count, 0);
    seen.host.status = corrected.status.map(|status| *status);
    assert!(call(&planned_at(&seen, at(6002))).starts_with("update /deploy_interface"));
}

#[test]
fn an_image_that_is_removed_or_changed_is_deprovisioned() {
    for change in [None, Some("http://files/other.qcow2")] {
        let mut host = host_in("provisioned", json!({}));
        give_image(&mut host);
        host.spec.image = change.map(|url| {
            let mut image = image();
            image.url = url.to_owned();
            image
        });
        let seen =
            with_hardware(observed(host, Some(node(json!({"provision_state": "active"})))), 1);
        let plan = planned(&seen);
        assert_eq!(call(&plan), "", "recorded first");
        assert_eq!(status(&plan).provisioning.state, ProvisioningState::Deprovisioning);
    }
    // Nothing says what is deployed: that is no reason to erase it.
    let host = host_in("provisioned", json!({}));
    let seen = with_hardware(observed(host, Some(node(json!({"provision_state": "active"})))), 1);
    let plan = planned(&seen);
    assert_eq!(call(&plan), "");
    let state = plan.status.map(|status| status.provisioning.state.clone());
    assert!(state.is_none_or(|state| state == ProvisioningState::Provisioned));
}

#[test]
fn an_image_with_unsupported_data_is_not_deployed() {
    for field in ["networkData", "metaData"] {
        let mut host = host_in("available", json!({"spec": {field: {"name": "n"}}}));
        host.spec.image = Some(image());
        let plan = planned(&with_hardware(observed(host, Some(node(json!({})))), 1));
        let found = condition(status(&plan), CONDITION_ACCEPTED).unwrap();
        assert!(found.message.contains(&format!("spec.{field}")), "{found:?}");
        assert_eq!(status(&plan).provisioning.state, ProvisioningState::Available);
    }
}
