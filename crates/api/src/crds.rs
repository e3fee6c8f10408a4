//! The CustomResourceDefinitions, in the order in which they are installed.

use crate::{
    BareMetalHost, CephCluster, HardwareData, LocalVolume, LocalVolumeDiscovery,
    LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory, NodeJob, Volume, names,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// Marks a CRD as ours: `quarry crds apply` overwrites only those that carry it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

pub fn crds() -> Vec<CustomResourceDefinition> {
    [
        NodeInventory::crd(),
        NodeJob::crd(),
        Volume::crd(),
        optional_spec(LocalVolumeDiscovery::crd(), json!({})),
        LocalVolumeDiscoveryResult::crd(),
        LocalVolumeSet::crd(),
        LocalVolume::crd(),
        moved_by_clusterctl(
            optional_spec(BareMetalHost::crd(), json!({"online": false})),
            &[names::CLUSTERCTL_MOVE_HIERARCHY_LABEL],
        ),
        moved_by_clusterctl(optional_spec(HardwareData::crd(), json!({})), &[]),
        CephCluster::crd(),
    ]
    .into_iter()
    .map(|mut crd| {
        let labels = crd.metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY_LABEL.into(), names::MANAGED_BY.into());
        null_is_absent(crd)
    })
    .collect()
}

/// The API server drops a null in a field that is not nullable, so that rules and policies see it as absent. In a
/// nullable field it would stay, and `has()` would be true of it.
fn null_is_absent(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    fn walk(schema: &mut JSONSchemaProps, exempt: &[&str]) {
        schema.nullable = None;
        schema.enum_.iter_mut().for_each(|all| all.retain(|JSON(value)| !value.is_null()));
        for (name, property) in schema.properties.iter_mut().flatten() {
            let nullable = property.nullable.filter(|_| exempt.contains(&name.as_str()));
            walk(property, exempt);
            property.nullable = nullable;
        }
        match &mut schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => walk(items, exempt),
            Some(JSONSchemaPropsOrArray::Schemas(all)) => {
                all.iter_mut().for_each(|items| walk(items, exempt));
            }
            None => {}
        }
        if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
            walk(values, exempt);
        }
    }
    let exempt = if crd.spec.group == "metal3.io" { NULLABLE } else { &[] };
    let versions = crd.spec.versions.iter_mut();
    versions
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
        .for_each(|schema| walk(schema, exempt));
    crd
}

/// Fields of hosts in which null is a value of its own, as upstream: lists of RAID volumes, times of operations.
const NULLABLE: &[&str] = &[
    "hardwareRAIDVolumes",
    "softwareRAIDVolumes",
    "hardwareVolumes",
    "softwareVolumes",
    "start",
    "end",
];

/// Labels by which `clusterctl move` finds the kinds to move. Without them it moves nothing and reports success.
fn moved_by_clusterctl(
    mut crd: CustomResourceDefinition,
    more: &[&str],
) -> CustomResourceDefinition {
    let labels = crd.metadata.labels.get_or_insert_default();
    for label in [names::CLUSTERCTL_LABEL, names::CLUSTERCTL_MOVE_LABEL].iter().chain(more) {
        labels.insert((*label).to_owned(), String::new());
    }
    crd
}

/// As upstream: an object without a spec has the defaults.
fn optional_spec(mut crd: CustomResourceDefinition, default: Value) -> CustomResourceDefinition {
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
            spec.default = Some(JSON(default.clone()));
        }
    }
    crd
}
