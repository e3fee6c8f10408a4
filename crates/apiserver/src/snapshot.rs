//! All objects put aside, and put back as they were then: what the restore of an older etcd does to whoever goes on
//! running. For simulations and tests only; nothing of a running Quarry calls it.

use crate::engine::{Engine, Stored};
use crate::server::Server;
use std::sync::Arc;

/// Every object of a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    objects: Vec<(usize, String, Arc<Stored>)>,
}

impl Server {
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { objects: self.inner.committer.engine().objects() }
    }

    /// What was made since goes, what was deleted comes back with its uid, what was changed is as it was. Versions go
    /// on, as after a restore that says so to whoever watches; none of it counts as a write.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut engine = self.inner.committer.engine();
        engine.put_back(&snapshot.objects);
        self.inner.committer.hand_over(&mut engine);
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

    fn put_back(&mut self, objects: &[(usize, String, Arc<Stored>)]) {
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
    async fn everything_is_as_it_was_and_watchers_hear_of_it() {
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
        let (kept, gone) = (make("kept").await, make("gone").await);
        let snapshot = server.snapshot();
        let writes = server.write_count();
        api.patch(
            "kept",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}})),
        )
        .await
        .unwrap();
        api.delete("gone", &DeleteParams::default()).await.unwrap();
        make("new").await;
        let version = server.version();
        server.restore(&snapshot);
        assert!(!api.get("kept").await.unwrap().labels().contains_key("a"));
        assert_eq!(api.get("gone").await.unwrap().uid(), gone.uid());
        assert_eq!(api.get("kept").await.unwrap().uid(), kept.uid());
        assert!(api.get_opt("new").await.unwrap().is_none());
        assert!(server.version() > version, "versions never go back");
        assert_eq!(server.write_count(), writes + 3, "a restore is nobody's write");
    }
}
