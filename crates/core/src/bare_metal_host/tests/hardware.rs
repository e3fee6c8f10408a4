use super::*;
use crate::bare_metal_host::hardware::details;
use quarry_api::bare_metal_host::DiskType;

fn from(inventory: Value) -> quarry_api::bare_metal_host::HardwareDetails {
    details(&serde_json::from_value(inventory).unwrap())
}

#[test]
fn a_whole_inventory_is_converted() {
    let found = from(json!({
        "hostname": "node-1", "bmc_address": "10.0.0.1",
        "cpu": {"architecture": "x86_64", "count": 32, "model_name": "CPU X", "frequency": "2400.5", "flags": ["sse", "aes", "sse"]},
        "memory": {"total": 67_000_000_000_u64, "physical_mb": 65536},
        "system_vendor": {
            "manufacturer": "ACME", "product_name": "1U", "serial_number": "SN1",
            "firmware": {"vendor": "ACME", "version": "1.2", "build_date": "01/02/2026"},
        },
        "boot": {"pxe_interface": "01-52-54-00-1a-b0-01"},
        "interfaces": [
            {"name": "eno1", "mac_address": MAC, "ipv4_address": "192.0.2.1", "ipv6_address": "2001:db8::1", "speed_mbps": 25000,
             "vendor": "0x8086", "product": "0x1572", "pci_address": "0000:3b:00.0",
             "lldp": [[1, "0452540000ffee"], [2, "0545746831"], [5, "73772d31"], [127, "0080c2010064"], [127, "0080c203006504766f6963"], [9, "zz"]]},
            {"name": "eno2", "mac_address": "52:54:00:00:00:02", "speed_mbps": -1},
        ],
        "disks": [
            {"name": "/dev/sda", "by_path": "/dev/disk/by-path/pci-0:1", "size": 4_000_787_030_016_u64, "rotational": true,
             "wwn": "0x5000", "wwn_with_extension": "0x50001", "wwn_vendor_extension": "0x1", "serial": "A1", "vendor": "ACME",
             "model": "HDD", "hctl": "0:0:0:0", "tran": "sas"},
            {"name": "/dev/nvme0n1", "size": 512, "rotational": false, "serial": "N1"},
            {"name": "/dev/sdb"},
        ],
    }));
    insta::assert_json_snapshot!(found);
}

#[test]
fn an_empty_inventory_is_empty_hardware() {
    let found = from(json!({"cpu": null, "disks": null, "interfaces": null, "memory": null}));
    assert_eq!(found, quarry_api::bare_metal_host::HardwareDetails::default());
}

#[test]
fn disk_types_follow_name_transport_and_rotation() {
    let of = |disk: Value| from(json!({"disks": [disk]})).storage[0].disk_type.clone().unwrap();
    assert_eq!(of(json!({"name": "/dev/nvme0n1", "rotational": false})), DiskType::Nvme);
    assert_eq!(
        of(json!({"name": "/dev/dm-0", "tran": "nvme", "rotational": true})),
        DiskType::Nvme
    );
    assert_eq!(of(json!({"name": "/dev/sda", "rotational": true})), DiskType::Hdd);
    assert_eq!(of(json!({"name": "/dev/sda", "rotational": false})), DiskType::Ssd);
}

#[test]
fn numbers_that_do_not_fit_are_no_panic() {
    let found = from(json!({
        "cpu": {"count": u64::MAX, "frequency": "NaN"},
        "disks": [{"name": "a", "size": u64::MAX}],
        "memory": {"total": u64::MAX},
    }));
    assert_eq!((found.cpu.count, found.cpu.clock_megahertz), (i64::MAX, 0.0));
    assert_eq!(found.storage[0].size_bytes, i64::MAX);
    assert_eq!(found.ram_mebibytes, i64::try_from(u64::MAX >> 20).unwrap());
}

#[test]
fn what_a_switch_announces_cannot_break_the_inspection() {
    let lldp = json!([
        [1],
        [1, 5],
        ["x", "00"],
        [1, "0"],
        [2, "07ff"],
        [127, "0080c203"],
        [127, "0080c20300ffff41"],
        null
    ]);
    let found = from(json!({"interfaces": [{"name": "e", "lldp": lldp}]}));
    assert_eq!(found.nics[0].vlans, []);
}
