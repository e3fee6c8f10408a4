//! Owns create, update and patch, in kube-apiserver's order: decode the body (`intake`), confine it
//! to what the write may change, validate it, evaluate the admission policies, and only then store
//! it.

use super::intake::{decode, validate};
use super::meta::{self, text};
use super::store::key;
use super::{Answer, Body, Engine, Outside, Request, Stored, WriteOptions};
use crate::admission::{Operation, Review};
use crate::kind::Resource;
use crate::patch::{self, PatchKind};
use crate::select::LabelSelector;
use crate::status::{ApiError, FieldError};
use serde_json::{Value, json};
use std::sync::Arc;

/// Number of attempts to find an unused generated name.
const NAME_ATTEMPTS: usize = 8;

impl Engine {
    pub(super) fn create(
        &mut self,
        request: &Request,
        body: Body,
        options: &WriteOptions,
        outside: &Outside<'_>,
    ) -> Result<Answer, ApiError> {
        let registry = self.registry.clone();
        let resource = registry.get(request.resource);
        let mut warnings = Vec::new();
        let mut object = decode(resource, request, body, options.validation, &mut warnings)
            .map_err(|error| error.of_object(resource))?;
        if !text(&object, "resourceVersion").is_empty() {
            return Err(ApiError::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if resource.namespaced {
            self.check_namespace(resource, request, &object)?;
        }
        meta::stamp_new(resource, &mut object, outside);
        let generate = text(&object, "generateName").to_owned();
        if text(&object, "name").is_empty() && !generate.is_empty() {
            let mut name = format!("{generate}{}", meta::name_suffix(&(outside.uids)()));
            for _ in 0..NAME_ATTEMPTS {
                if self.store.get(resource.bucket, &key(&request.namespace, &name)).is_none() {
                    break;
                }
                name = format!("{generate}{}", meta::name_suffix(&(outside.uids)()));
            }
            object["metadata"]["name"] = name.into();
        }
        let mut object = resource.to_stored(object);
        if resource.status != crate::kind::StatusMode::Plain && !resource.keeps_status_on_create {
            object.as_object_mut().map(|map| map.remove("status"));
        }
        (resource.hooks.prepare)(&mut object, None, &outside.now_text());
        let name = text(&object, "name").to_owned();
        validate(resource, &object, None, &name)?;
        warnings.extend(self.admit(
            resource,
            request,
            Operation::Create,
            options.dry_run,
            &name,
            Some(&object),
            None,
        )?);
        let at = key(&request.namespace, &name);
        if self.store.get(resource.bucket, &at).is_some() {
            return Err(ApiError::already_exists(&resource.named(), &name));
        }
        if options.dry_run {
            return Ok(Answer { warnings, ..Answer::object(201, Stored::new(object)) });
        }
        let stored = self.store.put(resource.bucket, &at, object);
        self.collect_garbage(vec![(resource.bucket, at)], outside);
        Ok(Answer { warnings, ..Answer::object(201, stored) })
    }

    pub(super) fn update(
        &mut self,
        request: &Request,
        body: Body,
        options: &WriteOptions,
        outside: &Outside<'_>,
    ) -> Result<Answer, ApiError> {
        let registry = self.registry.clone();
        let resource = registry.get(request.resource);
        let at = key(&request.namespace, &request.name);
        if resource.create_on_update
            && !request.status
            && self.store.get(resource.bucket, &at).is_none()
        {
            return self.create(request, body, options, outside);
        }
        let mut warnings = Vec::new();
        let object = decode(resource, request, body, options.validation, &mut warnings)
            .map_err(|error| error.of_object(resource))?;
        let object = resource.to_stored(object);
        let Some(old) = self.store.get(resource.bucket, &at).cloned() else {
            return Err(ApiError::not_found(&resource.named(), &request.name));
        };
        let given = text(&object, "resourceVersion");
        if given.is_empty() && !resource.unconditional_update {
            return Err(no_version(resource, &request.name));
        }
        let answer = self.replace(resource, request, object, &old, options, outside)?;
        Ok(Answer { warnings: [warnings, answer.warnings].concat(), ..answer })
    }

    pub(super) fn patch(
        &mut self,
        request: &Request,
        kind: PatchKind,
        body: Body,
        options: &WriteOptions,
        outside: &Outside<'_>,
    ) -> Result<Answer, ApiError> {
        let registry = self.registry.clone();
        let resource = registry.get(request.resource);
        let at = key(&request.namespace, &request.name);
        let Some(old) = self.store.get(resource.bucket, &at).cloned() else {
            return Err(ApiError::not_found(&resource.named(), &request.name));
        };
        let current =
            if resource.shows_stored() { old.value.clone() } else { resource.show(&old.value) };
        let patched = patch::apply(kind, &current, &body.value, resource.hooks.merge_keys)?;
        let mut warnings = Vec::new();
        let body = Body { value: patched, duplicates: body.duplicates };
        let shown = body.value.to_string();
        let object = decode(resource, request, body, options.validation, &mut warnings)
            .map_err(|error| error.of_patch(&shown))?;
        let object = resource.to_stored(object);
        let answer = self.replace(resource, request, object, &old, options, outside)?;
        Ok(Answer { warnings: [warnings, answer.warnings].concat(), ..answer })
    }

    /// Common end of update and patch: `object` replaces `old`, as far as the write may change it.
    fn replace(
        &mut self,
        resource: &Resource,
        request: &Request,
        mut object: Value,
        old: &Arc<Stored>,
        options: &WriteOptions,
        outside: &Outside<'_>,
    ) -> Result<Answer, ApiError> {
        check_preconditions(resource, &request.name, &object, &old.value)?;
        meta::confine(resource, &mut object, &old.value, request.status);
        meta::keep_server_fields(&mut object, &old.value);
        (resource.hooks.prepare)(&mut object, Some(&old.value), &outside.now_text());
        meta::bump_generation(resource, &mut object, &old.value);
        validate(resource, &object, Some(&old.value), &request.name)?;
        let warnings = self.admit(
            resource,
            request,
            Operation::Update,
            options.dry_run,
            &request.name,
            Some(&object),
            Some(&old.value),
        )?;
        if object == old.value {
            return Ok(Answer { warnings, ..Answer::object(200, old.clone()) });
        }
        if options.dry_run {
            return Ok(Answer { warnings, ..Answer::object(200, Stored::new(object)) });
        }
        let at = key(&request.namespace, &request.name);
        let stored = if is_finished(&object) {
            self.store.remove(resource.bucket, &at, &object);
            Stored::new(object)
        } else {
            self.store.put(resource.bucket, &at, object)
        };
        // Owners may have changed on either side, or the object may have been removed.
        let mut touched = vec![(resource.bucket, at)];
        touched.extend(
            super::store::owner_uids(&old.value)
                .filter_map(|uid| self.store.find_uid(uid).cloned()),
        );
        self.collect_after(touched, old, outside);
        Ok(Answer { warnings, ..Answer::object(200, stored) })
    }

    fn check_namespace(
        &self,
        resource: &Resource,
        request: &Request,
        object: &Value,
    ) -> Result<(), ApiError> {
        let registry = &self.registry;
        let namespaces = registry.find("", "v1", "namespaces").map(|id| registry.get(id));
        let Some(namespaces) = namespaces else { return Ok(()) };
        match self.store.get(namespaces.bucket, &request.namespace) {
            None => Err(ApiError::not_found(&namespaces.named(), &request.namespace)),
            Some(found) if meta::is_deleting(&found.value) => {
                let why = format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    request.namespace
                );
                let mut error = ApiError::forbidden(&resource.named(), text(object, "name"), &why);
                if let Some(details) = &mut error.details {
                    let about = format!("namespace {} is being terminated", request.namespace);
                    details["causes"] = json!([{"reason": "NamespaceTerminating", "message": about, "field": "metadata.namespace"}]);
                }
                Err(error)
            }
            Some(_) => Ok(()),
        }
    }

    /// Evaluates the admission policies: warnings, or the refusal.
    #[expect(clippy::too_many_arguments, reason = "admission needs every part of the write")]
    pub(super) fn admit(
        &self,
        resource: &Resource,
        request: &Request,
        operation: Operation,
        dry_run: bool,
        name: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<String>, ApiError> {
        if self.policies.is_empty() {
            return Ok(Vec::new());
        }
        let shown = |value: &Value| resource.show(value);
        let (object, old) = (object.map(shown), old.map(shown));
        let namespaces =
            self.registry.find("", "v1", "namespaces").map(|id| self.registry.get(id).bucket);
        let namespace_object =
            namespaces.and_then(|bucket| self.store.get(bucket, &request.namespace));
        let review = Review {
            operation,
            named: resource.named(),
            version: &resource.version,
            resource: if request.status {
                format!("{}/status", resource.plural)
            } else {
                resource.plural.clone()
            },
            namespace: &request.namespace,
            name,
            dry_run,
            object: object.as_ref(),
            old: old.as_ref(),
            namespace_object: namespace_object.map(|stored| &stored.value),
        };
        self.policies.judge(&review, &|api_version, kind, reference, namespace| {
            let Some(resource) = self.registry.of_kind(api_version, kind) else {
                return Vec::new();
            };
            let namespace = match (&reference.namespace, resource.namespaced) {
                (_, false) => String::new(),
                (Some(namespace), true) => namespace.clone(),
                (None, true) => namespace.to_owned(),
            };
            let show = |stored: &Arc<Stored>| Arc::new(resource.show(&stored.value));
            if let Some(name) = reference.name.as_deref().filter(|name| !name.is_empty()) {
                return self
                    .store
                    .get(resource.bucket, &key(&namespace, name))
                    .map(show)
                    .into_iter()
                    .collect();
            }
            let selector = serde_json::to_value(&reference.selector).unwrap_or_default();
            let selector = LabelSelector::from_object(&selector);
            let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
            let objects = self.store.bucket(resource.bucket).iter();
            objects
                .filter(|(at, _)| at.starts_with(&prefix))
                .filter(|(_, stored)| selector.matches(stored.metadata()["labels"].as_object()))
                .map(|(_, stored)| show(stored))
                .collect()
        })
    }
}

/// Whether the object can be removed: its deletion was requested, and no finalizer or grace period
/// is left.
pub(super) fn is_finished(object: &Value) -> bool {
    meta::is_deleting(object)
        && meta::finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
        // A namespace waits for its contents: see `collect`.
        && object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

fn no_version(resource: &Resource, name: &str) -> ApiError {
    let named = resource.named();
    let error =
        FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
    // kube-apiserver prints the resource here, not the kind.
    let as_kind = crate::status::Named { kind: named.resource, ..named };
    ApiError::invalid(&as_kind, name, &[error])
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    object: &Value,
    old: &Value,
) -> Result<(), ApiError> {
    let (uid, stored_uid) = (text(object, "uid"), text(old, "uid"));
    if !uid.is_empty() && uid != stored_uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {stored_uid}"
        );
        return Err(ApiError::conflict(&resource.named(), name, &why));
    }
    let given = text(object, "resourceVersion");
    if given.is_empty() || given == "0" || given == text(old, "resourceVersion") {
        return Ok(());
    }
    if given.parse::<u64>().is_err() {
        let why = format!(
            "resourceVersion {given:?} was not issued by this server; send the one you read"
        );
        return Err(ApiError::new(500, "", why));
    }
    Err(ApiError::modified(&resource.named(), name))
}
