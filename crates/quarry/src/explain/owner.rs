//! `quarry explain set/NAME` and `localvolume/NAME`: what it requests, every device of every node, and what to do.

use super::{NAME, add_events, add_remedies, mark};
use crate::{
    cli::{ConnectArgs, ExplainArgs},
    connect::Cluster,
    output, sanitize, snapshot,
};
use anyhow::anyhow;
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use quarry_api::local_volume_discovery::OperatorCondition;
use quarry_core::{
    device_claim::{
        Demand,
        world::{demand_of_local_volume, demand_of_set},
    },
    volume::explain::Verdict,
};
use quarry_view::{
    Snapshot, events,
    explain::{
        OwnerExplanation,
        owner::{NodeExplanation, explain},
    },
    sets::{OwnerRef, missing, summaries},
    text::size,
};

pub async fn run(
    connect: &ConnectArgs,
    args: &ExplainArgs,
    owner: &OwnerRef,
) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let snapshot = snapshot::read(&cluster, args.operator_namespace()).await?;
    let now = Timestamp::now();
    let found = find(&cluster, &snapshot, args, owner).await?;
    let (demand, events) = found.ok_or_else(|| anyhow!("{}", missing(&snapshot, owner)))?;
    let Some(summary) = summaries(&snapshot, vec![demand], now).pop() else { return Ok(()) };
    let explanation = explain(&snapshot, &summary, &events);
    output::print(&render(&explanation, now, output::colors()))
}

/// The demand of the owner and its Events; `None` when it does not exist.
async fn find(
    cluster: &Cluster,
    snapshot: &Snapshot,
    args: &ExplainArgs,
    owner: &OwnerRef,
) -> anyhow::Result<Option<(Demand, Vec<Event>)>> {
    let here = |meta: &ObjectMeta| {
        meta.name.as_deref() == Some(owner.name())
            && meta.namespace.as_deref() == Some(args.operator_namespace())
    };
    match owner {
        OwnerRef::Set(_) => match snapshot.sets.iter().find(|set| here(&set.metadata)) {
            Some(set) => {
                let events = events::read(cluster, set.as_ref()).await?;
                Ok(Some((demand_of_set(snapshot, set), events)))
            }
            None => Ok(None),
        },
        OwnerRef::LocalVolume(_) => {
            match snapshot.local_volumes.iter().find(|volume| here(&volume.metadata)) {
                Some(volume) => {
                    let events = events::read(cluster, volume.as_ref()).await?;
                    Ok(Some((demand_of_local_volume(snapshot, volume), events)))
                }
                None => Ok(None),
            }
        }
    }
}

fn render(explanation: &OwnerExplanation, now: Timestamp, colors: bool) -> String {
    let mut text = output::Lines::default();
    let status = explanation.status.as_deref().unwrap_or("not seen by the operator yet");
    let terminating = if explanation.terminating { ", being deleted" } else { "" };
    let age = output::age(explanation.created.as_ref(), now);
    let (owner, provisioned) = (&explanation.owner, explanation.provisioned);
    text.add(&sanitize::line(&format!(
        "{owner}: {status} ({provisioned} provisioned, age {age}{terminating})"
    )));
    for field in &explanation.selection {
        text.add(&sanitize::line(&format!("  {:<9} {}", field.name, field.text)));
    }
    for class in &explanation.classes {
        text.add(&sanitize::line(&format!("  {:<9} {}", "class", class.text)));
    }
    for node in &explanation.nodes {
        text.add("");
        add_node(&mut text, node, colors);
    }
    text.add("");
    explanation.conditions.iter().for_each(|condition| text.add(&condition_line(condition)));
    if explanation.remedies.is_empty() {
        text.add("Nothing blocks it.");
    } else {
        text.add("What to do:");
    }
    add_remedies(&mut text, &explanation.remedies, NAME);
    text.add("");
    add_events(&mut text, &explanation.events, now);
    text.into_text()
}

fn add_node(text: &mut output::Lines, node: &NodeExplanation, colors: bool) {
    let NodeExplanation { node: name, matched, provisioned, waiting, note, devices } = node;
    text.add(&sanitize::line(&format!(
        "Node {name}: {matched} matched, {provisioned} provisioned, {waiting} waiting"
    )));
    if let Some(note) = note {
        text.add(&format!("  {} {}", mark(Verdict::Problem, colors), sanitize::line(note)));
    }
    let names = devices.iter().map(|device| device.device.chars().count()).max();
    let words = devices.iter().map(|device| device.status.as_str().len()).max();
    let (names, words) = (names.unwrap_or_default(), words.unwrap_or_default());
    for device in devices {
        let size = device.size.map_or_else(|| "-".to_owned(), size);
        let (name, word, why) = (&device.device, device.status.as_str(), &device.why);
        let line = format!("{name:<names$} {size:>8}  {word:<words$}  {why}");
        let mark = mark(device.verdict, colors);
        text.add(&format!("  {mark} {}", sanitize::line(line.trim_end())));
        for detail in &device.details {
            text.add(&sanitize::line(&format!("      {detail}")));
        }
    }
}

fn condition_line(condition: &OperatorCondition) -> String {
    let reason = condition.reason.as_ref().map_or_else(String::new, |one| format!(" ({one})"));
    let message = condition.message.as_ref().map_or_else(String::new, |one| format!(" {one}"));
    let line = format!("{}: {}{reason}{message}", condition.kind, condition.status);
    sanitize::line(line.trim_end()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolume;
    use kube::ResourceExt;
    use quarry_core::{device_claim::world::demands, source::Source};
    use quarry_view::explain::device::claim_texts;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    /// A node with a bound PV, one being wiped, an available disk, one with data, a system disk.
    fn snapshot() -> Snapshot {
        let claim = |number: u32, job: Value| {
            json!({"identity": format!("wwn:{number}"), "owner": {"kind": "LocalVolumeSet", "namespace": "quarry-system", "name": "fast", "uid": "u1"}, "storageClassName": "fast",
                "volumeMode": "Block", "size": 10_737_418_240_i64, "link": format!("/mnt/local-storage/fast/wwn-{number}"), "round": 1, "job": job,
                "lastPV": {"uid": format!("pv{number}"), "pvcUID": "c"}})
        };
        let disk = |name: &str, number: u32, state: &str, reasons: Value| json!({"name": name, "type": "disk", "size": 10_737_418_240_i64, "identity": format!("wwn:{number}"), "settled": true, "state": state, "reasons": reasons});
        let claimed = json!([{"reason": "Claimed", "detail": "LocalVolumeSet quarry-system/fast"}]);
        let pv = |number: u32, deleting: bool| {
            let name = quarry_api::names::local_pv("n1", &format!("wwn:{number}"));
            let mut pv = json!({"metadata": {"name": name, "uid": format!("pv{number}"), "resourceVersion": "1", "finalizers": ["quarry.dev/pv-protection"],
                    "annotations": {"quarry.dev/device-identity": format!("wwn:{number}"), "quarry.dev/device-claim-round": "1"}},
                "spec": {"local": {"path": format!("/mnt/local-storage/fast/wwn-{number}")}, "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
                    "claimRef": {"namespace": "shop", "name": "db", "uid": "c"}}, "status": {"phase": if deleting { "Released" } else { "Bound" }}});
            if deleting {
                pv["metadata"]["deletionTimestamp"] = "2026-01-01T00:09:00Z".into();
            }
            of::<PersistentVolume>(pv)
        };
        let inventory = json!({"metadata": {"name": "n1"}, "spec": {"machineID": "m", "deviceClaims": [claim(1, Value::Null), claim(2, json!({"name": "wipe-1", "attempt": 1}))]},
        "status": {"machineID": "m", "devices": [
            disk("sda", 9, "NotAvailable", json!([{"reason": "Mounted", "detail": "/"}, {"reason": "Signature", "detail": "ext4"}])),
            disk("sdb", 1, "NotAvailable", claimed.clone()), disk("sdc", 2, "NotAvailable", claimed), disk("sdd", 3, "Available", json!([])),
            disk("sde", 4, "NotAvailable", json!([{"reason": "Signature", "detail": "xfs"}])),
            {"name": "sr0", "type": "rom", "size": 1024, "state": "NotAvailable", "reasons": [{"reason": "NoMedium"}]},
        ]}});
        let job = json!({"metadata": {"name": "wipe-1"}, "spec": {"action": "Wipe", "nodeName": "n1", "owner": {"kind": "LocalVolumeSet", "name": "fast", "uid": "u1"}, "device": {},
            "precondition": {"nodeUID": "n", "specHash": "h"}, "attempt": 1}, "status": {"phase": "Running", "progress": 40, "message": "zeroing sdc"}});
        let node = json!({"metadata": {"name": "n1", "uid": "n", "labels": {"kubernetes.io/hostname": "n1"}}});
        let condition = json!({"type": "Available", "status": "True", "reason": "Provisioned", "message": "1 provisioned on 1 nodes"});
        let set = json!({"metadata": {"name": "fast", "namespace": "quarry-system", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["storage.openshift.com/local-volume-protection"]}, "spec": {"storageClassName": "fast"}, "status": {"conditions": [condition]}});
        let mut snapshot = Snapshot::new("quarry-system");
        snapshot.nodes.insert("n1".into(), Arc::new(of(node)));
        snapshot.add_inventory(of(inventory));
        for pv in [pv(1, false), pv(2, true)] {
            snapshot.pvs.insert(pv.name_any(), Arc::new(pv));
        }
        snapshot.jobs.insert("wipe-1".into(), Arc::new(of(job)));
        snapshot.sets.push(Arc::new(of(set)));
        snapshot
    }

    fn devices(snapshot: &mut Snapshot) -> &mut Vec<quarry_api::node_inventory::Device> {
        let inventory = snapshot.inventories_mut().get_mut("n1").unwrap();
        &mut Arc::make_mut(inventory).status.as_mut().unwrap().devices
    }

    fn text(snapshot: &Snapshot) -> String {
        let summary = summaries(snapshot, demands(snapshot), now()).remove(0);
        let event = of(
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:01Z"}, "involvedObject": {}, "type": "Warning", "reason": "DevicesNeedAttention", "message": "x"}),
        );
        render(&explain(snapshot, &summary, &[event]), now(), false)
    }

    #[test]
    fn a_set_is_explained_with_every_device_and_remedy() {
        insta::assert_snapshot!(text(&snapshot()));
    }

    #[test]
    fn erasing_a_device_in_use_is_never_a_remedy() {
        let mut used = snapshot();
        devices(&mut used).retain(|device| device.name == "sda");
        let explained = text(&used);
        assert!(explained.contains("Mounted") && !explained.contains("wipefs"), "{explained}");
        assert!(text(&snapshot()).contains("wipefs"), "sde is not in use");
    }

    #[test]
    fn a_set_that_no_operator_has_seen_says_so() {
        let mut new = snapshot();
        Arc::make_mut(&mut new.sets[0]).metadata.finalizers = None;
        assert!(text(&new).contains("check that the operator runs"));
        let mut elsewhere = snapshot();
        elsewhere.nodes.clear();
        elsewhere.inventories_mut().clear();
        assert!(text(&elsewhere).contains("no node is selected"));
    }

    #[test]
    fn escape_sequences_of_a_device_are_printed_escaped() {
        let mut hostile = snapshot();
        devices(&mut hostile)[4].reasons[0].detail = "\u{1b}[2J\u{202e}".into();
        let text = text(&hostile);
        assert!(!text.contains(['\u{1b}', '\u{202e}']) && text.contains("\\u{1b}[2J"), "{text:?}");
    }

    #[test]
    fn a_device_claim_is_one_line() {
        let snapshot = snapshot();
        let inventory = snapshot.inventory("n1").unwrap();
        let devices = quarry_view::devices::of_inventory(&inventory);
        let claim = claim_texts(&snapshot, &inventory, &devices[2], now()).concat();
        let start = "of LocalVolumeSet quarry-system/fast, Wiping: zeroing sdc, 40 %; PersistentVolume local-pv-";
        assert!(claim.starts_with(start), "{claim}");
        assert!(claim.ends_with("; link /mnt/local-storage/fast/wwn-2; NodeJob wipe-1"), "{claim}");
    }
}
