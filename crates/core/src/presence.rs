//! Whether the agent of a node is present, by its Lease: nothing else is written at rest.

use jiff::{SignedDuration, Span, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// No agent has ever been seen on this node.
    Never,
    Absent {
        since: Timestamp,
    },
    Present {
        until: Timestamp,
    },
}

/// A lease without a holder was released at shutdown: the agent is absent at once.
pub fn presence(lease: Option<&Lease>, now: Timestamp) -> Presence {
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else { return Presence::Never };
    let Some(renewed) = spec.renew_time.as_ref().map(|time| time.0) else { return Presence::Never };
    let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    let seconds = i64::from(spec.lease_duration_seconds.unwrap_or(40));
    let until = renewed.checked_add(Span::new().seconds(seconds)).unwrap_or(Timestamp::MAX);
    if held && now < until {
        Presence::Present { until }
    } else {
        Presence::Absent { since: renewed }
    }
}

/// The same holder renewed its Lease in time: the normal case, which changes nothing.
pub fn is_renewal(before: Option<&Lease>, after: Option<&Lease>) -> bool {
    let spec = |lease: Option<&'_ Lease>| lease.and_then(|lease| lease.spec.clone());
    let (Some(before), Some(after)) = (spec(before), spec(after)) else { return false };
    let (Some(old), Some(new)) = (before.renew_time, after.renew_time) else { return false };
    before.holder_identity == after.holder_identity
        && new.0.duration_since(old.0) < SignedDuration::from_secs(30)
}

impl Presence {
    /// Why nothing happens on the node; `None` if the agent is present.
    pub fn problem(&self, node: &str) -> Option<String> {
        let remedy = match self {
            Presence::Never => "check that its quarry-agent pod runs",
            Presence::Absent { .. } | Presence::Present { .. } => {
                "check that the node is up and that its quarry-agent pod runs"
            }
        };
        Some(format!("{}; {remedy}", self.finding(node)?))
    }

    /// The same without a remedy: agents need not be pods.
    pub fn finding(&self, node: &str) -> Option<String> {
        match self {
            Presence::Never => Some(format!("no agent has been seen on node {node}")),
            Presence::Absent { since } => Some(format!(
                "the agent on node {node} has been absent since {}",
                since.strftime("%Y-%m-%dT%H:%M:%SZ")
            )),
            Presence::Present { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(holder: &str) -> Lease {
        serde_json::from_value(
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}}),
        )
        .unwrap()
    }

    #[test]
    fn an_agent_is_there_until_its_lease_runs_out() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| start + Span::new().seconds(seconds);
        assert_eq!(presence(Some(&lease("a")), at(39)), Presence::Present { until: at(40) });
        assert_eq!(presence(Some(&lease("a")), at(40)), Presence::Absent { since: start });
        assert_eq!(presence(Some(&lease("")), at(1)), Presence::Absent { since: start });
        assert_eq!(presence(None, at(1)), Presence::Never);
        assert!(
            presence(Some(&lease("")), at(1))
                .problem("n1")
                .unwrap()
                .contains("absent since 2026-01-01T00:00:00Z")
        );
    }
}
