//! The LocalVolumeSet controller: reports how the devices of a set stand. The device claims are planned per node
//! (`node_inventory/`); what this shares with LocalVolumes is in `device_claim_owner.rs`.

use crate::{
    Context,
    controller::{Controller, Failure, Group, Need, Next},
    device_claim_owner::{self, OwnsDeviceClaims, Violation},
    registry::group,
    trigger::Triggers,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use quarry_api::{
    LocalVolume, LocalVolumeSet, LocalVolumeSetSpec, LocalVolumeSetStatus,
    local_volume_discovery::OperatorCondition, node_job::OwnerKind,
};
use quarry_core::{
    device_claim::{
        Demand,
        owner::{self, Observed, Plan},
        status::StatusUpdate,
        world::demand_of_set,
    },
    source::Source,
};
use serde_json::{Value, json};
use std::time::Duration;

pub struct LocalVolumeSetController;

/// A thousand disks are one status, not a thousand.
pub const DEBOUNCE: Duration = Duration::from_millis(200);

impl Controller for LocalVolumeSetController {
    const NAME: &'static str = "localvolumeset";
    const GROUP: Group = group::DEVICE_CLAIMS;
    const NEEDS: &'static [Need] = &[
        Need {
            crd: "localvolumesets.local.storage.openshift.io",
            fields: &[
                "spec.nodeSelector.nodeSelectorTerms",
                "spec.tolerations",
                "spec.storageClassName",
                "spec.minDeviceCount",
                "spec.maxDeviceCount",
                "spec.volumeMode",
                "spec.fsType",
                "spec.fstype",
                "spec.deviceInclusionSpec.deviceTypes",
                "spec.deviceInclusionSpec.devices",
                "spec.deviceInclusionSpec.deviceMechanicalProperties",
                "spec.deviceInclusionSpec.deviceMechanicalProperty",
                "spec.deviceInclusionSpec.minSize",
                "spec.deviceInclusionSpec.maxSize",
                "spec.deviceInclusionSpec.models",
                "spec.deviceInclusionSpec.vendors",
                "spec.deviceExclusionSpec.deviceNameFilter",
                "status.conditions",
                "status.totalProvisionedDeviceCount",
                "status.observedGeneration",
            ],
        },
        Need {
            crd: "nodeinventories.quarry.dev",
            fields: &[
                "spec.deviceClaims.round",
                "spec.deviceClaims.lastPV",
                "spec.paths",
                "spec.machineID",
                "spec.retainedData",
                "spec.wipeRemnants",
                "status.deviceClaims",
                "status.paths",
            ],
        },
        Need {
            crd: "nodejobs.quarry.dev",
            fields: &[
                "spec.device.claimed.pvUID",
                "spec.parameters.wipe.policy",
                "status.progress",
            ],
        },
    ];
    const DEBOUNCE: Duration = DEBOUNCE;
    type Observed = (LocalVolumeSet, Observed);
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        device_claim_owner::register::<LocalVolumeSet, LocalVolume>(triggers);
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Self::Observed>, Failure> {
        device_claim_owner::observe(context, key).await
    }

    fn plan((_, observed): &Self::Observed, now: Timestamp) -> Plan {
        owner::plan(observed, now)
    }

    fn check((_, observed): &Self::Observed, plan: &Plan) -> Vec<Violation> {
        owner::check(observed, plan)
    }

    async fn apply(
        context: &Context,
        (found, observed): &Self::Observed,
        plan: Plan,
    ) -> Result<Next, Failure> {
        device_claim_owner::apply(context, found, observed, plan).await
    }

    fn subject((found, _): &Self::Observed) -> Option<ObjectReference> {
        Some(found.object_ref(&()))
    }

    fn waiting_since(context: &Context, key: &str) -> Option<Timestamp> {
        let found = context.caches.get::<LocalVolumeSet>(key)?;
        found.creation_timestamp().map(|time| time.0)
    }
}

impl OwnsDeviceClaims for LocalVolumeSet {
    const KIND: OwnerKind = OwnerKind::LocalVolumeSet;
    type Spec = LocalVolumeSetSpec;

    fn spec(&self) -> &LocalVolumeSetSpec {
        &self.spec
    }

    fn demand(&self, source: &impl Source) -> Demand {
        demand_of_set(source, self)
    }

    fn conditions(&self) -> Vec<OperatorCondition> {
        self.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
    }

    fn old_status(&self) -> Value {
        self.status.as_ref().map_or_else(|| json!({}), |status| json!(status))
    }

    fn new_status(&self, update: &StatusUpdate) -> Value {
        json!(LocalVolumeSetStatus {
            conditions: update.conditions.clone(),
            total_provisioned_device_count: Some(update.provisioned),
            observed_generation: self.metadata.generation,
        })
    }
}
