//! The agent on the embedded API, on a node that has nothing: what it writes, and what it does not.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Node},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeJob, Volume, crds,
    ids::Uid,
    names,
    node_inventory::{DeviceClaim, PathReport, RetainedData},
    node_job::JobPhase,
};
use quarry_apiserver::{Options, Server};
use quarry_core::{
    device::Facts,
    job::{Intent, Outcome},
    storage::sparse::{Observed, Sparse, Step},
    volume::spec_hash,
};
use quarry_node::{
    Agent, AgentOptions, ConfirmRequest, Confirmation, DeviceOps, HeldDevice, HoldRequest,
    LedgerOps, LinkState, LinkTask, NodeError, NodeScan, ScanRequest, VolumeOps,
    agent::{Clock, JobOutcome, Published, RunResult, ScanReason, Workers},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
        mpsc,
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// A node where nothing was ever made; looking at it may take as long as the test wants.
#[derive(Default)]
struct Empty {
    devices: Mutex<Vec<Facts>>,
    gate: Option<Mutex<mpsc::Receiver<()>>>,
}

impl VolumeOps<Sparse> for Empty {
    fn observe(&self, _: &Uid) -> Result<Observed, NodeError> {
        if let Some(gate) = &self.gate {
            gate.lock().unwrap().recv().unwrap();
        }
        Ok(Observed::default())
    }
    fn observe_shared(&self, _: &Uid) -> Result<Observed, NodeError> {
        Ok(Observed::default())
    }
    fn apply(&self, _: &Uid, step: &Step) -> Result<(), NodeError> {
        panic!("there is nothing to do on an empty node: {step:?}")
    }
    fn known_volumes(&self) -> Result<Vec<Uid>, NodeError> {
        Ok(Vec::new())
    }
}

impl DeviceOps for Empty {
    fn scan_node(&self, _: &ScanRequest) -> Result<NodeScan, NodeError> {
        Ok(NodeScan {
            devices: self.devices.lock().unwrap().clone(),
            machine_id: Some("m".into()),
            ..NodeScan::default()
        })
    }
    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        panic!("no device is claimed: {request:?}")
    }
    fn follow_links(&self, tasks: &[LinkTask]) -> Result<Vec<LinkState>, NodeError> {
        panic!("no device is claimed: {tasks:?}")
    }
    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError> {
        panic!("no path is asked for: {paths:?}")
    }
    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        panic!("no device is claimed: {request:?}")
    }
}

impl LedgerOps for Empty {
    fn record_intent(&self, _: &Intent) -> Result<(), NodeError> {
        Ok(())
    }
    fn record_outcome(&self, _: &Outcome) -> Result<(), NodeError> {
        Ok(())
    }
    fn record_retained(&self, retained: &[RetainedData]) -> Result<(), NodeError> {
        panic!("no data is retained: {retained:?}")
    }
    fn record_released(&self, claims: &[DeviceClaim]) -> Result<(), NodeError> {
        panic!("no device is claimed: {claims:?}")
    }
    fn outdated(&self, claims: &[DeviceClaim]) -> Result<Vec<Option<String>>, NodeError> {
        panic!("no device is claimed: {claims:?}")
    }
    fn ledger_id(&self) -> Result<String, NodeError> {
        Ok("l".into())
    }
}

struct World {
    server: Server,
    client: Client,
    node_uid: String,
}

impl World {
    async fn new() -> Self {
        Self::with(Options::new(crds::crds())).await
    }

    async fn with(options: Options) -> Self {
        let server = Server::in_memory(options);
        let client = server.client("default");
        let namespace =
            Namespace { metadata: meta(names::DEFAULT_NAMESPACE), ..Namespace::default() };
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let node = Api::<Node>::all(client.clone())
            .create(&PostParams::default(), &Node { metadata: meta("n"), ..Node::default() })
            .await
            .unwrap();
        // As the operator records it.
        let spec = NodeInventorySpec { ledger_id: Some("l".into()), ..Default::default() };
        Api::<NodeInventory>::all(client.clone())
            .create(&PostParams::default(), &NodeInventory::new("n", spec))
            .await
            .unwrap();
        World { server, node_uid: node.uid().unwrap(), client }
    }

    fn agent(&self, ops: Empty, workers: Workers) -> Arc<Agent<Empty>> {
        Arc::new(Agent::new(
            self.client.clone(),
            Arc::new(ops),
            workers,
            AgentOptions { identity: "me".into(), ..AgentOptions::new("n") },
        ))
    }

    /// A volume on its way out, and the job that cleans up after it.
    async fn cleanup(&self, name: &str) -> NodeJob {
        let volumes: Api<Volume> = Api::all(self.client.clone());
        let volume: Volume = serde_json::from_value(json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": name, "finalizers": [names::VOLUME_FINALIZER]},
            "spec": {"nodeName": "n", "storageClassName": "c", "sparseLoopDevice": {"size": "1Gi"}},
        }))
        .unwrap();
        let volume = volumes.create(&PostParams::default(), &volume).await.unwrap();
        volumes.delete(name, &Default::default()).await.unwrap();
        let job: NodeJob = serde_json::from_value(json!({
            "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": format!("cleanup-{name}")},
            "spec": {
                "action": "Cleanup", "nodeName": "n", "owner": {"kind": "Volume", "name": name, "uid": volume.uid()},
                "device": {"sparseFile": {"volumeUID": volume.uid()}}, "attempt": 1,
                "precondition": {"nodeUID": self.node_uid, "specHash": spec_hash(&volume.spec)},
            },
        }))
        .unwrap();
        self.jobs().create(&PostParams::default(), &job).await.unwrap()
    }

    fn jobs(&self) -> Api<NodeJob> {
        Api::all(self.client.clone())
    }

    async fn phase(&self, name: &str) -> Option<JobPhase> {
        self.jobs().get(name).await.ok()?.status?.phase
    }
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Time is paused: what waits costs nothing, what never comes is seen at once.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..20_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

// invariant: 8
#[tokio::test(start_paused = true)]
async fn a_quick_job_is_written_once() {
    let world = World::new().await;
    let job = world.cleanup("v").await;
    let agent = world.agent(Empty::default(), Workers::Inline);
    let before = world.server.write_count();
    assert_eq!(agent.run_job(&job).await.unwrap(), RunResult::Finished(JobOutcome::Removed));
    assert_eq!(world.server.write_count() - before, 1);
    let status = world.jobs().get("cleanup-v").await.unwrap().status.unwrap();
    assert_eq!(
        (status.phase, status.runs, status.message.as_deref()),
        (Some(JobPhase::Succeeded), 1, Some("removed"))
    );
    assert!(status.start_time.is_some() && status.completion_time.is_some());
    assert_eq!(
        agent.run_job(&job).await.unwrap(),
        RunResult::Skipped,
        "the stale object does not run it again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_job_reports_running_despite_concurrent_changes() {
    let world = World::new().await;
    let job = world.cleanup("v").await;
    let (open, gate) = mpsc::channel();
    let agent = world.agent(
        Empty { gate: Some(Mutex::new(gate)), ..Empty::default() },
        Workers::pool(1).unwrap(),
    );
    let running = tokio::spawn({
        let (agent, job) = (agent.clone(), job.clone());
        async move { agent.run_job(&job).await.unwrap() }
    });
    eventually("the job says that it runs", async || {
        world.phase("cleanup-v").await == Some(JobPhase::Running)
    })
    .await;
    let status = world.jobs().get("cleanup-v").await.unwrap().status.unwrap();
    assert_eq!((status.runs, status.message.as_deref()), (1, Some("observing the node")));
    let label = json!({"metadata": {"labels": {"seen": "yes"}}});
    world.jobs().patch("cleanup-v", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    open.send(()).unwrap();
    assert_eq!(running.await.unwrap(), RunResult::Finished(JobOutcome::Removed));
    let ended = world.jobs().get("cleanup-v").await.unwrap().status.unwrap();
    assert_eq!(
        (ended.runs, ended.phase, ended.start_time),
        (1, Some(JobPhase::Succeeded), status.start_time)
    );
}

// invariant: 8
#[tokio::test(start_paused = true)]
async fn the_inventory_is_written_when_it_changed_and_only_then() {
    let world = World::new().await;
    let inventories: Api<NodeInventory> = Api::all(world.client.clone());
    let ops = Empty::default();
    let device = Facts {
        name: "loop3".into(),
        kind: "loop".into(),
        size: 1,
        volume_uid: Some("u".into()),
        ..Facts::default()
    };
    ops.devices.lock().unwrap().push(device);
    let ops = Arc::new(ops);
    // Every reading of the clock is a second later: the API keeps no smaller unit.
    let seconds = AtomicI64::new(0);
    let clock = Clock::new(move || {
        Timestamp::UNIX_EPOCH
            + jiff::SignedDuration::from_secs(seconds.fetch_add(1, Ordering::Relaxed))
    });
    let agent = Agent::new(
        world.client.clone(),
        ops.clone(),
        Workers::Inline,
        AgentOptions { clock, ..AgentOptions::new("n") },
    );
    inventories.delete("n", &DeleteParams::default()).await.unwrap();
    assert_eq!(
        agent.publish_inventory(ScanReason::default()).await.unwrap().published,
        Published::NoInventory
    );
    inventories
        .create(
            &PostParams::default(),
            &NodeInventory { metadata: meta("n"), ..NodeInventory::default() },
        )
        .await
        .unwrap();
    assert_eq!(
        agent.publish_inventory(ScanReason::default()).await.unwrap().published,
        Published::Changed
    );
    let before = world.server.write_count();
    assert_eq!(
        agent.publish_inventory(ScanReason::default()).await.unwrap().published,
        Published::Unchanged
    );
    assert_eq!(world.server.write_count(), before);
    let first = inventories.get("n").await.unwrap().status.unwrap();
    assert_eq!(
        (first.node_uid.as_deref(), first.summary.as_ref().unwrap().disks),
        (Some(world.node_uid.as_str()), 1)
    );
    ops.devices.lock().unwrap().clear();
    assert_eq!(
        agent.publish_inventory(ScanReason::default()).await.unwrap().published,
        Published::Changed
    );
    let second = inventories.get("n").await.unwrap().status.unwrap();
    assert_eq!(
        (second.devices.len(), second.summary.as_ref().unwrap().disks),
        (0, 0),
        "an empty list replaces the old one"
    );
    assert!(second.last_change > first.last_change);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_taken_renewed_and_given_back() {
    let world = World::new().await;
    let agent = world.agent(Empty::default(), Workers::Inline);
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), names::DEFAULT_NAMESPACE);
    let taken = agent.renew_lease(None).await.unwrap();
    let renewed = agent.renew_lease(Some(taken.clone())).await.unwrap().spec.unwrap();
    assert_eq!(
        (
            renewed.holder_identity.as_deref(),
            renewed.lease_duration_seconds,
            renewed.lease_transitions
        ),
        (Some("me"), Some(40), None)
    );
    assert!(renewed.renew_time > taken.spec.unwrap().renew_time);
    agent.release_lease().await.unwrap();
    assert_eq!(
        leases.get("quarry-agent-n").await.unwrap().spec.unwrap().holder_identity.as_deref(),
        Some("")
    );
    let again = agent.renew_lease(None).await.unwrap().spec.unwrap();
    assert_eq!((again.holder_identity.as_deref(), again.lease_transitions), (Some("me"), Some(1)));
}

/// As on a cluster whose CRD is older than the agent.
#[tokio::test(start_paused = true)]
async fn one_unreadable_job_is_failed_and_the_others_go_on() {
    let mut definitions = crds::crds();
    for crd in definitions.iter_mut().filter(|crd| crd.name_any().starts_with("nodejobs.")) {
        let anything = JSONSchemaProps {
            type_: Some("object".into()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        };
        for version in &mut crd.spec.versions {
            version.schema.as_mut().unwrap().open_api_v3_schema = Some(anything.clone());
        }
    }
    let world = World::with(Options::new(definitions)).await;
    let shutdown = CancellationToken::new();
    let serving =
        tokio::spawn(world.agent(Empty::default(), Workers::Inline).serve(shutdown.clone()));
    let any: Api<DynamicObject> =
        Api::all_with(world.client.clone(), &ApiResource::erase::<NodeJob>(&()));
    let broken: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": "broken"}, "spec": {"action": "Explode", "nodeName": "n"},
    }))
    .unwrap();
    any.create(&PostParams::default(), &broken).await.unwrap();
    let status = async || any.get("broken").await.unwrap().data["status"].clone();
    eventually("the broken job is failed", async || status().await["phase"] == "Failed").await;
    assert!(
        matches!(&status().await["message"], Value::String(text) if text.contains("cannot be read"))
    );
    world.cleanup("v").await;
    eventually("the good job ends", async || {
        world.phase("cleanup-v").await == Some(JobPhase::Succeeded)
    })
    .await;
    shutdown.cancel();
    serving.await.unwrap();
}
