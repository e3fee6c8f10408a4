//! What is planned in every state of the host, for every state of its node and every event: call, next state, report.

use super::*;
use quarry_ironic::Meaning;
use std::fmt::Write as _;

fn row(seen: &Observed) -> String {
    let plan = planned(seen);
    let old = seen.host.status.clone().unwrap_or_default();
    let new = plan.status.as_deref().unwrap_or(&old);
    let mut text = new.provisioning.state.to_string();
    if new.operational_status != OperationalStatus::Ok {
        write!(text, " [{}]", new.operational_status).unwrap();
    }
    let call = call(&plan).replace(NODE, "NODE");
    if !call.is_empty() {
        write!(text, "; {call}").unwrap();
    }
    if !steps(&plan).is_empty() {
        write!(text, "; {}", steps(&plan).join(" ")).unwrap();
    }
    if let Some(kind) = &new.error_type {
        write!(text, "; {kind}").unwrap();
    }
    let own = new.conditions.iter().filter(|one| one.type_.contains('/') && one.status == "False");
    for one in own {
        write!(text, "; {}={}", one.type_.replace("quarry.dev/", ""), one.reason).unwrap();
    }
    text
}

/// One in each state, inspected where it would be, with the node that it would have.
fn start(state: &str) -> Observed {
    let node_is = match state {
        "" | "unmanaged" => None,
        "registering" => Some("enroll"),
        "inspecting" => Some("inspect wait"),
        "provisioning" => Some("deploying"),
        "provisioned" | "externally provisioned" => Some("active"),
        "deprovisioning" => Some("deleting"),
        _ => Some("manageable"),
    };
    let mut host = match state {
        "" | "unmanaged" => {
            host(json!({"status": {"operationalStatus": "OK", "provisioning": {"state": state}}}))
        }
        _ => host_in(state, json!({})),
    };
    if matches!(state, "provisioning" | "provisioned") {
        give_image(&mut host);
    }
    if state == "powering off before delete" || state == "deleting" {
        mark_deleted(&mut host);
    }
    let seen = observed(host, node_is.map(|state| node(json!({"provision_state": state}))));
    match state {
        "" | "unmanaged" | "registering" | "inspecting" => seen,
        _ => with_hardware(seen, 1),
    }
}

fn change_node(seen: &mut Observed, extra: &Value) {
    let known = ironic_mut(seen).node.take();
    let mut object = known.map_or_else(|| json!({}), |node| serde_json::to_value(node).unwrap());
    merge(&mut object, extra);
    ironic_mut(seen).node = Some(node(object));
}

#[test]
fn every_state_with_every_state_of_the_node() {
    let mut lines = Vec::new();
    for state in ProvisioningState::ALL {
        for found in
            ProvisionState::KNOWN.iter().map(ProvisionState::as_str).chain(["none", "future"])
        {
            let mut seen = start(state);
            let made = node(json!({"provision_state": found}));
            ironic_mut(&mut seen).node = (found != "none").then_some(made);
            lines.push(format!("{state:?} + node {found}: {}", row(&seen)));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}

type Event = (&'static str, fn(&mut Observed));

const EVENTS: [Event; 26] = [
    ("nothing", |_| {}),
    ("error of the last operation", |seen| {
        change_node(seen, &json!({"last_error": "failed to change power: timeout"}))
    }),
    ("maintenance by hand", |seen| change_node(seen, &json!({"maintenance": true}))),
    ("maintenance by a power failure", |seen| {
        change_node(seen, &json!({"maintenance": true, "fault": "power failure"}))
    }),
    ("node missing", |seen| ironic_mut(seen).node = None),
    ("node locked", |seen| change_node(seen, &json!({"reservation": "lab"}))),
    ("node renamed", |seen| change_node(seen, &json!({"name": "other"}))),
    ("powered off", |seen| change_node(seen, &json!({"power_state": "power off"}))),
    ("power unknown", |seen| change_node(seen, &json!({"power_state": null}))),
    ("Ironic unreachable", |seen| seen.ironic = IronicView::Failed(error(Meaning::Failed))),
    ("Secret missing", |seen| seen.secret = None),
    ("Secret changed", |seen| {
        seen.secret = Some(secret(json!({"metadata": {"resourceVersion": "8"}})))
    }),
    ("Secret without keys", |seen| seen.secret = Some(secret(json!({"data": {"password": null}})))),
    ("host deleted", |seen| mark_deleted(&mut seen.host)),
    ("detached", |seen| annotate(&mut seen.host, names::DETACHED_ANNOTATION, "")),
    ("detached by force", |seen| {
        annotate(&mut seen.host, names::DETACHED_ANNOTATION, r#"{"force":true}"#)
    }),
    ("paused", |seen| annotate(&mut seen.host, names::PAUSED_ANNOTATION, "")),
    ("reboot", |seen| annotate(&mut seen.host, names::REBOOT_ANNOTATION, "")),
    ("inspect", |seen| annotate(&mut seen.host, names::INSPECT_ANNOTATION, "")),
    ("HardwareData missing", |seen| seen.hardware_data = None),
    ("RAID requested", |seen| {
        request_raid(&mut seen.host, json!({"softwareRAIDVolumes": [{"level": "1"}]}))
    }),
    ("RAID invalid", |seen| {
        request_raid(&mut seen.host, json!({"softwareRAIDVolumes": [{"level": "0"}]}))
    }),
    ("RAID recorded, not built", |seen| {
        let raid = json!({"hardwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 100}]});
        request_raid(&mut seen.host, raid.clone());
        let status = seen.host.status.get_or_insert_default();
        status.provisioning.raid = serde_json::from_value(raid).unwrap();
    }),
    ("image requested", |seen| {
        seen.host.spec.image = Some(image());
    }),
    ("image removed", |seen| seen.host.spec.image = None),
    ("image and host removed, volumes retained", |seen| {
        seen.host.spec.image = None;
        annotate(&mut seen.host, names::RETAIN_RAID_ANNOTATION, "");
        mark_deleted(&mut seen.host);
    }),
];

#[test]
fn every_state_with_every_event() {
    let mut lines = Vec::new();
    for state in ProvisioningState::ALL {
        for (name, happens) in EVENTS {
            let mut seen = start(state);
            let needs_node = name.contains("node")
                || name.contains("power")
                || name.contains("maintenance")
                || name.contains("error");
            if needs_node && ironic_mut(&mut seen).node.is_none() {
                continue;
            }
            happens(&mut seen);
            lines.push(format!("{state:?} + {name}: {}", row(&seen)));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}
