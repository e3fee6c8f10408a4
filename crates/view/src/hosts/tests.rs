use super::{
    actions::{Action, refusal},
    explain::{SeenBy, explain},
    samples::{at_rest, host, raid_snapshot, snapshot},
    *,
};
use crate::Snapshot;
use serde_json::json;

fn rival() -> Rival {
    Rival { namespace: "bmo".into(), lease: "baremetal-operator".into(), holder: "pod-1".into() }
}

#[test]
fn rows_have_state_node_disks_and_the_first_line_of_an_error() {
    let rows = list(&snapshot(), Some("metal"), None);
    let texts: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} {} {:?} on={:?} node={:?} disks={:?} {:?} {:?}",
                row.name,
                row.state,
                row.status,
                row.powered_on,
                row.node,
                row.disks,
                row.error,
                row.tone
            )
        })
        .collect();
    insta::assert_snapshot!(texts.join("\n"));
    assert!(list(&snapshot(), Some("other"), None).is_empty());
}

#[test]
fn another_operator_is_in_every_row_and_explanation() {
    let rows = list(&snapshot(), None, Some(&rival()));
    assert!(rows.iter().all(|row| {
        row.other_operator.as_deref()
            == Some("baremetal-operator (pod-1) renews Lease bmo/baremetal-operator")
    }));
    let explained = explain(&snapshot(), "metal", "rack-1", Some(&rival()), &[]).unwrap();
    assert!(explained.waits_for.unwrap().starts_with("another operator to stop: "));
    assert!(explained.remedies[0].text.contains("in namespace bmo to 0 replicas"));
}

#[test]
fn credentials_in_an_address_are_not_shown() {
    for (address, shown) in [
        (
            "redfish://root:pw@10.0.0.5/redfish/v1/Systems/1",
            "redfish://10.0.0.5/redfish/v1/Systems/1",
        ),
        ("ipmi://[fe80::1]:6230", "ipmi://[fe80::1]:6230"),
        ("root@bmc", "bmc"),
        ("redfish://h/a@b", "redfish://h/a@b"),
    ] {
        assert_eq!(without_credentials(address), shown);
    }
}

#[test]
fn disks_of_both_sides_are_compared() {
    let explained = explain(&snapshot(), "metal", "rack-1", None, &[]).unwrap();
    assert_eq!(explained.node.name.as_deref(), Some("worker-1"));
    let disks: Vec<_> = explained
        .disks
        .iter()
        .map(|disk| (disk.seen_by, disk.device.as_deref(), disk.note.is_some()))
        .collect();
    assert_eq!(
        disks,
        [
            (SeenBy::Both, Some("sda"), false),
            (SeenBy::Both, Some("sdb"), true),
            (SeenBy::Host, None, false),
            (SeenBy::Node, Some("sdx"), false),
        ]
    );
    assert_eq!(explained.waits_for, None);
    assert!(explained.remedies.is_empty(), "{:?}", explained.remedies);
}

#[test]
fn an_error_has_its_count_next_attempt_and_remedy() {
    let explained = explain(&snapshot(), "metal", "rack-2", None, &[]).unwrap();
    let error = explained.error.unwrap();
    assert_eq!((error.kind.as_str(), error.count), ("registration error", 3));
    let wait = error.next_attempt.unwrap().duration_since(error.since.unwrap());
    assert!((4 * 60..=8 * 60).contains(&wait.as_secs()), "{wait:?}");
    // Several lines are shown whole, with what to do in general.
    assert!(error.message.contains("second line"), "{}", error.message);
    assert_eq!(
        explained.remedies[0].text,
        "check the address of the BMC and the Secret with its credentials"
    );
    let credentials = explained.details.iter().find(|field| field.name == "credentials").unwrap();
    assert_eq!(
        credentials.text,
        "Secret rack-2-bmc, tried in version 9, not good yet (last good: Secret rack-1-bmc, version 7)"
    );
}

#[test]
fn a_refused_request_has_no_next_attempt() {
    let mut status = at_rest("inspecting");
    status["operationalStatus"] = json!("error");
    status["errorType"] = json!("inspection error");
    status["errorMessage"] = json!("spec.inspectionMode fast is not supported; set it to agent");
    let mut refused = host("rack-1", json!({}), status);
    refused.spec.inspection_mode = Some("fast".into());
    let mut snapshot = Snapshot::new("quarry-system");
    snapshot.add_host(refused);
    let explained = explain(&snapshot, "metal", "rack-1", None, &[]).unwrap();
    assert_eq!(explained.error.unwrap().next_attempt, None);
    assert_eq!(explained.remedies[0].text, "set it to agent");
}

#[test]
fn hardware_that_no_object_contains_is_explained() {
    let explained = explain(&snapshot(), "metal", "rack-5", None, &[]).unwrap();
    let stored = explained.hardware.iter().find(|field| field.name == "HardwareData").unwrap();
    assert_eq!(stored.text, "none: the hardware has 4000 disks: no HardwareData is created");
    assert_eq!(explained.remedies[0].text, "present fewer disks to the host");
}

#[test]
fn the_view_of_the_host_is_found_for_a_device_of_its_node() {
    let join = host_of_node(&snapshot(), "worker-1").unwrap();
    let text = |device: &str, whole: bool| device_view(&join, device, whole);
    assert_eq!(
        text("sda", true).unwrap(),
        "BareMetalHost metal/rack-1: /dev/sda in its inspection, 3.6Ti, ST4000NM0035, serial Z1, WWN 0x5000c500a1b2c3d4; matched by WWN"
    );
    assert!(text("sdx", true).unwrap().contains("did not see this disk"));
    assert_eq!(text("sda1", false), None);
    assert!(host_of_node(&snapshot(), "worker-2").is_none());
}

#[test]
fn raid_of_a_host_is_one_cell() {
    let cell = |spec: serde_json::Value, built: serde_json::Value, verified: Option<&str>| {
        let mut status = at_rest("available");
        status["provisioning"]["raid"] = built;
        if let Some(verified) = verified {
            status["conditions"] = json!([{"type": "quarry.dev/RAIDVerified", "status": verified, "reason": "X",
                "message": "", "lastTransitionTime": "2026-01-01T00:05:00Z"}]);
        }
        let mut host = host("h", json!({}), status);
        host.spec.raid = serde_json::from_value(spec).unwrap();
        let mut snapshot = Snapshot::new("quarry-system");
        snapshot.add_host(host);
        list(&snapshot, None, None).remove(0).raid
    };
    let (null, none) = (serde_json::Value::Null, json!({"hardwareRAIDVolumes": []}));
    let hardware = json!({"hardwareRAIDVolumes": [{"level": "1"}, {"level": "5"}]});
    let software = json!({"softwareRAIDVolumes": [{"level": "1"}]});
    assert_eq!(cell(null.clone(), null.clone(), None), None);
    assert_eq!(cell(json!({"hardwareRAIDVolumes": null}), null.clone(), None), None);
    for (spec, built, verified, text) in [
        (&hardware, &null, None, "hardware 1, 5 (requested)"),
        (&hardware, &hardware, Some("True"), "hardware 1, 5 (verified)"),
        (&software, &software, Some("Unknown"), "software 1 (not verified)"),
        (&software, &hardware, Some("False"), "hardware 1, 5 (differs)"),
        (&none, &none, Some("True"), "none (verified)"),
        (&null, &software, None, "software 1 (not verified)"),
    ] {
        assert_eq!(cell(spec.clone(), built.clone(), verified).as_deref(), Some(text));
    }
}

#[test]
fn raid_is_explained_with_its_arrays_and_members() {
    let explained = explain(&raid_snapshot(), "metal", "raid-1", None, &[]).unwrap();
    insta::assert_json_snapshot!(explained.raid);
    assert_eq!(explained.tone, Tone::Waiting, "a change that is pending is no failure");
    assert_eq!(explained.problems, ["spec.raid differs from what is on the host"]);
    assert_eq!(explained.remedies[0].text, "deprovision the host to apply it");
    let failed = explain(&raid_snapshot(), "metal", "raid-2", None, &[]).unwrap();
    assert_eq!(failed.tone, Tone::Bad);
    assert!(failed.remedies[0].text.contains("docs/operations/raid-recovery.md"));
    assert!(failed.remedies[1].text.contains("the volumes that the BMC shows"));
}

#[test]
fn every_device_of_raid_names_the_host_and_the_array() {
    let snapshot = raid_snapshot();
    let join = host_of_node(&snapshot, "worker-7").unwrap();
    let host = &snapshot.hosts()[0];
    let inventory = snapshot.inventory("worker-7").unwrap();
    let devices = &inventory.status.as_ref().unwrap().devices;
    let text = |name: &str| match device_raid(host, &join, devices, name) {
        None => format!("{name}: -"),
        Some(raid) => format!("{name}: {}\n  {}", raid.text, raid.remedy.unwrap_or_default()),
    };
    let texts = ["sda", "sda1", "sdb2", "sdc", "md126"].map(text);
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn arrays_of_an_inspection_are_seen_without_a_node() {
    let mut status = at_rest("available");
    status["hardware"] = json!({"storage": [
        {"name": "/dev/sda", "sizeBytes": 1_i64 << 40}, {"name": "/dev/md127", "sizeBytes": 50_i64 << 30},
    ]});
    let mut snapshot = Snapshot::new("quarry-system");
    snapshot.add_host(host("h", json!({}), status));
    let raid = explain(&snapshot, "metal", "h", None, &[]).unwrap().raid.unwrap();
    assert_eq!(raid.seen, ["/dev/md127: 50Gi, in the inspection"]);
    assert!(raid.requested.is_empty() && raid.recorded.is_empty());
}

#[test]
fn invalid_raid_is_not_repeated() {
    let mut status = at_rest("preparing");
    status["operationalStatus"] = json!("error");
    status["errorType"] = json!("preparation error");
    status["errorMessage"] = json!("spec.raid.softwareRAIDVolumes[0].level is 0; use level 1");
    let next = |level: &str| {
        let mut host = host("h", json!({}), status.clone());
        host.spec.raid =
            serde_json::from_value(json!({"softwareRAIDVolumes": [{"level": level}]})).unwrap();
        let mut snapshot = Snapshot::new("quarry-system");
        snapshot.add_host(host);
        let explained = explain(&snapshot, "metal", "h", None, &[]).unwrap();
        explained.error.unwrap().next_attempt
    };
    assert_eq!(next("0"), None);
    assert!(next("1").is_some(), "the ramdisk failed, and the settings are valid");
}

/// The state of each host, and what is refused in it.
#[test]
fn every_refusal_names_the_remedy() {
    let detached = json!({"baremetalhost.metal3.io/detached": ""});
    let paused = json!({"baremetalhost.metal3.io/paused": "x"});
    let held = json!({"reboot.metal3.io/other": ""});
    let off = json!({"inspect.metal3.io": "disabled"});
    let (none, states) = (json!({}), |state: &str| at_rest(state));
    let actions = [
        ("inspect", Action::Inspect),
        ("reboot", Action::Reboot { force: false }),
        ("reboot --force", Action::Reboot { force: true }),
        ("detach", Action::Detach { force: false }),
        ("detach --force", Action::Detach { force: true }),
        ("attach", Action::Attach),
        ("move-out", Action::MoveOut),
        ("move-in", Action::MoveIn { force: false }),
        ("move-in --force", Action::MoveIn { force: true }),
    ];
    let mut lines = Vec::new();
    for (title, host) in [
        ("available", host("h", none.clone(), states("available"))),
        ("provisioned", host("h", none.clone(), states("provisioned"))),
        ("inspecting", host("h", none.clone(), states("inspecting"))),
        ("registering", host("h", none.clone(), states("registering"))),
        ("new", host("h", none.clone(), serde_json::Value::Null)),
        ("detached", host("h", detached, states("available"))),
        ("paused", host("h", paused.clone(), states("available"))),
        ("paused without status", host("h", paused, serde_json::Value::Null)),
        ("held off", host("h", held, states("available"))),
        ("inspection off", host("h", off, states("available"))),
    ] {
        for (name, action) in actions {
            let answer = refusal(&host, action).unwrap_or_else(|| "-".to_owned());
            lines.push(format!("{title}: {name}: {answer}"));
        }
    }
    let capm3 = json!({"baremetalhost.metal3.io/paused": "metal3.io/capm3"});
    let answer = refusal(&host("h", capm3, states("available")), Action::MoveIn { force: true });
    lines.push(format!("paused by capm3: move-in --force: {}", answer.unwrap_or_default()));
    insta::assert_snapshot!(lines.join("\n"));
    let refused = lines.iter().filter(|line| !line.ends_with(": -"));
    for line in refused {
        let (_, remedy) = crate::text::split_remedy(line);
        assert!(remedy.is_some(), "{line}");
    }
}
