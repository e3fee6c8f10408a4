use super::{
    actions::{Action, refusal},
    explain::{SeenBy, explain},
    samples::{at_rest, host, snapshot},
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
