//! Tests: nothing that prints or records shows a credential.

use super::*;
use serde_json::json;

#[test]
fn guarded_values_are_shown_by_allow_list() {
    let info = json!({
        "redfish_address": "https://admin:hunter22@192.0.2.1",
        "redfish_username": "admin",
        "redfish_password": "hunter22",
        "snmp_priv_key": "hunter22",
        "some_new_thing": "hunter22",
        "nested": {"redfish_address": "hunter22"},
        "redfish_verify_ca": false,
        "ipmi_port": 623,
    });
    let guarded: Guarded = serde_json::from_value(info.clone()).unwrap();
    let shown = format!("{guarded:?} {guarded:#?}");
    assert!(!shown.contains("hunter22"), "{shown}");
    assert!(shown.contains("192.0.2.1") && shown.contains("623") && shown.contains("false"));
    assert!(shown.contains("some_new_thing"), "keys are shown: {shown}");
    assert_eq!(serde_json::to_value(&guarded).unwrap(), info, "the request is complete");
}

#[test]
fn a_secret_is_hidden_when_printed() {
    let secret = Secret::new("hunter22");
    assert_eq!(format!("{secret} {secret:?}"), "****** ******");
    assert_eq!(secret.reveal(), "hunter22");
}

#[test]
fn secrets_of_a_request_are_found() {
    let body = json!({"driver_info": {"redfish_password": "a-long-one", "ipmi_hex_kg_key": "x1"},
        "configdrive": {"user_data": "cloud", "meta_data": {"name": "host"}}, "name": "ns~a"});
    assert_eq!(secrets_of(&body), ["a-long-one", "cloud", "host", "x1"]);
    let patch = json!([
        {"op": "add", "path": "/driver_info/redfish_password", "value": "hunter22"},
        {"op": "add", "path": "/extra/a", "value": "plain"},
        {"op": "add", "path": "/driver_info", "value": {"ipmi_password": "second"}},
    ]);
    assert_eq!(secrets_of(&patch), ["hunter22", "second"]);
}

#[test]
fn json_is_redacted_by_key_and_by_patched_path() {
    let patch = json!([
        {"op": "add", "path": "/driver_info/redfish_password", "value": "hunter22"},
        {"op": "add", "path": "/extra/a", "value": "http://u:hunter22@h/x"},
    ]);
    let shown = redacted(&patch);
    assert_eq!(shown[0]["value"], HIDDEN);
    assert_eq!(shown[1]["value"], "http://******@h/x");
    let node = json!({"driver_info": {"token": null, "passwords": ["hunter22", {"a": 5}]}});
    let expected = json!({"driver_info": {"token": null, "passwords": [HIDDEN, {"a": HIDDEN}]}});
    assert_eq!(redacted(&node), expected);
}

#[test]
fn text_loses_values_userinfo_and_assignments() {
    let clean = |text: &str, secrets: &[&str]| {
        let secrets: Vec<String> = secrets.iter().map(|one| (*one).to_owned()).collect();
        without_credentials(text, &secrets)
    };
    assert_eq!(clean("bad value 'hunter22'", &["hunter22"]), "bad value '******'");
    assert_eq!(clean("a cat sat: a", &["a"]), "****** cat sat: ******", "whole words only");
    assert_eq!(clean("ftp://u:p@h and http://h2/x@y", &[]), "ftp://******@h and http://h2/x@y");
    assert_eq!(clean("password=abc, next", &[]), "password=******, next");
    assert_eq!(clean("{'redfish_password': 'ab c'}", &[]), "{'redfish_password': '******'}");
    let plain = "Incorrect username or password";
    assert_eq!(clean(plain, &[]), plain);
    assert_eq!(clean("übergroße Passwörter; token: é", &[]), "übergroße Passwörter; token: ******");
}
