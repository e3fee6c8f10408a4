//! What inspection found, as the agent or the BMC reported it.
//!
//! Reads leniently: every field may be missing (the BMC reports far fewer than the agent), unknown
//! ones are ignored. Never converts units or spellings; that is the planner's subject.
//! Next to read: `client.rs`.

use crate::node::null_default;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The inventory of a node, with the data that Ironic's hooks added.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    #[serde(default, deserialize_with = "null_default")]
    pub cpu: Cpu,
    #[serde(default, deserialize_with = "null_default")]
    pub memory: Memory,
    #[serde(default, deserialize_with = "null_default")]
    pub disks: Vec<Disk>,
    #[serde(default, deserialize_with = "null_default")]
    pub interfaces: Vec<Interface>,
    #[serde(default, deserialize_with = "null_default")]
    pub boot: Boot,
    #[serde(default, deserialize_with = "null_default")]
    pub system_vendor: SystemVendor,
    /// Only in an inspection by the BMC, and only of an Ironic that lists them (38 and later).
    #[serde(default, deserialize_with = "null_default")]
    pub storage_controllers: Vec<StorageController>,
    #[serde(default)]
    pub hostname: Option<String>,
    #[serde(default)]
    pub bmc_address: Option<String>,
    #[serde(default)]
    pub bmc_v6address: Option<String>,
    /// Beside the inventory in the answer; as it arrives.
    #[serde(skip)]
    pub plugin_data: Value,
}

/// The whole answer of `GET /v1/nodes/ID/inventory`.
#[cfg(any(feature = "client", test))]
#[derive(Deserialize)]
pub(crate) struct InventoryResponse {
    inventory: Inventory,
    #[serde(default)]
    plugin_data: Value,
}

#[cfg(any(feature = "client", test))]
impl From<InventoryResponse> for Inventory {
    fn from(response: InventoryResponse) -> Self {
        Self { plugin_data: response.plugin_data, ..response.inventory }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    #[serde(default)]
    pub model_name: Option<String>,
    /// In MHz, as text: the agent sends `2000.0`.
    #[serde(default, deserialize_with = "text_or_number")]
    pub frequency: Option<String>,
    #[serde(default)]
    pub count: Option<u64>,
    #[serde(default)]
    pub socket_count: Option<u64>,
    #[serde(default)]
    pub architecture: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub flags: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes that the kernel of the ramdisk sees.
    #[serde(default)]
    pub total: Option<u64>,
    /// MiB of the modules.
    #[serde(default)]
    pub physical_mb: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    #[serde(default, deserialize_with = "null_default")]
    pub name: String,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub vendor: Option<String>,
    #[serde(default)]
    pub serial: Option<String>,
    /// Bytes.
    #[serde(default)]
    pub size: Option<u64>,
    #[serde(default)]
    pub rotational: Option<bool>,
    #[serde(default)]
    pub wwn: Option<String>,
    #[serde(default)]
    pub wwn_with_extension: Option<String>,
    #[serde(default)]
    pub wwn_vendor_extension: Option<String>,
    #[serde(default)]
    pub hctl: Option<String>,
    #[serde(default)]
    pub by_path: Option<String>,
    #[serde(default)]
    pub logical_sectors: Option<u64>,
    #[serde(default)]
    pub physical_sectors: Option<u64>,
    /// `sata`, `nvme`, `iscsi`, …
    #[serde(default)]
    pub tran: Option<String>,
    #[serde(default)]
    pub uuid: Option<String>,
}

/// A RAID controller, as the BMC names it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageController {
    #[serde(default, deserialize_with = "null_default")]
    pub id: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub drives: Vec<Drive>,
}

/// A physical disk behind a controller. The operating system may not see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    #[serde(default)]
    pub id: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
    /// Bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// `HDD`, `SSD`, …
    #[serde(default)]
    pub media_type: Option<String>,
    /// `health` and `state`.
    #[serde(default, deserialize_with = "null_default")]
    pub status: DriveStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveStatus {
    #[serde(default)]
    pub health: Option<String>,
    #[serde(default)]
    pub state: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    #[serde(default, deserialize_with = "null_default")]
    pub name: String,
    #[serde(default)]
    pub mac_address: Option<String>,
    #[serde(default)]
    pub ipv4_address: Option<String>,
    #[serde(default)]
    pub ipv6_address: Option<String>,
    #[serde(default)]
    pub has_carrier: Option<bool>,
    #[serde(default)]
    pub vendor: Option<String>,
    #[serde(default)]
    pub product: Option<String>,
    #[serde(default)]
    pub driver: Option<String>,
    #[serde(default)]
    pub pci_address: Option<String>,
    #[serde(default)]
    pub speed_mbps: Option<i64>,
    #[serde(default)]
    pub client_id: Option<String>,
    #[serde(default)]
    pub biosdevname: Option<String>,
    /// Pairs of a type and its value in hexadecimal digits, as received; null: not collected.
    #[serde(default)]
    pub lldp: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// `uefi` or `bios`.
    #[serde(default)]
    pub current_boot_mode: Option<String>,
    /// MAC address of the interface that the ramdisk was booted from.
    #[serde(default)]
    pub pxe_interface: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemVendor {
    #[serde(default)]
    pub manufacturer: Option<String>,
    #[serde(default)]
    pub product_name: Option<String>,
    #[serde(default)]
    pub serial_number: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub firmware: Firmware,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Firmware {
    #[serde(default)]
    pub vendor: Option<String>,
    #[serde(default)]
    pub version: Option<String>,
    #[serde(default)]
    pub build_date: Option<String>,
}

fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(other) => return Err(serde::de::Error::custom(format!("{other} is not a number"))),
    })
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
