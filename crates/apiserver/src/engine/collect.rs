//! Owns what the cluster's controllers would do after a removal: dependents are deleted with their
//! owners, owners in foreground deletion go after their dependents, terminating namespaces are
//! emptied, old Events expire. Runs inside the request that caused it, so that a simulation is
//! deterministic.

use super::meta;
use super::store::{Key, owner_uids};
use super::write::is_finished;
use super::{Engine, Outside, Stored};
use jiff::SignedDuration;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Lifetime of an Event, as in a cluster.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// How often expired Events are removed.
const EXPIRY_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

impl Engine {
    /// Collects garbage after objects were written.
    pub(super) fn collect_garbage(&mut self, touched: Vec<(usize, Key)>, outside: &Outside<'_>) {
        let mut queue: VecDeque<(usize, Key)> = touched.into();
        let mut rounds = 0;
        while let Some((bucket, at)) = queue.pop_front() {
            // A cycle of owners cannot loop forever: each round removes or changes an object.
            rounds += 1;
            if rounds > 100_000 {
                return;
            }
            let Some(stored) = self.store.get(bucket, &at).cloned() else { continue };
            self.collect_one(bucket, &at, &stored, outside, &mut queue);
        }
    }

    /// Collects garbage after an object was changed or removed, and after its dependents were.
    pub(super) fn collect_after(
        &mut self,
        mut touched: Vec<(usize, Key)>,
        old: &Arc<Stored>,
        outside: &Outside<'_>,
    ) {
        let uid = old.metadata()["uid"].as_str().unwrap_or_default().to_owned();
        if self.store.find_uid(&uid).is_none() {
            touched.extend(self.store.dependents(&uid));
            touched.extend(
                owner_uids(&old.value).filter_map(|owner| self.store.find_uid(owner).cloned()),
            );
            touched.extend(self.namespace_of(&old.value));
        }
        self.collect_garbage(touched, outside);
    }

    fn namespace_of(&self, object: &Value) -> Option<(usize, Key)> {
        let namespace = meta::text(object, "namespace");
        if namespace.is_empty() {
            return None;
        }
        let id = self.registry.find("", "v1", "namespaces")?;
        let bucket = self.registry.get(id).bucket;
        self.store.get(bucket, namespace)?;
        Some((bucket, namespace.to_owned()))
    }

    fn collect_one(
        &mut self,
        bucket: usize,
        at: &str,
        stored: &Arc<Stored>,
        outside: &Outside<'_>,
        queue: &mut VecDeque<(usize, Key)>,
    ) {
        if meta::is_deleting(&stored.value) {
            self.collect_terminating(bucket, at, stored, outside, queue);
            return;
        }
        let owners = stored.metadata()["ownerReferences"].as_array().cloned().unwrap_or_default();
        if owners.is_empty() {
            return;
        }
        let (missing, existing): (Vec<&Value>, Vec<&Value>) =
            owners.iter().partition(|owner| self.is_dangling(owner));
        if missing.is_empty() {
            // Foreground deletion of the owner also deletes its dependents.
            if owners.iter().all(|owner| self.waits_in_foreground(owner)) {
                self.delete_unchecked(bucket, at, outside);
                self.requeue_owners(stored, queue);
            }
            return;
        }
        if existing.is_empty() {
            self.delete_unchecked(bucket, at, outside);
            return;
        }
        let mut object = stored.value.clone();
        object["metadata"]["ownerReferences"] = existing.into_iter().cloned().collect();
        self.store.put(bucket, at, object);
    }

    /// The owner is of a kind served here and does not exist. Owners of other kinds are assumed to
    /// exist.
    fn is_dangling(&self, owner: &Value) -> bool {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        self.registry.of_kind(text("apiVersion"), text("kind")).is_some()
            && self.store.find_uid(text("uid")).is_none()
    }

    fn waits_in_foreground(&self, owner: &Value) -> bool {
        let uid = owner["uid"].as_str().unwrap_or_default();
        let found = self.store.find_uid(uid).and_then(|(bucket, at)| self.store.get(*bucket, at));
        found.is_some_and(|stored| {
            meta::is_deleting(&stored.value)
                && meta::finalizers(&stored.value).contains(&"foregroundDeletion")
        })
    }

    fn requeue_owners(&self, stored: &Stored, queue: &mut VecDeque<(usize, Key)>) {
        queue.extend(owner_uids(&stored.value).filter_map(|uid| self.store.find_uid(uid).cloned()));
    }

    fn collect_terminating(
        &mut self,
        bucket: usize,
        at: &str,
        stored: &Arc<Stored>,
        outside: &Outside<'_>,
        queue: &mut VecDeque<(usize, Key)>,
    ) {
        let uid = stored.metadata()["uid"].as_str().unwrap_or_default();
        let finalizers = meta::finalizers(&stored.value);
        if finalizers.contains(&"orphan") {
            for (bucket, at) in self.store.dependents(uid) {
                self.disown(bucket, &at, uid);
            }
            self.drop_finalizer(bucket, at, "orphan", outside);
            return;
        }
        if finalizers.contains(&"foregroundDeletion") {
            let blocking: Vec<(usize, Key)> = self
                .store
                .dependents(uid)
                .into_iter()
                .filter(|(bucket, at)| {
                    self.store.get(*bucket, at).is_some_and(|dependent| blocks(dependent, uid))
                })
                .collect();
            if blocking.is_empty() {
                self.drop_finalizer(bucket, at, "foregroundDeletion", outside);
            } else {
                let waiting = |(bucket, at): &(usize, Key)| {
                    self.store
                        .get(*bucket, at)
                        .is_some_and(|dependent| !meta::is_deleting(&dependent.value))
                };
                queue.extend(blocking.iter().filter(|at| waiting(at)).cloned());
            }
            return;
        }
        self.empty_namespace(bucket, at, stored, outside);
    }

    fn disown(&mut self, bucket: usize, at: &str, uid: &str) {
        let Some(dependent) = self.store.get(bucket, at).cloned() else { return };
        let mut object = dependent.value.clone();
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"] != uid);
        }
        meta::tidy_metadata(&mut object);
        self.store.put(bucket, at, object);
    }

    fn drop_finalizer(&mut self, bucket: usize, at: &str, finalizer: &str, outside: &Outside<'_>) {
        let Some(stored) = self.store.get(bucket, at).cloned() else { return };
        let mut object = stored.value.clone();
        let left: Vec<Value> = meta::finalizers(&object)
            .into_iter()
            .filter(|name| *name != finalizer)
            .map(Value::from)
            .collect();
        object["metadata"]["finalizers"] = left.into();
        meta::tidy_metadata(&mut object);
        if is_finished(&object) {
            self.store.remove(bucket, at, &object);
        } else {
            self.store.put(bucket, at, object);
        }
        self.collect_after(Vec::new(), &stored, outside);
    }

    /// Deletes the contents of a terminating namespace; removes the namespace once it is empty.
    fn empty_namespace(
        &mut self,
        bucket: usize,
        at: &str,
        stored: &Arc<Stored>,
        outside: &Outside<'_>,
    ) {
        let held =
            stored.value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if stored.value["kind"] != "Namespace" || stored.value["apiVersion"] != "v1" || !held {
            return;
        }
        let prefix = format!("{at}/");
        let registry = self.registry.clone();
        let namespaced: BTreeSet<usize> = registry
            .iter()
            .filter(|resource| resource.namespaced)
            .map(|resource| resource.bucket)
            .collect();
        let contents = |engine: &Self| -> Vec<(usize, Key)> {
            let mut found = Vec::new();
            for &bucket in &namespaced {
                let keys = engine.store.bucket(bucket).range::<String, _>(prefix.clone()..);
                found.extend(
                    keys.map(|(key, _)| key.clone())
                        .take_while(|key| key.starts_with(&prefix))
                        .map(|key| (bucket, key)),
                );
            }
            found
        };
        for (bucket, key) in contents(self) {
            let waiting = self
                .store
                .get(bucket, &key)
                .is_some_and(|stored| !meta::is_deleting(&stored.value));
            if waiting {
                self.delete_unchecked(bucket, &key, outside);
            }
        }
        // The last deletion above may have called this function recursively and removed the
        // namespace.
        let Some(stored) = self.store.get(bucket, at).cloned() else { return };
        if contents(self).is_empty() {
            let mut object = stored.value.clone();
            object["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
            if is_finished(&object) {
                self.store.remove(bucket, at, &object);
            } else {
                self.store.put(bucket, at, object);
            }
        }
    }

    /// Removes expired Events, at most once per interval.
    pub(super) fn expire_events(&mut self, outside: &Outside<'_>) {
        if self.last_expiry.is_some_and(|last| outside.now.duration_since(last) < EXPIRY_INTERVAL) {
            return;
        }
        self.last_expiry = Some(outside.now);
        let Some(bucket) = self.registry.buckets().iter().position(|name| name == "/events") else {
            return;
        };
        let old: Vec<(Key, Arc<Stored>)> = self
            .store
            .bucket(bucket)
            .iter()
            .filter(|(_, stored)| {
                last_seen(&stored.value)
                    .is_some_and(|seen| outside.now.duration_since(seen) > EVENT_LIFE)
            })
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect();
        for (key, stored) in old {
            self.store.remove(bucket, &key, &stored.value);
        }
    }
}

fn blocks(dependent: &Stored, uid: &str) -> bool {
    let owners =
        dependent.metadata()["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    owners.iter().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
}

/// When an Event last changed: its series, its last timestamp, or its creation.
fn last_seen(event: &Value) -> Option<jiff::Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().filter_map(|time| time.as_str()?.parse().ok()).max()
}
