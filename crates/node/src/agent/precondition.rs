//! What the API says right before a job is run: everything read live, nothing from a cache.

use super::{Agent, AgentError};
use crate::{
    device_claim::{HoldRequest, NodeView},
    job_runner::LiveCheck,
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};
use quarry_api::{
    LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, Volume,
    node_job::{JobOwner, OwnerKind},
};
use quarry_core::{
    device_claim::is_other_ledger,
    job::WipeDevice,
    precondition::{VolumePrecondition, WipePrecondition, check_wipe},
};

/// The job as it is now, and what its reason looks like.
pub(super) struct LiveRead {
    /// `None` when it was deleted.
    pub job: Option<NodeJob>,
    pub live: VolumePrecondition,
}

/// A job whose reason is checked against the API whenever its runner asks.
pub(super) struct LiveJob<'a, H> {
    pub agent: &'a Agent<H>,
    pub job: &'a NodeJob,
}

impl<H: Send + Sync> LiveCheck for LiveJob<'_, H> {
    type Error = AgentError;

    async fn check_wipe(
        &self,
        task: &WipeDevice,
    ) -> Result<Result<HoldRequest, String>, AgentError> {
        let name = self.job.metadata.name.as_deref().unwrap_or_default();
        let (current, live) = self.agent.read_live_wipe(self.job, task).await?;
        let Some(current) = current else { return Ok(Err("the job was deleted".into())) };
        let claim = match check_wipe(name, &current.spec, task, &live) {
            Ok(claim) => claim.clone(),
            Err(void) => return Ok(Err(void.to_string())),
        };
        let view = live.inventory.as_ref().map(NodeView::of).unwrap_or_default();
        Ok(Ok(HoldRequest {
            claim,
            pv_uid: task.pv_uid.clone(),
            pvc_uid: task.pvc_uid.clone(),
            policy: task.policy,
            view,
        }))
    }
}

impl<H> Agent<H> {
    /// Any failure means no: the job waits.
    pub(super) async fn read_live(
        &self,
        job: &NodeJob,
        ledger_id: &str,
    ) -> Result<LiveRead, AgentError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let owner = job.spec.owner.name.as_str();
        let jobs: Api<NodeJob> = Api::all(self.client.clone());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let volumes: Api<Volume> = Api::all(self.client.clone());
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let (fresh, node, inventory, volume, pv) = futures::try_join!(
            jobs.get_opt(name),
            nodes.get_opt(&self.options.node_name),
            inventories.get_opt(&self.options.node_name),
            volumes.get_opt(owner),
            pvs.get_opt(owner)
        )
        .map_err(AgentError::api(format!("asking whether job {name} is still wanted")))?;
        let pvc_uid = self.pvc_uid(pv.as_ref()).await?;
        let live = VolumePrecondition {
            node_uid: node.and_then(|node| node.metadata.uid),
            owner: volume,
            pv,
            pvc_uid,
            ledger_unrecorded: inventory
                .as_ref()
                .is_none_or(|inventory| inventory.spec.ledger_id.is_none()),
            other_ledger: inventory
                .is_some_and(|inventory| is_other_ledger(&inventory.spec, Some(ledger_id))),
        };
        Ok(LiveRead { job: fresh.filter(|fresh| fresh.metadata.uid == job.metadata.uid), live })
    }

    /// The job, and everything that a wipe rests on. Asked twice: before the device is opened, and while it is held.
    async fn read_live_wipe(
        &self,
        job: &NodeJob,
        task: &WipeDevice,
    ) -> Result<(Option<NodeJob>, WipePrecondition), AgentError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let jobs: Api<NodeJob> = Api::all(self.client.clone());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        let node_name = self.options.node_name.as_str();
        let owner = async { self.owner_uid(&job.spec.owner).await };
        let (fresh, node, owner_uid, inventory, pv) = futures::try_join!(
            jobs.get_opt(name),
            nodes.get_opt(node_name),
            owner,
            inventories.get_opt(node_name),
            pvs.get_opt(task.pv.as_str())
        )
        .map_err(AgentError::api(format!("asking whether job {name} is still wanted")))?;
        let pvc_uid = self.pvc_uid(pv.as_ref()).await?;
        let live = WipePrecondition {
            node_uid: node.and_then(|node| node.metadata.uid),
            owner_uid,
            inventory,
            pv,
            pvc_uid,
        };
        Ok((fresh.filter(|fresh| fresh.metadata.uid == job.metadata.uid), live))
    }

    /// By metadata alone: an owner that this version cannot read all of still exists.
    async fn owner_uid(&self, owner: &JobOwner) -> kube::Result<Option<String>> {
        let resource = match owner.kind {
            OwnerKind::LocalVolumeSet => ApiResource::erase::<LocalVolumeSet>(&()),
            OwnerKind::LocalVolume => ApiResource::erase::<LocalVolume>(&()),
            // A Volume's storage is not claimed.
            OwnerKind::Volume => return Ok(None),
        };
        let Some(namespace) = &owner.namespace else { return Ok(None) };
        let owners: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        Ok(owners.get_opt(&owner.name).await?.and_then(|found| found.metadata.uid))
    }

    async fn pvc_uid(&self, pv: Option<&PersistentVolume>) -> Result<Option<String>, AgentError> {
        let reference = pv.and_then(|pv| pv.spec.as_ref()).and_then(|spec| spec.claim_ref.as_ref());
        let Some((namespace, name)) =
            reference.and_then(|pvc| Some((pvc.namespace.as_deref()?, pvc.name.as_deref()?)))
        else {
            return Ok(None);
        };
        let pvcs: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let pvc = pvcs
            .get_opt(name)
            .await
            .map_err(AgentError::api(format!("reading PVC {namespace}/{name}")))?;
        Ok(pvc.and_then(|pvc| pvc.metadata.uid))
    }
}
