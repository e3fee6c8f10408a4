//! Owns the comparison: which parts of a response must be equal.

use serde_json::{Value, json};

/// A response, prepared for comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub value: Value,
}

impl Answer {
    pub fn new(code: u16, warnings: Vec<String>, body: &[u8]) -> Self {
        let mut lines: Vec<Value> = Vec::new();
        let mut whole = true;
        for document in serde_json::Deserializer::from_slice(body).into_iter::<Value>() {
            match document {
                Ok(document) => lines.push(document),
                Err(_) => whole = false,
            }
        }
        // Bookmarks come at any time; everything else in a watch is compared.
        lines.retain(|line| {
            line["type"] != "BOOKMARK" || line["object"]["metadata"]["annotations"].is_object()
        });
        let mut body = match (whole, lines.len()) {
            // Plain text, such as `404 page not found`, is not read by clients.
            (false, _) => Value::Null,
            (true, 1) => lines.remove(0),
            (true, _) => Value::Array(lines),
        };
        normalize(&mut body);
        let mut warnings: Vec<Value> = warnings.into_iter().map(Value::from).collect();
        warnings.sort_by_key(Value::to_string);
        Self { value: json!({"code": code, "warnings": warnings, "body": body}) }
    }

    pub fn code(&self) -> u64 {
        self.value["code"].as_u64().unwrap_or_default()
    }
}

/// Removes what differs between any two servers.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("managedFields");
            map.remove("storageVersionHash");
            for (key, inner) in map.iter_mut() {
                let fixed = match key.as_str() {
                    "uid" | "resourceVersion" | "creationTimestamp" | "deletionTimestamp"
                    | "continue" => inner.as_str().is_some_and(|text| !text.is_empty()),
                    _ => false,
                };
                if fixed {
                    *inner = format!("<{key}>").into();
                } else {
                    normalize(inner);
                }
            }
            if map.get("creationTimestamp").is_some_and(Value::is_null) {
                map.remove("creationTimestamp");
            }
            if map.contains_key("generateName") && map.contains_key("name") {
                let prefix = map["generateName"].as_str().unwrap_or_default().to_owned();
                map.insert("name".into(), format!("{prefix}<random>").into());
            }
            if map.get("kind").is_some_and(|kind| kind == "Status") {
                normalize_status(map);
            }
            if let Some(Value::Array(cells)) = map.get_mut("cells") {
                cells.iter_mut().for_each(normalize_cell);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::String(text) => *text = without_uids(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The real server does not guarantee the order of problems: the causes are compared as a set, and
/// of the list in the message, which repeats them, only the text around it.
fn normalize_status(status: &mut serde_json::Map<String, Value>) {
    if let Some(Value::String(message)) = status.get_mut("message") {
        *message = without_versions(message);
    }
    let causes = status.get_mut("details").and_then(|details| details.get_mut("causes"));
    if let Some(causes) = causes.and_then(Value::as_array_mut) {
        causes.sort_by_key(Value::to_string);
        causes.dedup();
        if causes.len() > 1
            && let Some(Value::String(message)) = status.get_mut("message")
            && let (Some(start), true) = (message.find(" is invalid: ["), message.ends_with(']'))
        {
            message.replace_range(start + " is invalid: [".len()..message.len() - 1, "...");
        }
    }
}

/// Versions in messages are in parentheses.
fn without_versions(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('(').enumerate() {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        if index > 0 {
            out.push('(');
        }
        let version = index > 0 && end > 0 && part[end..].starts_with(')');
        out.push_str(if version { "<version>" } else { &part[..end] });
        out.push_str(&part[end..]);
    }
    out
}

/// Ages depend on the time of the request.
fn normalize_cell(cell: &mut Value) {
    let Some(text) = cell.as_str() else { return };
    let age = !text.is_empty()
        && text.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
        && text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.starts_with(|c: char| c.is_ascii_digit());
    if age {
        *cell = "<age>".into();
    }
}

/// Replaces uids in messages.
fn without_uids(text: &str) -> String {
    let is_uid = |text: &str| {
        text.len() == 36
            && text.chars().enumerate().all(|(at, c)| {
                if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() }
            })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(candidate) = rest.get(..36)
            && is_uid(candidate)
        {
            out.push_str("<uid>");
            rest = &rest[36..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// JSON pointers at which two values differ, with both values.
pub fn differences(left: &Value, right: &Value) -> Vec<(String, Value, Value)> {
    let mut found = Vec::new();
    walk(left, right, String::new(), &mut found);
    found
}

fn walk(left: &Value, right: &Value, at: String, found: &mut Vec<(String, Value, Value)>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let null = Value::Null;
                let escaped = key.replace('~', "~0").replace('/', "~1");
                let sides = (a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null));
                walk(sides.0, sides.1, format!("{at}/{escaped}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (left, right)) in a.iter().zip(b).enumerate() {
                walk(left, right, format!("{at}/{index}"), found);
            }
        }
        _ if left == right => {}
        _ => found.push((at, left.clone(), right.clone())),
    }
}

/// Whether a pointer matches a pattern with `*` steps.
pub fn covers(pattern: &str, pointer: &str) -> bool {
    let mut steps = pointer.split('/').skip(1);
    pattern
        .split('/')
        .skip(1)
        .all(|wanted| steps.next().is_some_and(|step| wanted == "*" || wanted == step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_reported_by_json_pointer() {
        let found = differences(&json!({"a": [1, {"b": 2}], "c": 1}), &json!({"a": [1, {"b": 3}]}));
        let at: Vec<&str> = found.iter().map(|(at, _, _)| at.as_str()).collect();
        assert_eq!(at, ["/a/1/b", "/c"]);
        assert!(covers("/a/*/b", "/a/1/b") && covers("/a", "/a/1/b") && !covers("/b", "/a"));
    }

    #[test]
    fn server_specific_values_are_removed() {
        let one = br#"{"metadata":{"uid":"1","resourceVersion":"4","creationTimestamp":"x","managedFields":[]}}"#;
        let two = br#"{"metadata":{"uid":"2","resourceVersion":"5","creationTimestamp":"y"}}"#;
        assert_eq!(Answer::new(200, vec![], one), Answer::new(200, vec![], two));
        assert_eq!(without_uids("a 25433403-4f21-4097-84d5-e27c60078621."), "a <uid>.");
    }
}
