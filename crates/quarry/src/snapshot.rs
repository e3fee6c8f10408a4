//! Reading a `quarry_view::Snapshot` for a command: what fails to be read but is not needed is a note.

use crate::{connect::Cluster, output};
use quarry_view::Snapshot;

/// Everything that decides who gets which device.
pub async fn read(cluster: &Cluster, namespace: &str) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::list(cluster, namespace).await?;
    read_leases(cluster, &mut snapshot).await;
    Ok(snapshot)
}

/// A user who may read inventories and no Leases still sees the devices: agents are taken to be present.
pub async fn read_leases(cluster: &Cluster, snapshot: &mut Snapshot) {
    if let Err(error) = snapshot.read_leases(cluster).await {
        let error = output::error_text(&error);
        output::note(&format!("whether the agents are present is unknown: {error}"));
    }
}
