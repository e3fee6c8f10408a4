//! The last look at the API before a job acts: everything read live, nothing from a cache.

use super::{Agent, AgentError};
use crate::hands::Hands;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use quarry_api::{NodeJob, Volume};
use quarry_core::live::Live;

/// The job as it is now, and what its reason looks like.
pub(super) struct Fresh {
    /// `None` when it was deleted.
    pub job: Option<NodeJob>,
    pub live: Live,
}

impl<H: Hands> Agent<H> {
    /// Any failure means no: the job waits.
    pub(super) async fn read_live(&self, job: &NodeJob) -> Result<Fresh, AgentError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let owner = job.spec.owner.name.as_str();
        let jobs: Api<NodeJob> = Api::all(self.client.clone());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let volumes: Api<Volume> = Api::all(self.client.clone());
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        let (fresh, node, volume, pv) =
            futures::try_join!(jobs.get_opt(name), nodes.get_opt(&self.options.node_name), volumes.get_opt(owner), pvs.get_opt(owner))
                .map_err(AgentError::api(format!("asking whether job {name} is still wanted")))?;
        let claim_uid = self.claim_uid(pv.as_ref()).await?;
        let live = Live { node_uid: node.and_then(|node| node.metadata.uid), owner: volume, pv, claim_uid };
        Ok(Fresh { job: fresh.filter(|fresh| fresh.metadata.uid == job.metadata.uid), live })
    }

    async fn claim_uid(&self, pv: Option<&PersistentVolume>) -> Result<Option<String>, AgentError> {
        let reference = pv.and_then(|pv| pv.spec.as_ref()).and_then(|spec| spec.claim_ref.as_ref());
        let Some((namespace, name)) = reference.and_then(|claim| Some((claim.namespace.as_deref()?, claim.name.as_deref()?))) else {
            return Ok(None);
        };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let claim = claims.get_opt(name).await.map_err(AgentError::api(format!("asking for the claim {namespace}/{name}")))?;
        Ok(claim.and_then(|claim| claim.metadata.uid))
    }
}
