//! What sysfs and udev tell of one device: the columns of lsblk, and everything that is said about its identity.
//!
//! Nothing here opens the device or waits for it. Where lsblk has a rule (which serial, which transport), it is
//! lsblk's: people compare. Next to read: `probe.rs`.

use super::{
    scan::DeviceObservation,
    sysfs::{Sysfs, parse_uevent},
    udev::Properties,
    vpd::{parse_vpd80, parse_vpd83},
};
use crate::host_root::HostRoot;
use quarry_api::node_inventory::Evidence;
use quarry_core::device::{Facts, Partition, sanitize::printable};
use rustix::fd::OwnedFd;

/// How the device must be handled when it is probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// libblkid must see the device itself: it asks the kernel about such ones.
    pub unlike_a_file: bool,
    /// An optical drive: opening it for reading would close its tray.
    pub optical: bool,
    /// Its serial number is asked from the device (virtio).
    pub asks_serial: bool,
    /// A device-mapper device whose reads would wait until it is resumed.
    pub suspended: bool,
}

/// Everything but what a scan reads each time (mounts, links, holders) and what the probe finds.
pub fn read(
    host: &HostRoot,
    sysfs: &mut Sysfs,
    device: &OwnedFd,
    seen: &DeviceObservation,
    udev: Option<&Properties>,
) -> (Facts, Traits) {
    let udev = udev.cloned().unwrap_or_default();
    let mapped_name = if is_mapped(seen) { sysfs.text(device, "dm/name") } else { None };
    // Loops, maps and arrays have no such directory: a dozen attributes that need not be tried.
    let has_device = sysfs.has(device, "device");
    let kind = kind(sysfs, device, seen, mapped_name.is_some());
    let mut traits = Traits {
        unlike_a_file: mapped_name.is_some()
            || kind == "rom"
            || sysfs.bytes(device, "queue/zoned").is_some_and(|zoned| zoned != b"none"),
        optical: kind == "rom",
        asks_serial: false,
        suspended: false,
    };
    let mut facts = Facts {
        name: seen.shown_name(),
        number: format!("{}:{}", seen.number.major, seen.number.minor),
        size: seen.size,
        read_only: seen.read_only,
        diskseq: seen.diskseq,
        parent: seen.parent.as_deref().map(shown_name),
        transport: if has_device || seen.name.starts_with("nvme") {
            transport(host, sysfs, device, seen)
        } else {
            None
        },
        ..Facts::default()
    };
    // A partition has neither file: they are its disk's.
    (facts.removable, facts.rotational) =
        match seen.parent.as_deref().and_then(|disk| sysfs.device(disk)) {
            Some(disk) => (sysfs.flag(&disk, "removable"), sysfs.flag(&disk, "queue/rotational")),
            None => (sysfs.flag(device, "removable"), sysfs.flag(device, "queue/rotational")),
        };
    facts.state = seen.state.clone();
    traits.suspended = mapped_name.is_some() && facts.state.as_deref() == Some("suspended");
    if seen.parent.is_none() && seen.slaves.is_empty() {
        let mut said =
            |attribute: &str| if has_device { sysfs.text(device, attribute) } else { None };
        facts.vendor = said("device/vendor");
        facts.model = udev.model.clone().or_else(|| said("device/model"));
        facts.serial = udev.serial.clone().or_else(|| said("device/serial"));
    }
    facts.partition = if kind == "part" { partition(sysfs, device, seen, &udev) } else { None };
    facts.not_local = not_local(host, sysfs, device, seen, facts.transport.as_deref());
    facts.evidence = evidence(sysfs, device, seen, &udev, facts.partition.as_ref(), has_device);
    traits.asks_serial =
        seen.parent.is_none() && seen.place.contains("/virtio") && sysfs.has(device, "serial");
    (facts.mapped_name, facts.kind) = (mapped_name, kind);
    (facts, traits)
}

/// lsblk's STATE of a disk.
pub fn state(sysfs: &mut Sysfs, device: &OwnedFd, name: &str) -> Option<String> {
    if name.starts_with("dm-") {
        return sysfs
            .number(device, "dm/suspended")
            .map(|flag| if flag == 0 { "running" } else { "suspended" }.to_owned());
    }
    sysfs.text(device, "device/state")
}

/// By device-mapper.
fn is_mapped(seen: &DeviceObservation) -> bool {
    seen.name.starts_with("dm-")
}

/// `cciss!c0d0` is `/dev/cciss/c0d0`.
pub fn shown_name(name: &str) -> String {
    name.replace('!', "/")
}

/// lsblk's TYPE.
fn kind(sysfs: &mut Sysfs, device: &OwnedFd, seen: &DeviceObservation, mapped: bool) -> String {
    if seen.parent.is_some() {
        return "part".to_owned();
    }
    let kind = if mapped {
        // LVM-…, CRYPT-LUKS2-…, mpath-…; kpartx appends a number to `part`.
        let uuid = sysfs.text(device, "dm/uuid").unwrap_or_default();
        match uuid.split('-').next() {
            None | Some("") => "dm".to_owned(),
            Some(prefix)
                if prefix.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("part")) =>
            {
                "part".to_owned()
            }
            Some(prefix) => prefix.to_owned(),
        }
    } else if seen.name.starts_with("loop") {
        "loop".to_owned()
    } else if seen.name.starts_with("md") {
        sysfs.text(device, "md/level").unwrap_or_else(|| "md".to_owned())
    } else {
        scsi_kind(sysfs.number(device, "device/type")).to_owned()
    };
    kind.to_lowercase()
}

/// The peripheral device types of SCSI that lsblk has a word for.
fn scsi_kind(code: Option<u64>) -> &'static str {
    match code {
        Some(1) => "tape",
        Some(2) => "printer",
        Some(3) => "processor",
        Some(4) => "worm",
        Some(5) => "rom",
        Some(6) => "scanner",
        Some(7) => "mo-disk",
        Some(8) => "changer",
        Some(9) => "comm",
        Some(0x0c) => "raid",
        Some(0x0d) => "enclosure",
        Some(0x0e) => "rbc",
        Some(0x11) => "osd",
        Some(0x7f) => "no-lun",
        _ => "disk",
    }
}

/// lsblk's TRAN: decided by what kind of host the SCSI device hangs on.
fn transport(
    host: &HostRoot,
    sysfs: &mut Sysfs,
    device: &OwnedFd,
    seen: &DeviceObservation,
) -> Option<String> {
    let address = sysfs.link(device, "device").filter(|name| parse_scsi_address(name).is_some());
    let found = match address.as_deref().and_then(parse_scsi_address) {
        Some(number) => {
            let class = |kind: &str| host.at(format!("sys/class/{kind}_host/host{number}"));
            let read =
                |kind: &str, attribute: &str| std::fs::read(class(kind).join(attribute)).ok();
            let contains =
                |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|part| part == what);
            if class("spi").is_dir() {
                "spi"
            } else if class("fc").is_dir() {
                if contains(&read("fc", "symbolic_name")?, b" over ") { "fcoe" } else { "fc" }
            } else if class("sas").is_dir() || sysfs.has(device, "device/sas_device") {
                "sas"
            } else if sysfs.has(device, "device/ieee1394_id") {
                "sbp"
            } else if class("iscsi").is_dir() {
                "iscsi"
            } else if seen.place.contains("usb") {
                "usb"
            } else {
                let driver = read("scsi", "proc_name")?;
                match () {
                    () if driver.starts_with(b"ahci") || driver.starts_with(b"sata") => "sata",
                    () if contains(&driver, b"ata") => "ata",
                    () => return None,
                }
            }
        }
        None if seen.name.starts_with("nvme") => "nvme",
        None => return None,
    };
    Some(found.to_owned())
}

/// The host's number in `HOST:CHANNEL:TARGET:LUN`.
pub fn parse_scsi_address(name: &str) -> Option<u32> {
    let parts: Vec<&str> = name.split(':').collect();
    let [host, rest @ ..] = &parts[..] else { return None };
    (rest.len() == 3 && rest.iter().all(|part| part.parse::<u64>().is_ok()))
        .then(|| host.parse().ok())
        .flatten()
}

/// A device on another machine, as far as the kernel's own tree shows.
fn not_local(
    host: &HostRoot,
    sysfs: &mut Sysfs,
    device: &OwnedFd,
    seen: &DeviceObservation,
    transport: Option<&str>,
) -> Option<String> {
    let starts = |prefix: &str| {
        seen.name
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let found = match transport {
        _ if starts("rbd") => "rbd",
        _ if starts("nbd") => "nbd",
        _ if starts("drbd") => "drbd",
        _ if seen.name.starts_with("etherd") => "aoe",
        _ if seen.name.starts_with("scini") => "powerflex",
        _ if starts("rnbd") => "rnbd",
        Some("iscsi") => "iscsi",
        Some("fc" | "fcoe") => "fc",
        _ if seen.place.contains("/session") && seen.place.contains("/target") => "iscsi",
        _ if seen.place.contains("/rport-") => "fc",
        _ if driver_of_host(host, seen).is_some_and(|driver| driver.starts_with("ib_srp")) => "srp",
        Some("nvme") => return nvme_fabric(sysfs, device),
        _ => return None,
    };
    Some(found.to_owned())
}

/// The driver of the SCSI host that the device hangs on.
fn driver_of_host(host: &HostRoot, seen: &DeviceObservation) -> Option<String> {
    let number = seen.place.split('/').find_map(|part| {
        part.strip_prefix("host").filter(|number| number.parse::<u32>().is_ok())
    })?;
    let bytes =
        std::fs::read(host.at(format!("sys/class/scsi_host/host{number}/proc_name"))).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Every controller of the namespace is asked: with native multipath `device` is the subsystem above them.
fn nvme_fabric(sysfs: &mut Sysfs, device: &OwnedFd) -> Option<String> {
    let mut ways = vec!["device/transport".to_owned()];
    let controllers =
        sysfs.list(device, "device").into_iter().filter(|name| name.starts_with("nvme"));
    ways.extend(controllers.map(|name| format!("device/{name}/transport")));
    let found: Vec<String> = ways.iter().filter_map(|way| sysfs.text(device, way)).collect();
    found
        .into_iter()
        .find(|transport| transport != "pcie")
        .map(|transport| format!("nvme-{transport}"))
}

/// udev's word, else the kernel's; what both leave open is filled in from the disk's table by the scan.
///
/// Of a partition that kpartx has mapped (of a multipath map) the kernel knows no more than its length.
fn partition(
    sysfs: &mut Sysfs,
    device: &OwnedFd,
    seen: &DeviceObservation,
    udev: &Properties,
) -> Option<Partition> {
    let number = match &seen.parent {
        Some(_) => seen.partition_number,
        None => sysfs.text(device, "dm/uuid").and_then(|uuid| parse_mapped_number(&uuid)),
    };
    let kernel = sysfs.bytes(device, "uevent").map(parse_uevent).unwrap_or_default();
    Some(Partition {
        number: number.unwrap_or_default(),
        start: sysfs
            .number(device, "start")
            .or(udev.partition_start)
            .unwrap_or_default()
            .saturating_mul(512),
        uuid: udev.partition_uuid.clone().or(kernel.partition_uuid),
        type_id: udev.partition_type.clone(),
        label: udev.partition_label.clone().or(kernel.partition_name),
    })
}

/// `part2-mpath-3600…`
fn parse_mapped_number(uuid: &str) -> Option<u32> {
    let digits = uuid.split('-').next()?.get(4..)?;
    digits.parse().ok()
}

fn evidence(
    sysfs: &mut Sysfs,
    device: &OwnedFd,
    seen: &DeviceObservation,
    udev: &Properties,
    partition: Option<&Partition>,
    has_device: bool,
) -> Vec<Evidence> {
    let mut all = Vec::new();
    // udev gives a partition what it knows of the disk: that would be the disk's identity, not the partition's.
    if let Some(partition) = partition {
        all.extend(partition.uuid.clone().map(|value| evidence_of("partition:uuid", value)));
        if seen.parent.is_none() {
            all.extend(
                sysfs.text(device, "dm/uuid").map(|value| evidence_of("sysfs:dm-uuid", value)),
            );
        }
        return all;
    }
    let mut say = |source: &str, value: Option<String>| {
        all.extend(value.map(|value| evidence_of(source, value)))
    };
    if has_device || seen.name.starts_with("nvme") {
        say("sysfs:nguid", sysfs.text(device, "nguid"));
        say("sysfs:eui", sysfs.text(device, "eui"));
        say("sysfs:nvme-uuid", sysfs.text(device, "uuid"));
        let wwid = sysfs.text(device, "wwid").or_else(|| sysfs.text(device, "device/wwid"));
        say("sysfs:wwid", wwid);
    }
    match &udev.wwn_extended {
        Some(wwn) => say("udev:ID_WWN_WITH_EXTENSION", Some(wwn.clone())),
        None => say("udev:ID_WWN", udev.wwn.clone()),
    }
    if has_device {
        for designator in
            sysfs.bytes(device, "device/vpd_pg83").map(parse_vpd83).unwrap_or_default()
        {
            say("sysfs:vpd83", Some(designator));
        }
        say("sysfs:model", sysfs.text(device, "device/model"));
        say("sysfs:serial", sysfs.text(device, "device/serial"));
        say("sysfs:vpd80", sysfs.bytes(device, "device/vpd_pg80").and_then(parse_vpd80));
    }
    say("udev:ID_SERIAL_SHORT", udev.serial_short.clone());
    say("udev:ID_SERIAL", udev.serial_full.clone());
    if is_mapped(seen) {
        say("sysfs:dm-uuid", sysfs.text(device, "dm/uuid"));
    }
    if seen.name.starts_with("md") {
        match sysfs.text(device, "md/uuid") {
            Some(uuid) => say("sysfs:md-uuid", Some(uuid)),
            None => say("udev:MD_UUID", udev.md_uuid.clone()),
        }
    }
    all
}

pub fn evidence_of(source: &str, value: String) -> Evidence {
    Evidence { source: source.to_owned(), value }
}

/// A line of the disk's table, for what neither udev nor the kernel said.
pub fn complete(partition: &mut Partition, entry: &crate::sys::blkid::Entry) {
    let text = |bytes: &Option<Vec<u8>>| bytes.as_deref().and_then(printable);
    partition.uuid = partition.uuid.take().or_else(|| text(&entry.uuid));
    partition.type_id = partition.type_id.take().or_else(|| text(&entry.type_id));
    partition.label = partition.label.take().or_else(|| text(&entry.name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scsi_address_has_four_numbers() {
        assert_eq!(parse_scsi_address("2:0:0:16777216"), Some(2));
        for other in ["", "nvme0", "virtio1", "0:0:0", "a:0:0:0", "1:2:3:4:5", "1:2:3:"] {
            assert_eq!(parse_scsi_address(other), None, "{other}");
        }
    }
}
