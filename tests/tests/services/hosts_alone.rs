//! Hosts while Ironic itself is stopped, loses its database, or asks for a password.

use quarry_tests::services::{LIMIT, Lab, Quarry, System, until};
use serde_json::Value;

fn manageable(quarry: &Quarry, system: &System) {
    until("the node is manageable", LIMIT, || {
        let host = quarry.host(&system.name).unwrap();
        let id = host["status"]["provisioning"]["ID"].as_str().unwrap_or_default();
        let node = Lab::get().ironic().send("GET", &format!("/v1/nodes/{id}"), None)?.body;
        if node["provision_state"] == "manageable" {
            Ok(())
        } else {
            Err(node["provision_state"].to_string())
        }
    });
}

fn reaches_ironic(status: &Value) -> bool {
    Quarry::condition(status, "quarry.dev/IronicReachable").is_null()
}

#[test]
fn a_stopped_ironic_and_a_lost_database_lose_nothing() {
    let lab = Lab::get().alone();
    let system = lab.system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.register(&system);
    let host = quarry.wait_state(name, "available", LIMIT);
    let data = quarry.hardware_data(name).unwrap();

    lab.stop("ironic");
    quarry.change(name, &serde_json::json!({"online": false}));
    let down = quarry.wait(name, "reports Ironic", LIMIT, |status| !reaches_ironic(status));
    let found = Quarry::condition(&down["status"], "quarry.dev/IronicReachable");
    assert_eq!(found["reason"], "UnreachableConnectionRefused");
    assert_eq!(
        (&down["status"]["operationalStatus"], &down["status"]["errorCount"]),
        (&Value::from("OK"), &Value::from(0))
    );
    lab.start("ironic");
    quarry.wait(name, "follows again", LIMIT, |status| {
        reaches_ironic(status) && status["poweredOn"] == false
    });

    lab.lose_database();
    quarry.change(name, &serde_json::json!({"online": true}));
    let old = host["status"]["provisioning"]["ID"].clone();
    let again = quarry.wait(name, "is registered again", LIMIT, |status| {
        let id = &status["provisioning"]["ID"];
        *id != old && *id != "" && status["operationalStatus"] == "OK"
    });
    assert_eq!(again["status"]["provisioning"]["state"], "available", "and not inspected again");
    manageable(&quarry, &system);
    quarry.wait(name, "is on", LIMIT, |status| status["poweredOn"] == true);
    let kept = quarry.hardware_data(name).unwrap();
    assert_eq!(kept["metadata"]["uid"], data["metadata"]["uid"]);
    assert_eq!(kept["spec"], data["spec"]);
}

#[test]
fn a_database_lost_during_an_inspection_only_delays_it() {
    let lab = Lab::get().alone();
    let system = lab.system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    system.silent_ramdisk();
    quarry.register(&system);
    quarry.wait(name, "is inspected", LIMIT, |status| {
        status["provisioning"]["state"] == "inspecting"
    });
    lab.lose_database();
    system.heal();
    quarry.wait_state(name, "available", LIMIT);
    assert!(quarry.hardware_data(name).is_some());
}

#[test]
fn credentials_for_ironic_are_read_again() {
    let lab = Lab::get().alone();
    let (user, password) = lab.require_password();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{user}:wrong\n")).unwrap();
    // Not taken from the lab: its clean-up does not know the password.
    let quarry =
        Quarry::start_with(&lab.ironic_url, &["--ironic-auth", file.path().to_str().unwrap()]);
    quarry.create_secret("bmc", "some-password");
    let host = serde_json::json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "h1"},
        "spec": {"online": true, "bmc": {"address": "redfish-virtualmedia+http://127.0.0.1:9/redfish/v1/Systems/1", "credentialsName": "bmc"}},
    });
    quarry.create(quarry_tests::services::quarry::HOSTS, &host);
    let refused = quarry.wait("h1", "reports the refusal", LIMIT, |status| {
        Quarry::condition(status, "quarry.dev/IronicReachable")["reason"] == "Unauthorized"
    });
    assert_eq!(refused["status"]["errorCount"], 0);
    std::fs::write(file.path(), format!("{user}:{password}\n")).unwrap();
    // The BMC does not exist: that Ironic tries it shows that Quarry was let in.
    quarry.wait("h1", "is tried by Ironic", LIMIT, |status| {
        status["errorType"] == "registration error" && reaches_ironic(status)
    });
    quarry.delete_host("h1");
    quarry.wait_gone("h1", LIMIT);
    assert!(!quarry.log_text().contains(&password));
}
