//! Three real nodes, each with its own disks: what one node cannot show. Run by `scripts/test-tiers`
//! in a cluster of `scripts/kube-nodes`, one test at a time. Fixture: `quarry_tests::nodes`.

mod confinement;
mod disks;
mod failover;
mod power;
mod registration;
