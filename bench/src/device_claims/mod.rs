//! Device claims: duration of a plan, a thousand nodes, time from a settled disk to its
//! PersistentVolume, and wipes compared with `blkdiscard` and `dd`.

mod nodes;
mod plan;
mod settled;
mod wipe;

use anyhow::Result;

/// Runs the named benchmarks, or all of them.
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
