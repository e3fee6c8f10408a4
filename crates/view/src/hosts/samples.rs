//! Hosts for tests, here and in crates that render views.

#![expect(clippy::unwrap_used, reason = "a sample that cannot be read fails its test")]

use crate::Snapshot;
use quarry_api::BareMetalHost;
use serde_json::{Value, json};
use std::sync::Arc;

/// A host of namespace metal with these annotations and this status.
pub fn host(name: &str, annotations: Value, status: Value) -> BareMetalHost {
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": "metal", "uid": format!("uid-{name}"), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations},
        "spec": {"online": true, "bootMACAddress": "00:5c:52:31:3a:9c",
            "bmc": {"address": "redfish://10.0.0.5/redfish/v1/Systems/1", "credentialsName": format!("{name}-bmc")}},
        "status": status,
    }))
    .unwrap()
}

/// The status of a host at rest.
pub fn at_rest(state: &str) -> Value {
    let secret = |version: &str| json!({"credentials": {"name": "rack-1-bmc", "namespace": "metal"}, "credentialsVersion": version});
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Available", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:05:00Z"})
    };
    json!({
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
        "lastUpdated": "2026-01-01T00:05:00Z",
        "provisioning": {"state": state, "ID": "3f7c2a10-5ad0-4e9b-9d2f-0123456789ab"},
        "triedCredentials": secret("7"), "goodCredentials": secret("7"),
        "operationHistory": {"inspect": {"start": "2026-01-01T00:01:00Z", "end": "2026-01-01T00:05:00Z"}},
        "conditions": [condition("AvailableForProvisioning", "True"), condition("Healthy", "True")],
    })
}

fn failed() -> Value {
    let mut status = at_rest("registering");
    status["operationalStatus"] = json!("error");
    status["errorType"] = json!("registration error");
    status["errorMessage"] = json!(
        "Failed to get power state for node 3f7c: 401 Unauthorized\nsecond line; check the Secret rack-2-bmc"
    );
    status["errorCount"] = json!(3);
    status["triedCredentials"]["credentialsVersion"] = json!("9");
    status["conditions"] = json!([{"type": "Healthy", "status": "False", "reason": "RegistrationError",
        "message": "401 Unauthorized", "lastTransitionTime": "2026-01-01T00:05:00Z"}]);
    status["operationHistory"] =
        json!({"register": {"start": "2026-01-01T00:00:10Z", "end": null}});
    status
}

fn too_large() -> Value {
    let mut status = at_rest("available");
    status["conditions"].as_array_mut().unwrap().push(json!({
        "type": "quarry.dev/HardwareDataStored", "status": "False", "reason": "TooLarge", "lastTransitionTime": "2026-01-01T00:05:00Z",
        "message": "the hardware has 4000 disks: no HardwareData is created; present fewer disks to the host",
    }));
    status
}

/// Six hosts: one with a node, one that fails, one that is inspected, one paused, one too large, one new.
pub fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::new("quarry-system");
    let mut used = host("rack-1", json!({}), at_rest("available"));
    used.spec.consumer_ref = serde_json::from_value(
        json!({"kind": "Metal3Machine", "namespace": "metal", "name": "m1"}),
    )
    .unwrap();
    snapshot.add_host(used);
    snapshot.add_host(host("rack-2", json!({}), failed()));
    let mut inspecting = at_rest("inspecting");
    inspecting["operationHistory"]["inspect"]["end"] = Value::Null;
    inspecting["conditions"] = json!([]);
    snapshot.add_host(host("rack-3", json!({"reboot.metal3.io": ""}), inspecting));
    let paused = json!({"baremetalhost.metal3.io/paused": "quarry", "other.example.com/x": "y"});
    snapshot.add_host(host("rack-4", paused, at_rest("provisioned")));
    snapshot.add_host(host("rack-5", json!({}), too_large()));
    snapshot.add_host(host("rack-6", json!({}), Value::Null));
    let disk = |name: &str, wwn: &str, model: &str, size: i64| json!({"name": name, "wwn": wwn, "model": model, "sizeBytes": size, "serialNumber": "Z1"});
    let data = json!({
        "metadata": {"name": "rack-1", "namespace": "metal"},
        "spec": {"hardware": {
            "systemVendor": {"manufacturer": "Dell Inc.", "productName": "PowerEdge R740", "serialNumber": "CN1"},
            "cpu": {"arch": "x86_64", "model": "Xeon Gold 6230", "count": 40}, "ramMebibytes": 196_608,
            "nics": [{"name": "eno1", "mac": "00:5c:52:31:3a:9c", "ip": "10.0.0.6"}, {"name": "eno1", "mac": "00:5c:52:31:3a:9c", "ip": "fe80::1"}],
            "storage": [
                disk("/dev/sda", "0x5000c500a1b2c3d4", "ST4000NM0035", 4_000_787_030_016),
                disk("/dev/sdb", "0x5000c500a1b2c3d5", "ST4000NM0035", 4_000_787_030_016),
                disk("/dev/sdc", "0x5000c500a1b2c3d6", "ST4000NM0035", 4_000_787_030_016),
            ]}},
    });
    snapshot.add_hardware_data(serde_json::from_value(data).unwrap());
    let device = |name: &str, identity: &str, size: i64| json!({"name": name, "type": "disk", "size": size, "identity": identity, "state": "Available"});
    let inventory = json!({"metadata": {"name": "worker-1"}, "spec": {}, "status": {"devices": [
        device("sda", "wwn:5000c500a1b2c3d4", 4_000_787_030_016),
        device("sdb", "wwn:5000c500a1b2c3d5", 1_000_000_000_000),
        device("sdx", "wwn:5000c500ffffff01", 500_000_000_000),
        {"name": "sda1", "type": "part", "parent": "sda", "size": 1000, "identity": "part:1", "state": "NotAvailable"},
    ]}});
    snapshot.add_inventory(serde_json::from_value(inventory).unwrap());
    let node = json!({"metadata": {"name": "worker-1"}, "spec": {"providerID": "metal3://metal/rack-1/m1"}});
    snapshot.nodes.insert("worker-1".to_owned(), Arc::new(serde_json::from_value(node).unwrap()));
    snapshot
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:05:00Z"})
}

/// `raid-1` with software RAID on a node, `raid-2` with hardware RAID that is not as requested, `raid-3` with one that is.
pub fn raid_snapshot() -> Snapshot {
    let mut snapshot = Snapshot::new("quarry-system");
    let software = json!({"softwareRAIDVolumes": [
        {"level": "1", "sizeGibibytes": 50, "physicalDisks": [{"deviceName": "/dev/sda"}, {"serialNumber": "Z2"}]},
        {"level": "1+0"},
    ]});
    let mut status = at_rest("provisioned");
    status["provisioning"]["raid"] = software.clone();
    let conditions = status["conditions"].as_array_mut().unwrap();
    conditions.push(condition("quarry.dev/RAIDVerified", "True", "Matches", ""));
    conditions.push(condition(
        "quarry.dev/RAIDCurrent",
        "False",
        "ChangedWhileProvisioned",
        "spec.raid differs from what is on the host; deprovision the host to apply it",
    ));
    let mut used = host("raid-1", json!({"quarry.dev/retain-raid": ""}), status);
    used.spec.raid = serde_json::from_value(json!({"softwareVolumes": [{"level": 1}]})).unwrap();
    snapshot.add_host(used);
    let hardware = json!({"hardwareRAIDVolumes": [
        {"level": "1", "name": "root", "sizeGibibytes": 100, "numberOfPhysicalDisks": 2, "rotational": false},
        {"level": "5", "controller": "RAID.1", "physicalDisks": ["0", "1", "2"]},
    ]});
    let mut status = at_rest("preparing");
    status["operationalStatus"] = json!("error");
    status["errorType"] = json!("preparation error");
    status["errorMessage"] = json!("clean step raid.create_configuration failed: no free disk");
    status["errorCount"] = json!(1);
    status["provisioning"]["raid"] = hardware.clone();
    status["conditions"] =
        json!([condition("quarry.dev/RAIDVerified", "False", "Differs", "volume root is missing")]);
    let mut failed = host("raid-2", json!({}), status);
    failed.spec.raid = serde_json::from_value(hardware.clone()).unwrap();
    snapshot.add_host(failed);
    let mut status = at_rest("available");
    status["provisioning"]["raid"] = hardware.clone();
    let reported = "the BMC reports RAID 1 of 100 GiB (root); RAID 5 of 900 GiB";
    status["conditions"] =
        json!([condition("quarry.dev/RAIDVerified", "True", "Matches", reported)]);
    let mut built = host("raid-3", json!({}), status);
    built.spec.raid = serde_json::from_value(hardware).unwrap();
    snapshot.add_host(built);
    let disk = |name: &str, serial: &str| json!({"name": name, "serialNumber": serial, "model": "ST4000NM0035", "sizeBytes": 4_000_787_030_016_i64});
    let data = json!({
        "metadata": {"name": "raid-1", "namespace": "metal"},
        "spec": {"hardware": {"storage": [disk("/dev/sda", "Z1"), disk("/dev/sdb", "Z2"), disk("/dev/sdc", "Z3")]}},
    });
    snapshot.add_hardware_data(serde_json::from_value(data).unwrap());
    let whole = |name: &str, serial: &str| json!({"name": name, "type": "disk", "size": 4_000_787_030_016_i64, "serial": serial, "model": "ST4000NM0035", "state": "NotAvailable", "reasons": [{"reason": "HasChildren"}, {"reason": "PartitionTable", "detail": "gpt"}]});
    let part = |name: &str, parent: &str, array: &str| {
        json!({"name": name, "type": "part", "parent": parent, "size": 50_000_000_000_i64, "identity": format!("part:{name}"),
            "fsType": "linux_raid_member", "state": "NotAvailable",
            "reasons": [{"reason": "HasHolders", "detail": array}, {"reason": "Signature", "detail": "linux_raid_member"}]})
    };
    let inventory = json!({"metadata": {"name": "worker-7"}, "spec": {}, "status": {"devices": [
        {"name": "md126", "type": "raid10", "size": 3_900_000_000_000_i64, "identity": "md:2", "state": "Available"},
        {"name": "md127", "type": "raid1", "size": 53_000_000_000_i64, "identity": "md:1", "state": "NotAvailable",
            "reasons": [{"reason": "Mounted", "detail": "/"}]},
        whole("sda", "Z1"), part("sda1", "sda", "md127"), part("sda2", "sda", "md126"),
        whole("sdb", "Z2"), part("sdb1", "sdb", "md127"), part("sdb2", "sdb", "md126"),
        {"name": "sdc", "type": "disk", "size": 4_000_787_030_016_i64, "serial": "Z3", "model": "ST4000NM0035", "state": "Available"},
    ]}});
    snapshot.add_inventory(serde_json::from_value(inventory).unwrap());
    let node = json!({"metadata": {"name": "worker-7"}, "spec": {"providerID": "metal3://metal/raid-1/m1"}});
    snapshot.nodes.insert("worker-7".to_owned(), Arc::new(serde_json::from_value(node).unwrap()));
    snapshot
}
