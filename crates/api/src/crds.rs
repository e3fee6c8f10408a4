//! The CustomResourceDefinitions, in the order in which they are installed.

use crate::{
    LocalVolume, LocalVolumeDiscovery, LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory,
    NodeJob, Volume,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
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
        null_is_absent(crd)
    })
    .collect()
}

/// The API server drops a null in a field that is not nullable, so that rules and policies see it as absent. In a
/// nullable field it would stay, and `has()` would be true of it.
fn null_is_absent(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    fn walk(schema: &mut JSONSchemaProps) {
        schema.nullable = None;
        schema.properties.iter_mut().flatten().for_each(|(_, property)| walk(property));
        match &mut schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => walk(items),
            Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(walk),
            None => {}
        }
        if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
            walk(values);
        }
    }
    let versions = crd.spec.versions.iter_mut();
    versions
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
        .for_each(walk);
    crd
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
