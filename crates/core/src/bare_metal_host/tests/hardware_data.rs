use super::*;

fn available() -> Observed {
    observed(
        rested("available", json!({})),
        Some(node(json!({"inspection_finished_at": "2026-01-01T00:00:00Z"}))),
    )
}

fn inspected(disks: usize) -> Observed {
    let mut seen = observed(host_in("inspecting", json!({})), None);
    let done = node(json!({"inspection_finished_at": "2026-01-01T00:00:00Z"}));
    *ironic_mut(&mut seen) =
        IronicNode { node: Some(done), inventory: Some(inventory(disks)), ..IronicNode::default() };
    seen
}

fn reads_inventory(seen: &Observed) -> bool {
    let IronicView::Seen(ironic) = &seen.ironic else { return false };
    reads(&seen.host, ironic.node.as_ref()).inventory
}

#[test]
fn an_inspection_ends_in_both_copies() {
    let plan = planned(&inspected(3));
    let Some(Step::CreateHardwareData(made)) = plan.steps.first() else { panic!("{plan:?}") };
    assert_eq!(
        (made.metadata.name.as_deref(), made.metadata.namespace.as_deref()),
        (Some("h1"), Some("ns"))
    );
    assert_eq!(
        made.metadata.finalizers.as_deref(),
        Some(&["baremetalhost.metal3.io/hardwareData".to_owned()][..])
    );
    let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.uid.as_str(), owner.controller, owner.kind.as_str()),
        (UID, Some(true), "BareMetalHost")
    );
    assert_eq!(made.spec.hardware, status(&plan).hardware);
    assert_eq!(made.spec.hardware.as_ref().unwrap().storage.len(), 3);
}

#[test]
fn a_second_inspection_replaces_it_unless_it_is_the_same() {
    let mut seen = with_hardware(inspected(3), 2);
    let plan = planned(&seen);
    assert_eq!(steps(&plan), ["ReleaseHardwareData", "DeleteHardwareData", "CreateHardwareData"]);
    seen = with_hardware(seen, 3);
    assert_eq!(steps(&planned(&seen)), Vec::<&str>::new());
}

#[test]
fn missing_on_an_available_host_it_is_rebuilt() {
    let mut seen = with_hardware(available(), 2);
    let hardware = seen.hardware_data.take().unwrap().spec.hardware;
    let plan = planned(&seen);
    let [Step::CreateHardwareData(made)] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!((&made.spec.hardware, call(&plan).as_str()), (&hardware, ""));
    assert_eq!(plan.events[0].reason, "HardwareDataRebuilt");
}

#[test]
fn missing_in_both_places_the_host_is_inspected_again() {
    let mut seen = available();
    assert!(!reads_inventory(&seen), "not at rest");
    let plan = planned(&seen);
    assert_eq!(status(&plan).provisioning.state, ProvisioningState::Inspecting);
    assert_eq!(
        (call(&plan).as_str(), plan.requeue),
        ("", Some(SignedDuration::ZERO)),
        "recorded first"
    );
    seen.host.status = plan.status.map(|status| *status);
    // Ironic has an inventory: the host is not rebooted for another one.
    assert!(reads_inventory(&seen));
    ironic_mut(&mut seen).inventory = Some(inventory(2));
    let plan = planned(&seen);
    assert_eq!((steps(&plan), call(&plan).as_str()), (vec!["CreateHardwareData"], ""));
}

#[test]
fn deleted_by_hand_it_goes_and_is_rebuilt() {
    let mut seen = with_hardware(available(), 2);
    let data = seen.hardware_data.as_mut().unwrap();
    data.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    assert_eq!(steps(&planned(&seen)), ["ReleaseHardwareData"]);
    seen.host.status.as_mut().unwrap().provisioning.state = ProvisioningState::Provisioned;
    ironic_mut(&mut seen).node = Some(node(json!({"provision_state": "active"})));
    assert_eq!(steps(&planned(&seen)), Vec::<&str>::new(), "a host that is in use keeps it");
}

#[test]
fn missing_on_a_host_in_use_it_is_reported_only() {
    let history = json!({"status": {"operationHistory": {"inspect": {"start": "2025-01-01T00:00:00Z", "end": "2025-01-01T00:01:00Z"}}}});
    let mut seen =
        observed(host_in("provisioned", history), Some(node(json!({"provision_state": "active"}))));
    seen.host.status.as_mut().unwrap().hardware = Some(hardware_of(2));
    let plan = planned(&seen);
    assert_eq!((steps(&plan), call(&plan).as_str()), (vec![], ""));
    let found = condition(status(&plan), CONDITION_HARDWARE_DATA).unwrap();
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "Missing"));
    assert!(found.message.contains("restore it from a backup"));
    seen.host.status = plan.status.map(|status| *status);
    seen.hardware_data = Some(data_of(&seen.host, 2));
    let plan = planned(&seen);
    assert_eq!(condition(status(&plan), CONDITION_HARDWARE_DATA), None, "restored");
}

#[test]
fn a_thousand_multipath_disks_fit() {
    let plan = planned(&inspected(1000));
    assert_eq!(steps(&plan), ["CreateHardwareData"]);
    assert_eq!(status(&plan).hardware.as_ref().unwrap().storage.len(), 1000);
    assert_eq!(condition(status(&plan), CONDITION_HARDWARE_DATA), None);
}

#[test]
fn hardware_that_only_fits_once_is_left_out_of_the_status() {
    // Above the limit of the status, below that of a HardwareData.
    let count = (2000..8000)
        .step_by(100)
        .find(|count| {
            serde_json::to_vec(&hardware_of(*count)).unwrap().len() > STATUS_HARDWARE_LIMIT
        })
        .unwrap();
    let mut seen = inspected(count);
    let plan = planned(&seen);
    assert_eq!(steps(&plan), ["CreateHardwareData"]);
    assert_eq!(status(&plan).hardware, None, "never shortened");
    assert_eq!(condition(status(&plan), CONDITION_HARDWARE_DATA).unwrap().reason, "StatusOmitted");
    seen.hardware_data = Some(data_of(&seen.host, count));
    seen.host.status = plan.status.map(|status| *status);
    assert!(!reads_inventory(&seen));
    ironic_mut(&mut seen).inventory = None;
    let rest = planned_at(&seen, at(60));
    assert_eq!((rest.status, rest.steps, rest.call), (None, vec![], None));
}

/// Beyond what etcd stores: available, reported with a remedy, and no second inspection.
#[test]
fn too_much_hardware_ends_in_available_without_a_loop() {
    let mut seen = inspected(8000);
    let plan = planned(&seen);
    assert_eq!(steps(&plan), Vec::<&str>::new());
    let found = condition(status(&plan), CONDITION_HARDWARE_DATA).unwrap();
    assert_eq!((found.reason.as_str(), found.status.as_str()), ("TooLarge", "False"));
    assert!(
        found.message.contains("8000 disks") && found.message.contains("present fewer disks"),
        "{}",
        found.message
    );
    assert_eq!(
        (status(&plan).provisioning.state.clone(), &status(&plan).hardware),
        (ProvisioningState::Available, &None)
    );
    assert!(found.message.contains("no HardwareData is created"));
    seen.host.status = plan.status.map(|status| *status);
    ironic_mut(&mut seen).inventory = None;
    let rest = planned_at(&seen, at(60));
    assert_eq!((rest.status, rest.steps, rest.call), (None, vec![], None));
}

/// What was true once helps more than nothing; the report says that it is old.
#[test]
fn an_older_one_stays_when_too_much_is_found() {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    let mut seen = with_hardware(inspected(8000), 2);
    let data = seen.hardware_data.as_mut().unwrap();
    data.metadata.creation_timestamp = Some(Time(at(-86400)));
    let plan = planned(&seen);
    assert_eq!(steps(&plan), Vec::<&str>::new());
    let found = condition(status(&plan), CONDITION_HARDWARE_DATA).unwrap();
    assert_eq!((found.reason.as_str(), found.status.as_str()), ("TooLarge", "False"));
    assert!(found.message.contains("8000 disks"), "{}", found.message);
    assert!(found.message.contains("as an earlier inspection found it"), "{}", found.message);
    assert_eq!(status(&plan).hardware, Some(hardware_of(2)), "both copies are the same");
    assert_eq!(status(&plan).provisioning.state, ProvisioningState::Available);
    seen.host.status = plan.status.map(|status| *status);
    ironic_mut(&mut seen).inventory = None;
    let rest = planned_at(&seen, at(60));
    assert_eq!((rest.status, rest.steps, rest.call), (None, vec![], None), "the report stays");
    // Restored by an administrator since: it is not of an earlier inspection.
    seen.hardware_data.as_mut().unwrap().metadata.creation_timestamp = Some(Time(at(90)));
    assert_eq!(condition(status(&planned_at(&seen, at(120))), CONDITION_HARDWARE_DATA), None);
}

/// The status has hardware of an older inspection, and no HardwareData.
#[test]
fn an_annotation_wins_over_the_hardware_of_the_status() {
    let mut seen = available();
    seen.host.status.as_mut().unwrap().hardware = Some(hardware_of(5));
    seen.host.spec.inspection_mode = Some(quarry_api::bare_metal_host::InspectionMode::Disabled);
    let text = serde_json::to_string(&hardware_of(2)).unwrap();
    annotate(&mut seen.host, names::HARDWARE_DETAILS_ANNOTATION, &text);
    let plan = planned(&seen);
    let [Step::CreateHardwareData(made), Step::RemoveAnnotations(_)] = &plan.steps[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(made.spec.hardware, Some(hardware_of(2)));
    assert_eq!(status(&plan).hardware, Some(hardware_of(2)));
}

#[test]
fn copies_go_in_both_directions() {
    // From a HardwareData that was restored or moved here; it wins.
    let mut seen = with_hardware(available(), 3);
    seen.host.status.as_mut().unwrap().hardware = Some(hardware_of(1));
    assert_eq!(status(&planned(&seen)).hardware, Some(hardware_of(3)));
    // One without our marks is claimed.
    seen.hardware_data.as_mut().unwrap().metadata.finalizers =
        Some(vec![names::HOST_FINALIZER.to_owned()]);
    assert_eq!(steps(&planned(&seen)), ["ClaimHardwareData"]);
    // Created before, instead of an inspection: input, and its creator's.
    seen.host.spec.inspection_mode = Some(quarry_api::bare_metal_host::InspectionMode::Disabled);
    let plan = planned(&seen);
    assert_eq!((steps(&plan), status(&plan).hardware.clone()), (vec![], Some(hardware_of(3))));
}

#[test]
fn an_annotation_describes_hardware_that_is_not_inspected() {
    let mut seen = available();
    let text = serde_json::to_string(&hardware_of(2)).unwrap();
    annotate(&mut seen.host, names::HARDWARE_DETAILS_ANNOTATION, &text);
    let found = planned(&seen).status.unwrap();
    assert_eq!(condition(&found, "quarry.dev/Accepted").unwrap().reason, "AnnotationIgnored");
    annotate(&mut seen.host, names::INSPECT_ANNOTATION, names::INSPECT_DISABLED);
    let plan = planned(&seen);
    assert_eq!(steps(&plan), ["CreateHardwareData", "RemoveAnnotations"]);
    assert_eq!(status(&plan).hardware, Some(hardware_of(2)));
    seen.hardware_data = Some(data_of(&seen.host, 5));
    let plan = planned(&seen);
    assert_eq!(steps(&plan), ["RemoveAnnotations"], "one that exists wins");
    assert_eq!(status(&plan).hardware, Some(hardware_of(5)));
}

#[test]
fn without_inspection_none_is_created() {
    let mut seen = observed(
        host_in("registering", json!({"spec": {"inspectionMode": "disabled"}})),
        Some(node(json!({}))),
    );
    let plan = planned(&seen);
    assert_eq!(
        (steps(&plan), status(&plan).provisioning.state.clone()),
        (vec![], ProvisioningState::Available)
    );
    seen.host.status = plan.status.map(|status| *status);
    assert_eq!(planned_at(&seen, at(60)).status, None);
}

#[test]
fn both_finalizers_are_ours() {
    use crate::bare_metal_host::hardware_data::is_ours;
    assert!(is_ours(names::HARDWARE_DATA_FINALIZER) && is_ours(names::HOST_FINALIZER));
    assert!(!is_ours("example.com/backup"));
}
