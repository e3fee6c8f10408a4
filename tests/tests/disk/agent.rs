//! The whole agent on the embedded API with real devices: Lease, NodeInventory, jobs, shutdown. No
//! operator.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use quarry_api::{
    NodeInventory, NodeJob, NodeJobSpec, Volume, crds, names,
    node_job::{Action, JobPhase},
};
use quarry_apiserver::{Options, Server};
use quarry_core::volume::spec_hash;
use quarry_node::{AgentOptions, run};
use quarry_tests::disk::{Bed, Links, snatch};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

const NODE: &str = "n1";

struct Cluster {
    client: Client,
    node_uid: String,
}

impl Cluster {
    async fn new(server: &Server) -> Self {
        let client = server.client("default");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace =
            Namespace { metadata: meta(names::DEFAULT_NAMESPACE), ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes
            .create(&PostParams::default(), &Node { metadata: meta(NODE), ..Node::default() })
            .await
            .unwrap();
        Cluster { client, node_uid: node.metadata.uid.unwrap() }
    }

    fn all<K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>>(
        &self,
    ) -> Api<K> {
        Api::all(self.client.clone())
    }

    async fn volume(&self, name: &str, mode: &str) -> Volume {
        let volume: Volume = serde_json::from_value(json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": name, "finalizers": [names::VOLUME_FINALIZER]},
            "spec": {"nodeName": NODE, "storageClassName": "c", "mode": mode, "sparseLoopDevice": {"size": "16Mi"}},
        }))
        .unwrap();
        self.all().create(&PostParams::default(), &volume).await.unwrap()
    }

    async fn job(
        &self,
        volume: &Volume,
        action: Action,
        attempt: i32,
        parameters: Value,
    ) -> NodeJob {
        let uid = volume.metadata.uid.clone().unwrap();
        let spec: NodeJobSpec = serde_json::from_value(json!({
            "action": action, "nodeName": NODE, "owner": {"kind": "Volume", "name": volume.metadata.name, "uid": uid},
            "device": {"sparseFile": {"volumeUID": uid}}, "attempt": attempt, "parameters": parameters,
            "precondition": {"nodeUID": self.node_uid, "specHash": spec_hash(&volume.spec)},
        }))
        .unwrap();
        let job = NodeJob { metadata: meta(&spec.job_name()), spec, status: None };
        self.all().create(&PostParams::default(), &job).await.unwrap()
    }

    /// The job once it has finished.
    async fn ended(&self, job: &NodeJob) -> NodeJob {
        let jobs: Api<NodeJob> = self.all();
        let name = job.metadata.name.clone().unwrap();
        self.poll("the job has finished", || async {
            let job = jobs.get(&name).await.unwrap();
            job.status
                .as_ref()
                .and_then(|status| status.phase)
                .is_some_and(JobPhase::finished)
                .then_some(job)
        })
        .await
    }

    async fn poll<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        mut probe: impl FnMut() -> F,
    ) -> T {
        let found = timeout(Duration::from_secs(20), async {
            loop {
                if let Some(found) = probe().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("not within twenty seconds: {what}"))
    }
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn start(
    bed: &Bed,
    client: &Client,
) -> (CancellationToken, JoinHandle<Result<(), quarry_node::agent::AgentError>>) {
    let options = AgentOptions {
        host_root: bed.root.clone(),
        data_dir: bed.data_on_node.clone(),
        ..AgentOptions::new(NODE)
    };
    let shutdown = CancellationToken::new();
    (shutdown.clone(), tokio::spawn(run(client.clone(), options, shutdown)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_serves_its_node_from_start_to_shutdown() {
    let bed = Bed::new(Links::Udev);
    let server = Server::in_memory(Options::new(crds::crds()));
    let cluster = Cluster::new(&server).await;
    let (shutdown, agent) = start(&bed, &cluster.client);

    // The agent starts before the operator has created the NodeInventory, which is filled in as
    // soon as it exists.
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), names::DEFAULT_NAMESPACE);
    let holder = |lease: &Lease| {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
    };
    cluster
        .poll("the agent has a Lease", || async {
            leases
                .get_opt(&names::agent_lease(NODE))
                .await
                .unwrap()
                .filter(|lease| !holder(lease).is_empty())
        })
        .await;
    let inventories: Api<NodeInventory> = cluster.all();
    inventories
        .create(
            &PostParams::default(),
            &NodeInventory { metadata: meta(NODE), ..NodeInventory::default() },
        )
        .await
        .unwrap();
    let published = cluster
        .poll("the inventory is filled in", || async {
            inventories.get(NODE).await.unwrap().status
        })
        .await;
    assert_eq!(published.node_uid.as_deref(), Some(cluster.node_uid.as_str()));
    // As the operator records it: until then no volume is removed.
    let recorded = json!({"spec": {"ledgerID": published.ledger_id}});
    inventories.patch(NODE, &PatchParams::default(), &Patch::Merge(recorded)).await.unwrap();

    // A file system volume, a block volume, a job that is obsolete, and one that cannot be parsed.
    let fs_volume = cluster.volume("fs", "Filesystem").await;
    let block_volume = cluster.volume("block", "Block").await;
    let writes_before = server.write_count();
    let fs_job = cluster
        .job(
            &fs_volume,
            Action::Prepare,
            1,
            json!({"size": 16 << 20, "filesystem": {"type": "ext4"}}),
        )
        .await;
    let fs_job = cluster.ended(&fs_job).await.status.unwrap();
    assert_eq!((fs_job.phase, fs_job.runs), (Some(JobPhase::Succeeded), 1), "{fs_job:?}");
    let block_job = cluster
        .job(&block_volume, Action::Prepare, 1, json!({"size": 16 << 20, "partition": {}}))
        .await;
    let block_job = cluster.ended(&block_job).await.status.unwrap();
    assert_eq!(block_job.phase, Some(JobPhase::Succeeded), "{block_job:?}");
    let early = cluster.job(&fs_volume, Action::Cleanup, 1, Value::Null).await;
    let early = cluster.ended(&early).await.status.unwrap();
    assert_eq!(early.phase, Some(JobPhase::Failed));
    assert!(early.message.unwrap().contains("not being deleted"));

    let device = |status: Option<quarry_api::NodeInventoryStatus>, uid: &str| {
        let devices = status.map(|status| status.devices).unwrap_or_default();
        devices
            .into_iter()
            .find(|device| device.volume_uid.as_deref() == Some(uid) && device.link.is_some())
    };
    let uid = fs_volume.metadata.uid.clone().unwrap();
    let shown = cluster
        .poll("the device is published", || async {
            device(inventories.get(NODE).await.unwrap().status, &uid)
        })
        .await;
    assert_eq!(shown.name, fs_job.result.as_ref().unwrap().device_name);
    let writes = server.write_count() - writes_before - 3;
    // Number of NodeInventory writes: one per udev step that a scan falls between, because links
    // and partitions appear one by one.
    assert!(writes <= 3 + 8, "{writes} writes of the agent for three jobs");

    // Without changes only the Lease is written. Changes that belong to the jobs (links,
    // partitions, their Events) may still be arriving.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let quiet = server.write_counts();
        tokio::time::sleep(Duration::from_millis(600)).await;
        let still = server.write_counts();
        let busy: Vec<_> = still
            .iter()
            .filter(|(key, count)| !key.contains("lease") && quiet.get(*key) != Some(*count))
            .collect();
        if busy.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{busy:?}");
    }

    // A device that another process detached is no longer listed.
    snatch(&shown.name);
    cluster
        .poll("the device is removed from the NodeInventory", || async {
            device(inventories.get(NODE).await.unwrap().status, &uid).is_none().then_some(())
        })
        .await;

    shutdown.cancel();
    timeout(Duration::from_secs(10), agent).await.expect("it stops in time").unwrap().unwrap();
    assert_eq!(
        holder(&leases.get(&names::agent_lease(NODE)).await.unwrap()),
        "",
        "the Lease is released"
    );

    // The next agent restores it, and removes both volumes when they are deleted.
    let (shutdown, agent) = start(&bed, &cluster.client);
    cluster
        .poll("the device is back", || async {
            device(inventories.get(NODE).await.unwrap().status, &uid)
        })
        .await;
    for volume in [&fs_volume, &block_volume] {
        let name = volume.metadata.name.as_deref().unwrap();
        let volumes: Api<Volume> = cluster.all();
        volumes.delete(name, &DeleteParams::default()).await.unwrap();
        let volume = volumes.get(name).await.unwrap();
        let job = cluster.job(&volume, Action::Cleanup, 2, Value::Null).await;
        let status = cluster.ended(&job).await.status.unwrap();
        assert_eq!(status.phase, Some(JobPhase::Succeeded), "{status:?}");
    }
    bed.assert_clean(&uid);
    shutdown.cancel();
    timeout(Duration::from_secs(10), agent).await.expect("it stops in time").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_agent_fails_immediately() {
    let bed = Bed::new(Links::Own);
    let server = Server::in_memory(Options::new(crds::crds()));
    let cluster = Cluster::new(&server).await;
    let first = bed.ops();
    let (_shutdown, second) = start(&bed, &cluster.client);
    let error = second.await.unwrap().unwrap_err();
    assert!(error.message().contains("another agent runs on this node"), "{}", error.message());
    drop(first);
}

// invariant: 2, 4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_fails_when_the_api_does_not_respond() {
    let bed = Bed::new(Links::Own);
    let server = Server::in_memory(Options::new(crds::crds()));
    let cluster = Cluster::new(&server).await;
    let volume = cluster.volume("v", "Filesystem").await;
    let job = cluster
        .job(&volume, Action::Prepare, 1, json!({"size": 16 << 20, "filesystem": {"type": "ext4"}}))
        .await;
    let deaf = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let agent = quarry_node::Agent::new(
        deaf,
        bed.ops(),
        quarry_node::agent::Workers::Inline,
        AgentOptions::new(NODE),
    );
    assert!(agent.run_job(&job).await.unwrap_err().retryable());
    assert_eq!(bed.files(), Vec::<String>::new(), "nothing was done");
    // The same job after the volume was recreated.
    let volumes: Api<Volume> = cluster.all();
    let patch = json!({"metadata": {"finalizers": null}});
    volumes.patch("v", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    volumes.delete("v", &DeleteParams::default()).await.unwrap();
    drop(agent);
    let agent = quarry_node::Agent::new(
        cluster.client.clone(),
        bed.ops(),
        quarry_node::agent::Workers::Inline,
        AgentOptions::new(NODE),
    );
    let ran = agent.run_job(&job).await.unwrap();
    assert!(
        matches!(&ran, quarry_node::agent::RunResult::Finished(quarry_core::job::JobOutcome::Failed(why)) if why.contains("no longer exists")),
        "{ran:?}"
    );
    assert_eq!(bed.files(), Vec::<String>::new(), "nothing was done");
    assert_eq!(
        agent.run_job(&job).await.unwrap(),
        quarry_node::agent::RunResult::Skipped,
        "a failed job is final"
    );
}
