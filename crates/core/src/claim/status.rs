//! What a LocalVolumeSet or a LocalVolume says about itself: conditions from the accounts of all nodes.
//!
//! The claims themselves are planned node by node; here they are only counted and put into words.

use super::{
    Row, Stage, Standing,
    want::{Asks, Covers, Want},
};
use crate::{device::Reason, volume::Note};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quarry_api::local_volume_discovery::OperatorCondition;
use std::collections::BTreeMap;

/// Reasons of the conditions.
pub const OUTSIDE_NAMESPACE: &str = "OutsideOperatorNamespace";
pub const INVALID_SPEC: &str = "InvalidSpec";
pub const UNMANAGED: &str = "Unmanaged";
pub const NO_NODE: &str = "NoNodeSelected";
pub const NO_DEVICE: &str = "NoMatchingDevice";
pub const PROVISIONED: &str = "Provisioned";
pub const WAITING: &str = "Waiting";
pub const DEGRADED: &str = "DevicesNeedAttention";
pub const DELETION_BLOCKED: &str = "DeletionBlocked";
const AS_EXPECTED: &str = "AsExpected";

/// Reasons of Events, as shipped where there is one.
pub const EVENT_PROVISIONED: &str = "ProvisionedDevices";
pub const EVENT_TROUBLE: &str = "ErrorProvisioningDisk";
pub const EVENT_LINK_STAYS: &str = "ErrorRemovingSymLink";
pub const EVENT_RETAINED: &str = "VolumeRetained";
pub const EVENT_ACCOUNT: &str = "DeviceAccount";
pub const EVENT_NEW_DEVICE: &str = "DiscoveredNewDevice";
pub const EVENT_MAX_COUNT: &str = "ErrorMaxCountReached";

/// How many devices a message names.
const NAMED: usize = 4;

/// One node's part in a want.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePart {
    pub node: String,
    pub covers: Covers,
    /// The agent's absence in words; `None` when it is there.
    pub complaint: Option<String>,
    /// Each claim of this owner, by the device's name, and its stage.
    pub claims: Vec<(String, Stage)>,
    /// Every device or path and how it stands to this want.
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub want: Want,
    pub in_namespace: bool,
    /// The operator's.
    pub namespace: String,
    pub parts: Vec<NodePart>,
    pub conditions: Vec<OperatorCondition>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Saying {
    pub conditions: Vec<OperatorCondition>,
    pub provisioned: i32,
    pub notes: Vec<Note>,
}

struct Words {
    available: (bool, &'static str, String),
    progressing: Option<String>,
    degraded: Option<(&'static str, String)>,
}

pub fn decide(seen: &Observed, now: Timestamp) -> Saying {
    let stages = seen.parts.iter().flat_map(|part| part.claims.iter().map(move |(device, stage)| (part, device, stage)));
    let provisioned = stages.filter(|(_, _, stage)| stage.is_provisioned()).count();
    let words = words(seen, provisioned);
    let flag = |yes: bool| if yes { "True" } else { "False" };
    let (ok, reason, message) = words.available;
    let mut conditions = vec![build(seen, "Available", flag(ok), reason, message, now)];
    // The shipped kind says this of its DaemonSet: here, that every selected node has an agent.
    let absent: Vec<&String> = seen.parts.iter().filter(|part| part.covers == Covers::Yes).filter_map(|part| part.complaint.as_ref()).collect();
    let agents = absent.iter().take(NAMED).map(|text| text.as_str()).collect::<Vec<_>>().join("; ");
    conditions.push(build(seen, "DaemonSetsAvailable", flag(absent.is_empty()), if absent.is_empty() { AS_EXPECTED } else { "AgentsMissing" }, agents, now));
    let (progressing, message) = words.progressing.map_or((false, String::new()), |text| (true, text));
    conditions.push(build(seen, "Progressing", flag(progressing), if progressing { WAITING } else { AS_EXPECTED }, message, now));
    let (degraded, reason, message) = words.degraded.map_or((false, AS_EXPECTED, String::new()), |(reason, text)| (true, reason, text));
    conditions.push(build(seen, "Degraded", flag(degraded), reason, message, now));
    let notes = notes(seen, &conditions);
    Saying { conditions, provisioned: i32::try_from(provisioned).unwrap_or(i32::MAX), notes }
}

/// What is new in the conditions, once. What was said before is in the conditions themselves.
fn notes(seen: &Observed, conditions: &[OperatorCondition]) -> Vec<Note> {
    let find = |list: &[OperatorCondition], kind: &str| list.iter().find(|condition| condition.kind == kind).cloned().unwrap_or_default();
    let (was, is) = (find(&seen.conditions, "Available"), find(conditions, "Available"));
    let message = |condition: &OperatorCondition| condition.message.clone().unwrap_or_default();
    let mut notes = Vec::new();
    // The account: how many are in use, and why the others are not.
    if is.reason.as_deref() == Some(PROVISIONED) && message(&was) != message(&is) {
        notes.push(Note { warning: false, reason: EVENT_PROVISIONED, message: message(&is) });
    }
    let full = |text: &str| text.contains("OverMaximum");
    if full(&message(&is)) && !full(&message(&was)) {
        notes.push(Note {
            warning: true,
            reason: EVENT_MAX_COUNT,
            message: "more devices match than spec.maxDeviceCount allows on a node: they are left alone".into(),
        });
    }
    let (was, is) = (find(&seen.conditions, "Progressing"), find(conditions, "Progressing"));
    // A path that was not looked up yet is no device.
    let new = told(seen, |row| matches!(row.standing, Standing::Waiting(_)) && row.identity.is_some());
    if let Some(message) = join(new.into_iter().filter(|text| message(&is).contains(text) && !message(&was).contains(text)).collect()) {
        notes.push(Note { warning: false, reason: EVENT_NEW_DEVICE, message });
    }
    let (was, is) = (find(&seen.conditions, "Degraded"), find(conditions, "Degraded"));
    if is.status == "True" && (was.status != "True" || message(&was) != message(&is)) {
        let links = listed(seen, |stage| matches!(stage, Stage::Stuck(_)));
        let only_links = links.is_some_and(|links| message(&is).ends_with(&links));
        let retained = listed(seen, |stage| matches!(stage, Stage::Retained(_)));
        let (warning, reason) = match () {
            () if only_links => (true, EVENT_LINK_STAYS),
            // Somebody is to decide, and nothing went wrong.
            () if retained.is_some_and(|retained| message(&is) == retained) => (false, EVENT_RETAINED),
            () => (true, EVENT_TROUBLE),
        };
        notes.push(Note { warning, reason, message: message(&is) });
    }
    notes
}

/// How the devices of each node stand, in one line each, once nothing on it is under way any more: told when it is new.
pub fn accounts(seen: &Observed) -> Vec<(String, Note)> {
    let speaks = seen.in_namespace && !seen.want.terminating && seen.want.problems.is_empty();
    let parts = seen.parts.iter().filter(|part| speaks && part.covers == Covers::Yes && part.complaint.is_none());
    parts.filter_map(|part| Some((part.node.clone(), Note { warning: false, reason: EVENT_ACCOUNT, message: account_text(part)? }))).collect()
}

fn account_text(part: &NodePart) -> Option<String> {
    let moves =
        part.claims.iter().any(|(_, stage)| stage.is_under_way()) || part.rows.iter().any(|row| matches!(row.standing, Standing::Gets | Standing::Waiting(_)));
    let matched: Vec<&Standing> = part.rows.iter().map(|row| &row.standing).filter(|standing| !matches!(standing, Standing::Mismatch(_))).collect();
    if moves || matched.is_empty() {
        return None;
    }
    let mut counts: BTreeMap<&'static str, (usize, BTreeMap<&str, usize>)> = BTreeMap::new();
    for standing in &matched {
        let entry = counts.entry(standing.word()).or_default();
        entry.0 += 1;
        if let Standing::Refused(told) = standing {
            told.first().into_iter().for_each(|told| *entry.1.entry(told.reason.as_str()).or_default() += 1);
        }
    }
    let part_text = |(word, (count, reasons)): (&&str, &(usize, BTreeMap<&str, usize>))| {
        let reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        if reasons.is_empty() { format!("{word} {count}") } else { format!("{word} {count} ({})", reasons.join(", ")) }
    };
    let texts: Vec<String> = counts.iter().map(part_text).collect();
    Some(format!("node {}: {} match: {}", part.node, matched.len(), texts.join(", ")))
}

fn words(seen: &Observed, provisioned: usize) -> Words {
    let plain = |reason: &'static str, text: String| Words { available: (false, reason, text.clone()), progressing: None, degraded: Some((reason, text)) };
    if !seen.in_namespace {
        let own = &seen.namespace;
        return plain(OUTSIDE_NAMESPACE, format!("this operator acts in its own namespace only: create the object in {own} instead"));
    }
    let blocked = listed(seen, |stage| stage.is_trouble() || matches!(stage, Stage::Bound(_)));
    let absent = seen.parts.iter().filter(|part| !part.claims.is_empty()).filter_map(|part| part.complaint.clone()).collect();
    let blocked = blocked.or_else(|| join(absent));
    if seen.want.terminating {
        let under_way = listed(seen, |stage| matches!(stage, Stage::Releasing(_) | Stage::Wiping(_) | Stage::Ending(_)));
        let text = match (&blocked, under_way) {
            (Some(blocked), _) => format!("cannot go yet: {blocked}"),
            (None, Some(under_way)) => format!("its devices are given back: {under_way}"),
            (None, None) => "its devices are given back".into(),
        };
        let degraded = blocked.map(|_| (DELETION_BLOCKED, text.clone()));
        return Words { available: (false, DELETION_BLOCKED, text.clone()), progressing: Some(text), degraded };
    }
    if !seen.want.problems.is_empty() {
        return plain(INVALID_SPEC, seen.want.problems.join(". "));
    }
    let trouble = listed(seen, Stage::is_trouble);
    let trouble = trouble.map(|text| (DEGRADED, text)).or_else(|| no_path(seen).map(|text| (DEGRADED, text)));
    let waiting = listed(seen, Stage::is_under_way);
    let waiting = join(waiting.into_iter().chain(standing(seen, |standing| matches!(standing, Standing::Waiting(_) | Standing::Gets))).collect());
    let text = summary(seen, provisioned);
    if seen.want.paused {
        let text = format!("managementState keeps it from taking devices; {text}");
        return Words { available: (provisioned > 0, UNMANAGED, text), progressing: None, degraded: trouble };
    }
    if provisioned > 0 {
        return Words { available: (true, PROVISIONED, text), progressing: waiting, degraded: trouble };
    }
    // A node that is gone is not selected either; what is claimed there says more.
    if trouble.is_none() && !seen.parts.iter().any(|part| part.covers == Covers::Yes) {
        let kept = seen.parts.iter().find_map(|part| match &part.covers {
            Covers::KeptAway(taint) => Some(format!("node {} has the taint {taint}: tolerate it in spec.tolerations", part.node)),
            Covers::Yes | Covers::NotSelected => None,
        });
        return plain(NO_NODE, kept.unwrap_or_else(|| "spec.nodeSelector selects no node: compare it with `kubectl get nodes --show-labels`".into()));
    }
    let reason = if waiting.is_some() { WAITING } else { NO_DEVICE };
    Words { available: (false, reason, text), progressing: waiting, degraded: trouble }
}

/// The claims in these stages, in words; `None` when there are none.
fn listed(seen: &Observed, which: impl Fn(&Stage) -> bool) -> Option<String> {
    let found: Vec<String> = seen
        .parts
        .iter()
        .flat_map(|part| part.claims.iter().map(move |(device, stage)| (part, device, stage)))
        .filter(|(_, _, stage)| which(stage))
        .map(|(part, device, stage)| match stage.detail() {
            "" => format!("{device} of {} is {}", part.node, stage.word()),
            detail => format!("{device} of {}: {detail}", part.node),
        })
        .collect();
    join(found)
}

fn standing(seen: &Observed, which: impl Fn(&Standing) -> bool) -> Option<String> {
    join(told(seen, |row| which(&row.standing)))
}

fn told(seen: &Observed, which: impl Fn(&Row) -> bool) -> Vec<String> {
    let found = seen.parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row))).filter(|(_, row)| which(row));
    found.map(|(part, row)| format!("{} of {}: {}", row.device, part.node, row.standing.sentence())).collect()
}

/// What to do about it, if the reason is one that has a remedy.
fn remedy(standing: &Standing) -> String {
    match standing {
        Standing::Refused(told) => {
            told.first().and_then(|told| Reason::parse(&told.reason)).map_or_else(String::new, |reason| format!(" ({})", reason.row().remedy))
        }
        Standing::NoDevice(_) => " (correct the path, or take it out; nodes that have no such device can be left out with spec.nodeSelector)".into(),
        _ => String::new(),
    }
}

/// A path that somebody wrote down is meant: whatever keeps it from being used is said.
fn no_path(seen: &Observed) -> Option<String> {
    match &seen.want.asks {
        Asks::Set(_) => None,
        Asks::Paths(_) => {
            let which = |standing: &Standing| {
                matches!(standing, Standing::NoDevice(_) | Standing::Refused(_) | Standing::Taken(_) | Standing::Published(_) | Standing::Frozen)
            };
            let rows = seen.parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row))).filter(|(_, row)| which(&row.standing));
            let told = rows.map(|(part, row)| format!("{} of {}: {}{}", row.device, part.node, row.standing.sentence(), remedy(&row.standing))).collect();
            join(told).map(|text| format!("spec.storageClassDevices.devicePaths: {text}"))
        }
    }
}

fn join(found: Vec<String>) -> Option<String> {
    let more = found.len().saturating_sub(NAMED);
    let mut text = found.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    (!found.is_empty()).then_some(text)
}

/// The account in one line: how many are in use, and why the others are not.
pub fn summary(seen: &Observed, provisioned: usize) -> String {
    let nodes = seen.parts.iter().filter(|part| part.covers == Covers::Yes).count();
    let mut counts: Vec<(&'static str, usize)> = Vec::new();
    for row in seen.parts.iter().flat_map(|part| &part.rows) {
        let word = row.standing.word();
        // What was never asked for is no news: its coming and going must not change what is said.
        if matches!(row.standing, Standing::Has | Standing::Mismatch(_)) {
            continue;
        }
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    counts.sort_unstable();
    let others: Vec<String> = counts.iter().map(|(word, count)| format!("{word} {count}")).collect();
    let taken = standing(seen, |standing| matches!(standing, Standing::Taken(_) | Standing::BelowMin { .. } | Standing::Published(_)));
    let others = if others.is_empty() { String::new() } else { format!("; other devices: {}", others.join(", ")) };
    let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    format!("{provisioned} provisioned on {nodes}{others}{}", taken.map_or_else(String::new, |text| format!(" ({text})")))
}

/// Times are kept while the status of a condition stays.
fn build(seen: &Observed, kind: &str, status: &str, reason: &str, message: String, now: Timestamp) -> OperatorCondition {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let old = seen.conditions.iter().find(|condition| condition.kind == kind && condition.status == status);
    OperatorCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message).filter(|text| !text.is_empty()),
        last_transition_time: old.and_then(|old| old.last_transition_time.clone()).or(Some(now)),
    }
}
