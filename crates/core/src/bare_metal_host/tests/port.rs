use super::*;
use quarry_api::bare_metal_host::ErrorType;

const OTHER: &str = "bbbbbbbb-0000-4000-8000-000000000002";
const NIC: &str = "52:54:00:00:00:02";

fn taken(address: &str, name: Option<&str>) -> TakenAddress {
    let name = name.map(str::to_owned);
    TakenAddress { address: address.to_owned(), node: OTHER.to_owned(), name }
}

/// Enrolled again after Ironic lost its database; two interfaces are known from the inspection before.
fn enrolled(ports: &[&str], taken: Vec<TakenAddress>) -> Observed {
    let mut seen = with_hardware(observed(rested("available", json!({})), None), 1);
    let hardware = seen.hardware_data.as_mut().unwrap().spec.hardware.as_mut().unwrap();
    hardware.nics.push(hardware.nics[0].clone());
    hardware.nics[1].mac = NIC.to_owned();
    seen.host.status.as_mut().unwrap().hardware = Some(hardware.clone());
    *ironic_mut(&mut seen) = IronicNode {
        node: Some(node(json!({"provision_state": "enroll"}))),
        ports: Some(ports.iter().map(|address| port(address)).collect()),
        taken,
        ..IronicNode::default()
    };
    seen
}

#[test]
fn each_missing_address_is_named_once() {
    let seen = enrolled(&[], vec![]);
    let missing =
        |ports: &[Port]| missing_addresses(&seen.host, seen.hardware_data.as_ref(), ports);
    assert_eq!(missing(&[]), [MAC, NIC], "the boot interface is one of those that were inspected");
    assert_eq!(missing(&[port(&MAC.to_uppercase())]), [NIC]);
}

#[test]
fn an_interface_of_another_node_does_not_block() {
    let seen = enrolled(&[MAC], vec![taken(NIC, Some("ns~h2"))]);
    let plan = planned(&seen);
    assert_eq!(call(&plan), format!("request manage of node {NODE}"));
    let found = condition(status(&plan), "quarry.dev/Accepted").unwrap();
    assert_eq!((found.reason.as_str(), status(&plan).error_count), ("PortSkipped", 0));
    assert!(found.message.contains(NIC) && found.message.contains("BareMetalHost ns/h2"));
    assert!(plan.events.iter().any(|event| event.reason == "PortSkipped" && event.warning));
    // The boot interface comes first, whatever the others are.
    let seen = enrolled(&[], vec![taken(NIC, None)]);
    assert_eq!(call(&planned(&seen)), format!("create port {MAC} of node {NODE}"));
}

#[test]
fn a_duplicate_boot_address_names_its_holder_and_the_remedy() {
    let mut lines = Vec::new();
    for name in [Some("ns~h2"), Some("by-hand"), None] {
        let mut seen = enrolled(&[], vec![taken(MAC, name)]);
        let plan = planned(&seen);
        assert_eq!(
            (call(&plan).as_str(), status(&plan).error_type.clone()),
            ("", Some(ErrorType::Registration))
        );
        lines.push(status(&plan).error_message.clone());
        seen.host.status = plan.status.map(|status| *status);
        assert_eq!(planned_at(&seen, at(10)).status, None, "reported once");
        // The other host is gone.
        ironic_mut(&mut seen).taken = vec![];
        assert_eq!(call(&planned_at(&seen, at(200))), format!("create port {MAC} of node {NODE}"));
    }
    insta::assert_snapshot!(lines.join("\n"));
}
