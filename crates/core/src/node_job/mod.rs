//! When a finished NodeJob may be deleted: by age, never while an object names it.

mod check;

pub use check::{Violation, check};

use jiff::{SignedDuration, Timestamp};
use quarry_api::{NodeJob, node_job::JobPhase};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Observed {
    pub job: Arc<NodeJob>,
    /// An object names the job, or may name it.
    pub named: bool,
    /// How long a finished job is kept.
    pub retention: SignedDuration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Until something changes.
    Keep,
    KeepFor(SignedDuration),
    Delete {
        uid: String,
        resource_version: String,
    },
}

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let status = seen.job.status.as_ref();
    let finished = status.and_then(|status| status.phase).is_some_and(JobPhase::finished);
    if seen.named || !finished {
        return Plan::Keep;
    }
    let completed = status.and_then(|status| status.completion_time.as_ref());
    let ended = completed.or(seen.job.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    match ended.map(|ended| ended + seen.retention) {
        Some(due) if due > now => Plan::KeepFor(due.duration_since(now)),
        Some(_) | None => Plan::Delete {
            uid: seen.job.metadata.uid.clone().unwrap_or_default(),
            resource_version: seen.job.metadata.resource_version.clone().unwrap_or_default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(phase: Option<&str>, named: bool) -> Observed {
        let job = serde_json::from_value(json!({
            "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob",
            "metadata": {"name": "j", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "action": "Prepare", "nodeName": "n", "device": {}, "attempt": 1,
                "owner": {"kind": "Volume", "name": "v", "uid": "u"},
                "precondition": {"nodeUID": "x", "specHash": "h"},
            },
            "status": {"phase": phase, "completionTime": "2026-01-01T00:00:00Z"},
        }));
        let retention = SignedDuration::from_hours(1);
        Observed { job: Arc::new(job.unwrap()), named, retention }
    }

    #[test]
    fn a_finished_job_is_deleted_by_age_unless_named() {
        let end: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let late = end + SignedDuration::from_hours(2);
        let delete = Plan::Delete { uid: "u".into(), resource_version: "7".into() };
        for phase in [Some("Succeeded"), Some("Failed")] {
            assert_eq!(plan(&seen(phase, true), late), Plan::Keep);
            let hour = SignedDuration::from_hours(1);
            assert_eq!(plan(&seen(phase, false), end), Plan::KeepFor(hour));
            assert_eq!(plan(&seen(phase, false), late), delete);
            assert_eq!(check(&seen(phase, false), &delete), []);
        }
        for phase in [None, Some("Running")] {
            assert_eq!(plan(&seen(phase, false), late), Plan::Keep);
        }
    }

    #[test]
    fn check_reports_every_wrong_deletion() {
        let blind = Plan::Delete { uid: String::new(), resource_version: "7".into() };
        let found = check(&seen(Some("Running"), true), &blind);
        let name = || "j".to_owned();
        let all = [
            Violation::Named(name()),
            Violation::Unfinished(name()),
            Violation::Unconditional(name()),
        ];
        assert_eq!(found, all);
        assert_eq!(check(&seen(Some("Running"), true), &Plan::Keep), []);
    }
}
