//! Claims: how long a plan takes, a thousand nodes at once, from a settled disk to its PersistentVolume, and wipes
//! beside `blkdiscard` and `dd`.

mod nodes;
mod plan;
mod settled;
mod wipe;

use anyhow::Result;

pub async fn run() -> Result<()> {
    plan::run()?;
    wipe::run()?;
    settled::run().await?;
    nodes::run().await
}
