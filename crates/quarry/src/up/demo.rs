//! `quarry up --demo`: a StorageClass and a first volume, followed until Available. A second run changes nothing.

use super::{Standalone, disks, objects, text};
use crate::{
    output,
    volume::follow::{self, Goal},
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use quarry_api::{Volume, crds::MANAGED_BY_LABEL, names, node_job::FsType};
use serde_json::json;
use std::time::Duration;

pub const CLASS: &str = "quarry-demo";
pub const VOLUME: &str = "first";
const LIMIT: Duration = Duration::from_secs(60);

pub async fn run(standalone: &Standalone) -> anyhow::Result<()> {
    let cluster = &standalone.cluster;
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    objects::create_missing(cluster, &classes, CLASS, &class(file_system())?).await?;
    let volumes: Api<Volume> = Api::all(cluster.client.clone());
    objects::create_missing(cluster, &volumes, VOLUME, &volume(&standalone.node)?).await?;
    let first = crate::volume::get(cluster, VOLUME).await?;
    if !standalone.agent {
        output::print(&text::demo_without_agent())?;
        return output::print(&disks::scanned()?);
    }
    let done = follow::follow(cluster, &first, Goal::Available, LIMIT).await?;
    output::print(&format!("{done}\n{}", text::demo_done()))?;
    output::print(&disks::published(standalone, first.metadata.uid.as_deref()).await?)
}

/// WaitForFirstConsumer: a pod is scheduled to a node that has all of its volumes.
fn class(fs: FsType) -> anyhow::Result<StorageClass> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": CLASS, "labels": {MANAGED_BY_LABEL: names::MANAGED_BY}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"fsType": fs.as_str()},
    }))?)
}

fn volume(node: &str) -> anyhow::Result<Volume> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume",
        "metadata": {"name": VOLUME},
        "spec": {"nodeName": node, "storageClassName": CLASS, "sparseLoopDevice": {"size": "1Gi"}},
    }))?)
}

/// A file system that this machine can create.
fn file_system() -> FsType {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    if std::env::split_paths(&path).chain(usual).any(|dir| dir.join("mkfs.xfs").is_file()) {
        FsType::Xfs
    } else {
        FsType::Ext4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_objects_are_valid() {
        assert!(quarry_api::validate::validate_volume(&volume("n1").unwrap()).is_empty());
        for fs in FsType::ALL {
            assert_eq!(class(fs).unwrap().parameters.unwrap()["fsType"], fs.as_str());
        }
    }
}
