//! Text from objects, made safe for a terminal: names and messages are not ours.
//!
//! Escape sequences could move the cursor, set the title or hide a line; bidirectional overrides could
//! reorder text. Both are printed escaped.

use quarry_core::device::sanitize::is_hostile;
use std::borrow::Cow;

/// One line: every control character, also a line break, is escaped.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 8), escape_into))
}

/// Several lines: line breaks stay, every other control character is escaped.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

fn escape_into(mut out: String, c: char) -> String {
    if is_hostile(c) {
        out.extend(c.escape_default());
    } else {
        out.push(c);
    }
    out
}

/// JSON text without characters that a terminal acts on. Line breaks between values stay.
pub fn json(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c != '\n' && is_hostile(c) {
            // All of them are below U+FFFF: one escape each.
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_printed_escaped() {
        assert_eq!(line("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(line("a\nb\tc\r\u{9b}31m"), "a\\nb\\tc\\r\\u{9b}31m");
        assert_eq!(line("user\u{202e}txt.exe"), "user\\u{202e}txt.exe");
        assert!(matches!(line("größe 10Gi ✓"), Cow::Borrowed(_)));
    }

    #[test]
    fn our_own_line_breaks_are_kept() {
        assert_eq!(lines("a\nb\u{7}"), "a\nb\\u{7}");
    }

    #[test]
    fn sanitized_json_is_the_same_value() {
        let value = serde_json::json!({"a": "x\u{9b}\u{202e}\u{7f}\u{1b}y"});
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(|c: char| c != '\n' && is_hostile(c)));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
