//! The cluster tier: Quarry as pods in a real cluster with a real kubelet, installed from an
//! unchanged `deploy/`.
//!
//! Run by `scripts/test-tiers` inside the cluster's namespaces, one test at a time: `three_nodes` in
//! a cluster of three nodes, everything else in one of a single node.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start real processes and read real files"
)]

#[path = "cluster/admission.rs"]
mod admission;
#[path = "cluster/ceph.rs"]
mod ceph;
#[path = "cluster/confinement.rs"]
mod confinement;
#[path = "cluster/device_claims.rs"]
mod device_claims;
#[path = "cluster/discovery.rs"]
mod discovery;
#[path = "cluster/host_limits.rs"]
mod host_limits;
#[path = "cluster/osds/mod.rs"]
mod osds;
#[path = "cluster/simulated_nodes.rs"]
mod simulated_nodes;
#[path = "cluster/three_nodes/mod.rs"]
mod three_nodes;
#[path = "cluster/uninstall.rs"]
mod uninstall;
#[path = "cluster/volumes.rs"]
mod volumes;
