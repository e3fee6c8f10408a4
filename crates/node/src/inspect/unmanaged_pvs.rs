//! Which devices are behind the PersistentVolumes of others.

use super::mounts::answered_by_others;
use crate::{host_root::HostRoot, sys::DevNumber};
use quarry_api::node_inventory::UnmanagedPv;
use quarry_core::device::Facts;
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

/// Notes each PersistentVolume on the device that its path leads to, or that its by-id name names.
///
/// Both count: a link that was lost, or leads elsewhere since the last boot, must not set the old device free.
pub fn mark_unmanaged(host: &HostRoot, devices: &mut [Facts], pvs: &[UnmanagedPv]) {
    // Its own file system may be dead; then its name has to do.
    let others = if pvs.is_empty() {
        Vec::new()
    } else {
        host.mountinfo().map(|bytes| answered_by_others(&bytes)).unwrap_or_default()
    };
    for pv in pvs {
        let asked = Some(&pv.path)
            .filter(|path| !others.iter().any(|other| Path::new(path).starts_with(other)));
        let number = asked
            .and_then(|path| device_behind(host, path))
            .map(|number| format!("{}:{}", number.major, number.minor));
        let by_id = pv.device_id.as_deref().map(base_name);
        // The last part of a path below /mnt/local-storage is a by-id name, too.
        let from_path = Some(base_name(&pv.path));
        for facts in devices.iter_mut() {
            let behind = number.as_ref() == Some(&facts.number) || facts.mounts.contains(&pv.path);
            let named = facts
                .by_id
                .iter()
                .any(|name| Some(name.as_str()) == by_id || Some(name.as_str()) == from_path);
            if (behind || named) && !facts.backs.contains(&pv.name) {
                facts.backs.push(pv.name.clone());
            }
        }
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The block device at the end of a path of the node, or the one that holds the directory there.
fn device_behind(host: &HostRoot, path: &str) -> Option<DevNumber> {
    let real = host.find(Path::new(path)).ok()?;
    let meta = fs::metadata(real).ok()?;
    let number = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    Some(DevNumber::from_stat(number))
}
