//! What is requested from Ironic to build or erase RAID: one manual cleaning for each kind of RAID.
//!
//! A node has one RAID interface at a time: that of its BMC for hardware volumes, the agent's for software volumes.
//! Deleting comes first in each cleaning, and the metadata of the disks is erased before arrays are built: after a run
//! that was cut off, fewer steps fail.

use super::root;
use crate::bare_metal_host::driver::HardwareRaid;
use quarry_api::{
    bare_metal_host::{HardwareRaidVolume, RaidConfig, RootDeviceHints, SoftwareRaidVolume},
    node_job::hex_digest,
};
use quarry_ironic::{CleanStep, LogicalDisk, PhysicalDisks, SizeGb};
use serde_json::{Map, Value};

/// The interface of software RAID.
pub const AGENT: &str = "agent";

/// One manual cleaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub interface: &'static str,
    pub steps: Vec<CleanStep>,
    /// `None`: nothing is built.
    pub target: Option<quarry_ironic::RaidConfig>,
}

fn delete() -> CleanStep {
    CleanStep::new("raid", "delete_configuration")
}

fn erase_metadata() -> CleanStep {
    CleanStep::new("deploy", "erase_devices_metadata")
}

fn create() -> CleanStep {
    CleanStep::new("raid", "create_configuration")
}

impl Phase {
    /// The name of this phase of one run: what was begun for another run does not count.
    pub fn key(&self, run: &str) -> String {
        let steps: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        // Whether a volume is marked depends on hints that may change while it is built.
        let mut target = self.target.clone();
        for disk in target.iter_mut().flat_map(|target| &mut target.logical_disks) {
            disk.is_root_volume = None;
        }
        let target = serde_json::to_string(&target).unwrap_or_default();
        hex_digest(&[run, self.interface, &steps.join(","), &target])[..32].to_owned()
    }

    fn erases_only(&self) -> bool {
        self.target.is_none()
    }
}

/// For a snapshot. What is removed goes first: the disks are needed for what is built.
/// `hinted`: the root disk is selected by hints, and no volume is marked.
pub fn building(
    snapshot: &RaidConfig,
    hardware: Option<&HardwareRaid>,
    hinted: bool,
) -> Vec<Phase> {
    let mut phases = Vec::new();
    if let Some(volumes) = snapshot.software_raid_volumes.requested() {
        let root = (!hinted).then(|| root::root_array(volumes));
        let disks = volumes.iter().enumerate();
        let disks =
            disks.map(|(index, volume)| software_disk(volume, root.map(|root| root == index)));
        phases.push(phase(AGENT, vec![delete(), erase_metadata()], disks.collect()));
    }
    if let Some((raid, volumes)) = hardware.zip(snapshot.hardware_raid_volumes.requested()) {
        let disks = volumes.iter().enumerate();
        let disks = disks.map(|(index, volume)| hardware_disk(volume, !hinted && index == 0));
        phases.push(phase(raid.interface, vec![delete()], disks.collect()));
    }
    phases.sort_by_key(|phase| !phase.erases_only());
    phases
}

fn phase(interface: &'static str, mut steps: Vec<CleanStep>, disks: Vec<LogicalDisk>) -> Phase {
    let target = (!disks.is_empty()).then_some(quarry_ironic::RaidConfig { logical_disks: disks });
    steps.extend(target.is_some().then(create));
    Phase { interface, steps, target }
}

/// For the end of a host's use, whatever made the volumes: an operating system may have built arrays of its own. Arrays
/// go first, while the disks or volumes that they are on are there.
pub fn erasing(hardware: Option<&HardwareRaid>) -> Vec<Phase> {
    let mut phases = vec![phase(AGENT, vec![delete(), erase_metadata()], Vec::new())];
    phases.extend(hardware.map(|raid| phase(raid.interface, vec![delete()], Vec::new())));
    phases
}

/// The volumes stay, and what is on them goes. Needed for a node that Ironic had lost: it was registered, not undeployed.
pub fn retaining(hardware: Option<&HardwareRaid>) -> Vec<Phase> {
    let interface = hardware.map_or(AGENT, |raid| raid.interface);
    vec![phase(interface, vec![erase_metadata()], Vec::new())]
}

fn size(gibibytes: Option<i64>) -> SizeGb {
    match gibibytes.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0) {
        Some(size) => SizeGb::Gib(size),
        None => SizeGb::Max,
    }
}

fn hardware_disk(volume: &HardwareRaidVolume, is_root: bool) -> LogicalDisk {
    let mut disk = LogicalDisk::new(volume.level.as_str(), size(volume.size_gibibytes));
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    disk.volume_name = text(&volume.name);
    disk.controller = text(&volume.controller);
    disk.is_root_volume = is_root.then_some(true);
    disk.disk_type = volume.rotational.map(|turns| if turns { "hdd" } else { "ssd" }.to_owned());
    if volume.physical_disks.is_empty() {
        disk.number_of_physical_disks = u32::try_from(super::pick::disks_of(volume)).ok();
    } else {
        disk.physical_disks = Some(PhysicalDisks::Names(volume.physical_disks.clone()));
    }
    disk
}

fn software_disk(volume: &SoftwareRaidVolume, is_root: Option<bool>) -> LogicalDisk {
    let mut disk = LogicalDisk::new(volume.level.as_str(), size(volume.size_gibibytes));
    disk.controller = Some("software".to_owned());
    disk.is_root_volume = is_root;
    if !volume.physical_disks.is_empty() {
        let hints = volume.physical_disks.iter().map(hint).collect();
        disk.physical_disks = Some(PhysicalDisks::Hints(hints));
    }
    disk
}

/// As Ironic spells hints.
pub fn hint(hints: &RootDeviceHints) -> Map<String, Value> {
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
    let by_path = device_name.starts_with("/dev/disk/by-path/");
    let exact = [
        (if by_path { "by_path" } else { "name" }, device_name),
        ("hctl", hctl),
        ("serial", serial_number),
        ("wwn", wwn),
        ("wwn_with_extension", wwn_with_extension),
        ("wwn_vendor_extension", wwn_vendor_extension),
    ];
    let parts = [("model", model), ("vendor", vendor)];
    let exact = exact.map(|(key, value)| (key, "s== ", value));
    let parts = parts.map(|(key, value)| (key, "<in> ", value));
    let all = exact.into_iter().chain(parts).filter(|(_, _, value)| !value.is_empty());
    let mut map: Map<String, Value> =
        all.map(|(key, how, value)| (key.to_owned(), format!("{how}{value}").into())).collect();
    if *min_size_gigabytes > 0 {
        map.insert("size".to_owned(), format!(">= {min_size_gigabytes}").into());
    }
    if let Some(turns) = rotational {
        map.insert("rotational".to_owned(), turns.to_string().into());
    }
    map
}
