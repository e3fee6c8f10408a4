//! Owns label selectors: the equality and set operators of Kubernetes, in the query string's
//! grammar.

use crate::status::ApiError;
use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let refuse =
            |why: String| ApiError::bad_request(format!("unable to parse requirement: {why}"));
        let mut out = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if part.is_empty() {
                if text.trim().is_empty() {
                    continue;
                }
                return Err(refuse("found '', expected: identifier".into()));
            }
            out.push(requirement(part).map_err(refuse)?);
        }
        Ok(Self(out))
    }

    /// From a `LabelSelector` object, as in admission policies.
    pub fn from_object(selector: &Value) -> Self {
        let mut out = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_owned();
                out.push(Requirement { key: key.clone(), test: Test::In(vec![value]) });
            }
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.map(Vec::as_slice).unwrap_or_default() {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = || {
                let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
                values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
            };
            let test = match expression["operator"].as_str() {
                Some("In") => Test::In(values()),
                Some("NotIn") => Test::NotIn(values()),
                Some("Exists") => Test::Exists,
                Some("DoesNotExist") => Test::Absent,
                // An unknown operator selects nothing.
                _ => Test::In(Vec::new()),
            };
            out.push(Requirement { key, test });
        }
        Self(out)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.0.iter().all(|requirement| {
            let value =
                labels.and_then(|labels| labels.get(&requirement.key)).and_then(Value::as_str);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::Greater(bound) => number().is_some_and(|number| number > *bound),
                Test::Less(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0usize, 0usize);
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, String> {
    if let Some(key) = part.strip_prefix('!') {
        return Ok(Requirement { key: key_of(key)?, test: Test::Absent });
    }
    // `!=` before `=`, because it contains `=`.
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Requirement { key: key_of(key)?, test: Test::NotIn(vec![value_of(value)?]) });
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement { key: key_of(key)?, test: Test::In(vec![value_of(value)?]) });
    }
    for (operator, make) in
        [('>', Test::Greater as fn(i64) -> Test), ('<', Test::Less as fn(i64) -> Test)]
    {
        if let Some((key, value)) = part.split_once(operator) {
            let bound = value.trim().parse().map_err(|_| format!("{value:?} is not an integer"))?;
            return Ok(Requirement { key: key_of(key)?, test: make(bound) });
        }
    }
    let mut words = part.splitn(2, char::is_whitespace);
    let key = key_of(words.next().unwrap_or_default())?;
    let rest = words.next().unwrap_or_default().trim();
    if rest.is_empty() {
        return Ok(Requirement { key, test: Test::Exists });
    }
    let Some((operator, list)) = rest.split_once('(') else {
        let mut words = rest.split_whitespace();
        return Err(match (words.next(), words.next()) {
            (Some("in" | "notin"), next) => {
                format!("found '{}' expected: '('", next.unwrap_or_default())
            }
            (word, _) => format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                word.unwrap_or_default()
            ),
        });
    };
    let list =
        list.strip_suffix(')').ok_or_else(|| format!("found {rest:?}, expected: ',' or ')'"))?;
    let values = list.split(',').map(value_of).collect::<Result<Vec<_>, _>>()?;
    match operator.trim() {
        "in" => Ok(Requirement { key, test: Test::In(values) }),
        "notin" => Ok(Requirement { key, test: Test::NotIn(values) }),
        other => Err(format!("found {other:?}, expected: in, notin, =, ==, !=, gt, lt")),
    }
}

fn key_of(text: &str) -> Result<String, String> {
    let key = text.trim();
    match crate::kind::names::qualified_name(key) {
        Ok(()) => Ok(key.to_owned()),
        Err(why) => Err(format!("key {key:?}: {why}")),
    }
}

fn value_of(text: &str) -> Result<String, String> {
    let value = text.trim();
    match crate::kind::names::label_value(value) {
        Ok(()) => Ok(value.to_owned()),
        Err(why) => Err(format!("values[0]: Invalid value: {value:?}: {why}")),
    }
}
