//! Many hosts, without faults: how long until all are available, how many Ironic works on at a time, and what it costs
//! to watch them at rest. The operator is the real one, its loop included; time is virtual.

use super::{settings, story};
use crate::{
    admin_client::AdminClient,
    clock::Clock,
    ironic::{SimIronic, proxy::Direct},
    kind::Kind,
    lock,
};
use http::Method;
use quarry_api::{admission, crds, names};
use quarry_apiserver::{Options, Server};
use quarry_ironic::Client;
use quarry_operator::{
    OperatorOptions, Registry,
    bare_metal_host::{HostOptions, Ironic},
    driver, group,
};
use serde_json::{Value, json};
use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspected {
    /// That became available, each with its HardwareData.
    pub available: usize,
    pub hardware_data: usize,
    /// Nodes that Ironic worked on at the same time, at most.
    pub busiest: usize,
    /// Hosts that were seen to wait for their turn.
    pub delayed: usize,
    /// Virtual time until the last was available.
    pub took: Duration,
    /// Until then.
    pub writes: u64,
    pub requests: u64,
    /// In the hour after that.
    pub writes_at_rest: u64,
    pub requests_at_rest: u64,
}

const LIMIT: Duration = Duration::from_secs(4 * 60 * 60);
const REST: Duration = Duration::from_secs(60 * 60);

/// Registers them all at once.
pub fn inspect_everything(hosts: usize) -> Result<Inspected, Box<dyn Error>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let clock = Clock::start();
        let policies = admission::embedded_policies()
            .into_iter()
            .map(|policy| (policy.policy, policy.binding))
            .collect();
        let crds = crds::crds();
        let server = Server::in_memory(Options {
            policies,
            clock: clock.as_function(),
            ..Options::new(crds)
        });
        let ironic = Arc::new(Mutex::new(SimIronic::new(clock.as_function(), story::RIGHT)));
        let client = Client::with_transport(Arc::new(Direct(ironic.clone())));
        let options = OperatorOptions {
            namespace: names::DEFAULT_NAMESPACE.to_owned(),
            registry: Registry::standard().select(&[group::HOSTS]),
            election_identity: None,
            agent_daemon_set: None,
            job_retention: crate::operator::JOB_RETENTION,
            hosts: Some(HostOptions::new(Ironic::fixed(client), settings())),
            check_crds: false,
        };
        let stop = CancellationToken::new();
        let operator = tokio::spawn(driver::run_at(
            server.client(names::DEFAULT_NAMESPACE),
            options,
            None,
            stop.clone(),
            clock.as_function(),
        ));
        let played = play(&server, &ironic, hosts).await;
        stop.cancel();
        operator.await??;
        played
    })
}

async fn play(
    server: &Server,
    ironic: &Mutex<SimIronic>,
    hosts: usize,
) -> Result<Inspected, Box<dyn Error>> {
    let raw = AdminClient::new(server.service());
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::DEFAULT_NAMESPACE},
    });
    raw.create("/api/v1/namespaces", &namespace).await?;
    for number in 1..=hosts {
        let name = format!("h{number:04}");
        raw.create(Kind::Secret.path(), &story::secret(&name, story::RIGHT)).await?;
        raw.create(Kind::Host.path(), &story::host(&name, number)).await?;
    }
    let begun = Instant::now();
    let mut result = Inspected::default();
    let mut delayed = std::collections::BTreeSet::new();
    loop {
        let all = list(&raw, Kind::Host).await?;
        let is = |host: &&Value, field: &str, value: &str| {
            let status = &host["status"];
            status[field] == value || status["provisioning"][field] == value
        };
        let waits = all.iter().filter(|host| is(host, "operationalStatus", "delayed"));
        delayed.extend(waits.map(|host| host["metadata"]["name"].to_string()));
        result.available = all.iter().filter(|host| is(host, "state", "available")).count();
        if let Some(unknown) = lock(ironic).unknown.first() {
            return Err(unknown.clone().into());
        }
        result.busiest = lock(ironic).busiest;
        if result.available == hosts {
            break;
        }
        if begun.elapsed() > LIMIT {
            return Err(format!("{} of {hosts} are available", result.available).into());
        }
        sleep(Duration::from_secs(20)).await;
    }
    // The last reports are written.
    sleep(Duration::from_secs(120)).await;
    result.took = begun.elapsed();
    result.delayed = delayed.len();
    result.hardware_data = list(&raw, Kind::HardwareData).await?.len();
    (result.writes, result.requests) = (writes(server), requests(ironic));
    sleep(REST).await;
    result.writes_at_rest = writes(server) - result.writes;
    result.requests_at_rest = requests(ironic) - result.requests;
    Ok(result)
}

async fn list(raw: &AdminClient, kind: Kind) -> Result<Vec<Value>, Box<dyn Error>> {
    let list = raw.call(Method::GET, kind.path(), None).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn writes(server: &Server) -> u64 {
    server.write_counts().into_values().sum()
}

fn requests(ironic: &Mutex<SimIronic>) -> u64 {
    let ironic = lock(ironic);
    let lists = ironic.counts.get("list").copied().unwrap_or_default();
    ironic.counts.values().sum::<u64>() - lists
}
