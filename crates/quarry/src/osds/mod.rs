//! `quarry osds`: the OSDs of device sets. What is shown is computed by `quarry_view::osds`; nothing is written.
//!
//! Next to read: `list.rs`, `watch.rs`.

pub mod list;
mod table;
mod watch;

use crate::connect::Cluster;
use anyhow::anyhow;
use quarry_view::osds::Objects;

/// CephClusters and what exists of their OSDs. Where there is no cluster, nothing else is asked for.
pub async fn read(cluster: &Cluster, namespace: Option<&str>) -> anyhow::Result<Objects> {
    let mut objects = Objects::default();
    match objects.read_clusters(cluster, namespace).await? {
        Ok(()) => {}
        Err(kube::Error::Api(status)) if status.code == 403 && namespace.is_none() => {
            return Err(anyhow!(
                "listing CephClusters of all namespaces: forbidden: {}; name a namespace with -n NAMESPACE",
                status.message
            ));
        }
        Err(error) => return Err(cluster.error("listing CephClusters", error)),
    }
    objects.read_osds(cluster).await?;
    Ok(objects)
}
