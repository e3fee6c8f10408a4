//! `quarry volume create`: checks every argument first, then creates the volume and follows it with --wait.

use super::follow::{self, Goal};
use crate::{
    cli::{ConnectArgs, CreateArgs, Mode},
    connect::Cluster,
    output,
};
use anyhow::{anyhow, bail};
use k8s_openapi::api::{core::v1::Node, storage::v1::StorageClass};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use quarry_api::{
    Quantity, Volume, VolumeSpec, names, validate,
    volume::{PersistentVolumeTemplate, SparseLoopDevice, TemplateMetadata, VolumeMode},
};
use std::collections::BTreeMap;

pub async fn run(connect: &ConnectArgs, args: &CreateArgs) -> anyhow::Result<()> {
    // A typing error is reported before any request; the node is not known yet and not checked.
    build(args, args.node.as_deref().unwrap_or("unknown"))?;
    let cluster = Cluster::connect(connect).await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let found: Vec<String> = cluster
        .call("listing nodes", nodes.list_metadata(&ListParams::default()))
        .await?
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    let node = choose_node(args.node.as_deref(), &found)?;
    let volume = build(args, &node)?;
    if !found.contains(&node) {
        output::note(&format!(
            "warning: node {node} does not exist (nodes: {}): the volume waits until it has joined",
            found.join(", ")
        ));
    }
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    if cluster
        .call("reading the StorageClass", super::optional(classes.get(&args.class)))
        .await?
        .is_none()
    {
        output::note(&format!(
            "warning: StorageClass {} does not exist: the volume waits until it is created",
            args.class
        ));
    }
    let api: Api<Volume> = Api::all(cluster.client.clone());
    let attempt = format!("creating volume {}", args.name);
    let created = match cluster
        .call(&attempt, async { Ok(api.create(&PostParams::default(), &volume).await) })
        .await?
    {
        Ok(created) => created,
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            bail!(
                "volume {} already exists; run `quarry explain volume/{0}` to see its state, or `quarry volume delete {0}` to delete it",
                args.name
            )
        }
        Err(error) => return Err(cluster.error(&attempt, error)),
    };
    if !args.wait.wait {
        return output::print(&format!(
            "volume {} created (follow it with `quarry volumes --watch`)",
            args.name
        ));
    }
    let done = follow::follow(&cluster, &created, Goal::Available, args.wait.timeout).await?;
    output::print(&done)
}

/// The named node, or the only one.
fn choose_node(named: Option<&str>, found: &[String]) -> anyhow::Result<String> {
    match (named, found) {
        (Some(node), _) => Ok(node.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (None, []) => Err(anyhow!("the cluster has no nodes; add a node that holds the storage")),
        (None, several) => Err(anyhow!(
            "the cluster has several nodes; choose one with --node: {}",
            several.join(", ")
        )),
    }
}

/// The object, or every problem of the arguments.
fn build(args: &CreateArgs, node: &str) -> anyhow::Result<Volume> {
    let mut problems = Vec::new();
    if let Some(wrong) = name_problem(&args.name) {
        problems.push(format!("name: {wrong}"));
    }
    let mut labels = BTreeMap::new();
    for label in &args.labels {
        match parse_label(label) {
            Ok((key, value)) => {
                if labels.insert(key.to_owned(), value.to_owned()).is_some_and(|old| old != value) {
                    problems.push(format!("--label {key}: given twice with different values"));
                }
            }
            Err(wrong) => problems.push(format!("--label {label}: {wrong}")),
        }
    }
    let mode = match args.mode {
        Mode::Filesystem => VolumeMode::Filesystem,
        Mode::Block => VolumeMode::Block,
    };
    let metadata = (!labels.is_empty())
        .then(|| TemplateMetadata { labels: labels.clone(), ..Default::default() });
    let spec = VolumeSpec {
        node_name: node.to_owned(),
        storage_class_name: args.class.clone(),
        mode,
        template: metadata
            .map(|metadata| PersistentVolumeTemplate { metadata: Some(metadata), spec: None }),
        sparse_loop_device: Some(SparseLoopDevice { size: Quantity(args.size.clone()) }),
        raw_block_device: None,
        lvm_logical_volume: None,
    };
    let mut volume = Volume::new(&args.name, spec);
    volume.metadata.labels = (!labels.is_empty()).then_some(labels);
    problems.extend(
        validate::validate_volume(&volume).iter().map(|problem| {
            format!("{}: {}; {}", flag(problem.field), problem.wrong, problem.allowed)
        }),
    );
    match problems.as_slice() {
        [] => Ok(volume),
        [only] => Err(anyhow!("{only}")),
        several => Err(anyhow!("{} problems:\n  {}", several.len(), several.join("\n  "))),
    }
}

/// The flag that sets a field.
fn flag(field: &str) -> &str {
    match field {
        "spec.nodeName" => "--node",
        "spec.storageClassName" => "--class",
        "spec.sparseLoopDevice.size" => "--size",
        other => other,
    }
}

fn name_problem(name: &str) -> Option<String> {
    (!names::is_subdomain(name)).then(|| {
        format!("{name:?} is not a valid name; use at most 253 lower case letters, digits, '-' and '.', with a letter or digit at both ends")
    })
}

fn parse_label(text: &str) -> Result<(&str, &str), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    let word = |text: &str| {
        let edges = |c: char| c.is_ascii_alphanumeric();
        text.len() <= 63
            && text.starts_with(edges)
            && text.ends_with(edges)
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let (prefix, name) =
        key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if !word(name) || prefix.is_some_and(|prefix| name_problem(prefix).is_some()) {
        return Err(format!(
            "{key:?} is not a label key; use at most 63 letters, digits, '-', '_', '.', optionally after a domain and '/'"
        ));
    }
    if !value.is_empty() && !word(value) {
        return Err(format!(
            "{value:?} is not a label value; use at most 63 letters, digits, '-', '_', '.'"
        ));
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::WaitArgs;
    use std::time::Duration;

    fn args(name: &str, size: &str, labels: &[&str]) -> CreateArgs {
        CreateArgs {
            name: name.into(),
            node: Some("n1".into()),
            class: "fast".into(),
            size: size.into(),
            mode: Mode::Filesystem,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            wait: WaitArgs { wait: false, timeout: Duration::from_secs(1) },
        }
    }

    #[test]
    fn labels_are_set_on_volume_and_persistent_volume() {
        let volume = build(&args("v1", "10Gi", &["tier=gold", "example.com/a="]), "n1").unwrap();
        insta::assert_yaml_snapshot!(volume);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let error =
            build(&args("V1_", "-1Gi", &["tier", "a=b", "a=c", "=x", "k=v w"]), "").unwrap_err();
        insta::assert_snapshot!(error);
    }

    #[test]
    fn one_problem_is_one_line() {
        let error = build(&args("v1", "ten", &[]), "n1").unwrap_err().to_string();
        assert_eq!(
            error,
            "--size: \"ten\" is not a quantity; use a number with an optional suffix, such as 10Gi, 500M or 1e9; give a size greater than 0, such as 10Gi"
        );
    }

    #[test]
    fn the_only_node_needs_no_flag() {
        let nodes =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose_node(None, &nodes(&["a"])).unwrap(), "a");
        assert_eq!(choose_node(Some("z"), &nodes(&["a"])).unwrap(), "z");
        assert!(
            choose_node(None, &nodes(&["a", "b"]))
                .unwrap_err()
                .to_string()
                .contains("--node: a, b")
        );
        assert!(choose_node(None, &[]).unwrap_err().to_string().contains("no nodes"));
    }
}
