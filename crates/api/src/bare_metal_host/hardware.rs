//! Hardware as inspection found it: `status.hardware` of a host and `spec.hardware` of a HardwareData.
//!
//! Owns: plain data with upstream's fields. Never joins it with what nodes report. Next to read: `../hardware_data.rs`.

use super::{
    schema::{
        MAC, empty_as_none, fields, is_false, is_zero, is_zero_f64, is_zero_i32, plain_integers,
    },
    values::DiskType,
};
use crate::null_as_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a host consists of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = fields(&[], &[]), transform = plain_integers)]
pub struct HardwareDetails {
    /// Manufacturer, product and serial number of the host.
    #[serde(default)]
    pub system_vendor: HardwareSystemVendor,
    /// Firmware of the host.
    #[serde(default)]
    pub firmware: Firmware,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ram_mebibytes: i64,
    /// Network interfaces; one entry per IP address.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub nics: Vec<Nic>,
    /// Disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub storage: Vec<Storage>,
    /// Processors.
    #[serde(default)]
    pub cpu: Cpu,
    /// Host name that the ramdisk had during inspection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareSystemVendor {
    /// Who built the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manufacturer: String,
    /// The model of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub product_name: String,
    /// The serial number of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = fields(&[], &[]))]
pub struct Firmware {
    /// The BIOS or UEFI firmware.
    #[serde(default)]
    pub bios: Bios,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bios {
    /// Release date.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub date: String,
    /// Who built it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    /// Version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = fields(&[], &[]), transform = plain_integers)]
pub struct Cpu {
    /// Architecture, such as `x86_64`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arch: String,
    /// Model of the processors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Clock rate in MHz.
    #[serde(default, skip_serializing_if = "is_zero_f64")]
    pub clock_megahertz: f64,
    /// Features that the kernel lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub flags: Vec<String>,
    /// Number of processors that the kernel sees.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: i64,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// A device name of the disk, below /dev/disk/by-path if it has one there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Other device names of the disk at the time of inspection; they may change with a reboot.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub alternate_names: Vec<String>,
    /// Whether the disk rotates. `type` says more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rotational: bool,
    /// HDD, SSD or NVME.
    #[serde(
        default,
        rename = "type",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_as_none"
    )]
    pub disk_type: Option<DiskType>,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size_bytes: i64,
    /// Vendor of the disk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    /// Model of the disk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Serial number of the disk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
    /// World Wide Name of the disk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn: String,
    /// The vendor's extension of the World Wide Name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn_vendor_extension: String,
    /// World Wide Name with the extension.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn_with_extension: String,
    /// SCSI address (host, channel, target, LUN).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hctl: String,
}

/// One address of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = plain_integers)]
pub struct Nic {
    /// Name of the interface, such as `eno1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Vendor and product ID, such as `0x8086 0x1572`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// MAC address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = MAC))]
    pub mac: String,
    /// IPv4 or IPv6 address. An interface with both has two entries.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ip: String,
    /// Speed in Gbit/s.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub speed_gbps: i64,
    /// VLANs of the switch port.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub vlans: Vec<Vlan>,
    /// The untagged VLAN.
    #[serde(default, skip_serializing_if = "is_zero_i32")]
    #[schemars(range(min = 0, max = 4094))]
    pub vlan_id: i32,
    /// Whether the host boots from this interface.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pxe: bool,
    /// What the switch announced over LLDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lldp: Option<Lldp>,
    /// PCI address of the interface.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pci_address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Vlan {
    /// Number of the VLAN.
    #[serde(default, skip_serializing_if = "is_zero_i32")]
    #[schemars(range(min = 0, max = 4094))]
    pub id: i32,
    /// Name of the VLAN.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lldp {
    /// ID of the switch.
    #[serde(default, rename = "switchID", skip_serializing_if = "String::is_empty")]
    pub switch_id: String,
    /// ID of the switch port.
    #[serde(default, rename = "portID", skip_serializing_if = "String::is_empty")]
    pub port_id: String,
    /// Name of the switch.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub switch_system_name: String,
}
