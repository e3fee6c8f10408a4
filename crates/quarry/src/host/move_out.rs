//! `quarry host move-out`: pauses hosts and saves their status in an annotation, so that `clusterctl move` takes it along.
//!
//! `clusterctl` moves no status, and a host without one would be registered and inspected as a new one. The hardware is
//! left out: it is in the HardwareData, which is moved as well, and would not fit. Repeating it changes nothing.

use super::{Changed, StoredHost, annotate, get, namespace, select};
use crate::{
    cli::{ConnectArgs, MoveOutArgs},
    connect::Cluster,
    output,
};
use anyhow::{anyhow, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt};
use quarry_api::names;
use quarry_core::bare_metal_host::is_stable;
use quarry_view::hosts::actions::{Action, refusal};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A host that did not change for so long after its pause is at rest: what the operator had begun was refused by the
/// resourceVersion of the pause, or has ended.
const QUIET: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(400);
/// What the API server accepts for all annotations of an object.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// The value of the annotation; any has the same effect.
const PAUSED_BY: &str = "quarry.dev/move-out";

pub async fn run(connect: &ConnectArgs, args: &MoveOutArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let place = namespace(&cluster, args.which.namespace.as_deref()).to_owned();
    let chosen = select(&cluster, &place, &args.which).await?;
    super::move_in::check(chosen.iter().filter_map(|one| refusal(&one.host, Action::MoveOut)))?;
    check_labels(&cluster).await;
    let deadline = Instant::now() + args.timeout;
    let mut paused = Vec::new();
    for host in chosen {
        paused.push(pause(&cluster, host, deadline).await?);
    }
    let count = paused.len();
    for host in wait_until_quiet(&cluster, paused, deadline).await? {
        let text = save(&cluster, host, deadline).await?;
        output::print(&text)?;
    }
    let hosts = if count == 1 { "1 host".to_owned() } else { format!("{count} hosts") };
    output::print(&format!(
        "{hosts} of namespace {place} can be moved to a cluster whose operator uses the same Ironic. Next:\n  \
         1. clusterctl move -n {place} --to-kubeconfig TARGET\n  \
         2. quarry host move-in --all -n {place} --kubeconfig TARGET\n\
         To stay in this cluster: quarry host move-in --all -n {place}"
    ))
}

/// Sets the annotation, again and again while others change the host.
async fn pause(
    cluster: &Cluster,
    mut host: StoredHost,
    deadline: Instant,
) -> anyhow::Result<StoredHost> {
    loop {
        if let Some(why) = refusal(&host.host, Action::MoveOut) {
            bail!("{why}");
        }
        if host.annotation(names::PAUSED_ANNOTATION).is_some() {
            return Ok(host);
        }
        match annotate(cluster, &host, json!({names::PAUSED_ANNOTATION: PAUSED_BY})).await {
            Err(error) if error.is::<Changed>() && Instant::now() < deadline => {}
            written => return written,
        }
        host = again(cluster, &host).await?;
    }
}

async fn again(cluster: &Cluster, host: &StoredHost) -> anyhow::Result<StoredHost> {
    get(cluster, &host.object.namespace().unwrap_or_default(), &host.object.name_any()).await
}

/// As they are when none has changed for a while.
async fn wait_until_quiet(
    cluster: &Cluster,
    mut hosts: Vec<StoredHost>,
    deadline: Instant,
) -> anyhow::Result<Vec<StoredHost>> {
    let mut since = Instant::now();
    while since.elapsed() < QUIET {
        sleep(POLL).await;
        let mut fresh = Vec::new();
        for host in &hosts {
            fresh.push(again(cluster, host).await?);
        }
        let changed = hosts.iter().zip(&fresh).find(|(before, after)| {
            before.object.metadata.resource_version != after.object.metadata.resource_version
        });
        if let Some((host, _)) = changed {
            if Instant::now() > deadline {
                bail!(
                    "host {} is paused and still changes; check which client writes it (`kubectl get bmh {0} -o yaml --show-managed-fields`), then run the command again",
                    host.object.name_any()
                );
            }
            since = Instant::now();
        }
        hosts = fresh;
    }
    Ok(hosts)
}

/// Writes the status annotation; the line to print.
async fn save(
    cluster: &Cluster,
    mut host: StoredHost,
    deadline: Instant,
) -> anyhow::Result<String> {
    let name = host.object.name_any();
    loop {
        let state = host.host.state();
        let Some(status) = saved_status(&host.object.data) else {
            return Ok(match host.annotation(names::STATUS_ANNOTATION) {
                Some(_) => format!("host {name}: paused, with the status that was saved before"),
                None => {
                    format!("host {name}: paused; it has no status yet, and starts as a new one")
                }
            });
        };
        let others: usize = host
            .object
            .annotations()
            .iter()
            .filter(|(key, _)| *key != names::STATUS_ANNOTATION)
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if others + names::STATUS_ANNOTATION.len() + status.len() > ANNOTATIONS_LIMIT {
            return Err(anyhow!(
                "the status of host {name} takes {} bytes and does not fit into an annotation; remove other annotations, or shorten status.conditions",
                status.len()
            ));
        }
        let note = if is_stable(&state) {
            String::new()
        } else {
            "; Ironic goes on with it, and the operator of the other cluster takes it up".to_owned()
        };
        let done = format!("host {name}: paused, status saved ({state}{note})");
        if host.annotation(names::STATUS_ANNOTATION) == Some(status.as_str()) {
            return Ok(done);
        }
        match annotate(cluster, &host, json!({names::STATUS_ANNOTATION: status})).await {
            Err(error) if error.is::<Changed>() && Instant::now() < deadline => {
                host = again(cluster, &host).await?;
            }
            written => return written.map(|_| done),
        }
    }
}

/// The status as stored, without the hardware, and with fields that this version does not know. `None` before an operator
/// has written it: then an older annotation is what is known.
fn saved_status(data: &Value) -> Option<String> {
    let mut status = data.get("status")?.as_object()?.clone();
    status.get("lastUpdated").filter(|time| !time.is_null())?;
    status.remove("hardware");
    Some(Value::Object(status).to_string())
}

/// Without these labels `clusterctl move` succeeds and moves nothing.
async fn check_labels(cluster: &Cluster) {
    let both = [names::CLUSTERCTL_LABEL, names::CLUSTERCTL_MOVE_LABEL];
    let kinds = [
        (
            "baremetalhosts.metal3.io",
            vec![both[0], both[1], names::CLUSTERCTL_MOVE_HIERARCHY_LABEL],
        ),
        ("hardwaredata.metal3.io", both.to_vec()),
    ];
    for (kind, labels) in kinds {
        let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
        match cluster.call("reading CustomResourceDefinitions", api.get_metadata(kind)).await {
            Ok(found) => {
                let missing: Vec<&str> = labels
                    .into_iter()
                    .filter(|label| !found.labels().contains_key(*label))
                    .collect();
                if !missing.is_empty() {
                    output::note(&format!(
                        "warning: CustomResourceDefinition {kind} lacks the labels {}: clusterctl would move nothing of it",
                        missing.join(", ")
                    ));
                    output::hint("run `quarry crds apply` (with --take-over for those of metal3)");
                }
            }
            // Not every user may read them, and the embedded API does not serve them.
            Err(error) => tracing::debug!(error = output::error_text(&error), "skipped labels"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_status_has_no_hardware_and_all_other_fields() {
        let data = json!({"spec": {}, "status": {
            "lastUpdated": "2026-01-01T00:00:00Z", "hardware": {"storage": []},
            "provisioning": {"state": "available"}, "fieldOfTomorrow": {"a": 1},
        }});
        let saved: Value = serde_json::from_str(&saved_status(&data).unwrap()).unwrap();
        assert_eq!(
            saved,
            json!({"lastUpdated": "2026-01-01T00:00:00Z", "provisioning": {"state": "available"}, "fieldOfTomorrow": {"a": 1}})
        );
        for none in [json!({}), json!({"status": {}}), json!({"status": {"lastUpdated": null}})] {
            assert_eq!(saved_status(&none), None, "an older annotation is not overwritten");
        }
    }
}
