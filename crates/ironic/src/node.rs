//! Nodes and ports as Ironic returns and takes them, a node's history, and its validation.
//!
//! Reads leniently: only `uuid` is required, null is the default, unknown fields are ignored. Never
//! interprets; `driver_info` and `instance_info` may contain credentials and are guarded.
//! Next to read: `state.rs`, `raid.rs`, `call.rs`.

use crate::raid::RaidConfig;
use crate::secret::Guarded;
use crate::state::{PowerState, ProvisionState};
use crate::transport::Microversion;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Null counts as the default: Ironic returns null for most fields that were never set.
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A node of Ironic: one machine behind a BMC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub uuid: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub driver: String,
    /// Passwords are returned as asterisks.
    #[serde(default, deserialize_with = "null_default")]
    pub driver_info: Guarded,
    #[serde(default = "never_provisioned")]
    pub provision_state: ProvisionState,
    #[serde(default)]
    pub target_provision_state: Option<ProvisionState>,
    /// None: never read from the BMC.
    #[serde(default)]
    pub power_state: Option<PowerState>,
    #[serde(default)]
    pub target_power_state: Option<PowerState>,
    #[serde(default)]
    pub last_error: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub maintenance: bool,
    #[serde(default)]
    pub maintenance_reason: Option<String>,
    /// Why Ironic set maintenance itself: `clean failure`, `power failure`.
    #[serde(default)]
    pub fault: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub properties: Map<String, Value>,
    #[serde(default, deserialize_with = "null_default")]
    pub extra: Map<String, Value>,
    #[serde(default)]
    pub instance_uuid: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub instance_info: Guarded,
    /// As returned; [`Node::raid`] reads it. An echo of the request where the agent made the arrays.
    #[serde(default, deserialize_with = "null_default")]
    pub raid_config: Map<String, Value>,
    /// As returned; [`Node::target_raid`] reads it.
    #[serde(default, deserialize_with = "null_default")]
    pub target_raid_config: Map<String, Value>,
    #[serde(default)]
    pub bios_interface: Option<String>,
    #[serde(default)]
    pub boot_interface: Option<String>,
    #[serde(default)]
    pub console_interface: Option<String>,
    #[serde(default)]
    pub deploy_interface: Option<String>,
    #[serde(default)]
    pub firmware_interface: Option<String>,
    #[serde(default)]
    pub inspect_interface: Option<String>,
    #[serde(default)]
    pub management_interface: Option<String>,
    #[serde(default)]
    pub network_interface: Option<String>,
    #[serde(default)]
    pub power_interface: Option<String>,
    #[serde(default)]
    pub raid_interface: Option<String>,
    #[serde(default)]
    pub vendor_interface: Option<String>,
    /// None: Ironic's own setting applies.
    #[serde(default)]
    pub automated_clean: Option<bool>,
    /// None: this API version does not have it (before 1.95).
    #[serde(default)]
    pub disable_power_off: Option<bool>,
    /// The step that runs now; empty: none.
    #[serde(default, deserialize_with = "null_default")]
    pub clean_step: Map<String, Value>,
    /// The conductor that holds the node's lock; None: unlocked.
    #[serde(default)]
    pub reservation: Option<String>,
    #[serde(default)]
    pub resource_class: Option<String>,
    #[serde(default)]
    pub inspection_started_at: Option<Timestamp>,
    #[serde(default)]
    pub inspection_finished_at: Option<Timestamp>,
    #[serde(default)]
    pub provision_updated_at: Option<Timestamp>,
}

fn never_provisioned() -> ProvisionState {
    ProvisionState::Unknown(String::new())
}

/// What [`Node`] reads, in API version 1.89.
const FIELDS: &str = "uuid,name,driver,driver_info,provision_state,target_provision_state,\
    power_state,target_power_state,last_error,maintenance,maintenance_reason,fault,properties,\
    extra,instance_uuid,instance_info,raid_config,target_raid_config,bios_interface,\
    boot_interface,console_interface,deploy_interface,firmware_interface,inspect_interface,\
    management_interface,network_interface,power_interface,raid_interface,vendor_interface,\
    automated_clean,clean_step,reservation,resource_class,inspection_started_at,\
    inspection_finished_at,provision_updated_at";

impl Node {
    /// The value of `fields=` that returns what this type reads and nothing else. A field that the
    /// API version lacks would be refused with 406.
    pub fn fields(version: Microversion) -> String {
        let newer = if version >= Microversion::new(1, 95) { ",disable_power_off" } else { "" };
        format!("{FIELDS}{newer}")
    }

    /// The RAID configuration that Ironic recorded as applied.
    pub fn raid(&self) -> Result<RaidConfig, serde_json::Error> {
        serde_json::from_value(Value::Object(self.raid_config.clone()))
    }

    /// The RAID configuration that cleaning will apply.
    pub fn target_raid(&self) -> Result<RaidConfig, serde_json::Error> {
        serde_json::from_value(Value::Object(self.target_raid_config.clone()))
    }
}

/// A node to create. Fields that are None are left to Ironic's defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewNode {
    /// None: Ironic chooses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub driver: String,
    pub driver_info: Guarded,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bios_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deploy_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspect_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automated_clean: Option<bool>,
    /// Needs API version 1.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_power_off: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_uuid: Option<String>,
    #[serde(skip_serializing_if = "Guarded::is_empty")]
    pub instance_info: Guarded,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub properties: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// A network interface that Ironic knows; its MAC address is unique in Ironic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Port {
    pub uuid: String,
    pub address: String,
    #[serde(default)]
    pub node_uuid: Option<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub pxe_enabled: bool,
    #[serde(default, deserialize_with = "null_default")]
    pub extra: Map<String, Value>,
}

impl Port {
    /// The value of `fields=` that returns what this type reads.
    pub const FIELDS: &str = "uuid,address,node_uuid,pxe_enabled,extra";
}

/// A port to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewPort {
    pub node_uuid: String,
    pub address: String,
    pub pxe_enabled: bool,
}

/// One entry of a node's history: an error that `last_error` may have lost since, or the end of a
/// cleaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub uuid: String,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// `ERROR` or `INFO`.
    #[serde(default, deserialize_with = "null_default")]
    pub severity: String,
    /// `verify`, `introspection`, `cleaning`, …
    #[serde(default, deserialize_with = "null_default")]
    pub event_type: String,
    #[serde(default, deserialize_with = "null_default")]
    pub event: String,
}

impl HistoryEntry {
    pub fn is_error(&self) -> bool {
        self.severity == "ERROR"
    }
}

/// Whether each interface of a node is usable as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Validation(pub BTreeMap<String, Checked>);

/// The result for one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// None: the driver does not have this interface.
    #[serde(default)]
    pub result: Option<bool>,
    #[serde(default)]
    pub reason: Option<String>,
}

impl Validation {
    /// Why one of these interfaces is not usable; None: all are. An interface that is not listed
    /// counts as not usable.
    pub fn failure(&self, interfaces: &[&str]) -> Option<String> {
        let failed = |name: &&str| match self.0.get(*name) {
            Some(Checked { result: Some(true), .. }) => None,
            Some(Checked { reason: Some(reason), .. }) => Some(format!("{name}: {reason}")),
            Some(_) => Some(format!("{name}: not usable, no reason given")),
            None => Some(format!("{name}: not reported")),
        };
        interfaces.iter().find_map(failed)
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
