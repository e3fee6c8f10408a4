//! RAID configurations, as they are requested and as they come back.
//!
//! Never judges one: what a driver can do is checked by the planner, and Ironic validates only the
//! form. Next to read: `node.rs`, `call.rs`.

use crate::node::null_default;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// The logical disks of a node. Empty is written as `{}`, which clears the target: Ironic refuses
/// an empty list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RaidConfig {
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub logical_disks: Vec<LogicalDisk>,
}

/// One RAID volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogicalDisk {
    pub size_gb: SizeGb,
    /// `0`, `1`, `5`, `6`, `1+0`, `5+0`, `6+0`, …
    pub raid_level: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// Redfish returns the volume's name here. Never part of a request.
    #[serde(default, skip_serializing)]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_root_volume: Option<bool>,
    /// `hdd` or `ssd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_of_physical_disks: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_disks: Option<PhysicalDisks>,
}

impl LogicalDisk {
    pub fn new(raid_level: impl Into<String>, size_gb: SizeGb) -> Self {
        Self {
            size_gb,
            raid_level: raid_level.into(),
            volume_name: None,
            name: None,
            is_root_volume: None,
            disk_type: None,
            number_of_physical_disks: None,
            controller: None,
            physical_disks: None,
        }
    }
}

/// Named disks (hardware RAID), or hints that each match one (software RAID).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PhysicalDisks {
    Names(Vec<String>),
    Hints(Vec<Map<String, Value>>),
}

/// Size of a volume in GiB, or the rest of the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeGb {
    Gib(u64),
    Max,
}

impl Serialize for SizeGb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Gib(size) => serializer.serialize_u64(*size),
            Self::Max => serializer.serialize_str("MAX"),
        }
    }
}

impl<'de> Deserialize<'de> for SizeGb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_u64(), value.as_str()) {
            (Some(size), _) => Ok(Self::Gib(size)),
            (None, Some("MAX")) => Ok(Self::Max),
            _ => Err(serde::de::Error::custom(format!("size_gb is {value}, not a size or MAX"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cleared_target_is_an_empty_object() {
        assert_eq!(serde_json::to_value(RaidConfig::default()).unwrap(), json!({}));
    }

    #[test]
    fn a_request_has_only_what_was_set() {
        let mut disk = LogicalDisk::new("1", SizeGb::Max);
        disk.controller = Some("software".to_owned());
        let hint = json!({"serial": "A"}).as_object().unwrap().clone();
        disk.physical_disks = Some(PhysicalDisks::Hints(vec![hint.clone(), hint]));
        let body = serde_json::to_value(RaidConfig { logical_disks: vec![disk.clone()] }).unwrap();
        let expected = json!({"logical_disks": [{
            "size_gb": "MAX", "raid_level": "1", "controller": "software",
            "physical_disks": [{"serial": "A"}, {"serial": "A"}],
        }]});
        assert_eq!(body, expected);
        let read: RaidConfig = serde_json::from_value(body).unwrap();
        assert_eq!(read.logical_disks, [disk]);
    }

    #[test]
    fn what_redfish_returns_is_read() {
        let returned = json!({"logical_disks": [{
            "id": "1", "name": "root", "controller": "1", "raid_level": "1", "size_gb": 50,
            "physical_disks": ["d1", "d2"],
        }], "last_updated": "2026-11-17 23:03:17.972029"});
        let read: RaidConfig = serde_json::from_value(returned).unwrap();
        let disk = &read.logical_disks[0];
        assert_eq!((disk.name.as_deref(), disk.size_gb), (Some("root"), SizeGb::Gib(50)));
        let names = PhysicalDisks::Names(vec!["d1".to_owned(), "d2".to_owned()]);
        assert_eq!(disk.physical_disks, Some(names));
    }
}
