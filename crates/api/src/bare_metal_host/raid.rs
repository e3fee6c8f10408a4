//! RAID settings: what the user wrote, and the one form that the rest of the code works on.
//!
//! Owns: volumes, levels, the difference between null and an empty list, both spellings. Never validates; see
//! `raid_rules.rs`.

use super::{
    RootDeviceHints, raid_rules,
    schema::{fields, is_false, nullable_list, plain_integers},
};
use crate::null_as_default;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;
use std::{borrow::Cow, fmt};

/// A list in which null and `[]` differ: upstream writes null for "leave as it is" and reads `[]` as "remove".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RaidList<T> {
    /// The field is missing; leave as it is.
    #[default]
    Absent,
    /// The field is null; leave as it is.
    Null,
    /// Create these; an empty list removes what exists.
    List(Vec<T>),
}

impl<T> RaidList<T> {
    /// The list, if the user requested one. `None`: leave as it is.
    pub fn requested(&self) -> Option<&[T]> {
        match self {
            RaidList::Absent | RaidList::Null => None,
            RaidList::List(volumes) => Some(volumes),
        }
    }

    pub fn is_absent(&self) -> bool {
        matches!(self, RaidList::Absent)
    }

    /// The first of two spellings that requests a list.
    fn or<'a>(&'a self, other: &'a Self) -> &'a Self {
        match (self, other) {
            (RaidList::List(_), _) | (_, RaidList::Absent) => self,
            (RaidList::Absent, other) | (RaidList::Null, other @ RaidList::List(_)) => other,
            (RaidList::Null, RaidList::Null) => self,
        }
    }
}

impl<T: Serialize> Serialize for RaidList<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.requested().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for RaidList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read: Option<Vec<T>> = Deserialize::deserialize(deserializer)?;
        Ok(read.map_or(RaidList::Null, RaidList::List))
    }
}

impl<T: JsonSchema> JsonSchema for RaidList<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("RaidList{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        nullable_list::<T>(generator)
    }
    fn inline_schema() -> bool {
        true
    }
}

/// A RAID level as its canonical text, such as `1+0`. An integer is accepted too: `level: 1` is what YAML makes of an
/// unquoted level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RaidLevel(pub String);

/// Levels of hardware RAID.
pub const HARDWARE_LEVELS: [&str; 8] = ["0", "1", "2", "5", "6", "1+0", "5+0", "6+0"];
/// Levels of software RAID.
pub const SOFTWARE_LEVELS: [&str; 3] = ["0", "1", "1+0"];
/// Length of the name of a volume.
pub const MAX_NAME: usize = 64;
/// Volumes of software RAID on one host: the ramdisk builds no more.
pub const MAX_SOFTWARE_VOLUMES: usize = 2;

impl RaidLevel {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RaidLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RaidLevel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RaidLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = RaidLevel;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a RAID level such as \"1+0\" or 1")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RaidLevel, E> {
                Ok(RaidLevel(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<RaidLevel, E> {
                Ok(RaidLevel(number.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RaidLevel, E> {
                Ok(RaidLevel(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Each level as text, and as a number where it is one.
fn levels(allowed: &[&str]) -> Schema {
    let numbers = allowed.iter().filter_map(|level| level.parse::<i64>().ok());
    let all: Vec<_> =
        allowed.iter().map(|level| json!(level)).chain(numbers.map(|n| json!(n))).collect();
    json_schema!({"x-kubernetes-int-or-string": true, "enum": all})
}

fn hardware_level(_: &mut SchemaGenerator) -> Schema {
    levels(&HARDWARE_LEVELS)
}

fn software_level(_: &mut SchemaGenerator) -> Schema {
    levels(&SOFTWARE_LEVELS)
}

/// One logical disk of a RAID controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = fields(&["level"], &[]), transform = plain_integers)]
pub struct HardwareRaidVolume {
    /// Size in GiB. Absent or 0: as large as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size_gibibytes: Option<i64>,
    /// RAID level: 0, 1, 2, 5, 6, 1+0, 5+0 or 6+0. A driver may support only some of them.
    #[schemars(schema_with = "hardware_level")]
    pub level: RaidLevel,
    /// Name of the volume, unique within the host. Absent: generated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub name: String,
    /// Only rotational disks (true) or only solid-state ones (false). Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// How many physical disks to use. Absent: as few as the level needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub number_of_physical_disks: Option<i64>,
    /// Name of the RAID controller, as the BMC names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub controller: String,
    /// Names of the physical disks, as the BMC names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub physical_disks: Vec<String>,
}

/// One array of the kernel's software RAID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = fields(&["level"], &["rootVolume"]), transform = plain_integers)]
pub struct SoftwareRaidVolume {
    /// The image is written to this volume. Of at most one volume.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub root_volume: bool,
    /// Size in GiB. Absent or 0: as large as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size_gibibytes: Option<i64>,
    /// RAID level: 0, 1 or 1+0.
    #[schemars(schema_with = "software_level")]
    pub level: RaidLevel,
    /// Which disks to use, each by hints: at least two. Absent: all disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(length(min = 2))]
    pub physical_disks: Vec<RootDeviceHints>,
}

/// `spec.raid`: the upstream spelling and the short one. `config` gives the one that holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = fields(&[], &[]), transform = raid_rules::lists)]
pub struct RaidSpec {
    /// Logical disks of RAID controllers. Absent or null: left as they are; `[]`: all are removed.
    #[serde(default, rename = "hardwareRAIDVolumes", skip_serializing_if = "RaidList::is_absent")]
    pub hardware_raid_volumes: RaidList<HardwareRaidVolume>,
    /// Arrays of software RAID. Absent or null: left as they are; `[]`: all are removed.
    #[serde(default, rename = "softwareRAIDVolumes", skip_serializing_if = "RaidList::is_absent")]
    #[schemars(length(max = 2))]
    pub software_raid_volumes: RaidList<SoftwareRaidVolume>,
    /// Another spelling of `hardwareRAIDVolumes`, which wins when both are given.
    #[serde(default, rename = "hardwareVolumes", skip_serializing_if = "RaidList::is_absent")]
    pub hardware_volumes: RaidList<HardwareRaidVolume>,
    /// Another spelling of `softwareRAIDVolumes`, which wins when both are given.
    #[serde(default, rename = "softwareVolumes", skip_serializing_if = "RaidList::is_absent")]
    #[schemars(length(max = 2))]
    pub software_volumes: RaidList<SoftwareRaidVolume>,
}

impl RaidSpec {
    /// The settings that hold, in the upstream spelling.
    pub fn config(&self) -> RaidConfig {
        RaidConfig {
            hardware_raid_volumes: self.hardware_raid_volumes.or(&self.hardware_volumes).clone(),
            software_raid_volumes: self.software_raid_volumes.or(&self.software_volumes).clone(),
        }
    }
}

/// RAID settings in the upstream spelling: `status.provisioning.raid`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = fields(&[], &[]))]
pub struct RaidConfig {
    /// Logical disks of RAID controllers.
    #[serde(default, rename = "hardwareRAIDVolumes", skip_serializing_if = "RaidList::is_absent")]
    pub hardware_raid_volumes: RaidList<HardwareRaidVolume>,
    /// Arrays of software RAID.
    #[serde(default, rename = "softwareRAIDVolumes", skip_serializing_if = "RaidList::is_absent")]
    #[schemars(length(max = 2))]
    pub software_raid_volumes: RaidList<SoftwareRaidVolume>,
}
