//! Compiles an OpenAPI schema (JSON) to a `Schema`. References are inlined, which is possible
//! because no kind served here is recursive.

use super::{Additional, Bounds, ListType, Schema, Type};
use regex::Regex;
use serde_json::{Map, Value};

#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("schema at {path}: pattern {pattern:?} is not a regular expression")]
    Pattern { path: String, pattern: String, source: regex::Error },
    #[error("schema at {path}: {what}")]
    Malformed { path: String, what: String },
    #[error(
        "schema at {path}: nested more than {MAX_DEPTH} levels; recursive schemas are not supported"
    )]
    TooDeep { path: String },
}

/// Deeper than any kind served here; stops a recursive reference.
const MAX_DEPTH: usize = 48;

pub fn compile(schema: &Value) -> Result<Schema, CompileError> {
    Compiler { definitions: None }.node(schema, String::new(), 0)
}

/// Compiles a schema whose `$ref`s point into `definitions`.
pub fn compile_with_definitions(
    schema: &Value,
    definitions: &Map<String, Value>,
) -> Result<Schema, CompileError> {
    Compiler { definitions: Some(definitions) }.node(schema, String::new(), 0)
}

struct Compiler<'a> {
    definitions: Option<&'a Map<String, Value>>,
}

impl Compiler<'_> {
    fn node(&self, schema: &Value, path: String, depth: usize) -> Result<Schema, CompileError> {
        if depth > MAX_DEPTH {
            return Err(CompileError::TooDeep { path });
        }
        let Some(map) = schema.as_object() else {
            return match schema {
                Value::Bool(true) => Ok(Schema { preserve_unknown: true, ..Schema::any() }),
                _ => Err(CompileError::Malformed { path, what: "is not an object".into() }),
            };
        };
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, path, depth);
        }
        // A reference with a description is written as an allOf with one element.
        if let Some([only]) = map.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
            && let Some(reference) = only.get("$ref").and_then(Value::as_str)
        {
            return self.reference(reference, path, depth);
        }
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        let mut out = Schema::any();
        out.int_or_string = flag("x-kubernetes-int-or-string")
            || map.get("format") == Some(&"int-or-string".into());
        (out.kind, out.nullable) = self.kind(map, &path)?;
        if out.int_or_string {
            out.kind = Type::Any;
        }
        out.nullable |= flag("nullable");
        out.preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
        out.embedded_resource = flag("x-kubernetes-embedded-resource");
        if let Some(properties) = map.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let node = self.node(property, format!("{path}.{name}"), depth + 1)?;
                out.properties.insert(name.clone(), node);
            }
        }
        out.additional = match map.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Any,
            Some(inner @ Value::Object(_)) => {
                Additional::Schema(Box::new(self.node(inner, format!("{path}[*]"), depth + 1)?))
            }
            _ => Additional::None,
        };
        if let Some(items) = map.get("items") {
            out.items = Some(Box::new(self.node(items, format!("{path}[]"), depth + 1)?));
        }
        out.required = strings(map, "required");
        out.default = map.get("default").cloned();
        out.bounds = bounds(map, &path)?;
        out.format = map.get("format").and_then(Value::as_str).map(str::to_owned);
        out.list_type = match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("map") => ListType::Map,
            Some("set") => ListType::Set,
            _ => ListType::Atomic,
        };
        out.list_map_keys = strings(map, "x-kubernetes-list-map-keys");
        let branches = |key: &str| -> Result<Vec<Schema>, CompileError> {
            let list =
                map.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            list.iter()
                .map(|branch| self.node(branch, format!("{path}.{key}"), depth + 1))
                .collect()
        };
        // int-or-string has its own anyOf; that check is built in.
        if !out.int_or_string {
            out.any_of = branches("anyOf")?;
            out.all_of = branches("allOf")?;
        }
        out.one_of = branches("oneOf")?;
        if let Some(not) = map.get("not") {
            out.not = Some(Box::new(self.node(not, format!("{path}.not"), depth + 1)?));
        }
        Ok(out)
    }

    fn reference(
        &self,
        reference: &str,
        path: String,
        depth: usize,
    ) -> Result<Schema, CompileError> {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        if name.ends_with(".api.resource.Quantity") {
            return Ok(Schema { kind: Type::Quantity, ..Schema::any() });
        }
        if name.ends_with(".util.intstr.IntOrString") {
            return Ok(Schema { int_or_string: true, ..Schema::any() });
        }
        if name.ends_with(".meta.v1.FieldsV1") || name.ends_with(".runtime.RawExtension") {
            return Ok(Schema { preserve_unknown: true, ..Schema::any() });
        }
        let target = self.definitions.and_then(|definitions| definitions.get(name));
        match target {
            Some(target) => self.node(target, path, depth + 1),
            None => Err(CompileError::Malformed {
                path,
                what: format!("reference {reference} is not defined"),
            }),
        }
    }

    fn kind(&self, map: &Map<String, Value>, path: &str) -> Result<(Type, bool), CompileError> {
        let name = match map.get("type") {
            None => return Ok((Type::Any, false)),
            Some(Value::String(name)) => (name.as_str(), false),
            // JSON Schema's form of nullable.
            Some(Value::Array(names)) => {
                let name = names
                    .iter()
                    .filter_map(Value::as_str)
                    .find(|name| *name != "null")
                    .unwrap_or_default();
                (name, names.iter().any(|name| name == "null"))
            }
            Some(_) => ("", false),
        };
        let kind = match name.0 {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            other => {
                return Err(CompileError::Malformed {
                    path: path.into(),
                    what: format!("unknown type {other:?}"),
                });
            }
        };
        Ok((kind, name.1))
    }
}

fn strings(map: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = map.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn bounds(map: &Map<String, Value>, path: &str) -> Result<Bounds, CompileError> {
    let number = |key: &str| map.get(key).and_then(Value::as_f64);
    let count = |key: &str| map.get(key).and_then(Value::as_f64).map(|n| n as usize);
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let pattern = match map.get("pattern").and_then(Value::as_str) {
        None => None,
        Some(pattern) => Some(Regex::new(pattern).map_err(|source| CompileError::Pattern {
            path: path.into(),
            pattern: pattern.into(),
            source,
        })?),
    };
    Ok(Bounds {
        enumeration: map.get("enum").and_then(Value::as_array).cloned(),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        unique_items: flag("uniqueItems"),
        pattern,
    })
}
