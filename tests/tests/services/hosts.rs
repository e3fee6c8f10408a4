//! The life of a host with a real Ironic, and what it costs in requests.

use quarry_tests::services::{
    LIMIT, Lab, Quarry, System,
    figures::Meter,
    quarry::{HARDWARE_DATA, HOSTS, SECRETS},
    until,
};
use serde_json::{Value, json};

/// Requests of Quarry, not of the test, since there were so many.
pub fn requests_since(system: &System, before: usize) -> Vec<String> {
    let all = system.requests().split_off(before);
    let ours = all.into_iter().filter(|one| one.agent.starts_with("quarry"));
    ours.map(|one| format!("{} {} {}", one.method, one.path, one.status)).collect()
}

fn power_is(quarry: &Quarry, system: &System, on: bool) {
    quarry.wait(&system.name, "has the power that is asked for", LIMIT, |status| {
        status["poweredOn"] == on && status["operationalStatus"] == "OK"
    });
    assert_eq!(system.power(), if on { "On" } else { "Off" });
}

#[test]
fn the_whole_life_of_a_host() {
    let system = Lab::get().system();
    let (name, quarry) = (system.name.clone(), Quarry::start(&system));
    quarry.create_secret(&name, &Lab::get().bmc_password);
    let meter = Meter::start(&quarry, &system);
    quarry.create_host(&system, &json!({}));
    let host = quarry.wait_state(&name, "available", LIMIT);
    let cost = meter.read(&system, &host);
    println!("figure: created to available: {}", cost.line(&host));
    assert!(cost.requests.len() <= 25, "{} requests: {:#?}", cost.requests.len(), cost.lines());
    assert!(cost.writes <= 12, "{} writes", cost.writes);
    drop(meter);

    let status = &host["status"];
    assert_eq!((&status["errorCount"], &status["errorMessage"]), (&json!(0), &json!("")));
    assert_eq!(status["goodCredentials"], status["triedCredentials"]);
    for (kind, value, reason) in [
        ("Manageable", "True", "Manageable"),
        ("AvailableForProvisioning", "True", "Available"),
        ("Ready", "False", "NotProvisioned"),
        ("Progressing", "False", "NotProgressing"),
    ] {
        let found = Quarry::condition(status, kind);
        assert_eq!(
            (&found["status"], &found["reason"]),
            (&json!(value), &json!(reason)),
            "{found}"
        );
    }
    let data = quarry.hardware_data(&name).unwrap();
    assert_eq!(data["spec"]["hardware"], status["hardware"]);
    assert_eq!(data["metadata"]["ownerReferences"][0]["uid"], host["metadata"]["uid"]);
    assert_eq!(data["metadata"]["finalizers"], json!(["baremetalhost.metal3.io/hardwareData"]));
    assert_eq!(status["hardware"]["storage"].as_array().unwrap().len(), 4);
    let events = quarry.events(&name);
    for reason in ["Registered", "BMCAccessValidated", "InspectionStarted", "InspectionComplete"] {
        assert!(events.iter().any(|one| one == reason), "{reason}: {events:?}");
    }
    power_is(&quarry, &system, true);

    quarry.change(&name, &json!({"online": false}));
    power_is(&quarry, &system, false);
    quarry.change(&name, &json!({"online": true}));
    power_is(&quarry, &system, true);
    quarry.annotate(&name, "reboot.metal3.io", r#"{"mode":"hard"}"#);
    until("the reboot is done", LIMIT, || {
        let host = quarry.host(&name).unwrap();
        let done = host["metadata"]["annotations"]["reboot.metal3.io"].is_null();
        if done && host["status"]["poweredOn"] == true {
            Ok(())
        } else {
            Err(host["status"].to_string())
        }
    });
    power_is(&quarry, &system, true);
    assert!(quarry.events(&name).iter().any(|one| one == "PowerOff"));

    // Inspected again, with another disk.
    system.set("disks", 3);
    quarry.annotate(&name, "inspect.metal3.io", "");
    let again = quarry.wait(&name, "is inspected again", LIMIT, |status| {
        let disks = status["hardware"]["storage"].as_array().map(Vec::len);
        status["provisioning"]["state"] == "available" && disks == Some(3)
    });
    assert!(again["metadata"]["annotations"]["inspect.metal3.io"].is_null());
    let replaced = quarry.hardware_data(&name).unwrap();
    assert_ne!(replaced["metadata"]["uid"], data["metadata"]["uid"]);
    assert_eq!(replaced["spec"]["hardware"], again["status"]["hardware"]);

    // Deleted by hand it is rebuilt, without an inspection.
    quarry.send("DELETE", &format!("{HARDWARE_DATA}/{name}"), None).unwrap().ok();
    let rebuilt = until("the HardwareData is rebuilt", LIMIT, || {
        let found = quarry.hardware_data(&name).ok_or("there is none")?;
        if found["metadata"]["uid"] == replaced["metadata"]["uid"] {
            Err("not yet")
        } else {
            Ok(found)
        }
        .map_err(str::to_owned)
    });
    assert_eq!(rebuilt["spec"], replaced["spec"]);
    let spec = json!({"spec": {"hardware": {"hostname": "other"}}});
    let refused = quarry.send("PATCH", &format!("{HARDWARE_DATA}/{name}"), Some(&spec)).unwrap();
    assert_eq!(refused.status, 422, "{}", refused.text);

    let watch = quarry.watch(HARDWARE_DATA);
    let node = again["status"]["provisioning"]["ID"].as_str().unwrap().to_owned();
    quarry.delete_host(&name);
    quarry.wait_gone(&name, LIMIT);
    until("its HardwareData is gone", LIMIT, || match quarry.hardware_data(&name) {
        None => Ok(()),
        Some(found) => Err(found["metadata"].to_string()),
    });
    assert_eq!(Lab::get().ironic().get(&format!("/v1/nodes/{node}")).status, 404);
    assert_eq!(system.power(), "Off", "powered off before it was deleted");
    let secret = quarry.get(&format!("{SECRETS}/{name}")).unwrap();
    assert_eq!(secret["metadata"]["finalizers"], Value::Null, "{secret}");
    drop(watch);
    let log = quarry.log_text();
    assert!(!log.contains(&Lab::get().bmc_password), "a credential is in the log");
}

/// Counted over two minutes: a list each minute serves all hosts.
#[test]
fn at_rest_a_host_costs_one_request_a_minute() {
    let systems = [Lab::get().system(), Lab::get().system()];
    let quarry = Quarry::start(&systems[0]);
    for system in &systems {
        quarry.register(system);
    }
    for system in &systems {
        quarry.wait_state(&system.name, "available", LIMIT);
        power_is(&quarry, system, true);
    }
    let watch = quarry.watch(HOSTS);
    let settled = until("nothing is requested for ten seconds", LIMIT, || {
        let now = jiff::Timestamp::now().as_millisecond() as f64 / 1000.0;
        let all = systems[0].requests();
        let last = all.iter().map(|one| one.time).fold(0.0, f64::max);
        if now - last > 10.0 { Ok(all.len()) } else { Err(format!("{} seconds ago", now - last)) }
    });
    let writes = watch.writes().len();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(110);
    until("two minutes have passed", LIMIT * 2, || {
        if std::time::Instant::now() > end { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let requests = requests_since(&systems[0], settled);
    let minute = requests.len() as f64 / 2.0 / (110.0 / 60.0);
    println!("figure: at rest: {minute:.2} requests to Ironic per host and minute");
    assert!(!requests.is_empty() && requests.len() <= 4, "{requests:?}");
    assert_eq!(watch.writes().len(), writes, "and nothing is written");
}

/// Killed again and again while the host is registered and inspected: one node, one HardwareData, nothing lost.
#[test]
fn kills_at_any_time_only_delay_a_host() {
    let system = Lab::get().system();
    let mut quarry = Quarry::start(&system);
    quarry.register(&system);
    // Different moments of the registration and the inspection, in milliseconds after the start.
    for moment in [900_u64, 1500, 2200, 1200, 3000, 1800] {
        quarry.kill();
        quarry.spawn();
        let end = std::time::Instant::now() + std::time::Duration::from_millis(moment);
        until("the moment of the kill", LIMIT, || {
            if std::time::Instant::now() >= end { Ok(()) } else { Err("not yet".to_owned()) }
        });
    }
    quarry.kill();
    quarry.run();
    let host = quarry.wait_state(&system.name, "available", LIMIT);
    let listed = Lab::get().ironic().get("/v1/nodes?fields=uuid,name").ok();
    let name = format!("default~{}", system.name);
    let nodes: Vec<&Value> =
        listed["nodes"].as_array().unwrap().iter().filter(|one| one["name"] == *name).collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!(nodes[0]["uuid"], host["status"]["provisioning"]["ID"]);
    let data = quarry.hardware_data(&system.name).unwrap();
    assert_eq!(data["spec"]["hardware"], host["status"]["hardware"]);
    quarry.delete_host(&system.name);
    quarry.kill();
    quarry.run();
    quarry.wait_gone(&system.name, LIMIT);
    let listed = Lab::get().ironic().get("/v1/nodes?fields=name").ok();
    assert!(listed["nodes"].as_array().unwrap().iter().all(|one| one["name"] != *name), "{listed}");
}
