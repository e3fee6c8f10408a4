//! Whether metal3's operator runs in this cluster: two operators must never drive one node.

use crate::{Context, controller::Failure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use quarry_api::names;
use quarry_core::host_rival;

/// How long an answer counts. A rival that starts is noticed within this time.
const AGE: SignedDuration = SignedDuration::from_secs(15);

/// The operator that drives BareMetalHosts already; `None`: there is none.
pub async fn active(context: &Context) -> Result<Option<String>, Failure> {
    let Some(hosts) = &context.hosts else { return Ok(None) };
    let now = context.now();
    if let Some(known) = hosts.rival.known(now, AGE) {
        return Ok(known);
    }
    let leases: Api<Lease> = Api::all(context.client.clone());
    let name = format!("metadata.name={}", names::METAL3_LEADER_LEASE);
    let found = leases.list(&ListParams::default().fields(&name)).await;
    let found =
        found.map_err(|error| Failure::api("listing the Leases of other operators", error))?;
    let rival = host_rival::find(&found.items, now).map(|rival| rival.message());
    let is_new = hosts.rival.learn(now, rival.clone());
    context.metrics.set_host_rival(rival.is_some());
    match &rival {
        Some(rival) if is_new => tracing::error!(rival, "stopped driving BareMetalHosts"),
        None if is_new => tracing::info!("started driving BareMetalHosts"),
        Some(_) | None => {}
    }
    Ok(rival)
}

/// The last answer, so that 500 hosts ask once.
#[derive(Debug, Default)]
pub struct LastAnswer(std::sync::Mutex<Option<(Timestamp, Option<String>)>>);

impl LastAnswer {
    fn known(&self, now: Timestamp, age: SignedDuration) -> Option<Option<String>> {
        let known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known
            .as_ref()
            .filter(|(at, _)| now.duration_since(*at) < age)
            .map(|(_, rival)| rival.clone())
    }

    /// Whether it differs from the last one.
    fn learn(&self, now: Timestamp, rival: Option<String>) -> bool {
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_new = known.as_ref().is_none_or(|(_, last)| last.is_some() != rival.is_some());
        *known = Some((now, rival));
        is_new
    }
}
