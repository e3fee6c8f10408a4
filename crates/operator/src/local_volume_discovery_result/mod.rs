//! The LocalVolumeDiscoveryResult controller: one result per covered node, in the upstream format. Decided in
//! `quarry_core::discovery::result`.

use crate::{
    Context,
    cache::Cached,
    controller::{Controller, Failure, Group, Need, Next},
    events,
    node_inventory::{inventory_devices_differ, node_differs},
    registry::group,
    trigger::Triggers,
    writer::Written,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{Api, Client, Resource, ResourceExt, core::DeserializeGuard};
use quarry_api::{LocalVolumeDiscovery, LocalVolumeDiscoveryResult, NodeInventory, names};
use quarry_core::discovery::result::{self, Observed, Plan, Step, Violation};
use serde_json::json;

impl Cached for LocalVolumeDiscoveryResult {
    fn api(client: Client, namespace: &str) -> Api<DeserializeGuard<Self>> {
        Api::namespaced(client, namespace)
    }
}

pub struct LocalVolumeDiscoveryResultController;

impl Controller for LocalVolumeDiscoveryResultController {
    const NAME: &'static str = "localvolumediscoveryresult";
    const GROUP: Group = group::DISCOVERY;
    const NEEDS: &'static [Need] = &[Need {
        crd: "localvolumediscoveryresults.local.storage.openshift.io",
        fields: &["spec.nodeName", "status.discoveredTimeStamp", "status.discoveredDevices"],
    }];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers
            .on::<LocalVolumeDiscoveryResult>(|change, _, enqueue| {
                enqueue(change.object().spec.node_name.clone());
            })
            .on::<LocalVolumeDiscovery>(|change, caches, enqueue| {
                // Another one may be in force now, for other nodes.
                if change.differs(|one| {
                    (one.uid(), one.spec.clone(), one.metadata.deletion_timestamp.is_some())
                }) {
                    caches.all::<Node>().iter().for_each(|node| enqueue(node.name_any()));
                }
            })
            .on::<Node>(|change, _, enqueue| {
                if node_differs(change) {
                    enqueue(change.object().name_any());
                }
            })
            .on::<NodeInventory>(|change, _, enqueue| {
                // The first report counts, even of no device at all.
                let first = change.before.is_none_or(|before| before.status.is_none());
                if first || inventory_devices_differ(change) {
                    enqueue(change.object().name_any());
                }
            });
    }

    async fn observe(context: &Context, node: &str) -> Result<Option<Observed>, Failure> {
        let caches = &context.caches;
        let result = caches.get::<LocalVolumeDiscoveryResult>(&names::discovery_result(node));
        Ok(Some(Observed {
            name: node.to_owned(),
            namespace: context.namespace.clone(),
            discoveries: caches.all(),
            node: caches.get(node),
            inventory: caches.get(node),
            result: result.map(|result| (*result).clone()),
        }))
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        result::plan(observed, now)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        result::check(observed, plan)
    }

    async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        match apply(context, observed, &plan).await {
            Ok(Some(result)) => events::publish(context, &result, &plan.events).await,
            Ok(None) => {}
            Err(failure) => {
                report_refusal(context, observed, &plan, &failure).await;
                return Err(failure);
            }
        }
        Ok(Next::AwaitChange)
    }

    fn subject(observed: &Observed) -> Option<ObjectReference> {
        observed.result.as_ref().map(|result| result.object_ref(&()))
    }

    fn waiting_since(context: &Context, node: &str) -> Option<Timestamp> {
        context.caches.get::<Node>(node)?.creation_timestamp().map(|time| time.0)
    }
}

/// The result as it is afterwards.
async fn apply(
    context: &Context,
    observed: &Observed,
    plan: &Plan,
) -> Result<Option<LocalVolumeDiscoveryResult>, Failure> {
    let api: Api<LocalVolumeDiscoveryResult> =
        Api::namespaced(context.client.clone(), &context.namespace);
    let (node, name) = (&observed.name, names::discovery_result(&observed.name));
    let attempt = || format!("LocalVolumeDiscoveryResult of node {node}");
    let failed = |error| Failure::api(attempt(), error);
    let mut current = observed.result.clone();
    for step in &plan.steps {
        current = match step {
            Step::Create(result) => {
                match context.writer.create(&api, result).await.map_err(failed)? {
                    Written::Changed(created) => Some(created),
                    Written::Unchanged => {
                        return Err(Failure::stale(format!("{}: it exists by now", attempt())));
                    }
                }
            }
            Step::Label { resource_version, labels } => {
                let labels = json!({"metadata": {"labels": labels}});
                let patched = context.writer.patch(&api, &name, resource_version, labels).await;
                Some(patched.map_err(failed)?)
            }
        };
        tracing::info!(node, step = step.name(), "applied");
    }
    if let (Some(status), Some(result)) = (&plan.status, &mut current) {
        // Against an empty object at first: an empty list is written, too.
        let old = result.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
        let version = result.resource_version().unwrap_or_default();
        let written =
            context.writer.patch_status(&api, &name, &version, &old, &json!(status)).await;
        if let Written::Changed(written) = written.map_err(failed)? {
            tracing::info!(node, devices = status.discovered_devices.len(), "updated result");
            *result = written;
        }
    }
    Ok(current)
}

/// The API server refuses the object itself: reported on the LocalVolumeDiscovery, where users look first.
async fn report_refusal(context: &Context, observed: &Observed, plan: &Plan, failure: &Failure) {
    let planned = plan.refused.as_ref().zip(observed.active());
    if let Some((answer, (event, discovery))) = failure.refusal().zip(planned) {
        events::publish(context, discovery, &[event.with_answer(answer)]).await;
    }
}
