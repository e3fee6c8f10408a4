//! Turns a request body into a pruned and defaulted object and reports everything that is wrong
//! with it. Never reads other objects; see `write` for what follows.

use super::meta::{self, text};
use super::{Body, FieldValidation, Request};
use crate::kind::{Resource, names};
use crate::schema;
use crate::status::{ApiError, FieldError, Problem, Shown};
use serde_json::Value;

/// Maximum object size; about etcd's request limit.
const OBJECT_MAX: usize = 3 << 20;

/// Why a body is not an object of its kind.
pub enum DecodeError {
    /// It belongs to another kind, version, namespace or name.
    Refused(ApiError),
    /// A field has the wrong type, or is unknown under strict field validation.
    Malformed(String),
}

impl DecodeError {
    pub fn of_object(self, resource: &Resource) -> ApiError {
        match self {
            DecodeError::Refused(error) => error,
            DecodeError::Malformed(why) => ApiError::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {kind}: {why}",
                resource.version,
                kind = resource.kind,
            )),
        }
    }

    /// For patches, kube-apiserver reports the patched object as invalid.
    pub fn of_patch(self, patched: &str) -> ApiError {
        match self {
            DecodeError::Refused(error) => error,
            DecodeError::Malformed(why) => {
                let nothing = crate::status::Named { group: "", resource: "", kind: "" };
                ApiError::invalid(&nothing, "", &[FieldError::invalid("patch", patched, why)])
            }
        }
    }
}

/// Decodes a body to a pruned and defaulted object in the resource's form.
pub fn decode(
    resource: &Resource,
    request: &Request,
    body: Body,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, DecodeError> {
    let Body { value: mut object, duplicates } = body;
    let kind = &resource.kind;
    let unrecognized = |why: &str| {
        let message =
            format!("the object provided is unrecognized (must be of type {kind}): {why}");
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
    let mut complaints: Vec<String> =
        duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    complaints.extend(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(complaints),
        FieldValidation::Strict if complaints.is_empty() => {}
        FieldValidation::Strict => {
            return Err(DecodeError::Malformed(format!(
                "strict decoding error: {}",
                complaints.join(", ")
            )));
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

/// Types that kube-apiserver's decoder checks: all of a built-in kind, the metadata of every kind.
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

/// Fills in or compares the name and namespace of the URL.
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

/// Reports everything that is wrong with an object, together.
pub fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    name: &str,
) -> Result<(), ApiError> {
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
        let why = format!("the object has {size} bytes, the maximum is {OBJECT_MAX}");
        errors.push(FieldError::new("", Problem::Invalid(Shown::Nothing, why)));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(&resource.named(), name, &errors))
    }
}
