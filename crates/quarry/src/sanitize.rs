//! Text from objects, made safe for a terminal: names and messages are written by others.
//!
//! Escape sequences could move the cursor, set the title or hide a line; bidirectional overrides could
//! reorder what is read. Both are shown as what they are, never sent to the terminal.

use quarry_core::device::sanitize::is_hostile;
use std::borrow::Cow;

/// One line: every control character, also a line break, becomes visible.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 8), escape_into))
}

/// Several lines: line breaks stay, everything else becomes visible.
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

/// JSON text whose strings hold no character that a terminal acts on. Line breaks between values stay.
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
    fn escape_sequences_are_shown_not_sent() {
        assert_eq!(line("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(line("a\nb\tc\r\u{9b}31m"), "a\\nb\\tc\\r\\u{9b}31m");
        assert_eq!(line("user\u{202e}txt.exe"), "user\\u{202e}txt.exe");
        assert!(matches!(line("größe 10Gi ✓"), Cow::Borrowed(_)));
    }

    #[test]
    fn line_breaks_survive_where_they_are_ours() {
        assert_eq!(lines("a\nb\u{7}"), "a\nb\\u{7}");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a": "x\u{9b}\u{202e}\u{7f}\u{1b}y"});
        let shown = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!shown.contains(|c: char| c != '\n' && is_hostile(c)));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
