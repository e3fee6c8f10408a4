//! `quarry up`: the embedded API, the operator and the agent in one process, until a signal.
//!
//! Decides nothing about storage; the parts are those of a cluster, wired in process. Starts in the order
//! store, port, objects, parts; stops in reverse order, so that the agent can release its Lease.
//! Next to read: `supervisor.rs` (what runs), `objects.rs` (what exists from the start), `demo.rs`.

mod demo;
mod disks;
mod objects;
mod supervisor;
mod text;

use crate::{cli::UpArgs, connect::Cluster, data_dir, output, signals};
use anyhow::{Context, bail};
use quarry_api::admission;
use quarry_apiserver::{Kubeconfig, Options, Server, ServingIdentity, load_or_create_token};
use quarry_operator::bare_metal_host::HostOptions;
use std::{io, net::SocketAddr, path::PathBuf, time::Instant};
use supervisor::Supervisor;
use tokio::net::TcpListener;

/// Everything that is opened before the first part runs.
pub struct Standalone {
    pub dir: PathBuf,
    pub url: String,
    pub kubeconfig: PathBuf,
    pub server: Server,
    pub cluster: Cluster,
    pub node: String,
    /// Without root nothing can be attached or formatted: there is no agent.
    pub agent: bool,
    /// Whether real disks of this machine may be used, not only observed.
    pub real_disks: bool,
    /// Where BareMetalHosts are driven.
    pub hosts: Option<HostOptions>,
}

pub async fn run(args: &UpArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let stop = signals::stop_on_signal()?;
    let (standalone, endpoint) = open(args).await?;
    let mut supervisor = Supervisor::start(&standalone, endpoint);
    let shown = async {
        supervisor::ready(&standalone).await?;
        output::print(&text::ready(
            &standalone,
            started.elapsed(),
            args.demo,
            objects::has_class(&standalone.cluster).await?,
        ))?;
        if args.demo
            && let Err(error) = demo::run(&standalone).await
        {
            // Everything else runs, and can be inspected.
            output::note(&format!("the demo failed: {}", output::error_text(&error)));
        }
        std::future::pending().await
    };
    let outcome: anyhow::Result<()> = tokio::select! {
        () = stop.cancelled() => Ok(()),
        failed = supervisor.failed() => Err(failed),
        failed = shown => failed,
    };
    let stopped = supervisor.stop().await;
    standalone.server.close();
    if outcome.is_ok() && stopped.is_ok() {
        output::note(&text::stopped(&standalone));
    }
    outcome.and(stopped)
}

/// What `Server::serve` needs.
pub struct Endpoint {
    listener: TcpListener,
    identity: ServingIdentity,
    token: String,
}

async fn open(args: &UpArgs) -> anyhow::Result<(Standalone, Endpoint)> {
    refuse_outside(args.listen)?;
    let hosts = args.hosts.options()?;
    if args.allow_real_disks && data_dir::is_root() {
        supervisor::check_real_disks()?;
    }
    let dir = data_dir::prepare(args.data_dir.as_deref())?;
    // The store before the port: a second process on the same directory fails with that error.
    let mut options = Options::new(quarry_api::crds::crds());
    options.policies = admission::embedded_policies()
        .into_iter()
        .map(|policy| (policy.policy, policy.binding))
        .collect();
    let server = Server::open(&dir, options)?;
    let listener = bind(args.listen).await?;
    let address = listener.local_addr().context("reading the port of the API")?;
    let url = format!("https://{address}");
    let identity = ServingIdentity::load_or_create(&dir)?;
    let token = load_or_create_token(&dir)?;
    let kubeconfig = dir.join(data_dir::KUBECONFIG);
    Kubeconfig { server: &url, ca_pem: identity.ca_pem(), token: &token, namespace: "default" }
        .write(&kubeconfig)?;
    let cluster = Cluster::in_process(server.client("default"));
    let node = objects::ensure(&cluster, args.node_name.as_deref()).await?;
    let standalone = Standalone {
        dir,
        url,
        kubeconfig,
        server,
        cluster,
        node,
        agent: data_dir::is_root(),
        real_disks: args.allow_real_disks,
        hosts,
    };
    Ok((standalone, Endpoint { listener, identity, token }))
}

/// Before anything is written to disk.
fn refuse_outside(address: SocketAddr) -> anyhow::Result<()> {
    if !address.ip().is_loopback() {
        bail!(
            "--listen {address} is reachable from other machines, and its token gives root access to this one; use 127.0.0.1:{} (from another machine: ssh -L {0}:127.0.0.1:{0})",
            address.port()
        );
    }
    Ok(())
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "{address} is in use by another process (perhaps a Quarry with another --data-dir); stop that one, or use a free port with --listen 127.0.0.1:0"
        ),
        io::ErrorKind::PermissionDenied => anyhow::anyhow!("this user may not listen on {address}; choose a port above 1023 with --listen"),
        _ => anyhow::Error::new(error).context(format!("listening on {address}; choose another address with --listen")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_other_machines_is_refused() {
        assert!(refuse_outside("[::1]:7420".parse().unwrap()).is_ok());
        let error = refuse_outside("0.0.0.0:7420".parse().unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("ssh -L 7420:127.0.0.1:7420") && error.contains("use 127.0.0.1:7420"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_with_a_remedy() {
        let first = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let error = bind(first.local_addr().unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("is in use") && error.contains("--listen 127.0.0.1:0"), "{error}");
    }
}
