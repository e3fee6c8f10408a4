//! Owns create, update and patch, in the API server's order: decode, prune, default, confine to what the
//! write may change, validate (schema, rules, the kind's own), admission, and only then the store.

use super::meta::{self, text};
use super::store::key;
use super::{Answer, Body, Engine, FieldValidation, Outside, Request, Stored, WriteOptions};
use crate::admission::{Operation, Review};
use crate::kind::{Resource, names};
use crate::patch::{self, PatchKind};
use crate::schema;
use crate::select::LabelSelector;
use crate::status::{ApiError, FieldError, Problem, Shown};
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a generated name that is taken is drawn again.
const NAME_ATTEMPTS: usize = 8;
/// The largest object; etcd's limit on requests, about.
const OBJECT_MAX: usize = 3 << 20;

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
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
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
        warnings.extend(self.admit(resource, request, Operation::Create, options.dry_run, &name, Some(&object), None)?);
        let at = key(&request.namespace, &name);
        if self.store.get(resource.bucket, &at).is_some() {
            return Err(ApiError::already_exists(&resource.named(), &name));
        }
        if options.dry_run {
            return Ok(Answer { warnings, ..Answer::object(201, Stored::new(object)) });
        }
        let stored = self.store.put(resource.bucket, &at, object);
        self.settle(vec![(resource.bucket, at)], outside);
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
        if resource.create_on_update && !request.status && self.store.get(resource.bucket, &at).is_none() {
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
        let current = if resource.shows_stored() { old.value.clone() } else { resource.from_stored(&old.value) };
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

    /// The common end of update and patch: `object` replaces `old`, as far as it may.
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
        // Owners may have changed on either side, or the object may be gone now.
        let mut touched = vec![(resource.bucket, at)];
        touched.extend(super::store::owner_uids(&old.value).filter_map(|uid| self.store.find_uid(uid).cloned()));
        self.settle_after(touched, old, outside);
        Ok(Answer { warnings, ..Answer::object(200, stored) })
    }

    fn check_namespace(&self, resource: &Resource, request: &Request, object: &Value) -> Result<(), ApiError> {
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
                    details["causes"] =
                        json!([{"reason": "NamespaceTerminating", "message": about, "field": "metadata.namespace"}]);
                }
                Err(error)
            }
            Some(_) => Ok(()),
        }
    }

    /// Judged by the admission policies: warnings, or the refusal.
    #[expect(clippy::too_many_arguments, reason = "one write, seen by admission from every side")]
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
        let shown = |value: &Value| resource.from_stored(value);
        let (object, old) = (object.map(shown), old.map(shown));
        let namespaces = self.registry.find("", "v1", "namespaces").map(|id| self.registry.get(id).bucket);
        let namespace_object = namespaces.and_then(|bucket| self.store.get(bucket, &request.namespace));
        let review = Review {
            operation,
            named: resource.named(),
            version: &resource.version,
            resource: if request.status { format!("{}/status", resource.plural) } else { resource.plural.clone() },
            namespace: &request.namespace,
            name,
            dry_run,
            object: object.as_ref(),
            old: old.as_ref(),
            namespace_object: namespace_object.map(|stored| &stored.value),
        };
        self.policies.judge(&review, &|api_version, kind, reference, namespace| {
            let Some(resource) = self.registry.of_kind(api_version, kind) else { return Vec::new() };
            let namespace = match (&reference.namespace, resource.namespaced) {
                (_, false) => String::new(),
                (Some(namespace), true) => namespace.clone(),
                (None, true) => namespace.to_owned(),
            };
            let show = |stored: &Arc<Stored>| Arc::new(resource.from_stored(&stored.value));
            if let Some(name) = reference.name.as_deref().filter(|name| !name.is_empty()) {
                return self.store.get(resource.bucket, &key(&namespace, name)).map(show).into_iter().collect();
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

/// Nothing holds the object any more: it was asked to go, and no finalizer or grace period is left.
pub(super) fn is_finished(object: &Value) -> bool {
    meta::is_deleting(object)
        && meta::finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
        // A namespace waits for its contents: see `collect`.
        && object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

fn no_version(resource: &Resource, name: &str) -> ApiError {
    let named = resource.named();
    let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
    // The server names the resource here, not the kind.
    let as_kind = crate::status::Named { kind: named.resource, ..named };
    ApiError::invalid(&as_kind, name, &[error])
}

fn check_preconditions(resource: &Resource, name: &str, object: &Value, old: &Value) -> Result<(), ApiError> {
    let (uid, stored_uid) = (text(object, "uid"), text(old, "uid"));
    if !uid.is_empty() && uid != stored_uid {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {stored_uid}");
        return Err(ApiError::conflict(&resource.named(), name, &why));
    }
    let given = text(object, "resourceVersion");
    if given.is_empty() || given == "0" || given == text(old, "resourceVersion") {
        return Ok(());
    }
    if given.parse::<u64>().is_err() {
        let why = format!("the resourceVersion {given:?} is not a version of this server; send the one you read");
        return Err(ApiError::new(500, "", why));
    }
    Err(ApiError::modified(&resource.named(), name))
}

/// Why a body is not an object of its kind.
enum DecodeError {
    /// It does not belong here at all.
    Refused(ApiError),
    /// A field is of a wrong type, or unknown to a strict client.
    Malformed(String),
}

impl DecodeError {
    fn of_object(self, resource: &Resource) -> ApiError {
        match self {
            DecodeError::Refused(error) => error,
            DecodeError::Malformed(why) => ApiError::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {kind}: {why}",
                resource.version,
                kind = resource.kind,
            )),
        }
    }

    /// The server blames the patch, and shows what came of it.
    fn of_patch(self, patched: &str) -> ApiError {
        match self {
            DecodeError::Refused(error) => error,
            DecodeError::Malformed(why) => {
                let nothing = crate::status::Named { group: "", resource: "", kind: "" };
                ApiError::invalid(&nothing, "", &[FieldError::invalid("patch", patched, why)])
            }
        }
    }
}

/// From a body to a pruned and defaulted object in the resource's own shape.
fn decode(
    resource: &Resource,
    request: &Request,
    body: Body,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, DecodeError> {
    let Body { value: mut object, duplicates } = body;
    let kind = &resource.kind;
    let unrecognized = |why: &str| {
        let message = format!("the object provided is unrecognized (must be of type {kind}): {why}");
        DecodeError::Refused(ApiError::bad_request(message))
    };
    if !object.is_object() {
        return Err(unrecognized("it is not a JSON object"));
    }
    let given_kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let given_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let expected = resource.api_version();
    if given_kind.is_empty() && resource.custom {
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{object}'")));
    }
    if !given_version.is_empty() && given_version != expected {
        return Err(DecodeError::Refused(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({expected})"
        ))));
    }
    if !given_kind.is_empty() && given_kind != *kind {
        return Err(DecodeError::Refused(ApiError::bad_request(format!(
            "{given_kind} in version \"{}\" cannot be handled as a {kind}",
            resource.version
        ))));
    }
    object["kind"] = kind.clone().into();
    object["apiVersion"] = expected.into();
    let unknown = schema::prune(&resource.schema, &mut object);
    let mut complaints: Vec<String> = duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    complaints.extend(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(complaints),
        FieldValidation::Strict if complaints.is_empty() => {}
        FieldValidation::Strict => {
            return Err(DecodeError::Malformed(format!("strict decoding error: {}", complaints.join(", "))));
        }
    }
    check_types(resource, &object)?;
    meta::tidy_metadata(&mut object);
    if !resource.custom {
        meta::tidy_built_in(&resource.schema, &mut object);
    }
    schema::apply_defaults(&resource.schema, &mut object);
    place(resource, request, &mut object).map_err(DecodeError::Refused)?;
    Ok(object)
}

/// Types that the server's decoder insists on: all of a built-in kind, the metadata of every kind.
fn check_types(resource: &Resource, object: &Value) -> Result<(), DecodeError> {
    let errors = if resource.custom {
        let schema = resource.schema.properties.get("metadata");
        schema.map(|schema| schema::validate(schema, &object["metadata"], None)).unwrap_or_default()
    } else {
        schema::validate(&resource.schema, object, None)
    };
    let wrong = errors.iter().find(|error| matches!(error.problem, Problem::TypeInvalid(..)));
    match wrong {
        Some(error) if !(error.field.is_empty() && object["metadata"].is_null()) => {
            Err(DecodeError::Malformed(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// The name and namespace of the URL hold.
fn place(resource: &Resource, request: &Request, object: &mut Value) -> Result<(), ApiError> {
    let namespace = text(object, "namespace").to_owned();
    if !namespace.is_empty() && namespace != request.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if resource.namespaced {
        object["metadata"]["namespace"] = request.namespace.clone().into();
    }
    let name = text(object, "name").to_owned();
    if !request.name.is_empty() {
        if !name.is_empty() && name != request.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                request.name
            )));
        }
        object["metadata"]["name"] = request.name.clone().into();
    }
    Ok(())
}

/// Everything that is wrong with an object, at once.
fn validate(resource: &Resource, object: &Value, old: Option<&Value>, name: &str) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    match old {
        None if name.is_empty() => {
            errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        }
        None => {
            let problems = names::subdomain(name).into_iter();
            errors.extend(problems.map(|why| FieldError::invalid("metadata.name", name, why)));
        }
        Some(old) => meta::check_finalizers(object, old, &mut errors),
    }
    names::validate_metadata(&object["metadata"], &mut errors);
    (resource.hooks.validate)(object, old, &mut errors);
    if resource.custom {
        errors.extend(schema::validate(&resource.schema, object, old));
        if let Some(rules) = &resource.rules {
            if errors.iter().any(FieldError::blocks_rules) {
                errors.push(crate::cel::not_checked());
            } else {
                errors.extend(rules.check(object, old));
            }
        }
    }
    let size = object.to_string().len();
    if size > OBJECT_MAX {
        let why = format!("the object has {size} bytes; at most {OBJECT_MAX} are stored");
        errors.push(FieldError::new("", Problem::Invalid(Shown::Nothing, why)));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(&resource.named(), name, &errors)) }
}
