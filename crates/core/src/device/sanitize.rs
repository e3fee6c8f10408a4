//! Untrusted text of a device, made safe to store and print.
//!
//! Models, serials and labels come from firmware and from formatting tools: they may contain terminal escapes, invalid
//! UTF-8, or four kilobytes of anything. The result is one short printable line.

use quarry_api::node_job::hex_digest;

/// Longer values are cut: the longest real one (an NVMe model) has 40 characters.
pub const LONGEST: usize = 128;

/// One printable line, without blanks around it; `None` when nothing is left.
///
/// Unprintable characters are escaped (`\x1b`, `\u{202e}`), so that different values stay different as far as the length
/// allows.
pub fn printable(bytes: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(bytes.len().min(LONGEST));
    let mut length = 0;
    // A C string ends at its first NUL; firmware pads with them.
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            length += 1;
            match c {
                c if is_hostile(c) => text.extend(c.escape_default()),
                c => text.push(c),
            }
            if length > LONGEST {
                return Some(cut(&text, bytes));
            }
        }
        for byte in chunk.invalid() {
            length += 1;
            text.push_str(&format!("\\x{byte:02x}"));
        }
        if length > LONGEST {
            return Some(cut(&text, bytes));
        }
    }
    let trimmed = text.trim();
    (!trimmed.is_empty())
        .then(|| if trimmed.len() == text.len() { text.clone() } else { trimmed.to_owned() })
}

/// Two long values that differ at their end stay different.
fn cut(text: &str, whole: &[u8]) -> String {
    format!("{}…{}", text.trim(), &hex_digest(&[&format!("{whole:02x?}")])[..8])
}

/// Control characters, and those that reorder or hide what is read.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plain_value_is_only_trimmed() {
        assert_eq!(printable(b"  SAMSUNG MZ7LN512 \0\0junk").as_deref(), Some("SAMSUNG MZ7LN512"));
        assert_eq!(printable("größe ✓".as_bytes()).as_deref(), Some("größe ✓"));
        for nothing in [&b""[..], b"   ", b"\0abc"] {
            assert_eq!(printable(nothing), None);
        }
    }

    #[test]
    fn a_hostile_value_is_spelt_out() {
        assert_eq!(printable(b"a\x1b[2Jb\xff\n").as_deref(), Some("a\\u{1b}[2Jb\\xff\\n"));
        assert_eq!(printable("x\u{202e}y".as_bytes()).as_deref(), Some("x\\u{202e}y"));
        let long = printable(&[b'A'; 4096]).unwrap();
        assert!(long.chars().count() <= LONGEST + 12 && long.contains('…'), "{long}");
        let other = printable(&[&[b'A'; 4095][..], b"B"].concat()).unwrap();
        assert_ne!(long, other, "they differ in their last character");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_one_short_printable_line(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            if let Some(text) = printable(&bytes) {
                prop_assert!(!text.contains(is_hostile));
                prop_assert!(text.len() <= 10 * (LONGEST + 4));
                prop_assert_eq!(text.trim(), &text);
            }
        }
    }
}
