//! Hosts made by hand; each file tests the module of its name. `model.rs` is an Ironic small enough to reason about,
//! `convergence.rs` drives it with faults, `table.rs` lists what is planned in every state.

mod annotations;
mod check;
mod convergence;
mod delete;
mod driver;
mod hardware;
mod hardware_data;
mod inspect;
mod model;
mod plan;
mod port;
mod power;
mod provision;
mod raid;
mod raid_rules;
mod raid_world;
mod register;
mod restore;
mod secret;
mod status;
mod table;

use super::*;
use jiff::Timestamp;
use quarry_ironic::Error;
use serde_json::{Value, json};

const UID: &str = "11111111-2222-3333-4444-555555555555";
const NODE: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const MAC: &str = "52:54:00:1a:b0:01";
const PASSWORD: &str = "correct-horse-battery";

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// A host that holds its finalizer, in no state yet.
fn host(extra: Value) -> BareMetalHost {
    let mut object = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {
            "name": "h1", "namespace": "ns", "uid": UID, "resourceVersion": "5", "generation": 1,
            "finalizers": [names::HOST_FINALIZER],
        },
        "spec": {
            "online": true, "bootMACAddress": MAC, "architecture": "x86_64",
            "bmc": {"address": "redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/1", "credentialsName": "bmc"},
        },
    });
    merge(&mut object, &extra);
    serde_json::from_value(object).unwrap()
}

/// A host in a state, registered with the good credentials of `secret()`.
fn host_in(state: &str, extra: Value) -> BareMetalHost {
    let credentials =
        json!({"credentials": {"name": "bmc", "namespace": "ns"}, "credentialsVersion": "7"});
    let mut object = json!({"status": {
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
        "lastUpdated": "2025-12-31T23:00:00Z",
        "provisioning": {"state": state, "ID": NODE, "bootMode": "UEFI", "image": {"url": ""}},
        "goodCredentials": credentials, "triedCredentials": credentials,
    }});
    merge(&mut object, &extra);
    host(object)
}

/// What such a host is when nothing happens any more.
fn rested(state: &str, extra: Value) -> BareMetalHost {
    let host = host_in(state, extra);
    let mut seen = with_hardware(observed(host, Some(node(json!({})))), 1);
    if let Some(status) = plan(&seen, now()).status {
        seen.host.status = Some(*status);
    }
    // What a test gives it, or not, is its own.
    if let Some(status) = &mut seen.host.status {
        status.hardware = None;
    }
    seen.host
}

fn annotate(host: &mut BareMetalHost, name: &str, value: &str) {
    host.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

fn mark_deleted(host: &mut BareMetalHost) {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    host.metadata.deletion_timestamp = Some(Time(now()));
}

fn image() -> quarry_api::bare_metal_host::Image {
    let image = json!({"url": "http://files/image.qcow2", "checksum": "0123", "checksumType": "sha256", "format": "qcow2"});
    serde_json::from_value(image).unwrap()
}

/// Deployed, or about to be.
fn give_image(host: &mut BareMetalHost) {
    host.spec.image = Some(image());
    host.status.get_or_insert_default().provisioning.image = image();
}

fn request_raid(host: &mut BareMetalHost, raid: Value) {
    host.spec.raid = serde_json::from_value(raid).unwrap();
}

/// Claimed by the host.
fn secret(extra: Value) -> Secret {
    let (key, value) = names::HOST_SECRET_LABEL;
    let mut object = json!({
        "metadata": {
            "name": "bmc", "namespace": "ns", "resourceVersion": "7", "labels": {key: value},
            "finalizers": [names::HOST_SECRET_FINALIZER],
            "ownerReferences": [{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "h1", "uid": UID}],
        },
        "data": {"username": base64("admin"), "password": base64(PASSWORD)},
    });
    merge(&mut object, &extra);
    serde_json::from_value(object).unwrap()
}

fn base64(text: &str) -> Value {
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).unwrap()
}

fn settings() -> HostSettings {
    HostSettings {
        deploy_iso: Some("http://files/ramdisk.iso".to_owned()),
        ..HostSettings::default()
    }
}

/// As the spec of `host()` asks: manageable, verified, on, never inspected.
fn node(extra: Value) -> Node {
    let mut object = json!({
        "uuid": NODE, "name": "ns~h1", "driver": "redfish", "provision_state": "manageable", "power_state": "power on",
        "boot_interface": "redfish-virtual-media", "automated_clean": true, "disable_power_off": false,
        "properties": {"capabilities": "boot_mode:uefi"},
        "driver_info": {
            "deploy_iso": "http://files/ramdisk.iso", "redfish_address": "https://10.0.0.1",
            "redfish_system_id": "/redfish/v1/Systems/1", "redfish_username": "admin", "redfish_password": "******",
        },
    });
    merge(&mut object, &extra);
    serde_json::from_value(object).unwrap()
}

fn inventory(disks: usize) -> Inventory {
    let disk = |number: usize| {
        let wwn = format!("0x5000c500{number:08x}");
        json!({
            "name": format!("/dev/dm-{number}"), "model": "LAB-SSD", "vendor": "ACME", "serial": format!("S-{number:05}"),
            "size": 500_u64 << 30, "rotational": false, "wwn": wwn, "wwn_with_extension": wwn,
        })
    };
    serde_json::from_value(json!({
        "disks": (0..disks).map(disk).collect::<Vec<_>>(),
        "cpu": {"architecture": "x86_64", "count": 16, "model_name": "Lab CPU", "frequency": "2400.0"},
        "memory": {"physical_mb": 65536}, "hostname": "h1",
        "interfaces": [{"name": "eno1", "mac_address": MAC, "ipv4_address": "192.0.2.11"}],
    }))
    .unwrap()
}

fn hardware_of(disks: usize) -> quarry_api::bare_metal_host::HardwareDetails {
    super::hardware::details(&inventory(disks))
}

/// Claimed by the host.
fn data_of(host: &BareMetalHost, disks: usize) -> HardwareData {
    super::hardware_data::build(host, hardware_of(disks))
}

fn observed(host: BareMetalHost, node: Option<Node>) -> Observed {
    let seen = IronicNode { node, ports: Some(vec![port(MAC)]), ..IronicNode::default() };
    Observed {
        host,
        hardware_data: None,
        secret: Some(secret(json!({}))),
        secret_is_shared: false,
        user_data: None,
        arrays: None,
        former_secrets: Vec::new(),
        ironic: IronicView::Seen(Box::new(seen)),
        settings: settings(),
    }
}

fn with_hardware(mut seen: Observed, disks: usize) -> Observed {
    seen.hardware_data = Some(data_of(&seen.host, disks));
    if let Some(status) = &mut seen.host.status {
        status.hardware = Some(hardware_of(disks));
    }
    seen
}

fn ironic_mut(seen: &mut Observed) -> &mut IronicNode {
    match &mut seen.ironic {
        IronicView::Seen(seen) => seen,
        IronicView::NotAsked | IronicView::Failed(_) => panic!("Ironic was not asked"),
    }
}

fn port(address: &str) -> Port {
    serde_json::from_value(
        json!({"uuid": "p1", "address": address, "node_uuid": NODE, "pxe_enabled": true}),
    )
    .unwrap()
}

fn error(meaning: quarry_ironic::Meaning) -> Error {
    Error { attempt: "request manage of node".to_owned(), meaning, message: "no".to_owned() }
}

/// The plan, which must be a permitted one.
#[track_caller]
fn planned(seen: &Observed) -> Plan {
    planned_at(seen, now())
}

#[track_caller]
fn planned_at(seen: &Observed, now: Timestamp) -> Plan {
    let plan = plan(seen, now);
    assert_eq!(super::check::check(seen, &plan), [], "{plan:?}");
    plan
}

fn status(plan: &Plan) -> &BareMetalHostStatus {
    plan.status.as_deref().expect("the status changes")
}

fn call(plan: &Plan) -> String {
    plan.call.as_ref().map_or_else(String::new, ToString::to_string)
}

fn steps(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().chain(&plan.after).map(Step::name).collect()
}

fn condition<'a>(
    status: &'a BareMetalHostStatus,
    kind: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    status.conditions.iter().find(|one| one.type_ == kind)
}
