//! What exists in a standalone Quarry from the start: its namespace and its Node.

use crate::{connect::Cluster, host_name, output};
use k8s_openapi::api::{
    core::v1::{Namespace, Node},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use quarry_api::{Volume, crds::MANAGED_BY_LABEL, names};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use std::fmt::Debug;

/// Creates what is missing; the name of this machine's Node.
pub async fn ensure(cluster: &Cluster, named: Option<&str>) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace: Namespace = serde_json::from_value(
        json!({"metadata": {"name": names::DEFAULT_NAMESPACE, "labels": {MANAGED_BY_LABEL: names::MANAGED_BY}}}),
    )?;
    create_missing(cluster, &namespaces, names::DEFAULT_NAMESPACE, &namespace).await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let ours = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={}", names::MANAGED_BY));
    let mut found = cluster.call("listing nodes", nodes.list(&ours)).await?.items;
    found.sort_by_key(|node| node.metadata.creation_timestamp.clone());
    let known: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
    let name = choose_name(named, &known);
    // kubectl shows readiness from the conditions, and a machine that runs this is ready.
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", MANAGED_BY_LABEL: names::MANAGED_BY}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Standalone", "message": "quarry up runs on it"}]},
    }))?;
    create_missing(cluster, &nodes, &name, &node).await?;
    warn_of_others(cluster, &name).await?;
    Ok(name)
}

/// The name of the last start wins over the host name: storage does not move because a machine was renamed.
fn choose_name(named: Option<&str>, known: &[String]) -> String {
    named.map(str::to_owned).or_else(|| known.first().cloned()).unwrap_or_else(host_name)
}

/// Volumes of a node that no process runs any more would wait without a message.
async fn warn_of_others(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let volumes: Api<Volume> = Api::all(cluster.client.clone());
    let others = cluster.call("listing volumes", volumes.list(&ListParams::default())).await?.items;
    if let Some(other) = others.iter().find(|volume| volume.spec.node_name != name) {
        output::note(&format!(
            "warning: this machine is node {name}, but volume {} is on node {}; start Quarry with --node-name {2} to use that volume",
            other.name_any(),
            other.spec.node_name,
            other.spec.node_name
        ));
    }
    Ok(())
}

pub async fn has_class(cluster: &Cluster) -> anyhow::Result<bool> {
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    Ok(!cluster
        .call("listing StorageClasses", classes.list(&ListParams::default().limit(1)))
        .await?
        .items
        .is_empty())
}

/// Creates the object unless one of its name exists, which is left unchanged.
pub async fn create_missing<K>(
    cluster: &Cluster,
    api: &Api<K>,
    name: &str,
    object: &K,
) -> anyhow::Result<()>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    cluster
        .call(&format!("creating {name}"), async {
            match api.create(&PostParams::default(), object).await {
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
                other => other.map(drop),
            }
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_machine_keeps_its_node() {
        let known = ["old".to_owned()];
        assert_eq!(choose_name(None, &known), "old");
        assert_eq!(choose_name(Some("new"), &known), "new");
        assert_eq!(choose_name(None, &[]), host_name());
    }
}
