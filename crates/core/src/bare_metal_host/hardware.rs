//! Hardware as Ironic's inventory shows it, in the fields of upstream.

use quarry_api::bare_metal_host::{
    DiskType, HardwareDetails,
    hardware::{Bios, Cpu, Firmware, HardwareSystemVendor, Lldp, Nic, Storage, Vlan},
};
use quarry_ironic::{
    Inventory,
    inventory::{Disk, Interface},
};
use serde_json::Value;

/// The inventory with the units and spellings of upstream.
pub fn details(inventory: &Inventory) -> HardwareDetails {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let vendor = &inventory.system_vendor;
    let ram = inventory.memory.physical_mb.or(inventory.memory.total.map(|bytes| bytes >> 20));
    HardwareDetails {
        system_vendor: HardwareSystemVendor {
            manufacturer: text(&vendor.manufacturer),
            product_name: text(&vendor.product_name),
            serial_number: text(&vendor.serial_number),
        },
        firmware: Firmware {
            bios: Bios {
                date: text(&vendor.firmware.build_date),
                vendor: text(&vendor.firmware.vendor),
                version: text(&vendor.firmware.version),
            },
        },
        ram_mebibytes: ram.map_or(0, signed),
        nics: nics(inventory),
        storage: inventory.disks.iter().map(storage).collect(),
        cpu: cpu(inventory),
        hostname: text(&inventory.hostname),
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn cpu(inventory: &Inventory) -> Cpu {
    let cpu = &inventory.cpu;
    let mut flags = cpu.flags.clone();
    flags.sort();
    flags.dedup();
    let megahertz = cpu.frequency.as_deref().and_then(|text| text.trim().parse::<f64>().ok());
    Cpu {
        arch: cpu.architecture.clone().unwrap_or_default(),
        model: cpu.model_name.clone().unwrap_or_default(),
        clock_megahertz: megahertz.filter(|value| value.is_finite()).unwrap_or_default(),
        flags,
        count: cpu.count.map_or(0, signed),
    }
}

/// One entry per address: an interface may have one of each family, or none.
fn nics(inventory: &Inventory) -> Vec<Nic> {
    let boot = inventory.boot.pxe_interface.as_deref().unwrap_or_default();
    // The boot interface may be given with the type of the hardware in front: 01-aa-bb-….
    let boot = boot.rsplit_once("01-").map_or(boot, |(_, mac)| mac).replace('-', ":");
    let mut all = Vec::new();
    for interface in &inventory.interfaces {
        let addresses = [&interface.ipv4_address, &interface.ipv6_address];
        let addresses: Vec<&str> = addresses
            .into_iter()
            .filter_map(|address| address.as_deref().filter(|text| !text.is_empty()))
            .collect();
        let addresses = if addresses.is_empty() { vec![""] } else { addresses };
        all.extend(addresses.into_iter().map(|address| nic(interface, address, &boot)));
    }
    all
}

fn nic(interface: &Interface, address: &str, boot: &str) -> Nic {
    let mac = interface.mac_address.clone().unwrap_or_default();
    let pair =
        [&interface.vendor, &interface.product].map(|part| part.as_deref().unwrap_or_default());
    let (lldp, vlans, vlan_id) = parse_lldp(&interface.lldp);
    Nic {
        name: interface.name.clone(),
        model: pair.join(" ").trim().to_owned(),
        pxe: !boot.is_empty() && mac.eq_ignore_ascii_case(boot),
        mac,
        ip: address.to_owned(),
        speed_gbps: interface.speed_mbps.filter(|speed| *speed > 0).map_or(0, |speed| speed / 1000),
        vlans,
        vlan_id,
        lldp,
        pci_address: interface.pci_address.clone().unwrap_or_default(),
    }
}

fn storage(disk: &Disk) -> Storage {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    // A name by path survives a reboot; that of the kernel does not.
    let (name, others) = match disk.by_path.as_deref().filter(|path| !path.is_empty()) {
        Some(path) => (path.to_owned(), vec![disk.name.clone(), path.to_owned()]),
        None => (disk.name.clone(), vec![disk.name.clone()]),
    };
    let rotational = disk.rotational.unwrap_or_default();
    let is_nvme = disk.name.starts_with("/dev/nvme") || disk.tran.as_deref() == Some("nvme");
    let disk_type = match (is_nvme, rotational) {
        (true, _) => DiskType::Nvme,
        (false, true) => DiskType::Hdd,
        (false, false) => DiskType::Ssd,
    };
    Storage {
        name,
        alternate_names: others,
        rotational,
        disk_type: Some(disk_type),
        size_bytes: disk.size.map_or(0, signed),
        vendor: text(&disk.vendor),
        model: text(&disk.model),
        serial_number: text(&disk.serial),
        wwn: text(&disk.wwn),
        wwn_vendor_extension: text(&disk.wwn_vendor_extension),
        wwn_with_extension: text(&disk.wwn_with_extension),
        hctl: text(&disk.hctl),
    }
}

/// Types of LLDP values.
const CHASSIS_ID: u64 = 1;
const PORT_ID: u64 = 2;
const SYSTEM_NAME: u64 = 5;
const ORGANIZATION: u64 = 127;
/// IEEE 802.1: the port's VLAN, and the name of one.
const IEEE_8021: [u8; 3] = [0x00, 0x80, 0xc2];

/// From pairs of type and value in hexadecimal digits. What cannot be read is left out: the switch wrote it.
fn parse_lldp(pairs: &Value) -> (Option<Lldp>, Vec<Vlan>, i32) {
    let mut lldp = Lldp::default();
    let (mut vlans, mut vlan_id) = (Vec::new(), 0);
    for pair in pairs.as_array().into_iter().flatten() {
        let kind = pair.get(0).and_then(Value::as_u64);
        let Some(bytes) = pair.get(1).and_then(Value::as_str).and_then(parse_hex) else { continue };
        match (kind, bytes.as_slice()) {
            (Some(CHASSIS_ID), [subtype, value @ ..]) => {
                lldp.switch_id = identifier(*subtype == 4, value)
            }
            (Some(PORT_ID), [subtype, value @ ..]) => {
                lldp.port_id = identifier(*subtype == 3, value)
            }
            (Some(SYSTEM_NAME), value) => lldp.switch_system_name = printable(value),
            (Some(ORGANIZATION), [a, b, c, 1, high, low, ..]) if [*a, *b, *c] == IEEE_8021 => {
                vlan_id = i32::from(u16::from_be_bytes([*high, *low]) & 0x0fff);
            }
            (Some(ORGANIZATION), [a, b, c, 3, high, low, length, name @ ..])
                if [*a, *b, *c] == IEEE_8021 && name.len() >= usize::from(*length) =>
            {
                let id = i32::from(u16::from_be_bytes([*high, *low]) & 0x0fff);
                vlans.push(Vlan { id, name: printable(&name[..usize::from(*length)]) });
            }
            _ => {}
        }
    }
    ((lldp != Lldp::default()).then_some(lldp), vlans, vlan_id)
}

/// A MAC address, or text.
fn identifier(is_mac: bool, value: &[u8]) -> String {
    if is_mac && value.len() == 6 {
        return value.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    }
    printable(value)
}

fn printable(value: &[u8]) -> String {
    String::from_utf8_lossy(value).chars().filter(|one| !one.is_control()).collect()
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
