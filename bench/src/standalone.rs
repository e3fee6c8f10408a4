//! `quarry up`: time to ready, a Volume compared with the bare commands, a burst, writes, memory,
//! idle.

use crate::{bare, figures, story};
use anyhow::{Context, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

struct Up {
    process: Child,
    client: Client,
}

impl Drop for Up {
    fn drop(&mut self) {
        // Asked to stop, so that its loop devices and Lease are released as in normal use.
        if let Err(error) =
            Command::new("kill").args(["-INT", &self.process.id().to_string()]).status()
        {
            eprintln!("stopping quarry up: {error}");
        }
        if let Err(error) = self.process.wait() {
            eprintln!("waiting for quarry up: {error}");
        }
    }
}

async fn start(dir: &Path) -> Result<(Up, Duration)> {
    let binary =
        std::env::var("QUARRY_BIN").context("QUARRY_BIN is the path of the quarry binary")?;
    let started = Instant::now();
    let process = Command::new(binary)
        .args(["up", "--listen", "127.0.0.1:0", "--node-name", "bench", "--data-dir"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let kubeconfig = dir.join("kubeconfig");
    let deadline = started + Duration::from_secs(20);
    loop {
        if let Some(client) = connect(&kubeconfig).await
            && client
                .request_text(http::Request::get("/readyz").body(Vec::new())?)
                .await
                .is_ok_and(|text| text.contains("ok"))
        {
            return Ok((Up { process, client }, started.elapsed()));
        }
        if Instant::now() > deadline {
            bail!("quarry up was not ready in 20 s");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn connect(kubeconfig: &Path) -> Option<Client> {
    let config = Kubeconfig::read_from(kubeconfig).ok()?;
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.ok()?;
    Client::try_from(config).ok()
}

const NAMESPACE: &str = quarry_api::names::DEFAULT_NAMESPACE;

pub async fn run() -> Result<()> {
    let mut ready = Vec::new();
    for _ in 0..10 {
        let dir = tempfile::tempdir()?;
        let (up, took) = start(dir.path()).await?;
        drop(up);
        ready.push(took);
    }
    let ready = figures::Samples::new(ready);
    println!(
        "figure: quarry up ready (10 starts): p50 {} p95 {} (aim: < 300 ms)",
        figures::milliseconds(ready.percentile(50)),
        figures::milliseconds(ready.percentile(95))
    );

    let dir = tempfile::tempdir()?;
    let (up, _) = start(dir.path()).await?;
    story::make_class(&up.client).await?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let name = format!("sample-{number}");
        peer.push(bare::sample(dir.path())?);
        ours.push(story::sample(&up.client, &name, "bench").await?);
        story::remove(&up.client, &name).await?;
    }
    figures::compare("volume created to Available, embedded API", ours, peer, "+150 ms");
    story::print_writes(&up.client, "bench", NAMESPACE).await?;
    let took = story::burst(&up.client, "bench", 100).await?;
    println!(
        "figure: 100 concurrent volumes, embedded API: all Available after {}",
        figures::milliseconds(took)
    );
    story::print_rest(&up.client, NAMESPACE).await?;
    if let Some(memory) = figures::resident(up.process.id()) {
        println!("figure: quarry up resident at the end: {:.1} MiB", memory as f64 / 1024.0);
    }
    Ok(())
}
