//! At start: do the installed CRDs serve the fields that controllers read and write? Else their group stays off.

use crate::{
    controller::{Group, Need},
    driver::RunError,
    registry::Registry,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::{Api, Client};

/// Quarry's own kinds, without which no controller works.
pub const BASE: &[Need] = &[
    Need {
        crd: "nodejobs.quarry.dev",
        fields: &[
            "spec.action",
            "spec.nodeName",
            "spec.precondition.specHash",
            "status.phase",
            "status.result.path",
        ],
    },
    Need {
        crd: "nodeinventories.quarry.dev",
        fields: &[
            "spec.deviceClaims",
            "spec.quarantine",
            "spec.unmanagedPVs",
            "spec.unmanagedPVsOmitted",
            "status.devices",
            "status.nodeUID",
        ],
    },
];

/// The groups whose CRDs serve all that they need; each of the others is reported with what is missing.
pub async fn served(client: &Client, mut registry: Registry) -> Result<Registry, RunError> {
    let missing = missing(client, BASE).await.map_err(RunError::Preflight)?;
    if !missing.is_empty() {
        return Err(RunError::Unserved(missing.join("; ")));
    }
    for (group, missing) in
        missing_of_groups(client, &registry).await.map_err(RunError::Preflight)?
    {
        for what in missing {
            tracing::error!(
                group,
                what,
                "skipped this group; correct the CRD, then restart the operator"
            );
        }
        registry = registry.without(group);
    }
    Ok(registry)
}

/// Groups with unmet needs, and what is missing.
pub async fn missing_of_groups(
    client: &Client,
    registry: &Registry,
) -> Result<Vec<(Group, Vec<String>)>, kube::Error> {
    let mut found = Vec::new();
    for group in registry.groups() {
        let mut all = Vec::new();
        for controller in registry.controllers().iter().filter(|one| one.group == group) {
            all.extend(missing(client, controller.needs).await?);
        }
        if !all.is_empty() {
            found.push((group, all));
        }
    }
    Ok(found)
}

async fn missing(client: &Client, needs: &[Need]) -> Result<Vec<String>, kube::Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut found = Vec::new();
    for Need { crd: name, fields } in needs {
        match api.get_opt(name).await? {
            None => found.push(format!(
                "the CRD {name} is not installed; install it with `quarry crds apply`"
            )),
            Some(crd) => found.extend(lacking(&crd, fields)),
        }
    }
    Ok(found)
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
                "the CRD {name} does not serve {path}; update it with `quarry crds apply --take-over`"
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

    fn crd(name: &str) -> CustomResourceDefinition {
        let mut all = quarry_api::crds::crds().into_iter();
        all.find(|crd| crd.metadata.name.as_deref() == Some(name)).unwrap()
    }

    fn needs() -> Vec<Need> {
        let registry = Registry::standard();
        let all = registry.controllers().iter().flat_map(|controller| controller.needs);
        BASE.iter().chain(all).copied().collect()
    }

    /// The API server drops a field that the CRD lacks without a word: an exclusion that is not seen would cost a disk.
    #[test]
    fn every_field_of_a_set_is_needed() {
        let name = "localvolumesets.local.storage.openshift.io";
        let set = crd(name);
        let needed = needs().into_iter().find(|need| need.crd == name).unwrap().fields;
        let schema =
            set.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let mut leaves: Vec<String> = Vec::new();
        fn walk(schema: &JSONSchemaProps, path: &str, depth: usize, leaves: &mut Vec<String>) {
            let inner = schema.properties.as_ref();
            match inner.filter(|properties| !properties.is_empty() && depth < 3) {
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
    fn our_crds_serve_what_is_needed() {
        for Need { crd: name, fields } in needs() {
            let mut crd = crd(name);
            assert_eq!(lacking(&crd, fields), Vec::<String>::new());
            let schema =
                crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            let properties = schema.properties.as_mut().unwrap();
            for part in properties.values_mut() {
                (part.properties, part.x_kubernetes_preserve_unknown_fields) = (None, None);
            }
            assert!(!lacking(&crd, fields).is_empty());
        }
    }
}
