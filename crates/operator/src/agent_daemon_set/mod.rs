//! The AgentDaemonSet controller: creates, keeps and removes the agents' DaemonSet, and replaces outdated agents one
//! by one while idle. Decided in `quarry_core::agent_daemon_set`.

use crate::{
    Context,
    controller::{Controller, Failure, Group, Need, Next},
    device_claim_owner::{OwnsDeviceClaims, demand_differs},
    events,
    registry::group,
    trigger::{Change, Triggers},
    writer::Written,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, ObjectReference, Pod},
};
use kube::{Api, api::ListParams};
use quarry_api::{
    LocalVolume, LocalVolumeDiscovery, LocalVolumeSet, NodeInventory, NodeJob, admission::own_node,
    names,
};
use quarry_core::{
    agent_daemon_set::{
        self, AgentRequester, DaemonSetObserved, DaemonSetPlan, DaemonSetStep, Observed, Plan,
        check::{Violation, check},
        confinement::{Gap, InstalledPolicy, NOT_CONFINED, not_confined},
        name_taken,
    },
    device_claim::{Demand, world::demands},
    discovery,
    event::PendingEvent,
};

pub struct AgentDaemonSetController;

/// There is one DaemonSet: one key.
const KEY: &str = names::AGENT_DAEMON_SET;

impl Controller for AgentDaemonSetController {
    const NAME: &'static str = "agentdaemonset";
    const GROUP: Group = group::AGENT_DAEMON_SET;
    const NEEDS: &'static [Need] = &[];
    const INITIAL_KEYS: &'static [&'static str] = &[KEY];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers
            .read::<Node>()
            .read::<NodeJob>()
            .also_on::<LocalVolumeSet>(|change, _, enqueue| owner(change, enqueue))
            .also_on::<LocalVolume>(|change, _, enqueue| owner(change, enqueue))
            // The one in force deploys the agents itself: two that do it at once would only conflict.
            .also_on::<LocalVolumeDiscovery>(|change, _, enqueue| {
                let deleting =
                    |one: &LocalVolumeDiscovery| one.metadata.deletion_timestamp.is_some();
                if change.after.is_none_or(deleting) {
                    enqueue(KEY.to_owned());
                }
            })
            .on::<NodeInventory>(|change, _, enqueue| {
                let has_claims =
                    |inventory: &NodeInventory| !inventory.spec.device_claims.is_empty();
                let claims = |inventory: Option<&NodeInventory>| inventory.is_some_and(has_claims);
                if claims(change.before) != claims(change.after) {
                    enqueue(KEY.to_owned());
                }
            });
    }

    async fn observe(context: &Context, _key: &str) -> Result<Option<Observed>, Failure> {
        let daemon_set = observe_daemon_set(context).await?;
        let pods = if daemon_set.is_some() { list_agents(context).await? } else { Vec::new() };
        Ok(Some(Observed { daemon_set, pods }))
    }

    fn plan(observed: &Observed, _now: Timestamp) -> Plan {
        agent_daemon_set::plan(observed)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        check(observed, plan)
    }

    async fn apply(context: &Context, _observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        if let Some(daemon_set) = &plan.daemon_set {
            apply_daemon_set(context, daemon_set).await?;
        }
        if let Some(pod) = &plan.replace {
            let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.namespace);
            let deleted = context.writer.delete(&api, &pod.name, &pod.uid, None).await;
            deleted
                .map_err(|error| Failure::api(format!("replacing agent {}", pod.name), error))?;
            tracing::info!(pod = pod.name, "deleted outdated agent");
        }
        Ok(Next::Requeue(plan.requeue))
    }
}

/// `None` where agents are started by other means.
pub async fn observe_daemon_set(context: &Context) -> Result<Option<DaemonSetObserved>, Failure> {
    let Some(settings) = context.agent_daemon_set.clone() else { return Ok(None) };
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let found = api.get_opt(names::AGENT_DAEMON_SET).await;
    let found = found.map_err(|error| Failure::api("reading the agents' DaemonSet", error))?;
    let installed = observe_policy(context).await?;
    let caches = context.caches.as_ref();
    Ok(Some(DaemonSetObserved {
        settings,
        volumes: context.is_on(group::VOLUME),
        requesters: observe_requesters(context),
        nodes: caches.all(),
        inventories: caches.all(),
        jobs: caches.all(),
        found,
        installed,
    }))
}

/// The requests of the objects whose controllers are on.
fn observe_requesters(context: &Context) -> Vec<AgentRequester> {
    let caches = context.caches.as_ref();
    let discovery = context.is_on(group::DISCOVERY).then(|| {
        let all = caches.all::<LocalVolumeDiscovery>();
        discovery::agent_requester_in_force(&all, &context.namespace)
    });
    let owners = if context.is_on(group::DEVICE_CLAIMS) { demands(caches) } else { Vec::new() };
    let owners = owners.iter().filter_map(Demand::agent_requester);
    discovery.flatten().into_iter().chain(owners).collect()
}

/// Read live, not cached: it decides whether agents may be started now.
async fn observe_policy(context: &Context) -> Result<InstalledPolicy, Failure> {
    let failed = |error| Failure::api("reading the admission policy on agents", error);
    let (policies, bindings) = (Api::all(context.client.clone()), Api::all(context.client.clone()));
    Ok(InstalledPolicy {
        policy: policies.get_opt(own_node::NAME).await.map_err(failed)?,
        binding: bindings.get_opt(own_node::NAME).await.map_err(failed)?,
    })
}

pub async fn apply_daemon_set(context: &Context, plan: &DaemonSetPlan) -> Result<(), Failure> {
    if plan.gaps().is_none() {
        context.is_unpublished(NOT_CONFINED, "", "");
    }
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let failed = |error| Failure::api("the agents' DaemonSet", error);
    let name = names::AGENT_DAEMON_SET;
    match &plan.step {
        DaemonSetStep::Nothing => Ok(()),
        DaemonSetStep::Create(wanted) => {
            if let Written::Changed(_) =
                context.writer.create(&api, wanted).await.map_err(failed)?
            {
                tracing::info!(name, "created DaemonSet");
            }
            Ok(())
        }
        DaemonSetStep::Update { resource_version, changes } => {
            let changes = changes.as_ref().clone();
            context.writer.patch(&api, name, resource_version, changes).await.map_err(failed)?;
            tracing::info!(name, "updated DaemonSet");
            Ok(())
        }
        DaemonSetStep::Delete { uid, resource_version } => {
            let deleted = context.writer.delete(&api, name, uid, Some(resource_version)).await;
            deleted.map_err(failed)?;
            tracing::info!(name, "deleted DaemonSet: nothing needs agents");
            Ok(())
        }
        DaemonSetStep::LeaveAlone => {
            tracing::warn!("skipped the agents: {}", name_taken(&context.namespace));
            Ok(())
        }
        DaemonSetStep::AwaitDeletion => {
            Err(Failure::stale("the agents' DaemonSet is being deleted"))
        }
        DaemonSetStep::Withhold(gaps) => {
            report_withheld(context, gaps).await;
            Ok(())
        }
    }
}

/// Once per cause: in the log, and as an Event on the operator's Deployment.
async fn report_withheld(context: &Context, gaps: &[Gap]) {
    let message = not_confined(&context.namespace, gaps);
    if !context.is_unpublished(NOT_CONFINED, "", &message) {
        return;
    }
    tracing::error!(reason = NOT_CONFINED, "skipped the agents: {message}");
    let deployment = context.agent_daemon_set.as_ref().and_then(|one| one.deployment.clone());
    if let Some((name, uid)) = deployment {
        let subject = ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(name),
            namespace: Some(context.namespace.clone()),
            uid: Some(uid),
            ..ObjectReference::default()
        };
        let event = PendingEvent { warning: true, reason: NOT_CONFINED, message };
        events::publish_on(context, subject, &[event]).await;
    }
}

async fn list_agents(context: &Context) -> Result<Vec<Pod>, Failure> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.namespace);
    let selector = format!("app.kubernetes.io/name={}", names::AGENT_DAEMON_SET);
    let pods = api.list(&ListParams::default().labels(&selector)).await;
    Ok(pods.map_err(|error| Failure::api("listing the agents' pods", error))?.items)
}

/// An owner of device claims came, went, or demands something else.
fn owner<K: OwnsDeviceClaims>(change: &Change<'_, K>, enqueue: &mut dyn FnMut(String)) {
    if demand_differs(change) {
        enqueue(KEY.to_owned());
    }
}
