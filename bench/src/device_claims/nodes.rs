//! A thousand nodes with 24 devices each: the operator as a process, and simulated agents that
//! confirm immediately.

use super::plan::device;
use crate::figures;
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{
    LocalVolumeSet, NodeInventory, names,
    node_inventory::{ClaimReport, ClaimState, Device},
};
use quarry_tests::process::{Processes, Setup};
use serde_json::json;
use std::{
    fs,
    time::{Duration, Instant},
};

const NODES: usize = 1000;
const DEVICES: usize = 24;

fn ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

async fn make_node(client: &Client, number: usize) -> Result<()> {
    let name = format!("node-{number:04}");
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "bench": "yes"}}});
    Api::<Node>::all(client.clone())
        .create(&PostParams::default(), &serde_json::from_value(node)?)
        .await?;
    let lease = json!({"metadata": {"name": names::agent_lease(&name)}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 36000, "renewTime": format!("{:.6}", jiff::Timestamp::now())}});
    Api::<Lease>::namespaced(client.clone(), names::DEFAULT_NAMESPACE)
        .create(&PostParams::default(), &serde_json::from_value(lease)?)
        .await?;
    Ok(())
}

async fn report(client: &Client, number: usize) -> Result<()> {
    let name = format!("node-{number:04}");
    let devices: Vec<Device> = (0..DEVICES)
        .map(|index| Device { name: format!("sd{index}"), ..device(number * DEVICES + index) })
        .collect();
    let status = json!({"status": {"machineID": name, "nodeUID": "u", "devices": devices}});
    Api::<NodeInventory>::all(client.clone())
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Confirms every device claim as soon as it appears.
async fn confirm_claims(client: Client) -> Result<()> {
    let api: Api<NodeInventory> = Api::all(client);
    let mut watch = Box::pin(
        watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects(),
    );
    while let Some(inventory) = watch.try_next().await? {
        let reports: Vec<ClaimReport> = inventory
            .spec
            .device_claims
            .iter()
            .map(|claim| ClaimReport {
                identity: claim.identity.clone(),
                owner_uid: claim.owner.uid.clone(),
                round: claim.round,
                state: if claim.terminating { ClaimState::Removed } else { ClaimState::Confirmed },
                linked: !claim.terminating,
                ..ClaimReport::default()
            })
            .collect();
        if inventory.status.as_ref().is_some_and(|status| status.device_claims != reports)
            && inventory.name_any().starts_with("node-")
        {
            api.patch_status(
                &inventory.name_any(),
                &PatchParams::default(),
                &Patch::Merge(json!({"status": {"deviceClaims": reports}})),
            )
            .await?;
        }
    }
    Ok(())
}

async fn count_pvs(client: &Client) -> Result<usize> {
    let api: Api<k8s_openapi::api::core::v1::PersistentVolume> = Api::all(client.clone());
    Ok(api.list_metadata(&ListParams::default()).await?.items.len())
}

pub async fn run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let processes = Processes::start_as(dir.path(), Setup::claims()).await;
    let client = processes.client();
    let pid = processes.operator_pid().context("the operator runs")?;
    stream::iter(0..NODES)
        .map(|number| make_node(&client, number))
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    wait("every node has its NodeInventory", async || {
        Ok(Api::<NodeInventory>::all(client.clone())
            .list_metadata(&ListParams::default())
            .await?
            .items
            .len()
            > NODES)
    })
    .await?;
    stream::iter(0..NODES)
        .map(|number| report(&client, number))
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    let answering = tokio::spawn(confirm_claims(client.clone()));
    let (before, used, started) = (processes.writes(), ticks(pid)?, Instant::now());
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": "all"},
        "spec": {"storageClassName": "all", "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "bench", "operator": "In", "values": ["yes"]}]}]}},
    });
    Api::<LocalVolumeSet>::namespaced(client.clone(), names::DEFAULT_NAMESPACE)
        .create(&PostParams::default(), &serde_json::from_value(set)?)
        .await?;
    let all = NODES * DEVICES;
    wait("every device is a PersistentVolume", async || Ok(count_pvs(&client).await? == all))
        .await?;
    let took = started.elapsed();
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    wait("the LocalVolumeSet reports it", async || {
        Ok(sets.get("all").await?.status.and_then(|status| status.total_provisioned_device_count)
            == i32::try_from(all).ok())
    })
    .await?;
    let (written, cpu) = (processes.writes() - before, (ticks(pid)? - used) as f64 / 100.0);
    println!(
        "figure: {NODES} nodes with {DEVICES} devices each: {all} PersistentVolumes after {:.1} s; {:.2} writes per PersistentVolume, including the agents' (aim: at most 4); operator {cpu:.1} s of CPU, {:.1} ms per node; {:.0} MiB resident (aim: < 150)",
        took.as_secs_f64(),
        written as f64 / all as f64,
        cpu * 1000.0 / NODES as f64,
        figures::resident(pid).unwrap_or_default() as f64 / 1024.0
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, used) = (processes.writes(), ticks(pid)?);
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!(
        "figure: one idle minute with all of them: {} writes except Leases (aim: 0), {:.2} s of CPU",
        processes.writes() - before,
        (ticks(pid)? - used) as f64 / 100.0
    );
    answering.abort();
    processes.stop().await;
    Ok(())
}

async fn wait(what: &str, mut wanted: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !wanted().await? {
        ensure!(Instant::now() < deadline, "not within 300 s: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
