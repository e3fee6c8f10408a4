//! The CustomResourceDefinitions, in the order in which they are installed.

use crate::{
    LocalVolume, LocalVolumeDiscovery, LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory,
    NodeJob, Volume,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON,
};
use kube::CustomResourceExt;

/// Marks a CRD as ours: `quarry crds apply` overwrites only those that carry it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

pub fn crds() -> Vec<CustomResourceDefinition> {
    [
        NodeInventory::crd(),
        NodeJob::crd(),
        Volume::crd(),
        optional_spec(LocalVolumeDiscovery::crd()),
        LocalVolumeDiscoveryResult::crd(),
        LocalVolumeSet::crd(),
        LocalVolume::crd(),
    ]
    .into_iter()
    .map(|mut crd| {
        let labels = crd.metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY_LABEL.into(), crate::names::MANAGED_BY.into());
        crd
    })
    .collect()
}

/// As upstream: an object without a spec has the defaults.
fn optional_spec(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for schema in crd
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
    {
        schema.required = schema
            .required
            .take()
            .map(|fields| fields.into_iter().filter(|field| field != "spec").collect())
            .filter(|fields: &Vec<_>| !fields.is_empty());
        if let Some(spec) = schema.properties.as_mut().and_then(|fields| fields.get_mut("spec")) {
            spec.default = Some(JSON(serde_json::json!({})));
        }
    }
    crd
}
