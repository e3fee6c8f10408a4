//! What Quarry relies on when something fails: states, messages and recovery, seen without Quarry.

use quarry_tests::services::{LIMIT, Lab};
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
