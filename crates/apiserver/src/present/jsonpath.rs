//! Owns the JSONPath subset for printer columns: fields, indexes, wildcards, and filters such as
//! `[?(@.type=="Ready")]`.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Filter {
        path: Vec<String>,
        equal: bool,
        value: Value,
    },
    /// Syntax outside this subset: the column stays empty.
    Unsupported,
}

impl JsonPath {
    pub fn parse(text: &str) -> Self {
        let text = text.trim().trim_start_matches('{').trim_end_matches('}');
        let mut steps = Vec::new();
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after);
                steps.push(bracket(&after[..end]));
                rest = after.get(end + 1..).unwrap_or_default();
            } else {
                let after = rest.strip_prefix('.').unwrap_or(rest);
                let (name, used) = field(after);
                if !name.is_empty() {
                    steps.push(if name == "*" { Step::All } else { Step::Field(name) });
                } else if used == 0 {
                    steps.push(Step::Unsupported);
                    break;
                }
                rest = &after[used..];
            }
        }
        Self(steps)
    }

    /// Every value at the path.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(index) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let index = if *index < 0 { items.len() as i64 + index } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            Step::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Step::Filter { path, equal, value: wanted } => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let read = |item: &'a Value| path.iter().try_fold(item, |item, key| item.get(key));
                items.iter().filter(|item| (read(item) == Some(wanted)) == *equal).collect()
            }
            Step::Unsupported => Vec::new(),
        }
    }
}

/// A field name, with `\.` for a dot in it, and its length in bytes.
fn field(text: &str) -> (String, usize) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (name, at),
            other => name.push(other),
        }
    }
    (name, text.len())
}

/// Position of the closing bracket; quotes and nested brackets are skipped.
fn closing(text: &str) -> usize {
    let (mut depth, mut quote) = (0usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return at,
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    text.len()
}

fn bracket(inner: &str) -> Step {
    let inner = inner.trim();
    if inner == "*" {
        return Step::All;
    }
    if let Ok(index) = inner.parse() {
        return Step::Index(index);
    }
    if let Some(name) = unquote(inner) {
        return Step::Field(name);
    }
    inner
        .strip_prefix("?(")
        .and_then(|filter| filter.strip_suffix(')'))
        .and_then(filter)
        .unwrap_or(Step::Unsupported)
}

fn filter(text: &str) -> Option<Step> {
    let (left, right, equal) = match text.split_once("==") {
        Some((left, right)) => (left, right, true),
        None => text.split_once("!=").map(|(left, right)| (left, right, false))?,
    };
    let path = left.trim().strip_prefix('@')?;
    let path = path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let right = right.trim();
    let value = match unquote(right) {
        Some(text) => Value::String(text),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Filter { path, equal, value })
}

fn unquote(text: &str) -> Option<String> {
    let inner =
        ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))?;
    Some(inner.to_owned())
}
