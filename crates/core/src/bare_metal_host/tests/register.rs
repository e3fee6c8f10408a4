use super::*;
use crate::bare_metal_host::register::credentials;
use quarry_api::bare_metal_host::ErrorType;
use quarry_ironic::{Call, Meaning};

#[test]
fn credentials_lose_white_space_and_nothing_else() {
    let found = credentials(&secret(
        json!({"data": {"username": base64(" admin\r\n"), "password": base64("a b\n")}}),
    ));
    let found = found.unwrap();
    assert_eq!((found.username.as_str(), found.password.as_str()), ("admin", "a b"));
}

#[test]
fn a_secret_without_usable_keys_is_explained() {
    let refused = |data: Value| credentials(&secret(json!({"data": data}))).err().unwrap();
    let not_text = serde_json::to_value(k8s_openapi::ByteString(vec![0xff])).unwrap();
    insta::assert_snapshot!(
        [
            refused(json!({"username": null})),
            refused(json!({"password": null})),
            refused(json!({"password": base64("")})),
            refused(json!({"password": base64(" \n")})),
            refused(json!({"password": not_text})),
        ]
        .join("\n")
    );
}

/// It is labelled before it is judged: only a labelled Secret is watched, and the correction would go unnoticed.
#[test]
fn a_secret_is_claimed_before_its_keys_are_read() {
    let mut seen =
        observed(host_in("registering", json!({"status": {"provisioning": {"ID": ""}}})), None);
    seen.secret = Some(secret(json!({"metadata": {"labels": null}, "data": {"password": null}})));
    let plan = planned(&seen);
    assert_eq!((steps(&plan), call(&plan)), (vec!["ClaimSecret"], String::new()));
    seen.secret = Some(secret(json!({"data": {"password": null}})));
    let plan = planned(&seen);
    assert_eq!((call(&plan), plan.requeue), (String::new(), None));
    assert_eq!(status(&plan).error_type, Some(ErrorType::Registration));
    assert!(status(&plan).error_message.contains("has no key \"password\""));
    // Corrected: tried at once, whatever the backoff.
    seen.host.status = plan.status.map(|status| *status);
    seen.secret = Some(secret(json!({"metadata": {"resourceVersion": "9"}})));
    let plan = planned_at(&seen, at(1));
    assert!(call(&plan).starts_with("create node ns~h1"), "{}", call(&plan));
}

#[test]
fn a_missing_secret_is_waited_for() {
    let mut seen =
        observed(host_in("registering", json!({"status": {"provisioning": {"ID": ""}}})), None);
    seen.secret = None;
    let plan = planned(&seen);
    assert_eq!((status(&plan).error_count, plan.requeue), (1, Some(SignedDuration::from_secs(30))));
    assert!(
        status(&plan)
            .error_message
            .starts_with("Secret ns/bmc, which spec.bmc.credentialsName names")
    );
    seen.host.status = plan.status.map(|status| *status);
    let again = planned_at(&seen, at(30));
    assert_eq!((again.status, again.events), (None, vec![]), "counted and reported once");
}

/// Ironic shows the failure of the old credentials until the new ones are tried.
#[test]
fn corrected_credentials_are_tried_at_once() {
    let failed = json!({"provision_state": "enroll", "last_error": "401 Unauthorized"});
    let mut seen = observed(host_in("registering", json!({})), Some(node(failed)));
    let plan = planned(&seen);
    assert_eq!((status(&plan).error_count, call(&plan)), (1, String::new()));
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(call(&planned_at(&seen, at(10))), "", "its backoff is a minute at least");

    seen.secret = Some(secret(json!({"metadata": {"resourceVersion": "8"}})));
    let plan = planned_at(&seen, at(20));
    assert_eq!(call(&plan), format!("update /driver_info/redfish_password of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    let plan = planned_at(&seen, at(21));
    assert_eq!(call(&plan), format!("request manage of node {NODE}"));
    assert_eq!((status(&plan).error_type.clone(), status(&plan).error_count), (None, 1));
    seen.host.status = plan.status.map(|status| *status);
    let plan = planned_at(&seen, at(25));
    assert_eq!(status(&plan).error_count, 2, "this failure is one of the new ones");
}

#[test]
fn a_new_node_has_everything_but_shows_no_password() {
    let mut host = host(
        json!({"spec": {"disablePowerOff": true, "automatedCleaningMode": "disabled", "bootMode": "legacy"}}),
    );
    host.status = None;
    let plan = planned(&observed(host, None));
    let Some(Call::CreateNode(new)) = &plan.call else { panic!("{plan:?}") };
    assert_eq!((new.name.as_deref(), new.driver.as_str()), (Some("ns~h1"), "redfish"));
    assert_eq!((new.automated_clean, new.disable_power_off), (Some(false), Some(true)));
    assert_eq!(new.properties["capabilities"], "boot_mode:bios");
    assert_eq!(new.driver_info.get("redfish_password"), Some(&json!(PASSWORD)));
    assert!(!format!("{plan:?}").contains(PASSWORD));
    let id = report_success(&observed(BareMetalHost::default(), None), &plan, Some("new"), now());
    assert_eq!(id.status.unwrap().provisioning.id, "new");
}

#[test]
fn a_node_is_kept_as_the_spec_asks() {
    let cases = [
        (json!({"name": "other"}), "/name"),
        (json!({"driver": "idrac"}), "/driver"),
        (json!({"boot_interface": "ipxe"}), "/boot_interface"),
        (json!({"automated_clean": false}), "/automated_clean"),
        (json!({"disable_power_off": true}), "/disable_power_off"),
        (json!({"properties": {"capabilities": "boot_mode:bios"}}), "/properties/capabilities"),
        (
            json!({"driver_info": {"redfish_address": "https://10.0.0.9"}}),
            "/driver_info/redfish_address",
        ),
    ];
    for (difference, path) in cases {
        let seen = with_hardware(
            observed(rested("available", json!({})), Some(node(difference.clone()))),
            1,
        );
        assert_eq!(call(&planned(&seen)), format!("update {path} of node {NODE}"));
        let mut locked = difference;
        merge(&mut locked, &json!({"reservation": "conductor"}));
        let seen = with_hardware(observed(rested("available", json!({})), Some(node(locked))), 1);
        assert_eq!(call(&planned(&seen)), "", "Ironic works on it");
    }
}

#[test]
fn a_changed_boot_mode_is_sent_unless_the_host_is_in_use() {
    let raid = json!({"properties": {"capabilities": "boot_mode:uefi,raid_level:1"}});
    let mut seen = with_hardware(observed(rested("available", json!({})), Some(node(raid))), 1);
    seen.host.spec.boot_mode = Some(quarry_api::bare_metal_host::BootMode::UefiSecureBoot);
    seen.host.metadata.generation = Some(2);
    let plan = planned(&seen);
    let Some(Call::PatchNode { ops, .. }) = &plan.call else { panic!("{plan:?}") };
    let changed = "boot_mode:uefi,secure_boot:true,raid_level:1";
    assert_eq!(*ops, [quarry_ironic::PatchOp::add("/properties/capabilities", changed)]);
    let changed = json!({"properties": {"capabilities": changed}});
    ironic_mut(&mut seen).node = Some(node(changed));
    assert_eq!(call(&planned(&seen)), "");
    for state in ["provisioned", "externally provisioned", "provisioning", "deprovisioning"] {
        let mut seen = with_hardware(
            observed(host_in(state, json!({})), Some(node(json!({"provision_state": "active"})))),
            1,
        );
        seen.host.spec.boot_mode = Some(quarry_api::bare_metal_host::BootMode::Legacy);
        assert!(!call(&planned(&seen)).contains("/properties"), "{state}");
    }
}

#[test]
fn a_lost_node_is_registered_again_with_its_ports() {
    let mut seen = with_hardware(observed(rested("available", json!({})), None), 1);
    let hardware = seen.hardware_data.as_mut().unwrap().spec.hardware.as_mut().unwrap();
    hardware.nics.push(hardware.nics[0].clone());
    hardware.nics[1].mac = "52:54:00:00:00:02".to_owned();
    seen.host.status.as_mut().unwrap().hardware = Some(hardware.clone());
    let plan = planned(&seen);
    assert!(call(&plan).starts_with("create node"), "{}", call(&plan));
    assert_eq!(
        (plan.events[0].reason, status(&plan).provisioning.id.as_str()),
        ("NodeMissing", "")
    );
    let enrolled = node(json!({"uuid": "new", "provision_state": "enroll"}));
    seen.host.status.as_mut().unwrap().provisioning.id = "new".to_owned();
    for (known, wanted) in [(vec![], MAC), (vec![port(MAC)], "52:54:00:00:00:02")] {
        let ironic = IronicNode {
            node: Some(enrolled.clone()),
            ports: Some(known),
            ..IronicNode::default()
        };
        seen.ironic = IronicView::Seen(Box::new(ironic));
        assert_eq!(call(&planned(&seen)), format!("create port {wanted} of node new"));
    }
}

/// An attempt takes several calls, and its backoff is over for all of them.
#[test]
fn a_retried_registration_goes_on_after_its_port() {
    let enrolled = node(json!({"provision_state": "enroll"}));
    let mut seen = observed(host_in("registering", json!({})), Some(enrolled));
    let report = report_failure(&seen, None, &error(Meaning::Conflict), now());
    seen.host.status = report.status.map(|status| *status);
    ironic_mut(&mut seen).ports = Some(vec![]);
    assert_eq!(call(&planned_at(&seen, at(10))), "");
    seen.host.metadata.generation = Some(2);
    let plan = planned_at(&seen, at(10));
    assert_eq!(call(&plan), format!("create port {MAC} of node {NODE}"));
    seen.host.status = plan.status.map(|status| *status);
    ironic_mut(&mut seen).ports = Some(vec![port(MAC)]);
    assert_eq!(call(&planned_at(&seen, at(11))), format!("request manage of node {NODE}"));
}

#[test]
fn maintenance_by_hand_is_left_alone_and_reported() {
    let kept =
        json!({"maintenance": true, "maintenance_reason": "new fans", "power_state": "power off"});
    let mut seen = with_hardware(observed(rested("available", json!({})), Some(node(kept))), 1);
    let plan = planned(&seen);
    let found = condition(status(&plan), "quarry.dev/Accepted").unwrap();
    assert_eq!((call(&plan).as_str(), found.reason.as_str()), ("", "Maintenance"));
    assert!(found.message.contains("(new fans)") && found.message.contains("maintenance unset"));
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(planned_at(&seen, at(30)).status, None);
    ironic_mut(&mut seen).node = Some(node(json!({})));
    assert_eq!(condition(status(&planned_at(&seen, at(60))), "quarry.dev/Accepted"), None);
}

#[test]
fn each_answer_of_ironic_has_its_report() {
    let recent = json!({"status": {"lastUpdated": now().to_string()}});
    let seen =
        observed(host_in("registering", recent), Some(node(json!({"provision_state": "enroll"}))));
    let lines: Vec<String> = [
        Meaning::WrongState,
        Meaning::Locked,
        Meaning::Maintenance,
        Meaning::NotFound,
        Meaning::Conflict,
        Meaning::Unreachable(quarry_ironic::Reach::Timeout),
        Meaning::Unauthorized,
        Meaning::Unsupported,
        Meaning::Refused,
        Meaning::Failed,
        Meaning::Malformed,
    ]
    .into_iter()
    .map(|meaning| {
        let report = report_failure(&seen, None, &error(meaning), now());
        let status = report.status.unwrap();
        let unreachable =
            condition(&status, CONDITION_IRONIC).map_or("reachable", |one| &one.reason);
        let (kind, count) =
            (status.error_type.as_ref().map(ToString::to_string), status.error_count);
        format!(
            "{}: {kind:?} {count} {unreachable} {:?}",
            meaning.as_str(),
            report.requeue.unwrap()
        )
    })
    .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

/// The same answer again is another failure: requests become rarer, and are not sent every second.
#[test]
fn a_request_that_is_refused_again_and_again_backs_off() {
    let enrolled = node(json!({"provision_state": "enroll"}));
    let mut seen = observed(host_in("registering", json!({})), Some(enrolled));
    let mut now = now();
    let mut delays = Vec::new();
    for count in 1..=5 {
        let report = report_failure(&seen, None, &error(Meaning::Conflict), now);
        let status = report.status.unwrap();
        assert_eq!(status.error_count, count);
        let delay = report.requeue.unwrap();
        seen.host.status = Some(*status);
        now += delay;
        delays.push(delay);
    }
    assert!(delays.windows(2).all(|pair| pair[1] > pair[0]), "{delays:?}");
    assert!(delays[0] >= SignedDuration::from_secs(60), "{delays:?}");
    // What is missing is looked for every 30 s, however long it lasts.
    seen.secret = None;
    seen.host.status = planned(&seen).status.map(|status| *status);
    let late = planned_at(&seen, at(100_000));
    assert_eq!((late.status, late.requeue), (None, Some(SignedDuration::from_secs(30))));
}

/// A password that is a word of our own messages must not keep the host from being reported.
#[test]
fn a_password_is_hidden_and_nothing_is_refused_for_it() {
    let failed = json!({"provision_state": "enroll", "last_error": format!("{PASSWORD} is wrong")});
    let mut seen = observed(host_in("registering", json!({})), Some(node(failed)));
    assert!(status(&planned(&seen)).error_message.starts_with("****** is wrong; check"));
    seen.secret = Some(secret(json!({"data": {"password": base64("credentials")}})));
    let plan = planned(&seen);
    assert!(!status(&plan).error_message.contains("credentials"), "{plan:?}");
}

#[test]
fn maintenance_that_a_deletion_left_is_ended() {
    let left = json!({"maintenance": true, "maintenance_reason": "the host is deleted"});
    let seen = with_hardware(observed(rested("available", json!({})), Some(node(left))), 1);
    assert_eq!(call(&planned(&seen)), format!("clear maintenance of node {NODE}"));
}
