//! Owns field selectors: `metadata.name=a,spec.nodeName!=b`, over the fields that a kind supports.

use crate::status::ApiError;
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in split_escaped(text, ',') {
            if part.is_empty() {
                continue;
            }
            let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) =
                part.split_once("==").or_else(|| part.split_once('='))
            {
                (field, value, true)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            terms.push(Term { field: field.to_owned(), value: unescape(value), equal });
        }
        Ok(Self { terms })
    }

    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.field.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// `read` returns the text of a field of the object.
    pub fn matches(&self, object: &Value, read: impl Fn(&Value, &str) -> String) -> bool {
        self.terms.iter().all(|term| (read(object, &term.field) == term.value) == term.equal)
    }
}

fn split_escaped(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == separator && !escaped {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            other => out.push(other),
        }
    }
    out
}
