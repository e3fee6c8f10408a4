//! The ports of a node in Ironic: one per network interface. An address belongs to one node only.
//!
//! Only the boot interface must have its port for a host to be registered.

use super::{
    TakenAddress,
    status::{CONDITION_ACCEPTED, Draft},
};
use crate::event::PendingEvent;
use quarry_api::{BareMetalHost, HardwareData};
use quarry_ironic::Port;
use std::collections::BTreeSet;

/// Addresses that Ironic has no port for: the boot interface, and every interface that an inspection found before
/// Ironic lost the node. In the order in which they are created, in lower case.
pub fn missing_addresses(
    host: &BareMetalHost,
    data: Option<&HardwareData>,
    ports: &[Port],
) -> Vec<String> {
    let boot = [host.spec.boot_mac_address.as_str()];
    let found = data.and_then(|data| data.spec.hardware.as_ref()).into_iter();
    let found = found.flat_map(|hardware| &hardware.nics).map(|nic| nic.mac.as_str());
    let mut known: BTreeSet<String> =
        ports.iter().map(|port| port.address.to_ascii_lowercase()).collect();
    let wanted = boot.into_iter().chain(found).filter(|mac| !mac.is_empty());
    wanted.map(str::to_ascii_lowercase).filter(|mac| known.insert(mac.clone())).collect()
}

/// The host whose node that is, by the name of the node.
fn holder(taken: &TakenAddress) -> String {
    let TakenAddress { node, name, .. } = taken;
    match name.as_deref().map(|name| (name, name.split_once('~'))) {
        Some((_, Some((namespace, host)))) => {
            format!("node {node} in Ironic, that of BareMetalHost {namespace}/{host}")
        }
        Some((name, None)) => format!("node {node} ({name}) in Ironic"),
        None => format!("node {node} in Ironic"),
    }
}

pub(super) fn duplicate_boot_address(taken: &TakenAddress) -> String {
    format!(
        "spec.bootMACAddress {address} belongs to {holder}; delete the host whose address is wrong and create it with its own, or remove a port that is left over: baremetal port list --address {address}",
        address = taken.address,
        holder = holder(taken),
    )
}

/// The host does not boot from these: what another node has is not needed to register this one.
pub(super) fn skip(draft: &mut Draft<'_>, taken: &[TakenAddress]) {
    let Some(first) = taken.first() else { return };
    let others = match taken.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more of its addresses to other nodes"),
    };
    let message = format!(
        "network interface {} of this host, as it was inspected, belongs to {}{others}: Ironic gets no port for it; inspect both hosts again, with quarry host inspect",
        first.address,
        holder(first),
    );
    draft.condition(CONDITION_ACCEPTED, "PortSkipped", &message);
    draft.events.push(PendingEvent { warning: true, reason: "PortSkipped", message });
}
