//! `quarry explain volume/NAME`: every check with its result, what blocks it, what to do, recent Events.
//!
//! The checks are `quarry_core::volume::explain`, the functions by which the operator decides; here they
//! are only gathered for and written down.

use super::{event_lines, mark};
use crate::{
    cli::{ConnectArgs, ExplainArgs},
    connect::Cluster,
    output, sanitize,
    volume::{observe, optional},
};
use anyhow::anyhow;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use quarry_api::{
    NodeInventory, Volume,
    volume::{ConditionStatus, Phase, Reason},
};
use quarry_core::volume::{
    Observed,
    explain::{Line, blocker, explain},
};

pub async fn run(connect: &ConnectArgs, args: &ExplainArgs, name: &str) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let seen = match observe::observe_volume(&cluster, name, &args.namespace).await {
        Ok(seen) => seen,
        Err(error) => return Err(device_meant(&cluster, name).await.unwrap_or(error)),
    };
    let events = observe::observe_events(&cluster, &seen.volume).await?;
    output::print(&render(&seen, &events, Timestamp::now(), output::colours()))
}

/// There is no such volume, but a node called volume: then its device may be meant.
async fn device_meant(cluster: &Cluster, name: &str) -> Option<anyhow::Error> {
    let volumes: Api<Volume> = Api::all(cluster.client.clone());
    let inventories: Api<NodeInventory> = Api::all(cluster.client.clone());
    // Whatever else goes wrong was told already.
    let missing =
        matches!(cluster.call("reading the volume", optional(volumes.get(name))).await, Ok(None));
    let node = missing
        && matches!(
            cluster.call("reading an inventory", optional(inventories.get("volume"))).await,
            Ok(Some(_))
        );
    node.then(|| anyhow!("volume {name} does not exist; `quarry volumes` lists them. A device of the node called volume is written node/volume/{name}"))
}

fn render(seen: &Observed, events: &[Event], now: Timestamp, colours: bool) -> String {
    let volume = &seen.volume;
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let phase = volume.phase().map_or("not seen by the operator yet", Phase::as_str);
    let size = volume.spec.sparse_loop_device.as_ref().map_or("-", |sparse| sparse.size.0.as_str());
    let age = output::age(volume.metadata.creation_timestamp.as_ref().map(|time| &time.0), now);
    let mut text = String::new();
    let mut say = |line: &str| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    say(&sanitize::line(&format!(
        "volume {name}: {phase} ({size} {} on node {}, class {}, age {age})",
        volume.spec.mode.as_str(),
        volume.spec.node_name,
        volume.spec.storage_class_name
    )));
    say("");
    for line in explain(seen) {
        say(&check(&line, colours));
    }
    say("");
    say(&ready(seen, now));
    match blocker(seen) {
        Some(blocker) => say(&format!("Blocked by: {}", sanitize::line(&blocker))),
        None if volume.phase() == Some(Phase::Available) => say("Nothing blocks it."),
        None => say("Nothing blocks it: it goes on by itself."),
    }
    if let Some(remedy) = remedy(seen, name) {
        say(&format!("Do: {}", sanitize::line(&remedy)));
    }
    say("");
    event_lines(events, now).iter().for_each(|line| say(line));
    text
}

fn check(line: &Line, colours: bool) -> String {
    format!("  {} {:<7} {}", mark(line.verdict, colours), line.check, sanitize::line(&line.text))
}

fn ready(seen: &Observed, now: Timestamp) -> String {
    let Some(ready) = seen.volume.ready() else { return "Ready: no condition yet".into() };
    let status = match ready.status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    let reason = ready.reason.map_or_else(String::new, |reason| format!(" ({})", reason.as_str()));
    let since = ready
        .last_transition_time
        .as_ref()
        .map_or_else(String::new, |time| format!(" for {}", output::age(Some(&time.0), now)));
    format!("Ready: {status}{reason}{since}")
}

/// The one command that helps, where there is one and the blocker does not name it.
fn remedy(seen: &Observed, name: &str) -> Option<String> {
    if seen.volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let reason = seen.volume.ready().and_then(|ready| ready.reason);
    match (seen.volume.phase(), reason) {
        (Some(Phase::Failed), Some(Reason::CreationError)) if seen.job.is_some() => Some(format!("mend the cause, then: quarry volume retry {name}")),
        (Some(Phase::Failed), Some(Reason::InternalError)) => {
            Some(format!("the spec cannot be mended in place: quarry volume delete {name}, then create it anew"))
        }
        (None, _) => Some("check that the operator runs: kubectl -n quarry-system get pods (standalone: quarry up)".into()),
        (Some(Phase::Available | Phase::Pending | Phase::Failed | Phase::Terminating), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_core::presence::Presence;
    use serde_json::{Value, json};

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn observed(status: Value) -> Observed {
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
            inventory_changed: None,
            other_pv: None,
        }
    }

    fn event(at: &str, reason: &str, message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": "e", "creationTimestamp": at}, "involvedObject": {"kind": "Volume", "name": "v1"},
            "type": "Normal", "reason": reason, "message": message,
        }))
        .unwrap()
    }

    #[test]
    fn an_absent_agent_is_what_blocks() {
        let mut seen = observed(json!({"phase": "Pending", "conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "Pending", "lastTransitionTime": "2026-01-01T00:00:01Z",
            "message": "the agent on node n1 has been absent since 2025-12-31T23:00:00Z; check that the node is up and that its quarry-agent pod runs",
        }]}));
        seen.agent = Presence::Absent { since: "2025-12-31T23:00:00Z".parse().unwrap() };
        let events = [event(
            "2026-01-01T00:00:01Z",
            "StateTransition",
            "phase changed from none to Pending",
        )];
        insta::assert_snapshot!(render(&seen, &events, now(), false));
    }

    #[test]
    fn an_available_volume_is_told_in_full() {
        let mut seen = observed(
            json!({"phase": "Available", "deviceName": "loop3", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"}]}),
        );
        seen.pv = serde_json::from_value(json!({
            "metadata": {"name": "v1", "ownerReferences": [{"apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "name": "v1", "uid": "u1", "controller": true}]},
            "status": {"phase": "Available"},
        }))
        .unwrap();
        seen.device = serde_json::from_value(
            json!({"name": "loop3", "type": "loop", "size": 1, "state": "NotAvailable", "volumeUID": "u1", "backingFile": "/var/lib/quarry/volumes/u1", "link": "/dev/disk/by-uuid/u1"}),
        )
        .unwrap();
        insta::assert_snapshot!(render(&seen, &[], now(), false));
    }

    #[test]
    fn a_hostile_message_is_shown_and_not_obeyed() {
        let seen = observed(
            json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", "reason": "CreationError", "message": "bad \u{1b}]0;title\u{7} name"}]}),
        );
        let text =
            render(&seen, &[event("2026-01-01T00:00:00Z", "X\u{1b}[2J", "a\nb")], now(), false);
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}]0;title"), "{text}");
        assert!(text.contains("a\\nb"));
    }
}
