//! Events about what changed between two scans.

use super::{Reason, group::published_candidates};
use crate::event::PendingEvent;
use quarry_api::{
    NodeInventoryStatus,
    node_inventory::{Device, DeviceReason, DeviceState},
    quantity::Bytes,
    reason::Meaning,
};
use std::collections::BTreeMap;

pub const APPEARED: &str = "DeviceAppeared";
pub const DISAPPEARED: &str = "DeviceDisappeared";
pub const VERDICT_CHANGED: &str = "DeviceVerdictChanged";
/// As upstream.
pub const LINK_RECREATED: &str = "SymlinkRecreated";

/// The rest is summarized by its number: a shelf of disks must not hide everything else.
const MAX_EVENTS: usize = 10;

pub fn changes(before: &NodeInventoryStatus, after: &NodeInventoryStatus) -> Vec<PendingEvent> {
    let same_boot = before.boot_id.is_some() && before.boot_id == after.boot_id;
    let old: BTreeMap<&str, &Device> =
        before.devices.iter().map(|device| (device.name.as_str(), device)).collect();
    let new: BTreeMap<&str, &Device> =
        after.devices.iter().map(|device| (device.name.as_str(), device)).collect();
    let (mut came, mut went, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for (name, device) in &new {
        match old.get(name).filter(|was| is_same(was, device, same_boot)) {
            Some(was) => changed.extend(verdict_changed(was, device)),
            None => came.push(appeared(device)),
        }
    }
    for (name, device) in &old {
        if !new.get(name).is_some_and(|now| is_same(device, now, same_boot)) {
            went.push(disappeared(device));
        }
    }
    [limited(APPEARED, came), limited(DISAPPEARED, went), limited(VERDICT_CHANGED, changed)]
        .concat()
}

/// By the kernel's sequence number within a boot: an identity that changed or grew in place is the same disk, and the
/// verdict reports the change. Sequence numbers restart with each boot, and do not distinguish a new partition of a disk
/// from the previous one with its name.
fn is_same(before: &Device, after: &Device, same_boot: bool) -> bool {
    let (was, is) = (published_candidates(before), published_candidates(after));
    let alike = was == is || !was.is_disjoint(&is);
    match (before.diskseq, after.diskseq) {
        (Some(old), Some(new)) if same_boot => {
            old == new && (after.kind != "part" || alike || was.is_empty() || is.is_empty())
        }
        (Some(_) | None, _) => alike,
    }
}

fn appeared(device: &Device) -> PendingEvent {
    PendingEvent {
        reason: APPEARED,
        warning: false,
        message: format!("{} appeared: {}", title(device), verdict(device)),
    }
}

fn disappeared(device: &Device) -> PendingEvent {
    PendingEvent {
        reason: DISAPPEARED,
        warning: device.means(Meaning::Owned),
        message: format!("{} disappeared; it was {}", title(device), verdict(device)),
    }
}

/// Settling is not reported: the appearance of the device was. Quarantine always is.
fn verdict_changed(before: &Device, after: &Device) -> Option<PendingEvent> {
    let settling = |device: &Device| device.has(Reason::TooNew);
    let rest = |device: &Device| {
        device
            .reasons
            .iter()
            .filter(|found| found.reason != Reason::TooNew)
            .cloned()
            .collect::<Vec<_>>()
    };
    let same = before.state == after.state
        || (settling(before) != settling(after)
            && rest(before) == rest(after)
            && !rest(after).is_empty());
    let (was_held, is_held) = (before.means(Meaning::Quarantine), after.means(Meaning::Quarantine));
    let what = match (same, was_held, is_held) {
        (true, false, false) | (true, true, true) => return None,
        (true, false, true) => "is quarantined:".to_owned(),
        (true, true, false) => "is no longer quarantined:".to_owned(),
        (false, _, _) => format!("was {}, now", before.state.as_str()),
    };
    let warning = (is_held && !was_held)
        || (after.state == DeviceState::Unknown && !settling(after) && !same);
    Some(PendingEvent {
        reason: VERDICT_CHANGED,
        warning,
        message: format!("{} {what} {}", title(after), verdict(after)),
    })
}

fn title(device: &Device) -> String {
    let size = Bytes(u64::try_from(device.size).unwrap_or_default());
    let identity =
        device.identity.as_ref().map_or_else(String::new, |identity| format!(", {identity}"));
    format!("{} ({}, {size}{identity})", device.name, device.kind)
}

fn verdict(device: &Device) -> String {
    let why: Vec<String> = device.reasons.iter().map(DeviceReason::message).collect();
    if why.is_empty() {
        device.state.as_str().to_owned()
    } else {
        format!("{}, because it {}", device.state.as_str(), why.join("; it "))
    }
}

/// At most `MAX_EVENTS` Events with one reason.
pub fn limited(reason: &'static str, mut events: Vec<PendingEvent>) -> Vec<PendingEvent> {
    if events.len() > MAX_EVENTS {
        let more = events.len() - (MAX_EVENTS - 1);
        let warning = events[MAX_EVENTS - 1..].iter().any(|one| one.warning);
        events.truncate(MAX_EVENTS - 1);
        events.push(PendingEvent {
            reason,
            warning,
            message: format!(
                "and {more} more devices; list them with `quarry devices` or `kubectl get nodeinventory`"
            ),
        });
    }
    for one in &mut events {
        // An Event's message may have 1,024 bytes.
        if one.message.len() > 1000 {
            one.message = one.message.chars().take(240).collect::<String>() + "…";
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_api::node_inventory::{DeviceReason, Evidence};

    fn disk(diskseq: Option<i64>, evidence: &[(&str, &str)], reasons: &[&str]) -> Device {
        let evidence: Vec<Evidence> = evidence
            .iter()
            .map(|(source, value)| Evidence { source: (*source).into(), value: (*value).into() })
            .collect();
        let kind =
            if evidence.iter().any(|one| one.source == "partition:uuid") { "part" } else { "disk" };
        let facts = super::super::Facts {
            kind: kind.into(),
            evidence: evidence.clone(),
            ..Default::default()
        };
        Device {
            name: "sda".into(),
            kind: kind.into(),
            identity: super::super::identity::identify(&facts).identity,
            evidence,
            diskseq,
            state: if reasons.is_empty() {
                DeviceState::Available
            } else {
                DeviceState::NotAvailable
            },
            reasons: reasons
                .iter()
                .map(|reason| DeviceReason { reason: (*reason).into(), detail: String::new() })
                .collect(),
            ..Device::default()
        }
    }

    fn status(boot: &str, device: Device) -> NodeInventoryStatus {
        NodeInventoryStatus {
            boot_id: Some(boot.into()),
            devices: vec![device],
            ..NodeInventoryStatus::default()
        }
    }

    fn findings(before: &NodeInventoryStatus, after: &NodeInventoryStatus) -> Vec<&'static str> {
        changes(before, after).into_iter().map(|one| one.reason).collect()
    }

    const SERIAL: (&str, &str) = ("sysfs:vpd80", "S1");
    const WWN: (&str, &str) = ("sysfs:wwid", "naa.5000c50000000001");
    const OTHER: (&str, &str) = ("sysfs:wwid", "naa.5000c50000000002");

    #[test]
    fn more_evidence_is_no_new_device() {
        let young = status("boot", disk(Some(7), &[SERIAL], &[]));
        for (boot, seq) in [("boot", Some(7)), ("next boot", Some(8)), ("boot", None)] {
            assert_eq!(
                findings(&young, &status(boot, disk(seq, &[SERIAL, WWN], &[]))),
                [""; 0],
                "{boot} {seq:?}"
            );
        }
        let came_and_went = [APPEARED, DISAPPEARED];
        assert_eq!(
            findings(&young, &status("boot", disk(Some(8), &[SERIAL], &[]))),
            came_and_went,
            "plugged in again"
        );
        assert_eq!(
            findings(&young, &status("next boot", disk(Some(7), &[OTHER], &[]))),
            came_and_went
        );
        let partition =
            |uuid: &str| status("boot", disk(Some(7), &[("partition:uuid", uuid)], &[]));
        assert_eq!(findings(&partition("a1b2c3d4-01"), &partition("a1b2c3d4-01")), [""; 0]);
        assert_eq!(
            findings(&partition("a1b2c3d4-01"), &partition("ffffc3d4-01")),
            came_and_went,
            "another partition of the same disk"
        );
    }

    #[test]
    fn quarantine_is_reported_even_if_the_state_is_unchanged() {
        let mounted = status("boot", disk(Some(7), &[WWN], &["Mounted"]));
        let held = status("boot", disk(Some(7), &[OTHER], &["IdentityChanged", "Mounted"]));
        let one = &changes(&mounted, &held)[..];
        assert_eq!((one.len(), one[0].reason, one[0].warning), (1, VERDICT_CHANGED, true));
        assert!(
            one[0].message.contains(
                ") is quarantined: NotAvailable, because it shows a different identity than before"
            ),
            "{}",
            one[0].message
        );
        let freed = &changes(&held, &mounted)[..];
        assert_eq!((freed.len(), freed[0].reason, freed[0].warning), (1, VERDICT_CHANGED, false));
        assert!(
            freed[0]
                .message
                .contains(") is no longer quarantined: NotAvailable, because it is mounted"),
            "{}",
            freed[0].message
        );
        assert_eq!(findings(&held, &held), [""; 0]);
        let fell = changes(&status("boot", disk(Some(7), &[WWN], &[])), &held);
        assert!(
            fell[0].warning && fell[0].message.contains("was Available, now NotAvailable"),
            "{fell:?}"
        );
        // Other reasons come and go without noise.
        assert_eq!(
            findings(&mounted, &status("boot", disk(Some(7), &[WWN], &["Mounted", "ReadOnly"]))),
            [""; 0]
        );
    }
}
