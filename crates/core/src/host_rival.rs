//! Whether metal3's own operator drives the BareMetalHosts of a cluster: two operators must never drive one node.
//!
//! Read from its leader Lease. Never does I/O: the caller lists the Leases of that name.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// Another operator that drives hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rival {
    /// The Lease that it renews.
    pub namespace: String,
    pub lease: String,
    /// Empty: it gave the Lease up, and another of its pods may take it.
    pub holder: String,
}

impl Rival {
    /// `baremetal-operator (HOLDER) renews Lease NAMESPACE/NAME`
    pub fn message(&self) -> String {
        let Rival { namespace, lease, holder } = self;
        match holder.as_str() {
            "" => format!(
                "Lease {namespace}/{lease} of baremetal-operator was given up less than a minute ago"
            ),
            _ => format!("baremetal-operator ({holder}) renews Lease {namespace}/{lease}"),
        }
    }
}

/// `None`: no operator holds the Lease, because none ever did, or the last one gave it up.
fn holder(lease: &Lease) -> Option<Rival> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    spec.renew_time.as_ref()?;
    let namespace = lease.namespace().unwrap_or_default();
    Some(Rival { namespace, lease: lease.name_any(), holder })
}

/// A Lease that was renewed this long ago, or less, has a holder. Several of its periods, for clocks that differ.
const RENEWED: SignedDuration = SignedDuration::from_secs(90);

/// The first Lease that has a holder, from one look: its time is compared with our clock, which may differ. For
/// warnings only; who acts on it uses `LeaseWatch`.
pub fn find<'a>(leases: impl IntoIterator<Item = &'a Lease>, now: Timestamp) -> Option<Rival> {
    let renewed = |lease: &Lease| {
        let time = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        time.is_some_and(|time| now.duration_since(time.0) < RENEWED)
    };
    leases.into_iter().filter(|lease| renewed(lease)).find_map(holder)
}

/// Of a Lease that does not say how long it lasts, or that was given up: a rolling update gives it to the next pod within
/// seconds. Four times what operators use.
const UNSTATED: Duration = Duration::from_secs(60);

/// Leases as they were last seen to change. As the leader election of Kubernetes: a Lease is held until it has not changed
/// for as long as it lasts, by our own clock that never jumps. The clock of its holder is compared with nothing.
///
/// A Lease that is seen for the first time counts as changed, so that after a restart one that was left behind is
/// waited for once.
#[derive(Debug, Default)]
pub struct LeaseWatch {
    seen: BTreeMap<(String, String), Renewal>,
}

#[derive(Debug)]
struct Renewal {
    spec: Option<LeaseSpec>,
    /// When it was first seen like this, on a clock of any origin.
    since: Duration,
}

impl LeaseWatch {
    /// What is there now, at `now` on a clock that never jumps. The first Lease that is held.
    pub fn observe(&mut self, leases: &[Lease], now: Duration) -> Option<Rival> {
        let key = |lease: &Lease| (lease.namespace().unwrap_or_default(), lease.name_any());
        self.seen.retain(|known, _| leases.iter().any(|lease| key(lease) == *known));
        for lease in leases {
            let known = self.seen.get(&key(lease));
            if known.is_none_or(|known| known.spec != lease.spec) {
                self.seen.insert(key(lease), Renewal { spec: lease.spec.clone(), since: now });
            }
        }
        leases.iter().find_map(|lease| {
            let renewal = self.seen.get(&key(lease))?;
            let seconds = lease.spec.as_ref()?.lease_duration_seconds;
            let lasts = seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let held = holder(lease);
            let lasts = lasts.filter(|_| held.is_some()).map_or(UNSTATED, Duration::from_secs);
            let given_up = || {
                let namespace = lease.namespace().unwrap_or_default();
                Rival { namespace, lease: lease.name_any(), holder: String::new() }
            };
            let is_recent = now.saturating_sub(renewal.since) < lasts;
            is_recent.then(|| held.unwrap_or_else(given_up))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": "baremetal-operator", "namespace": "metal3"},
            "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15},
        }))
        .unwrap()
    }

    const MESSAGE: &str = "baremetal-operator (bmo-1) renews Lease metal3/baremetal-operator";

    #[test]
    fn one_look_compares_clocks() {
        let now: Timestamp = "2026-01-01T00:01:30Z".parse().unwrap();
        let found = find(&[lease("bmo-1", "2026-01-01T00:00:01.000000Z")], now);
        assert_eq!(found.map(|rival| rival.message()).as_deref(), Some(MESSAGE));
        for old in [
            lease("bmo-1", "2026-01-01T00:00:00.000000Z"),
            lease("", "2026-01-01T00:01:30.000000Z"),
        ] {
            assert_eq!(find(&[old], now), None);
        }
    }

    /// Its clock is years behind or ahead, and stands still for our purposes: only a change counts.
    #[test]
    fn a_lease_is_held_while_it_changes_whatever_its_clock() {
        for year in ["2001", "2026", "2099"] {
            let at =
                |second: u64| lease("bmo-1", &format!("{year}-01-01T00:00:{second:02}.000000Z"));
            let mut watch = LeaseWatch::default();
            for second in [0, 15, 30, 45] {
                let found = watch.observe(&[at(second)], Duration::from_secs(1000 + second));
                assert_eq!(found.map(|rival| rival.message()).as_deref(), Some(MESSAGE), "{year}");
            }
            let last = [at(45)];
            assert!(watch.observe(&last, Duration::from_secs(1045 + 14)).is_some());
            assert_eq!(watch.observe(&last, Duration::from_secs(1045 + 15)), None, "it stopped");
            assert!(watch.observe(&[at(59)], Duration::from_secs(1100)).is_some(), "it is back");
        }
    }

    #[test]
    fn a_lease_that_was_left_behind_is_waited_for_once() {
        let old = [lease("bmo-1", "2020-01-01T00:00:00.000000Z")];
        let mut watch = LeaseWatch::default();
        assert!(watch.observe(&old, Duration::ZERO).is_some(), "it may be renewed yet");
        assert_eq!(watch.observe(&old, Duration::from_secs(15)), None);
        assert_eq!(watch.observe(&old, Duration::from_secs(3600)), None);
    }

    /// Between two pods of one Deployment the Lease has no holder for seconds.
    #[test]
    fn a_lease_that_was_given_up_is_waited_for() {
        let mut watch = LeaseWatch::default();
        let held = |holder: &str, second: u64| {
            [lease(holder, &format!("2026-01-01T00:00:{second:02}.000000Z"))]
        };
        assert!(watch.observe(&held("bmo-1", 0), Duration::ZERO).is_some());
        let found = watch.observe(&held("", 1), Duration::from_secs(1)).unwrap();
        assert!(found.message().contains("was given up"), "{}", found.message());
        assert!(watch.observe(&held("bmo-2", 2), Duration::from_secs(2)).is_some());
        assert!(watch.observe(&held("", 3), Duration::from_secs(3)).is_some());
        assert!(watch.observe(&held("", 3), Duration::from_secs(62)).is_some());
        assert_eq!(watch.observe(&held("", 3), Duration::from_secs(63)), None);
        assert_eq!(watch.observe(&[], Duration::from_secs(64)), None, "it was uninstalled");
    }

    #[test]
    fn a_lease_without_a_duration_lasts_a_minute() {
        let mut lease = lease("bmo-1", "2026-01-01T00:00:00.000000Z");
        lease.spec.as_mut().unwrap().lease_duration_seconds = None;
        let mut watch = LeaseWatch::default();
        assert!(watch.observe(&[lease.clone()], Duration::ZERO).is_some());
        assert!(watch.observe(&[lease.clone()], Duration::from_secs(59)).is_some());
        assert_eq!(watch.observe(&[lease], Duration::from_secs(60)), None);
    }
}
