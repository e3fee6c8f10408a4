use super::*;
use crate::bare_metal_host::status::backoff;
use quarry_api::bare_metal_host::{BootMode, ErrorType};

const KINDS: [&str; 6] =
    ["Manageable", "AvailableForProvisioning", "Provisioned", "Ready", "Progressing", "Healthy"];

fn shown(status: &BareMetalHostStatus) -> String {
    let one = |kind: &&str| {
        let found = condition(status, kind).unwrap();
        format!("{kind}={}/{}", found.status, found.reason)
    };
    KINDS.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Types, values and reasons of upstream, for every state it has and every operational status that changes them.
#[test]
fn conditions_are_those_of_upstream() {
    let mut lines = Vec::new();
    for state in ProvisioningState::ALL {
        // Nothing is decided about a host that Ironic cannot be asked about: its conditions follow from its status.
        let mut seen = observed(host_in(state, json!({})), None);
        seen.ironic = IronicView::Failed(error(quarry_ironic::Meaning::Failed));
        let plan = planned(&seen);
        lines.push(format!("{state:?}: {}", shown(status(&plan))));
    }
    for (operational, state) in [
        ("error", "registering"),
        ("error", "available"),
        ("error", "provisioned"),
        ("servicing", "provisioned"),
        ("detached", "available"),
        ("detached", "provisioned"),
        ("delayed", "inspecting"),
    ] {
        let mut host = host_in(state, json!({"status": {"operationalStatus": operational}}));
        if operational == "detached" {
            host.status.as_mut().unwrap().provisioning.id.clear();
            annotate(&mut host, names::DETACHED_ANNOTATION, "");
        }
        let mut seen = observed(host, None);
        seen.ironic = IronicView::Failed(error(quarry_ironic::Meaning::Failed));
        if operational == "detached" {
            seen.ironic = IronicView::NotAsked;
        }
        lines.push(format!("{operational} {state:?}: {}", shown(status(&planned(&seen)))));
    }
    let fault =
        node(json!({"maintenance": true, "fault": "power failure", "last_error": "no BMC"}));
    let plan = planned(&with_hardware(observed(host_in("available", json!({})), Some(fault)), 1));
    lines.push(format!("power failure \"available\": {}", shown(status(&plan))));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn conditions_have_the_generation_and_keep_their_time() {
    let mut seen =
        with_hardware(observed(rested("available", json!({})), Some(node(json!({})))), 1);
    let before = seen.host.status.clone().unwrap();
    seen.host.metadata.generation = Some(2);
    let plan = planned_at(&seen, at(60));
    for kind in KINDS {
        let (old, new) =
            (condition(&before, kind).unwrap(), condition(status(&plan), kind).unwrap());
        assert_eq!((old.observed_generation, new.observed_generation), (Some(1), Some(2)));
        assert_eq!(old.last_transition_time, new.last_transition_time);
    }
}

/// Between 2^(n-1) and 2^n minutes after the n-th failure, up to 8.5 hours; the same for the same host.
#[test]
fn the_backoff_doubles_up_to_a_limit() {
    for failures in 1..=12_i64 {
        let whole = 60 * 2_i64.pow(u32::try_from(failures.min(9)).unwrap());
        let found: Vec<i64> =
            (0..50).map(|host| backoff(failures, &format!("uid-{host}")).as_secs()).collect();
        assert!(found.iter().all(|one| (whole / 2..=whole).contains(one)), "{failures}: {found:?}");
        let (least, most) = (found.iter().min().unwrap(), found.iter().max().unwrap());
        assert!(most - least > whole / 4, "hosts are spread: {found:?}");
    }
    assert_eq!(backoff(3, UID), backoff(3, UID));
    assert!(backoff(-5, UID) <= SignedDuration::from_mins(1), "a count that others wrote");
}

#[test]
fn a_failure_is_counted_once_and_retried_after_its_backoff() {
    let failed = json!({"provision_state": "inspect failed", "last_error": "timeout"});
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(failed)));
    let mut time = 0;
    for count in 1..=3 {
        let plan = planned_at(&seen, at(time));
        assert_eq!((status(&plan).error_count, call(&plan).as_str()), (count, ""));
        assert_eq!(plan.events[0].reason, "InspectionError");
        let wait = plan.requeue.unwrap();
        assert_eq!(wait, backoff(count, UID));
        seen.host.status = plan.status.map(|status| *status);
        let early = planned_at(&seen, at(time + wait.as_secs() - 2));
        assert_eq!((early.status, early.call, early.events), (None, None, vec![]));
        time += wait.as_secs() + 1;
        let plan = planned_at(&seen, at(time));
        assert_eq!(call(&plan), format!("request inspect of node {NODE}"));
        assert_eq!((status(&plan).error_type.clone(), status(&plan).error_count), (None, count));
        seen.host.status = plan.status.map(|status| *status);
    }
}

#[test]
fn a_changed_spec_is_tried_before_the_backoff_is_over() {
    let failed = json!({"provision_state": "inspect failed", "last_error": "timeout"});
    let mut seen = observed(host_in("inspecting", json!({})), Some(node(failed)));
    seen.host.status = planned(&seen).status.map(|status| *status);
    assert_eq!(call(&planned_at(&seen, at(5))), "");
    seen.host.metadata.generation = Some(2);
    assert_eq!(call(&planned_at(&seen, at(5))), format!("request inspect of node {NODE}"));
}

#[test]
fn the_history_has_start_and_end_of_each_operation() {
    let mut seen = observed(host(json!({})), None);
    let plan = planned_at(&seen, at(1));
    let times = |status: &BareMetalHostStatus| {
        let history = &status.operation_history;
        [&history.register, &history.inspect].map(|one| {
            [&one.start, &one.end]
                .map(|time| time.as_ref().map(|time| time.0.duration_since(now()).as_secs()))
        })
    };
    assert_eq!(times(status(&plan)), [[Some(1), None], [None, None]]);
    assert_eq!(status(&plan).provisioning.boot_mode, Some(BootMode::Uefi));
    seen.host.status = plan.status.map(|status| *status);
    seen.ironic = IronicView::Seen(Box::new(IronicNode {
        node: Some(node(json!({}))),
        ..IronicNode::default()
    }));
    let plan = planned_at(&seen, at(9));
    assert_eq!(times(status(&plan)), [[Some(1), Some(9)], [Some(9), None]]);
    assert!(plan.events.iter().any(|event| event.reason == "BMCAccessValidated"));
    seen.host.status = plan.status.map(|status| *status);
    let done = node(json!({"inspection_finished_at": "2026-01-01T00:00:20Z"}));
    *ironic_mut(&mut seen) =
        IronicNode { node: Some(done), inventory: Some(inventory(1)), ..IronicNode::default() };
    let plan = planned_at(&seen, at(20));
    assert_eq!(times(status(&plan)), [[Some(1), Some(9)], [Some(9), Some(20)]]);
    assert_eq!(status(&plan).provisioning.state, ProvisioningState::Available);
}

#[test]
fn an_unreachable_ironic_is_no_error_of_the_host() {
    let mut seen = with_hardware(observed(rested("available", json!({})), None), 1);
    seen.ironic = IronicView::Failed(error(quarry_ironic::Meaning::Unreachable(
        quarry_ironic::Reach::Timeout,
    )));
    let plan = planned(&seen);
    let found = status(&plan);
    assert_eq!((found.error_count, &found.operational_status), (0, &OperationalStatus::Ok));
    assert_eq!(condition(found, CONDITION_IRONIC).unwrap().reason, "UnreachableTimeout");
    assert_eq!(plan.requeue, Some(SignedDuration::from_secs(15)));
    mark_deleted(&mut seen.host);
    let message = condition(status(&planned(&seen)), CONDITION_IRONIC).unwrap().message.clone();
    assert!(message.contains("to delete the host without Ironic"), "{message}");
}

/// Ironic quotes what it was sent; a BMC may, too.
#[test]
fn no_credential_reaches_status_or_events() {
    let text =
        format!("BMC said: bad login https://admin:{PASSWORD}@10.0.0.1/ password={PASSWORD}");
    for state in ["enroll", "inspect failed"] {
        let state_of = if state == "enroll" { "registering" } else { "inspecting" };
        let failed = node(json!({"provision_state": state, "last_error": text}));
        let plan = plan(&observed(host_in(state_of, json!({})), Some(failed)), now());
        assert_eq!(status(&plan).error_count, 1);
        let written = format!("{:?} {:?}", plan.status, plan.events);
        assert!(!written.contains(PASSWORD), "{written}");
    }
}

#[test]
fn long_errors_of_ironic_are_cut() {
    let failed = node(json!({"provision_state": "inspect failed", "last_error": "ä".repeat(5000)}));
    let plan = planned(&observed(host_in("inspecting", json!({})), Some(failed)));
    assert!(status(&plan).error_message.chars().count() < 1100);
    assert_eq!(status(&plan).error_type, Some(ErrorType::Inspection));
}
