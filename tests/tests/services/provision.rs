//! Hosts are provisioned and deprovisioned: an ISO, on emulated systems. An image that is written: `raid_software.rs`.

use super::raid_hardware::{Built, built, hardware, raid_steps};
use quarry_tests::services::{LIMIT, Lab, Quarry, System};
use serde_json::{Value, json};

/// An image that is booted and not written.
pub fn live_iso() -> Value {
    json!({"url": Lab::get().deploy_iso, "format": "live-iso"})
}

/// An image that is written to a disk.
pub fn image_of_the_lab() -> Value {
    let lab = Lab::get();
    let checksum = std::fs::read_to_string(lab.dir.join("http/disk.qcow2.sha256")).unwrap();
    json!({"url": lab.disk_image, "checksum": checksum.trim(), "checksumType": "sha256", "format": "qcow2"})
}

/// The node of a host, as Ironic shows it.
pub fn node_of(host: &Value) -> Value {
    let node = host["status"]["provisioning"]["ID"].as_str().unwrap();
    Lab::get().ironic().get(&format!("/v1/nodes/{node}")).ok()
}

#[track_caller]
pub fn provisioned(quarry: &Quarry, system: &System) -> Value {
    let host = quarry.wait_state(&system.name, "provisioned", LIMIT * 5);
    assert_eq!(node_of(&host)["provision_state"], "active");
    quarry.wait(&system.name, "is ready", LIMIT, |status| {
        Quarry::condition(status, "Ready")["status"] == "True" && status["poweredOn"] == true
    })
}

#[test]
fn an_iso_is_booted_and_its_raid_erased_afterwards() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.create_secret(name, &Lab::get().bmc_password);
    let mut spec = hardware(&json!([{"level": "1", "sizeGibibytes": 50}]));
    spec["spec"]["image"] = live_iso();
    quarry.create_host(&system, &spec);
    let host = provisioned(&quarry, &system);
    assert_eq!(host["status"]["provisioning"]["image"]["url"], live_iso()["url"]);
    let node = node_of(&host);
    assert_eq!(node["deploy_interface"], "ramdisk");
    assert_eq!(system.power(), "On");
    let first = system.volumes();
    assert_eq!(first.len(), 1, "prepared before it was provisioned: {first:?}");
    let uuid = node["uuid"].as_str().unwrap().to_owned();
    assert_eq!(raid_steps(&uuid), ["delete_configuration", "create_configuration"]);

    // Settings that change now wait for the deprovisioning.
    quarry.change(
        name,
        &json!({"raid": {"hardwareRAIDVolumes": [{"level": "0", "sizeGibibytes": 70}]}}),
    );
    let generation = quarry.host(name).unwrap()["metadata"]["generation"].clone();
    quarry.wait(name, "has considered the change", LIMIT, |status| {
        Quarry::condition(status, "Ready")["observedGeneration"] == generation
    });
    assert_eq!((system.volumes(), raid_steps(&uuid).len()), (first.clone(), 2));

    // Erased, and then prepared with the settings that are there.
    quarry.change(name, &json!({"image": null}));
    let host = quarry.wait(name, "is prepared again", LIMIT * 2, |status| {
        let level = &status["provisioning"]["raid"]["hardwareRAIDVolumes"][0]["level"];
        *level == "0"
            && status["provisioning"]["state"] == "available"
            && status["operationalStatus"] == "OK"
    });
    assert!(host["status"]["provisioning"]["image"]["url"].as_str().unwrap_or_default().is_empty());
    assert_eq!(
        built(&system).iter().map(|one| (one.0.as_str(), one.1)).collect::<Vec<_>>(),
        [("RAID0", 70)]
    );
    let steps = raid_steps(&uuid);
    assert_eq!(
        steps[..3],
        ["delete_configuration", "create_configuration", "delete_configuration"]
    );
    let events = quarry.events(name);
    for reason in [
        "ProvisioningStarted",
        "ProvisioningComplete",
        "DeprovisioningStarted",
        "DeprovisioningComplete",
    ] {
        assert!(events.iter().any(|one| one == reason), "{reason}: {events:?}");
    }

    // A provisioned host that is deleted is erased, too.
    quarry.change(name, &json!({"image": live_iso()}));
    provisioned(&quarry, &system);
    quarry.delete_host(name);
    quarry.wait_gone(name, LIMIT * 2);
    assert_eq!((built(&system), system.power().as_str()), (Built::new(), "Off"));
}

#[test]
fn an_image_that_is_missing_is_reported_and_corrected() {
    let system = Lab::get().system();
    let (name, quarry) = (&system.name, Quarry::start(&system));
    quarry.create_secret(name, &Lab::get().bmc_password);
    let url = Lab::get().deploy_iso.replace("ramdisk.iso", "no-such.iso");
    let image = json!({"url": url, "format": "live-iso"});
    quarry.create_host(&system, &json!({"spec": {"image": image}}));
    let host = quarry.wait(name, "has a provisioning error", LIMIT * 2, |status| {
        status["errorType"] == "provisioning error" && status["operationalStatus"] == "error"
    });
    let message = host["status"]["errorMessage"].as_str().unwrap();
    assert!(message.contains("no-such.iso") || message.contains("404"), "{message}");
    quarry.change(name, &json!({"image": live_iso()}));
    let host = provisioned(&quarry, &system);
    assert_eq!(host["status"]["errorCount"], 0);
}
