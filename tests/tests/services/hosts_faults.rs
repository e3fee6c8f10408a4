//! What goes wrong with one host: its state, its message, and its recovery when the cause is gone.

use quarry_tests::services::{
    LIMIT, Lab, Quarry, System,
    quarry::{HOSTS, SECRETS},
    until,
};
use serde_json::{Value, json};

/// A retry waits for its backoff, of a minute or two; a change of the spec does not.
fn retry_at_once(quarry: &Quarry, name: &str, reason: &str) {
    quarry.change(name, &json!({"description": reason}));
}

/// Until the status is a wanted one. A host at rest asks Ironic once a minute; its spec is changed now and then, so that
/// it asks sooner.
#[track_caller]
fn noticed(quarry: &Quarry, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut round = 0;
    until(what, LIMIT, || {
        if round % 20 == 0 {
            retry_at_once(quarry, name, &format!("{what}, {round}"));
        }
        round += 1;
        let host = quarry.host(name).ok_or("there is no host")?;
        if wanted(&host["status"]) { Ok(host) } else { Err(host["status"].to_string()) }
    })
}

#[track_caller]
fn fails(quarry: &Quarry, name: &str, kind: &str, text: &str) -> Value {
    let host = quarry.wait(name, &format!("has a {kind}"), LIMIT, |status| {
        status["errorType"] == kind && status["operationalStatus"] == "error"
    });
    let message = host["status"]["errorMessage"].as_str().unwrap();
    assert!(message.contains(text), "{message}");
    assert!(message.contains("; "), "a remedy: {message}");
    host
}

#[test]
fn corrected_credentials_are_tried_at_once() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.create_secret(name, "not-the-password");
    quarry.create_host(&system, &json!({}));
    let failed = fails(&quarry, name, "registration error", "401");
    assert_eq!(failed["status"]["errorCount"], 1);
    assert_eq!(Quarry::condition(&failed["status"], "Manageable")["reason"], "RegistrationFailed");
    let data = json!({"stringData": {"password": Lab::get().bmc_password}});
    quarry.patch(&format!("{SECRETS}/{name}"), &data);
    let host = quarry.wait_state(name, "available", LIMIT / 2);
    assert_eq!(host["status"]["errorCount"], 0);
    assert!(quarry.events(name).iter().any(|one| one == "RegistrationError"));
    for text in [quarry.log_text(), host.to_string()] {
        assert!(!text.contains("not-the-password"), "a credential is shown");
    }
}

#[test]
fn a_bmc_that_is_down_is_registered_when_it_is_back() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    system.bmc_down();
    quarry.register(&system);
    fails(&quarry, name, "registration error", "Unable to connect");
    system.heal();
    retry_at_once(&quarry, name, "the BMC is back");
    quarry.wait_state(name, "available", LIMIT);

    // Lost later: Ironic notices it, and notices its return.
    system.bmc_down();
    let node = node_of(&quarry, &system);
    until("Ironic has noticed it", LIMIT * 2, || {
        let found = Lab::get().ironic().get(&node).ok()["fault"].clone();
        if found == "power failure" { Ok(()) } else { Err(found.to_string()) }
    });
    retry_at_once(&quarry, name, "the BMC is lost");
    let lost = quarry.wait(name, "reports the lost BMC", LIMIT * 2, |status| {
        status["errorType"] == "power management error"
    });
    assert_eq!(Quarry::condition(&lost["status"], "Manageable")["reason"], "PowerFailure");
    system.heal();
    retry_at_once(&quarry, name, "the BMC is back again");
    quarry.wait_state(name, "available", LIMIT * 2);
}

#[test]
fn a_missing_secret_and_its_keys_are_waited_for() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.create_host(&system, &json!({}));
    fails(&quarry, name, "registration error", "does not exist");
    let empty = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"username": "admin"}});
    quarry.create(SECRETS, &empty);
    retry_at_once(&quarry, name, "there is a Secret now");
    until("the missing key is reported", LIMIT, || {
        let host = quarry.host(name).unwrap();
        let message = host["status"]["errorMessage"].as_str().unwrap_or_default().to_owned();
        if message.contains("no key \"password\"") { Ok(()) } else { Err(message) }
    });
    // It is watched by now.
    quarry.patch(
        &format!("{SECRETS}/{name}"),
        &json!({"stringData": {"password": Lab::get().bmc_password}}),
    );
    quarry.wait_state(name, "available", LIMIT);
}

#[test]
fn an_unknown_scheme_can_be_corrected() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.create_secret(name, &Lab::get().bmc_password);
    let bmc = |address: String| json!({"address": address, "credentialsName": name});
    quarry.create_host(&system, &json!({"spec": {"bmc": bmc("telnet://127.0.0.1/1".to_owned())}}));
    fails(&quarry, name, "registration error", "unknown scheme \"telnet\"");
    quarry.change(name, &json!({"bmc": bmc(system.bmc_address())}));
    quarry.wait_state(name, "available", LIMIT);
}

#[test]
fn a_mac_address_of_another_host_is_refused() {
    let (first, second) = (Lab::get().system(), Lab::get().system());
    let quarry = Quarry::start(&first);
    quarry.register(&first);
    quarry.wait_state(&first.name, "available", LIMIT);
    quarry.create_secret(&second.name, &Lab::get().bmc_password);
    quarry.create_host(&second, &json!({"spec": {"bootMACAddress": first.mac}}));
    let host = quarry
        .wait(&second.name, "is refused", LIMIT, |status| status["operationalStatus"] == "error");
    let message = host["status"]["errorMessage"].as_str().unwrap();
    let holder = format!("BareMetalHost default/{}", first.name);
    assert!(message.contains(&first.mac) && message.contains(&holder), "{message}");
    // The first one goes: the second gets its port.
    quarry.delete_host(&first.name);
    quarry.wait_gone(&first.name, LIMIT);
    retry_at_once(&quarry, &second.name, "the address is free");
    quarry.wait(&second.name, "is registered", LIMIT, |status| {
        status["provisioning"]["state"] != "registering"
    });
}

/// While the BMC is slow Ironic keeps the node locked for seconds: nothing fails, nothing is counted.
#[test]
fn a_locked_node_is_waited_for() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.register(&system);
    quarry.wait_state(name, "available", LIMIT);
    system.set("delay", 2);
    quarry.change(name, &json!({"online": false}));
    let node =
        quarry.host(name).unwrap()["status"]["provisioning"]["ID"].as_str().unwrap().to_owned();
    until("the node is locked", LIMIT, || {
        let found = Lab::get().ironic().get(&format!("/v1/nodes/{node}")).ok();
        if found["reservation"].is_null() { Err("not yet".to_owned()) } else { Ok(()) }
    });
    quarry.change(name, &json!({"automatedCleaningMode": "disabled"}));
    system.heal();
    let host = quarry.wait(name, "is off", LIMIT, |status| status["poweredOn"] == false);
    assert_eq!(
        (&host["status"]["errorCount"], &host["status"]["operationalStatus"]),
        (&json!(0), &json!("OK"))
    );
    until("the node is changed", LIMIT, || {
        let found = Lab::get().ironic().get(&format!("/v1/nodes/{node}")).ok();
        if found["automated_clean"] == false {
            Ok(())
        } else {
            Err(found["automated_clean"].to_string())
        }
    });
}

#[test]
fn a_silent_ramdisk_is_reported_and_inspected_again() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    system.silent_ramdisk();
    quarry.register(&system);
    let failed = quarry.wait(name, "has an inspection error", LIMIT * 2, |status| {
        status["errorType"] == "inspection error"
    });
    let message = failed["status"]["errorMessage"].as_str().unwrap().to_lowercase();
    assert!(message.contains("timeout") && message.contains("check the console"), "{message}");
    assert_eq!((&failed["status"]["errorCount"], quarry.hardware_data(name)), (&json!(1), None));
    system.heal();
    retry_at_once(&quarry, name, "the ramdisk works");
    quarry.wait_state(name, "available", LIMIT);
}

fn node_of(quarry: &Quarry, system: &System) -> String {
    let host = quarry.host(&system.name).unwrap();
    format!("/v1/nodes/{}", host["status"]["provisioning"]["ID"].as_str().unwrap())
}

/// Three changes in Ironic behind Quarry's back.
#[test]
fn changes_by_hand_in_ironic_are_found() {
    let system = Lab::get().system();
    let (name, quarry, ironic) = (&system.name, Quarry::start(&system), Lab::get().ironic());
    quarry.register(&system);
    quarry.wait_state(name, "available", LIMIT);
    let data = quarry.hardware_data(name).unwrap();

    // Maintenance: left alone, whatever is asked for, until it ends.
    let node = node_of(&quarry, &system);
    ironic
        .send("PUT", &format!("{node}/maintenance"), Some(&json!({"reason": "new fans"})))
        .unwrap()
        .ok();
    let host = noticed(&quarry, name, "the maintenance is reported", |status| {
        Quarry::condition(status, "quarry.dev/Accepted")["reason"] == "Maintenance"
    });
    let message = Quarry::condition(&host["status"], "quarry.dev/Accepted")["message"].to_string();
    assert!(message.contains("new fans") && message.contains("maintenance unset"), "{message}");
    quarry.change(name, &json!({"online": false}));
    let generation = quarry.host(name).unwrap()["metadata"]["generation"].clone();
    let host = quarry.wait(name, "has considered the change", LIMIT, |status| {
        Quarry::condition(status, "Ready")["observedGeneration"] == generation
    });
    assert_eq!(
        (system.power().as_str(), &host["status"]["operationalStatus"]),
        ("On", &json!("OK"))
    );
    ironic.send("DELETE", &format!("{node}/maintenance"), None).unwrap().ok();
    noticed(&quarry, name, "the fans are in", |status| status["poweredOn"] == false);

    // Renamed: the name is set again.
    let rename = json!([{"op": "replace", "path": "/name", "value": format!("by-hand-{name}")}]);
    ironic.send("PATCH", &node, Some(&rename)).unwrap().ok();
    noticed(&quarry, name, "the node has its name", |_| {
        ironic.get(&node).ok()["name"] == format!("default~{name}")
    });

    // Deleted: registered again, and not inspected again.
    ironic.send("PUT", &format!("{node}/maintenance"), Some(&json!({}))).unwrap().ok();
    until("the node is deleted", LIMIT, || {
        let answer = ironic.send("DELETE", &node, None)?;
        if answer.status == 204 { Ok(()) } else { Err(answer.text) }
    });
    let old = node.trim_start_matches("/v1/nodes/").to_owned();
    let host = noticed(&quarry, name, "it has another node", |status| {
        let id = status["provisioning"]["ID"].as_str().unwrap_or_default();
        !id.is_empty() && id != old && status["operationalStatus"] == "OK"
    });
    assert_eq!(host["status"]["provisioning"]["state"], "available");
    until("it is manageable", LIMIT, || {
        let found = ironic.get(&node_of(&quarry, &system)).ok()["provision_state"].clone();
        if found == "manageable" { Ok(()) } else { Err(found.to_string()) }
    });
    assert_eq!(quarry.hardware_data(name).unwrap()["metadata"]["uid"], data["metadata"]["uid"]);
    assert!(quarry.events(name).iter().any(|one| one == "NodeMissing"));
    quarry.send("DELETE", &format!("{HOSTS}/{name}"), None).unwrap().ok();
    quarry.wait_gone(name, LIMIT);
}
