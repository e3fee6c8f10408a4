//! Carries out a plan for the OSDs of one cluster: each step creates, none replaces; the status last.

use crate::{
    Context,
    controller::{Failure, Next},
    events,
    writer::Written,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim},
};
use kube::{Api, ResourceExt};
use quarry_api::CephCluster;
use quarry_core::device_set::{Observed, Plan, Step};
use serde_json::json;

pub async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
    let cluster = &observed.cluster;
    let namespace = cluster.namespace().unwrap_or_default();
    context.metrics.set_osds(&namespace, &cluster.name_any(), &plan.counts);
    let mut refused = None;
    for step in &plan.steps {
        // One OSD that the API server refuses stops no other.
        match apply_step(context, observed, step).await {
            Err(failure) if failure.refusal().is_some() => {
                tracing::warn!(
                    cluster = cluster.name_any(),
                    step = step.name(),
                    error = failure.refusal(),
                    "refused"
                );
                refused.get_or_insert(failure);
            }
            done => done?,
        }
    }
    if let Some(status) = &plan.status {
        let api: Api<CephCluster> = Api::namespaced(context.client.clone(), &namespace);
        let version = cluster.resource_version().unwrap_or_default();
        let conditions = |status: serde_json::Value| json!({"conditions": status});
        let old = conditions(json!(cluster.status.clone().unwrap_or_default().conditions));
        let new = conditions(json!(status.conditions));
        let name = cluster.name_any();
        let written = context.writer.patch_status(&api, &name, &version, &old, &new).await;
        written.map_err(|error| {
            Failure::api(format!("reporting on CephCluster {namespace}/{name}"), error)
        })?;
    }
    events::publish(context, cluster, &plan.events).await;
    match refused {
        Some(failure) => Err(failure),
        None => Ok(plan.requeue.into()),
    }
}

async fn apply_step(context: &Context, observed: &Observed, step: &Step) -> Result<(), Failure> {
    let namespace = observed.cluster.namespace().unwrap_or_default();
    let client = || context.client.clone();
    match step {
        Step::CreateClaim(claim) => {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(client(), &namespace);
            create(context, &api, claim.as_ref()).await
        }
        Step::CreateJob(job) => {
            let api: Api<Job> = Api::namespaced(client(), &namespace);
            create(context, &api, job.as_ref()).await
        }
        Step::CreateDeployment(deployment) => {
            let api: Api<Deployment> = Api::namespaced(client(), &namespace);
            create(context, &api, deployment.as_ref()).await
        }
        Step::ApplyConfig(map) | Step::RecordResult(map) => {
            let api: Api<ConfigMap> = Api::namespaced(client(), &namespace);
            let known = observed.results.iter().chain(&observed.config);
            let known = known.into_iter().find(|one| one.name_any() == map.name_any());
            match known {
                None => create(context, &api, map.as_ref()).await,
                Some(known) => {
                    let version = known.resource_version().unwrap_or_default();
                    let changes = json!({"data": map.data});
                    let done = context.writer.patch(&api, &map.name_any(), &version, changes).await;
                    done.map(drop).map_err(|error| {
                        Failure::api(
                            format!("updating ConfigMap {namespace}/{}", map.name_any()),
                            error,
                        )
                    })
                }
            }
        }
        Step::DeleteJob { name, uid } => {
            let api: Api<Job> = Api::namespaced(client(), &namespace);
            // With its pods: they hold the devices.
            let done = context.writer.delete_with_dependents(&api, name, uid).await;
            done.map_err(|error| Failure::api(format!("deleting Job {namespace}/{name}"), error))?;
            tracing::info!(job = name, "deleted prepare Job");
            Ok(())
        }
    }
}

async fn create<K>(context: &Context, api: &Api<K>, object: &K) -> Result<(), Failure>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let (kind, name) = (K::kind(&()), object.name_any());
    let made = context.writer.create(api, object).await;
    match made.map_err(|error| Failure::api(format!("creating {kind} {name}"), error))? {
        Written::Changed(_) => tracing::info!(kind = %kind, name, "created"),
        // Of an earlier attempt: the next look decides whether it is the right one.
        Written::Unchanged => {}
    }
    Ok(())
}
