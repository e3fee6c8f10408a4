//! Owns the data: conversations and known differences, read from YAML.

use super::directory;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    pub name: String,
    pub requests: Vec<Exchange>,
}

/// One request, and what is expected of its response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    pub method: String,
    /// May contain `${name}` of a saved value; so may the body.
    pub path: String,
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    pub accept: Option<String>,
    pub body: Option<Value>,
    /// A body that is not JSON.
    pub raw: Option<String>,
    /// The status code of both responses.
    pub expect: Option<u16>,
    /// Values to save for later requests, by JSON pointer.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
}

/// An intended difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The conversation, or `*`.
    pub conversation: String,
    /// JSON pointers in the compared response, `*` for any one step; everything below may differ
    /// too.
    pub at: Vec<String>,
    pub why: String,
}

pub fn conversations() -> Vec<Conversation> {
    let mut files: Vec<_> = std::fs::read_dir(directory())
        .expect("the conversations are beside this crate")
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .filter(|path| path.file_name().is_some_and(|name| name != "known.yaml"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a conversation file");
        let some: Vec<Conversation> =
            serde_saphyr::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        all.extend(some);
    }
    all
}

pub fn known() -> Vec<Known> {
    let path = directory().join("known.yaml");
    let text = std::fs::read_to_string(&path).expect("the known differences");
    serde_saphyr::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Replaces `${name}` with saved values.
pub fn fill(text: &str, saved: &BTreeMap<String, String>) -> String {
    saved
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

pub fn fill_value(value: &Value, saved: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => fill(text, saved).into(),
        Value::Array(items) => items.iter().map(|item| fill_value(item, saved)).collect(),
        Value::Object(map) => Value::Object(
            map.iter().map(|(key, value)| (fill(key, saved), fill_value(value, saved))).collect(),
        ),
        other => other.clone(),
    }
}
