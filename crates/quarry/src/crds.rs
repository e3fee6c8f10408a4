//! `quarry crds`, `quarry policies`: the CustomResourceDefinitions and admission policies of our kinds.
//!
//! The printed text is committed under `deploy/`; a test compares the two. `apply` writes with the resourceVersion that
//! it read, and replaces a definition that Quarry did not install only with --take-over.

use crate::{
    cli::{ConnectArgs, ManifestFormat},
    connect::Cluster,
    output,
};
use anyhow::bail;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::PostParams};
use quarry_api::{admission, crds::MANAGED_BY_LABEL, names};
use serde::Serialize;
use serde_json::{Value, json};

pub fn render_crds(format: ManifestFormat) -> anyhow::Result<String> {
    render(
        "CustomResourceDefinitions: printed by `quarry crds`, do not edit.",
        &quarry_api::crds::crds(),
        format,
    )
}

pub fn render_policies(format: ManifestFormat) -> anyhow::Result<String> {
    let mut objects = Vec::new();
    for admission::Policy { policy, binding } in admission::policies() {
        objects.push(serde_json::to_value(policy)?);
        objects.push(serde_json::to_value(binding)?);
    }
    render("Admission policies: printed by `quarry policies`, do not edit.", &objects, format)
}

fn render<T: Serialize>(
    header: &str,
    objects: &[T],
    format: ManifestFormat,
) -> anyhow::Result<String> {
    match format {
        ManifestFormat::Yaml => Ok(format!("# {header}\n{}", output::yaml_documents(objects)?)),
        ManifestFormat::Json => output::json(
            &json!({"apiVersion": "v1", "kind": "List", "items": objects.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?}),
        ),
    }
}

/// What to do about one definition.
#[derive(Debug, PartialEq)]
enum Action {
    Create,
    Replace {
        taken_over: bool,
    },
    /// Not installed by Quarry: by whom, according to its labels.
    Skip(String),
}

fn decide(found: Option<&CustomResourceDefinition>, take_over: bool) -> Action {
    let Some(found) = found else { return Action::Create };
    let manager = found
        .metadata
        .labels
        .iter()
        .flatten()
        .find(|(key, _)| *key == MANAGED_BY_LABEL)
        .map(|(_, value)| value.as_str());
    match (manager, take_over) {
        (Some(names::MANAGED_BY), _) => Action::Replace { taken_over: false },
        (_, true) => Action::Replace { taken_over: true },
        (Some(other), false) => Action::Skip(format!("managed by {other}")),
        (None, false) => Action::Skip("not installed by Quarry".into()),
    }
}

/// Our spec with the labels and annotations of others; the resourceVersion that was read guards the write.
fn merged(
    found: CustomResourceDefinition,
    ours: &CustomResourceDefinition,
) -> CustomResourceDefinition {
    let mut merged = found;
    merged.metadata.managed_fields = None;
    merged
        .metadata
        .labels
        .get_or_insert_default()
        .extend(ours.metadata.labels.clone().unwrap_or_default());
    merged
        .metadata
        .annotations
        .get_or_insert_default()
        .extend(ours.metadata.annotations.clone().unwrap_or_default());
    let conversion = merged.spec.conversion.take();
    merged.spec = ours.spec.clone();
    merged.spec.conversion = ours.spec.conversion.clone().or(conversion);
    merged
}

pub async fn apply(connect: &ConnectArgs, take_over: bool) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut skipped = Vec::new();
    for ours in quarry_api::crds::crds() {
        let name = ours.metadata.name.clone().unwrap_or_default();
        let found = cluster
            .call(&format!("reading CustomResourceDefinition {name}"), api.get_opt(&name))
            .await?;
        let done = match (decide(found.as_ref(), take_over), found) {
            (Action::Skip(why), _) => {
                skipped.push(name.clone());
                format!("skipped: {why}")
            }
            (Action::Create, _) => {
                cluster
                    .call(&format!("creating {name}"), api.create(&PostParams::default(), &ours))
                    .await?;
                "created".to_owned()
            }
            (Action::Replace { .. }, None) => continue,
            (Action::Replace { taken_over }, Some(found)) => {
                let before = found.metadata.resource_version.clone();
                let wanted = merged(found.clone(), &ours);
                // The embedded API has these built in, and accepts no writes of them.
                let same =
                    wanted.spec == found.spec && wanted.metadata.labels == found.metadata.labels;
                let after = if same {
                    found
                } else {
                    cluster
                        .call(
                            &format!("updating {name}"),
                            api.replace(&name, &PostParams::default(), &wanted),
                        )
                        .await?
                };
                let word = if taken_over { "taken over" } else { "updated" };
                if after.metadata.resource_version == before {
                    "unchanged".to_owned()
                } else {
                    word.to_owned()
                }
            }
        };
        output::print(&format!("customresourcedefinition/{name} {done}"))?;
    }
    if !skipped.is_empty() {
        bail!(
            "skipped {}: the operator uses existing definitions as far as their fields allow, and reports what is missing; replace them with `quarry crds apply --take-over`",
            skipped.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_label(value: Option<&str>) -> CustomResourceDefinition {
        let mut crd = quarry_api::crds::crds().remove(0);
        crd.metadata.labels =
            value.map(|value| [(MANAGED_BY_LABEL.to_owned(), value.to_owned())].into());
        crd
    }

    #[test]
    fn other_definitions_are_replaced_only_with_take_over() {
        assert_eq!(decide(None, false), Action::Create);
        assert_eq!(
            decide(Some(&with_label(Some("quarry"))), false),
            Action::Replace { taken_over: false }
        );
        assert_eq!(
            decide(Some(&with_label(Some("Helm"))), false),
            Action::Skip("managed by Helm".into())
        );
        assert_eq!(
            decide(Some(&with_label(None)), false),
            Action::Skip("not installed by Quarry".into())
        );
        assert_eq!(decide(Some(&with_label(None)), true), Action::Replace { taken_over: true });
    }

    #[test]
    fn take_over_keeps_labels_and_annotations() {
        let mut found = with_label(Some("Helm"));
        found.metadata.annotations = Some([("note".to_owned(), "kept".to_owned())].into());
        found.metadata.resource_version = Some("7".into());
        found.spec.versions.clear();
        let result = merged(found, &quarry_api::crds::crds()[0]);
        assert_eq!(result.metadata.labels.unwrap()[MANAGED_BY_LABEL], "quarry");
        assert_eq!(result.metadata.annotations.unwrap()["note"], "kept");
        assert_eq!(result.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(result.spec.versions.len(), 1);
    }

    fn committed(file: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
        std::fs::read_to_string(&path).unwrap_or_default()
    }

    #[test]
    fn committed_definitions_match_the_code() {
        assert!(
            committed("crds.yaml") == render_crds(ManifestFormat::Yaml).unwrap(),
            "deploy/crds.yaml is outdated: cargo run -p quarry -- crds > deploy/crds.yaml"
        );
    }

    #[test]
    fn committed_policies_match_the_code() {
        assert!(
            committed("policies.yaml") == render_policies(ManifestFormat::Yaml).unwrap(),
            "deploy/policies.yaml is outdated: cargo run -p quarry -- policies > deploy/policies.yaml"
        );
    }

    #[test]
    fn printed_definitions_read_back_unchanged() {
        let text = render_crds(ManifestFormat::Yaml).unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let made: Vec<Value> =
            quarry_api::crds::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
        assert_eq!(read, made);
    }
}
