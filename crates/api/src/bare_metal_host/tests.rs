//! Schema, round trips and strings of BareMetalHost and HardwareData.

use super::{fields::UNUSED, fields::USED, *};
use crate::{HardwareData, crds, names};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

fn crd(kind: &str) -> Value {
    let found = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(found).unwrap()
}

fn schema(kind: &str) -> Value {
    crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn spec_field(path: &str) -> Value {
    schema("BareMetalHost").pointer(path).cloned().unwrap_or_default()
}

#[test]
fn every_field_of_the_spec_is_used_or_warned_about() {
    let schema = schema("BareMetalHost");
    let properties = schema["properties"]["spec"]["properties"].as_object().unwrap();
    for name in properties.keys() {
        let unused = UNUSED.iter().any(|unused| unused.field == format!("spec.{name}"));
        assert!(unused != USED.contains(&name.as_str()), "state whether spec.{name} is used");
    }
    assert_eq!(properties.len(), 23);
    for name in USED {
        assert!(properties.contains_key(*name), "{name}");
    }
}

#[test]
fn clusterctl_finds_both_kinds() {
    for (kind, hierarchy) in [("BareMetalHost", true), ("HardwareData", false)] {
        let labels = &crd(kind)["metadata"]["labels"];
        assert_eq!(labels[names::CLUSTERCTL_LABEL], "");
        assert_eq!(labels[names::CLUSTERCTL_MOVE_LABEL], "");
        assert_eq!(labels[names::CLUSTERCTL_MOVE_HIERARCHY_LABEL] == "", hierarchy, "{kind}");
    }
    assert_eq!(crd("HardwareData")["spec"]["names"]["singular"], "hardwaredata");
}

#[test]
fn schema_has_upstream_bounds_and_defaults() {
    let volumes = "/properties/spec/properties/raid/properties/hardwareRAIDVolumes";
    let level = spec_field(&format!("{volumes}/items/properties/level"));
    assert_eq!(level["enum"], json!(["0", "1", "2", "5", "6", "1+0", "5+0", "6+0", 0, 1, 2, 5, 6]));
    assert_eq!(spec_field(&format!("{volumes}/items/properties/name"))["maxLength"], 64);
    assert_eq!(spec_field(&format!("{volumes}/items"))["required"], json!(["level"]));
    assert_eq!(spec_field("/properties/spec")["required"], json!(["online"]));
    assert_eq!(
        spec_field("/properties/spec/properties/automatedCleaningMode")["default"],
        "metadata"
    );
    let errors = spec_field("/properties/status/properties/errorType/enum");
    assert_eq!(errors, json!(ErrorType::ALL));
    assert!(
        spec_field("/properties/status/properties/provisioning/properties/state/enum").is_null()
    );
    assert_eq!(
        spec_field("/properties/status")["required"],
        json!([
            "errorCount",
            "errorMessage",
            "operationalStatus",
            "poweredOn",
            "provisioning",
            "provisioningFailCount"
        ])
    );
    assert!(spec_field("/required").is_null(), "an object without a spec is accepted, as upstream");
}

/// Null is a value of its own in the lists of RAID volumes and the times of operations, and nowhere else.
#[test]
fn only_upstream_nullable_fields_are_nullable() {
    fn walk(schema: &Value, path: &str, found: &mut Vec<String>) {
        if schema["nullable"] == true {
            found.push(path.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(property, &format!("{path}.{name}"), found);
        }
        if schema["items"].is_object() {
            walk(&schema["items"], &format!("{path}[]"), found);
        }
    }
    let mut found = Vec::new();
    walk(&schema("BareMetalHost"), "", &mut found);
    let (raid, times): (Vec<_>, Vec<_>) = found.iter().partition(|path| path.contains(".raid."));
    assert_eq!(
        raid,
        [
            ".spec.raid.hardwareRAIDVolumes",
            ".spec.raid.hardwareVolumes",
            ".spec.raid.softwareRAIDVolumes",
            ".spec.raid.softwareVolumes",
            ".status.provisioning.raid.hardwareRAIDVolumes",
            ".status.provisioning.raid.softwareRAIDVolumes",
        ]
    );
    assert_eq!(times.len(), 8, "{times:?}");
    assert!(times.iter().all(|path| path.starts_with(".status.operationHistory.")), "{times:?}");
}

#[test]
fn absent_null_and_empty_raid_lists_stay_apart() {
    let read = |text: &str| serde_json::from_str::<RaidSpec>(text).unwrap();
    for (text, requested) in [
        ("{}", None),
        (r#"{"hardwareRAIDVolumes":null}"#, None),
        (r#"{"hardwareRAIDVolumes":[]}"#, Some(0)),
        (r#"{"hardwareRAIDVolumes":[{"level":"1"}]}"#, Some(1)),
    ] {
        let raid = read(text);
        assert_eq!(raid.config().hardware_raid_volumes.requested().map(<[_]>::len), requested);
        assert_eq!(serde_json::to_string(&raid).unwrap(), text);
        assert_eq!(serde_json::to_string(&raid.config()).unwrap(), text);
    }
}

#[test]
fn upstream_spelling_of_raid_wins() {
    let hardware = |text: &str| {
        let raid: RaidSpec = serde_json::from_str(text).unwrap();
        let volumes = raid.config().hardware_raid_volumes;
        volumes.requested().map(|all| all.iter().map(|one| one.level.to_string()).collect())
    };
    let both = r#"{"hardwareRAIDVolumes":[{"level":"5"}],"hardwareVolumes":[{"level":1}]}"#;
    assert_eq!(hardware(both), Some(vec!["5".to_owned()]));
    let erased = r#"{"hardwareRAIDVolumes":[],"hardwareVolumes":[{"level":1}]}"#;
    assert_eq!(hardware(erased), Some(vec![]));
    let null = r#"{"hardwareRAIDVolumes":null,"hardwareVolumes":[{"level":1}]}"#;
    assert_eq!(hardware(null), Some(vec!["1".to_owned()]));
    assert_eq!(hardware(r#"{"hardwareVolumes":[{"level":10}]}"#), Some(vec!["10".to_owned()]));
    assert_eq!(hardware(r#"{"hardwareVolumes":null}"#), None);
}

/// A Go program that reads the status finds every field that it requires, with the types of its schema.
#[test]
fn empty_status_has_every_required_field() {
    let written = serde_json::to_value(BareMetalHostStatus::default()).unwrap();
    assert_eq!(
        written,
        json!({
            "operationalStatus": "",
            "provisioning": {"state": "", "ID": "", "image": {"url": ""}},
            "goodCredentials": {},
            "triedCredentials": {},
            "errorMessage": "",
            "poweredOn": false,
            "operationHistory": {
                "register": {"start": null, "end": null},
                "inspect": {"start": null, "end": null},
                "provision": {"start": null, "end": null},
                "deprovision": {"start": null, "end": null},
            },
            "errorCount": 0,
            "provisioningFailCount": 0,
        })
    );
}

/// As upstream's controller writes it, and as an annotation of an older version has it.
#[test]
fn upstream_status_survives_a_round_trip() {
    let status = json!({
        "operationalStatus": "error",
        "errorType": "detach error",
        "lastUpdated": "2026-05-01T10:00:00Z",
        "hardwareProfile": "unknown",
        "provisioning": {
            "state": "available", "ID": "6a3f", "image": {"url": ""}, "bootMode": "UEFI",
            "rootDeviceHints": {"deviceName": "/dev/sda"},
            "raid": {"hardwareRAIDVolumes": null, "softwareRAIDVolumes": []},
        },
        "goodCredentials": {"credentials": {"name": "s", "namespace": "n"}, "credentialsVersion": "7"},
        "triedCredentials": {"credentials": {"name": "s", "namespace": "n"}, "credentialsVersion": "7"},
        "errorMessage": "unreachable",
        "poweredOn": true,
        "operationHistory": {
            "register": {"start": "2026-05-01T09:00:00Z", "end": "2026-05-01T09:01:00Z"},
            "inspect": {"start": "2026-05-01T09:01:00Z", "end": null},
            "provision": {"start": null, "end": null},
            "deprovision": {"start": null, "end": null},
        },
        "errorCount": 2,
        "provisioningFailCount": 0,
        "conditions": [{"type": "Ready", "status": "False", "reason": "Error", "message": "", "lastTransitionTime": "2026-05-01T10:00:00Z"}],
    });
    let read: BareMetalHostStatus = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(read.error_type, Some(ErrorType::Detach));
    assert_eq!(serde_json::to_value(&read).unwrap(), status);
    let partial: BareMetalHostStatus =
        serde_json::from_value(json!({"provisioning": {"state": "ready"}, "errorType": ""}))
            .unwrap();
    assert_eq!(partial.provisioning.state, ProvisioningState::Ready);
    assert_eq!(partial.error_type, None);
}

#[test]
fn a_value_of_a_newer_version_is_kept() {
    let host: BareMetalHost = serde_json::from_value(json!({
        "metadata": {"name": "h"},
        "spec": {"online": true, "bootMode": "quantum"},
        "status": {"operationalStatus": "resting", "provisioning": {"state": "servicing", "ID": ""}, "errorMessage": "", "errorCount": 0, "poweredOn": false},
    }))
    .unwrap();
    assert_eq!(host.state(), ProvisioningState::Other("servicing".into()));
    let written = serde_json::to_value(&host).unwrap();
    assert_eq!(written["status"]["operationalStatus"], "resting");
    assert_eq!(written["spec"]["bootMode"], "quantum");
}

#[test]
fn every_known_word_is_read_as_its_variant() {
    for text in ProvisioningState::ALL {
        let state = ProvisioningState::from(*text);
        assert!(!matches!(state, ProvisioningState::Other(_)), "{text}");
        assert_eq!(state.as_str(), *text);
    }
    assert_eq!(ProvisioningState::ALL.len(), 14);
}

#[test]
fn empty_bmc_details_are_none() {
    let host = |bmc: Value| -> BareMetalHost {
        serde_json::from_value(json!({"metadata": {}, "spec": {"online": false, "bmc": bmc}}))
            .unwrap()
    };
    assert!(host(json!({"address": "", "credentialsName": ""})).bmc().is_none());
    assert!(host(json!(null)).bmc().is_none());
    assert!(host(json!({"address": "redfish://h/1", "credentialsName": ""})).bmc().is_some());
}

#[test]
fn credentials_match_one_version_of_one_secret() {
    let secret: Secret = serde_json::from_value(
        json!({"metadata": {"name": "s", "namespace": "n", "resourceVersion": "7"}}),
    )
    .unwrap();
    let recorded = CredentialsStatus::of(&secret);
    assert!(recorded.matches(&secret));
    let mut changed = secret.clone();
    changed.metadata.resource_version = Some("8".into());
    assert!(!recorded.matches(&changed));
    assert!(!CredentialsStatus::default().matches(&Secret::default()));
}

#[test]
fn annotations_are_parsed_as_upstream() {
    let reboot = RebootArguments::parse(r#"{"mode":"hard","force":true}"#).unwrap();
    assert_eq!(reboot, RebootArguments { mode: RebootMode::Hard, force: true });
    assert_eq!(RebootArguments::parse("").unwrap(), RebootArguments::default());
    assert!(RebootArguments::parse("hard").is_err());
    let detached = DetachedArguments::parse(r#"{"deleteAction":"delay"}"#).unwrap();
    assert_eq!(detached.delete_action, DetachedDeleteAction::Delay);
    assert!(DetachedArguments::parse("metal3.io/capm3").is_err());
}

/// Nothing that inspection of upstream writes is lost or added.
#[test]
fn hardware_survives_a_round_trip() {
    let hardware = json!({
        "systemVendor": {"manufacturer": "Example", "productName": "Box", "serialNumber": "S1"},
        "firmware": {"bios": {"date": "04/01/2014", "vendor": "SeaBIOS", "version": "1.15"}},
        "ramMebibytes": 4096,
        "nics": [{
            "name": "eno1", "model": "0x8086 0x1572", "mac": "00:11:22:33:44:55", "ip": "192.0.2.7", "speedGbps": 10,
            "vlans": [{"id": 7, "name": "storage"}], "vlanId": 4094, "pxe": true, "pciAddress": "0000:01:00.0",
            "lldp": {"switchID": "aa", "portID": "bb", "switchSystemName": "cc"},
        }],
        "storage": [{
            "name": "/dev/disk/by-path/pci-0000:01:00.0-scsi-0:2:0:0", "alternateNames": ["/dev/sda"], "rotational": true,
            "type": "HDD", "sizeBytes": 4_000_787_030_016_i64, "vendor": "ATA", "model": "M", "serialNumber": "X",
            "wwn": "0x1", "wwnVendorExtension": "0x2", "wwnWithExtension": "0x12", "hctl": "0:2:0:0",
        }],
        "cpu": {"arch": "x86_64", "model": "CPU", "clockMegahertz": 2494.224, "flags": ["aes"], "count": 4},
        "hostname": "node-1",
    });
    let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": {"name": "h"}, "spec": {"hardware": hardware}});
    let read: HardwareData = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), object);
}
