//! A device of a node, as inspection of its host saw it.

use crate::text::size;
use quarry_core::{
    host_join::{HostJoin, joins},
    source::Source,
};

/// The host that is joined with this node.
pub fn host_of_node(source: &impl Source, node: &str) -> Option<HostJoin> {
    joins(source).into_iter().find(|join| join.node() == Some(node))
}

/// How the host sees this device of its node, one text. `whole`: it is a disk, so that inspection could have seen it.
pub fn device_view(join: &HostJoin, device: &str, whole: bool) -> Option<String> {
    let host = format!("BareMetalHost {}/{}", join.namespace, join.name);
    let disk = join.disks.iter().find(|disk| disk.device.as_deref() == Some(device));
    match disk.and_then(|disk| Some((disk.host.as_ref()?, disk.matched_by?))) {
        Some((seen, by)) => {
            let mut words = vec![format!("{} in its inspection", seen.names.join(", "))];
            words.extend((seen.size > 0).then(|| size(seen.size)));
            words.extend(
                [&seen.vendor, &seen.model].into_iter().filter(|one| !one.is_empty()).cloned(),
            );
            words.extend((!seen.serial.is_empty()).then(|| format!("serial {}", seen.serial)));
            words.extend((!seen.wwn.is_empty()).then(|| format!("WWN {}", seen.wwn)));
            Some(format!("{host}: {}; matched by {}", words.join(", "), by.as_str()))
        }
        None if whole && disk.is_some_and(|disk| !disk.identified) => Some(format!(
            "{host}: this disk has no WWN or serial to compare with those of its inspection"
        )),
        None if whole => Some(format!(
            "{host}: its inspection did not see this disk; run `quarry explain host/{} -n {}` to compare all disks",
            join.name, join.namespace
        )),
        None => None,
    }
}
