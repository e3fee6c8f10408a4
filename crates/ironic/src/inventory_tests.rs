//! Tests: inventories of the agent and of a BMC.

use super::*;
use serde_json::json;

fn read(value: Value) -> Inventory {
    serde_json::from_value::<InventoryResponse>(value).unwrap().into()
}

#[test]
fn the_agents_inventory_is_read_in_full() {
    let found = read(json!({"inventory": {
        "cpu": {"model_name": "CPU", "frequency": "2000.0", "count": 8, "architecture": "x86_64",
            "flags": ["vmx"], "socket_count": 2},
        "memory": {"total": 34359738368_u64, "physical_mb": 32768},
        "disks": [{"name": "/dev/sdc", "model": "SSD", "size": 4294967296_u64, "rotational": false,
            "wwn": "0x60", "serial": "S", "vendor": "ACME", "wwn_with_extension": "0x60",
            "wwn_vendor_extension": "0x00", "hctl": "2:0:1:0", "by_path": "/dev/disk/by-path/p",
            "logical_sectors": 512, "physical_sectors": 4096, "tran": null}],
        "interfaces": [{"name": "eno1", "mac_address": "52:54:00:00:00:01", "has_carrier": true,
            "ipv4_address": "192.0.2.10", "ipv6_address": null, "lldp": [[1, "04112233"]],
            "driver": "e1000", "pci_address": "0000:00:03.0", "speed_mbps": -1}],
        "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:00:00:01"},
        "system_vendor": {"product_name": "P", "serial_number": "N", "manufacturer": "M",
            "firmware": {"vendor": "V", "version": "1", "build_date": "01/01/2026"}},
        "hostname": "host", "bmc_address": "192.0.2.2", "bmc_v6address": "::/0", "new": 1,
    }, "plugin_data": {"macs": ["52:54:00:00:00:01"]}}));
    assert_eq!(found.cpu.frequency.as_deref(), Some("2000.0"));
    assert_eq!(found.disks[0].physical_sectors, Some(4096));
    assert_eq!(found.interfaces[0].lldp[0][1], "04112233");
    assert_eq!(found.system_vendor.firmware.version.as_deref(), Some("1"));
    assert_eq!(found.plugin_data["macs"][0], "52:54:00:00:00:01");
}

#[test]
fn the_inventory_of_a_bmc_has_holes() {
    let found = read(json!({"inventory": {
        "memory": {"physical_mb": 65536}, "cpu": {"count": 8, "frequency": 2100},
        "disks": [{"name": "Drive 1", "size": 536870912000_u64, "rotational": true}],
        "interfaces": [{"mac_address": "00:5c:52:31:3a:01", "name": "00:5c:52:31:3a:01"}],
        "system_vendor": {"manufacturer": "M", "firmware": null}, "boot": null,
    }}));
    assert_eq!((found.memory.total, found.memory.physical_mb), (None, Some(65536)));
    assert_eq!(found.cpu.frequency.as_deref(), Some("2100"));
    assert_eq!(found.boot, Boot::default());
    assert_eq!(found.plugin_data, Value::Null);
}
