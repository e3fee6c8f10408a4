//! Builds the `Observed` of one Volume from a `Source`. Decides nothing.

use super::{Observed, jobs::parse_handle};
use crate::{device_claim::other_ledger, source::Source};
use jiff::Timestamp;
use quarry_api::{Volume, node_inventory::Device};

/// Everything that `source` knows of the Volume. `other_pv` is left to the caller: it needs every PersistentVolume.
pub fn observed(source: &impl Source, volume: &Volume, now: Timestamp) -> Observed {
    let node_name = &volume.spec.node_name;
    let inventory = source.inventory(node_name);
    let status = inventory.as_deref().and_then(|inventory| inventory.status.as_ref());
    Observed {
        pv: volume.metadata.name.as_deref().and_then(|name| source.pv(name)).map(own),
        class: source.class(&volume.spec.storage_class_name).map(own),
        node: source.node(node_name).map(own),
        agent: source.agent_presence(node_name, now),
        job: job_name(volume).and_then(|job| source.job(&job)).map(own),
        device: status.and_then(|status| device(&status.devices, volume)).cloned(),
        rival_device: status.and_then(|status| rival(&status.devices, volume)),
        restored: status.is_some_and(|status| status.restored_boot_id == status.boot_id),
        inventory_changed: status.and_then(|status| Some(status.last_change.as_ref()?.0)),
        other_ledger: inventory.as_deref().and_then(other_ledger),
        other_pv: None,
        volume: volume.clone(),
    }
}

/// The NodeJob that the Volume's status names.
pub fn job_name(volume: &Volume) -> Option<String> {
    let handle = volume.status.as_ref().and_then(|status| status.job.as_deref());
    handle.and_then(parse_handle).map(|(_, name)| name.to_owned())
}

fn device<'a>(devices: &'a [Device], volume: &Volume) -> Option<&'a Device> {
    let uid = volume.metadata.uid.as_deref()?;
    devices.iter().find(|device| device.volume_uid.as_deref() == Some(uid))
}

/// A device with the volume's UUID that is neither the volume's nor a partition of it.
pub(super) fn rival(devices: &[Device], volume: &Volume) -> Option<String> {
    let uid = volume.metadata.uid.as_deref()?;
    let ours = device(devices, volume).map(|device| device.name.as_str());
    let marked = |device: &&Device| {
        [&device.fs_uuid, &device.part_label].iter().any(|mark| mark.as_deref() == Some(uid))
    };
    let other = |device: &&Device| {
        Some(device.name.as_str()) != ours
            && (device.parent.is_none() || device.parent.as_deref() != ours)
    };
    devices.iter().filter(marked).find(other).map(|device| device.name.clone())
}

fn own<T: Clone>(shared: std::sync::Arc<T>) -> T {
    std::sync::Arc::unwrap_or_clone(shared)
}
