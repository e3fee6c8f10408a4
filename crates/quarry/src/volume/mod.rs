//! The commands about volumes. Each sends requests to the API and prints what it did; decisions are in `quarry-core`.
//!
//! Next to read: `list.rs`, `create.rs`, `follow.rs` (waiting).

pub mod create;
pub mod delete;
pub mod follow;
pub mod list;
pub mod retry;
mod table;

use crate::connect::Cluster;
use anyhow::anyhow;
use kube::Api;
use quarry_api::Volume;
pub use quarry_view::optional;

/// The volume, or an error with a remedy.
pub async fn get(cluster: &Cluster, name: &str) -> anyhow::Result<Volume> {
    let api: Api<Volume> = Api::all(cluster.client.clone());
    match cluster.call(&format!("reading volume {name}"), optional(api.get(name))).await? {
        Some(volume) => Ok(volume),
        None => Err(anyhow!("volume {name} does not exist; run `quarry volumes` to list them")),
    }
}
