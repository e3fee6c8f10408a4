//! Small pieces of wording that several views share.

use quarry_api::quantity::Bytes;
use serde::Serialize;

/// A label and its text: `devices`, `disks, of any size`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    pub name: &'static str,
    pub text: String,
}

impl Field {
    pub fn new(name: &'static str, text: impl Into<String>) -> Self {
        Field { name, text: text.into() }
    }
}

/// As a quantity: `465.8Gi`.
pub fn size(bytes: i64) -> String {
    Bytes(u64::try_from(bytes).unwrap_or_default()).to_string()
}

/// `a, b or c`
pub(crate) fn join<T: AsRef<str>>(words: &[T], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [first @ .., end] => format!(
            "{} {last} {}",
            first.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "),
            end.as_ref()
        ),
    }
}
