//! RAID of one host: what its spec requests, what is recorded as built or being built, and what is seen of it.
//!
//! Owns: their wording. Which settings hold is `BareMetalHost::raid`, which array is which volume is
//! `quarry_core::host_join::raid`. Next to read: `explain.rs`.

use crate::text::{size, split_remedy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        HardwareDetails, HardwareRaidVolume, RaidConfig, RootDeviceHints, SoftwareRaidVolume,
        conditions::raid as condition,
    },
    node_inventory::Device,
};
use quarry_core::host_join::{
    HostJoin,
    raid::{Array, Requested, Role, arrays, requested, role},
};
use serde::Serialize;

/// RAID of a host. Only made where it has some or requests some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RaidView {
    /// `spec.raid`, one text per volume. Empty: it is left as it is.
    pub requested: Vec<String>,
    /// `status.provisioning.raid`, one text per volume: what was built last, or is being built. Empty: nothing.
    pub recorded: Vec<String>,
    /// Hardware volumes that the BMC reported when they were built, one text per volume. Software: always empty, because
    /// Ironic only repeats the request.
    pub reported: Vec<String>,
    /// Whether what is recorded is what is there; `None`: nothing is reported about it.
    pub verified: Option<String>,
    /// Arrays of software RAID that the node or inspection shows.
    pub seen: Vec<String>,
}

/// `hardware` and `software` volumes that hold.
fn volumes(config: &RaidConfig) -> (&[HardwareRaidVolume], &[SoftwareRaidVolume]) {
    let hardware = config.hardware_raid_volumes.requested().unwrap_or_default();
    let software = config.software_raid_volumes.requested().unwrap_or_default();
    (hardware, software)
}

fn asks(config: &RaidConfig) -> bool {
    config.hardware_raid_volumes.requested().is_some()
        || config.software_raid_volumes.requested().is_some()
}

/// What was built last, or is being built.
fn recorded(host: &BareMetalHost) -> Option<RaidConfig> {
    let found = host.status.as_ref()?.provisioning.raid.clone();
    found.filter(asks)
}

fn find<'a>(host: &'a BareMetalHost, kind: &str) -> Option<&'a Condition> {
    let mut all = host.status.iter().flat_map(|status| &status.conditions);
    all.find(|one| one.type_ == kind)
}

/// One cell: `software 1, 1+0 (verified)`. `None`: no RAID is requested or recorded.
pub(super) fn summary(host: &BareMetalHost) -> Option<String> {
    let recorded = recorded(host);
    let is_recorded = recorded.is_some();
    let config = recorded.or_else(|| host.raid().filter(asks))?;
    let levels = |all: Vec<&str>| all.join(", ");
    let what = match volumes(&config) {
        ([], []) => "none".to_owned(),
        ([], software) => {
            format!("software {}", levels(software.iter().map(|one| one.level.as_str()).collect()))
        }
        (hardware, _) => {
            format!("hardware {}", levels(hardware.iter().map(|one| one.level.as_str()).collect()))
        }
    };
    let mut words = vec![match find(host, condition::VERIFIED).map(|one| one.status.as_str()) {
        _ if !is_recorded => "requested",
        Some("True") => "verified",
        Some("False") => "differs",
        Some(_) | None => "not verified",
    }];
    let current = find(host, condition::CURRENT);
    words.extend(current.filter(|one| one.status == "False").map(|_| "change is pending"));
    Some(format!("{what} ({})", words.join(", ")))
}

/// The settings with which an array is compared.
struct Settings {
    spec: RaidConfig,
    recorded: RaidConfig,
}

impl Settings {
    fn of(host: &BareMetalHost) -> Self {
        Settings {
            spec: host.raid().unwrap_or_default(),
            recorded: recorded(host).unwrap_or_default(),
        }
    }

    /// To which request the array belongs; `None`: to none.
    fn place(&self, array: &Array) -> Option<String> {
        match requested(&self.spec, array) {
            Requested::Volume(at) => return Some(format!("spec.raid.softwareRAIDVolumes[{at}]")),
            Requested::OneOfSeveral => {
                return Some("one of spec.raid.softwareRAIDVolumes".to_owned());
            }
            Requested::No => {}
        }
        (requested(&self.recorded, array) != Requested::No)
            .then(|| "recorded in status.provisioning.raid".to_owned())
    }
}

/// `None`: no RAID is requested, recorded or seen.
pub(super) fn view(
    host: &BareMetalHost,
    hardware: Option<&HardwareDetails>,
    devices: Option<&[Device]>,
) -> Option<RaidView> {
    let view = RaidView {
        requested: host.raid().as_ref().map(texts).unwrap_or_default(),
        recorded: recorded(host).as_ref().map(texts).unwrap_or_default(),
        reported: find(host, condition::VERIFIED).map(reported).unwrap_or_default(),
        verified: find(host, condition::VERIFIED).map(verified),
        seen: seen(&Settings::of(host), hardware, devices),
    };
    let RaidView { requested, recorded, reported: _, verified, seen } = &view;
    let empty =
        requested.is_empty() && recorded.is_empty() && verified.is_none() && seen.is_empty();
    (!empty).then_some(view)
}

fn reported(found: &Condition) -> Vec<String> {
    let list = found.message.strip_prefix(condition::REPORTED);
    list.map(|list| list.split("; ").map(str::to_owned).collect()).unwrap_or_default()
}

fn verified(found: &Condition) -> String {
    let word = match found.status.as_str() {
        "True" => "yes",
        "False" => "no",
        _ => "not yet",
    };
    match split_remedy(&found.message).0 {
        _ if !reported(found).is_empty() => word.to_owned(),
        "" => word.to_owned(),
        message => format!("{word}: {message}"),
    }
}

fn texts(config: &RaidConfig) -> Vec<String> {
    let (hardware, software) = volumes(config);
    let mut lines = Vec::new();
    if config.hardware_raid_volumes.requested().is_some() && hardware.is_empty() {
        lines.push("hardware RAID: no volumes, those that exist are removed".to_owned());
    }
    lines.extend(hardware.iter().map(hardware_text));
    if config.software_raid_volumes.requested().is_some() && software.is_empty() {
        lines.push("software RAID: no volumes, those that exist are removed".to_owned());
    }
    let ignored = if hardware.is_empty() { "" } else { ", ignored beside hardware RAID" };
    lines.extend(software.iter().map(|volume| software_text(volume) + ignored));
    lines
}

fn size_text(gibibytes: Option<i64>) -> String {
    match gibibytes.filter(|size| *size > 0) {
        Some(gibibytes) => format!("{gibibytes}Gi"),
        None => "all that is left".to_owned(),
    }
}

fn hardware_text(volume: &HardwareRaidVolume) -> String {
    let HardwareRaidVolume {
        size_gibibytes,
        level,
        name,
        rotational,
        number_of_physical_disks,
        controller,
        physical_disks,
    } = volume;
    let mut words = vec![format!("level {level}"), size_text(*size_gibibytes)];
    let kind = match rotational {
        Some(true) => " rotational",
        Some(false) => " solid-state",
        None => "",
    };
    match (physical_disks.is_empty(), number_of_physical_disks) {
        (false, _) => words.push(format!("disks {}", physical_disks.join(", "))),
        (true, Some(count)) => words.push(format!("{count}{kind} disks")),
        (true, None) if !kind.is_empty() => words.push(format!("{} disks", kind.trim())),
        (true, None) => {}
    }
    words.extend((!controller.is_empty()).then(|| format!("controller {controller}")));
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!("hardware volume{name}: {}", words.join(", "))
}

fn software_text(volume: &SoftwareRaidVolume) -> String {
    let SoftwareRaidVolume { root_volume, size_gibibytes, level, physical_disks } = volume;
    let mut words = vec![format!("level {level}"), size_text(*size_gibibytes)];
    let disks: Vec<String> = physical_disks.iter().map(hint_text).collect();
    words.push(if disks.is_empty() {
        "on all disks".to_owned()
    } else {
        format!("on {}", disks.join(" and "))
    });
    words.extend(root_volume.then(|| "root volume".to_owned()));
    format!("software volume: {}", words.join(", "))
}

fn hint_text(hints: &RootDeviceHints) -> String {
    let RootDeviceHints {
        device_name,
        hctl,
        model,
        vendor,
        serial_number,
        min_size_gigabytes,
        wwn,
        wwn_with_extension,
        wwn_vendor_extension,
        rotational,
    } = hints;
    let mut words: Vec<String> = [
        ("", device_name),
        ("HCTL ", hctl),
        ("vendor ", vendor),
        ("model ", model),
        ("serial ", serial_number),
        ("WWN ", wwn),
        ("WWN ", wwn_with_extension),
        ("WWN extension ", wwn_vendor_extension),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(label, value)| format!("{label}{value}"))
    .collect();
    words.extend((*min_size_gigabytes > 0).then(|| format!("at least {min_size_gigabytes} GB")));
    words.extend(rotational.map(|one| if one { "rotational" } else { "solid-state" }.to_owned()));
    if words.is_empty() { "any disk".to_owned() } else { format!("({})", words.join(", ")) }
}

fn seen(
    settings: &Settings,
    hardware: Option<&HardwareDetails>,
    devices: Option<&[Device]>,
) -> Vec<String> {
    if let Some(devices) = devices {
        let all = arrays(devices);
        let line = |array: &Array| {
            let place = settings.place(array).unwrap_or_else(|| "not in spec.raid".to_owned());
            format!("{}, {place}", array_text(array))
        };
        return all.iter().map(line).collect();
    }
    let stored = hardware.iter().flat_map(|hardware| &hardware.storage);
    let found = stored.filter(|disk| disk.name.starts_with("/dev/md"));
    found
        .map(|disk| format!("{}: {}, in the inspection", disk.name, size(disk.size_bytes)))
        .collect()
}

fn array_text(array: &Array) -> String {
    let Array { name, level, size: bytes, members } = array;
    format!("{name}: level {level}, {}, of {}", size(*bytes), members.join(" and "))
}

/// What a device of the node is in the software RAID of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRaid {
    pub text: String,
    /// The remedy for a member that the host's RAID uses; `None` for an array, or where `spec.raid` has nothing to do
    /// with it.
    pub remedy: Option<String>,
}

/// `None`: it has nothing to do with software RAID.
pub fn device_raid(
    host: &BareMetalHost,
    join: &HostJoin,
    devices: &[Device],
    name: &str,
) -> Option<DeviceRaid> {
    let settings = Settings::of(host);
    let all = arrays(devices);
    let place = format!("BareMetalHost {}/{}", join.namespace, join.name);
    let of_array = |array: &Array| {
        let array_text = array_text(array);
        match settings.place(array) {
            None => format!("{array_text}, which spec.raid of {place} does not request"),
            Some(request) => format!("{array_text}, which is {request} of {place}"),
        }
    };
    let ours = |array: &Array| settings.place(array).is_some();
    let leave = || {
        Some(format!(
            "leave it alone: it belongs to the RAID of {place}; use the array instead, or change spec.raid of the host and deprovision it"
        ))
    };
    Some(match role(devices, &all, name)? {
        Role::Array(array) => DeviceRaid { text: of_array(array), remedy: None },
        Role::Member(array) => DeviceRaid {
            text: format!("member of {}", of_array(array)),
            remedy: ours(array).then(leave).flatten(),
        },
        Role::Disk(with) => DeviceRaid {
            text: format!(
                "its partitions are members of {}",
                with.iter().map(|array| of_array(array)).collect::<Vec<_>>().join("; ")
            ),
            remedy: with.iter().any(|array| ours(array)).then(leave).flatten(),
        },
        Role::Unassembled => {
            let is_software = |config: &RaidConfig| {
                let (hardware, software) = volumes(config);
                hardware.is_empty() && !software.is_empty()
            };
            let requested = is_software(&settings.spec) || is_software(&settings.recorded);
            let whose = match requested {
                true => format!("{place} has software RAID"),
                false => format!("spec.raid of {place} requests none"),
            };
            DeviceRaid {
                text: format!("member of an array that is not assembled; {whose}"),
                remedy: requested.then(|| {
                    format!(
                        "check the array with `mdadm --examine` on the node; to build it again, deprovision {place}"
                    )
                }),
            }
        }
    })
}
