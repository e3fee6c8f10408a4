//! A cluster of many nodes, without faults: how much is written until every disk has its PersistentVolume.
//!
//! The operator is the real one, its loop included, on the embedded API. Agents are played: each says that its disks are
//! free and settled, and confirms every device claim. Time is virtual: it passes while every task waits.

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node, PersistentVolume},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{
    LocalVolumeSet, NodeInventory, admission, crds, names,
    node_inventory::{ClaimReport, ClaimState, Device, DeviceState},
};
use quarry_apiserver::{Options, Server};
use quarry_operator::{OperatorOptions, Registry, driver, group};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{error::Error, fmt::Debug, time::Duration};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub volumes: usize,
    /// How many the set says it has.
    pub said: usize,
    /// From the set to the last word about it, the agents' included.
    pub writes: u64,
    /// In the hour after that.
    pub at_rest: u64,
}

const SET: &str = "all";
const REST: Duration = Duration::from_secs(60 * 60);
const GIVE_UP: Duration = Duration::from_secs(60 * 60);

/// One set takes every disk of every node.
pub fn claim_everything(nodes: usize, devices: usize) -> Outcome<Claimed> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let policies = admission::embedded_policies()
            .into_iter()
            .map(|policy| (policy.policy, policy.binding))
            .collect();
        let server = Server::in_memory(Options { policies, ..Options::new(crds::crds()) });
        let client = server.client(names::DEFAULT_NAMESPACE);
        create::<Namespace>(
            &Api::all(client.clone()),
            json!({"metadata": {"name": names::DEFAULT_NAMESPACE}}),
        )
        .await?;
        let stop = CancellationToken::new();
        let operator = tokio::spawn(driver::run(client.clone(), options(), None, stop.clone()));
        let agents = tokio::spawn(answer(client.clone()));
        let played = play(&server, &client, nodes, devices).await;
        stop.cancel();
        agents.abort();
        operator.await??;
        played
    })
}

fn options() -> OperatorOptions {
    OperatorOptions {
        namespace: names::DEFAULT_NAMESPACE.to_owned(),
        registry: Registry::standard().select(&[
            group::NODE_INVENTORY,
            group::NODE_JOB,
            group::DEVICE_CLAIMS,
        ]),
        election_identity: None,
        agent_daemon_set: None,
        job_retention: crate::operator::JOB_RETENTION,
        hosts: None,
        check_crds: false,
    }
}

async fn play(server: &Server, client: &Client, nodes: usize, devices: usize) -> Outcome<Claimed> {
    let inventories: Api<NodeInventory> = Api::all(client.clone());
    for number in 0..nodes {
        let name = name_of(number);
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        create::<Node>(&Api::all(client.clone()), node).await?;
        // Renewed once for all: it outlasts the test.
        let spec = json!({"holderIdentity": "a", "leaseDurationSeconds": 360_000, "renewTime": format!("{:.6}", Timestamp::now())});
        create::<Lease>(
            &Api::default_namespaced(client.clone()),
            json!({"metadata": {"name": names::agent_lease(&name)}, "spec": spec}),
        )
        .await?;
    }
    until("every node has its inventory", async || {
        Ok(inventories.list_metadata(&ListParams::default()).await?.items.len() == nodes)
    })
    .await?;
    for number in 0..nodes {
        let devices: Vec<Device> =
            (0..devices).map(|index| device(number * devices + index, index)).collect();
        let status = json!({"status": {"machineID": name_of(number), "devices": devices}});
        inventories
            .patch_status(&name_of(number), &PatchParams::default(), &Patch::Merge(status))
            .await?;
    }
    let before = writes(server);
    let sets: Api<LocalVolumeSet> = Api::default_namespaced(client.clone());
    create(&sets, json!({"metadata": {"name": SET}, "spec": {"storageClassName": SET}})).await?;
    let said = async || -> Outcome<usize> {
        let count =
            sets.get(SET).await?.status.and_then(|status| status.total_provisioned_device_count);
        Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default())
    };
    until("the set says that it has them all", async || Ok(said().await? == nodes * devices))
        .await?;
    let written = writes(server);
    sleep(REST).await;
    let volumes = Api::<PersistentVolume>::all(client.clone())
        .list_metadata(&ListParams::default())
        .await?
        .items
        .len();
    Ok(Claimed {
        volumes,
        said: said().await?,
        writes: written - before,
        at_rest: writes(server) - written,
    })
}

fn name_of(number: usize) -> String {
    format!("node-{number:04}")
}

fn device(number: usize, index: usize) -> Device {
    Device {
        name: format!("sd{index}"),
        kind: "disk".into(),
        size: 1 << 40,
        identity: Some(format!("wwn:5000c5{number:010x}")),
        device_id: Some(format!("/dev/disk/by-id/wwn-0x5000c5{number:010x}")),
        settled: true,
        state: DeviceState::Available,
        ..Device::default()
    }
}

/// Accepted writes, but for leases.
fn writes(server: &Server) -> u64 {
    server
        .write_counts()
        .into_iter()
        .filter(|(kind, _)| kind != "coordination.k8s.io/leases")
        .map(|(_, count)| count)
        .sum()
}

/// Says yes to every device claim, as soon as it sees one.
async fn answer(client: Client) -> kube::Result<(), watcher::Error> {
    let api: Api<NodeInventory> = Api::all(client);
    let mut changes = watcher(api.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    while let Some(inventory) = changes.try_next().await? {
        let yes = |claim: &quarry_api::node_inventory::DeviceClaim| ClaimReport {
            identity: claim.identity.clone(),
            owner_uid: claim.owner.uid.clone(),
            round: claim.round,
            state: ClaimState::Confirmed,
            linked: true,
            ..ClaimReport::default()
        };
        let reports: Vec<ClaimReport> = inventory.spec.device_claims.iter().map(yes).collect();
        if inventory.status.as_ref().is_some_and(|status| status.device_claims != reports) {
            // Refused after a concurrent write: then another event follows.
            let _ = api
                .patch_status(
                    &inventory.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(json!({"status": {"deviceClaims": reports}})),
                )
                .await;
        }
    }
    Ok(())
}

async fn create<K>(api: &Api<K>, mut object: Value) -> Outcome<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    (object["apiVersion"], object["kind"]) = (json!(K::api_version(&())), json!(K::kind(&())));
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn until(what: &str, mut seen: impl AsyncFnMut() -> Outcome<bool>) -> Outcome<()> {
    let deadline = Instant::now() + GIVE_UP;
    while !seen().await? {
        if Instant::now() >= deadline {
            return Err(format!("not within an hour: {what}").into());
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
