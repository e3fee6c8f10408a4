//! Figures compared with a peer's, measured in the same run, interleaved: `make bench`.
//!
//! `quarry-bench standalone` runs `quarry up` on its own data directory; `quarry-bench devices`
//! compares scans of loop devices with `blkid` and `lsblk` and runs an agent; `quarry-bench
//! cluster` runs inside the cluster lab against the installed operator. The peer is what an
//! administrator types: truncate, losetup, mkfs.xfs, wait for the link. Nothing is asserted:
//! figures are for reading.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures real processes")]

mod bare;
mod cluster;
mod device_claims;
mod device_sets;
mod devices;
mod figures;
mod standalone;
mod story;

use anyhow::{Context, Result, bail};

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("standalone") => standalone::run().await,
        Some("cluster") => cluster::run().await,
        Some("devices") => {
            let sizes: Vec<usize> = std::env::args()
                .skip(2)
                .map(|size| size.parse().context("sizes are numbers of devices"))
                .collect::<Result<_>>()?;
            devices::run_all(&sizes).await
        }
        Some("device-claims") => {
            device_claims::run(&std::env::args().skip(2).collect::<Vec<_>>()).await
        }
        Some("device-sets") => device_sets::run(),
        _ => bail!(
            "usage: quarry-bench standalone | devices | device-claims | device-sets | cluster"
        ),
    }
}
