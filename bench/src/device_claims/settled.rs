//! From a disk that has settled, as a watcher of the inventory sees it, to its PersistentVolume, as a watcher sees that.
//! Real loop devices, operator and agent as processes.

use crate::figures;
use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{LocalVolumeSet, NodeInventory, names, node_inventory::Device};
use quarry_tests::process::{Parts, Setup};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    pin::pin,
    process::Command,
    time::{Duration, Instant},
};

const ROUNDS: usize = 10;
const DISKS: usize = 100;
const SIZE: u64 = (33 << 20) + 4096 * 3;

struct Loops(Vec<String>);

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            if !Command::new("losetup")
                .args(["--detach", device])
                .status()
                .is_ok_and(|status| status.success())
            {
                eprintln!("{device} could not be detached");
            }
        }
    }
}

fn attach(folder: &Path, name: &str) -> Result<String> {
    let file = folder.join(name);
    fs::File::create(&file)?.set_len(SIZE)?;
    let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output()?;
    ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn set() -> Result<LocalVolumeSet> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "bench"},
        "spec": {"storageClassName": "bench", "deviceInclusionSpec": {"deviceTypes": ["loop"], "minSize": SIZE.to_string(), "maxSize": SIZE.to_string()}},
    }))?)
}

pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let parts = Parts::start_as(folder.path(), Setup::claims()).await;
    let mut samples = Vec::new();
    let mut writes: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let before = parts.write_counts();
        samples.extend(one_round(&parts, folder.path(), round).await?);
        for (kind, count) in parts.write_counts() {
            *writes.entry(kind.clone()).or_default() +=
                count - before.get(&kind).copied().unwrap_or_default();
        }
        end_round(&parts).await?;
    }
    let count = samples.len();
    let each = |is: &dyn Fn(&str) -> bool| {
        writes.iter().filter(|(kind, _)| is(kind)).map(|(_, count)| *count as f64).sum::<f64>()
            / count as f64
    };
    let by_kind: Vec<String> = writes
        .iter()
        .map(|(kind, written)| format!("{kind} {:.2}", *written as f64 / count as f64))
        .collect();
    let samples = figures::Samples::new(samples);
    println!(
        "figure: disk settled to PersistentVolume Available, one disk at a time ({count} samples): p50 {} p99 {} (aim: p99 < 1 s); {:.2} API writes a disk from plug to Available, Events apart (aim: at most 4): {}",
        figures::milliseconds(samples.percentile(50)),
        figures::milliseconds(samples.percentile(99)),
        each(&|kind| !kind.contains("events")),
        by_kind.join(", "),
    );
    parts.stop().await;
    Ok(())
}

/// One disk after the other; at the end they go.
async fn one_round(parts: &Parts, folder: &Path, round: usize) -> Result<Vec<Duration>> {
    let sets: Api<LocalVolumeSet> = Api::namespaced(parts.client(), names::DEFAULT_NAMESPACE);
    sets.create(&PostParams::default(), &set()?).await?;
    let mut inventories = pin!(
        watcher(Api::<NodeInventory>::all(parts.client()), watcher::Config::default())
            .applied_objects()
    );
    let mut pvs = pin!(
        watcher(Api::<PersistentVolume>::all(parts.client()), watcher::Config::default())
            .applied_objects()
    );
    let mut loops = Loops(Vec::new());
    let mut samples = Vec::new();
    for number in 0..DISKS {
        let file = format!("disk-{round}-{number}#");
        let mut settled: Option<Instant> = None;
        let device = attach(folder, file.trim_end_matches('#'))?;
        let name = device.trim_start_matches("/dev/").to_owned();
        loops.0.push(device);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            tokio::select! {
                inventory = inventories.try_next() => {
                    let status = inventory?.context("the watch goes on")?.status.unwrap_or_default();
                    // By its file: a loop of the round before may still be listed under the same name.
                    let is_it = |device: &&Device| device.identity.as_ref().is_some_and(|identity| identity.contains(&file));
                    if status.devices.iter().filter(is_it).any(|device| device.settled) {
                        settled.get_or_insert_with(Instant::now);
                    }
                }
                pv = pvs.try_next() => {
                    let pv = pv?.context("the watch goes on")?;
                    let of = pv.metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::LSO_DEVICE_NAME_ANNOTATION));
                    let available = pv.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
                    if of == Some(&name) && available && pv.metadata.deletion_timestamp.is_none() {
                        // A status that tells of the settling and of the next step in one is as fast as can be.
                        samples.push(settled.map_or(Duration::ZERO, |since| since.elapsed()));
                        break;
                    }
                }
                () = tokio::time::sleep_until(deadline.into()) => bail!("no PersistentVolume for {name} within 30 s\n{}", parts.logs()),
            }
        }
    }
    Ok(samples)
}

/// The set goes, and with it everything that was made for it.
async fn end_round(parts: &Parts) -> Result<()> {
    let sets: Api<LocalVolumeSet> = Api::namespaced(parts.client(), names::DEFAULT_NAMESPACE);
    sets.delete("bench", &DeleteParams::default()).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while sets.get_opt("bench").await?.is_some() {
        ensure!(Instant::now() < deadline, "the set does not go\n{}", parts.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
