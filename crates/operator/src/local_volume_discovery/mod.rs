//! The LocalVolumeDiscovery controller: deploys agents, then reports how discovery stands. Decided in
//! `quarry_core::discovery`; the results are `local_volume_discovery_result/`.

use crate::{
    Context, agent_daemon_set,
    cache::{Cached, Caches, namespaced_key},
    controller::{Controller, Failure, Group, Need, Next},
    events,
    node_inventory::node_differs,
    registry::group,
    trigger::Triggers,
    writer::Written,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, ObjectReference},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource, ResourceExt};
use quarry_api::{LocalVolumeDiscovery, NodeInventory, names};
use quarry_core::{
    discovery::{self, NodeObservation, Observed, Plan, Report, Violation},
    presence::{is_renewal, presence},
};
use serde_json::json;

/// Of all namespaces: an object outside the operator's own gets a condition that says so.
impl Cached for LocalVolumeDiscovery {
    fn key(metadata: &ObjectMeta) -> String {
        namespaced_key(metadata)
    }
}

pub struct LocalVolumeDiscoveryController;

impl Controller for LocalVolumeDiscoveryController {
    const NAME: &'static str = "localvolumediscovery";
    const GROUP: Group = group::DISCOVERY;
    const NEEDS: &'static [Need] = &[Need {
        crd: "localvolumediscoveries.local.storage.openshift.io",
        fields: &[
            "spec.nodeSelector.nodeSelectorTerms",
            "spec.tolerations",
            "status.phase",
            "status.conditions",
            "status.observedGeneration",
        ],
    }];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers
            .on::<LocalVolumeDiscovery>(|change, caches, enqueue| {
                let same = |one: &LocalVolumeDiscovery| {
                    (one.uid(), one.spec.clone(), one.metadata.deletion_timestamp.is_some())
                };
                if change.differs(same) {
                    // Another one may be in force now.
                    enqueue_all(caches, enqueue);
                } else {
                    enqueue(LocalVolumeDiscovery::key(&change.object().metadata));
                }
            })
            .on::<Node>(|change, caches, enqueue| {
                if node_differs(change) {
                    enqueue_all(caches, enqueue);
                }
            })
            .on::<Lease>(|change, caches, enqueue| {
                if !is_renewal(change.before, change.after) {
                    enqueue_all(caches, enqueue);
                }
            })
            .on::<NodeInventory>(|change, caches, enqueue| {
                let reported = |inventory: &NodeInventory| {
                    let status = inventory.status.as_ref();
                    status.map(|status| (status.node_uid.clone(), status.problems.clone()))
                };
                if change.before.and_then(reported) != change.after.and_then(reported) {
                    enqueue_all(caches, enqueue);
                }
            });
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Observed>, Failure> {
        let (caches, now) = (&context.caches, context.now());
        let Some(found) = caches.get::<LocalVolumeDiscovery>(key) else { return Ok(None) };
        let daemon_set = if context.is_on(group::AGENT_DAEMON_SET) {
            agent_daemon_set::observe_daemon_set(context).await?
        } else {
            None
        };
        let nodes = caches.all::<Node>().into_iter().map(|node| {
            let name = node.name_any();
            let agent = presence(caches.get(&names::agent_lease(&name)).as_deref(), now);
            NodeObservation::new(node, agent, caches.get::<NodeInventory>(&name).as_deref())
        });
        Ok(Some(Observed {
            discovery: (*found).clone(),
            namespace: context.namespace.clone(),
            discoveries: caches.all(),
            nodes: nodes.collect(),
            daemon_set,
        }))
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        discovery::plan(observed, now)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        discovery::check(observed, plan)
    }

    async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        // The agents first: the API server's answer is part of the status.
        let report = deploy_agents(context, observed, plan).await?;
        let found = &observed.discovery;
        if let Some(status) = &report.status {
            let (name, namespace) = (found.name_any(), found.namespace().unwrap_or_default());
            let api: Api<LocalVolumeDiscovery> =
                Api::namespaced(context.client.clone(), &namespace);
            let old = found.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
            let version = found.resource_version().unwrap_or_default();
            let written =
                context.writer.patch_status(&api, &name, &version, &old, &json!(status)).await;
            let attempt = format!("writing the status of LocalVolumeDiscovery {namespace}/{name}");
            match written.map_err(|error| Failure::api(attempt, error))? {
                Written::Changed(_) => {
                    let phase = status.phase.map_or("", |phase| phase.as_str());
                    tracing::info!(discovery = name, phase, "updated status");
                }
                Written::Unchanged => {}
            }
        }
        events::publish(context, found, &report.events).await;
        Ok(report.requeue.into())
    }

    fn subject(observed: &Observed) -> Option<ObjectReference> {
        Some(observed.discovery.object_ref(&()))
    }

    fn waiting_since(context: &Context, key: &str) -> Option<Timestamp> {
        let found = context.caches.get::<LocalVolumeDiscovery>(key)?;
        found.creation_timestamp().map(|time| time.0)
    }
}

fn enqueue_all(caches: &Caches, enqueue: &mut dyn FnMut(String)) {
    for discovery in caches.all::<LocalVolumeDiscovery>() {
        enqueue(LocalVolumeDiscovery::key(&discovery.metadata));
    }
}

/// What is reported, by how it went.
async fn deploy_agents(
    context: &Context,
    observed: &Observed,
    plan: Plan,
) -> Result<Report, Failure> {
    let Some(daemon_set) = &plan.daemon_set else { return Ok(plan.report) };
    let Err(failure) = agent_daemon_set::apply_daemon_set(context, daemon_set).await else {
        return Ok(plan.report);
    };
    match failure.refusal().zip(plan.refused) {
        Some((answer, refused)) => {
            tracing::warn!(answer, "failed to apply the agents' DaemonSet");
            Ok(discovery::report_refusal(observed, &refused, answer, context.now()))
        }
        None => Err(failure),
    }
}
