//! Device claims on the embedded API: an operator with stale caches, and what it reports when all is well.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use quarry_api::{LocalVolumeSet, NodeInventory, admission, crds, names};
use quarry_apiserver::{Options, Server};
use quarry_core::device_claim::{self, NodeWorld, Plan, demand::of_set};
use quarry_operator::{Context, OperatorOptions, Registry, group, node_inventory::apply_claims};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = names::DEFAULT_NAMESPACE;
const IDENTITY: &str = "wwn:5000c50000000001";

struct Cluster {
    client: Client,
    _server: Server,
}

impl Cluster {
    /// One node with one blank disk, and its agent's lease.
    async fn new() -> Self {
        let mut options = Options::new(crds());
        options.policies = admission::embedded_policies()
            .into_iter()
            .map(|policy| (policy.policy, policy.binding))
            .collect();
        let server = Server::in_memory(options);
        let cluster = Cluster { client: server.client("default"), _server: server };
        cluster.create::<Namespace>(cluster.all(), json!({"metadata": {"name": NAMESPACE}})).await;
        cluster
            .create::<Node>(
                cluster.all(),
                json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}}),
            )
            .await;
        let renewed = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
        let lease = json!({"metadata": {"name": names::agent_lease("n1")}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 3600, "renewTime": renewed}});
        cluster.create::<Lease>(cluster.here(), lease).await;
        cluster
    }

    fn all<K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>>(
        &self,
    ) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn here<K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(
        &self,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn create<K: Clone + Debug + DeserializeOwned + Serialize>(
        &self,
        api: Api<K>,
        object: Value,
    ) -> K {
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    async fn set(&self, name: &str) -> LocalVolumeSet {
        let set = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
            "metadata": {"name": name, "finalizers": [names::OWNER_FINALIZER]}, "spec": {"storageClassName": "fast"}});
        self.create(self.here(), set).await
    }

    /// What the agent says: the disk, with these reasons, and its answers to the claims.
    async fn report(&self, reasons: Value) -> NodeInventory {
        let api: Api<NodeInventory> = self.all();
        let claims = api.get("n1").await.unwrap().spec.device_claims;
        let answers: Vec<Value> = claims
            .iter()
            .map(|claim| {
                let (state, linked) = if claim.terminating { ("Removed", false) } else { ("Confirmed", true) };
                json!({"identity": claim.identity, "ownerUID": claim.owner.uid, "round": claim.round, "state": state, "linked": linked, "device": "sda"})
            })
            .collect();
        let available =
            if reasons.as_array().unwrap().is_empty() { "Available" } else { "NotAvailable" };
        let disk = json!({"name": "sda", "type": "disk", "size": 20i64 << 30, "identity": IDENTITY, "deviceID": "/dev/disk/by-id/wwn-0x5000c50000000001",
            "settled": true, "state": available, "reasons": reasons});
        let status = json!({"status": {"nodeUID": "x", "machineID": "m", "devices": [disk], "deviceClaims": answers}});
        api.patch_status("n1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap()
    }

    async fn pvs(&self) -> Vec<PersistentVolume> {
        self.all::<PersistentVolume>().list(&ListParams::default()).await.unwrap().items
    }
}

fn options() -> OperatorOptions {
    OperatorOptions {
        namespace: NAMESPACE.into(),
        registry: Registry::standard().select(&[group::NODE_INVENTORY, group::DEVICE_CLAIMS]),
        election_identity: None,
        agent_daemon_set: None,
        job_retention: SignedDuration::from_hours(1),
        hosts: None,
        check_crds: true,
    }
}

/// An operator that is about to publish a confirmed disk of a set.
async fn about_to_publish(cluster: &Cluster) -> (Context, NodeWorld, Plan) {
    let context = Context::new(cluster.client.clone(), &options(), Arc::new(Timestamp::now));
    let demand = of_set(&cluster.set("s").await);
    let inventory = json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1"}, "spec": {}});
    cluster.create::<NodeInventory>(cluster.all(), inventory).await;
    let node = cluster.all::<Node>().get("n1").await.unwrap();
    let world = |inventory: &NodeInventory| NodeWorld {
        name: "n1".into(),
        node: Some(Arc::new(node.clone())),
        inventory: inventory.clone(),
        demands: vec![demand.clone()],
        agent_present: true,
        ..NodeWorld::default()
    };
    let claimed = device_claim::plan(&world(&cluster.report(json!([])).await), Timestamp::now());
    let spec = json!({"spec": {"deviceClaims": claimed.claims, "machineID": claimed.machine_id}});
    cluster
        .all::<NodeInventory>()
        .patch("n1", &PatchParams::default(), &Patch::Merge(spec))
        .await
        .unwrap();
    let world = world(&cluster.report(json!([])).await);
    let plan = device_claim::plan(&world, Timestamp::now());
    assert_eq!(
        plan.steps.iter().map(device_claim::Step::name).collect::<Vec<_>>(),
        ["CreateClass", "CreatePv"]
    );
    (context, world, plan)
}

#[tokio::test]
async fn a_confirmed_device_claim_is_published() {
    let cluster = Cluster::new().await;
    let (context, world, plan) = about_to_publish(&cluster).await;
    apply_claims(&context, &world, &plan.steps).await.unwrap();
    let pvs = cluster.pvs().await;
    assert_eq!(pvs.len(), 1);
    assert_eq!(
        pvs[0].spec.as_ref().unwrap().persistent_volume_reclaim_policy.as_deref(),
        Some("Delete")
    );
}

/// The cache has not seen it yet: a volume that says Delete in a class that says Retain would be wiped one day.
#[tokio::test]
async fn a_class_created_meanwhile_is_read_before_publication() {
    let cluster = Cluster::new().await;
    let (context, world, plan) = about_to_publish(&cluster).await;
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "kubernetes.io/no-provisioner", "reclaimPolicy": "Retain"});
    cluster.create::<StorageClass>(cluster.all(), class).await;
    assert!(apply_claims(&context, &world, &plan.steps).await.is_err());
    assert_eq!(cluster.pvs().await.len(), 0);
    let class = cluster.all::<StorageClass>().get("fast").await.unwrap();
    assert_eq!(
        (class.reclaim_policy.as_deref(), class.metadata.labels),
        (Some("Retain"), None),
        "and it stays as it was made"
    );
}

/// The confirmation stands, and everything else that has become known since counts as well.
#[tokio::test]
async fn a_newer_report_of_the_node_stops_publication() {
    for (reason, spec) in [
        (json!([{"reason": "Mounted", "detail": "/data"}]), json!({})),
        (json!([{"reason": "Signature", "detail": "ext4"}]), json!({})),
        (json!([{"reason": "BacksPersistentVolume", "detail": "lso"}]), json!({})),
        (
            json!([]),
            json!({"spec": {"quarantine": [{"identity": IDENTITY, "reason": "IdentityElsewhere", "detail": "sdb of node n2"}]}}),
        ),
        (
            json!([]),
            json!({"spec": {"retainedData": [{"identity": IDENTITY, "pvName": "p", "pvUID": "u"}]}}),
        ),
        (json!([]), json!({"spec": {"deviceClaims": []}})),
    ] {
        let cluster = Cluster::new().await;
        let (context, world, plan) = about_to_publish(&cluster).await;
        cluster
            .all::<NodeInventory>()
            .patch("n1", &PatchParams::default(), &Patch::Merge(spec.clone()))
            .await
            .unwrap();
        cluster.report(reason.clone()).await;
        assert!(apply_claims(&context, &world, &plan.steps).await.is_err(), "{reason} {spec}");
        let classes = cluster.all::<StorageClass>().list(&ListParams::default()).await.unwrap();
        assert_eq!((cluster.pvs().await.len(), classes.items.len()), (0, 0), "{reason} {spec}");
    }
}

async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < deadline, "gave up on: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn metrics(address: std::net::SocketAddr) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_set_reports_and_its_class_stays_while_a_pvc_names_it() {
    let cluster = Cluster::new().await;
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(quarry_operator::run(cluster.client.clone(), options(), Some(listener), stop));
    let inventories = cluster.all::<NodeInventory>();
    until("the inventory is made", async || inventories.get_opt("n1").await.unwrap()).await;
    for named in [true, false] {
        cluster.report(json!([])).await;
        cluster.set("s").await;
        until("the disk is claimed", async || {
            inventories.get("n1").await.unwrap().spec.device_claims.first().cloned()
        })
        .await;
        cluster.report(json!([])).await;
        until("it is published", async || cluster.pvs().await.pop()).await;
        until("the set says so", async || {
            let set = cluster.here::<LocalVolumeSet>().get("s").await.unwrap();
            (set.status?.total_provisioned_device_count == Some(1)).then_some(())
        })
        .await;
        let events = cluster.here::<Event>().list(&ListParams::default()).await.unwrap();
        let found = events
            .items
            .iter()
            .find(|event| event.reason.as_deref() == Some("FoundMatchingDisk"))
            .unwrap();
        assert_eq!(
            found.message.as_deref(),
            Some("LocalVolumeSet quarry-system/s claims sda of node n1")
        );
        let text = metrics(address).await;
        for line in [
            "quarry_device_claims{state=\"Confirmed\"} 1",
            "quarry_provisioned_devices{kind=\"LocalVolumeSet\",namespace=\"quarry-system\",name=\"s\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        if named {
            let waiting = json!({"metadata": {"name": "waiting"}, "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
            cluster.create(claims.clone(), waiting).await;
        } else {
            claims.delete("waiting", &DeleteParams::default()).await.unwrap();
        }
        cluster.here::<LocalVolumeSet>().delete("s", &DeleteParams::default()).await.unwrap();
        until("the set is gone", async || {
            let claims = inventories.get("n1").await.unwrap().spec.device_claims;
            if claims.iter().any(|claim| claim.terminating) {
                cluster.report(json!([])).await;
            }
            cluster.here::<LocalVolumeSet>().get_opt("s").await.unwrap().is_none().then_some(())
        })
        .await;
        let class = cluster.all::<StorageClass>().get_opt("fast").await.unwrap();
        assert_eq!(class.is_some(), named, "a claim waits for a volume of it: {named}");
        assert_eq!(cluster.pvs().await.len(), 0);
    }
}
