//! Whether metal3's own operator drives the BareMetalHosts of a cluster: two operators must never drive one node.
//!
//! Read from its leader Lease. Never does I/O: the caller lists the Leases of that name.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use serde::Serialize;

/// A Lease that was renewed this long ago, or less, has a holder. Several of its periods, for clocks that differ.
pub const RENEWED: SignedDuration = SignedDuration::from_secs(90);

/// Another operator that drives hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rival {
    /// The Lease that it renews.
    pub namespace: String,
    pub lease: String,
    pub holder: String,
}

impl Rival {
    /// `baremetal-operator (HOLDER) renews Lease NAMESPACE/NAME`
    pub fn message(&self) -> String {
        let Rival { namespace, lease, holder } = self;
        format!("baremetal-operator ({holder}) renews Lease {namespace}/{lease}")
    }
}

/// The first Lease that has a holder now.
pub fn find<'a>(leases: impl IntoIterator<Item = &'a Lease>, now: Timestamp) -> Option<Rival> {
    leases.into_iter().find_map(|lease| {
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        let renewed = spec.renew_time.as_ref()?;
        (now.duration_since(renewed.0) < RENEWED).then(|| Rival {
            namespace: lease.namespace().unwrap_or_default(),
            lease: lease.name_any(),
            holder,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": "baremetal-operator", "namespace": "metal3"},
            "spec": {"holderIdentity": holder, "renewTime": renewed},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_renewed_lease_has_a_holder() {
        let now: Timestamp = "2026-01-01T00:01:30Z".parse().unwrap();
        let found = find(&[lease("bmo-1", "2026-01-01T00:00:01.000000Z")], now);
        let message = found.map(|rival| rival.message());
        assert_eq!(
            message.as_deref(),
            Some("baremetal-operator (bmo-1) renews Lease metal3/baremetal-operator")
        );
        for old in [
            lease("bmo-1", "2026-01-01T00:00:00.000000Z"),
            lease("", "2026-01-01T00:01:30.000000Z"),
        ] {
            assert_eq!(find(&[old], now), None);
        }
    }
}
