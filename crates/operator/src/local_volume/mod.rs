//! The LocalVolume controller: reports how the devices of a LocalVolume stand. The device claims are planned per node
//! (`node_inventory/`); what this shares with LocalVolumeSets is in `device_claim_owner.rs`.

use crate::{
    Context,
    controller::{Controller, Failure, Group, Need, Next},
    device_claim_owner::{self, OwnsDeviceClaims, Violation},
    local_volume_set::DEBOUNCE,
    registry::group,
    trigger::Triggers,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use quarry_api::{
    LocalVolume, LocalVolumeSet, LocalVolumeSpec, LocalVolumeStatus,
    local_volume_discovery::OperatorCondition, node_job::OwnerKind,
};
use quarry_core::{
    device_claim::{
        Demand,
        owner::{self, Observed, Plan},
        status::StatusUpdate,
        world::demand_of_local_volume,
    },
    source::Source,
};
use serde_json::{Value, json};
use std::time::Duration;

pub struct LocalVolumeController;

impl Controller for LocalVolumeController {
    const NAME: &'static str = "localvolume";
    const GROUP: Group = group::DEVICE_CLAIMS;
    const NEEDS: &'static [Need] = &[Need {
        crd: "localvolumes.local.storage.openshift.io",
        fields: &[
            "spec.nodeSelector.nodeSelectorTerms",
            "spec.tolerations",
            "spec.managementState",
            "spec.storageClassDevices.storageClassName",
            "spec.storageClassDevices.volumeMode",
            "spec.storageClassDevices.fsType",
            "spec.storageClassDevices.devicePaths",
            "status.conditions",
            "status.managementState",
            "status.readyReplicas",
            "status.observedGeneration",
        ],
    }];
    const DEBOUNCE: Duration = DEBOUNCE;
    type Observed = (LocalVolume, Observed);
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        device_claim_owner::register::<LocalVolume, LocalVolumeSet>(triggers);
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
        let found = context.caches.get::<LocalVolume>(key)?;
        found.creation_timestamp().map(|time| time.0)
    }
}

impl OwnsDeviceClaims for LocalVolume {
    const KIND: OwnerKind = OwnerKind::LocalVolume;
    type Spec = LocalVolumeSpec;

    fn spec(&self) -> &LocalVolumeSpec {
        &self.spec
    }

    fn demand(&self, source: &impl Source) -> Demand {
        demand_of_local_volume(source, self)
    }

    fn conditions(&self) -> Vec<OperatorCondition> {
        self.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
    }

    fn old_status(&self) -> Value {
        self.status.as_ref().map_or_else(|| json!({}), |status| json!(status))
    }

    fn new_status(&self, update: &StatusUpdate) -> Value {
        let state = self.spec.management_state.clone().filter(|state| !state.is_empty());
        let generations = self.status.as_ref().map(|status| status.generations.clone());
        json!(LocalVolumeStatus {
            observed_generation: self.metadata.generation,
            management_state: state.or_else(|| Some("Managed".to_owned())),
            conditions: update.conditions.clone(),
            ready_replicas: update.provisioned,
            generations: generations.unwrap_or_default(),
        })
    }
}
