use super::*;
use crate::bare_metal_host::driver::{AddressError, boot_capability, parse, properties};
use quarry_api::bare_metal_host::{BmcDetails, BootMode};

fn all_ramdisks() -> HostSettings {
    let url = |name: &str| Some(format!("http://files/{name}"));
    HostSettings {
        deploy_iso: url("iso"),
        deploy_kernel: url("kernel"),
        deploy_ramdisk: url("ramdisk"),
        ..HostSettings::default()
    }
}

fn bmc(address: &str) -> BmcDetails {
    BmcDetails { address: address.to_owned(), ..BmcDetails::default() }
}

#[test]
fn every_scheme_selects_driver_and_boot_interface() {
    let path = "/redfish/v1/Systems/1";
    let lines: Vec<String> = [
        "ipmi",
        "libvirt",
        "redfish",
        "redfish+http",
        "redfish+https",
        "ilo5-redfish",
        "idrac-redfish",
        "idrac-redfish+http",
        "redfish-virtualmedia",
        "redfish-virtualmedia+http",
        "ilo5-virtualmedia",
        "idrac-virtualmedia",
        "redfish-uefihttp",
    ]
    .map(|scheme| {
        let found =
            parse(&bmc(&format!("{scheme}://10.0.0.1:8000{path}")), &all_ramdisks()).unwrap();
        let info = serde_json::to_string(&found.info).unwrap();
        format!("{scheme}: {} {} {info}", found.driver, found.boot_interface.unwrap_or("-"))
    })
    .into();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn an_address_without_scheme_is_ipmi() {
    let found = parse(&bmc("10.0.0.1"), &all_ramdisks()).unwrap();
    assert_eq!(found.driver, "ipmi");
    assert_eq!(found.info["ipmi_address"], "10.0.0.1");
    assert_eq!(found.info["ipmi_port"], "623");
}

#[test]
fn ipv6_addresses_keep_or_lose_their_brackets() {
    let ipmi = parse(&bmc("ipmi://[fd00::1]:6230"), &all_ramdisks()).unwrap();
    assert_eq!(
        (&ipmi.info["ipmi_address"], &ipmi.info["ipmi_port"]),
        (&json!("fd00::1"), &json!("6230"))
    );
    let plain = parse(&bmc("ipmi://[fd00::1]"), &all_ramdisks()).unwrap();
    assert_eq!(
        (&plain.info["ipmi_address"], &plain.info["ipmi_port"]),
        (&json!("fd00::1"), &json!("623"))
    );
    let redfish =
        parse(&bmc("redfish://[fd00::1]:8443/redfish/v1/Systems/1/"), &all_ramdisks()).unwrap();
    assert_eq!(redfish.info["redfish_address"], "https://[fd00::1]:8443");
    assert_eq!(redfish.info["redfish_system_id"], "/redfish/v1/Systems/1");
}

#[test]
fn bad_addresses_are_explained_with_a_remedy() {
    let refused = |address: &str| parse(&bmc(address), &all_ramdisks()).unwrap_err().to_string();
    insta::assert_snapshot!(
        [
            refused("irmc://10.0.0.1"),
            refused("redfish+ftp://10.0.0.1/redfish/v1/Systems/1"),
            refused("redfish://"),
            refused("ipmi://:623"),
            refused("redfish://10.0.0.1"),
            refused("redfish://10.0.0.1/"),
            refused("redfish://admin:opensesame@10.0.0.1/redfish/v1/Systems/1"),
        ]
        .join("\n")
    );
    assert!(!refused("redfish://admin:opensesame@10.0.0.1/x").contains("opensesame"));
}

#[test]
fn a_ramdisk_must_be_configured_for_the_boot_method() {
    let iso = HostSettings { deploy_iso: Some("iso".to_owned()), ..HostSettings::default() };
    let address = "redfish://10.0.0.1/redfish/v1/Systems/1";
    let error = parse(&bmc(address), &iso).unwrap_err();
    assert!(matches!(error, AddressError::Ramdisk(..)), "{error}");
    assert!(
        error.to_string().ends_with("start the operator with --deploy-kernel and --deploy-ramdisk")
    );
    let media = address.replace("redfish://", "redfish-virtualmedia://");
    parse(&bmc(&media), &iso).unwrap();
    let error = parse(&bmc(&media), &HostSettings::default()).unwrap_err();
    assert!(error.to_string().contains("--deploy-iso"), "{error}");
}

#[test]
fn certificate_verification_is_turned_off_on_request_only() {
    let mut bmc = bmc("redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/1");
    assert_eq!(parse(&bmc, &settings()).unwrap().info.get("redfish_verify_ca"), None);
    bmc.disable_certificate_verification = true;
    let driver = parse(&bmc, &settings()).unwrap();
    assert_eq!(driver.info["redfish_verify_ca"], json!(false));

    // And back: what the node has from before is removed, because Ironic would go by it.
    let mut found = driver.with_credentials("admin", "******");
    found.0.insert("deploy_kernel".to_owned(), "http://old".into());
    bmc.disable_certificate_verification = false;
    let strict = parse(&bmc, &settings()).unwrap();
    let paths = |renew: bool| -> Vec<String> {
        let ops = strict.changes(&found, "admin", PASSWORD, renew);
        ops.iter().map(|op| op.path().to_owned()).collect()
    };
    assert_eq!(paths(false), ["/driver_info/deploy_kernel", "/driver_info/redfish_verify_ca"]);
    assert!(paths(true).contains(&"/driver_info/redfish_password".to_owned()));
}

#[test]
fn boot_mode_and_architecture_become_properties() {
    assert_eq!(boot_capability(None), "boot_mode:uefi");
    assert_eq!(boot_capability(Some(&BootMode::Legacy)), "boot_mode:bios");
    let found = properties(Some(&BootMode::UefiSecureBoot), "aarch64");
    assert_eq!(
        Value::Object(found),
        json!({"capabilities": "boot_mode:uefi,secure_boot:true", "cpu_arch": "aarch64"})
    );
    assert_eq!(properties(None, "").get("cpu_arch"), None);
}

#[test]
fn only_the_boot_part_of_capabilities_changes() {
    use crate::bare_metal_host::driver::changed_capabilities;
    let changed = |found: Value, mode: Option<BootMode>| {
        changed_capabilities(Some(&found).filter(|found| !found.is_null()), mode.as_ref())
    };
    let text = |text: &str| Some(text.to_owned());
    let secure = Some(BootMode::UefiSecureBoot);
    assert_eq!(changed(json!(null), None), text("boot_mode:uefi"));
    assert_eq!(changed(json!(""), Some(BootMode::Legacy)), text("boot_mode:bios"));
    assert_eq!(changed(json!("boot_mode:uefi"), None), None);
    assert_eq!(changed(json!("raid_level:1, boot_mode:uefi,secure_boot:false"), None), None);
    assert_eq!(
        changed(json!("cpu_vt:true,boot_mode:bios,raid_level:1"), secure.clone()),
        text("boot_mode:uefi,secure_boot:true,cpu_vt:true,raid_level:1")
    );
    assert_eq!(
        changed(json!("boot_mode:uefi,secure_boot:true,raid_level:1"), Some(BootMode::Uefi)),
        text("boot_mode:uefi,raid_level:1")
    );
    assert_eq!(changed(json!({"boot_mode": "bios"}), secure), None, "of a form that is not known");
}
