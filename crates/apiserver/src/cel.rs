//! Owns the CEL rules of CRD schemas (`x-kubernetes-validations`, with `oldSelf`), evaluated by kube-cel.
//! Never evaluates admission policies; see `admission`.

use crate::status::{FieldError, Problem, Shown};
use kube_cel::{CompiledSchema, compile_schema, validate_compiled};
use serde_json::Value;

/// Compiled rules of one schema.
pub struct Rules(CompiledSchema);

impl Rules {
    /// `None` when the schema has no rules; most writes then skip CEL.
    pub fn compile(schema: &Value) -> Option<Self> {
        holds_rules(schema).then(|| Self(compile_schema(schema)))
    }

    pub fn check(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let Err(errors) = validate_compiled(&self.0, object, old) else { return Vec::new() };
        errors
            .into_iter()
            .filter_map(|error| {
                let shown = match lookup(object, &error.field_path) {
                    // kube-apiserver evaluates no rule on null.
                    Some(Value::Null) => return None,
                    None | Some(Value::Object(_) | Value::Array(_)) => Shown::Nothing,
                    Some(scalar) => Shown::Json(scalar.clone()),
                };
                let problem = match error.reason.as_deref() {
                    Some("FieldValueForbidden") => Problem::Forbidden(error.message),
                    Some("FieldValueRequired") => Problem::Required(error.message),
                    Some("FieldValueDuplicate") => Problem::Duplicate(shown),
                    _ => Problem::Invalid(shown, error.message),
                };
                Some(FieldError::new(error.field_path, problem))
            })
            .collect()
    }
}

/// Reported in place of rule results when the object is too invalid to evaluate the rules.
pub fn not_checked() -> FieldError {
    let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    FieldError::invalid("", Value::Null, why)
}

fn holds_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.contains_key("x-kubernetes-validations") || map.values().any(holds_rules)
        }
        Value::Array(items) => items.iter().any(holds_rules),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The value at a path such as `spec.list[0].name`.
fn lookup<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let (name, indexes) = part.split_once('[').unwrap_or((part, ""));
        value = value.get(name)?;
        for index in indexes
            .split('[')
            .map(|index| index.trim_end_matches(']'))
            .filter(|index| !index.is_empty())
        {
            value = match index.parse::<usize>() {
                Ok(index) => value.get(index)?,
                Err(_) => value.get(index)?,
            };
        }
    }
    Some(value)
}
