//! The lease by which the operator knows that this agent is there.

use super::{Agent, AgentError};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use quarry_api::names;
use serde_json::json;

const DURATION_SECONDS: i32 = 40;

impl<H> Agent<H> {
    /// Renews the lease, or takes it; `last` is what the previous call returned and saves a read.
    pub async fn renew_lease(&self, last: Option<Lease>) -> Result<Lease, AgentError> {
        let name = names::agent_lease(&self.options.node_name);
        let attempt = || format!("renewing the lease {name}");
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.options.namespace);
        let current = match last {
            Some(lease) => Some(lease),
            None => leases.get_opt(&name).await.map_err(AgentError::api(attempt()))?,
        };
        let now = MicroTime(self.options.clock.now());
        let Some(current) = current else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    namespace: Some(self.options.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(self.options.identity.clone()),
                    lease_duration_seconds: Some(DURATION_SECONDS),
                    acquire_time: Some(now.clone()),
                    renew_time: Some(now),
                    ..LeaseSpec::default()
                }),
            };
            return leases
                .create(&PostParams::default(), &lease)
                .await
                .map_err(AgentError::api(attempt()));
        };
        let mut spec = json!({"holderIdentity": self.options.identity, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now});
        let held = current.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if held != Some(self.options.identity.as_str()) {
            // The lock file on the node decides who is the agent; another holder of the lease is a former one.
            spec["acquireTime"] = json!(now);
            spec["leaseTransitions"] = json!(
                current.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0) + 1
            );
        }
        self.patch_lease(&leases, &current, spec).await.map_err(AgentError::api(attempt()))
    }

    /// Releases it, so that it need not expire.
    pub async fn release_lease(&self) -> Result<(), AgentError> {
        let name = names::agent_lease(&self.options.node_name);
        let attempt = || format!("giving back the lease {name}");
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.options.namespace);
        let Some(current) = leases.get_opt(&name).await.map_err(AgentError::api(attempt()))? else {
            return Ok(());
        };
        let held = current.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if held != Some(self.options.identity.as_str()) {
            return Ok(());
        }
        let spec = json!({"holderIdentity": "", "renewTime": MicroTime(self.options.clock.now())});
        self.patch_lease(&leases, &current, spec)
            .await
            .map(drop)
            .map_err(AgentError::api(attempt()))
    }

    async fn patch_lease(
        &self,
        leases: &Api<Lease>,
        current: &Lease,
        spec: serde_json::Value,
    ) -> kube::Result<Lease> {
        let name = current.metadata.name.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {"resourceVersion": current.metadata.resource_version}, "spec": spec});
        leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
    }
}
