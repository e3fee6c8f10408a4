//! The status of a LocalVolumeSet or a LocalVolume: conditions from the accounts of all nodes.
//!
//! Device claims are planned per node; here they are only counted and summarized.

use super::{
    Eligibility, Health, Row, Stage, UNFIT_REMEDY,
    demand::{Demand, DeviceSelection, NodeMatch},
    filter::Mismatch,
};
use crate::event::PendingEvent;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quarry_api::local_volume_discovery::OperatorCondition;
use std::collections::{BTreeMap, BTreeSet};

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

/// Reasons of Events, as upstream where there is one.
pub const EVENT_PROVISIONED: &str = "ProvisionedDevices";
pub const EVENT_TROUBLE: &str = "ErrorProvisioningDisk";
pub const EVENT_LINK_STAYS: &str = "ErrorRemovingSymLink";
pub const EVENT_RETAINED: &str = "VolumeRetained";
pub const EVENT_ACCOUNT: &str = "DeviceSummary";
pub const EVENT_NEW_DEVICE: &str = "DiscoveredNewDevice";
pub const EVENT_MAX_COUNT: &str = "ErrorMaxCountReached";

/// How many devices a message names.
const NAMED: usize = 4;
/// What blocks a deletion is listed one by one: an administrator has to handle each.
const BLOCKING: usize = 64;

/// One node's part in a demand.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePart {
    pub node: String,
    pub covers: NodeMatch,
    /// Why the agent is absent; `None` if it is present.
    pub problem: Option<String>,
    /// Each device claim of this owner, by the name of the device, and its stage.
    pub claims: Vec<(String, Stage)>,
    /// Devices whose PersistentVolume has the settings of an earlier spec.
    pub outdated: Vec<String>,
    /// Every device or path and its eligibility for this demand.
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub demand: Demand,
    pub in_namespace: bool,
    /// The operator's.
    pub namespace: String,
    pub parts: Vec<NodePart>,
    pub conditions: Vec<OperatorCondition>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StatusUpdate {
    pub conditions: Vec<OperatorCondition>,
    pub provisioned: i32,
    pub notes: Vec<PendingEvent>,
}

struct ConditionTexts {
    available: (bool, &'static str, String),
    progressing: Option<String>,
    degraded: Option<(&'static str, String)>,
}

pub fn decide(seen: &Observed, now: Timestamp) -> StatusUpdate {
    let stages = seen
        .parts
        .iter()
        .flat_map(|part| part.claims.iter().map(move |(device, stage)| (part, device, stage)));
    let provisioned = stages.filter(|(_, _, stage)| stage.is_provisioned()).count();
    let words = words(seen, provisioned);
    let flag = |yes: bool| if yes { "True" } else { "False" };
    let (ok, reason, message) = words.available;
    let mut conditions = vec![build(seen, "Available", flag(ok), reason, message, now)];
    // Upstream, this is about its DaemonSet: here, whether every selected node has an agent.
    let absent: Vec<&String> = seen
        .parts
        .iter()
        .filter(|part| part.covers == NodeMatch::Yes)
        .filter_map(|part| part.problem.as_ref())
        .collect();
    let agents = absent.iter().take(NAMED).map(|text| text.as_str()).collect::<Vec<_>>().join("; ");
    conditions.push(build(
        seen,
        "DaemonSetsAvailable",
        flag(absent.is_empty()),
        if absent.is_empty() { AS_EXPECTED } else { "AgentsMissing" },
        agents,
        now,
    ));
    let (progressing, message) =
        words.progressing.map_or((false, String::new()), |text| (true, text));
    conditions.push(build(
        seen,
        "Progressing",
        flag(progressing),
        if progressing { WAITING } else { AS_EXPECTED },
        message,
        now,
    ));
    let (degraded, reason, message) = words
        .degraded
        .map_or((false, AS_EXPECTED, String::new()), |(reason, text)| (true, reason, text));
    conditions.push(build(seen, "Degraded", flag(degraded), reason, message, now));
    let notes = notes(seen, &conditions);
    StatusUpdate { conditions, provisioned: i32::try_from(provisioned).unwrap_or(i32::MAX), notes }
}

/// Events about what is new in the conditions, once.
fn notes(seen: &Observed, conditions: &[OperatorCondition]) -> Vec<PendingEvent> {
    let find = |list: &[OperatorCondition], kind: &str| {
        list.iter().find(|condition| condition.kind == kind).cloned().unwrap_or_default()
    };
    let (was, is) = (find(&seen.conditions, "Available"), find(conditions, "Available"));
    let message = |condition: &OperatorCondition| condition.message.clone().unwrap_or_default();
    let mut notes = Vec::new();
    // The account: how many are in use, and why the others are not.
    if is.reason.as_deref() == Some(PROVISIONED) && message(&was) != message(&is) {
        notes.push(PendingEvent {
            warning: false,
            reason: EVENT_PROVISIONED,
            message: message(&is),
        });
    }
    let full = |text: &str| text.contains("OverMaximum");
    if full(&message(&is)) && !full(&message(&was)) {
        notes.push(PendingEvent {
            warning: true,
            reason: EVENT_MAX_COUNT,
            message:
                "more devices match than spec.maxDeviceCount allows per node; the others are not used"
                    .into(),
        });
    }
    let (was, is) = (find(&seen.conditions, "Progressing"), find(conditions, "Progressing"));
    // A path that was not resolved yet is no device.
    let new = finding(seen, |row| {
        matches!(row.eligibility, Eligibility::Waiting(_)) && row.identity.is_some()
    });
    if let Some(message) = join(
        new.into_iter()
            .filter(|text| message(&is).contains(text) && !message(&was).contains(text))
            .collect(),
        NAMED,
    ) {
        notes.push(PendingEvent { warning: false, reason: EVENT_NEW_DEVICE, message });
    }
    let (was, is) = (find(&seen.conditions, "Degraded"), find(conditions, "Degraded"));
    if is.status == "True" && (was.status != "True" || message(&was) != message(&is)) {
        let links = listed(seen, |stage| matches!(stage, Stage::RemovalFailed(_)));
        let only_links = links.is_some_and(|links| message(&is).ends_with(&links));
        let retained = listed(seen, |stage| matches!(stage, Stage::Retained(_)));
        let (warning, reason) = match () {
            () if only_links => (true, EVENT_LINK_STAYS),
            // An administrator has to decide, but nothing failed.
            () if retained.is_some_and(|retained| message(&is) == retained) => {
                (false, EVENT_RETAINED)
            }
            () => (true, EVENT_TROUBLE),
        };
        notes.push(PendingEvent { warning, reason, message: message(&is) });
    }
    notes
}

/// A summary of the devices of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSummary {
    pub node: String,
    pub event: PendingEvent,
    /// It is published when this is new. That a PVC binds or releases a PersistentVolume is no news.
    pub news: String,
}

/// A summary of the devices of each node, once nothing is in progress there.
pub fn accounts(seen: &Observed) -> Vec<NodeSummary> {
    let speaks = seen.in_namespace && !seen.demand.terminating && seen.demand.problems.is_empty();
    let parts = seen
        .parts
        .iter()
        .filter(|part| speaks && part.covers == NodeMatch::Yes && part.problem.is_none());
    parts
        .filter_map(|part| {
            let published =
                |stage: &Stage| if stage.is_provisioned() { PROVISIONED } else { stage.as_str() };
            let message = account_text(part, Stage::as_str)?;
            Some(NodeSummary {
                node: part.node.clone(),
                event: PendingEvent { warning: false, reason: EVENT_ACCOUNT, message },
                news: account_text(part, published)?,
            })
        })
        .collect()
}

/// `word`: how the stage of a device claim is counted.
fn account_text(part: &NodePart, word: fn(&Stage) -> &'static str) -> Option<String> {
    let moves = part.claims.iter().any(|(_, stage)| stage.health() == Health::UnderWay)
        || part
            .rows
            .iter()
            .any(|row| matches!(row.eligibility, Eligibility::Selected | Eligibility::Waiting(_)));
    // What it has is counted by the stage of its device claim: not every device claim is published.
    let others: Vec<&Eligibility> = part
        .rows
        .iter()
        .map(|row| &row.eligibility)
        .filter(|eligibility| counts(eligibility))
        .collect();
    if moves || others.len() + part.claims.len() == 0 {
        return None;
    }
    let claims = part.claims.iter().map(|(_, stage)| (word(stage), None));
    let text =
        counted(claims.chain(
            others.iter().map(|eligibility| (eligibility.as_str(), first_reason(eligibility))),
        ));
    Some(format!("node {}: {} match: {text}", part.node, others.len() + part.claims.len()))
}

/// A device that matches and that it does not have. Devices that never matched must not change the message when they
/// appear or disappear.
fn counts(eligibility: &Eligibility) -> bool {
    !matches!(eligibility, Eligibility::Claimed | Eligibility::NotMatched(_))
}

fn first_reason(eligibility: &Eligibility) -> Option<&str> {
    match eligibility {
        Eligibility::Refused(finding) => finding.first().map(|finding| finding.reason.as_str()),
        _ => None,
    }
}

/// `Bound 1, Refused 2 (Mounted 1, Signature 1)`
fn counted<'a>(words: impl Iterator<Item = (&'static str, Option<&'a str>)>) -> String {
    let mut counts: BTreeMap<&'static str, (usize, BTreeMap<&str, usize>)> = BTreeMap::new();
    for (word, reason) in words {
        let entry = counts.entry(word).or_default();
        entry.0 += 1;
        reason.into_iter().for_each(|reason| *entry.1.entry(reason).or_default() += 1);
    }
    let part_text = |(word, (count, reasons)): (&&str, &(usize, BTreeMap<&str, usize>))| {
        let reasons: Vec<String> =
            reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        if reasons.is_empty() {
            format!("{word} {count}")
        } else {
            format!("{word} {count} ({})", reasons.join(", "))
        }
    };
    counts.iter().map(part_text).collect::<Vec<_>>().join(", ")
}

fn words(seen: &Observed, provisioned: usize) -> ConditionTexts {
    let plain = |reason: &'static str, text: String| ConditionTexts {
        available: (false, reason, text.clone()),
        progressing: None,
        degraded: Some((reason, text)),
    };
    if !seen.in_namespace {
        let own = &seen.namespace;
        return plain(
            OUTSIDE_NAMESPACE,
            format!(
                "this operator serves only its own namespace; create the object in namespace {own}"
            ),
        );
    }
    let blocked = in_words(seen, BLOCKING, |stage| {
        stage.health() == Health::Trouble || matches!(stage, Stage::Bound(_))
    });
    let absent = seen
        .parts
        .iter()
        .filter(|part| !part.claims.is_empty())
        .filter_map(|part| part.problem.clone())
        .collect();
    let blocked = blocked.or_else(|| join(absent, NAMED));
    if seen.demand.terminating {
        let under_way = listed(seen, |stage| {
            matches!(stage, Stage::Releasing(_) | Stage::Wiping(_) | Stage::Terminating(_))
        });
        let text = match (&blocked, under_way) {
            (Some(blocked), _) => format!("deletion is blocked: {blocked}"),
            (None, Some(under_way)) => format!("releasing its devices: {under_way}"),
            (None, None) => "releasing its devices".into(),
        };
        let degraded = blocked.map(|_| (DELETION_BLOCKED, text.clone()));
        return ConditionTexts {
            available: (false, DELETION_BLOCKED, text.clone()),
            progressing: Some(text),
            degraded,
        };
    }
    if !seen.demand.problems.is_empty() {
        return plain(INVALID_SPEC, seen.demand.problems.join(". "));
    }
    let trouble = listed(seen, |stage| stage.health() == Health::Trouble)
        .into_iter()
        .chain(unused(seen))
        .collect();
    let trouble = join(trouble, NAMED).map(|text| (DEGRADED, text));
    let waiting = listed(seen, |stage| stage.health() == Health::UnderWay);
    let waiting = waiting
        .into_iter()
        .chain(eligibility(seen, |eligibility| {
            matches!(eligibility, Eligibility::Waiting(_) | Eligibility::Selected)
        }))
        .collect();
    let waiting = join(waiting, NAMED);
    let text = format!("{}{}", summary(seen, provisioned), outdated(seen));
    if seen.demand.paused {
        let text = format!("spec.managementState disables it; {text}");
        return ConditionTexts {
            available: (provisioned > 0, UNMANAGED, text),
            progressing: None,
            degraded: trouble,
        };
    }
    if provisioned > 0 {
        return ConditionTexts {
            available: (true, PROVISIONED, text),
            progressing: waiting,
            degraded: trouble,
        };
    }
    // A node that does not exist is not selected either; its device claims tell more.
    if trouble.is_none() && !seen.parts.iter().any(|part| part.covers == NodeMatch::Yes) {
        let kept = seen.parts.iter().find_map(|part| match &part.covers {
            NodeMatch::KeptAway(taint) => Some(format!(
                "node {} has the taint {taint}; add a toleration to spec.tolerations",
                part.node
            )),
            NodeMatch::Yes | NodeMatch::NotSelected => None,
        });
        return plain(NO_NODE, kept.unwrap_or_else(|| "spec.nodeSelector selects no node; compare it with `kubectl get nodes --show-labels`".into()));
    }
    if waiting.is_some() {
        return ConditionTexts {
            available: (false, WAITING, text),
            progressing: waiting,
            degraded: trouble,
        };
    }
    ConditionTexts {
        available: (false, NO_DEVICE, format!("{text}{}", ruled_out(seen))),
        progressing: None,
        degraded: trouble,
    }
}

/// PersistentVolumes that were created before the spec was changed.
fn outdated(seen: &Observed) -> String {
    let found = seen
        .parts
        .iter()
        .flat_map(|part| {
            part.outdated.iter().map(move |device| format!("{device} of {}", part.node))
        })
        .collect();
    let text = |found| {
        format!(
            "; created with an earlier spec: {found} (delete their PersistentVolumes when they are unused, and they are recreated)"
        )
    };
    join(found, NAMED).map(text).unwrap_or_default()
}

/// Which fields exclude all devices. Without counts: disks that never matched appear and disappear.
fn ruled_out(seen: &Observed) -> String {
    let rows = || {
        seen.parts.iter().filter(|part| part.covers == NodeMatch::Yes).flat_map(|part| &part.rows)
    };
    if rows().any(|row| counts(&row.eligibility)) {
        return String::new();
    }
    let fields: BTreeSet<&str> = rows()
        .flat_map(|row| match &row.eligibility {
            Eligibility::NotMatched(wrong) => wrong.iter().map(Mismatch::field).collect(),
            _ => Vec::new(),
        })
        .collect();
    if fields.is_empty() {
        return "; no device is known there yet".to_owned();
    }
    let fields = fields.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "; no device matches, because of {fields} (`quarry explain set/{}` shows each device)",
        seen.demand.owner.name
    )
}

fn listed(seen: &Observed, which: impl Fn(&Stage) -> bool) -> Option<String> {
    in_words(seen, NAMED, which)
}

/// The device claims in these stages, as text; `None` if there are none.
fn in_words(seen: &Observed, limit: usize, which: impl Fn(&Stage) -> bool) -> Option<String> {
    let found: Vec<String> = seen
        .parts
        .iter()
        .flat_map(|part| part.claims.iter().map(move |(device, stage)| (part, device, stage)))
        .filter(|(_, _, stage)| which(stage))
        .map(|(part, device, stage)| match stage.detail() {
            "" => format!("{device} of {} is {}", part.node, stage.as_str()),
            detail => format!("{device} of {}: {detail}", part.node),
        })
        .collect();
    join(found, limit)
}

fn eligibility(seen: &Observed, which: impl Fn(&Eligibility) -> bool) -> Option<String> {
    join(finding(seen, |row| which(&row.eligibility)), NAMED)
}

fn finding(seen: &Observed, which: impl Fn(&Row) -> bool) -> Vec<String> {
    let found = seen
        .parts
        .iter()
        .flat_map(|part| part.rows.iter().map(move |row| (part, row)))
        .filter(|(_, row)| which(row));
    found
        .map(|(part, row)| {
            format!("{} of {}: {}", row.device, part.node, row.eligibility.message())
        })
        .collect()
}

/// What to do about a full NodeInventory.
pub const NO_ROOM_REMEDY: &str = "remove paths that do not exist on the node, or exclude devices that are not needed: one node has room for about 1,000 device claims";

/// The remedy, if the reason has one.
fn remedy(eligibility: &Eligibility) -> String {
    match eligibility {
        Eligibility::Refused(finding) => {
            finding.first().and_then(|finding| finding.reason.known()).map_or_else(String::new, |reason| format!(" ({})", reason.row().remedy))
        }
        Eligibility::UnfitFileSystem(_) => format!(" ({UNFIT_REMEDY})"),
        Eligibility::NoRoom(_) => format!(" ({NO_ROOM_REMEDY})"),
        Eligibility::NoDevice(_) => " (correct the path or remove it; exclude nodes without such a device with spec.nodeSelector)".into(),
        _ => String::new(),
    }
}

/// A path is explicit: every reason why it is not used is reported. Of a set, only what it cannot get although it should.
fn unused(seen: &Observed) -> Option<String> {
    match &seen.demand.selection {
        DeviceSelection::Set(_) => {
            let text =
                eligibility(seen, |eligibility| matches!(eligibility, Eligibility::NoRoom(_)))?;
            Some(format!("{text} ({NO_ROOM_REMEDY})"))
        }
        DeviceSelection::Paths(_) => {
            let which = |eligibility: &Eligibility| {
                matches!(
                    eligibility,
                    Eligibility::NoDevice(_)
                        | Eligibility::Refused(_)
                        | Eligibility::Taken(_)
                        | Eligibility::BacksPersistentVolume(_)
                        | Eligibility::UnfitFileSystem(_)
                        | Eligibility::NoRoom(_)
                        | Eligibility::WipeRemnant(_)
                        | Eligibility::Frozen
                )
            };
            let rows = seen
                .parts
                .iter()
                .flat_map(|part| part.rows.iter().map(move |row| (part, row)))
                .filter(|(_, row)| which(&row.eligibility));
            let finding = rows
                .map(|(part, row)| {
                    format!(
                        "{} of {}: {}{}",
                        row.device,
                        part.node,
                        row.eligibility.message(),
                        remedy(&row.eligibility)
                    )
                })
                .collect();
            join(finding, NAMED).map(|text| format!("spec.storageClassDevices.devicePaths: {text}"))
        }
    }
}

fn join(found: Vec<String>, limit: usize) -> Option<String> {
    let more = found.len().saturating_sub(limit);
    let mut text = found.iter().take(limit).map(String::as_str).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    (!found.is_empty()).then_some(text)
}

/// The account in one line: how many devices are in use, and why the others are not.
pub fn summary(seen: &Observed, provisioned: usize) -> String {
    let nodes = seen.parts.iter().filter(|part| part.covers == NodeMatch::Yes).count();
    let rows = seen.parts.iter().flat_map(|part| &part.rows).filter(|row| counts(&row.eligibility));
    let others =
        counted(rows.map(|row| (row.eligibility.as_str(), first_reason(&row.eligibility))));
    let taken = eligibility(seen, |eligibility| {
        matches!(
            eligibility,
            Eligibility::Taken(_)
                | Eligibility::BelowMinimum { .. }
                | Eligibility::BacksPersistentVolume(_)
                | Eligibility::UnfitFileSystem(_)
                | Eligibility::WipeRemnant(_)
        )
    });
    let others =
        if others.is_empty() { String::new() } else { format!("; other devices: {others}") };
    let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    format!(
        "{provisioned} provisioned on {nodes}{others}{}",
        taken.map_or_else(String::new, |text| format!(" ({text})"))
    )
}

/// Times are kept while the status of a condition stays.
fn build(
    seen: &Observed,
    kind: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> OperatorCondition {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let old = seen
        .conditions
        .iter()
        .find(|condition| condition.kind == kind && condition.status == status);
    OperatorCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message).filter(|text| !text.is_empty()),
        last_transition_time: old.and_then(|old| old.last_transition_time.clone()).or(Some(now)),
    }
}
