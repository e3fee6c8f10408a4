//! Tests: nodes as a real Ironic returns them, and with fields missing, null or unknown.

use super::*;
use serde_json::json;

#[test]
fn a_node_of_a_real_ironic_is_read() {
    let node: Node = serde_json::from_value(json!({
        "uuid": "1be26c0b-03f2-4d2e-ae87-c02d7f33c123", "name": "ns~a", "driver": "redfish",
        "driver_info": {"redfish_address": "http://127.0.0.1:18000", "redfish_password": "******"},
        "provision_state": "inspect wait", "target_provision_state": "manageable",
        "power_state": "power on", "target_power_state": null, "last_error": null,
        "maintenance": false, "maintenance_reason": null, "fault": null,
        "properties": {"memory_mb": 65536, "capabilities": "boot_mode:uefi"}, "extra": {},
        "instance_uuid": null, "instance_info": {}, "raid_config": {},
        "target_raid_config": {"logical_disks": [{"size_gb": 50, "raid_level": "1"}]},
        "raid_interface": "redfish", "inspect_interface": "agent", "automated_clean": null,
        "disable_power_off": false, "clean_step": {}, "reservation": "lab",
        "inspection_started_at": "2026-11-17T23:03:07.817779+00:00",
        "inspection_finished_at": null, "links": [{"href": "x", "rel": "self"}],
    }))
    .unwrap();
    assert_eq!(node.provision_state, ProvisionState::InspectWait);
    assert_eq!(node.target_provision_state, Some(ProvisionState::Manageable));
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!(node.inspection_started_at, "2026-11-17T23:03:07.817779Z".parse().ok());
    assert_eq!(node.target_raid().unwrap().logical_disks.len(), 1);
    assert_eq!(node.raid().unwrap(), RaidConfig::default());
    assert_eq!(node.automated_clean, None);
}

#[test]
fn only_the_uuid_is_required() {
    let sparse: Node = serde_json::from_value(json!({"uuid": "u"})).unwrap();
    assert_eq!(sparse.provision_state, ProvisionState::Unknown(String::new()));
    let nulls: Node = serde_json::from_value(json!({"uuid": "u", "driver": null,
        "driver_info": null, "maintenance": null, "properties": null, "raid_config": null}))
    .unwrap();
    assert_eq!(nulls, sparse);
    assert!(serde_json::from_value::<Node>(json!({"name": "n"})).is_err());
}

/// A field that is read and not requested would silently stay at its default.
#[test]
fn every_field_is_requested() {
    let node: Node = serde_json::from_value(json!({"uuid": "u"})).unwrap();
    let value = serde_json::to_value(node).unwrap();
    let fields = Node::fields(Microversion::new(1, 109));
    let mut requested: Vec<&str> = fields.split(',').collect();
    let mut read: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    requested.sort_unstable();
    read.sort_unstable();
    assert_eq!(requested, read);
    assert!(!Node::fields(Microversion::new(1, 94)).contains("disable_power_off"));
}

#[test]
fn debug_of_a_node_hides_credentials() {
    let node: Node = serde_json::from_value(json!({"uuid": "u",
        "driver_info": {"ipmi_password": "hunter22"}, "instance_info": {"configdrive": "hunter22"}}))
    .unwrap();
    assert!(!format!("{node:?}").contains("hunter22"));
}

#[test]
fn validation_reports_the_first_unusable_interface() {
    let validation: Validation = serde_json::from_value(json!({
        "boot": {"result": true}, "deploy": {"result": false, "reason": "no image"},
        "bios": {"result": null},
    }))
    .unwrap();
    assert_eq!(validation.failure(&["boot"]), None);
    assert_eq!(validation.failure(&["boot", "deploy"]).as_deref(), Some("deploy: no image"));
    assert!(validation.failure(&["bios"]).is_some());
    assert_eq!(validation.failure(&["power"]).as_deref(), Some("power: not reported"));
}
