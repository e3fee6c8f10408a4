//! Faults that every test would notice. `scripts/test-tiers` runs the modules named `…alone` after all
//! others, one test at a time.

use quarry_tests::services::{Ironic, Lab};
use serde_json::json;

#[test]
fn a_stopped_ironic_refuses_and_continues() {
    let lab = Lab::get().alone();
    let system = lab.system();
    let ironic = lab.ironic();
    let node = ironic.enroll(&system, &lab.bmc_password);
    lab.stop("ironic");
    let refused = ironic.send("GET", "/v1/nodes", None).unwrap_err();
    assert!(refused.contains("connect"), "{refused}");
    lab.start("ironic");
    assert_eq!(ironic.get(&format!("/v1/nodes/{node}")).ok()["provision_state"], "enroll");
}

#[test]
fn a_lost_database_leaves_an_empty_ironic() {
    let lab = Lab::get().alone();
    let system = lab.system();
    let ironic = lab.ironic();
    let node = ironic.enroll(&system, &lab.bmc_password);
    ironic.manage(&node);
    lab.lose_database();
    assert_eq!(ironic.get(&format!("/v1/nodes/{node}")).status, 404);
    assert_eq!(ironic.get("/v1/nodes").ok()["nodes"], json!([]));
    assert_eq!(ironic.get("/v1/ports").ok()["ports"], json!([]));
    let again = ironic.enroll(&system, &lab.bmc_password);
    assert_ne!(again, node, "Ironic chooses another UUID");
    ironic.manage(&again);
}

#[test]
fn ironic_can_ask_for_a_password() {
    let lab = Lab::get().alone();
    let (user, password) = lab.require_password();
    assert_eq!(lab.ironic().get("/v1").status, 200, "the version is open");
    assert_eq!(lab.ironic().get("/v1/nodes").status, 401);
    let wrong = Ironic::new(&lab.ironic_url).as_user(&user, "wrong");
    assert_eq!(wrong.get("/v1/nodes").status, 401);
    let right = Ironic::new(&lab.ironic_url).as_user(&user, &password);
    assert_eq!(right.get("/v1/nodes").status, 200);
}
