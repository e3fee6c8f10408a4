//! Device claims on real devices, without an operator: an embedded API with the objects the
//! operator would have written.
//!
//! `World` has the Node, a LocalVolumeSet, the NodeInventory with its device claims and, for a
//! wipe, the released PersistentVolume and the NodeJob. The agent under test is the real one,
//! called one part at a time.

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use quarry_api::{
    LocalVolumeSet, NodeInventory, NodeInventoryStatus, NodeJob, NodeJobSpec, crds, names,
    node_inventory::{ClaimOwner, ClaimReport, DeviceClaim},
    node_job::{
        Action, ClaimedDevice, JobDevice, JobOwner, OwnerKind, Parameters, Precondition,
        WipeParameters, WipePolicy,
    },
};
use quarry_apiserver::{Options, Server};
use quarry_core::{
    device::{Facts, group},
    device_claim::claim_hash,
};
use quarry_node::{
    Agent, AgentOptions, NodeOps,
    agent::{RunResult, ScanReason, Workers},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

pub const NODE: &str = "n1";
pub const SET: &str = "fast";

pub struct World {
    pub server: Server,
    pub client: Client,
    pub node_uid: String,
    pub set_uid: String,
}

impl World {
    pub async fn new() -> Self {
        let server = Server::in_memory(Options::new(crds::crds()));
        let client = server.client("default");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(
                &PostParams::default(),
                &Namespace { metadata: meta(names::DEFAULT_NAMESPACE), ..Namespace::default() },
            )
            .await
            .unwrap();
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes
            .create(&PostParams::default(), &Node { metadata: meta(NODE), ..Node::default() })
            .await
            .unwrap();
        let mut world =
            World { server, client, node_uid: node.uid().unwrap(), set_uid: String::new() };
        world.set_uid = world.make_set().await;
        world
            .all::<NodeInventory>()
            .create(
                &PostParams::default(),
                &NodeInventory { metadata: meta(NODE), ..NodeInventory::default() },
            )
            .await
            .unwrap();
        world
    }

    pub async fn make_set(&self) -> String {
        let sets: Api<LocalVolumeSet> =
            Api::namespaced(self.client.clone(), names::DEFAULT_NAMESPACE);
        let set = serde_json::from_value(json!({
            "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": SET}, "spec": {"storageClassName": SET},
        }))
        .unwrap();
        sets.create(&PostParams::default(), &set).await.unwrap().uid().unwrap()
    }

    pub fn all<K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>>(
        &self,
    ) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Writes the complete list of device claims, as the operator would.
    pub async fn claim(&self, claims: &[DeviceClaim]) {
        let patch = json!({"spec": {"deviceClaims": claims}});
        self.all::<NodeInventory>()
            .patch(NODE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    pub async fn ask_paths(&self, paths: &[&str]) {
        let patch = json!({"spec": {"paths": paths}});
        self.all::<NodeInventory>()
            .patch(NODE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// The reports on device claims become those of a backup.
    pub async fn restore_status(&self, reports: &[ClaimReport]) {
        let patch = json!({"status": {"deviceClaims": reports}});
        self.all::<NodeInventory>()
            .patch_status(NODE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    pub async fn status(&self) -> NodeInventoryStatus {
        self.all::<NodeInventory>().get(NODE).await.unwrap().status.unwrap_or_default()
    }

    pub fn owner(&self) -> ClaimOwner {
        ClaimOwner {
            kind: "LocalVolumeSet".into(),
            namespace: Some(names::DEFAULT_NAMESPACE.into()),
            name: SET.into(),
            uid: self.set_uid.clone(),
        }
    }

    /// The PersistentVolume of a device claim, deleted and still kept by our finalizer: released,
    /// or never bound.
    pub async fn release(&self, claim: &DeviceClaim) -> PersistentVolume {
        let name = names::local_pv(NODE, &claim.identity);
        let pv: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": name, "finalizers": [names::PV_FINALIZER], "annotations": {names::IDENTITY_ANNOTATION: claim.identity}},
            "spec": {
                "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
                "local": {"path": claim.link}, "storageClassName": SET, "claimRef": {"namespace": "default", "name": "pod-data", "uid": "gone"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]}},
            },
        }))
        .unwrap();
        let pvs: Api<PersistentVolume> = self.all();
        pvs.create(&PostParams::default(), &pv).await.unwrap();
        pvs.patch_status(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"phase": "Released"}})),
        )
        .await
        .unwrap();
        pvs.delete(&name, &DeleteParams::default()).await.unwrap();
        pvs.get(&name).await.unwrap()
    }

    /// Records a wipe in the device claim and creates its NodeJob.
    pub async fn wipe_job(
        &self,
        claim: &DeviceClaim,
        pv: &PersistentVolume,
        policy: WipePolicy,
    ) -> NodeJob {
        let spec = NodeJobSpec {
            action: Action::Wipe,
            node_name: NODE.into(),
            owner: JobOwner {
                kind: OwnerKind::LocalVolumeSet,
                namespace: claim.owner.namespace.clone(),
                name: SET.into(),
                uid: claim.owner.uid.clone(),
            },
            device: JobDevice {
                sparse_file: None,
                claimed: Some(ClaimedDevice {
                    identity: claim.identity.clone(),
                    size: claim.size,
                    pv_name: pv.name_any(),
                    pv_uid: pv.uid().unwrap(),
                    pvc_uid: None,
                }),
            },
            precondition: Precondition {
                node_uid: self.node_uid.clone(),
                spec_hash: claim_hash(claim),
            },
            parameters: Some(Parameters {
                size: claim.size,
                filesystem: None,
                partition: None,
                wipe: Some(WipeParameters { policy }),
            }),
            attempt: 1,
            retry: None,
        };
        let name = spec.job_name();
        let recorded = DeviceClaim {
            job: Some(quarry_api::node_inventory::ClaimJob { name: name.clone(), attempt: 1 }),
            ..claim.clone()
        };
        self.claim(&[recorded]).await;
        self.all()
            .create(&PostParams::default(), &NodeJob { metadata: meta(&name), spec, status: None })
            .await
            .unwrap()
    }

    /// Everything that a wipe of this device claim needs, including the release.
    pub async fn wipe_wanted(&self, claim: &DeviceClaim, policy: WipePolicy) -> NodeJob {
        self.claim(std::slice::from_ref(claim)).await;
        let pv = self.release(claim).await;
        self.wipe_job(claim, &pv, policy).await
    }

    pub fn agent<H: NodeOps>(&self, ops: &Arc<H>) -> Agent<H> {
        let options = AgentOptions { settling_time: Duration::ZERO, ..AgentOptions::new(NODE) };
        Agent::new(self.client.clone(), ops.clone(), Workers::pool(2).unwrap(), options)
    }

    /// Runs one scan and publishes it; returns the resulting status.
    pub async fn publish<H: NodeOps>(&self, ops: &Arc<H>) -> NodeInventoryStatus {
        self.agent(ops).publish_inventory(ScanReason::default()).await.unwrap();
        self.status().await
    }

    /// A complete wipe of a claimed device, including the release.
    pub async fn wipe<H: NodeOps>(
        &self,
        ops: &Arc<H>,
        claim: &DeviceClaim,
        policy: WipePolicy,
    ) -> (RunResult, NodeJob) {
        let job = self.wipe_wanted(claim, policy).await;
        let ran = self.agent(ops).run_job(&job).await.unwrap();
        (ran, self.all().get(&job.name_any()).await.unwrap())
    }
}

pub fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// The device claim that the operator would write for this device.
pub fn claim_of(facts: &Facts, owner: ClaimOwner) -> DeviceClaim {
    let known = group(std::slice::from_ref(facts), None, None, &[]);
    DeviceClaim {
        identity: known[0]
            .identified
            .identity
            .clone()
            .unwrap_or_else(|| panic!("{} has no identity", facts.name)),
        owner,
        storage_class_name: SET.into(),
        size: i64::try_from(facts.size).unwrap(),
        link: format!("{}/{SET}/{}", names::LINK_DIRECTORY, facts.name),
        round: 1,
        ..DeviceClaim::default()
    }
}
