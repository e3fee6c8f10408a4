//! Hardware: what a real agent finds, much of it, none of it; and hosts that Ironic must leave alone.

use super::hosts::requests_since;
use quarry_tests::services::{LIMIT, Lab, Quarry, System, quarry::HARDWARE_DATA, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The one evidence for inspection: HardwareData and lsblk in the guest agree. Part of a test in `raid_software.rs`: there
/// is one real machine, and every boot of it takes its time.
#[track_caller]
pub fn storage_equals_lsblk(quarry: &Quarry, machine: &System) {
    let data = quarry.hardware_data(&machine.name).unwrap();
    let shown = machine.shell("lsblk -J -b -d -o NAME,SIZE,SERIAL,MODEL,VENDOR,WWN,ROTA");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
    let listed: BTreeMap<String, _> = shown["blockdevices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let size = one["size"].as_i64().unwrap();
            let words = ["serial", "model", "wwn"].map(|key| text(&one[key]));
            (format!("/dev/{}", text(&one["name"])), (size, words, one["rota"] == true))
        })
        .collect();
    let stored: BTreeMap<String, _> = data["spec"]["hardware"]["storage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let names = one["alternateNames"].as_array().unwrap();
            let words = ["serialNumber", "model", "wwn"].map(|key| text(&one[key]));
            (
                text(&names[0]),
                (one["sizeBytes"].as_i64().unwrap(), words, one["rotational"] == true),
            )
        })
        .collect();
    assert_eq!(stored, listed);
    assert_eq!(listed.len(), 4);
    let nics = data["spec"]["hardware"]["nics"].as_array().unwrap();
    assert!(nics.iter().any(|nic| nic["mac"] == machine.mac.as_str()), "{nics:?}");
}

#[test]
fn a_thousand_disks_fit_and_too_many_are_reported() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    system.set("disks", 1000);
    quarry.register(&system);
    let host = quarry.wait_state(name, "available", LIMIT);
    assert_eq!(host["status"]["hardware"]["storage"].as_array().unwrap().len(), 1000);
    let data = quarry.hardware_data(name).unwrap();
    assert_eq!(data["spec"]["hardware"]["storage"].as_array().unwrap().len(), 1000);

    // Beyond what etcd stores.
    system.set("disks", 8000);
    quarry.annotate(name, "inspect.metal3.io", "");
    let host = quarry.wait(name, "reports the limit", LIMIT, |status| {
        let found = Quarry::condition(status, "quarry.dev/HardwareDataStored");
        status["provisioning"]["state"] == "available" && found["reason"] == "TooLarge"
    });
    let found = Quarry::condition(&host["status"], "quarry.dev/HardwareDataStored");
    assert!(found["message"].as_str().unwrap().contains("8000 disks"), "{found}");
    // What the earlier inspection found stays, whole, until one that fits replaces it.
    let kept = quarry.hardware_data(name).unwrap()["spec"].clone();
    assert_eq!((&kept, &host["status"]["hardware"]), (&data["spec"], &kept["hardware"]));
    let node = host["status"]["provisioning"]["ID"].as_str().unwrap().to_owned();
    let inspected = || {
        Lab::get().ironic().get(&format!("/v1/nodes/{node}")).ok()["inspection_finished_at"].clone()
    };
    let (mut before, first) = (0, inspected());
    // Several more reconciles: none of them inspects, or reads megabytes. The first one ends what the inspection began.
    for round in 0..4 {
        quarry.change(name, &json!({"description": format!("round {round}")}));
        quarry.wait(name, "is reconciled", LIMIT, |status| {
            let generation = quarry.host(name).unwrap()["metadata"]["generation"].clone();
            Quarry::condition(status, "Ready")["observedGeneration"] == generation
        });
        before = if round == 0 { system.requests().len() } else { before };
    }
    let requests = requests_since(&system, before);
    assert!(
        requests.iter().all(|one| !one.contains("/inventory") && one.starts_with("GET")),
        "{requests:?}"
    );
    assert_eq!(inspected(), first);

    // The remedy.
    system.set("disks", 5);
    quarry.annotate(name, "inspect.metal3.io", "");
    quarry.wait(name, "has a HardwareData again", LIMIT, |status| {
        status["hardware"]["storage"].as_array().map(Vec::len) == Some(5)
            && Quarry::condition(status, "quarry.dev/HardwareDataStored").is_null()
    });
    assert!(quarry.hardware_data(name).is_some());
}

#[test]
fn hardware_can_be_described_instead_of_inspected() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.create_secret(name, &Lab::get().bmc_password);
    let details = json!({"hostname": "described", "ramMebibytes": 4096, "cpu": {"arch": "x86_64", "count": 2}});
    let annotations = json!({"inspect.metal3.io/hardwaredetails": details.to_string()});
    quarry.create_host(
        &system,
        &json!({"metadata": {"annotations": annotations}, "spec": {"inspectionMode": "disabled"}}),
    );
    let host = quarry.wait_state(name, "available", LIMIT);
    assert_eq!(host["status"]["hardware"]["hostname"], "described");
    assert_eq!(quarry.hardware_data(name).unwrap()["spec"]["hardware"]["ramMebibytes"], 4096);
    assert!(host["metadata"]["annotations"]["inspect.metal3.io/hardwaredetails"].is_null());
    let node = host["status"]["provisioning"]["ID"].as_str().unwrap();
    let node = Lab::get().ironic().get(&format!("/v1/nodes/{node}")).ok();
    assert_eq!(node["inspection_finished_at"], Value::Null, "never inspected");
}

#[test]
fn an_external_host_is_adopted_and_only_its_power_managed() {
    let system = Lab::get().system();
    let (name, quarry, ironic) = (&system.name, Quarry::start(&system), Lab::get().ironic());
    quarry.create_secret(name, &Lab::get().bmc_password);
    quarry.create_host(&system, &json!({"spec": {"externallyProvisioned": true, "online": false}}));
    let host = quarry.wait_state(name, "externally provisioned", LIMIT);
    let node = format!("/v1/nodes/{}", host["status"]["provisioning"]["ID"].as_str().unwrap());
    until("Ironic has adopted it", LIMIT, || {
        let found = ironic.get(&node).ok()["provision_state"].clone();
        if found == "active" { Ok(()) } else { Err(found.to_string()) }
    });
    let ready = quarry.wait(name, "is ready", LIMIT, |status| {
        Quarry::condition(status, "Ready")["status"] == "True"
    });
    assert_eq!(Quarry::condition(&ready["status"], "Provisioned")["status"], "True");
    assert_eq!((quarry.hardware_data(name), system.power().as_str()), (None, "Off"));
    quarry.change(name, &json!({"online": true}));
    quarry.wait(name, "is on", LIMIT, |status| status["poweredOn"] == true);
    assert_eq!(system.power(), "On");
    quarry.delete_host(name);
    quarry.wait_gone(name, LIMIT);
    assert_eq!(ironic.get(&node).status, 404);
}

#[test]
fn a_detached_host_is_forgotten_by_ironic_and_comes_back() {
    let system = Lab::get().system();
    let (name, quarry, ironic) = (&system.name, Quarry::start(&system), Lab::get().ironic());
    quarry.register(&system);
    let host = quarry.wait_state(name, "available", LIMIT);
    let node = format!("/v1/nodes/{}", host["status"]["provisioning"]["ID"].as_str().unwrap());
    let data = quarry.hardware_data(name).unwrap();
    quarry.annotate(name, "baremetalhost.metal3.io/detached", "");
    let host =
        quarry.wait(name, "is detached", LIMIT, |status| status["operationalStatus"] == "detached");
    assert_eq!(Quarry::condition(&host["status"], "Ready")["reason"], "Detached");
    assert_eq!((ironic.get(&node).status, system.power().as_str()), (404, "On"));
    quarry.annotate(name, "baremetalhost.metal3.io/detached", Value::Null);
    let host = quarry.wait(name, "is attached", LIMIT, |status| {
        let id = status["provisioning"]["ID"].as_str().unwrap_or_default();
        status["operationalStatus"] == "OK" && !id.is_empty()
    });
    assert_eq!(host["status"]["provisioning"]["state"], "available");
    assert_eq!(
        quarry.hardware_data(name).unwrap()["metadata"]["uid"],
        data["metadata"]["uid"],
        "not inspected again"
    );
    // Deleted while it is detached: the machine keeps running.
    quarry.annotate(name, "baremetalhost.metal3.io/detached", "");
    quarry.wait(name, "is detached", LIMIT, |status| status["operationalStatus"] == "detached");
    quarry.delete_host(name);
    quarry.wait_gone(name, LIMIT);
    assert_eq!(system.power(), "On");
    assert!(
        quarry
            .get(&format!("{HARDWARE_DATA}/{name}"))
            .is_none_or(|one| !one["metadata"]["deletionTimestamp"].is_null())
    );
}
