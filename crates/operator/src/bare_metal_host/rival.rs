//! Whether metal3's operator runs in this cluster: two operators must never drive one node.

use crate::{Context, controller::Failure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use quarry_api::names;
use quarry_core::host_rival::LeaseWatch;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// How long an answer counts. A rival that starts is noticed within this time.
const AGE: Duration = Duration::from_secs(15);

/// The operator that drives BareMetalHosts already; `None`: there is none.
pub async fn active(context: &Context) -> Result<Option<String>, Failure> {
    let Some(hosts) = &context.hosts else { return Ok(None) };
    if let Some(known) = hosts.rival.known(Instant::now()) {
        return Ok(known);
    }
    let leases: Api<Lease> = Api::all(context.client.clone());
    let name = format!("metadata.name={}", names::METAL3_LEADER_LEASE);
    let found = leases.list(&ListParams::default().fields(&name)).await;
    let found =
        found.map_err(|error| Failure::api("listing the Leases of other operators", error))?;
    let (rival, is_new) = hosts.rival.learn(&found.items, Instant::now());
    context.metrics.set_host_rival(rival.is_some());
    match &rival {
        Some(rival) if is_new => tracing::error!(rival, "stopped driving BareMetalHosts"),
        None if is_new => tracing::info!("started driving BareMetalHosts"),
        Some(_) | None => {}
    }
    Ok(rival)
}

/// The last answer, so that 500 hosts ask once, and what it was concluded from. Forgotten with the process: the next one
/// waits until a Lease that it finds has not been renewed for its time.
#[derive(Debug, Default)]
pub struct LastAnswer(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    leases: LeaseWatch,
    /// When the first answer came: the origin of our clock.
    begun: Option<Instant>,
    answer: Option<(Instant, Option<String>)>,
}

impl LastAnswer {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: it is too old.
    fn known(&self, now: Instant) -> Option<Option<String>> {
        let known = self.lock();
        let (at, rival) = known.answer.as_ref()?;
        (now.duration_since(*at) < AGE).then(|| rival.clone())
    }

    /// The rival, and whether the answer differs from the last one.
    fn learn(&self, leases: &[Lease], now: Instant) -> (Option<String>, bool) {
        let mut known = self.lock();
        let begun = *known.begun.get_or_insert(now);
        let rival = known.leases.observe(leases, now.duration_since(begun));
        let rival = rival.map(|rival| rival.message());
        let last = known.answer.replace((now, rival.clone()));
        let is_new = last.is_none_or(|(_, last)| last.is_some() != rival.is_some());
        (rival, is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(second: u32) -> Vec<Lease> {
        // The clock of its holder is far ahead of ours.
        let renewed = format!("2099-01-01T00:00:{second:02}.000000Z");
        let spec =
            json!({"holderIdentity": "bmo", "renewTime": renewed, "leaseDurationSeconds": 15});
        let metadata = json!({"name": names::METAL3_LEADER_LEASE, "namespace": "metal3"});
        vec![serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()]
    }

    #[test]
    fn a_rival_is_followed_by_our_own_clock() {
        let (answer, begun) = (LastAnswer::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(answer.known(begun), None, "not asked yet");
        let (rival, is_new) = answer.learn(&lease(1), begun);
        assert!(rival.is_some() && is_new);
        assert_eq!(answer.known(after(14)), Some(rival), "500 hosts ask once");
        assert_eq!(answer.known(after(15)), None);
        assert!(!answer.learn(&lease(13), after(15)).1, "as before");
        let (rival, is_new) = answer.learn(&lease(13), after(30));
        assert_eq!((rival, is_new), (None, true), "not renewed for 15 seconds of ours");
        assert_eq!(answer.known(after(31)), Some(None));
    }
}
