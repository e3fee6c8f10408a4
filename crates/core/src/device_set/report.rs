//! What is reported of all device sets of a cluster: one condition with counts by state, and the worst of each.

use super::{
    Observed,
    index::Index,
    osd::{Osd, OsdState},
};
use crate::event::PendingEvent;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quarry_api::{
    ceph_cluster::{CephClusterStatus, CephCondition},
    names::ceph,
};
use std::collections::{BTreeMap, BTreeSet};

/// More would not be read, and an object has a limit.
const MOST_PROBLEMS: usize = 5;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Nothing can be done for the whole cluster: reason and message.
    blocked: Option<(&'static str, String)>,
    /// There are no sets.
    empty: bool,
    /// Settings that are refused.
    pub invalid: Vec<String>,
    /// Worth knowing, and no problem.
    pub notes: Vec<String>,
    /// OSDs whose turn has not come.
    pub waiting: usize,
    pub counts: BTreeMap<&'static str, usize>,
    problems: Vec<String>,
    total: usize,
}

impl Report {
    pub fn none() -> Self {
        Report { empty: true, ..Report::default() }
    }

    pub fn blocked(reason: &'static str, message: String) -> Self {
        Report { blocked: Some((reason, message)), ..Report::default() }
    }

    pub fn add(&mut self, osd: &Osd<'_>) {
        self.total += 1;
        *self.counts.entry(osd.state.word()).or_default() += 1;
        if let Some(message) = osd.state.message() {
            self.problems.push(format!(
                "{}[{}] {}: {message}",
                osd.set.name,
                osd.index,
                osd.state.word()
            ));
        }
    }

    /// Sets of which something exists, and which are not in the spec any more.
    pub fn add_removed_sets(&mut self, index: &Index<'_>) {
        let spec = &index.observed.cluster.spec;
        let known: BTreeSet<&str> = spec.device_sets().map(|set| set.name.as_str()).collect();
        let all = index.sets();
        for set in all.into_iter().filter(|set| !known.contains(set)) {
            let placed = index.claims_of(set).iter().map(|(at, _)| *at);
            let begun: BTreeSet<u32> = placed.chain(index.begun_indices(set)).collect();
            // Those of upstream do not say which index they are of.
            let count = begun.len().max(index.deployments_of(set));
            self.notes.push(format!(
                "set {set} is not in spec.storage any more, and {count} of its OSDs stay; remove them from Ceph first, then their Deployments and PVCs"
            ));
        }
    }

    pub fn is_ready(&self) -> bool {
        let running = self.counts.get(OsdState::Running.word()).copied().unwrap_or_default();
        self.blocked.is_none()
            && self.invalid.is_empty()
            && self.waiting == 0
            && running == self.total
    }

    fn reason(&self) -> &'static str {
        match &self.blocked {
            Some((reason, _)) => reason,
            None if !self.invalid.is_empty() => "InvalidDeviceSets",
            None if !self.problems.is_empty() => "OSDsFailing",
            None if !self.is_ready() => "Progressing",
            None => "AllRunning",
        }
    }

    fn message(&self) -> String {
        if let Some((_, message)) = &self.blocked {
            return message.clone();
        }
        let counts: Vec<String> =
            self.counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let mut parts = vec![match counts.is_empty() {
            true => "no OSDs".to_owned(),
            false => format!("OSDs: {}", counts.join(", ")),
        }];
        if self.waiting > 0 {
            parts.push(format!("{} more follow", self.waiting));
        }
        parts.extend(self.invalid.iter().cloned());
        parts.extend(self.problems.iter().take(MOST_PROBLEMS).cloned());
        let more = self.problems.len().saturating_sub(MOST_PROBLEMS);
        if more > 0 {
            parts.push(format!("and {more} more; run `quarry osds`"));
        }
        parts.extend(self.notes.iter().cloned());
        parts.join("; ")
    }
}

/// The status with the condition, if it differs, and Events of what changed.
pub fn write(
    observed: &Observed,
    report: &Report,
    now: Timestamp,
) -> (Option<Box<CephClusterStatus>>, Vec<PendingEvent>) {
    let old = observed.cluster.status.clone().unwrap_or_default();
    let known = old.condition(ceph::DEVICE_SETS_READY).cloned();
    let mut status = old.clone();
    if report.empty {
        status.conditions.retain(|one| one.kind != ceph::DEVICE_SETS_READY);
        return ((status != old).then(|| Box::new(status)), Vec::new());
    }
    let value = if report.is_ready() { "True" } else { "False" };
    let (reason, message) = (report.reason(), report.message());
    let same = |known: &CephCondition| {
        known.status == value && known.reason == reason && known.message == message
    };
    if known.as_ref().is_some_and(same) {
        return (None, Vec::new());
    }
    let since = known.as_ref().filter(|known| known.status == value);
    let made = CephCondition {
        kind: ceph::DEVICE_SETS_READY.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.clone(),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: since
            .and_then(|known| known.last_transition_time.clone())
            .or(Some(Time(now))),
        other: BTreeMap::new(),
    };
    status.conditions.retain(|one| one.kind != ceph::DEVICE_SETS_READY);
    status.conditions.push(made);
    let is_news = known.is_none_or(|known| known.reason != reason);
    let event =
        PendingEvent { warning: value == "False" && reason != "Progressing", reason, message };
    (Some(Box::new(status)), if is_news { vec![event] } else { Vec::new() })
}
