//! The LocalVolumeSet controller: reports how the devices of a set stand. The device claims are planned per node
//! (`node_inventory/`); what this shares with LocalVolumes is in `device_claim_owner.rs`.

use crate::{
    cache::{Cached, namespaced_key},
    controller::Need,
    device_claim_owner::{OwnerController, OwnsDeviceClaims},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quarry_api::{
    LocalVolume, LocalVolumeSet, LocalVolumeSetSpec, local_volume_discovery::OperatorCondition,
    node_job::OwnerKind,
};
use quarry_core::{
    device_claim::{Demand, owner::OwnerFields, world::demand_of_set},
    source::Source,
};
use serde_json::{Value, json};

impl Cached for LocalVolumeSet {
    fn key(metadata: &ObjectMeta) -> String {
        namespaced_key(metadata)
    }
}

pub type LocalVolumeSetController = OwnerController<LocalVolumeSet>;

impl OwnsDeviceClaims for LocalVolumeSet {
    const KIND: OwnerKind = OwnerKind::LocalVolumeSet;
    const CONTROLLER: &'static str = "localvolumeset";
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
                "spec.deviceClaims.lastPV.pvcUID",
                "spec.paths",
                "spec.machineID",
                "spec.retainedData.disk",
                "spec.wipeRemnants.disk",
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
    type Spec = LocalVolumeSetSpec;
    type Rival = LocalVolume;

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

    fn fields(&self) -> OwnerFields {
        OwnerFields::LocalVolumeSet
    }
}
