//! Which disk the image is written to.
//!
//! Names of arrays change with every boot, and the mark of a root volume is known only to the agent that built it. What
//! lasts is that an array is one (`/dev/md…`), and whether it is the smaller or the larger of two. Ironic compares sizes
//! as fractions of a GiB, and knows no range: one bound is all that a hint can have.

use super::phases::hint;
use crate::bare_metal_host::raid_rules::has_hints;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{RaidConfig, RootDeviceHints, SoftwareRaidVolume},
};
use quarry_ironic::{LogicalDisk, SizeGb};
use serde_json::{Map, Value, json};

/// The array that the image is written to: the one that is marked, else the first.
pub fn root_array(volumes: &[SoftwareRaidVolume]) -> usize {
    volumes.iter().position(|volume| volume.root_volume).unwrap_or_default()
}

/// Recorded when provisioning begins. `None`: no hint of the spec.
pub fn spec_hints(host: &BareMetalHost) -> Option<RootDeviceHints> {
    host.spec.root_device_hints.clone().filter(|_| has_hints(host))
}

/// `root_device` of the node. Empty: Ironic takes the smallest disk of 4 GiB or more.
/// `reported`: the hardware volumes that Ironic read from the BMC.
pub fn root_device(
    hints: Option<&RootDeviceHints>,
    snapshot: Option<&RaidConfig>,
    reported: &[LogicalDisk],
) -> Map<String, Value> {
    if let Some(hints) = hints {
        return hint(hints);
    }
    let Some(snapshot) = snapshot else { return Map::new() };
    let arrays = snapshot.software_raid_volumes.requested().unwrap_or_default();
    let volumes = snapshot.hardware_raid_volumes.requested().unwrap_or_default();
    if !volumes.is_empty() {
        return volume_hint(volumes.first().map(|volume| volume.name.as_str()), reported);
    }
    match arrays {
        [] => Map::new(),
        arrays => array_hint(arrays),
    }
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// An array is smaller than its size by less than a GiB.
fn array_hint(arrays: &[SoftwareRaidVolume]) -> Map<String, Value> {
    let root = root_array(arrays);
    let sizes = arrays.iter().map(|array| array.size_gibibytes);
    let others = sizes.enumerate().filter(|(index, _)| *index != root).map(|(_, size)| size);
    let own = arrays.get(root).and_then(|array| array.size_gibibytes);
    let is_array = "<in> /dev/md";
    map(match (own, others.last()) {
        (_, None) | (None, Some(None)) => json!({"name": is_array}),
        (Some(own), Some(Some(other))) if own > other => {
            json!({"name": is_array, "size": format!(">= {other}")})
        }
        (Some(own), Some(_)) => json!({"name": is_array, "size": format!("<= {own}")}),
        (None, Some(Some(other))) => json!({"name": is_array, "size": format!(">= {other}")}),
    })
}

/// The first volume, as large as the BMC reports it, in whole GiB.
fn volume_hint(name: Option<&str>, reported: &[LogicalDisk]) -> Map<String, Value> {
    let size = |disk: &LogicalDisk| match disk.size_gb {
        SizeGb::Gib(size) => size,
        SizeGb::Max => 0,
    };
    let named = name.filter(|name| !name.is_empty());
    let is_root = |disk: &&LogicalDisk| {
        let shown = disk.name.as_deref().or(disk.volume_name.as_deref());
        named.is_some() && shown == named
    };
    let Some(root) = reported.iter().find(is_root).or_else(|| reported.first()) else {
        return Map::new();
    };
    let own = size(root);
    let smallest = reported.len() > 1 && reported.iter().all(|other| size(other) >= own);
    map(match smallest {
        true => json!({"size": format!("<= {}", own + 1)}),
        false => json!({"size": format!(">= {own}")}),
    })
}
