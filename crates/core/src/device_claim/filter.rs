//! Which devices a LocalVolumeSet matches: its inclusion and exclusion specs, parsed once.
//!
//! Only what a device *is* counts here; whether it may be used is its verdict (`crate::device::verdict`).

use super::glob::Glob;
use quarry_api::{
    local_volume_set::{DeviceInclusionSpec, LocalVolumeSetSpec},
    node_inventory::Device,
    quantity::{Bytes, Quantity},
    validate::Problem,
};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceType {
    Disk,
    Part,
    Loop,
    Mpath,
    Lvm,
    /// An md array of any level.
    Raid,
}

impl DeviceType {
    /// Both vocabularies, ignoring case.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "disk" | "rawdisk" => DeviceType::Disk,
            "part" | "partition" => DeviceType::Part,
            "loop" => DeviceType::Loop,
            "mpath" => DeviceType::Mpath,
            "lvm" => DeviceType::Lvm,
            "raid" => DeviceType::Raid,
            _ => return None,
        })
    }

    /// As lsblk names it, but for arrays: `raid1` and others are `raid`.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceType::Disk => "disk",
            DeviceType::Part => "part",
            DeviceType::Loop => "loop",
            DeviceType::Mpath => "mpath",
            DeviceType::Lvm => "lvm",
            DeviceType::Raid => "raid",
        }
    }

    /// Whether a device is of this type.
    fn is(self, kind: &str) -> bool {
        match self {
            DeviceType::Raid => crate::host_join::raid::level(kind).is_some(),
            DeviceType::Disk
            | DeviceType::Part
            | DeviceType::Loop
            | DeviceType::Mpath
            | DeviceType::Lvm => kind == self.as_str(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    pub types: Vec<DeviceType>,
    /// `None`: both.
    pub rotational: Option<bool>,
    pub min: Bytes,
    pub max: Option<Bytes>,
    /// Folded (`fold`); empty: any.
    pub models: Vec<String>,
    pub vendors: Vec<String>,
    pub excluded: Vec<Glob>,
}

/// Why a device does not match the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    Type(String),
    Rotational(bool),
    TooSmall(Bytes),
    TooLarge(Bytes),
    Model(Option<String>),
    Vendor(Option<String>),
    Excluded(String),
}

impl Mismatch {
    /// The field of the spec that does not match.
    pub fn field(&self) -> &'static str {
        match self {
            Mismatch::Type(_) => "deviceTypes",
            Mismatch::Rotational(_) => "deviceMechanicalProperties",
            Mismatch::TooSmall(_) => "minSize",
            Mismatch::TooLarge(_) => "maxSize",
            Mismatch::Model(_) => "models",
            Mismatch::Vendor(_) => "vendors",
            Mismatch::Excluded(_) => "deviceNameFilter",
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |text: &Option<String>| {
            text.as_ref().map_or_else(|| "it has none".to_owned(), |text| format!("it is {text:?}"))
        };
        match self {
            Mismatch::Type(kind) => write!(f, "its type {kind} does not match"),
            Mismatch::Rotational(true) => f.write_str("it is rotational"),
            Mismatch::Rotational(false) => f.write_str("it is not rotational"),
            Mismatch::TooSmall(min) => write!(f, "it is smaller than {min}"),
            Mismatch::TooLarge(max) => write!(f, "it is larger than {max}"),
            Mismatch::Model(model) => write!(f, "its model does not match: {}", named(model)),
            Mismatch::Vendor(vendor) => write!(f, "its vendor does not match: {}", named(vendor)),
            Mismatch::Excluded(pattern) => write!(f, "its name matches the exclusion {pattern}"),
        }
    }
}

/// The default of `minSize` in an inclusion spec, as upstream.
const DEFAULT_MIN: Bytes = Bytes(1 << 30);

impl Filter {
    pub fn read(spec: &LocalVolumeSetSpec) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let excluded =
            spec.device_exclusion_spec.as_ref().and_then(|spec| spec.device_name_filter.as_ref());
        let excluded =
            excluded.into_iter().flatten().filter_map(|pattern| match Glob::parse(pattern) {
                Ok(glob) => Some(glob),
                Err(wrong) => {
                    let allowed = "use *, ?, [a-c] and [^a] as in sd[a-c]*".to_owned();
                    problems.push(Problem {
                        field: "spec.deviceExclusionSpec.deviceNameFilter",
                        wrong: format!("the pattern {pattern:?} {wrong}"),
                        allowed,
                    });
                    None
                }
            });
        let excluded: Vec<Glob> = excluded.collect();
        let Some(spec) = &spec.device_inclusion_spec else {
            let all = Filter {
                types: vec![DeviceType::Disk],
                rotational: None,
                min: Bytes(0),
                max: None,
                models: Vec::new(),
                vendors: Vec::new(),
                excluded,
            };
            return if problems.is_empty() { Ok(all) } else { Err(problems) };
        };
        let types = read_types(spec, &mut problems);
        let rotational = read_mechanics(spec, &mut problems);
        let mut size = |field: &'static str, assignment: &Option<Quantity>| match assignment
            .as_ref()
            .map(Quantity::bytes)
        {
            None => None,
            Some(Ok(bytes)) => Some(bytes),
            Some(Err(error)) => {
                problems.push(Problem {
                    field,
                    wrong: error.to_string(),
                    allowed: "use a quantity such as 10Gi".into(),
                });
                None
            }
        };
        let min = size("spec.deviceInclusionSpec.minSize", &spec.min_size).unwrap_or(DEFAULT_MIN);
        let max = size("spec.deviceInclusionSpec.maxSize", &spec.max_size);
        // A maxSize below the default minimum means all smaller devices.
        let min = if spec.min_size.is_none() && max.is_some_and(|max| max < DEFAULT_MIN) {
            Bytes(0)
        } else {
            min
        };
        if let Some(max) = max.filter(|max| *max < min) {
            let allowed = "lower minSize or raise maxSize".to_owned();
            problems.push(Problem {
                field: "spec.deviceInclusionSpec.minSize",
                wrong: format!("{min} is greater than maxSize {max}"),
                allowed,
            });
        }
        let (models, vendors) = (folded(spec.models.as_ref()), folded(spec.vendors.as_ref()));
        if problems.is_empty() {
            Ok(Filter { types, rotational, min, max, models, vendors, excluded })
        } else {
            Err(problems)
        }
    }

    /// Every mismatch; empty: the device matches.
    pub fn mismatches(&self, device: &Device) -> Vec<Mismatch> {
        let mut found = Vec::new();
        if !self.types.iter().any(|kind| kind.is(&device.kind)) {
            found.push(Mismatch::Type(device.kind.clone()));
        }
        if self.rotational.is_some_and(|wanted| wanted != device.rotational) {
            found.push(Mismatch::Rotational(device.rotational));
        }
        let size = Bytes(u64::try_from(device.size).unwrap_or_default());
        if size < self.min {
            found.push(Mismatch::TooSmall(self.min));
        }
        if let Some(max) = self.max.filter(|max| size > *max) {
            found.push(Mismatch::TooLarge(max));
        }
        let names_one = |wanted: &[String], found: &Option<String>| {
            let found = found.as_deref().map(fold).unwrap_or_default();
            wanted.is_empty() || wanted.iter().any(|one| found.contains(one.as_str()))
        };
        if !names_one(&self.models, &device.model) {
            found.push(Mismatch::Model(device.model.clone()));
        }
        if !names_one(&self.vendors, &device.vendor) {
            found.push(Mismatch::Vendor(device.vendor.clone()));
        }
        if let Some(glob) = self.excluded.iter().find(|glob| glob.matches(&device.name)) {
            found.push(Mismatch::Excluded(glob.as_str().to_owned()));
        }
        found
    }
}

fn read_types(spec: &DeviceInclusionSpec, problems: &mut Vec<Problem>) -> Vec<DeviceType> {
    // An empty list means none; an absent one means disks.
    if spec.device_types.is_none() && spec.devices.is_none() {
        return vec![DeviceType::Disk];
    }
    let mut types = Vec::new();
    for (field, assignment) in [
        ("spec.deviceInclusionSpec.deviceTypes", &spec.device_types),
        ("spec.deviceInclusionSpec.devices", &spec.devices),
    ] {
        for text in assignment.iter().flatten() {
            match DeviceType::parse(text) {
                Some(kind) => types.push(kind),
                None => problems.push(Problem {
                    field,
                    wrong: format!("{text:?} is not a device type"),
                    allowed: "use disk (RawDisk), part (Partition), loop, mpath, lvm or raid"
                        .into(),
                }),
            }
        }
    }
    types.sort_unstable();
    types.dedup();
    types
}

fn read_mechanics(spec: &DeviceInclusionSpec, problems: &mut Vec<Problem>) -> Option<bool> {
    let mut wanted = Vec::new();
    for (field, assignment) in [
        ("spec.deviceInclusionSpec.deviceMechanicalProperties", &spec.device_mechanical_properties),
        ("spec.deviceInclusionSpec.deviceMechanicalProperty", &spec.device_mechanical_property),
    ] {
        for text in assignment.iter().flatten() {
            match text.to_ascii_lowercase().as_str() {
                "rotational" => wanted.push(true),
                "nonrotational" => wanted.push(false),
                _ => problems.push(Problem {
                    field,
                    wrong: format!("{text:?} is not a mechanical property"),
                    allowed: "use Rotational or NonRotational".into(),
                }),
            }
        }
    }
    match (wanted.contains(&true), wanted.contains(&false)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        (true, true) | (false, false) => None,
    }
}

/// Ignoring case, with blanks instead of lsblk's underscores.
fn fold(text: &str) -> String {
    text.to_lowercase().replace('_', " ").trim().to_owned()
}

fn folded(assignment: Option<&Vec<String>>) -> Vec<String> {
    assignment
        .into_iter()
        .flatten()
        .map(|text| fold(text))
        .filter(|text| !text.is_empty())
        .collect()
}
