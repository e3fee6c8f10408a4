//! Hosts that move to another cluster: paused with their status in an annotation, then copied as `clusterctl move` does.

use crate::{
    admin_client::{AdminClient, Refused},
    kind::Kind,
};
use http::Method;
use quarry_api::names;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// As `quarry host move-out`: from here on no operator touches them.
pub async fn move_out(source: &AdminClient) -> Result<(), Refused> {
    for host in list(source, Kind::Host).await? {
        let mut status = host["status"].clone();
        if let Some(fields) = status.as_object_mut() {
            fields.remove("hardware");
        }
        let annotations = json!({
            names::PAUSED_ANNOTATION: "quarry.dev/move-out",
            names::STATUS_ANNOTATION: status.to_string(),
        });
        let changes = json!({"metadata": {"annotations": annotations}});
        source.patch(&Kind::Host.object_path(&name(&host)), &changes).await?;
    }
    Ok(())
}

/// Owners first, with references to the new owners; without status; then the source is emptied.
pub async fn copy(source: &AdminClient, target: &AdminClient) -> Result<(), Refused> {
    let kinds = [Kind::Host, Kind::HardwareData, Kind::Secret];
    let mut uids: BTreeMap<String, Value> = BTreeMap::new();
    for kind in kinds {
        for object in list(source, kind).await? {
            let mut copied = object.clone();
            if let Some(fields) = copied.as_object_mut() {
                fields.remove("status");
            }
            let old = copied["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            if let Some(metadata) = copied["metadata"].as_object_mut() {
                for key in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
                    metadata.remove(key);
                }
                metadata.remove("managedFields");
            }
            let owners = copied["metadata"]["ownerReferences"].as_array_mut();
            for owner in owners.into_iter().flatten() {
                let new = owner["uid"].as_str().and_then(|uid| uids.get(uid));
                owner["uid"] = new.cloned().unwrap_or_default();
            }
            let made = target.create(kind.path(), &copied).await?;
            uids.insert(old, made["metadata"]["uid"].clone());
        }
    }
    for kind in kinds.into_iter().rev() {
        for object in list(source, kind).await? {
            let path = kind.object_path(&name(&object));
            source.patch(&path, &json!({"metadata": {"finalizers": null}})).await?;
            source.delete(&path).await?;
        }
    }
    Ok(())
}

async fn list(client: &AdminClient, kind: Kind) -> Result<Vec<Value>, Refused> {
    let list = client.call(Method::GET, kind.path(), None).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
