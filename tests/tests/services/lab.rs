//! What Quarry relies on when Ironic, BMC and agent work, seen without Quarry.

use quarry_tests::services::{LIMIT, Lab, System, until};
use serde_json::{Value, json};
use std::{process::Command, time::Duration};

/// Registers a system and inspects it; returns the node and its inventory.
fn inspect(system: &System) -> (String, Value) {
    let ironic = Lab::get().ironic();
    let node = ironic.enroll(system, &Lab::get().bmc_password);
    ironic.manage(&node);
    ironic.provision(&node, "inspect");
    ironic.wait(&node, "manageable", LIMIT);
    let inventory = ironic.get(&format!("/v1/nodes/{node}/inventory")).ok();
    (node, inventory["inventory"].clone())
}

#[test]
fn a_system_is_registered_and_inspected() {
    let system = Lab::get().system();
    let ironic = Lab::get().ironic();
    let node = ironic.enroll(&system, &Lab::get().bmc_password);
    let found = ironic.get(&format!("/v1/nodes/{node}")).ok();
    assert_eq!(found["provision_state"], "enroll");
    let nothing = ironic.get(&format!("/v1/nodes/{node}/inventory"));
    assert_eq!(nothing.status, 404, "before the inspection: {}", nothing.text);
    drop(system);
    assert_eq!(ironic.get(&format!("/v1/nodes/{node}")).status, 404, "deleted with its system");

    let system = Lab::get().system();
    let (node, inventory) = inspect(&system);
    assert_eq!(inventory["interfaces"][0]["mac_address"], system.mac.as_str());
    assert_eq!(inventory["disks"].as_array().map(Vec::len), Some(4));
    let node = ironic.get(&format!("/v1/nodes/{node}")).ok();
    assert_eq!(node["power_state"], "power on", "with fast_track the ramdisk keeps running");
    assert_eq!(system.power(), "On");
}

#[test]
fn an_inventory_can_have_thousands_of_disks() {
    for count in [1000, 4000] {
        let system = Lab::get().system();
        system.set("disks", count);
        let (_, inventory) = inspect(&system);
        let disks = inventory["disks"].as_array().unwrap();
        assert_eq!(disks.len(), count);
        assert!(disks[0]["name"].as_str().is_some_and(|name| name.starts_with("/dev/dm-")));
    }
}

#[test]
fn requests_are_logged_by_the_address_of_the_client() {
    let (system, other) = (Lab::get().system(), Lab::get().system());
    let before = (system.requests().len(), other.requests().len());
    let ironic = quarry_tests::services::Ironic::new(&system.ironic_url());
    ironic.get("/v1/nodes?fields=uuid").ok();
    assert_eq!(ironic.get("/v1/nodes/no-such-node").status, 404);
    let requests = until("both are logged", LIMIT, || {
        let found = system.requests().split_off(before.0);
        if found.len() == 2 { Ok(found) } else { Err(format!("{found:?}")) }
    });
    let seen = requests.iter().map(|one| (one.method.as_str(), one.path.as_str(), one.status));
    let wanted = [("GET", "/v1/nodes?fields=uuid", 200), ("GET", "/v1/nodes/no-such-node", 404)];
    assert_eq!(seen.collect::<Vec<_>>(), wanted);
    assert!(requests[0].time <= requests[1].time && requests[0].seconds < 60.0);
    assert_eq!(other.requests().len(), before.1, "each system has an address of its own");
}

#[test]
fn a_raid_volume_is_created_by_the_bmc() {
    let system = Lab::get().system();
    let ironic = Lab::get().ironic();
    let node = ironic.enroll(&system, &Lab::get().bmc_password);
    let path = format!("/v1/nodes/{node}");
    let patch = json!([{"op": "replace", "path": "/raid_interface", "value": "redfish"}]);
    ironic.send("PATCH", &path, Some(&patch)).unwrap().ok();
    ironic.manage(&node);
    let wanted =
        json!({"logical_disks": [{"size_gb": 50, "raid_level": "1", "volume_name": "root"}]});
    ironic.send("PUT", &format!("{path}/states/raid"), Some(&wanted)).unwrap().ok();
    let steps = ["delete_configuration", "create_configuration"]
        .map(|step| json!({"interface": "raid", "step": step}));
    let clean = json!({"target": "clean", "clean_steps": steps});
    ironic.send("PUT", &format!("{path}/states/provision"), Some(&clean)).unwrap().ok();
    let found = ironic.wait(&node, "manageable", LIMIT);
    let volumes = found["raid_config"]["logical_disks"].as_array().unwrap();
    let seen: Vec<_> = volumes.iter().map(|one| (&one["raid_level"], &one["size_gb"])).collect();
    assert_eq!(seen, [(&json!("1"), &json!(50))], "{volumes:?}");
}

/// The lab itself: two at a time, and none survives its owner, however that ended.
#[test]
fn a_lab_ends_with_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let script = quarry_tests::lab::repository().join("scripts/services-lab");
    let mut owner = Command::new("sleep").arg("300").spawn().unwrap();
    let output = Command::new(&script)
        .arg("up")
        .arg(dir.path())
        .envs([("OWNER", owner.id().to_string()), ("REAL", "0".to_owned())])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", quarry_tests::lab::text(&output.stderr));
    assert!(processes_of(dir.path()) > 3);
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("the second lab has ended", Duration::from_secs(30), || match processes_of(dir.path()) {
        0 => Ok(()),
        count => Err(format!("{count} processes")),
    });
    assert_eq!(Lab::get().ironic().get("/v1/drivers/redfish").status, 200, "the other one runs");
}

/// Number of processes, seen from here, with this path in their arguments.
fn processes_of(path: &std::path::Path) -> usize {
    let name = path.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&name))
    })
    .count()
}
