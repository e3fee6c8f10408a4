//! Owns strategic merge patch for built-in kinds: lists with a merge key are merged item by item,
//! and the directives `$patch`, `$setElementOrder`, `$deleteFromPrimitiveList` and `$retainKeys`
//! are supported.

use crate::status::ApiError;
use serde_json::{Map, Value};

/// Merge key of the list at a path of field names; `""` for a list of scalars that is merged as a
/// set. `None`: the list is replaced.
pub type MergeKeys = fn(&[&str]) -> Option<&'static str>;

const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

pub fn strategic_merge(current: &Value, patch: &Value, keys: MergeKeys) -> Result<Value, ApiError> {
    let mut path = Vec::new();
    match (current, patch) {
        (Value::Object(current), Value::Object(patch)) => {
            Ok(Value::Object(merge_map(current, patch, keys, &mut path)?))
        }
        _ => Ok(patch.clone()),
    }
}

fn merge_map<'a>(
    current: &Map<String, Value>,
    patch: &'a Map<String, Value>,
    keys: MergeKeys,
    path: &mut Vec<&'a str>,
) -> Result<Map<String, Value>, ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => return Ok(without_directives(patch)),
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => {
            return Err(ApiError::bad_request(format!("unknown $patch directive {other:?}")));
        }
    }
    let mut out = current.clone();
    if let Some(retain) = patch.get("$retainKeys").and_then(Value::as_array) {
        out.retain(|key, _| retain.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE) {
            let removed = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(Value::Array(list)) = out.get_mut(field) {
                list.retain(|item| !removed.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        path.push(key);
        let merged = match (out.get(key), value) {
            (_, Value::Null) => None,
            (Some(Value::Object(old)), Value::Object(new)) => {
                Some(Value::Object(merge_map(old, new, keys, path)?))
            }
            (None, Value::Object(new)) => {
                Some(Value::Object(merge_map(&Map::new(), new, keys, path)?))
            }
            (old, Value::Array(new)) => {
                let old = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                Some(Value::Array(merge_list(old, new, keys, path)?))
            }
            (_, other) => Some(other.clone()),
        };
        path.pop();
        match merged {
            Some(merged) => out.insert(key.clone(), merged),
            None => out.remove(key),
        };
    }
    for (key, order) in patch {
        let (Some(field), Value::Array(order)) = (key.strip_prefix(ORDER), order) else { continue };
        path.push(field);
        if let Some(Value::Array(list)) = out.get_mut(field) {
            let before =
                current.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            *list = in_order(std::mem::take(list), order, before, keys(path).unwrap_or_default());
        }
        path.pop();
    }
    Ok(out)
}

fn merge_list<'a>(
    old: &[Value],
    new: &'a [Value],
    keys: MergeKeys,
    path: &mut Vec<&'a str>,
) -> Result<Vec<Value>, ApiError> {
    let Some(merge_key) = keys(path) else { return Ok(new.iter().map(strip).collect()) };
    if merge_key.is_empty() {
        let mut out = old.to_vec();
        for item in new {
            if !out.contains(item) {
                out.push(item.clone());
            }
        }
        return Ok(in_order(out, new, old, merge_key));
    }
    if new.iter().any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace")) {
        return Ok(new.iter().filter(|item| item.get("$patch").is_none()).map(strip).collect());
    }
    let mut out = old.to_vec();
    for item in new {
        let Value::Object(item_map) = item else {
            return Err(ApiError::bad_request(format!(
                "{} contains an item that is not an object",
                path.join(".")
            )));
        };
        let Some(key) = item_map.get(merge_key) else {
            return Err(ApiError::bad_request(format!(
                "map: {item} does not contain declared merge key: {merge_key}"
            )));
        };
        let position = out.iter().position(|existing| existing.get(merge_key) == Some(key));
        if item_map.get("$patch").and_then(Value::as_str) == Some("delete") {
            out.retain(|existing| existing.get(merge_key) != Some(key));
            continue;
        }
        match position.and_then(|at| out[at].as_object().map(|map| (at, map.clone()))) {
            Some((at, existing)) => {
                out[at] = Value::Object(merge_map(&existing, item_map, keys, path)?)
            }
            None => out.push(Value::Object(merge_map(&Map::new(), item_map, keys, path)?)),
        }
    }
    Ok(in_order(out, new, old, merge_key))
}

/// kube-apiserver's order: items in the patch have the patch's order; items only on the server keep
/// their position relative to items that existed before, and otherwise follow.
fn in_order(list: Vec<Value>, order: &[Value], before: &[Value], merge_key: &str) -> Vec<Value> {
    let same = |a: &Value, b: &Value| {
        if merge_key.is_empty() {
            a == b
        } else {
            a.get(merge_key).is_some() && a.get(merge_key) == b.get(merge_key)
        }
    };
    let (mut named, rest): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| order.iter().any(|wanted| same(wanted, item)));
    named.sort_by_key(|item| order.iter().position(|wanted| same(wanted, item)));
    let place = |item: &Value| before.iter().position(|known| same(known, item));
    let mut out = Vec::with_capacity(named.len() + rest.len());
    let mut named = named.into_iter().peekable();
    for item in rest {
        while let Some(next) =
            named.next_if(|next| place(next).is_none_or(|at| Some(at) < place(&item)))
        {
            out.push(next);
        }
        out.push(item);
    }
    out.extend(named);
    out
}

fn strip(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(without_directives(map)),
        other => other.clone(),
    }
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter(|(key, _)| !key.starts_with('$'))
        .map(|(key, value)| (key.clone(), strip(value)))
        .collect()
}
