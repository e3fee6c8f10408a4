//! The kinds that Quarry serves, their schemas, admission policies and value types.
//!
//! Owns: types, CRDs, CEL rules, admission policies, quantities. Never does I/O, never decides.
//! Next to read: `volume.rs` (the kind of the first story), `node_job.rs` (the only way to write to a disk).

#![allow(
    clippy::duplicated_attributes,
    reason = "each printer column of a kind has a type and a path of its own"
)]

pub mod admission;
pub mod bare_metal_host;
pub mod ceph_cluster;
pub mod crds;
pub mod hardware_data;
pub mod ids;
pub mod local_volume;
pub mod local_volume_discovery;
pub mod local_volume_set;
pub mod names;
pub mod node_inventory;
pub mod node_job;
pub mod quantity;
pub mod reason;
pub mod validate;
pub mod volume;

pub use bare_metal_host::{BareMetalHost, BareMetalHostSpec, BareMetalHostStatus};
pub use ceph_cluster::{CephCluster, CephClusterSpec, CephClusterStatus};
pub use crds::crds;
pub use hardware_data::{HardwareData, HardwareDataSpec};
pub use local_volume::{LocalVolume, LocalVolumeSpec, LocalVolumeStatus};
pub use local_volume_discovery::{LocalVolumeDiscovery, LocalVolumeDiscoveryResult};
pub use local_volume_set::{LocalVolumeSet, LocalVolumeSetSpec, LocalVolumeSetStatus};
pub use node_inventory::{NodeInventory, NodeInventorySpec, NodeInventoryStatus};
pub use node_job::{NodeJob, NodeJobSpec, NodeJobStatus};
pub use quantity::{Bytes, Quantity};
pub use volume::{Volume, VolumeSpec, VolumeStatus};

/// Reads an explicit null as an absent field.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    let read: Option<T> = serde::Deserialize::deserialize(deserializer)?;
    Ok(read.unwrap_or_default())
}
