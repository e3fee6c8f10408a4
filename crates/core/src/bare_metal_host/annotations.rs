//! What the annotations of a host ask for. A malformed value is an error with the name of the annotation.

use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        BareMetalHostStatus, DetachedArguments, HardwareDetails, InspectionMode, RebootArguments,
        RebootMode,
    },
    names,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation} cannot be read: {problem}; correct or remove it")]
pub struct AnnotationError {
    pub annotation: String,
    pub problem: String,
}

impl AnnotationError {
    fn new(annotation: &str, problem: impl ToString) -> Self {
        AnnotationError { annotation: annotation.to_owned(), problem: problem.to_string() }
    }
}

pub fn get<'a>(host: &'a BareMetalHost, name: &str) -> Option<&'a str> {
    host.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// `None`: attached.
pub fn detached(host: &BareMetalHost) -> Result<Option<DetachedArguments>, AnnotationError> {
    let Some(value) = get(host, names::DETACHED_ANNOTATION) else { return Ok(None) };
    // Any other text means the same as an empty one, as upstream.
    if !value.trim_start().starts_with('{') {
        return Ok(Some(DetachedArguments::default()));
    }
    let parsed = DetachedArguments::parse(value);
    parsed.map(Some).map_err(|error| AnnotationError::new(names::DETACHED_ANNOTATION, error))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebootRequest {
    pub hard: bool,
    pub force: bool,
    /// Only the annotation without a key: it is removed once the host is off.
    pub once: bool,
}

/// All reboot annotations together; `None`: there is none. One that asks for a hard reboot is enough.
pub fn reboot(host: &BareMetalHost) -> Result<Option<RebootRequest>, AnnotationError> {
    let all = host.metadata.annotations.iter().flatten();
    let mut request: Option<RebootRequest> = None;
    for (name, value) in all.filter(|(name, _)| {
        *name == names::REBOOT_ANNOTATION || name.starts_with(names::REBOOT_ANNOTATION_PREFIX)
    }) {
        let arguments = if value.trim_start().starts_with('{') {
            RebootArguments::parse(value).map_err(|error| AnnotationError::new(name, error))?
        } else {
            RebootArguments::default()
        };
        let keyed = name != names::REBOOT_ANNOTATION;
        let known = request.get_or_insert(RebootRequest { once: true, ..RebootRequest::default() });
        known.hard |= arguments.mode == RebootMode::Hard;
        known.force |= arguments.force;
        known.once &= !keyed;
    }
    Ok(request)
}

/// Inspection is off, by the spec or by the annotation.
pub fn is_inspection_disabled(host: &BareMetalHost) -> bool {
    get(host, names::INSPECT_ANNOTATION) == Some(names::INSPECT_DISABLED)
        || host.spec.inspection_mode == Some(InspectionMode::Disabled)
}

/// The host is to be inspected again.
pub fn asks_for_inspection(host: &BareMetalHost) -> bool {
    get(host, names::INSPECT_ANNOTATION).is_some() && !is_inspection_disabled(host)
}

/// A list would be read as the fields of the object in their order.
fn object<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let fields: Map<String, Value> = serde_json::from_str(text)?;
    serde_json::from_value(fields.into())
}

fn parse<T: DeserializeOwned>(
    host: &BareMetalHost,
    name: &str,
) -> Result<Option<T>, AnnotationError> {
    let Some(value) = get(host, name) else { return Ok(None) };
    object(value).map(Some).map_err(|error| AnnotationError::new(name, error))
}

/// Hardware that is known without an inspection.
pub fn hardware_details(host: &BareMetalHost) -> Result<Option<HardwareDetails>, AnnotationError> {
    parse(host, names::HARDWARE_DETAILS_ANNOTATION)
}

/// The status of a host that was moved or restored. What this version does not know of is not refused.
pub fn saved_status(host: &BareMetalHost) -> Result<Option<BareMetalHostStatus>, AnnotationError> {
    parse(host, names::STATUS_ANNOTATION)
}

/// The same with every field, as it was saved.
pub fn saved_fields(host: &BareMetalHost) -> Result<Option<Map<String, Value>>, AnnotationError> {
    parse(host, names::STATUS_ANNOTATION)
}
