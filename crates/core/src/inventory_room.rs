//! How much room each list of a NodeInventory has: etcd takes 1.5 MiB for an object, and refuses a larger one for ever.
//!
//! Operator and agent write their halves apart from each other, so each leaves room for the other. What does not fit is
//! omitted and reported, never written. Pure sizes: what to omit is decided where the list is planned.

use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeInventoryStatus, node_inventory::DeviceClaim,
};
use serde::Serialize;
use std::collections::BTreeSet;

/// For spec and status together, with a margin for what the API server adds.
pub const OBJECT: usize = 1_450_000;
/// A write may reach this while the other half is still being reduced.
const WRITABLE: usize = 1_500_000;
/// The minimum for the devices in the status, however many unmanaged PVs there are.
pub const LEAST_FOR_DEVICES: usize = 250_000;
/// About 5,000 of the usual kind.
const UNMANAGED_PVS: usize = 600_000;
/// Paths that LocalVolumes name, together with the agent's reports on them.
pub const PATHS: usize = 300_000;
/// What a device claim causes besides itself: the row of its device without evidence, the agent's report, and the
/// evidence that is recorded later.
const WITH_A_CLAIM: usize = 1000;
/// What the report on a path has besides the path: the device, or why there is none.
const WITH_A_PATH: usize = 120;

/// The size in the API.
pub fn bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}

/// What a path takes in spec and status.
fn path_cost(path: &str) -> usize {
    2 * path.len() + WITH_A_PATH
}

/// The room that is left beside this spec and what follows from it.
fn left(spec: &NodeInventorySpec) -> usize {
    let reports: usize = spec.paths.iter().map(|path| path.len() + WITH_A_PATH).sum();
    OBJECT
        .saturating_sub(bytes(spec))
        .saturating_sub(spec.device_claims.len() * WITH_A_CLAIM)
        .saturating_sub(reports)
}

/// The room in a single write, beside the status as it is now.
fn writable(spec: &NodeInventorySpec, status: Option<&NodeInventoryStatus>) -> usize {
    WRITABLE.saturating_sub(bytes(spec)).saturating_sub(bytes(&status))
}

/// Room for new device claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRoom {
    left: usize,
    writable: usize,
}

impl ClaimRoom {
    pub fn of(inventory: &NodeInventory) -> Self {
        let NodeInventory { spec, status, .. } = inventory;
        ClaimRoom { left: left(spec), writable: writable(spec, status.as_ref()) }
    }

    /// Whether it fits beside the others; if so, its room is taken.
    pub fn take(&mut self, claim: &DeviceClaim) -> bool {
        let size = bytes(claim) + 1;
        let fits = size + WITH_A_CLAIM <= self.left && size <= self.writable;
        if fits {
            self.left -= size + WITH_A_CLAIM;
            self.writable -= size;
        }
        fits
    }
}

/// As many of the paths as the agent can be asked about beside the rest of the spec.
pub fn fitting_paths(paths: BTreeSet<String>, inventory: &NodeInventory) -> BTreeSet<String> {
    if paths.is_empty() {
        return paths;
    }
    let mut rest = inventory.spec.clone();
    rest.paths.clear();
    let mut room = PATHS.min(left(&rest)).min(writable(&rest, inventory.status.as_ref()));
    let fits = |path: &String| {
        let cost = path_cost(path);
        let fits = cost <= room;
        room = room.saturating_sub(cost);
        fits
    };
    paths.into_iter().take_while(fits).collect()
}

/// The room for unmanaged PVs beside the rest of the spec and the present status.
pub fn for_unmanaged_pvs(spec: &NodeInventorySpec, status: Option<&NodeInventoryStatus>) -> usize {
    let mut rest = spec.clone();
    rest.unmanaged_pvs.clear();
    UNMANAGED_PVS.min(left(&rest).saturating_sub(LEAST_FOR_DEVICES)).min(writable(&rest, status))
}
