//! At start: does each installed CRD serve the fields that we read and write? Else its controller stays off.

use crate::driver::ControllerName;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::{Api, Client};

/// The paths that must be in the served schema, by CRD, and whose controller needs them; without one: everybody's.
const NEEDED: &[(&str, Option<ControllerName>, &[&str])] = &[
    (
        "volumes.storage.metalk8s.scality.com",
        Some(ControllerName::Volume),
        &[
            "spec.nodeName",
            "spec.storageClassName",
            "spec.sparseLoopDevice.size",
            "spec.mode",
            "status.conditions",
            "status.job",
            "status.deviceName",
            "status.phase",
        ],
    ),
    (
        "nodejobs.quarry.dev",
        None,
        &[
            "spec.action",
            "spec.nodeName",
            "spec.precondition.specHash",
            "status.phase",
            "status.result.path",
        ],
    ),
    (
        "nodeinventories.quarry.dev",
        None,
        &[
            "spec.deviceClaims",
            "spec.quarantine",
            "spec.unmanagedPVs",
            "spec.unmanagedPVsOmitted",
            "status.devices",
            "status.nodeUID",
        ],
    ),
    (
        "nodeinventories.quarry.dev",
        Some(ControllerName::LocalVolumeSet),
        &[
            "spec.deviceClaims.round",
            "spec.deviceClaims.lastPV",
            "spec.paths",
            "spec.machineID",
            "spec.retainedData",
            "spec.wipeRemnants",
            "status.deviceClaims",
            "status.paths",
        ],
    ),
    (
        "nodejobs.quarry.dev",
        Some(ControllerName::LocalVolumeSet),
        &["spec.device.claimed.pvUID", "spec.parameters.wipe.policy", "status.progress"],
    ),
    (
        "localvolumesets.local.storage.openshift.io",
        Some(ControllerName::LocalVolumeSet),
        &[
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
    ),
    (
        "localvolumes.local.storage.openshift.io",
        Some(ControllerName::LocalVolume),
        &[
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
    ),
    (
        "localvolumediscoveries.local.storage.openshift.io",
        Some(ControllerName::Discovery),
        &[
            "spec.nodeSelector.nodeSelectorTerms",
            "spec.tolerations",
            "status.phase",
            "status.conditions",
            "status.observedGeneration",
        ],
    ),
    (
        "localvolumediscoveryresults.local.storage.openshift.io",
        Some(ControllerName::Discovery),
        &["spec.nodeName", "status.discoveredTimeStamp", "status.discoveredDevices"],
    ),
];

/// What is missing, as sentences; empty means that everything is served.
#[derive(Debug, Default)]
pub struct Missing {
    /// Nothing works without it.
    pub for_all: Vec<String>,
    /// Only these controllers need it.
    pub for_some: Vec<(ControllerName, String)>,
}

pub async fn missing_fields(
    client: &Client,
    controllers: &[ControllerName],
) -> Result<Missing, kube::Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut missing = Missing::default();
    for (name, by, paths) in needed(controllers) {
        let lacking = match api.get_opt(name).await? {
            None => {
                vec![format!("the CRD {name} is not installed: install it with quarry crds apply")]
            }
            Some(crd) => lacking(&crd, paths),
        };
        match by {
            None => missing.for_all.extend(lacking),
            Some(by) => missing.for_some.extend(lacking.into_iter().map(|what| (*by, what))),
        }
    }
    Ok(missing)
}

fn needed(
    controllers: &[ControllerName],
) -> impl Iterator<Item = &'static (&'static str, Option<ControllerName>, &'static [&'static str])>
{
    NEEDED.iter().filter(|(_, by, _)| by.is_none_or(|by| controllers.contains(&by)))
}

fn lacking(crd: &CustomResourceDefinition, paths: &[&str]) -> Vec<String> {
    let name = crd.metadata.name.as_deref().unwrap_or_default();
    let Some(schema) = crd
        .spec
        .versions
        .iter()
        .find(|version| version.served)
        .and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref())
    else {
        return vec![format!("the CRD {name} serves no schema")];
    };
    paths
        .iter()
        .filter(|path| !serves(schema, path))
        .map(|path| {
            format!(
                "the CRD {name} does not serve {path}: update it with quarry crds apply --take-over"
            )
        })
        .collect()
}

fn serves(schema: &JSONSchemaProps, path: &str) -> bool {
    let (first, rest) =
        path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        return true;
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        return serves(items, path);
    }
    match (schema.properties.as_ref().and_then(|properties| properties.get(first)), rest) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(next), Some(rest)) => serves(next, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_of_controllers_that_are_on_are_needed() {
        let names = |controllers: &[ControllerName]| {
            needed(controllers)
                .map(|(name, _, _)| name.split('.').next().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(&[ControllerName::NodeInventory, ControllerName::Agent]),
            ["nodejobs", "nodeinventories"]
        );
        assert_eq!(names(&[ControllerName::Volume]), ["volumes", "nodejobs", "nodeinventories"]);
        assert_eq!(names(&ControllerName::ALL).len(), NEEDED.len());
    }

    /// A field that a CRD does not serve is dropped without a word: an exclusion that nobody sees would cost a disk.
    #[test]
    fn every_field_of_a_set_that_means_something_is_needed() {
        let set = quarry_api::crds::crds()
            .into_iter()
            .find(|crd| {
                crd.metadata.name.as_deref() == Some("localvolumesets.local.storage.openshift.io")
            })
            .unwrap();
        let (_, _, needed) =
            NEEDED.iter().find(|(name, _, _)| name.starts_with("localvolumesets.")).unwrap();
        let schema =
            set.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let mut leaves: Vec<String> = Vec::new();
        fn walk(schema: &JSONSchemaProps, path: &str, depth: usize, leaves: &mut Vec<String>) {
            match schema
                .properties
                .as_ref()
                .filter(|properties| !properties.is_empty() && depth < 3)
            {
                Some(properties) => properties.iter().for_each(|(name, next)| {
                    walk(next, &format!("{path}.{name}"), depth + 1, leaves)
                }),
                None => leaves.push(path.to_owned()),
            }
        }
        walk(&schema.properties.as_ref().unwrap()["spec"], "spec", 1, &mut leaves);
        let mut listed: Vec<String> = needed
            .iter()
            .filter(|path| path.starts_with("spec."))
            .map(|path| (*path).to_owned())
            .collect();
        leaves.sort();
        listed.sort();
        assert_eq!(listed, leaves);
    }

    #[test]
    fn our_own_definitions_serve_what_we_need_and_the_shipped_volume_lacks_the_phase() {
        for (name, _, paths) in NEEDED {
            let mut crd = quarry_api::crds::crds()
                .into_iter()
                .find(|crd| crd.metadata.name.as_deref() == Some(name))
                .unwrap();
            assert_eq!(lacking(&crd, paths), Vec::<String>::new());
            let schema =
                crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            schema
                .properties
                .as_mut()
                .unwrap()
                .get_mut("status")
                .unwrap()
                .properties
                .as_mut()
                .unwrap()
                .clear();
            assert!(!lacking(&crd, paths).is_empty());
        }
    }
}
