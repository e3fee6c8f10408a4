//! The real cluster: a Volume compared with the bare commands, a burst, writes, memory, idle.

use crate::{bare, figures, story};
use anyhow::{Context, Result};
use kube::Client;

const NODE: &str = "lab-node";
const NAMESPACE: &str = quarry_api::names::DEFAULT_NAMESPACE;

pub async fn run() -> Result<()> {
    let client = Client::try_default().await.context("connecting to the cluster of the lab")?;
    story::make_class(&client).await?;
    let dir = tempfile::tempdir()?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let name = format!("sample-{number}");
        peer.push(bare::sample(dir.path())?);
        ours.push(story::sample(&client, &name, NODE).await?);
        story::remove(&client, &name).await?;
    }
    figures::compare("volume created to Available, real cluster", ours, peer, "+400 ms");
    story::print_writes(&client, NODE, NAMESPACE).await?;
    let took = story::burst(&client, NODE, 100).await?;
    println!(
        "figure: 100 concurrent volumes, real cluster: all Available after {}",
        figures::milliseconds(took)
    );
    story::print_rest(&client, NAMESPACE).await?;
    for (what, pid) in processes()? {
        if let Some(memory) = figures::resident(pid) {
            println!("figure: {what} resident at the end: {:.1} MiB", memory as f64 / 1024.0);
        }
    }
    Ok(())
}

/// The processes of operator and agent, by their command lines.
fn processes() -> Result<Vec<(String, u32)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        if words.next().is_some_and(|program| program.ends_with("/quarry"))
            && let Some(command) = words.next().filter(|word| word == "operator" || word == "agent")
        {
            found.push((command.into_owned(), pid));
        }
    }
    Ok(found)
}
