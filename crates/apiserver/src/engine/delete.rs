//! Owns deletion: preconditions, finalizers, grace periods, propagation, and deletion of collections.

use super::meta::{self, text};
use super::store::key;
use super::write::is_finished;
use super::{
    Answer, Answered, DeleteOptions, Engine, ListOptions, Outside, Propagation, Request, Stored,
};
use crate::admission::Operation;
use crate::kind::Resource;
use crate::status::{ApiError, Named, resource_details};
use serde_json::{Value, json};
use std::sync::Arc;

/// Namespaces that cannot be deleted.
const PERMANENT: [&str; 2] = ["default", "kube-system"];
/// Default grace period of a Pod, in seconds.
const POD_GRACE: i64 = 30;

impl Engine {
    pub(super) fn delete(
        &mut self,
        request: &Request,
        options: &DeleteOptions,
        outside: &Outside<'_>,
    ) -> Result<Answer, ApiError> {
        let registry = self.registry.clone();
        let resource = registry.get(request.resource);
        let at = key(&request.namespace, &request.name);
        let Some(old) = self.store.get(resource.bucket, &at).cloned() else {
            return Err(ApiError::not_found(&resource.named(), &request.name));
        };
        check_preconditions(resource, &request.name, options, &old.value)?;
        if resource.group.is_empty()
            && resource.kind == "Namespace"
            && PERMANENT.contains(&request.name.as_str())
        {
            return Err(ApiError::forbidden(
                &resource.named(),
                &request.name,
                "this namespace may not be deleted",
            ));
        }
        let warnings = self.admit(
            resource,
            request,
            Operation::Delete,
            options.dry_run,
            &request.name,
            None,
            Some(&old.value),
        )?;
        let (object, removed) = plan(resource, &old.value, options, outside);
        let answer = match (removed, resource.returns_deleted) {
            (true, false) => {
                Answered::Status(success(&resource.named(), &request.name, text(&old.value, "uid")))
            }
            (true, true) | (false, _) => Answered::Object(Stored::new(object.clone())),
        };
        if options.dry_run {
            return Ok(Answer { code: 200, body: answer, warnings });
        }
        let answer = self
            .apply_delete(resource, &at, &old, object, removed, outside)
            .map_or(answer, Answered::Object);
        Ok(Answer { code: 200, body: answer, warnings })
    }

    pub(super) fn delete_collection(
        &mut self,
        request: &Request,
        list: &ListOptions,
        options: &DeleteOptions,
        outside: &Outside<'_>,
    ) -> Result<Answer, ApiError> {
        let found = self.select(request, list)?;
        for item in &found.items {
            let one = Request {
                namespace: text(&item.value, "namespace").to_owned(),
                name: text(&item.value, "name").to_owned(),
                ..request.clone()
            };
            match self.delete(&one, options, outside) {
                // Another client deleted it first, or it was deleted with its owner.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(Answer { code: 200, body: Answered::List(found), warnings: Vec::new() })
    }

    /// Deletes on behalf of the garbage collector: no preconditions, no admission.
    pub(super) fn delete_unchecked(&mut self, bucket: usize, at: &str, outside: &Outside<'_>) {
        let registry = self.registry.clone();
        let Some((_, resource)) = registry.of_bucket(bucket) else { return };
        let Some(old) = self.store.get(bucket, at).cloned() else { return };
        let (object, removed) = plan(resource, &old.value, &DeleteOptions::default(), outside);
        self.apply_delete(resource, at, &old, object, removed, outside);
    }

    /// `Some` with the object when it still exists, for example because of finalizers.
    fn apply_delete(
        &mut self,
        resource: &Resource,
        at: &str,
        old: &Arc<Stored>,
        object: Value,
        removed: bool,
        outside: &Outside<'_>,
    ) -> Option<Arc<Stored>> {
        if removed {
            self.store.remove(resource.bucket, at, &object);
            self.collect_after(vec![(resource.bucket, at.to_owned())], old, outside);
            return None;
        }
        if object == old.value {
            return Some(old.clone());
        }
        let stored = self.store.put(resource.bucket, at, object);
        self.collect_garbage(vec![(resource.bucket, at.to_owned())], outside);
        Some(stored)
    }
}

/// The object after the request, and whether it is removed immediately.
fn plan(
    resource: &Resource,
    old: &Value,
    options: &DeleteOptions,
    outside: &Outside<'_>,
) -> (Value, bool) {
    let mut object = old.clone();
    let grace = grace_seconds(resource, old, options);
    let already = meta::is_deleting(old);
    if already {
        let left = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        if grace < left {
            object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        }
    }
    let extra = match options.propagation {
        Some(Propagation::Foreground) => Some("foregroundDeletion"),
        Some(Propagation::Orphan) => Some("orphan"),
        Some(Propagation::Background) | None => None,
    };
    if let Some(extra) = extra
        && !already
    {
        let mut finalizers: Vec<Value> =
            meta::finalizers(old).into_iter().map(Value::from).collect();
        if !finalizers.contains(&extra.into()) {
            finalizers.push(extra.into());
        }
        object["metadata"]["finalizers"] = finalizers.into();
    }
    let namespace = resource.group.is_empty() && resource.kind == "Namespace";
    let held = !meta::finalizers(&object).is_empty() || grace > 0 || namespace;
    if !already && held {
        let when = outside.now + jiff::SignedDuration::from_secs(grace.max(0));
        let stamp = Outside { now: when, uids: outside.uids }.now_text();
        object["metadata"]["deletionTimestamp"] = stamp.into();
        object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        meta::raise_generation(&mut object);
        if namespace {
            object["metadata"]
                .as_object_mut()
                .map(|metadata| metadata.remove("deletionGracePeriodSeconds"));
            object["status"]["phase"] = "Terminating".into();
        }
    }
    let removed = !held || is_finished(&object);
    (object, removed)
}

fn grace_seconds(resource: &Resource, old: &Value, options: &DeleteOptions) -> i64 {
    if !resource.graceful {
        return 0;
    }
    let running = !old["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
        && !matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(POD_GRACE);
    if running { options.grace_seconds.unwrap_or(own).max(0) } else { 0 }
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    options: &DeleteOptions,
    old: &Value,
) -> Result<(), ApiError> {
    // kube-apiserver prints the kind here, not the resource.
    let named = resource.named();
    let as_kind = Named { resource: named.kind, ..named };
    if let Some(uid) = &options.uid
        && uid != text(old, "uid")
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            text(old, "uid")
        );
        return Err(ApiError::conflict(&as_kind, name, &why));
    }
    if let Some(version) = &options.resource_version
        && version != text(old, "resourceVersion")
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            text(old, "resourceVersion")
        );
        return Err(ApiError::conflict(&as_kind, name, &why));
    }
    Ok(())
}

fn success(named: &Named<'_>, name: &str, uid: &str) -> Value {
    let mut details = resource_details(named, name);
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
