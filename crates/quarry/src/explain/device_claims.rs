//! `quarry explain set/NAME` and `localvolume/NAME`: what it asks for, every device of every node with how it stands, the claims
//! with their stage, what to do, recent Events.

use super::{event_lines, mark};
use crate::{
    cli::{ConnectArgs, ExplainArgs, Owner},
    connect::Cluster,
    device_claims::{
        describe,
        observe::{Account, Held, Snapshot},
        plan::missing,
        view::{Device, Node, Shown, Tone, stage_tone},
    },
    devices::view::size,
    output, sanitize,
    volume::observe::observe_events,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use quarry_api::{
    local_volume_discovery::OperatorCondition,
    reason::{Class, Reason},
};
use quarry_core::{
    device_claim::{Eligibility, owner_text},
    volume::explain::Verdict,
};

/// What is told about a set or a LocalVolume.
struct Seen<'a> {
    account: Account,
    conditions: &'a [OperatorCondition],
    created: Option<Timestamp>,
    events: Vec<Event>,
}

pub async fn run(connect: &ConnectArgs, args: &ExplainArgs, owner: &Owner) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let snapshot = Snapshot::read(&cluster, &args.namespace).await?;
    let here = |meta: &ObjectMeta| {
        meta.name.as_deref() == Some(owner.name())
            && meta.namespace.as_deref() == Some(args.namespace.as_str())
    };
    let (demand, conditions, created, events) = match owner {
        Owner::Set(_) => {
            let set = snapshot
                .sets
                .iter()
                .find(|set| here(&set.metadata))
                .ok_or_else(|| missing(&snapshot, owner))?;
            let conditions = set.status.as_ref().map(|status| status.conditions.as_slice());
            (
                snapshot.want_of_set(set),
                conditions,
                created(set),
                observe_events(&cluster, set).await?,
            )
        }
        Owner::LocalVolume(_) => {
            let volume = snapshot
                .volumes
                .iter()
                .find(|volume| here(&volume.metadata))
                .ok_or_else(|| missing(&snapshot, owner))?;
            let conditions = volume.status.as_ref().map(|status| status.conditions.as_slice());
            (
                snapshot.want_of_volume(volume),
                conditions,
                created(volume),
                observe_events(&cluster, volume).await?,
            )
        }
    };
    let Some(account) = snapshot.accounts(vec![demand]).pop() else { return Ok(()) };
    let seen = Seen { account, conditions: conditions.unwrap_or_default(), created, events };
    output::print(&render(&snapshot, &seen, snapshot.now, output::colours()))
}

fn created<K: Resource>(object: &K) -> Option<Timestamp> {
    object.meta().creation_timestamp.as_ref().map(|time| time.0)
}

fn render(snapshot: &Snapshot, seen: &Seen<'_>, now: Timestamp, colours: bool) -> String {
    let (demand, shown) = (&seen.account.demand, Shown::new(&seen.account));
    let mut text = String::new();
    let mut say = |line: &str| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    let available = seen.conditions.iter().find(|condition| condition.kind == "Available");
    let status = available
        .and_then(|condition| condition.reason.as_deref())
        .unwrap_or("not seen by the operator yet");
    let provisioned: usize = shown.nodes.iter().map(|node| node.provisioned).sum();
    let leaving = if demand.terminating { ", being deleted" } else { "" };
    say(&sanitize::line(&format!(
        "{}: {status} ({provisioned} provisioned, age {}{leaving})",
        owner_text(&demand.owner),
        output::age(seen.created.as_ref(), now)
    )));
    for (word, sentence) in describe::selection(demand) {
        say(&sanitize::line(&format!("  {word:<9} {sentence}")));
    }
    for (class, mode) in describe::classes(demand) {
        say(&sanitize::line(&format!(
            "  {:<9} {}",
            "class",
            describe::class_sentence(class, mode, snapshot.class(class).map(AsRef::as_ref))
        )));
    }
    for node in shown.concerned() {
        say("");
        node_lines(node, colours).iter().for_each(|line| say(line));
    }
    say("");
    seen.conditions.iter().for_each(|condition| say(&condition_line(condition)));
    let remedies = remedies(snapshot, &seen.account, &shown);
    if remedies.is_empty() {
        say("Nothing blocks it.");
    } else {
        say("Do:");
        remedies.iter().for_each(|remedy| say(&sanitize::line(&format!("  {remedy}"))));
    }
    say("");
    event_lines(&seen.events, now).iter().for_each(|line| say(line));
    text
}

fn node_lines(node: &Node, colours: bool) -> Vec<String> {
    let counts = format!(
        "{} matched, {} provisioned, {} waiting",
        node.matched, node.provisioned, node.waiting
    );
    let mut lines = vec![sanitize::line(&format!("Node {}: {counts}", node.node)).into_owned()];
    lines.extend(
        node.note
            .iter()
            .map(|note| format!("  {} {}", mark(Verdict::Problem, colours), sanitize::line(note))),
    );
    let devices = node.folded();
    let width =
        devices.iter().map(|device| device.device.chars().count()).max().unwrap_or_default();
    let words = devices.iter().map(|device| device.eligibility.len()).max().unwrap_or_default();
    for device in &devices {
        let size = if device.size > 0 { size(device.size) } else { "-".to_owned() };
        let text = format!(
            "{:<width$} {size:>8}  {:<words$}  {}",
            device.device, device.eligibility, device.why
        );
        lines.push(format!(
            "  {} {}",
            mark(verdict(device.tone), colours),
            sanitize::line(text.trim_end())
        ));
        lines.extend(
            claim_lines(device)
                .iter()
                .map(|line| sanitize::line(&format!("      {line}")).into_owned()),
        );
    }
    lines
}

fn verdict(tone: Tone) -> Verdict {
    match tone {
        Tone::Good => Verdict::Ok,
        Tone::Waiting => Verdict::Waiting,
        Tone::Bad => Verdict::Problem,
        Tone::Spare | Tone::Other => Verdict::Skipped,
    }
}

/// What belongs to a claim: the path that asked for it, its PersistentVolume, its link, its job.
fn claim_lines(device: &Device) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(device.path.iter().map(|path| format!("asked for as {path}")));
    match (&device.persistent_volume, &device.link) {
        (Some(pv), Some(link)) => lines.push(format!("PersistentVolume {pv} at {link}")),
        (None, Some(link)) => lines.push(format!("no PersistentVolume; its link is {link}")),
        (_, None) => {}
    }
    if let Some(job) = &device.job {
        lines.push(format!(
            "NodeJob {job}{}",
            device.progress.map_or_else(String::new, |percent| format!(", {percent} %"))
        ));
    }
    lines
}

fn condition_line(condition: &OperatorCondition) -> String {
    let reason =
        condition.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    let message =
        condition.message.as_ref().map_or_else(String::new, |message| format!(" {message}"));
    sanitize::line(format!("{}: {}{reason}{message}", condition.kind, condition.status).trim_end())
        .into_owned()
}

/// Each advice once. What a claim's own sentence says already is not repeated.
fn remedies(snapshot: &Snapshot, account: &Account, shown: &Shown) -> Vec<String> {
    let demand = &account.demand;
    let mut found: Vec<String> = demand.problems.clone();
    let mut add = |text: String| {
        if !found.contains(&text) {
            found.push(text);
        }
    };
    if !demand.protected && !demand.terminating && demand.problems.is_empty() {
        add("it has no finalizer of the operator yet, so it takes nothing: check that the operator runs (kubectl -n quarry-system get pods; standalone: quarry up)".to_owned());
    }
    if shown.concerned().next().is_none() {
        add(
            "no node is selected: compare spec.nodeSelector with `kubectl get nodes --show-labels`"
                .to_owned(),
        );
    }
    for (class, mode) in describe::classes(demand) {
        let sentence =
            describe::class_sentence(class, mode, snapshot.class(class).map(AsRef::as_ref));
        if sentence.contains("nothing is published") || sentence.contains("cannot be wiped") {
            add(sentence);
        }
    }
    for part in &account.parts {
        for held in part.claims.iter().filter(|held| stage_tone(&held.stage) == Tone::Bad) {
            add(format!(
                "{}/{} is {}: as its line above says",
                part.node,
                held.device.as_deref().unwrap_or(&held.claim.identity),
                held.stage.as_str()
            ));
        }
        for row in &part.rows {
            match &row.eligibility {
                Eligibility::Refused(told) if told.is_empty() => {
                    add(format!("wait for the agent on node {} to judge {}", part.node, row.device))
                }
                Eligibility::Refused(told) => {
                    refusal(told.iter().filter_map(|told| told.reason.known()).collect())
                        .into_iter()
                        .for_each(&mut add)
                }
                Eligibility::Taken(owner) => add(format!(
                    "{}/{} belongs to {}: `quarry explain {}` shows its claim",
                    part.node,
                    row.device,
                    owner_text(owner),
                    describe::handle(owner)
                )),
                Eligibility::BacksPersistentVolume(pv) => add(format!(
                    "{}/{} has the PersistentVolume {pv}, which no claim made: delete it if nobody needs its data",
                    part.node, row.device
                )),
                Eligibility::NoDevice(why) => add(format!(
                    "{} on node {}: {why}; `quarry devices {} -o wide` lists the devices and their names",
                    row.device, part.node, part.node
                )),
                Eligibility::BelowMinimum { .. } => add(format!(
                    "node {} has too few devices: add some, or lower spec.minDeviceCount",
                    part.node
                )),
                Eligibility::WipeRemnant(why) => {
                    add(format!("{} of node {} {why}", row.device, part.node))
                }
                Eligibility::Frozen => {
                    add(format!("node {}: {}", part.node, row.eligibility.message()))
                }
                Eligibility::Claimed
                | Eligibility::Selected
                | Eligibility::NotMatched(_)
                | Eligibility::Waiting(_)
                | Eligibility::OverMaximum(_) => {}
            }
        }
    }
    found
}

/// How to erase what is on it is no advice for a device that somebody uses.
fn refusal(reasons: Vec<Reason>) -> Vec<String> {
    let used = reasons.iter().copied().any(super::text::is_used);
    let kept = reasons.into_iter().filter(|reason| !used || reason.class() != Class::Content);
    kept.map(|reason| format!("{:<21} {}", reason.as_str(), reason.row().remedy)).collect()
}

/// The claims of one device, for `quarry explain NODE/DEVICE`.
pub fn sentences(held: &[Held]) -> Vec<String> {
    let sentence = |held: &Held| {
        let detail = if held.stage.detail().is_empty() {
            String::new()
        } else {
            format!(": {}", held.stage.detail())
        };
        let pv = held
            .pv
            .as_ref()
            .filter(|pv| !detail.contains(pv.as_str()))
            .map_or_else(String::new, |pv| format!("; PersistentVolume {pv}"));
        let job = held
            .claim
            .job
            .as_ref()
            .map_or_else(String::new, |job| format!("; NodeJob {}", job.name));
        format!(
            "of {}, {}{detail}{pv}; link {}{job}",
            owner_text(&held.claim.owner),
            held.stage.as_str(),
            held.claim.link
        )
    };
    held.iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    /// A node with a volume in use, one being wiped, a free disk, one with data, a system disk.
    fn snapshot() -> Snapshot {
        let claim = |number: u32, job: Value| {
            json!({"identity": format!("wwn:{number}"), "owner": {"kind": "LocalVolumeSet", "namespace": "quarry-system", "name": "fast", "uid": "u1"}, "storageClassName": "fast",
                "volumeMode": "Block", "size": 10_737_418_240_i64, "link": format!("/mnt/local-storage/fast/wwn-{number}"), "round": 1, "job": job})
        };
        let disk = |name: &str, number: u32, state: &str, reasons: Value| json!({"name": name, "type": "disk", "size": 10_737_418_240_i64, "identity": format!("wwn:{number}"), "settled": true, "state": state, "reasons": reasons});
        let taken = json!([{"reason": "Claimed", "detail": "LocalVolumeSet quarry-system/fast"}]);
        let pv = |number: u32, deleting: bool| {
            let name = quarry_api::names::local_pv("n1", &format!("wwn:{number}"));
            let mut pv = json!({"metadata": {"name": name, "uid": format!("pv{number}"), "resourceVersion": "1", "finalizers": ["quarry.dev/pv-protection"],
                    "annotations": {"quarry.dev/device-identity": format!("wwn:{number}"), "quarry.dev/device-claim-round": "1"}},
                "spec": {"local": {"path": format!("/mnt/local-storage/fast/wwn-{number}")}, "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
                    "claimRef": {"namespace": "shop", "name": "db", "uid": "c"}}, "status": {"phase": if deleting { "Released" } else { "Bound" }}});
            if deleting {
                pv["metadata"]["deletionTimestamp"] = "2026-01-01T00:09:00Z".into();
            }
            Arc::new(of(pv))
        };
        let inventory = json!({"metadata": {"name": "n1"}, "spec": {"machineID": "m", "deviceClaims": [claim(1, Value::Null), claim(2, json!({"name": "wipe-1", "attempt": 1}))]},
        "status": {"machineID": "m", "devices": [
            disk("sda", 9, "NotAvailable", json!([{"reason": "Mounted", "detail": "/"}, {"reason": "Signature", "detail": "ext4"}])),
            disk("sdb", 1, "NotAvailable", taken.clone()), disk("sdc", 2, "NotAvailable", taken), disk("sdd", 3, "Available", json!([])),
            disk("sde", 4, "NotAvailable", json!([{"reason": "Signature", "detail": "xfs"}])),
            {"name": "sr0", "type": "rom", "size": 1024, "state": "NotAvailable", "reasons": [{"reason": "NoMedium"}]},
        ]}});
        let job = json!({"metadata": {"name": "wipe-1"}, "spec": {"action": "Wipe", "nodeName": "n1", "owner": {"kind": "LocalVolumeSet", "name": "fast", "uid": "u1"}, "device": {},
            "precondition": {"nodeUID": "n", "specHash": "h"}, "attempt": 1}, "status": {"phase": "Running", "progress": 40, "message": "zeroing sdc"}});
        Snapshot {
            namespace: "quarry-system".into(),
            nodes: vec![Arc::new(of(
                json!({"metadata": {"name": "n1", "uid": "n", "labels": {"kubernetes.io/hostname": "n1"}}}),
            ))],
            inventories: vec![of(inventory)],
            pvs: vec![pv(1, false), pv(2, true)],
            jobs: vec![Arc::new(of(job))],
            sets: vec![of(
                json!({"metadata": {"name": "fast", "namespace": "quarry-system", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["storage.openshift.com/local-volume-protection"]}, "spec": {"storageClassName": "fast"}}),
            )],
            now: now(),
            ..Snapshot::default()
        }
    }

    fn told(snapshot: &Snapshot) -> String {
        let account = snapshot.accounts(snapshot.demands()).remove(0);
        let conditions = [of(
            json!({"type": "Available", "status": "True", "reason": "Provisioned", "message": "1 provisioned on 1 nodes"}),
        )];
        let event = of(
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:01Z"}, "involvedObject": {}, "type": "Warning", "reason": "DevicesNeedAttention", "message": "x"}),
        );
        let seen = Seen {
            account,
            conditions: &conditions,
            created: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            events: vec![event],
        };
        render(snapshot, &seen, now(), false)
    }

    #[test]
    fn a_set_is_told_with_every_device_and_what_to_do() {
        insta::assert_snapshot!(told(&snapshot()));
    }

    #[test]
    fn nobody_is_told_to_erase_what_is_used() {
        let mut used = snapshot();
        used.inventories[0].status.as_mut().unwrap().devices.retain(|device| device.name == "sda");
        let text = told(&used);
        assert!(text.contains("Mounted") && !text.contains("wipefs"), "{text}");
        assert!(told(&snapshot()).contains("wipefs"), "sde is not used");
    }

    #[test]
    fn a_set_that_nobody_has_seen_says_so() {
        let mut fresh = snapshot();
        fresh.sets[0].metadata.finalizers = None;
        assert!(told(&fresh).contains("check that the operator runs"));
        let mut elsewhere = snapshot();
        elsewhere.nodes.clear();
        elsewhere.inventories.clear();
        assert!(told(&elsewhere).contains("no node is selected"));
    }

    #[test]
    fn a_hostile_name_is_shown_and_not_obeyed() {
        let mut hostile = snapshot();
        hostile.inventories[0].status.as_mut().unwrap().devices[4].reasons[0].detail =
            "\u{1b}[2J\u{202e}".into();
        let text = told(&hostile);
        assert!(!text.contains(['\u{1b}', '\u{202e}']) && text.contains("\\u{1b}[2J"), "{text:?}");
    }

    #[test]
    fn the_claim_of_a_device_is_one_sentence() {
        let snapshot = snapshot();
        let world = snapshot.worlds().remove(0);
        let held =
            crate::device_claims::observe::held(&world, |claim| claim.identity == "wwn:2", now());
        let said = sentences(&held).concat();
        assert!(said.starts_with("of LocalVolumeSet quarry-system/fast, Wiping: zeroing sdc, 40 %; PersistentVolume local-pv-"), "{said}");
        assert!(said.ends_with("; link /mnt/local-storage/fast/wwn-2; NodeJob wipe-1"), "{said}");
    }
}
