//! When a finished NodeJob may be forgotten.

use jiff::{SignedDuration, Timestamp};
use quarry_api::NodeJob;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    Keep,
    /// Look again then.
    KeepUntil(Timestamp),
    Delete,
}

/// By age, never while an object names it, never unfinished unless its owner is gone for good.
pub fn decide_retention(
    job: &NodeJob,
    named: bool,
    retention: SignedDuration,
    now: Timestamp,
) -> Retention {
    let status = job.status.as_ref();
    let finished = status.and_then(|status| status.phase).is_some_and(|phase| phase.finished());
    if named || !finished {
        return Retention::Keep;
    }
    let ended = status
        .and_then(|status| status.completion_time.as_ref())
        .map(|time| time.0)
        .or(job.metadata.creation_timestamp.as_ref().map(|time| time.0));
    match ended.map(|ended| ended + retention) {
        Some(due) if due > now => Retention::KeepUntil(due),
        Some(_) | None => Retention::Delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(phase: Option<&str>) -> NodeJob {
        serde_json::from_value(json!({
            "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": "j"},
            "spec": {"action": "Prepare", "nodeName": "n", "owner": {"kind": "Volume", "name": "v", "uid": "u"}, "device": {}, "precondition": {"nodeUID": "x", "specHash": "h"}, "attempt": 1},
            "status": {"phase": phase, "completionTime": "2026-01-01T00:00:00Z"},
        }))
        .unwrap()
    }

    #[test]
    fn a_job_is_forgotten_by_age_and_never_while_it_matters() {
        let hour = SignedDuration::from_hours(1);
        let end: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let late = end + SignedDuration::from_hours(2);
        for phase in [Some("Succeeded"), Some("Failed")] {
            assert_eq!(decide_retention(&job(phase), true, hour, late), Retention::Keep);
            assert_eq!(
                decide_retention(&job(phase), false, hour, end),
                Retention::KeepUntil(end + hour)
            );
            assert_eq!(decide_retention(&job(phase), false, hour, late), Retention::Delete);
        }
        for phase in [None, Some("Running")] {
            assert_eq!(decide_retention(&job(phase), false, hour, late), Retention::Keep);
        }
    }
}
