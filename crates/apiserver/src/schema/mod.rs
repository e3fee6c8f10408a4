//! Owns structural schemas: compiled once from the OpenAPI schema of a CRD or built-in type, then
//! used to prune (`prune`), default (`default`) and validate (`validate`, `format`) objects.
//! Reports every problem of an object. Never evaluates CEL (see `cel`) and never reads other
//! objects.

mod compile;
mod default;
mod format;
mod prune;
#[cfg(test)]
mod tests;
mod validate;

pub use compile::{CompileError, compile, compile_with_definitions};
pub use default::apply_defaults;
pub use prune::prune;
pub use validate::validate;

use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// A Kubernetes quantity of a built-in kind: a string or a number.
    Quantity,
    /// No type given: any value is allowed.
    Any,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// One node of a structural schema.
#[derive(Clone, Debug)]
pub struct Schema {
    pub kind: Type,
    pub nullable: bool,
    pub int_or_string: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub properties: BTreeMap<String, Schema>,
    pub additional: Additional,
    pub items: Option<Box<Schema>>,
    pub required: Vec<String>,
    pub default: Option<Value>,
    pub bounds: Bounds,
    pub format: Option<String>,
    pub list_type: ListType,
    pub list_map_keys: Vec<String>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

/// What an object may contain besides its properties.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    #[default]
    None,
    Any,
    Schema(Box<Schema>),
}

/// Value validations of a node.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    pub enumeration: Option<Vec<Value>>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub min_items: Option<usize>,
    pub max_items: Option<usize>,
    pub min_properties: Option<usize>,
    pub max_properties: Option<usize>,
    pub unique_items: bool,
    pub pattern: Option<Regex>,
}

impl Schema {
    pub fn any() -> Self {
        Self {
            kind: Type::Any,
            nullable: false,
            int_or_string: false,
            preserve_unknown: false,
            embedded_resource: false,
            properties: BTreeMap::new(),
            additional: Additional::None,
            items: None,
            required: Vec::new(),
            default: None,
            bounds: Bounds::default(),
            format: None,
            list_type: ListType::Atomic,
            list_map_keys: Vec::new(),
            all_of: Vec::new(),
            any_of: Vec::new(),
            one_of: Vec::new(),
            not: None,
        }
    }

    pub fn object(properties: impl IntoIterator<Item = (String, Schema)>) -> Self {
        Self { kind: Type::Object, properties: properties.into_iter().collect(), ..Self::any() }
    }

    pub fn string() -> Self {
        Self { kind: Type::String, ..Self::any() }
    }

    /// The schema of a property or of a map's values.
    pub fn child(&self, key: &str) -> Option<&Schema> {
        self.properties.get(key).or(match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::None | Additional::Any => None,
        })
    }
}
