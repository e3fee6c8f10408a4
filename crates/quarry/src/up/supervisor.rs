//! The parts of a standalone Quarry: started together, watched, stopped in order.

use super::{Endpoint, Standalone};
use crate::{daemon::JOB_RETENTION, ironic};
use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, runtime::wait::await_condition};
use quarry_api::{NodeInventory, names};
use quarry_node::{AgentOptions, HostRoot, lock::Lock};
use quarry_operator::{OperatorOptions, Registry, group};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longer than the agent needs to let a running job end.
const STOP_LIMIT: Duration = Duration::from_secs(15);
const READY_LIMIT: Duration = Duration::from_secs(20);
const HOST_ROOT: &str = "/";

pub struct Supervisor {
    workers: JoinSet<anyhow::Result<()>>,
    endpoint: JoinSet<anyhow::Result<()>>,
    stop_workers: CancellationToken,
    stop_endpoint: CancellationToken,
}

impl Supervisor {
    pub fn start(standalone: &Standalone, endpoint: Endpoint) -> Self {
        let (stop_workers, stop_endpoint) = (CancellationToken::new(), CancellationToken::new());
        let mut serving = JoinSet::new();
        let (server, closed) = (standalone.server.clone(), stop_endpoint.clone());
        serving.spawn(async move {
            server
                .serve(
                    endpoint.listener,
                    endpoint.identity,
                    endpoint.token,
                    closed.cancelled_owned(),
                )
                .await
                .context("serving the API")
        });
        let mut workers = JoinSet::new();
        let operator = quarry_operator::run(
            standalone.server.client("default"),
            operator_options(standalone),
            None,
            stop_workers.clone(),
        );
        workers.spawn(async move { operator.await.context("running the operator") });
        if standalone.agent {
            let real_disks = standalone.real_disks;
            let agent = quarry_node::run(
                standalone.server.client("default"),
                agent_options(standalone),
                stop_workers.clone(),
            );
            workers
                .spawn(async move { agent.await.map_err(|error| agent_error(error, real_disks)) });
        }
        Supervisor { workers, endpoint: serving, stop_workers, stop_endpoint }
    }

    /// Waits until a part ends without being stopped: none should.
    pub async fn failed(&mut self) -> anyhow::Error {
        let ended = tokio::select! {
            Some(ended) = self.workers.join_next() => ended,
            Some(ended) = self.endpoint.join_next() => ended,
            else => return anyhow!("no part runs"),
        };
        match ended {
            Ok(Ok(())) => {
                anyhow!("a part of Quarry ended unexpectedly; set RUST_LOG=info to see which")
            }
            Ok(Err(error)) => error,
            Err(panic) => anyhow::Error::new(panic).context("a part of Quarry broke"),
        }
    }

    /// Operator and agent first: they still write.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop_workers.cancel();
        let ended = tokio::time::timeout(STOP_LIMIT, async {
            while self.workers.join_next().await.is_some() {}
        })
        .await;
        self.stop_endpoint.cancel();
        while self.endpoint.join_next().await.is_some() {}
        if ended.is_err() {
            bail!(
                "not everything ended within {} s; nothing is lost, the next start continues",
                STOP_LIMIT.as_secs()
            );
        }
        Ok(())
    }
}

/// The usual cause: a cluster's agent on the same machine.
fn agent_error(error: quarry_node::agent::AgentError, real_disks: bool) -> anyhow::Error {
    use quarry_node::{NodeError, agent::AgentError};
    let remedy = match &error {
        // Never another directory: it would have its own device claims on the same disks.
        AgentError::NodeOps { source: NodeError::RealDisksLocked { .. }, .. } => {
            "the disks of this machine have another user; stop it (an agent of a cluster is a pod of the DaemonSet quarry-agent), or start without --allow-real-disks"
        }
        AgentError::NodeOps { source: NodeError::Locked { .. }, .. } if real_disks => {
            "this data directory is in use; stop the agent that uses it (an agent of a cluster is a pod of the DaemonSet quarry-agent, with /var/lib/quarry)"
        }
        AgentError::NodeOps { source: NodeError::Locked { .. }, .. } => {
            "this data directory is in use; stop the agent that uses it (a cluster's agent uses /var/lib/quarry), or choose another directory with --data-dir: real disks are only observed"
        }
        _ => "running the agent",
    };
    anyhow::Error::new(error).context(remedy)
}

/// Before store and port, whose errors recommend another directory and another port. The agent takes the lock itself.
pub fn check_real_disks() -> anyhow::Result<()> {
    let attempt = "checking the disks of this machine".to_owned();
    let taken = HostRoot::view(HOST_ROOT).and_then(|host| Lock::take_real_disks(&host));
    taken.map(drop).map_err(|source| {
        agent_error(quarry_node::agent::AgentError::NodeOps { attempt, source }, true)
    })
}

fn operator_options(standalone: &Standalone) -> OperatorOptions {
    let hosts = standalone.hosts.clone();
    OperatorOptions {
        namespace: names::DEFAULT_NAMESPACE.into(),
        // The agent runs in this process.
        registry: ironic::select(
            // There are no pods here, of agents or of OSDs.
            Registry::standard().without(group::AGENT_DAEMON_SET).without(group::DEVICE_SETS),
            hosts.as_ref(),
        ),
        hosts,
        election_identity: None,
        agent_daemon_set: None,
        job_retention: JOB_RETENTION,
        check_crds: false,
    }
}

fn agent_options(standalone: &Standalone) -> AgentOptions {
    let mut options = AgentOptions::new(&standalone.node);
    options.namespace = names::DEFAULT_NAMESPACE.into();
    options.host_root = HOST_ROOT.into();
    options.data_dir = standalone.dir.clone();
    // A trial on a user's own machine must not touch that user's disks.
    options.observe_only = !standalone.real_disks;
    options
}

/// Ready: the operator has made the node's inventory, and the agent shows that it is there.
pub async fn ready(standalone: &Standalone) -> anyhow::Result<()> {
    let client = || standalone.cluster.client.clone();
    let both = async {
        await_condition(
            Api::<NodeInventory>::all(client()),
            &standalone.node,
            |found: Option<&NodeInventory>| found.is_some(),
        )
        .await?;
        if standalone.agent {
            let me = agent_options(standalone).identity;
            let held = move |lease: Option<&Lease>| {
                lease
                    .and_then(|lease| lease.spec.as_ref())
                    .is_some_and(|spec| spec.holder_identity.as_deref() == Some(me.as_str()))
            };
            await_condition(
                Api::<Lease>::namespaced(client(), names::DEFAULT_NAMESPACE),
                &names::agent_lease(&standalone.node),
                held,
            )
            .await?;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(READY_LIMIT, both).await {
        Ok(done) => done.context("waiting for the parts"),
        Err(_) => bail!(
            "Quarry was not ready within {} s; start it with RUST_LOG=info to see what it waits for",
            READY_LIMIT.as_secs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_node::{NodeError, agent::AgentError};

    #[test]
    fn no_other_directory_is_recommended_for_real_disks() {
        let text = |source: NodeError, real_disks: bool| {
            let attempt = "starting the agent".to_owned();
            format!("{:#}", agent_error(AgentError::NodeOps { attempt, source }, real_disks))
        };
        let (holder, lock) = ("PID 7, data directory /var/lib/quarry", "/run/quarry/real-disks");
        let disks = || NodeError::RealDisksLocked { holder: holder.into(), lock: lock.into() };
        let directory = || NodeError::Locked { holder: "PID 7".into(), lock: "/d/lock".into() };
        let refused = text(disks(), true);
        assert!(refused.contains("start without --allow-real-disks"), "{refused}");
        assert!(refused.contains("PID 7, data directory /var/lib/quarry"), "{refused}");
        assert!(!refused.contains("--data-dir"), "{refused}");
        assert!(!text(directory(), true).contains("--data-dir"));
        assert!(text(directory(), false).contains("--data-dir"));
    }
}
