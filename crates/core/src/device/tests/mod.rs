//! Devices made by hand; each file tests the module of its name.

use super::{
    events::changes,
    facts::{BackingFile, Content, ExclusiveOpen, Facts, Found, Partition},
    group::{GroupedDevice, group, partial_matches, published_candidates},
    identity::identify,
    inventory::{NodeFacts, row, status, unseen},
    reason::{Reason, TABLE},
    settle::{SETTLING_TIME, Settling},
    verdict::judge,
};
use quarry_api::{
    NodeInventorySpec, NodeInventoryStatus,
    node_inventory::{ClaimOwner, DeviceClaim, DeviceState, Evidence, Quarantine, RetainedData},
};
use std::time::Duration;

fn evidence(pairs: &[(&str, &str)]) -> Vec<Evidence> {
    pairs
        .iter()
        .map(|(source, value)| Evidence { source: (*source).into(), value: (*value).into() })
        .collect()
}

/// A disk that nothing speaks against.
fn blank(name: &str, wwn: &str) -> Facts {
    Facts {
        name: name.into(),
        number: "8:0".into(),
        kind: "disk".into(),
        size: 1 << 30,
        diskseq: Some(7),
        evidence: evidence(&[("sysfs:wwid", &format!("naa.{wwn}"))]),
        exclusive_open: ExclusiveOpen::Free,
        content: Content::Blank,
        ..Facts::default()
    }
}

fn published(
    seen: &[Facts],
    previous: Option<&NodeInventoryStatus>,
    accepted: &[String],
    settling: &mut Settling,
    now: Duration,
) -> NodeInventoryStatus {
    let known = group(seen, previous, Some("boot"), accepted);
    settling.observe(&known, previous, Some("boot"), now, SETTLING_TIME);
    status(
        NodeFacts { boot_id: Some("boot".into()), ..NodeFacts::default() },
        &known,
        settling,
        &NodeInventorySpec::default(),
    )
}

fn state(status: &NodeInventoryStatus, at: usize) -> (DeviceState, Vec<&str>) {
    let device = &status.devices[at];
    (device.state, device.reasons.iter().map(|findings| findings.reason.as_str()).collect())
}

mod events;
mod group;
mod identity;
mod inventory;
mod returning_path;
mod settle;
mod verdict;
