//! `quarry explain host/NAME`: state, last error, what it waits for, what to do, hardware, and both views of its disks.

use super::{add_events, add_remedies, mark};
use crate::{
    cli::{ConnectArgs, ExplainArgs},
    connect::Cluster,
    host, output, sanitize,
};
use anyhow::anyhow;
use jiff::Timestamp;
use quarry_core::volume::explain::Verdict;
use quarry_view::{
    events,
    hosts::{
        HostExplanation, RaidView,
        explain::{DiskLine, SeenBy, explain},
    },
    text::{Field, size},
};

pub async fn run(connect: &ConnectArgs, args: &ExplainArgs, name: &str) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let place = host::namespace(&cluster, args.namespace.as_deref());
    let found = host::get(&cluster, place, name).await?;
    let (snapshot, rival, events) = tokio::join!(
        host::read(&cluster, Some(place)),
        host::read_rival(&cluster),
        events::read(&cluster, &found.host)
    );
    let now = Timestamp::now();
    let explanation = explain(&snapshot?, place, name, rival.as_ref(), &events?)
        .ok_or_else(|| anyhow!("host {name} was deleted meanwhile"))?;
    output::print(&render(&explanation, now, output::colors()))
}

/// A machine may have a thousand disks: this many of those that both sides see are listed.
const LISTED: usize = 24;

fn render(explanation: &HostExplanation, now: Timestamp, colors: bool) -> String {
    let mut text = output::Lines::default();
    text.add(&sanitize::line(&title(explanation, now)));
    add_fields(&mut text, &explanation.details);
    text.add("");
    if let Some(error) = &explanation.error {
        let age = |time: Timestamp| output::age(Some(&time), now);
        let times =
            if error.count == 1 { "once".to_owned() } else { format!("{} times", error.count) };
        let last = error.since.map_or_else(String::new, |since| format!(", {} ago", age(since)));
        let next = match error.next_attempt {
            None => "not repeated before the host is changed".to_owned(),
            Some(next) if next <= now => "next attempt is due".to_owned(),
            Some(next) => format!("next attempt in {}", output::age(Some(&now), next)),
        };
        text.add(&sanitize::line(&format!("Last error: {}, {times}{last}, {next}", error.kind)));
        for line in error.message.lines() {
            text.add(&format!("  {}", sanitize::line(line)));
        }
    }
    for problem in &explanation.problems {
        text.add(&format!("Problem: {}", sanitize::line(problem)));
    }
    match &explanation.waits_for {
        Some(what) => text.add(&format!("Waits for: {}", sanitize::line(what))),
        None => text.add("Waits for: nothing"),
    }
    if !explanation.remedies.is_empty() {
        text.add("What to do:");
    }
    add_remedies(&mut text, &explanation.remedies, 0);
    text.add("");
    text.add("Hardware:");
    add_fields(&mut text, &explanation.hardware);
    let node = &explanation.node;
    let name = node.name.as_deref().unwrap_or("none");
    text.add(&sanitize::line(&format!("Node: {name} ({})", node.text)));
    add_disks(&mut text, explanation, colors);
    add_raid(&mut text, explanation);
    if !explanation.annotations.is_empty() {
        text.add("Annotations:");
    }
    for one in &explanation.annotations {
        text.add(&sanitize::line(&format!("  {}: {}", one.name, one.effect)));
    }
    text.add("");
    let none = explanation.conditions.is_empty();
    text.add(if none { "Conditions: none yet" } else { "Conditions:" });
    let width = explanation.conditions.iter().map(|one| one.type_.len()).max().unwrap_or_default();
    for one in &explanation.conditions {
        let age = output::age(Some(&one.last_transition_time.0), now);
        let message =
            if one.message.is_empty() { String::new() } else { format!(": {}", one.message) };
        let (kind, status, reason) = (&one.type_, &one.status, &one.reason);
        let line = format!("  {kind:<width$}  {status:<7} {reason}, for {age}{message}");
        text.add(&sanitize::line(&line));
    }
    add_events(&mut text, &explanation.events, now);
    text.into_text()
}

fn title(explanation: &HostExplanation, now: Timestamp) -> String {
    let HostExplanation { namespace, name, state, .. } = explanation;
    let mut words = Vec::new();
    words.extend(explanation.since.map(|since| format!("for {}", output::age(Some(&since), now))));
    words.extend(explanation.status.as_ref().map(|status| format!("status {status}")));
    words.push(match (explanation.powered_on, explanation.online) {
        (Some(true), true) => "powered on".to_owned(),
        (Some(false), false) => "powered off".to_owned(),
        (Some(true), false) => "powered on, to be off".to_owned(),
        (Some(false), true) => "powered off, to be on".to_owned(),
        (None, true) => "power unknown, to be on".to_owned(),
        (None, false) => "power unknown, to be off".to_owned(),
    });
    words.push(format!("age {}", output::age(explanation.created.as_ref(), now)));
    let terminating = if explanation.terminating { ", being deleted" } else { "" };
    format!("host {namespace}/{name}: {state}{terminating} ({})", words.join(", "))
}

fn add_fields(text: &mut output::Lines, fields: &[Field]) {
    for field in fields {
        text.add(&format!("  {:<13} {}", field.name, sanitize::line(&field.text)));
    }
}

fn add_disks(text: &mut output::Lines, explanation: &HostExplanation, colors: bool) {
    let all = &explanation.disks;
    let count = |seen: SeenBy| all.iter().filter(|disk| disk.seen_by == seen).count();
    if all.is_empty() {
        text.add("Disks: none known");
        return;
    }
    // Without a node there is nothing to compare.
    let compared = explanation.node.name.is_some();
    let (both, host, node) = (count(SeenBy::Both), count(SeenBy::Host), count(SeenBy::Node));
    text.add(&if compared {
        format!("Disks: {both} seen by both, {host} only by inspection of the host, {node} only by the node")
    } else {
        format!("Disks: {host}, from inspection of the host")
    });
    let mut listed = 0;
    for disk in all {
        listed += usize::from(disk.seen_by != SeenBy::Node);
        if listed > LISTED
            && disk.seen_by != SeenBy::Node
            && (disk.seen_by == SeenBy::Both || !compared)
        {
            continue;
        }
        text.add(&disk_line(disk, compared, colors));
    }
    let hidden = if compared { both } else { host }.saturating_sub(LISTED);
    if hidden > 0 {
        text.add(&format!(
            "  {hidden} more; run `kubectl get hardwaredata {} -n {} -o yaml` for all",
            explanation.name, explanation.namespace
        ));
    }
}

fn add_raid(text: &mut output::Lines, explanation: &HostExplanation) {
    let Some(RaidView { requested, recorded, reported, verified, seen }) = &explanation.raid else {
        return;
    };
    text.add("RAID:");
    let mut add = |name: &str, lines: &[String], none: &str| {
        let none = [none.to_owned()];
        let lines = if lines.is_empty() { &none } else { lines };
        for (at, line) in lines.iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            text.add(&format!("  {name:<13} {}", sanitize::line(line)));
        }
    };
    add("requested", requested, "nothing: volumes are left as they are");
    add("recorded", recorded, "nothing yet");
    if !reported.is_empty() {
        add("reported", reported, "");
    }
    add("verified", verified.as_slice(), "not checked");
    add("seen", seen, "no array of software RAID");
}

fn disk_line(disk: &DiskLine, compared: bool, colors: bool) -> String {
    let verdict = match disk.seen_by {
        SeenBy::Both if disk.note.is_none() => Verdict::Ok,
        SeenBy::Both => Verdict::Problem,
        SeenBy::Host | SeenBy::Node => Verdict::Waiting,
    };
    let none = || "-".to_owned();
    let names = if disk.names.is_empty() { none() } else { disk.names.join(",") };
    let bytes = if disk.size > 0 { size(disk.size) } else { none() };
    let note = disk.note.as_ref().map_or_else(String::new, |note| format!("; {note}"));
    if !compared {
        let line = format!("{names:<12} {bytes:>8}  {}{note}", disk.text);
        return format!("  {}", sanitize::line(&line));
    }
    let device = disk.device.clone().unwrap_or_else(none);
    let seen = disk.seen_by.as_str();
    let line = format!("{seen:<9} {names:<12} {device:<10} {bytes:>8}  {}{note}", disk.text);
    format!("  {} {}", mark(verdict, colors), sanitize::line(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Event;
    use quarry_view::{
        Snapshot,
        hosts::samples::{at_rest, host, raid_snapshot, snapshot},
    };
    use serde_json::json;

    fn text(snapshot: &Snapshot, name: &str) -> String {
        let event: Event = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:05:00Z"}, "involvedObject": {},
            "type": "Normal", "reason": "InspectionComplete", "message": "Hardware inspection completed",
        }))
        .unwrap();
        let explanation = explain(snapshot, "metal", name, None, &[event]).unwrap();
        render(&explanation, "2026-01-01T00:06:00Z".parse().unwrap(), false)
    }

    #[test]
    fn an_available_host_is_compared_with_its_node() {
        insta::assert_snapshot!(text(&snapshot(), "rack-1"));
    }

    #[test]
    fn a_host_that_fails_has_error_and_remedy() {
        insta::assert_snapshot!(text(&snapshot(), "rack-2"));
    }

    #[test]
    fn hosts_that_wait_say_what_for() {
        let texts = ["rack-3", "rack-4", "rack-5", "rack-6"].map(|name| text(&snapshot(), name));
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn raid_is_shown_as_requested_recorded_and_seen() {
        let texts = ["raid-1", "raid-2", "raid-3"].map(|name| text(&raid_snapshot(), name));
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn a_thousand_disks_are_not_listed_one_by_one() {
        let mut status = at_rest("available");
        let disk = |at: usize| json!({"name": format!("/dev/d{at}"), "wwn": format!("0x5000c500000{at:05}"), "sizeBytes": 1000});
        status["hardware"] = json!({"storage": (0..1000).map(disk).collect::<Vec<_>>()});
        let mut snapshot = Snapshot::new("quarry-system");
        snapshot.add_host(host("big", json!({}), status));
        let text = text(&snapshot, "big");
        assert!(text.contains("976 more; run `kubectl get hardwaredata big"), "{text}");
        assert!(text.lines().count() < 60, "{text}");
    }

    #[test]
    fn escape_sequences_of_a_host_are_printed_escaped() {
        let mut status = at_rest("available");
        status["errorType"] = json!("power management error");
        status["errorMessage"] = json!("a\u{1b}[2J\nb\u{202e}; c\u{7}");
        status["hardware"] = json!({"storage": [{"name": "/dev/\u{1b}c", "model": "\u{9b}31m"}], "systemVendor": {"productName": "\r\u{1b}"}});
        let mut snapshot = Snapshot::new("quarry-system");
        snapshot.add_host(host("h", json!({"reboot.metal3.io/\u{1b}": ""}), status));
        let text = text(&snapshot, "h");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}', '\r']), "{text:?}");
    }
}
