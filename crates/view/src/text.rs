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

/// Splits `what happened; remedy` at the first `; ` outside parentheses and quotes. A list of problems, each with its
/// own remedy, is left whole.
pub fn split_remedy(text: &str) -> (&str, Option<&str>) {
    if text.contains('\n') {
        return (text, None);
    }
    let (mut depth, mut quoted) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match (quoted, c) {
            (Some(quote), c) if c == quote => quoted = None,
            (Some(_), _) => {}
            (None, '`' | '"') => quoted = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ';') if depth == 0 && text[at..].starts_with("; ") => {
                return (&text[..at], Some(&text[at + 2..]));
            }
            (None, _) => {}
        }
    }
    (text, None)
}
