//! Owns validation against a structural schema: reports all problems together, in kube-apiserver's
//! wording. A value that equals the stored one is not validated again (upstream calls this
//! ratcheting), so that other fields of an object stored under an older schema can still be edited.

use super::{Additional, Bounds, ListType, Schema, Type, format};
use crate::status::{FieldError, Problem, Shown, child};
use serde_json::{Map, Value};

pub fn validate(schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, old, "", &mut errors);
    // kube-apiserver searches for duplicates in a second pass.
    duplicates(schema, value, old, "", &mut errors);
    errors
}

fn walk(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    if value.is_null() && schema.nullable {
        return;
    }
    if let Some(expected) = type_mismatch(schema, value) {
        let found = type_name(value);
        errors.push(FieldError::new(
            path,
            Problem::TypeInvalid(
                Shown::Json(found.into()),
                format!(
                    "{} must be of type {expected}: {}",
                    in_body(path),
                    crate::status::go_quote(found)
                ),
            ),
        ));
        if found == "number" && expected == "integer" {
            let why = format!("Checked value must be of type integer (default format) in {path}");
            errors.push(FieldError::invalid("", "", why));
        }
        return;
    }
    match value {
        Value::Object(map) => object(schema, map, old.and_then(Value::as_object), path, errors),
        Value::Array(items) => array(schema, items, old.and_then(Value::as_array), path, errors),
        Value::String(text) => string(schema, text, path, errors),
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                numeric(&schema.bounds, number, value, path, errors);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    if let Some(allowed) = &schema.bounds.enumeration
        && !allowed.contains(value)
    {
        let allowed = allowed.iter().map(plain).collect();
        errors.push(FieldError::new(
            path,
            Problem::NotSupported(Shown::Json(value.clone()), allowed),
        ));
    }
    combinators(schema, value, old, path, errors);
}

fn object(
    schema: &Schema,
    map: &Map<String, Value>,
    old: Option<&Map<String, Value>>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let bounds = &schema.bounds;
    if let Some(min) = bounds.min_properties
        && map.len() < min
    {
        let why = format!("{} should have at least {min} properties", in_body(path));
        errors.push(FieldError::invalid(path, map.len(), why));
    }
    if let Some(max) = bounds.max_properties
        && map.len() > max
    {
        errors.push(FieldError::new(path, Problem::TooMany(map.len(), max)));
    }
    for required in &schema.required {
        if !map.contains_key(required) {
            errors.push(FieldError::required(child(path, required), ""));
        }
    }
    for (key, value) in map {
        let inner = match (schema.properties.get(key), &schema.additional) {
            (Some(property), _) => property,
            (None, Additional::Schema(additional)) => additional,
            (None, Additional::None | Additional::Any) => continue,
        };
        walk(inner, value, old.and_then(|old| old.get(key)), &child(path, key), errors);
    }
}

fn array(
    schema: &Schema,
    items: &[Value],
    old: Option<&Vec<Value>>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let bounds = &schema.bounds;
    if let Some(min) = bounds.min_items
        && items.len() < min
    {
        let why = format!("{} should have at least {min} items", in_body(path));
        errors.push(FieldError::invalid(path, items.len(), why));
    }
    if let Some(max) = bounds.max_items
        && items.len() > max
    {
        errors.push(FieldError::new(path, Problem::TooMany(items.len(), max)));
    }
    let Some(inner) = &schema.items else { return };
    for (index, item) in items.iter().enumerate() {
        walk(inner, item, old_item(schema, item, old), &format!("{path}[{index}]"), errors);
    }
}

/// Only items of a keyed list have an identity; items of other lists are always validated.
fn old_item<'a>(schema: &Schema, item: &Value, old: Option<&'a Vec<Value>>) -> Option<&'a Value> {
    if schema.list_type != ListType::Map {
        return None;
    }
    let key = item_key(schema, item)?;
    old?.iter().find(|item| item_key(schema, item).as_ref() == Some(&key))
}

fn duplicates(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let Some(inner) = schema.child(key) else { continue };
                duplicates(
                    inner,
                    value,
                    old.and_then(|old| old.get(key)),
                    &child(path, key),
                    errors,
                );
            }
        }
        Value::Array(items) => {
            let keys: Vec<Option<Value>> =
                items.iter().map(|item| item_key(schema, item)).collect();
            for (index, item) in items.iter().enumerate() {
                let at = format!("{path}[{index}]");
                if let Some(key) = &keys[index]
                    && keys[..index].iter().flatten().any(|earlier| earlier == key)
                {
                    errors.push(FieldError::new(&at, Problem::Duplicate(Shown::Json(key.clone()))));
                }
                if let Some(inner) = &schema.items {
                    duplicates(
                        inner,
                        item,
                        old_item(schema, item, old.and_then(Value::as_array)),
                        &at,
                        errors,
                    );
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What makes an item unique in a set or a keyed list.
fn item_key(schema: &Schema, item: &Value) -> Option<Value> {
    match schema.list_type {
        ListType::Atomic if schema.bounds.unique_items => Some(item.clone()),
        ListType::Atomic => None,
        ListType::Set => Some(item.clone()),
        ListType::Map => {
            let item = item.as_object()?;
            let key = schema
                .list_map_keys
                .iter()
                .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Some(Value::Object(key.collect()))
        }
    }
}

fn string(schema: &Schema, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let length = text.chars().count();
    // kube-apiserver stops at the first bound that a string violates; the format is checked
    // separately.
    if let Some(max) = bounds.max_length
        && length > max
    {
        errors.push(FieldError::new(path, Problem::TooLong(max)));
    } else if let Some(min) = bounds.min_length
        && length < min
    {
        errors.push(FieldError::invalid(
            path,
            text,
            format!("{} should be at least {min} chars long", in_body(path)),
        ));
    } else if let Some(pattern) = &bounds.pattern
        && !pattern.is_match(text)
    {
        errors.push(FieldError::invalid(
            path,
            text,
            format!("{} should match '{}'", in_body(path), pattern.as_str()),
        ));
    }
    if let Some(name) = &schema.format
        && !format::holds(name, text)
    {
        let why =
            format!("{} must be of type {name}: {}", in_body(path), crate::status::go_quote(text));
        errors.push(FieldError::new(path, Problem::TypeInvalid(Shown::Json(text.into()), why)));
    }
}

fn numeric(bounds: &Bounds, number: f64, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut refuse = |why: String| {
        errors.push(FieldError::invalid(path, value.clone(), format!("{} {why}", in_body(path))));
    };
    if let Some(factor) = bounds.multiple_of
        && factor != 0.0
        && (number / factor).fract() != 0.0
    {
        refuse(format!("should be a multiple of {}", plain_number(factor)));
    }
    if let Some(max) = bounds.maximum {
        if bounds.exclusive_maximum && number >= max {
            refuse(format!("should be less than {}", plain_number(max)));
        } else if !bounds.exclusive_maximum && number > max {
            refuse(format!("should be less than or equal to {}", plain_number(max)));
        }
    }
    if let Some(min) = bounds.minimum {
        if bounds.exclusive_minimum && number <= min {
            refuse(format!("should be greater than {}", plain_number(min)));
        } else if !bounds.exclusive_minimum && number < min {
            refuse(format!("should be greater than or equal to {}", plain_number(min)));
        }
    }
}

fn combinators(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let errors_of = |branch: &Schema| {
        let mut inner = Vec::new();
        walk(branch, value, old, path, &mut inner);
        inner
    };
    let mut refuse = |why: String| {
        // Printed without field and value, as by kube-apiserver.
        errors.push(FieldError::invalid("", "", format!("\"{path}\" {why}")));
    };
    let mut extra = Vec::new();
    if !schema.one_of.is_empty() {
        let results: Vec<_> = schema.one_of.iter().map(errors_of).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        if valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            refuse(format!("must validate one and only one schema (oneOf). {found}"));
            if valid == 0 {
                extra.extend(best(results));
            }
        }
    }
    if !schema.any_of.is_empty() {
        let results: Vec<_> = schema.any_of.iter().map(errors_of).collect();
        if results.iter().all(|errors| !errors.is_empty()) {
            refuse("must validate at least one schema (anyOf)".into());
            extra.extend(best(results));
        }
    }
    if !schema.all_of.is_empty() {
        let failed: Vec<_> =
            schema.all_of.iter().map(errors_of).filter(|errors| !errors.is_empty()).collect();
        if !failed.is_empty() {
            let none = if failed.len() == schema.all_of.len() { ". None validated" } else { "" };
            refuse(format!("must validate all the schemas (allOf){none}"));
            extra.extend(failed.into_iter().flatten());
        }
    }
    if let Some(not) = &schema.not
        && errors_of(not).is_empty()
    {
        refuse("must not validate the schema (not)".into());
    }
    errors.extend(extra);
}

/// The closest branch: the one with the fewest problems.
fn best(results: Vec<Vec<FieldError>>) -> Vec<FieldError> {
    results.into_iter().min_by_key(Vec::len).unwrap_or_default()
}

fn type_mismatch(schema: &Schema, value: &Value) -> Option<&'static str> {
    if schema.int_or_string {
        let fits = value.is_string() || is_integer(value);
        return (!fits).then_some("integer,string");
    }
    let (expected, fits) = match schema.kind {
        Type::Any => return None,
        Type::Object => ("object", value.is_object()),
        Type::Array => ("array", value.is_array()),
        Type::String => ("string", value.is_string()),
        Type::Integer => ("integer", is_integer(value)),
        Type::Number => ("number", value.is_number()),
        Type::Boolean => ("boolean", value.is_boolean()),
        Type::Quantity => ("string", value.is_string() || value.is_number()),
    };
    (!fits).then_some(expected)
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}

pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn in_body(path: &str) -> String {
    if path.is_empty() { "in body".to_owned() } else { format!("{path} in body") }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn plain_number(number: f64) -> String {
    format!("{number}")
}
