//! Owns the API's failures: `Status` bodies as the Kubernetes API server returns them, word for
//! word where clients depend on it (reason, code, details), and field errors, collected together.
//! Never decides whether something fails; see `engine` and `schema`.

use serde_json::{Map, Value, json};
use std::fmt;

/// The resource a failure is about: `volumes` in group `storage.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub kind: &'a str,
}

impl Named<'_> {
    /// `volumes.storage.example.com`, or `nodes` in the core group.
    pub fn qualified_resource(&self) -> String {
        qualify(self.resource, self.group)
    }

    /// `Volume.storage.example.com`, or `Node` in the core group.
    pub fn qualified_kind(&self) -> String {
        qualify(self.kind, self.group)
    }
}

fn qualify(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// A refused request. Rendered as a `meta/v1 Status` object.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.message, self.code, self.reason)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Whether the same request may succeed later, unchanged.
    pub fn retryable(&self) -> bool {
        matches!(self.code, 409 | 429 | 500..=599)
    }

    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        out.insert("kind".into(), "Status".into());
        out.insert("apiVersion".into(), "v1".into());
        out.insert("metadata".into(), json!({}));
        out.insert("status".into(), "Failure".into());
        out.insert("message".into(), self.message.clone().into());
        if !self.reason.is_empty() {
            out.insert("reason".into(), self.reason.into());
        }
        if let Some(details) = &self.details {
            out.insert("details".into(), details.clone());
        }
        out.insert("code".into(), self.code.into());
        Value::Object(out)
    }

    pub fn not_found(what: &Named<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", what.qualified_resource()))
            .with_details(resource_details(what, name))
    }

    pub fn already_exists(what: &Named<'_>, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", what.qualified_resource()),
        )
        .with_details(resource_details(what, name))
    }

    pub fn conflict(what: &Named<'_>, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            what.qualified_resource()
        );
        Self::new(409, "Conflict", message).with_details(resource_details(what, name))
    }

    pub fn modified(what: &Named<'_>, name: &str) -> Self {
        Self::conflict(
            what,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(what: &Named<'_>, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", what.qualified_resource());
        Self::new(403, "Forbidden", message).with_details(resource_details(what, name))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 410: the requested version is no longer in the event log.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(405, "MethodNotAllowed", message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    pub fn invalid(what: &Named<'_>, name: &str, errors: &[FieldError]) -> Self {
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        // kube-apiserver merges equal messages in the text, but lists every cause.
        let mut lines: Vec<String> = Vec::new();
        for error in errors {
            let line = error.to_string();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let list = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {list}", what.qualified_kind());
        let mut details = Map::new();
        insert_nonempty(&mut details, "name", name);
        insert_nonempty(&mut details, "group", what.group);
        insert_nonempty(&mut details, "kind", what.kind);
        details.insert("causes".into(), causes.into());
        Self::new(422, "Invalid", message).with_details(Value::Object(details))
    }
}

fn insert_nonempty(map: &mut Map<String, Value>, key: &str, value: &str) {
    if !value.is_empty() {
        map.insert(key.into(), value.into());
    }
}

pub fn resource_details(what: &Named<'_>, name: &str) -> Value {
    let mut details = Map::new();
    insert_nonempty(&mut details, "name", name);
    insert_nonempty(&mut details, "group", what.group);
    insert_nonempty(&mut details, "kind", what.resource);
    Value::Object(details)
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    Required(String),
    /// The value as printed, and what is wrong with it.
    Invalid(Shown, String),
    TypeInvalid(Shown, String),
    NotSupported(Shown, Vec<String>),
    Duplicate(Shown),
    TooLong(usize),
    TooMany(usize, usize),
    Forbidden(String),
}

/// How an invalid value is printed in a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    Json(Value),
    /// Objects and lists are omitted from the message.
    Nothing,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shown::Json(Value::String(text)) => write!(f, "{}", go_quote(text)),
            Shown::Json(other) => write!(f, "{other}"),
            Shown::Nothing => Ok(()),
        }
    }
}

/// Quotes like Go's `%q`; JSON quoting is the same for every character that a Kubernetes name or
/// size can contain.
pub fn go_quote(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub field: String,
    pub problem: Problem,
}

impl FieldError {
    pub fn new(field: impl Into<String>, problem: Problem) -> Self {
        Self { field: field.into(), problem }
    }

    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        why: impl Into<String>,
    ) -> Self {
        Self::new(field, Problem::Invalid(Shown::Json(value.into()), why.into()))
    }

    pub fn required(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(field, Problem::Required(why.into()))
    }

    pub fn forbidden(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(field, Problem::Forbidden(why.into()))
    }

    fn reason(&self) -> &'static str {
        match &self.problem {
            Problem::Required(_) => "FieldValueRequired",
            Problem::Invalid(..) => "FieldValueInvalid",
            Problem::TypeInvalid(..) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) => "FieldValueNotSupported",
            Problem::Duplicate(_) => "FieldValueDuplicate",
            Problem::TooLong(_) => "FieldValueTooLong",
            Problem::TooMany(..) => "FieldValueTooMany",
            Problem::Forbidden(_) => "FieldValueForbidden",
        }
    }

    fn body(&self) -> String {
        match &self.problem {
            Problem::Required(why) if why.is_empty() => "Required value".into(),
            Problem::Required(why) => format!("Required value: {why}"),
            Problem::Invalid(Shown::Nothing, why) | Problem::TypeInvalid(Shown::Nothing, why) => {
                format!("Invalid value: {why}")
            }
            Problem::Invalid(value, why) | Problem::TypeInvalid(value, why) => {
                format!("Invalid value: {value}: {why}")
            }
            Problem::NotSupported(value, allowed) => {
                let allowed: Vec<String> = allowed.iter().map(|a| go_quote(a)).collect();
                format!("Unsupported value: {value}: supported values: {}", allowed.join(", "))
            }
            Problem::Duplicate(value) => format!("Duplicate value: {value}"),
            Problem::TooLong(max) => format!("Too long: may not be more than {max} bytes"),
            Problem::TooMany(actual, max) => {
                format!("Too many: {actual}: must have at most {max} items")
            }
            Problem::Forbidden(why) => format!("Forbidden: {why}"),
        }
    }

    /// The root has no path; kube-apiserver prints Go's nil there.
    fn shown_field(&self) -> &str {
        if self.field.is_empty() { "<nil>" } else { &self.field }
    }

    /// Whether CEL rules are skipped because of this error: they could not rely on types and sizes.
    pub fn blocks_rules(&self) -> bool {
        match self.problem {
            Problem::Required(_)
            | Problem::TypeInvalid(..)
            | Problem::NotSupported(..)
            | Problem::TooLong(_)
            | Problem::TooMany(..) => true,
            Problem::Invalid(..) | Problem::Duplicate(_) | Problem::Forbidden(_) => false,
        }
    }

    fn cause(&self) -> Value {
        json!({"reason": self.reason(), "message": self.body(), "field": self.shown_field()})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.shown_field(), self.body())
    }
}

/// `spec.list[0].name` from its parent and a key.
pub fn child(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}
