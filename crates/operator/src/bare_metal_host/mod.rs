//! The BareMetalHost controller: registers hosts in Ironic, has them inspected, and keeps what was found. Decided in
//! `quarry_core::bare_metal_host`.

mod apply;
pub mod ironic;
mod observe;
mod rival;
mod triggers;

pub use ironic::{HostOptions, Ironic};

use crate::{
    Context,
    cache::{Cached, namespaced_key},
    controller::{Controller, Failure, Group, Need, Next},
    registry::group,
    trigger::Triggers,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use quarry_api::{BareMetalHost, HardwareData, names};
use quarry_core::bare_metal_host::{self, Observed, Plan, check::Violation};

impl Cached for BareMetalHost {
    /// `status.hardware` of a large machine takes hundreds of kilobytes.
    const PACKED: bool = true;

    fn key(metadata: &ObjectMeta) -> String {
        namespaced_key(metadata)
    }
}

impl Cached for HardwareData {
    const PACKED: bool = true;

    fn key(metadata: &ObjectMeta) -> String {
        namespaced_key(metadata)
    }
}

/// Only those that hosts use: all others are none of the operator's business.
impl Cached for Secret {
    const SELECTOR: Option<(&'static str, &'static str)> = Some(names::HOST_SECRET_LABEL);

    fn key(metadata: &ObjectMeta) -> String {
        namespaced_key(metadata)
    }
}

pub struct BareMetalHostController;

impl Controller for BareMetalHostController {
    const NAME: &'static str = "baremetalhost";
    const GROUP: Group = group::HOSTS;
    const NEEDS: &'static [Need] = &[
        Need {
            crd: "baremetalhosts.metal3.io",
            fields: &[
                "spec.bmc.address",
                "spec.bmc.credentialsName",
                "spec.bmc.disableCertificateVerification",
                "spec.bootMACAddress",
                "spec.bootMode",
                "spec.online",
                "spec.externallyProvisioned",
                "spec.automatedCleaningMode",
                "spec.architecture",
                "spec.disablePowerOff",
                "spec.inspectionMode",
                "status.provisioning.state",
                "status.provisioning.ID",
                "status.operationHistory.inspect.start",
                "status.goodCredentials.credentialsVersion",
                "status.conditions",
            ],
        },
        Need { crd: "hardwaredata.metal3.io", fields: &["spec.hardware.storage"] },
    ];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers::register(triggers);
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Observed>, Failure> {
        observe::observe(context, key).await
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        bare_metal_host::plan(observed, now)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        bare_metal_host::check::check(observed, plan)
    }

    async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        apply::apply(context, observed, plan).await
    }

    fn subject(observed: &Observed) -> Option<ObjectReference> {
        Some(observed.host.object_ref(&()))
    }

    fn waiting_since(context: &Context, key: &str) -> Option<Timestamp> {
        let host = context.caches.get::<BareMetalHost>(key)?;
        host.status.as_ref().and_then(|status| status.last_updated.as_ref()).map(|time| time.0)
    }
}
