//! Time from a settled disk in the NodeInventory to its PersistentVolume, both as a watcher sees
//! them. Real loop devices, operator and agent as processes.

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
use quarry_tests::process::{Processes, Setup};
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
                eprintln!("failed to detach {device}");
            }
        }
    }
}

fn attach(dir: &Path, name: &str) -> Result<String> {
    let file = dir.join(name);
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
    let dir = tempfile::tempdir()?;
    let processes = Processes::start_as(dir.path(), Setup::claims()).await;
    let mut samples = Vec::new();
    let mut writes: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let before = processes.write_counts();
        samples.extend(one_round(&processes, dir.path(), round).await?);
        for (kind, count) in processes.write_counts() {
            *writes.entry(kind.clone()).or_default() +=
                count - before.get(&kind).copied().unwrap_or_default();
        }
        end_round(&processes).await?;
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
        "figure: disk settled to PersistentVolume Available, one disk at a time ({count} samples): p50 {} p99 {} (aim: p99 < 1 s); {:.2} API writes per disk from plug to Available, without Events (aim: at most 4): {}",
        figures::milliseconds(samples.percentile(50)),
        figures::milliseconds(samples.percentile(99)),
        each(&|kind| !kind.contains("events")),
        by_kind.join(", "),
    );
    processes.stop().await;
    Ok(())
}

/// One disk after the other; all are removed at the end.
async fn one_round(processes: &Processes, dir: &Path, round: usize) -> Result<Vec<Duration>> {
    let sets: Api<LocalVolumeSet> = Api::namespaced(processes.client(), names::DEFAULT_NAMESPACE);
    sets.create(&PostParams::default(), &set()?).await?;
    let mut inventories = pin!(
        watcher(Api::<NodeInventory>::all(processes.client()), watcher::Config::default())
            .applied_objects()
    );
    let mut pvs = pin!(
        watcher(Api::<PersistentVolume>::all(processes.client()), watcher::Config::default())
            .applied_objects()
    );
    let mut loops = Loops(Vec::new());
    let mut samples = Vec::new();
    for number in 0..DISKS {
        let file = format!("disk-{round}-{number}#");
        let mut settled: Option<Instant> = None;
        let device = attach(dir, file.trim_end_matches('#'))?;
        let name = device.trim_start_matches("/dev/").to_owned();
        loops.0.push(device);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            tokio::select! {
                inventory = inventories.try_next() => {
                    let status = inventory?.context("the watch ended")?.status.unwrap_or_default();
                    // By its file: a loop device of the previous round may still be listed under
                    // the same name.
                    let is_it = |device: &&Device| device.identity.as_ref().is_some_and(|identity| identity.contains(&file));
                    if status.devices.iter().filter(is_it).any(|device| device.settled) {
                        settled.get_or_insert_with(Instant::now);
                    }
                }
                pv = pvs.try_next() => {
                    let pv = pv?.context("the watch ended")?;
                    let of = pv.metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::LSO_DEVICE_NAME_ANNOTATION));
                    let available = pv.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
                    if of == Some(&name) && available && pv.metadata.deletion_timestamp.is_none() {
                        // A status that reports the settling and the next step together cannot be
                        // faster.
                        samples.push(settled.map_or(Duration::ZERO, |since| since.elapsed()));
                        break;
                    }
                }
                () = tokio::time::sleep_until(deadline.into()) => bail!("no PersistentVolume for {name} within 30 s\n{}", processes.logs()),
            }
        }
    }
    Ok(samples)
}

/// Deletes the LocalVolumeSet and waits until its objects are deleted.
async fn end_round(processes: &Processes) -> Result<()> {
    let sets: Api<LocalVolumeSet> = Api::namespaced(processes.client(), names::DEFAULT_NAMESPACE);
    sets.delete("bench", &DeleteParams::default()).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while sets.get_opt("bench").await?.is_some() {
        ensure!(
            Instant::now() < deadline,
            "the LocalVolumeSet is not deleted\n{}",
            processes.logs()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
