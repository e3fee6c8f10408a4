//! Saves all objects and restores them later. Reproduces what restoring an older etcd backup does
//! to running clients. For simulations and tests only; a running Quarry never calls it.

use crate::engine::{Engine, Stored};
use crate::server::Server;
use std::sync::Arc;

/// Every object at one point in time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Vec<(usize, String, Arc<Stored>)>,
}

impl Server {
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { objects: self.inner.committer.engine().objects() }
    }

    /// Removes objects created since the snapshot, brings back deleted ones with their uid and
    /// reverts changed ones. Versions keep increasing, as after an etcd restore that notifies
    /// watchers; none of this counts as a write.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut engine = self.inner.committer.engine();
        engine.restore(&snapshot.objects);
        self.inner.committer.enqueue(&mut engine);
    }
}

impl Engine {
    fn objects(&self) -> Vec<(usize, String, Arc<Stored>)> {
        let buckets = 0..self.registry.buckets().len();
        buckets
            .flat_map(|bucket| {
                self.store()
                    .bucket(bucket)
                    .iter()
                    .map(move |(key, object)| (bucket, key.clone(), object.clone()))
            })
            .collect()
    }

    fn restore(&mut self, objects: &[(usize, String, Arc<Stored>)]) {
        for (bucket, key, found) in self.objects() {
            if !objects.iter().any(|(other, name, _)| *other == bucket && *name == key) {
                self.store_mut().remove(bucket, &key, &found.value);
            }
        }
        for (bucket, key, wanted) in objects {
            if self.store().get(*bucket, key).is_none_or(|found| found.json != wanted.json) {
                self.store_mut().put(*bucket, key, wanted.value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::server::{Options, Server};
    use k8s_openapi::api::core::v1::Namespace;
    use kube::{
        Api, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    };
    use serde_json::json;

    #[tokio::test]
    async fn restore_reverts_all_objects_and_notifies_watchers() {
        let server = Server::in_memory(Options::new(Vec::new()));
        let api: Api<Namespace> = Api::all(server.client("default"));
        let make = async |name: &str| {
            api.create(
                &PostParams::default(),
                &serde_json::from_value(json!({"metadata": {"name": name}})).unwrap(),
            )
            .await
            .unwrap()
        };
        let (kept, deleted) = (make("kept").await, make("deleted").await);
        let snapshot = server.snapshot();
        let writes = server.write_count();
        api.patch(
            "kept",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}})),
        )
        .await
        .unwrap();
        api.delete("deleted", &DeleteParams::default()).await.unwrap();
        make("new").await;
        let version = server.version();
        server.restore(&snapshot);
        assert!(!api.get("kept").await.unwrap().labels().contains_key("a"));
        assert_eq!(api.get("deleted").await.unwrap().uid(), deleted.uid());
        assert_eq!(api.get("kept").await.unwrap().uid(), kept.uid());
        assert!(api.get_opt("new").await.unwrap().is_none());
        assert!(server.version() > version, "versions never go back");
        assert_eq!(server.write_count(), writes + 3, "a restore does not count as a write");
    }
}
