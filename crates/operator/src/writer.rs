//! All API writes of the operator: counted, logged, with failpoints before and after each.
//!
//! Merge patches under a resourceVersion only: no server-side apply, no write that could land on an object
//! other than the one that was read.

use crate::metrics::Metrics;
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use std::{fmt::Debug, sync::Arc};

/// The places where a test may kill the operator: before and after every kind of write.
pub const FAILPOINTS: &[&str] = &[
    "operator.create.before",
    "operator.create.after",
    "operator.patch.before",
    "operator.patch.after",
    "operator.status.before",
    "operator.status.after",
    "operator.delete.before",
    "operator.delete.after",
];

/// The same for changes of Ironic, which only an operator with hosts makes.
pub const IRONIC_FAILPOINTS: &[&str] = &["operator.ironic.before", "operator.ironic.after"];

/// How a write ended when it did not fail.
#[derive(Clone, Debug, PartialEq)]
pub enum Written<K> {
    Changed(K),
    /// It was so already.
    Unchanged,
}

#[derive(Clone)]
pub struct Writer {
    metrics: Arc<Metrics>,
}

pub fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

impl Writer {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Writer { metrics }
    }

    /// `Unchanged` when an object of that name exists: whether it is the same one is the caller's question.
    pub async fn create<K>(&self, api: &Api<K>, object: &K) -> Result<Written<K>, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.count::<K>("create");
        quarry_failpoint::failpoint!("operator.create.before");
        let answer = api.create(&PostParams::default(), object).await;
        quarry_failpoint::failpoint!("operator.create.after");
        match answer {
            Ok(made) => Ok(Written::Changed(made)),
            Err(error) if is_code(&error, 409) => Ok(Written::Unchanged),
            Err(error) => Err(error),
        }
    }

    /// `changes` is merged into the object, if it is still at `version`.
    pub async fn patch<K>(
        &self,
        api: &Api<K>,
        name: &str,
        version: &str,
        changes: Value,
    ) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.count::<K>("patch");
        let body = at_version(changes, version);
        quarry_failpoint::failpoint!("operator.patch.before");
        let answer = api.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await;
        quarry_failpoint::failpoint!("operator.patch.after");
        answer
    }

    pub async fn patch_status<K>(
        &self,
        api: &Api<K>,
        name: &str,
        version: &str,
        old: &Value,
        new: &Value,
    ) -> Result<Written<K>, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let Some(difference) = merge_difference(old, new) else { return Ok(Written::Unchanged) };
        self.count::<K>("patch_status");
        let body = at_version(json!({"status": difference}), version);
        quarry_failpoint::failpoint!("operator.status.before");
        let answer = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&body)).await;
        quarry_failpoint::failpoint!("operator.status.after");
        answer.map(Written::Changed)
    }

    /// Only that very object, at that very version. Gone already is fine.
    pub async fn delete<K>(
        &self,
        api: &Api<K>,
        name: &str,
        uid: &str,
        version: Option<&str>,
    ) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.delete_if(api, name, DeleteParams::default(), uid, version).await
    }

    /// As `delete`; what it owns goes first.
    pub async fn delete_with_dependents<K>(
        &self,
        api: &Api<K>,
        name: &str,
        uid: &str,
    ) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.delete_if(api, name, DeleteParams::foreground(), uid, None).await
    }

    async fn delete_if<K>(
        &self,
        api: &Api<K>,
        name: &str,
        how: DeleteParams,
        uid: &str,
        version: Option<&str>,
    ) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.count::<K>("delete");
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: version.map(str::to_owned),
            }),
            ..how
        };
        quarry_failpoint::failpoint!("operator.delete.before");
        let answer = api.delete(name, &parameters).await;
        quarry_failpoint::failpoint!("operator.delete.after");
        match answer {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn count<K: Resource<DynamicType = ()>>(&self, verb: &'static str) {
        self.metrics.count_write(&K::kind(&()), verb);
    }
}

fn at_version(mut changes: Value, version: &str) -> Value {
    if let Value::Object(map) = &mut changes {
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert("resourceVersion".into(), version.into());
        }
    }
    changes
}

/// The merge patch (RFC 7396) that turns `old` into `new`; `None` when they are equal.
pub fn merge_difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut changes = Map::new();
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                changes.insert(key.clone(), Value::Null);
            }
            for (key, value) in new {
                let change = match old.get(key) {
                    Some(before) => merge_difference(before, value),
                    None => Some(value.clone()),
                };
                changes.extend(change.map(|change| (key.clone(), change)));
            }
            (!changes.is_empty()).then_some(Value::Object(changes))
        }
        (old, new) => (old != new).then(|| new.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failpoint_is_listed() {
        assert_eq!(quarry_failpoint::names_in(include_str!("writer.rs")), FAILPOINTS);
        let of_hosts = include_str!("bare_metal_host/ironic.rs");
        assert_eq!(quarry_failpoint::names_in(of_hosts), IRONIC_FAILPOINTS);
    }

    // invariant: 8
    #[test]
    fn the_merge_patch_removes_absent_fields() {
        let old = json!({"a": 1, "b": {"c": 2, "d": [1, 2]}, "gone": true});
        let new = json!({"a": 1, "b": {"c": 3, "d": [1, 2]}, "new": null});
        assert_eq!(
            merge_difference(&old, &new),
            Some(json!({"b": {"c": 3}, "gone": null, "new": null}))
        );
        assert_eq!(merge_difference(&old, &old), None);
    }
}
