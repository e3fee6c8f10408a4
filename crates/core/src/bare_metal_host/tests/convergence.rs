//! From any state, with faults that end: the desired state is reached, and then nothing is written and nothing called.

use super::{
    model::{Faults, Round, World},
    *,
};
use proptest::prelude::*;
use quarry_ironic::PowerState;

const STATES: [&str; 11] = [
    "",
    "unmanaged",
    "registering",
    "inspecting",
    "match profile",
    "preparing",
    "ready",
    "available",
    "externally provisioned",
    "provisioned",
    "powering off before delete",
];
const NODES: [&str; 11] = [
    "enroll",
    "verifying",
    "manageable",
    "inspecting",
    "inspect wait",
    "inspect failed",
    "clean failed",
    "adopt failed",
    "adopting",
    "available",
    "none",
];
const ERRORS: [&str; 8] = [
    "",
    "registration error",
    "provisioned registration error",
    "inspection error",
    "preparation error",
    "power management error",
    "detach error",
    "servicing error",
];

#[derive(Clone, Debug)]
struct Case {
    state: &'static str,
    node: &'static str,
    error: &'static str,
    last_error: bool,
    powered: bool,
    online: bool,
    request: Request,
    keep_off: bool,
    inspected: bool,
    faults: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Request {
    Nothing,
    Delete,
    Detach,
    DetachForce,
    DeleteDetached,
    Inspect,
    Reboot,
    NoInspection,
    External,
}

const REQUESTS: [Request; 9] = [
    Request::Nothing,
    Request::Delete,
    Request::Detach,
    Request::DetachForce,
    Request::DeleteDetached,
    Request::Inspect,
    Request::Reboot,
    Request::NoInspection,
    Request::External,
];

fn case() -> impl Strategy<Value = Case> {
    let pick = proptest::sample::select::<&'static str>;
    let start = (pick(STATES.to_vec()), pick(NODES.to_vec()), pick(ERRORS.to_vec()));
    let flags = any::<[bool; 5]>();
    let request = proptest::sample::select(REQUESTS.to_vec());
    let faults = proptest::collection::vec((0..10_usize, 0..6_usize), 0..12);
    (start, flags, request, faults).prop_map(|((state, node, error), flags, request, faults)| {
        let [last_error, powered, online, keep_off, inspected] = flags;
        Case {
            state,
            node,
            error,
            last_error,
            powered,
            online,
            request,
            keep_off,
            inspected,
            faults,
        }
    })
}

fn world(case: &Case) -> World {
    let mut host = match case.state {
        "" | "unmanaged" => host(json!({"status": {"provisioning": {"state": case.state}}})),
        // Of a host that is deleted, and of no other.
        "powering off before delete" if !is_deleted(case) => host_in("available", json!({})),
        state => host_in(state, json!({})),
    };
    host.spec.online = case.online;
    host.spec.disable_power_off = case.keep_off && case.online;
    if let Some(status) = &mut host.status
        && !case.error.is_empty()
    {
        status.error_type = Some(case.error.into());
        status.error_message = "something failed".to_owned();
        status.operational_status = OperationalStatus::Error;
        status.error_count = 2;
    }
    match case.request {
        Request::Nothing => {}
        Request::Delete => mark_deleted(&mut host),
        Request::Detach => annotate(&mut host, names::DETACHED_ANNOTATION, ""),
        Request::DetachForce => {
            annotate(&mut host, names::DETACHED_ANNOTATION, r#"{"force":true}"#)
        }
        Request::DeleteDetached => {
            annotate(&mut host, names::DETACHED_ANNOTATION, r#"{"deleteAction":"delete"}"#);
            mark_deleted(&mut host);
        }
        Request::Inspect => annotate(&mut host, names::INSPECT_ANNOTATION, ""),
        Request::Reboot => annotate(&mut host, names::REBOOT_ANNOTATION, ""),
        Request::NoInspection => {
            host.spec.inspection_mode = Some(quarry_api::bare_metal_host::InspectionMode::Disabled);
        }
        Request::External => host.spec.externally_provisioned = true,
    }
    // Ironic adopts only for hosts that are in use: an active node of another one needs an administrator.
    let adopts = case.node == "adopting" && !is_in_use(case);
    let mut extra = json!({
        "provision_state": if adopts { "manageable" } else { case.node },
        "power_state": if case.powered { "power on" } else { "power off" },
    });
    if case.last_error {
        extra["last_error"] = json!("Failed to change power state: timeout");
    }
    if case.node.contains("failed") && case.last_error {
        merge(&mut extra, &json!({"maintenance": true, "fault": "clean failure"}));
    }
    let mut world = World::new(host, (case.node != "none").then(|| node(extra)));
    if case.inspected {
        let host = world.host.as_mut().unwrap();
        if let Some(status) = &mut host.status {
            status.hardware = Some(hardware_of(2));
        }
        world.data = Some(data_of(host, 2));
    }
    world
}

fn is_in_use(case: &Case) -> bool {
    matches!(case.state, "provisioned" | "externally provisioned")
        || case.request == Request::External
}

fn is_deleted(case: &Case) -> bool {
    matches!(case.request, Request::Delete | Request::DeleteDetached)
}

/// One fault for one round. What is killed is repeated.
fn disturb(world: &mut World, (fault, detail): (usize, usize)) {
    let mut faults = Faults::default();
    match fault {
        0 => faults.ironic_down = true,
        1 => faults.bmc_down = true,
        2 => faults.silent = true,
        // One that is gone for good has no finalizer that could be removed.
        3 => {
            faults.secret_missing =
                world.host.as_ref().is_some_and(|host| host.metadata.deletion_timestamp.is_none())
        }
        4 => faults.maintained = true,
        5 => faults.locked = true,
        6 => faults.refused = true,
        7 => world.killed_after = Some(detail),
        8 => {
            (world.node, world.inventory) = (None, None);
            world.ports.clear();
        }
        9 => world.delete_data(),
        _ => unreachable!("ten faults"),
    }
    world.faults = faults;
}

fn settle(world: &mut World) -> Result<(), TestCaseError> {
    let mut quiet = 0;
    for _ in 0..400 {
        let round = world.round();
        let did = Round { wait: None, ..round };
        quiet = if did == Round::default() { quiet + 1 } else { 0 };
        if world.host.is_none() || quiet == 8 {
            return Ok(());
        }
    }
    let calls = &world.calls[world.calls.len().saturating_sub(10)..];
    Err(TestCaseError::fail(format!("it never rests: {calls:?} {:#?}", world.host)))
}

fn assert_desired(case: &Case, world: &World) -> Result<(), TestCaseError> {
    if is_deleted(case) {
        prop_assert!(world.host.is_none(), "{:#?}", world.host);
        // Its administrator may have deleted it without Ironic, and so does the operator when Ironic stays away.
        prop_assert!(
            world.node.is_none()
                || case.request == Request::DeleteDetached
                || case.faults.iter().any(|(fault, _)| *fault == 0),
            "{:#?}",
            world.node
        );
        prop_assert!(world.secret.metadata.finalizers.is_none());
        return Ok(());
    }
    let host = world.host.as_ref().expect("it is not deleted");
    let status = host.status.as_ref().unwrap();
    prop_assert_eq!(&status.error_message, "");
    prop_assert_eq!(&status.error_type, &None);
    prop_assert_eq!(status.error_count, 0);
    if matches!(case.request, Request::Detach | Request::DetachForce) {
        prop_assert_eq!(&status.operational_status, &OperationalStatus::Detached);
        prop_assert!(world.node.is_none() && status.provisioning.id.is_empty());
        return Ok(());
    }
    prop_assert_eq!(&status.operational_status, &OperationalStatus::Ok);
    let node = world.node.as_ref().expect("it is registered");
    prop_assert_eq!(&node.uuid, &status.provisioning.id);
    prop_assert_eq!(status.powered_on, case.online);
    prop_assert_eq!(node.power_state == Some(PowerState::On), case.online);
    prop_assert!(!node.maintenance);
    let in_use = is_in_use(case);
    let (state, ironic) = match in_use {
        true if case.state == "provisioned" => {
            (ProvisioningState::Provisioned, ProvisionState::Active)
        }
        true => (ProvisioningState::ExternallyProvisioned, ProvisionState::Active),
        false => (ProvisioningState::Available, ProvisionState::Manageable),
    };
    prop_assert_eq!(host.state(), state);
    let known = node.provision_state == ironic || node.provision_state == ProvisionState::Available;
    prop_assert!(known, "{}", node.provision_state);
    if !in_use && case.request != Request::NoInspection {
        let data = world.data.as_ref().expect("its hardware is known");
        prop_assert_eq!(&data.spec.hardware, &status.hardware);
        prop_assert!(data.metadata.deletion_timestamp.is_none());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_desired_state_is_reached_when_faults_end(case in case()) {
        let mut world = world(&case);
        for fault in &case.faults {
            disturb(&mut world, *fault);
            world.round();
        }
        world.heal();
        settle(&mut world)?;
        assert_desired(&case, &world)?;
    }

    /// Without faults, from the same states: no more calls than the work needs.
    #[test]
    fn no_call_is_repeated_without_faults(mut case in case()) {
        case.faults.clear();
        let mut world = world(&case);
        settle(&mut world)?;
        let mut calls = world.calls.clone();
        calls.sort();
        calls.dedup();
        // A host may be powered off for a reboot and on again, and inspected twice: as found, and as asked.
        prop_assert!(world.calls.len() <= calls.len() + 2, "{:?}", world.calls);
    }
}

/// Where the operator is killed never matters: every step of the whole life, one after the other.
#[test]
fn a_kill_at_any_step_only_delays() {
    for kill in 0..60 {
        let mut world = World::new(host(json!({"metadata": {"finalizers": null}})), None);
        world.secret = secret(
            json!({"metadata": {"finalizers": null, "labels": null, "ownerReferences": null}}),
        );
        let mut rounds = 0;
        while world.host.as_ref().unwrap().state() != ProvisioningState::Available {
            world.killed_after = (rounds == kill / 3).then_some(kill % 3);
            world.round();
            rounds += 1;
            assert!(rounds < 60, "killed at {kill}: {:#?}", world.calls);
        }
        let inspections = world.calls.iter().filter(|call| call.contains("inspect")).count();
        assert_eq!(inspections, 1, "killed at {kill}: {:?}", world.calls);
        settle(&mut world).unwrap();
        let first = world.data.clone();
        annotate(world.host.as_mut().unwrap(), names::INSPECT_ANNOTATION, "");
        world.killed_after = Some(kill % 5);
        settle(&mut world).unwrap();
        let inspections = world.calls.iter().filter(|call| call.contains("inspect")).count();
        assert_eq!(inspections, 2, "killed at {kill}: {:?}", world.calls);
        assert_eq!(
            world.data.as_ref().map(|data| &data.spec),
            first.as_ref().map(|data| &data.spec)
        );
        mark_deleted(world.host.as_mut().unwrap());
        world.killed_after = Some(kill % 4);
        settle(&mut world).unwrap();
        assert!(world.host.is_none() && world.node.is_none(), "killed at {kill}");
    }
}
