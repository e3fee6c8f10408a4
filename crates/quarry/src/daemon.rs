//! `quarry operator` and `quarry agent`: the services of a cluster, started and stopped.

use crate::{
    cli::{AgentArgs, ConnectArgs, OperatorArgs},
    connect::Cluster,
    data_dir, ironic, signals,
};
use anyhow::{Context, bail};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::Api;
use quarry_core::agent_daemon_set::DaemonSetSettings;
use quarry_node::AgentOptions;
use quarry_operator::{OperatorOptions, Registry, bare_metal_host::HostOptions, group};
use tokio::net::TcpListener;

/// The Deployment of `deploy/operator.yaml`: agents are removed together with it.
const DEPLOYMENT: &str = "quarry-operator";
/// Finished jobs are kept this long for people who look into a failure.
pub const JOB_RETENTION: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// `registry`: the controllers to choose from.
pub async fn operator(
    connect: &ConnectArgs,
    args: OperatorArgs,
    registry: Registry,
) -> anyhow::Result<()> {
    quarry_node::keep_memory_small();
    let cluster = Cluster::connect(connect).await?;
    let listener = TcpListener::bind(args.metrics_listen).await.with_context(|| {
        format!(
            "listening on {} for metrics and health; choose another address with --metrics-listen",
            args.metrics_listen
        )
    })?;
    let agent_daemon_set = wanted_agents(&cluster, &args).await?;
    let identity = args.identity.clone().unwrap_or_else(crate::host_name);
    let hosts = args.hosts.options()?;
    let options = OperatorOptions {
        namespace: args.namespace.clone(),
        registry: select(registry.select(&args.controllers), args.device_sets, hosts.as_ref()),
        election_identity: (!args.no_leader_election).then_some(identity),
        agent_daemon_set,
        job_retention: JOB_RETENTION,
        hosts,
        check_crds: true,
    };
    let stop = signals::stop_on_signal()?;
    tracing::info!(
        version = crate::version::VERSION,
        namespace = args.namespace,
        "started operator"
    );
    quarry_operator::run(cluster.client, options, Some(listener), stop).await?;
    tracing::info!("stopped operator");
    Ok(())
}

/// What needs more than the operator's own rights is off unless it is asked for.
fn select(registry: Registry, device_sets: bool, hosts: Option<&HostOptions>) -> Registry {
    let registry = ironic::select(registry, hosts);
    if device_sets {
        return registry;
    }
    if registry.has(group::DEVICE_SETS) {
        tracing::info!("skipped the controller of device sets: --device-sets is not set");
    }
    registry.without(group::DEVICE_SETS)
}

pub async fn agent(connect: &ConnectArgs, args: AgentArgs) -> anyhow::Result<()> {
    if !data_dir::is_root() {
        bail!(
            "the agent needs root: it attaches loop devices and formats them; run it with sudo, or let the operator deploy it as a pod"
        );
    }
    let cluster = Cluster::connect(connect).await?;
    let mut options = AgentOptions::new(args.node_name);
    options.namespace = args.namespace;
    options.host_root = args.host_root;
    options.data_dir = args.data_dir;
    options.progress_after = std::time::Duration::from_millis(args.progress_after);
    options.rescan_interval = args.rescan_interval;
    options.settling_time = args.settling_time;
    let stop = signals::stop_on_signal()?;
    tracing::info!(
        version = crate::version::VERSION,
        node = options.node_name,
        "started quarry-agent"
    );
    quarry_node::run(cluster.client, options, stop).await?;
    Ok(())
}

async fn wanted_agents(
    cluster: &Cluster,
    args: &OperatorArgs,
) -> anyhow::Result<Option<DaemonSetSettings>> {
    if !args.controllers.iter().any(|name| name == group::AGENT_DAEMON_SET) {
        return Ok(None);
    }
    let Some(image) = agent_image(cluster, args).await? else {
        tracing::warn!(
            "no agent is deployed: name its image with --agent-image or QUARRY_IMAGE (or run agents yourself: --controllers without agentdaemonset)"
        );
        return Ok(None);
    };
    let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), &args.namespace);
    let found = cluster
        .call("reading the operator's Deployment", crate::volume::optional(api.get(DEPLOYMENT)))
        .await?;
    let deployment = found.and_then(|found| Some((DEPLOYMENT.to_owned(), found.metadata.uid?)));
    Ok(Some(DaemonSetSettings {
        namespace: args.namespace.clone(),
        image,
        image_pull_policy: "IfNotPresent".into(),
        data_dir: args.agent_data_dir.display().to_string(),
        rescan_interval: args.agent_rescan_interval.try_into()?,
        settling_time: args.agent_settling_time.try_into()?,
        deployment,
    }))
}

/// The image that was asked for, else that of the operator's own pod: the two are never of different versions by mistake.
async fn agent_image(cluster: &Cluster, args: &OperatorArgs) -> anyhow::Result<Option<String>> {
    if let Some(image) = args.agent_image.clone().filter(|image| !image.is_empty()) {
        return Ok(Some(image));
    }
    let Ok(own) = std::env::var("POD_NAME") else { return Ok(None) };
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &args.namespace);
    let pod = cluster
        .call("reading the operator's own pod", crate::volume::optional(api.get(&own)))
        .await?;
    Ok(pod
        .and_then(|pod| pod.spec)
        .and_then(|spec| spec.containers.into_iter().next())
        .and_then(|container| container.image))
}
