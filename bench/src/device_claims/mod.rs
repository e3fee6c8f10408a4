//! Claims: how long a plan takes, a thousand nodes at once, from a settled disk to its PersistentVolume, and wipes
//! beside `blkdiscard` and `dd`.

mod nodes;
mod plan;
mod settled;
mod wipe;

use anyhow::Result;

/// Those that are named, or all of them.
pub async fn run(named: &[String]) -> Result<()> {
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    if wanted("plan") {
        plan::run()?;
    }
    if wanted("wipe") {
        wipe::run()?;
    }
    if wanted("settled") {
        settled::run().await?;
    }
    if wanted("nodes") {
        nodes::run().await?;
    }
    Ok(())
}
