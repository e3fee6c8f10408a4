//! One Volume from create to Available, and the number of API writes for it.

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
};
use quarry_api::{NodeInventory, NodeJob, Volume, volume::Phase};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

pub const CLASS: &str = "bench";

pub async fn make_class(client: &Client) -> Result<()> {
    let api: Api<StorageClass> = Api::all(client.clone());
    let class = serde_json::from_value(json!({
        "metadata": {"name": CLASS}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"fsType": "xfs"},
    }))?;
    match api.create(&PostParams::default(), &class).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(|_| ()).context("creating the StorageClass"),
    }
}

pub fn volume(name: &str, node: &str) -> Result<Volume> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": name},
        "spec": {"nodeName": node, "storageClassName": CLASS, "sparseLoopDevice": {"size": "1Gi"}},
    }))?)
}

/// Time from create to Available at a watcher.
pub async fn sample(client: &Client, name: &str, node: &str) -> Result<Duration> {
    let api: Api<Volume> = Api::all(client.clone());
    let started = Instant::now();
    let created = api.create(&PostParams::default(), &volume(name, node)?).await?;
    let version = created.resource_version().unwrap_or_default();
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(30);
    let mut events = api.watch(&parameters, &version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Modified(volume) = event {
            match volume.phase() {
                Some(Phase::Available) => return Ok(started.elapsed()),
                Some(Phase::Failed) => {
                    bail!("{name}: {:?}", volume.ready().and_then(|ready| ready.message.clone()))
                }
                _ => {}
            }
        }
    }
    bail!("{name} did not become Available in 30 s")
}

pub async fn remove(client: &Client, name: &str) -> Result<()> {
    let api: Api<Volume> = Api::all(client.clone());
    api.delete(name, &DeleteParams::default()).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while api.get_opt(name).await?.is_some() {
        if Instant::now() > deadline {
            bail!("{name} was not deleted in 60 s");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Creates all at the same time; returns the time until the last is Available.
pub async fn burst(client: &Client, node: &str, count: usize) -> Result<Duration> {
    let started = Instant::now();
    let samples = futures::future::join_all((0..count).map(|number| {
        let (client, node) = (client.clone(), node.to_owned());
        async move { sample(&client, &format!("burst-{number}"), &node).await }
    }))
    .await;
    let took = started.elapsed();
    for sample in samples {
        sample?;
    }
    for number in 0..count {
        remove(client, &format!("burst-{number}")).await?;
    }
    Ok(took)
}

/// Counts events of every kind that Quarry writes at a watcher: each write to an object is one
/// event.
#[derive(Clone, Default)]
pub struct Writes(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Writes {
    pub async fn watch(client: &Client, namespace: &str) -> Result<Self> {
        let writes = Writes::default();
        writes.follow::<Volume>(Api::all(client.clone()), "volumes").await?;
        writes.follow::<NodeJob>(Api::all(client.clone()), "nodejobs").await?;
        writes.follow::<NodeInventory>(Api::all(client.clone()), "nodeinventories").await?;
        writes.follow::<PersistentVolume>(Api::all(client.clone()), "persistentvolumes").await?;
        writes.follow::<Event>(Api::default_namespaced(client.clone()), "events").await?;
        writes.follow::<Lease>(Api::namespaced(client.clone(), namespace), "leases").await?;
        Ok(writes)
    }

    async fn follow<K>(&self, api: Api<K>, name: &'static str) -> Result<()>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let version =
            api.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let counts = self.0.clone();
        let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
        tokio::spawn(async move {
            while let Ok(Some(event)) = events.try_next().await {
                if matches!(
                    event,
                    WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_)
                ) && let Ok(mut counts) = counts.lock()
                {
                    *counts.entry(name).or_default() += 1;
                }
            }
        });
        Ok(())
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().map(|counts| counts.clone()).unwrap_or_default()
    }
}

pub fn difference(
    after: &BTreeMap<&'static str, u64>,
    before: &BTreeMap<&'static str, u64>,
) -> BTreeMap<&'static str, u64> {
    after
        .iter()
        .map(|(kind, count)| (*kind, count - before.get(kind).copied().unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// One Volume alone: writes until Available (without the user's create), and Events separately.
pub async fn print_writes(client: &Client, node: &str, namespace: &str) -> Result<()> {
    let writes = Writes::watch(client, namespace).await?;
    let before = writes.counts();
    sample(client, "writes", node).await?;
    // Writes after Available count too: wait until there are no more.
    let mut last = writes.counts();
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = writes.counts();
        let quiet = difference(&now, &last).keys().all(|kind| *kind == "leases");
        last = now;
        if quiet {
            break;
        }
    }
    let mut seen = difference(&last, &before);
    let events = seen.remove("events").unwrap_or(0);
    seen.remove("leases");
    let total: u64 = seen.values().sum::<u64>().saturating_sub(1);
    println!(
        "figure: API writes per volume: {total} and {events} Events, without the user's create (aim: at most 8): {seen:?}"
    );
    remove(client, "writes").await
}

/// Counts writes in an idle minute.
pub async fn print_rest(client: &Client, namespace: &str) -> Result<()> {
    let writes = Writes::watch(client, namespace).await?;
    let before = writes.counts();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let seen = difference(&writes.counts(), &before);
    println!("figure: writes in an idle minute: {seen:?} (aim: Leases only)");
    Ok(())
}
