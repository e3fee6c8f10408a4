//! `quarry explain volume/NAME`: every check with its result, what blocks it, what to do, recent Events.

use super::{add_events, mark};
use crate::{
    cli::{ConnectArgs, ExplainArgs},
    connect::Cluster,
    output, sanitize, volume,
};
use anyhow::anyhow;
use jiff::Timestamp;
use kube::Api;
use quarry_api::{NodeInventory, Volume};
use quarry_core::volume::observed::observed;
use quarry_view::{
    Snapshot, events,
    explain::{VolumeExplanation, volume::explain},
    optional,
};

pub async fn run(connect: &ConnectArgs, args: &ExplainArgs, name: &str) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let volume = match volume::get(&cluster, name).await {
        Ok(volume) => volume,
        Err(error) => return Err(device_meant(&cluster, name).await.unwrap_or(error)),
    };
    let snapshot = Snapshot::of_volume(&cluster, &volume, args.operator_namespace()).await?;
    let now = Timestamp::now();
    let observed = observed(&snapshot, &volume, now);
    let events = events::read(&cluster, &volume).await?;
    output::print(&render(&explain(&observed, &events), now, output::colors()))
}

/// There is no such volume, but a node named `volume`: then its device may be meant.
async fn device_meant(cluster: &Cluster, name: &str) -> Option<anyhow::Error> {
    let volumes: Api<Volume> = Api::all(cluster.client.clone());
    let inventories: Api<NodeInventory> = Api::all(cluster.client.clone());
    // Every other error was reported by the first request.
    let missing =
        matches!(cluster.call("reading the volume", optional(volumes.get(name))).await, Ok(None));
    let node = missing
        && matches!(
            cluster.call("reading a NodeInventory", optional(inventories.get("volume"))).await,
            Ok(Some(_))
        );
    node.then(|| anyhow!("volume {name} does not exist; run `quarry volumes` to list them, or write node/volume/{name} for a device of the node named volume"))
}

fn render(explanation: &VolumeExplanation, now: Timestamp, colors: bool) -> String {
    let mut text = output::Lines::default();
    let VolumeExplanation { name, mode, node, class, .. } = explanation;
    let phase = explanation.phase.unwrap_or("not seen by the operator yet");
    let size = explanation.size.as_deref().unwrap_or("-");
    let age = output::age(explanation.created.as_ref(), now);
    text.add(&sanitize::line(&format!(
        "volume {name}: {phase} ({size} {mode} on node {node}, class {class}, age {age})"
    )));
    text.add("");
    for line in &explanation.checks {
        let mark = mark(line.verdict, colors);
        text.add(&format!("  {mark} {:<7} {}", line.check, sanitize::line(&line.text)));
    }
    text.add("");
    text.add(&ready_line(explanation, now));
    match &explanation.blocked_by {
        Some(blocker) => text.add(&format!("Blocked by: {}", sanitize::line(blocker))),
        None if explanation.is_available() => text.add("Nothing blocks it."),
        None => text.add("Nothing blocks it: it continues without intervention."),
    }
    if let Some(remedy) = &explanation.remedy {
        text.add(&format!("What to do: {}", sanitize::line(remedy)));
    }
    text.add("");
    add_events(&mut text, &explanation.events, now);
    text.into_text()
}

fn ready_line(explanation: &VolumeExplanation, now: Timestamp) -> String {
    let Some(ready) = &explanation.ready else { return "Ready: no condition yet".into() };
    let reason = ready.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let since = ready.since.as_ref();
    let since =
        since.map_or_else(String::new, |time| format!(" for {}", output::age(Some(time), now)));
    format!("Ready: {}{reason}{since}", ready.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Event;
    use quarry_core::{presence::Presence, volume::Observed};
    use serde_json::{Value, json};

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn volume(status: Value) -> Observed {
        let volume = serde_json::from_value(json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume",
            "metadata": {"name": "v1", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n1", "storageClassName": "fast", "sparseLoopDevice": {"size": "1Gi"}}, "status": status,
        }));
        Observed {
            volume: volume.unwrap(),
            pv: None,
            class: serde_json::from_value(json!({"metadata": {"name": "fast"}, "provisioner": "kubernetes.io/no-provisioner", "parameters": {"fsType": "xfs"}, "volumeBindingMode": "WaitForFirstConsumer"})).unwrap(),
            node: serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "n"}})).unwrap(),
            agent: Presence::Present { until: Timestamp::MAX },
            job: None,
            device: None,
            rival_device: None,
            inventory_changed: None,
            other_ledger: None,
            restored: true,
            other_pv: None,
        }
    }

    fn text(observed: &Observed, events: &[Event]) -> String {
        render(&explain(observed, events), now(), false)
    }

    fn event(at: &str, reason: &str, message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": "e", "creationTimestamp": at}, "involvedObject": {"kind": "Volume", "name": "v1"},
            "type": "Normal", "reason": reason, "message": message,
        }))
        .unwrap()
    }

    #[test]
    fn an_absent_agent_blocks_a_volume() {
        let mut observed = volume(json!({"phase": "Pending", "conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "Pending", "lastTransitionTime": "2026-01-01T00:00:01Z",
            "message": "the agent on node n1 has been absent since 2025-12-31T23:00:00Z; check that the node is up and that its quarry-agent pod runs",
        }]}));
        observed.agent = Presence::Absent { since: "2025-12-31T23:00:00Z".parse().unwrap() };
        let events = [event(
            "2026-01-01T00:00:01Z",
            "StateTransition",
            "phase changed from none to Pending",
        )];
        insta::assert_snapshot!(text(&observed, &events));
    }

    #[test]
    fn an_available_volume_passes_every_check() {
        let mut observed = volume(
            json!({"phase": "Available", "deviceName": "loop3", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"}]}),
        );
        observed.pv = serde_json::from_value(json!({
            "metadata": {"name": "v1", "ownerReferences": [{"apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "name": "v1", "uid": "u1", "controller": true}]},
            "status": {"phase": "Available"},
        }))
        .unwrap();
        observed.device = serde_json::from_value(
            json!({"name": "loop3", "type": "loop", "size": 1, "state": "NotAvailable", "volumeUID": "u1", "backingFile": "/var/lib/quarry/volumes/u1", "link": "/dev/disk/by-uuid/u1"}),
        )
        .unwrap();
        insta::assert_snapshot!(text(&observed, &[]));
    }

    #[test]
    fn escape_sequences_of_a_message_are_printed_escaped() {
        let observed = volume(
            json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", "reason": "CreationError", "message": "bad \u{1b}]0;title\u{7} name"}]}),
        );
        let text = text(&observed, &[event("2026-01-01T00:00:00Z", "X\u{1b}[2J", "a\nb")]);
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}]0;title"), "{text}");
        assert!(text.contains("a\\nb"));
    }
}
