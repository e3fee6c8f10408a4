//! References that must lead somewhere: files that module headers name, messages that documents quote.

use super::{all, language, root, sources};
use std::{collections::BTreeSet, fs};

/// Back-quoted parts of a text, one line at a time.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// `crates/NAME`, `tests` or `bench`.
fn package(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    if parts[0] == "crates" { parts[..2].join("/") } else { parts[0].to_owned() }
}

#[test]
fn files_named_in_module_headers_exist() {
    let files = [all(), sources("bench")].concat();
    let mut count = 0;
    for (name, text) in &files {
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        for path in quoted(&header.join("\n")).filter(|path| path.ends_with(".rs")) {
            count += 1;
            // `<controller>/triggers.rs`, `../job_runner/mod.rs`
            let end = path.rsplit(['>', '.']).nth(1).unwrap_or(path).trim_start_matches('/');
            let end = format!("/{end}.rs");
            // A bare name is a file of the same package; a path may be one of another.
            let exists = files.iter().any(|(other, _)| {
                format!("/{other}").ends_with(&end)
                    && (path.contains('/') || package(other) == package(name))
            });
            assert!(exists, "{name}: its header names `{path}`, which does not exist");
        }
    }
    assert!(count > 50, "the headers are read: {count}");
}

/// Back-quoted text that is typed, not printed by Quarry.
const COMMANDS: &[&str] =
    &["du", "findmnt", "fuser", "kubectl", "losetup", "ls", "lsblk", "quarry", "udevadm"];

/// Quoted text of other programs: the kernel's, and a class of messages.
const NOT_OURS: &[&str] = &["No space left"];

/// The fixed parts of a quoted message: names and numbers of the example, and what is left out, vary.
fn fixed_parts(message: &str) -> Vec<String> {
    let varies = |word: &str| {
        let word = word.trim_matches(|char: char| !char.is_alphanumeric() && char != '…');
        word == "X" || word.contains('…') || word.chars().any(|char| char.is_ascii_digit())
    };
    let words: Vec<&str> = message.split_whitespace().collect();
    let parts = words.split(|word| varies(word));
    parts.map(|part| part.join(" ")).filter(|part| !part.is_empty()).collect()
}

/// A literal without its arguments: what is printed between them.
fn pieces(literal: &str) -> Vec<String> {
    let parts = literal.split('{').map(|part| part.rsplit('}').next().unwrap_or(part));
    parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Whether a literal contains the text, or two meet in it: `{device} is {users}`, `mounted at {path}`.
fn is_printed(text: &str, pieces: &[String]) -> bool {
    let meets = |(at, _): (usize, &str)| {
        let (left, right) = (&text[..at], &text[at + 1..]);
        pieces.iter().any(|piece| format!(" {piece}").ends_with(&format!(" {left}")))
            && pieces.iter().any(|piece| format!("{piece} ").starts_with(&format!("{right} ")))
    };
    pieces.iter().any(|piece| piece.contains(text)) || text.match_indices(' ').any(meets)
}

#[test]
fn messages_quoted_in_troubleshooting_exist() {
    let code = sources("crates").into_iter().filter(|(name, _)| {
        name.contains("/src/") && !name.contains("/tests") && !name.ends_with("_tests.rs")
    });
    let pieces: Vec<String> = code
        .flat_map(|(_, text)| language::literals(&text))
        .flat_map(|text| pieces(&text))
        .collect();
    let page = fs::read_to_string(root().join("docs/operations/troubleshooting.md")).unwrap();
    let prose = page.split("```").step_by(2).collect::<Vec<_>>().join("\n").replace("\n  ", " ");
    let messages: BTreeSet<&str> = quoted(&prose)
        .filter(|text| text.split_whitespace().count() > 2 && !text.starts_with("-"))
        .filter(|text| !COMMANDS.contains(&text.split(' ').next().unwrap_or_default()))
        .filter(|text| !NOT_OURS.contains(text))
        .collect();
    assert!(messages.len() > 8, "the messages are found: {messages:?}");
    for message in messages {
        for part in fixed_parts(message) {
            assert!(
                is_printed(&part, &pieces),
                "troubleshooting.md quotes `{message}`; no source prints \"{part}\""
            );
        }
    }
}

#[test]
fn quoted_messages_are_split_where_they_vary() {
    assert_eq!(
        fixed_parts("PersistentVolume X is kept by the finalizer …"),
        ["PersistentVolume", "is kept by the finalizer"]
    );
    assert_eq!(fixed_parts("/dev/disk/by-uuid/… is missing after 10 s"), ["is missing after", "s"]);
    let printed = ["{device} is {users}: end", "mounted at {path}"].map(pieces).concat();
    assert!(is_printed("is mounted at", &printed) && !is_printed("is held at", &printed));
    assert_eq!(quoted("a `b` c `d e`\n`f`").collect::<Vec<_>>(), ["b", "d e", "f"]);
}
