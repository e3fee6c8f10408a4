//! Tests: the request of every call, and its text without credentials.

use super::*;
use crate::raid::{LogicalDisk, SizeGb};

fn every_call() -> Vec<Call> {
    let id = || "u".to_owned();
    let mut driver_info = Guarded::default();
    driver_info.insert("redfish_address", "http://192.0.2.1");
    driver_info.insert("redfish_password", "hunter22");
    let node = NewNode {
        name: Some("ns~a".to_owned()),
        driver: "redfish".to_owned(),
        driver_info: driver_info.clone(),
        instance_info: Guarded::from_iter([("configdrive".to_owned(), "hunter22".into())]),
        ..NewNode::default()
    };
    let ops = vec![
        PatchOp::add("/driver_info/redfish_password", "hunter22"),
        PatchOp::add("/driver_info", Value::Object(driver_info.0)),
        PatchOp::Replace { path: "/instance_info".to_owned(), value: "hunter22".into() },
        PatchOp::add("/extra/a_token", json!(["hunter22"])),
        PatchOp::remove("/instance_uuid"),
    ];
    let parts = Guarded::from_iter([("user_data".to_owned(), "hunter22".into())]);
    let port = NewPort { node_uuid: id(), address: "00:11:22:33:44:55".into(), pxe_enabled: true };
    let provision = |target| Call::SetProvisionState { id: id(), target };
    let steps = vec![CleanStep::new("raid", "delete_configuration")];
    vec![
        Call::CreateNode(Box::new(node)),
        Call::DeleteNode { id: id() },
        Call::PatchNode { id: id(), ops },
        Call::CreatePort(port),
        Call::DeletePort { id: id() },
        provision(ProvisionTarget::Manage),
        provision(ProvisionTarget::Provide),
        provision(ProvisionTarget::Inspect),
        provision(ProvisionTarget::Clean { steps }),
        provision(ProvisionTarget::Active { configdrive: None }),
        provision(ProvisionTarget::Active { configdrive: Some(ConfigDrive::Parts(parts)) }),
        provision(ProvisionTarget::Active {
            configdrive: Some(ConfigDrive::Text(Secret::new("hunter22"))),
        }),
        provision(ProvisionTarget::Deleted),
        provision(ProvisionTarget::Abort),
        provision(ProvisionTarget::Adopt),
        Call::SetPower { id: id(), target: PowerTarget::On },
        Call::SetPower { id: id(), target: PowerTarget::Off },
        Call::SetPower { id: id(), target: PowerTarget::Reboot },
        Call::SetPower { id: id(), target: PowerTarget::SoftOff { timeout: Some(180) } },
        Call::SetPower { id: id(), target: PowerTarget::SoftReboot { timeout: Some(0) } },
        Call::SetRaid {
            id: id(),
            config: RaidConfig { logical_disks: vec![LogicalDisk::new("1", SizeGb::Gib(50))] },
        },
        Call::SetMaintenance { id: id(), reason: "repair".to_owned() },
        Call::ClearMaintenance { id: id() },
    ]
}

#[test]
fn no_call_prints_a_credential() {
    for call in every_call() {
        let request = call.request().unwrap();
        let shown = format!("{call} {call:?} {call:#?} {request:?}");
        assert!(!shown.contains("hunter22"), "{shown}");
    }
}

#[test]
fn requests_contain_the_credentials() {
    let calls = every_call();
    let body = calls[0].request().unwrap().body.unwrap();
    assert_eq!(body["driver_info"]["redfish_password"], "hunter22");
    let body = calls[2].request().unwrap().body.unwrap();
    assert_eq!(
        body[0],
        json!({"op": "add", "path": "/driver_info/redfish_password", "value": "hunter22"})
    );
    assert_eq!(body[4], json!({"op": "remove", "path": "/instance_uuid"}));
}

#[test]
fn every_call_has_its_request() {
    let shown: Vec<String> = every_call()
        .iter()
        .map(|call| {
            let request = call.request().unwrap();
            let body = request.body.map(|body| crate::secret::redacted(&body).to_string());
            let body =
                body.filter(|_| !matches!(call, Call::CreateNode(_) | Call::PatchNode { .. }));
            let body = body.unwrap_or_default();
            format!("{call}: {} {} {body}", request.method.as_str(), request.path)
        })
        .collect();
    let expected = [
        "create node ns~a with driver redfish: POST /v1/nodes ",
        "delete node u: DELETE /v1/nodes/u ",
        "update /driver_info/redfish_password, /driver_info, /instance_info, /extra/a_token, /instance_uuid of node u: PATCH /v1/nodes/u ",
        r#"create port 00:11:22:33:44:55 of node u: POST /v1/ports {"address":"00:11:22:33:44:55","node_uuid":"u","pxe_enabled":true}"#,
        "delete port u: DELETE /v1/ports/u ",
        r#"request manage of node u: PUT /v1/nodes/u/states/provision {"target":"manage"}"#,
        r#"request provide of node u: PUT /v1/nodes/u/states/provision {"target":"provide"}"#,
        r#"request inspect of node u: PUT /v1/nodes/u/states/provision {"target":"inspect"}"#,
        r#"clean node u with raid.delete_configuration: PUT /v1/nodes/u/states/provision {"clean_steps":[{"interface":"raid","step":"delete_configuration"}],"target":"clean"}"#,
        r#"request active of node u: PUT /v1/nodes/u/states/provision {"target":"active"}"#,
        r#"request active of node u: PUT /v1/nodes/u/states/provision {"configdrive":{"user_data":"******"},"target":"active"}"#,
        r#"request active of node u: PUT /v1/nodes/u/states/provision {"configdrive":"******","target":"active"}"#,
        r#"request deleted of node u: PUT /v1/nodes/u/states/provision {"target":"deleted"}"#,
        r#"request abort of node u: PUT /v1/nodes/u/states/provision {"target":"abort"}"#,
        r#"request adopt of node u: PUT /v1/nodes/u/states/provision {"target":"adopt"}"#,
        r#"request power on of node u: PUT /v1/nodes/u/states/power {"target":"power on"}"#,
        r#"request power off of node u: PUT /v1/nodes/u/states/power {"target":"power off"}"#,
        r#"request rebooting of node u: PUT /v1/nodes/u/states/power {"target":"rebooting"}"#,
        r#"request soft power off of node u: PUT /v1/nodes/u/states/power {"target":"soft power off","timeout":180}"#,
        r#"request soft rebooting of node u: PUT /v1/nodes/u/states/power {"target":"soft rebooting","timeout":1}"#,
        r#"set 1 RAID volumes for node u: PUT /v1/nodes/u/states/raid {"logical_disks":[{"raid_level":"1","size_gb":50}]}"#,
        r#"set maintenance of node u: PUT /v1/nodes/u/maintenance {"reason":"repair"}"#,
        "clear maintenance of node u: DELETE /v1/nodes/u/maintenance ",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn an_identifier_stays_one_part_of_the_path() {
    let call = Call::DeleteNode { id: "a/../b?x".to_owned() };
    assert_eq!(call.request().unwrap().path, "/v1/nodes/a%2F..%2Fb%3Fx");
}

/// Values that are no credentials are shown: a log without them explains nothing.
#[test]
fn debug_shows_harmless_values() {
    let op = PatchOp::add("/driver_info/deploy_iso", "http://192.0.2.1/ipa.iso");
    assert!(format!("{op:?}").contains("ipa.iso"), "{op:?}");
    let op = PatchOp::add("/automated_clean", false);
    assert_eq!(format!("{op:?}"), "add /automated_clean = false");
}
