//! The LocalVolume controller: reports how the devices of a LocalVolume stand. The device claims are planned per node
//! (`node_inventory/`); what this shares with LocalVolumeSets is in `device_claim_owner.rs`.

use crate::{
    cache::{Cached, namespaced_key},
    controller::Need,
    device_claim_owner::{OwnerController, OwnsDeviceClaims},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quarry_api::{
    LocalVolume, LocalVolumeSet, LocalVolumeSpec, local_volume_discovery::OperatorCondition,
    node_job::OwnerKind,
};
use quarry_core::{
    device_claim::{Demand, owner::OwnerFields, world::demand_of_local_volume},
    source::Source,
};
use serde_json::{Value, json};

impl Cached for LocalVolume {
    fn key(metadata: &ObjectMeta) -> String {
        namespaced_key(metadata)
    }
}

pub type LocalVolumeController = OwnerController<LocalVolume>;

impl OwnsDeviceClaims for LocalVolume {
    const KIND: OwnerKind = OwnerKind::LocalVolume;
    const CONTROLLER: &'static str = "localvolume";
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
    type Spec = LocalVolumeSpec;
    type Rival = LocalVolumeSet;

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

    fn fields(&self) -> OwnerFields {
        OwnerFields::LocalVolume {
            management_state: self.spec.management_state.clone(),
            generations: self
                .status
                .as_ref()
                .map(|status| status.generations.clone())
                .unwrap_or_default(),
        }
    }
}
