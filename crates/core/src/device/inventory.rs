//! The status of a NodeInventory, from the agent's scan and what the cluster knows.

use super::{
    by_id_link,
    facts::{Content, Facts},
    group::GroupedDevice,
    reason::Reason,
    records::{Partitions, concerns_grouped},
    settle::Settling,
    verdict::{Finding, Verdict, cluster_reasons, judge, retained_data_detail},
};
use crate::inventory_room::{LEAST_FOR_DEVICES, OBJECT, PATHS, bytes};
use quarry_api::{
    NodeInventorySpec, NodeInventoryStatus,
    node_inventory::{ClaimReport, Device, DeviceReason, DeviceState, PathReport, Summary},
    quantity::Bytes,
    reason::Meaning,
};
use std::collections::BTreeSet;

/// Facts about the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub node_uid: Option<String>,
    pub machine_id: Option<String>,
    pub boot_id: Option<String>,
    pub ledger_id: Option<String>,
    /// The boot in which the Volumes of the node last got their devices.
    pub restored_boot_id: Option<String>,
    pub agent_version: Option<String>,
    /// The reports on device claims and on paths.
    pub claims: Vec<ClaimReport>,
    pub paths: Vec<PathReport>,
    pub problems: Vec<String>,
}

/// The whole status, except for the time of its last change.
pub fn status(
    node: NodeFacts,
    known: &[GroupedDevice],
    settling: &Settling,
    spec: &NodeInventorySpec,
) -> NodeInventoryStatus {
    let mut devices: Vec<Device> = known
        .iter()
        .map(|device| row(device, known, settling.is_settled(&device.facts.name), spec))
        .collect();
    devices.sort_by_cached_key(|device| natural(&device.name));
    let summary = Some(summary(&devices));
    let status = NodeInventoryStatus {
        node_uid: node.node_uid,
        machine_id: node.machine_id,
        ledger_id: node.ledger_id,
        boot_id: node.boot_id,
        restored_boot_id: node.restored_boot_id,
        agent_version: node.agent_version,
        summary,
        devices,
        device_claims: node.claims,
        paths: node.paths,
        problems: node.problems,
        last_change: None,
    };
    fit(status, OBJECT.saturating_sub(bytes(spec)).max(LEAST_FOR_DEVICES))
}

/// The last status, after a scan that failed as a whole: the devices are still listed, and none is Available.
pub fn unseen(mut last: NodeInventoryStatus, why: &str) -> NodeInventoryStatus {
    let detail = "the agent cannot scan the devices of this node";
    for device in last.devices.iter_mut().filter(|device| device.state == DeviceState::Available) {
        device.state = DeviceState::Unknown;
        device.reasons.push(DeviceReason::new(Reason::Unreadable, detail));
    }
    if last.summary.is_some() {
        last.summary = Some(summary(&last.devices));
    }
    last.problems = vec![why.to_owned()];
    last
}

/// One device as it is published; also what the CLI shows of this machine. `known`: all devices of the node.
pub fn row(
    device: &GroupedDevice,
    known: &[GroupedDevice],
    settled: bool,
    spec: &NodeInventorySpec,
) -> Device {
    let facts = &device.facts;
    let mut more = device.findings.clone();
    if !settled {
        more.push((Reason::TooNew, String::new()));
    }
    more.extend(cluster_reasons(&device.disk, spec));
    more.extend(retained_data(device, known, spec));
    let Verdict { state, reasons } = judge(facts, &device.identified.candidates, spec, more);
    let found = match &facts.content {
        Content::Found(found) => Some(found),
        _ => None,
    };
    Device {
        name: facts.name.clone(),
        mapped_name: facts.mapped_name.clone(),
        kind: facts.kind.clone(),
        size: i64::try_from(facts.size).unwrap_or(i64::MAX),
        identity: device.identified.identity.clone(),
        evidence: facts.evidence.clone(),
        device_id: by_id_link::best(
            facts.by_id.iter().chain(&device.path_links).map(String::as_str),
        )
        .map(|name| format!("/dev/disk/by-id/{name}")),
        parent: facts.parent.clone(),
        paths: device.paths.clone(),
        model: facts.model.clone(),
        vendor: facts.vendor.clone(),
        serial: facts.serial.clone(),
        transport: facts.transport.clone(),
        rotational: facts.rotational,
        read_only: facts.read_only,
        removable: facts.removable,
        fs_type: fs_type(facts).map(str::to_owned),
        fs_uuid: found.and_then(|found| found.uuid.clone()),
        part_label: facts.partition.as_ref().and_then(|partition| partition.label.clone()),
        diskseq: facts.diskseq.and_then(|seq| i64::try_from(seq).ok()),
        settled,
        state,
        reasons,
        volume_uid: facts.volume_uid.clone(),
        backing_file: facts.backing.as_ref().map(|file| file.path.clone()),
        link: facts.link.clone(),
    }
}

/// Data that is on the device although the record names another: its partition is gone, or replaces another.
fn retained_data(
    device: &GroupedDevice,
    known: &[GroupedDevice],
    spec: &NodeInventorySpec,
) -> Vec<Finding> {
    let own = |identity: &String| device.identified.candidates.contains(identity);
    let claimed = spec.device_claims.iter().any(|claim| own(&claim.identity));
    let partitions = if claimed { Partitions::Known } else { Partitions::New };
    let kept = spec.retained_data.iter();
    kept.filter(|kept| concerns_grouped(*kept, partitions, device, known))
        .map(|kept| (Reason::RetainedData, retained_data_detail(kept)))
        .collect()
}

pub(super) fn fs_type(facts: &Facts) -> Option<&str> {
    match &facts.content {
        Content::Found(found) => found.fs_type.as_deref(),
        Content::Unread
        | Content::Blank
        | Content::UnknownData
        | Content::NoMedium
        | Content::Unreadable(_)
        | Content::TimedOut
        | Content::NotPermitted => None,
    }
}

/// Every number counts whole devices, so that none is larger than that of the disks.
fn summary(devices: &[Device]) -> Summary {
    // A device without a size (zram, an empty card reader) does not count as a disk.
    let whole = |device: &Device| {
        device.size > 0 && matches!(device.kind.as_str(), "disk" | "mpath" | "loop")
    };
    let count = |matches: &dyn Fn(&Device) -> bool| {
        let by_partition: BTreeSet<&str> = devices
            .iter()
            .filter(|device| matches(device))
            .filter_map(|device| device.parent.as_deref())
            .collect();
        let counts = |device: &&Device| {
            whole(device) && (matches(device) || by_partition.contains(device.name.as_str()))
        };
        i64::try_from(devices.iter().filter(counts).count()).unwrap_or(i64::MAX)
    };
    let capacity: u64 = devices
        .iter()
        .filter(|device| whole(device))
        .filter_map(|device| u64::try_from(device.size).ok())
        .sum();
    Summary {
        disks: count(&|_| true),
        available: count(&|device| device.state == DeviceState::Available),
        claimed: count(&|device| device.means(Meaning::Owned)),
        quarantined: count(&|device| device.means(Meaning::Quarantine)),
        capacity: Bytes(capacity).to_string(),
    }
}

/// Natural order of names: sda2 before sda10.
pub fn natural(name: &str) -> Vec<(String, Option<u64>)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(word_end);
        let number_end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(number_end);
        parts.push((word.to_owned(), number.parse().ok()));
        rest = tail;
    }
    parts
}

/// Makes the status fit into an API object. What is omitted is reported: first the evidence, which can be read on the node,
/// then devices without an owner, then the others. Reports on device claims always stay.
fn fit(mut status: NodeInventoryStatus, largest: usize) -> NodeInventoryStatus {
    if bytes(&status) <= largest {
        return status;
    }
    // The operator bounds the paths that it asks about; this is for what it may have written before.
    let mut room = PATHS;
    let paths = status.paths.len();
    status.paths.retain(|report| {
        let size = bytes(report);
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    });
    let omitted = paths - status.paths.len();
    if omitted > 0 {
        status.problems.push(format!(
            "too many paths for one object: {omitted} of {paths} are not resolved; remove paths that do not exist on this node from the LocalVolumes"
        ));
    }
    if bytes(&status) <= largest {
        return status;
    }
    for device in &mut status.devices {
        device.evidence.clear();
    }
    status
        .problems
        .push("too many devices for one object: the evidence of their identities is omitted; run `quarry devices -o yaml` on the node to see it".to_owned());
    let all = status.devices.len();
    let devices = std::mem::take(&mut status.devices);
    // The report on what is omitted, and the name of the list.
    let mut room = largest.saturating_sub(bytes(&status) + 300);
    let mut kept: Vec<Device> = Vec::with_capacity(all);
    let (owned, others): (Vec<Device>, Vec<Device>) =
        devices.into_iter().partition(|device| device.means(Meaning::Owned));
    for device in owned.into_iter().chain(others) {
        let size = bytes(&device) + 1;
        if size <= room {
            room -= size;
            kept.push(device);
        } else {
            room = 0;
        }
    }
    kept.sort_by_cached_key(|device| natural(&device.name));
    status.devices = kept;
    let left_out = all - status.devices.len();
    if left_out > 0 {
        status.problems.push(format!(
            "too many devices for one object: {left_out} of {all} are not listed and cannot be used; run `quarry devices` on the node to see them"
        ));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::super::{ExclusiveOpen, group::group};
    use super::*;
    use quarry_api::node_inventory::{ClaimOwner, DeviceClaim, Evidence, UnmanagedPv};

    fn disk(name: &str, size: u64, evidence: &[(&str, &str)]) -> Facts {
        let evidence = evidence
            .iter()
            .map(|(source, value)| Evidence { source: (*source).into(), value: (*value).into() })
            .collect();
        Facts {
            name: name.into(),
            kind: "disk".into(),
            size,
            evidence,
            exclusive_open: ExclusiveOpen::Free,
            content: Content::Blank,
            ..Facts::default()
        }
    }

    fn published(seen: &[Facts], spec: &NodeInventorySpec) -> NodeInventoryStatus {
        status(NodeFacts::default(), &group(seen, None, None, &[]), &Settling::default(), spec)
    }

    fn reasons(device: &Device) -> Vec<&str> {
        device.reasons.iter().map(|findings| findings.reason.as_str()).collect()
    }

    #[test]
    fn device_claim_holds_when_a_stronger_identity_is_found() {
        let serial = [("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
        let grown =
            [("sysfs:vpd80", "S1"), ("sysfs:model", "M"), ("sysfs:wwid", "naa.5000c50000000001")];
        let owner = ClaimOwner {
            kind: "LocalVolumeSet".into(),
            namespace: None,
            name: "fast".into(),
            uid: "u".into(),
        };
        let spec = NodeInventorySpec {
            device_claims: vec![DeviceClaim {
                identity: "serial:M:S1".into(),
                owner,
                ..DeviceClaim::default()
            }],
            ..NodeInventorySpec::default()
        };
        for evidence in [&serial[..], &grown] {
            let whole = Facts { partitions: vec!["sda1".into()], ..disk("sda", 1 << 30, evidence) };
            let part = Facts {
                kind: "part".into(),
                parent: Some("sda".into()),
                ..disk("sda1", 1 << 29, &[("partition:uuid", "a1b2c3d4-01")])
            };
            let group = Facts {
                kind: "crypt".into(),
                slaves: vec!["sda1".into()],
                ..disk("dm-0", 1 << 29, &[("sysfs:dm-uuid", "CRYPT-x")])
            };
            let top = Facts {
                kind: "lvm".into(),
                slaves: vec!["dm-0".into()],
                ..disk("dm-1", 1 << 28, &[("sysfs:dm-uuid", "LVM-x")])
            };
            let status = published(
                &[whole, part, group, top, disk("sdz", 1 << 30, &[("sysfs:serial", "S9")])],
                &spec,
            );
            for device in &status.devices[..4] {
                assert_eq!(reasons(device)[0], "Claimed", "{evidence:?}: {}", device.name);
            }
            assert!(!reasons(&status.devices[4]).contains(&"Claimed"));
        }
    }

    #[test]
    fn nothing_is_available_while_unmanaged_pvs_are_omitted() {
        let spec =
            NodeInventorySpec { unmanaged_pvs_omitted: Some(12), ..NodeInventorySpec::default() };
        let known = group(&[disk("sda", 1 << 30, &[("sysfs:serial", "S1")])], None, None, &[]);
        assert_eq!(
            row(&known[0], &known, true, &NodeInventorySpec::default()).state,
            DeviceState::Available
        );
        let row = row(&known[0], &known, true, &spec);
        assert_eq!(
            (row.state, reasons(&row)),
            (DeviceState::Unknown, vec!["UnlistedPersistentVolumes"])
        );
    }

    #[test]
    fn a_device_without_size_is_listed_and_not_counted() {
        let status = published(
            &[disk("sda", 1 << 30, &[("sysfs:serial", "S1")]), disk("zram0", 0, &[])],
            &NodeInventorySpec::default(),
        );
        assert_eq!(status.summary.as_ref().map(|summary| summary.disks), Some(1));
        assert!(reasons(&status.devices[1]).contains(&"ZeroSize"));
    }

    #[test]
    fn every_number_of_the_summary_counts_whole_devices() {
        let claim =
            |identity: &str| DeviceClaim { identity: identity.into(), ..DeviceClaim::default() };
        let part = |name: &str, uuid: &str| Facts {
            kind: "part".into(),
            parent: Some("sda".into()),
            ..disk(name, 1 << 29, &[("partition:uuid", uuid)])
        };
        let whole = Facts {
            partitions: vec!["sda1".into(), "sda2".into()],
            ..disk("sda", 1 << 30, &[("sysfs:serial", "S1"), ("sysfs:model", "M")])
        };
        let other = disk("sdb", 1 << 30, &[("sysfs:wwid", "naa.5000c50000000001")]);
        let seen = [whole, part("sda1", "a1b2c3d4-01"), part("sda2", "a1b2c3d4-02"), other];
        let numbers = |claims: &[&str]| {
            let spec = NodeInventorySpec {
                device_claims: claims.iter().map(|identity| claim(identity)).collect(),
                ..NodeInventorySpec::default()
            };
            let summary = published(&seen, &spec).summary.unwrap();
            (summary.disks, summary.claimed)
        };
        let of = |name: &str| {
            let found = published(&seen, &NodeInventorySpec::default()).devices;
            found.into_iter().find(|device| device.name == name).unwrap().identity.unwrap()
        };
        let (sda, sda1, sda2, sdb) = (of("sda"), of("sda1"), of("sda2"), of("sdb"));
        assert_eq!(numbers(&[]), (2, 0));
        assert_eq!(numbers(&[&sda]), (2, 1), "its partitions belong to its owner");
        assert_eq!(numbers(&[&sda1, &sda2]), (2, 1));
        assert_eq!(numbers(&[&sda1, &sda2, &sdb]), (2, 2));
    }

    #[test]
    fn spec_and_status_share_the_room() {
        let seen: Vec<Facts> = (0..3000)
            .map(|n| {
                disk(
                    &format!("sd{n}"),
                    1 << 30,
                    &[("sysfs:wwid", &format!("naa.5000c5000000{n:04}"))],
                )
            })
            .collect();
        let size = |status: &NodeInventoryStatus| serde_json::to_vec(status).unwrap().len();
        let alone = published(&seen, &NodeInventorySpec::default());
        assert_eq!((alone.devices.len(), alone.problems.len()), (3000, 0));
        let pv = |n: usize| UnmanagedPv {
            name: format!("pv-{n}"),
            path: format!("/mnt/local-storage/fast/{n:0100}"),
            device_id: None,
        };
        let spec = NodeInventorySpec {
            unmanaged_pvs: (0..7200).map(pv).collect(),
            ..NodeInventorySpec::default()
        };
        let beside = published(&seen, &spec);
        let room = OBJECT - serde_json::to_vec(&spec).unwrap().len();
        assert!(
            size(&beside) <= room + 1000 && beside.devices.len() < 3000,
            "{} in {room}",
            size(&beside)
        );
        assert!(
            beside
                .problems
                .last()
                .is_some_and(|problem| problem.contains("are not listed and cannot be used")),
            "{:?}",
            beside.problems
        );
        let spec = NodeInventorySpec {
            unmanaged_pvs: (0..20_000).map(pv).collect(),
            ..NodeInventorySpec::default()
        };
        assert!(published(&seen, &spec).devices.len() > 500, "never empty");
    }
}
