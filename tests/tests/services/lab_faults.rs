//! What Quarry relies on when something fails: states, messages and recovery, seen without Quarry.

use quarry_tests::services::{LIMIT, Lab, request};
use serde_json::{Value, json};

fn last_error(node: &Value) -> &str {
    node["last_error"].as_str().unwrap_or_default()
}

fn password_patch(password: &str) -> Value {
    json!([{"op": "replace", "path": "/driver_info/redfish_password", "value": password}])
}

#[test]
fn a_bmc_that_is_down_keeps_a_node_in_enroll() {
    let (lab, system) = (Lab::get(), Lab::get().system());
    let ironic = lab.ironic();
    system.bmc_down();
    let node = ironic.enroll(&system, &lab.bmc_password);
    ironic.provision(&node, "manage");
    let failed = ironic.wait(&node, "enroll", LIMIT);
    assert!(last_error(&failed).contains("Unable to connect"), "{failed}");
    system.heal();
    let healed = ironic.manage(&node);
    assert_eq!(last_error(&healed), "");
}

#[test]
fn a_wrong_bmc_password_keeps_a_node_in_enroll() {
    let (lab, system) = (Lab::get(), Lab::get().system());
    let ironic = lab.ironic();
    let node = ironic.enroll(&system, "not the password");
    ironic.provision(&node, "manage");
    let failed = ironic.wait(&node, "enroll", LIMIT);
    assert!(last_error(&failed).contains("401"), "{failed}");

    // The BMC gets the password that the node already has.
    system.change_password("not the password");
    ironic.manage(&node);
    // And back: now the node's is wrong, and replaced.
    system.heal();
    let path = format!("/v1/nodes/{node}");
    ironic.send("PATCH", &path, Some(&password_patch(&lab.bmc_password))).unwrap().ok();
    ironic.provision(&node, "inspect");
    ironic.wait(&node, "manageable", LIMIT);
}

#[test]
fn a_node_is_locked_while_its_bmc_is_slow() {
    let (lab, system) = (Lab::get(), Lab::get().system());
    let ironic = lab.ironic();
    let node = ironic.enroll(&system, &lab.bmc_password);
    ironic.manage(&node);
    system.set("delay", 3);
    let path = format!("/v1/nodes/{node}");
    let power = json!({"target": "power on"});
    ironic.send("PUT", &format!("{path}/states/power"), Some(&power)).unwrap().ok();
    let answer = ironic.send("PATCH", &path, Some(&password_patch("other"))).unwrap();
    assert_eq!(answer.status, 409, "{}", answer.text);
    assert!(answer.text.contains("is locked by host lab"), "{}", answer.text);
    system.heal();
    ironic.wait(&node, "manageable", LIMIT);
}

#[test]
fn a_silent_ramdisk_fails_the_inspection() {
    let (lab, system) = (Lab::get(), Lab::get().system());
    let ironic = lab.ironic();
    system.silent_ramdisk();
    let node = ironic.enroll(&system, &lab.bmc_password);
    ironic.manage(&node);
    ironic.provision(&node, "inspect");
    let failed = ironic.wait(&node, "inspect failed", LIMIT * 2);
    assert!(last_error(&failed).to_lowercase().contains("timeout"), "{failed}");
    assert_eq!(failed["maintenance"], false);
    system.heal();
    ironic.manage(&node);
}

#[test]
fn a_mac_address_belongs_to_one_node() {
    let (lab, first, second) = (Lab::get(), Lab::get().system(), Lab::get().system());
    let ironic = lab.ironic();
    ironic.enroll(&first, &lab.bmc_password);
    let node = ironic.enroll(&second, &lab.bmc_password);
    let port = json!({"node_uuid": node, "address": first.mac});
    let answer = ironic.send("POST", "/v1/ports", Some(&port)).unwrap();
    assert_eq!(answer.status, 409, "{}", answer.text);
    assert!(answer.text.contains("already exists"), "{}", answer.text);
}

#[test]
fn a_clean_step_can_fail() {
    let (lab, system) = (Lab::get(), Lab::get().system());
    let ironic = lab.ironic();
    let node = ironic.enroll(&system, &lab.bmc_password);
    ironic.manage(&node);
    system.set("fail_step", "delete_configuration");
    system.set("fail_message", "the controller is on fire");
    let steps = json!([{"interface": "raid", "step": "delete_configuration"}]);
    let clean = json!({"target": "clean", "clean_steps": steps});
    let path = format!("/v1/nodes/{node}/states/provision");
    ironic.send("PUT", &path, Some(&clean)).unwrap().ok();
    // State, reason and maintenance are written one after the other, while the node is locked.
    let failed = ironic.wait(&node, "clean failed", LIMIT);
    assert_eq!((&failed["fault"], &failed["maintenance"]), (&json!("clean failure"), &json!(true)));
    assert!(last_error(&failed).contains("the controller is on fire"), "{failed}");
}

#[test]
fn a_bmc_can_hang_and_refuse_volumes() {
    let (lab, system) = (Lab::get(), Lab::get().system());
    let storage = format!("{}/redfish/v1/Systems/{}/Storage/1", system.redfish, system.uuid);
    let volumes = format!("{storage}/Volumes");
    let user = format!("{}:{}", lab.bmc_user, lab.bmc_password);
    let send = |method: &str, url: &str, body: Option<&Value>| {
        request(method, url, body, &["--user", &user, "--max-time", "2"])
    };
    let drives = send("GET", &storage, None).unwrap().ok()["Drives"].clone();
    assert_eq!(drives.as_array().map(Vec::len), Some(4), "{drives}");
    let of = |count: usize| {
        let drives = &drives.as_array().unwrap()[..count];
        json!({"RAIDType": "RAID1", "CapacityBytes": 1 << 30, "Links": {"Drives": drives}})
    };
    let wanted = of(2);
    let count =
        || send("GET", &volumes, None).unwrap().ok()["Members"].as_array().map(Vec::len).unwrap();

    assert_eq!(count(), 0);
    system.set("volumes", "no cache battery");
    let refused = send("POST", &volumes, Some(&wanted)).unwrap();
    assert_eq!(refused.status, 500, "{}", refused.text);
    assert!(refused.text.contains("no cache battery"), "{}", refused.text);
    assert_eq!(count(), 0);
    system.heal();
    assert_eq!(
        send("POST", &volumes, Some(&of(3))).unwrap().status,
        400,
        "two drives make a mirror"
    );
    assert_eq!(send("POST", &volumes, Some(&wanted)).unwrap().status, 201);
    assert_eq!(send("POST", &volumes, Some(&wanted)).unwrap().status, 400, "the drives are in use");
    assert_eq!(count(), 1);
    let member = send("GET", &volumes, None).unwrap().ok()["Members"][0]["@odata.id"].clone();
    let member = format!("{}{}", system.redfish, member.as_str().unwrap());
    assert_eq!(send("GET", &member, None).unwrap().ok()["RAIDType"], "RAID1");
    assert_eq!(send("DELETE", &member, None).unwrap().status, 204);
    assert_eq!(count(), 0);

    system.set("bmc", "hung");
    let error = send("GET", &storage, None).unwrap_err();
    assert!(error.contains("timed out"), "{error}");
    system.heal();
    assert_eq!(send("GET", &storage, None).unwrap().status, 200);
}

#[test]
fn every_reported_mac_address_becomes_a_port() {
    let (lab, system) = (Lab::get(), Lab::get().system());
    let ironic = lab.ironic();
    let second = system.mac.replace("52:54:00:1a", "52:54:00:1b");
    system.set("macs", json!([system.mac, second]));
    let node = ironic.enroll(&system, &lab.bmc_password);
    ironic.manage(&node);
    ironic.provision(&node, "inspect");
    ironic.wait(&node, "manageable", LIMIT);
    let ports = ironic.get(&format!("/v1/ports?node={node}")).ok();
    let found = ports["ports"].as_array().unwrap().iter();
    let mut found: Vec<&str> = found.map(|port| port["address"].as_str().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, [system.mac.as_str(), second.as_str()]);
}
