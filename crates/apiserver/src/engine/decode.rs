//! Parses the bytes of a body to a JSON value and reports duplicate keys, for strict field
//! validation.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

/// Deeper documents are refused before they can overflow the stack.
const MAX_DEPTH: usize = 100;

/// The value, and the paths of duplicate keys (the last one counts, as in kube-apiserver).
pub fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let duplicates = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value =
        Node { path: String::new(), depth: 0, duplicates: &duplicates }.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates.into_inner()))
}

struct Node<'a> {
    path: String,
    depth: usize,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.depth > MAX_DEPTH {
            return Err(A::Error::custom("nested too deeply"));
        }
        let mut out = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, out.len());
            let seed = Node { path, depth: self.depth + 1, duplicates: self.duplicates };
            match items.next_element_seed(seed)? {
                Some(item) => out.push(item),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if self.depth > MAX_DEPTH {
            return Err(A::Error::custom("nested too deeply"));
        }
        let mut out = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = crate::status::child(&self.path, &key);
            if out.contains_key(&key) {
                self.duplicates.borrow_mut().push(path.clone());
            }
            let value = entries.next_value_seed(Node {
                path,
                depth: self.depth + 1,
                duplicates: self.duplicates,
            })?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}
