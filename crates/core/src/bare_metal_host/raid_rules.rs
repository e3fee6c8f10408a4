//! What RAID settings must fulfill before anything is erased for them.
//!
//! Owns: the rules that can be decided from the settings, the driver and the presence of root device hints. The schema of
//! BareMetalHost refuses the same at admission (`quarry_api::bare_metal_host::raid_rules`, compared by a property test);
//! this is for objects that were written past it. Never compares settings with a machine. Next to read: `raid.rs`.

use quarry_api::bare_metal_host::{
    BareMetalHost, HardwareRaidVolume, RaidConfig, RootDeviceHints, SoftwareRaidVolume,
    raid::{MAX_NAME, MAX_SOFTWARE_VOLUMES, SOFTWARE_LEVELS},
};
use std::collections::BTreeSet;

const HARDWARE: &str = "spec.raid.hardwareRAIDVolumes";
const SOFTWARE: &str = "spec.raid.softwareRAIDVolumes";

/// How many physical disks a volume of hardware RAID may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCount {
    pub minimum: i64,
    pub maximum: Option<i64>,
    pub even: bool,
}

impl DiskCount {
    fn accepts(self, count: i64) -> bool {
        count >= self.minimum
            && self.maximum.is_none_or(|maximum| count <= maximum)
            && (!self.even || count % 2 == 0)
    }

    fn describe(self) -> String {
        let DiskCount { minimum, maximum, even } = self;
        match (maximum, even) {
            (Some(maximum), _) if maximum == minimum => format!("exactly {minimum}"),
            (_, true) => format!("an even number, at least {minimum}"),
            (_, false) => format!("at least {minimum}"),
        }
    }
}

/// The disks that a level of hardware RAID needs. `None`: no driver builds this level.
pub fn disk_count(level: &str) -> Option<DiskCount> {
    let (minimum, maximum, even) = match level {
        "0" => (1, None, false),
        "1" => (2, Some(2), false),
        "5" => (3, None, false),
        "6" => (4, None, false),
        "1+0" => (4, None, true),
        "5+0" => (6, None, true),
        "6+0" => (8, None, true),
        _ => return None,
    };
    Some(DiskCount { minimum, maximum, even })
}

/// Whether `spec.rootDeviceHints` selects anything: an empty object does not.
pub fn has_hints(host: &BareMetalHost) -> bool {
    host.spec.root_device_hints.as_ref().is_some_and(|hints| *hints != RootDeviceHints::default())
}

/// Everything that is wrong with the settings; empty: they can be applied. `hardware_levels` are those that the driver
/// of the BMC builds; `None`: it has no hardware RAID. Lists that are ignored are checked too, as at admission.
pub fn invalid(
    config: &RaidConfig,
    has_hints: bool,
    hardware_levels: Option<&[&str]>,
) -> Vec<String> {
    let mut found = Vec::new();
    let hardware = config.hardware_raid_volumes.requested().unwrap_or_default();
    let software = config.software_raid_volumes.requested().unwrap_or_default();
    check_hardware(hardware, hardware_levels, &mut found);
    check_software(software, has_hints, &mut found);
    found
}

fn check_hardware(
    volumes: &[HardwareRaidVolume],
    levels: Option<&[&str]>,
    found: &mut Vec<String>,
) {
    if levels.is_none() && !volumes.is_empty() {
        found.push(format!(
            "{HARDWARE} needs a BMC that configures RAID, and the scheme of spec.bmc.address has no RAID; use \
             softwareRAIDVolumes, or an address with a redfish or idrac scheme"
        ));
    }
    let mut names = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let field = format!("{HARDWARE}[{index}]");
        check_hardware_volume(&field, volume, levels, found);
        if !volume.name.is_empty() && !names.insert(&volume.name) {
            found.push(format!(
                "{field}.name {:?} is the name of another volume; use a name of its own, or remove it",
                volume.name
            ));
        }
    }
}

fn check_hardware_volume(
    field: &str,
    volume: &HardwareRaidVolume,
    levels: Option<&[&str]>,
    found: &mut Vec<String>,
) {
    let HardwareRaidVolume {
        size_gibibytes,
        level,
        name,
        rotational: _,
        number_of_physical_disks,
        controller,
        physical_disks,
    } = volume;
    let listed = i64::try_from(physical_disks.len()).unwrap_or(i64::MAX);
    check_size(field, *size_gibibytes, found);
    if name.chars().count() > MAX_NAME {
        found.push(format!(
            "{field}.name has more than {MAX_NAME} characters; use a shorter name, or remove it"
        ));
    }
    if listed > 0 && controller.is_empty() {
        found.push(format!(
            "{field}.physicalDisks is given without controller; set controller to the one of these disks, or remove \
             physicalDisks"
        ));
    }
    let count = number_of_physical_disks.unwrap_or(listed);
    if number_of_physical_disks.is_some_and(|count| count < 1) {
        found.push(format!(
            "{field}.numberOfPhysicalDisks is less than 1; give the number of disks, or remove it"
        ));
    } else if listed > 0 && count != listed {
        found.push(format!(
            "{field}.numberOfPhysicalDisks is {count}, and physicalDisks has {listed}; remove numberOfPhysicalDisks, \
             or list as many disks"
        ));
    }
    match disk_count(level.as_str()) {
        Some(_) if levels.is_some_and(|levels| !levels.contains(&level.as_str())) => {
            found.push(format!(
                "{field}.level {level} is not one that the BMC builds; use one of {}",
                levels.unwrap_or_default().join(", ")
            ));
        }
        Some(needed) if count > 0 && !needed.accepts(count) => found.push(format!(
            "{field} has {count} physical disks, and level {level} needs {}; change numberOfPhysicalDisks or \
             physicalDisks, or use another level",
            needed.describe()
        )),
        Some(_) => {}
        None => found.push(format!(
            "{field}.level {level} is built by no driver; use 0, 1, 5, 6, 1+0, 5+0 or 6+0"
        )),
    }
}

fn check_software(volumes: &[SoftwareRaidVolume], has_hints: bool, found: &mut Vec<String>) {
    if volumes.len() > MAX_SOFTWARE_VOLUMES {
        found.push(format!(
            "{SOFTWARE} has {} volumes, and the ramdisk builds at most {MAX_SOFTWARE_VOLUMES}; remove the others",
            volumes.len()
        ));
    }
    if volumes.first().is_some_and(|first| first.level.as_str() != "1") {
        found.push(format!(
            "{SOFTWARE}[0].level is {}, and a host boots only from level 1; use level 1 for the first volume",
            volumes[0].level
        ));
    }
    for (index, volume) in volumes.iter().enumerate() {
        check_software_volume(&format!("{SOFTWARE}[{index}]"), volume, found);
    }
    let sizes = || volumes.iter().map(|volume| volume.size_gibibytes.unwrap_or_default());
    if sizes().filter(|size| *size == 0).count() > 1 {
        found.push(format!(
            "{SOFTWARE} has several volumes without sizeGibibytes, and only one can have the rest of the disks; give \
             the others a size"
        ));
    }
    let given: Vec<i64> = sizes().filter(|size| *size > 0).collect();
    let distinct: BTreeSet<&i64> = given.iter().collect();
    if !has_hints && distinct.len() < given.len() {
        found.push(format!(
            "{SOFTWARE} has volumes of equal sizeGibibytes, and which of them is the root volume cannot be \
             distinguished after a reboot; use different sizes, or set spec.rootDeviceHints"
        ));
    }
    let roots = volumes.iter().filter(|volume| volume.root_volume).count();
    if roots > 1 {
        found.push(format!(
            "{SOFTWARE} has {roots} volumes with rootVolume, and a host has one; set it on one of them"
        ));
    }
    if roots > 0 && has_hints {
        found.push(format!(
            "{SOFTWARE}[].rootVolume and spec.rootDeviceHints both select the root disk; remove one of them"
        ));
    }
}

fn check_software_volume(field: &str, volume: &SoftwareRaidVolume, found: &mut Vec<String>) {
    let SoftwareRaidVolume { root_volume, size_gibibytes, level, physical_disks } = volume;
    check_size(field, *size_gibibytes, found);
    if !SOFTWARE_LEVELS.contains(&level.as_str()) {
        found.push(format!(
            "{field}.level {level} is not a level of software RAID; use 0, 1 or 1+0"
        ));
    }
    if *root_volume && level.as_str() != "1" {
        found.push(format!(
            "{field}.rootVolume is set, and a host boots only from level 1; use level 1, or set rootVolume on another \
             volume"
        ));
    }
    if physical_disks.len() == 1 {
        found.push(format!(
            "{field}.physicalDisks has one entry; list at least two disks, or remove it to use all"
        ));
    }
    for (index, disk) in physical_disks.iter().enumerate() {
        if !is_device_name(&disk.device_name) {
            found.push(format!(
                "{field}.physicalDisks[{index}].deviceName {:?} is not directly below /dev or /dev/disk/by-path; use \
                 such a path, or another hint",
                disk.device_name
            ));
        }
    }
}

fn check_size(field: &str, size: Option<i64>, found: &mut Vec<String>) {
    if size.is_some_and(|size| size < 0) {
        found.push(format!(
            "{field}.sizeGibibytes is negative; give a size in GiB, or remove it to use the rest of the disks"
        ));
    }
}

/// Empty is absent, as upstream.
fn is_device_name(name: &str) -> bool {
    let below = |directory: &str| {
        name.strip_prefix(directory).is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
    };
    name.is_empty() || below("/dev/") || below("/dev/disk/by-path/")
}
