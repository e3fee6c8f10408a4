//! The commands about volumes. Each asks the API, says what it did, and leaves decisions to `quarry-core`.
//!
//! Next to read: `observe.rs` (everything about one volume, live), `follow.rs` (waiting, shown).

pub mod create;
pub mod delete;
pub mod follow;
pub mod list;
pub mod observe;
pub mod retry;
mod table;

use crate::connect::Cluster;
use anyhow::anyhow;
use kube::Api;
use quarry_api::Volume;

/// The volume, or an error that says where to look.
pub async fn get(cluster: &Cluster, name: &str) -> anyhow::Result<Volume> {
    let api: Api<Volume> = Api::all(cluster.client.clone());
    // The object's absence and the kind's absence are both 404: only the first has a JSON status that names it.
    match cluster.call(&format!("reading volume {name}"), optional(api.get(name))).await? {
        Some(volume) => Ok(volume),
        None => Err(anyhow!("volume {name} does not exist; `quarry volumes` lists them")),
    }
}

/// `None` for an object that is not there; a kind that is not there stays an error.
pub async fn optional<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<Option<T>> {
    match request.await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status))
            if status.code == 404
                && status.reason == "NotFound"
                && status.details.as_ref().is_some_and(|details| !details.name.is_empty()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
