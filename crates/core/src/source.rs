//! What a decision reads of the cluster: from the operator's caches, or from a snapshot that a client listed.
//!
//! `NodeWorld` (`device_claim/world.rs`) and the Volume's `Observed` (`volume/observed.rs`) are built over it, and
//! `crates/view` shows it, so that operator, CLI and console decide on the same picture. Nothing here waits: what a
//! cache lacks is absent, and callers for whom absence matters ask the API first.

use crate::{
    packed::Packed,
    presence::{Presence, presence},
    quarantine::RemoteIdentity,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use quarry_api::{
    BareMetalHost, HardwareData, LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, Volume,
};
use std::{collections::BTreeSet, sync::Arc};

pub trait Source {
    /// The operator's namespace: sets and LocalVolumes elsewhere are not acted on.
    fn namespace(&self) -> &str;
    fn node(&self, name: &str) -> Option<Arc<Node>>;
    /// Sorted by name.
    fn nodes(&self) -> Vec<Arc<Node>>;
    fn inventory(&self, node: &str) -> Option<Arc<NodeInventory>>;
    /// Sorted by name.
    fn inventories(&self) -> Vec<Arc<NodeInventory>>;
    fn pv(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// Every PersistentVolume whose node affinity admits this node.
    fn pvs_on(&self, node: &Node) -> Vec<Arc<PersistentVolume>>;
    /// Every PersistentVolume that may be on this node, and those of these names, as they are stored. A superset: to find
    /// out, each would have to be read.
    fn packed_pvs(&self, node: Option<&Node>, names: &[String]) -> Vec<Packed<PersistentVolume>> {
        let mut found = node.map(|node| self.pvs_on(node)).unwrap_or_default();
        let known: BTreeSet<Option<String>> =
            found.iter().map(|pv| pv.metadata.name.clone()).collect();
        let others = names.iter().filter(|name| !known.contains(&Some((*name).clone())));
        found.extend(others.filter_map(|name| self.pv(name)));
        found.into_iter().map(Packed::Whole).collect()
    }
    fn class(&self, name: &str) -> Option<Arc<StorageClass>>;
    fn job(&self, name: &str) -> Option<Arc<NodeJob>>;
    /// The Lease by which the agent of this node shows its presence.
    fn agent_lease(&self, node: &str) -> Option<Arc<Lease>>;
    /// Whether the agent of this node is present. A source that could not read Leases takes agents to be present.
    fn agent_presence(&self, node: &str, now: Timestamp) -> Presence {
        presence(self.agent_lease(node).as_deref(), now)
    }
    /// Devices of other nodes that share an identity with this node's.
    fn elsewhere(&self, node: &str) -> Vec<RemoteIdentity>;
    /// Of all namespaces.
    fn sets(&self) -> Vec<Arc<LocalVolumeSet>>;
    /// Of all namespaces.
    fn local_volumes(&self) -> Vec<Arc<LocalVolume>>;
    /// Sorted by name.
    fn volumes(&self) -> Vec<Arc<Volume>>;
    /// Of all namespaces, sorted by namespace and name.
    fn hosts(&self) -> Vec<Arc<BareMetalHost>>;
    /// That of the host of this namespace and name.
    fn hardware_data(&self, namespace: &str, name: &str) -> Option<Arc<HardwareData>>;
}
