//! Credentials: types that never print them, and their removal from text and JSON of others.
//!
//! Printing is by allow-list (`Guarded`): a key that is not known to be harmless is hidden. Removal
//! from Ironic's own text needs the values (`Request::secrets`), because Ironic quotes what it was sent.
//! Never logs. Next to read: `call.rs`, `error.rs`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// What is printed in place of a credential; the text that Ironic itself uses.
pub const HIDDEN: &str = "******";

/// A credential. Debug and Display hide it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The credential itself, for the request that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// A JSON object that may contain credentials (`driver_info`, `instance_info`). Debug shows all
/// keys, and values only of keys on the allow-list.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Guarded(pub Map<String, Value>);

impl Guarded {
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get_str(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }

    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(key.into(), value.into());
    }
}

impl FromIterator<(String, Value)> for Guarded {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().map(|(key, value)| (key, shown_value(key, value)));
        f.debug_map().entries(shown).finish()
    }
}

/// Keys whose values are printed: addresses, paths and switches.
const PUBLIC_KEYS: &[&str] = &[
    "bootloader",
    "deploy_iso",
    "deploy_kernel",
    "deploy_ramdisk",
    "force_persistent_boot_device",
    "image_checksum",
    "image_disk_format",
    "image_os_hash_algo",
    "image_os_hash_value",
    "image_source",
    "image_type",
];
const PUBLIC_ENDINGS: &[&str] = &["_address", "_port", "_system_id", "_auth_type", "_verify_ca"];

fn shown_value(key: &str, value: &Value) -> String {
    let public = PUBLIC_KEYS.contains(&key) || PUBLIC_ENDINGS.iter().any(|end| key.ends_with(end));
    match value {
        Value::String(text) if public => without_userinfo(text),
        Value::Bool(_) | Value::Number(_) if public => value.to_string(),
        Value::Null => "null".to_owned(),
        _ => HIDDEN.to_owned(),
    }
}

/// Parts of key names that announce a credential. Broader than need be: a hidden value costs a
/// line of a log, a shown one a password.
const SECRET_PARTS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "private",
    "configdrive",
    "user_data",
    "userdata",
    "auth_key",
    "priv_key",
    "_kg_key",
    "community",
    "authorization",
];

/// Whether the value of a key counts as a credential.
pub fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_PARTS.iter().any(|part| key.contains(part))
}

/// Whether a JSON pointer leads to a credential, or into one.
pub fn is_secret_path(path: &str) -> bool {
    path.split('/').any(is_secret_key)
}

/// Every text of a request body that counts as a credential, longest first. JSON patches are
/// recognized: an operation with a `path` and a `value`.
pub fn secrets_of(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(body, false, &mut found);
    found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    found.dedup();
    found
}

fn collect(value: &Value, secret: bool, found: &mut Vec<String>) {
    match value {
        Value::String(text) if secret && !text.is_empty() && text != HIDDEN => {
            found.push(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, secret, found)),
        Value::Object(fields) => {
            let patched = patched_path(fields).is_some_and(is_secret_path);
            for (key, field) in fields {
                let patched = patched && key == "value";
                collect(field, secret || patched || is_secret_key(key), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn patched_path(fields: &Map<String, Value>) -> Option<&str> {
    fields.contains_key("op").then(|| fields.get("path").and_then(Value::as_str)).flatten()
}

/// The same JSON with every credential replaced by [`HIDDEN`].
pub fn redacted(value: &Value) -> Value {
    hide(value, false)
}

fn hide(value: &Value, secret: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let patched = patched_path(fields).is_some_and(is_secret_path);
            let shown = fields.iter().map(|(key, field)| {
                let hidden = secret || is_secret_key(key) || (patched && key == "value");
                (key.clone(), hide(field, hidden))
            });
            Value::Object(shown.collect())
        }
        Value::Array(items) => items.iter().map(|item| hide(item, secret)).collect(),
        Value::Null => Value::Null,
        _ if secret => Value::String(HIDDEN.to_owned()),
        Value::String(text) => Value::String(without_userinfo(text)),
        Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Text of others without credentials: the given values, user information in URLs, and what
/// follows a word such as `password=`.
pub fn without_credentials(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = if secret.len() >= 4 {
            text.replace(secret.as_str(), HIDDEN)
        } else {
            // A short one occurs in ordinary words: only whole words are replaced.
            replace_words(&text, secret)
        };
    }
    without_assignments(&without_userinfo(&text))
}

fn replace_words(text: &str, word: &str) -> String {
    let is_edge = |char: Option<char>| char.is_none_or(|char| !char.is_alphanumeric());
    let (mut result, mut at) = (String::new(), 0);
    for (start, _) in text.match_indices(word) {
        let end = start + word.len();
        let (before, after) = (text[..start].chars().next_back(), text[end..].chars().next());
        if start >= at && is_edge(before) && is_edge(after) {
            result.push_str(&text[at..start]);
            result.push_str(HIDDEN);
            at = end;
        }
    }
    result.push_str(&text[at..]);
    result
}

/// `scheme://user:password@host` loses what is before the `@`.
pub fn without_userinfo(text: &str) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        let is_end = |char: char| char.is_whitespace() || "/?#\"'<>".contains(char);
        let authority = &tail[..tail.find(is_end).unwrap_or(tail.len())];
        result.push_str(head);
        rest = match authority.rfind('@') {
            Some(sign) => {
                result.push_str(HIDDEN);
                &tail[sign..]
            }
            None => tail,
        };
    }
    result.push_str(rest);
    result
}

const ASSIGNED_WORDS: &[&str] = &["password", "passwd", "token", "secret"];

/// `password: x`, `'redfish_password': 'x'` and `token=x` lose the value.
fn without_assignments(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let (mut result, mut at) = (String::new(), 0);
    while let Some((start, word)) = ASSIGNED_WORDS
        .iter()
        .filter_map(|word| lower[at..].find(*word).map(|found| (at + found, word)))
        .min()
    {
        let after = start + word.len();
        let separator = text[after..].len()
            - text[after..].trim_start_matches(['\'', '"', ' ', ':', '=', '\\']).len();
        let assigned = text[after..after + separator].contains([':', '=']);
        let value_at = after + separator;
        let quote = text[..value_at].chars().next_back().filter(|char| "'\"".contains(*char));
        let is_end = |char: char| match quote {
            Some(quote) => char == quote,
            None => char.is_whitespace() || "'\",;)}]".contains(char),
        };
        let length = text[value_at..].find(is_end).unwrap_or(text.len() - value_at);
        let end = if assigned && length > 0 {
            result.push_str(&text[at..value_at]);
            result.push_str(HIDDEN);
            value_at + length
        } else {
            result.push_str(&text[at..after]);
            after
        };
        at = end;
    }
    result.push_str(&text[at..]);
    result
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
