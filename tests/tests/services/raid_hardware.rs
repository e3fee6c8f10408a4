//! Hardware RAID with a real Ironic on emulated controllers. The oracle is what the BMC itself shows.

use quarry_tests::services::{
    LIMIT, Lab, Quarry, System,
    figures::Meter,
    quarry::{HOSTS, SECRETS},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const GIB: u64 = 1 << 30;

/// Level, GiB and drives of each volume of the BMC.
pub type Built = BTreeSet<(String, u64, Vec<String>)>;

pub fn built(system: &System) -> Built {
    let drives = |one: &Value| {
        let all = one["Links"]["Drives"].as_array().unwrap().iter();
        let names = all.map(|drive| drive["@odata.id"].as_str().unwrap().rsplit('/').next());
        names.map(|name| name.unwrap().to_owned()).collect::<Vec<_>>()
    };
    let size = |one: &Value| one["CapacityBytes"].as_u64().unwrap() / GIB;
    let level = |one: &Value| one["RAIDType"].as_str().unwrap().to_owned();
    system.volumes().iter().map(|one| (level(one), size(one), drives(one))).collect()
}

fn volume(level: &str, size: u64, drives: &[&str]) -> (String, u64, Vec<String>) {
    (level.to_owned(), size, drives.iter().map(|&one| one.to_owned()).collect())
}

pub fn hardware(volumes: &Value) -> Value {
    json!({"spec": {"raid": {"hardwareRAIDVolumes": volumes}}})
}

/// Quarry with a host that is being prepared.
fn prepare(system: &System, volumes: &Value) -> Quarry {
    let quarry = Quarry::start(system);
    quarry.create_secret(&system.name, &Lab::get().bmc_password);
    quarry.create_host(system, &hardware(volumes));
    quarry
}

/// Until the host is available with a snapshot of so many volumes of this level.
#[track_caller]
fn prepared(quarry: &Quarry, system: &System, count: usize, level: &str) -> Value {
    let host = quarry.wait(&system.name, &format!("has a RAID {level}"), LIMIT, |status| {
        let snapshot = status["provisioning"]["raid"]["hardwareRAIDVolumes"].as_array();
        let fits = snapshot.is_some_and(|all| all.len() == count && all[0]["level"] == level);
        fits && status["provisioning"]["state"] == "available"
            && status["operationalStatus"] == "OK"
    });
    let verified = Quarry::condition(&host["status"], "quarry.dev/RAIDVerified");
    assert_eq!(verified["status"], "True", "{verified}");
    host
}

fn node_of(host: &Value) -> String {
    host["status"]["provisioning"]["ID"].as_str().unwrap().to_owned()
}

/// Cleaning steps of the RAID interface, by Ironic's log.
pub fn raid_steps(node: &str) -> Vec<String> {
    let all = Lab::get().steps(node).into_iter();
    all.filter(|step| step.ends_with("_configuration")).collect()
}

#[track_caller]
fn fails(quarry: &Quarry, system: &System, text: &str) -> Value {
    let host = quarry.wait(&system.name, "has a preparation error", LIMIT, |status| {
        status["errorType"] == "preparation error" && status["operationalStatus"] == "error"
    });
    let message = host["status"]["errorMessage"].as_str().unwrap();
    assert!(message.contains(text), "{message}");
    host
}

/// One host, one level after the other: each change is prepared from `available`.
#[test]
fn every_level_is_built_and_erased() {
    let system = Lab::get().system();
    let (name, quarry) = (
        &system.name,
        prepare(
            &system,
            &json!([{"level": "1", "sizeGibibytes": 50, "name": "root", "rotational": false}, {"level": "0", "rotational": true}]),
        ),
    );
    let host = prepared(&quarry, &system, 2, "1");
    // A mirror of the size that was asked for, and all of the turning disks, which Quarry picked.
    let wanted = [volume("RAID1", 50, &["d1", "d2"]), volume("RAID0", 1000, &["d5"])];
    assert_eq!(built(&system), Built::from(wanted));
    let picked = &host["status"]["provisioning"]["raid"]["hardwareRAIDVolumes"][1];
    assert_eq!((&picked["controller"], &picked["physicalDisks"]), (&json!("2"), &json!(["d5"])));
    assert!(system.volumes().iter().any(|one| one["Name"] == "root"));
    let node = node_of(&host);
    assert_eq!(raid_steps(&node), ["delete_configuration", "create_configuration"]);

    for (level, redfish, extra, size) in [
        ("1+0", "RAID10", json!({"sizeGibibytes": 600, "numberOfPhysicalDisks": 4}), 600),
        ("5", "RAID5", json!({"numberOfPhysicalDisks": 4}), 1500),
        ("0", "RAID0", json!({"controller": "1", "physicalDisks": ["d1", "d2", "d3", "d4"]}), 2000),
    ] {
        let mut wanted = extra;
        wanted["level"] = json!(level);
        quarry.change(name, &json!({"raid": {"hardwareRAIDVolumes": [wanted]}}));
        prepared(&quarry, &system, 1, level);
        let all = volume(redfish, size, &["d1", "d2", "d3", "d4"]);
        assert_eq!(built(&system), Built::from([all]), "level {level}");
    }
    quarry.change(name, &json!({"raid": {"hardwareRAIDVolumes": []}}));
    quarry.wait(name, "has no RAID", LIMIT, |status| {
        status["provisioning"]["raid"]["hardwareRAIDVolumes"] == json!([])
            && status["provisioning"]["state"] == "available"
            && status["operationalStatus"] == "OK"
    });
    assert_eq!(built(&system), Built::new());
    assert_eq!(raid_steps(&node).last().map(String::as_str), Some("delete_configuration"));

    quarry.change(
        name,
        &json!({"raid": {"hardwareVolumes": [{"level": 1}], "hardwareRAIDVolumes": null}}),
    );
    prepared(&quarry, &system, 1, "1");
    assert_eq!(built(&system).len(), 1, "the short spelling, too");
    quarry.delete_host(name);
    quarry.wait_gone(name, LIMIT);
    assert_eq!(built(&system), Built::new(), "deleting a prepared host erases it");
    assert_eq!(Lab::get().ironic().get(&format!("/v1/nodes/{node}")).status, 404);
}

/// Volumes that were built by hand.
#[test]
fn no_settings_leave_volumes_as_they_are() {
    let system = Lab::get().system();
    let url = format!("{}/redfish/v1/Systems/{}/Storage/1", system.redfish, system.uuid);
    let user = format!("{}:{}", Lab::get().bmc_user, Lab::get().bmc_password);
    let send = |method: &str, url: &str, body: Option<&Value>| {
        quarry_tests::services::request(method, url, body, &["--user", &user]).unwrap()
    };
    let drives = send("GET", &url, None).ok()["Drives"].clone();
    let wanted = json!({"RAIDType": "RAID0", "Links": {"Drives": [drives[0]]}});
    assert_eq!(send("POST", &format!("{url}/Volumes"), Some(&wanted)).status, 201);
    let by_hand = built(&system);

    let quarry = Quarry::start(&system);
    let name = &system.name;
    quarry.create_secret(name, &Lab::get().bmc_password);
    quarry.create_host(&system, &json!({"spec": {"raid": {"hardwareRAIDVolumes": null}}}));
    let host = quarry.wait_state(name, "available", LIMIT);
    assert_eq!(raid_steps(&node_of(&host)), [""; 0]);
    quarry.delete_host(name);
    quarry.wait_gone(name, LIMIT);
    assert_eq!(built(&system), by_hand);
    quarry.create_host(&system, &hardware(&json!([])));
    let host = quarry.wait_state(name, "available", LIMIT);
    assert_eq!(raid_steps(&node_of(&host)), ["delete_configuration"]);
    assert_eq!(built(&system), Built::new());
}

#[test]
fn a_controller_that_refuses_is_reported_and_retried() {
    let system = Lab::get().system();
    system.set("volumes", "no cache battery");
    let quarry = prepare(&system, &json!([{"level": "1", "sizeGibibytes": 50}]));
    let host = fails(&quarry, &system, "no cache battery");
    let snapshot = &host["status"]["provisioning"]["raid"]["hardwareRAIDVolumes"];
    assert_eq!(snapshot.as_array().map(Vec::len), Some(1), "{snapshot}");
    assert_ne!(Quarry::condition(&host["status"], "quarry.dev/RAIDVerified")["status"], "True");
    assert_eq!(host["status"]["provisioning"]["state"], "preparing");
    system.heal();
    quarry.change(&system.name, &json!({"description": "it has a battery now"}));
    prepared(&quarry, &system, 1, "1");
    assert_eq!(built(&system), Built::from([volume("RAID1", 50, &["d1", "d2"])]));
    let node = Lab::get().ironic().get(&format!("/v1/nodes/{}", node_of(&host))).ok();
    assert_eq!((&node["maintenance"], &node["fault"]), (&json!(false), &Value::Null));
    // Each attempt begins with the erase.
    let steps = raid_steps(&node_of(&host));
    let attempt = ["delete_configuration", "create_configuration"];
    assert!(steps.len() >= 4 && steps.chunks(2).all(|one| one == attempt), "{steps:?}");
}

/// Ironic succeeds, and what it read from the BMC decides.
#[test]
fn a_controller_that_builds_another_level_is_found() {
    let system = Lab::get().system();
    system.set("built", json!({"RAIDType": "RAID0"}));
    let quarry = prepare(&system, &json!([{"level": "1", "sizeGibibytes": 50, "name": "root"}]));
    let host = fails(&quarry, &system, "root");
    let verified = Quarry::condition(&host["status"], "quarry.dev/RAIDVerified");
    assert_ne!(verified["status"], "True", "{verified}");
    system.heal();
    quarry.change(&system.name, &json!({"description": "new firmware"}));
    prepared(&quarry, &system, 1, "1");
    assert_eq!(built(&system), Built::from([volume("RAID1", 50, &["d1", "d2"])]));
}

#[test]
fn impossible_settings_start_no_cleaning() {
    let system = Lab::get().system();
    let name = &system.name;
    system.set("storage", false);
    // Quarry has to pick disks, and the BMC lists none.
    let quarry = prepare(&system, &json!([{"level": "1"}]));
    let host = fails(&quarry, &system, "");
    let node = node_of(&host);
    // Reconciled again, for another reason than its spec.
    quarry.annotate(name, "example.com/touched", "yes");
    quarry
        .patch(&format!("{SECRETS}/{name}"), &json!({"metadata": {"labels": {"touched": "yes"}}}));
    quarry.change(name, &json!({"online": false}));
    quarry.wait(name, "is off", LIMIT, |status| status["poweredOn"] == false);
    assert_eq!(raid_steps(&node), [""; 0]);
    let raid = format!("/v1/nodes/{node}/states/raid");
    assert!(system.requests().iter().all(|one| one.path != raid), "nothing was requested");
    system.heal();
    quarry.change(name, &json!({"online": true, "raid": {"hardwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 9}]}}));
    prepared(&quarry, &system, 1, "1");
    assert_eq!(built(&system), Built::from([volume("RAID1", 9, &["d1", "d2"])]));

    // More disks than there are.
    let many = json!([{"level": "0", "numberOfPhysicalDisks": 9}]);
    quarry.change(name, &json!({"raid": {"hardwareRAIDVolumes": many}}));
    let steps = raid_steps(&node);
    fails(&quarry, &system, "9");
    assert_eq!(raid_steps(&node), steps, "the volume that is there was not touched");
    // At admission.
    let twice = json!([{"level": "1", "name": "a"}, {"level": "0", "name": "a"}]);
    let changes = json!({"spec": {"raid": {"hardwareRAIDVolumes": twice}}});
    let refused = quarry.send("PATCH", &format!("{HOSTS}/{name}"), Some(&changes)).unwrap();
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(refused.text.contains("name"), "{}", refused.text);
}

#[test]
fn an_annotation_keeps_the_raid_of_a_deleted_host() {
    let system = Lab::get().system();
    let quarry = prepare(&system, &json!([{"level": "1", "sizeGibibytes": 50}]));
    let host = prepared(&quarry, &system, 1, "1");
    quarry.annotate(&system.name, "quarry.dev/retain-raid", "");
    quarry.delete_host(&system.name);
    quarry.wait_gone(&system.name, LIMIT);
    assert_eq!(built(&system).len(), 1);
    assert_eq!(raid_steps(&node_of(&host)).len(), 2, "built, never erased");
}

#[test]
fn a_host_with_raid_costs_few_requests_and_writes() {
    let system = Lab::get().system();
    let quarry = Quarry::start(&system);
    quarry.create_secret(&system.name, &Lab::get().bmc_password);
    let meter = Meter::start(&quarry, &system);
    quarry.create_host(&system, &hardware(&json!([{"level": "1", "name": "root"}])));
    let host = prepared(&quarry, &system, 1, "1");
    let cost = meter.read(&system, &host);
    println!("figure: created to available with one RAID volume: {}", cost.line(&host));
    assert!(cost.requests.len() <= 40, "{} requests: {:#?}", cost.requests.len(), cost.lines());
    assert!(cost.writes <= 12, "{} writes", cost.writes);
}
