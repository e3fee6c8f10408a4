//! The language rules of the style guide: banned words and the length of test names.
//!
//! A small tokenizer splits Rust source into what people read (comments, string literals, names of
//! tests) and code, which is not checked. Markdown is checked as a whole.

use super::root;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files and directories under these rules; ones that do not exist are skipped.
const ROOTS: &[&str] = &[
    "crates",
    "tests",
    "bench",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
];

/// Contains the banned words as data.
const THIS_FILE: &str = "tests/tests/tidy/language.rs";

const BANNED: &[&str] = &[
    "told",
    "tells",
    "anew",
    "somebody",
    "anybody",
    "nobody",
    "whoever",
    "stranger",
    "foreigner",
    "mended",
    "residue",
    "seed",
    "kept data",
    "torn away",
    "design document",
    "one a node",
    "one a device",
    "one agent a",
    "one file a",
    "everybody",
    "by itself",
    "looked at",
];

const MAX_TEST_NAME: usize = 60;

/// `seed` is allowed for random seeds: in the simulator, and on lines with one of these.
const RANDOM_SEED: &[&str] = &["random seed", "seed:", "seed =", "seed=", "seed(", "{seed", "u64"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Comment,
    Literal,
    TestName,
}

/// A part of a source file that people read. Its text has as many line breaks as the source.
#[derive(Debug, PartialEq, Eq)]
struct Fragment {
    kind: Kind,
    line: usize,
    text: String,
}

struct Tokenizer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    fragments: Vec<Fragment>,
}

/// Comments, literals and test names of a Rust source file, in order.
fn fragments(source: &str) -> Vec<Fragment> {
    let mut tokenizer = Tokenizer { source, at: 0, line: 1, fragments: Vec::new() };
    tokenizer.run();
    tokenizer.fragments
}

/// The texts of all string literals of a Rust source file.
pub fn literals(source: &str) -> Vec<String> {
    let literals = fragments(source).into_iter().filter(|one| one.kind == Kind::Literal);
    literals.map(|fragment| fragment.text).collect()
}

impl<'a> Tokenizer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.source[self.at..self.at + bytes].matches('\n').count();
        self.at += bytes;
    }

    fn push(&mut self, kind: Kind, text: String, bytes: usize) {
        self.fragments.push(Fragment { kind, line: self.line, text });
        self.skip(bytes);
    }

    fn run(&mut self) {
        // Set by a test attribute, until the name of its function.
        let mut is_test = false;
        while let Some(first) = self.rest().chars().next() {
            let rest = self.rest();
            if rest.starts_with("//") {
                let length = rest.find('\n').unwrap_or(rest.len());
                self.push(Kind::Comment, rest[..length].to_owned(), length);
            } else if rest.starts_with("/*") {
                let length = block_comment(rest);
                self.push(Kind::Comment, rest[..length].to_owned(), length);
            } else if let Some((text, length)) = string_literal(rest) {
                self.push(Kind::Literal, text, length);
            } else if let Some(length) = char_literal(rest) {
                self.skip(length);
            } else if let Some(length) = identifier(rest) {
                let is_fn = &rest[..length] == "fn";
                self.skip(length);
                if is_fn {
                    self.function_name(std::mem::take(&mut is_test));
                }
            } else {
                is_test |= is_test_attribute(rest);
                self.skip(first.len_utf8());
            }
        }
    }

    fn function_name(&mut self, is_test: bool) {
        let rest = self.rest();
        self.skip(rest.len() - rest.trim_start().len());
        let rest = self.rest();
        let length = identifier(rest).unwrap_or(0);
        if is_test && length > 0 {
            self.push(Kind::TestName, rest[..length].to_owned(), length);
        } else {
            self.skip(length);
        }
    }
}

/// Length of the identifier, keyword or number at the start. Prefixes of literals (`br#"`) are part
/// of those; `r#name` is one identifier.
fn identifier(rest: &str) -> Option<usize> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let raw = rest.strip_prefix("r#").filter(|name| name.starts_with(is_word));
    let name = raw.unwrap_or(rest);
    let length = name.find(|char| !is_word(char)).unwrap_or(name.len());
    (length > 0).then_some(rest.len() - name.len() + length)
}

/// Length of the block comment at the start; block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Text and length of the string literal at the start: plain, byte, C and raw ones. Escapes become
/// blanks, so that `\nword` is still that word.
fn string_literal(rest: &str) -> Option<(String, usize)> {
    let unprefixed = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    if let Some(raw) = unprefixed.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(body) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let length = body.find(&end).unwrap_or(body.len());
            let total = rest.len() - body.len() + length + end.len();
            return Some((body[..length].to_owned(), total.min(rest.len())));
        }
    }
    let body = unprefixed.strip_prefix('"')?;
    let mut text = String::new();
    let mut chars = body.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((text, rest.len() - body.len() + at + 1)),
            '\\' => match chars.next() {
                Some((_, '\n')) => text.push('\n'),
                _ => text.push(' '),
            },
            other => text.push(other),
        }
    }
    Some((text, rest.len()))
}

/// Length of the char or byte literal at the start; `None` for a lifetime.
fn char_literal(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('\'')?;
    let mut chars = body.char_indices();
    let end = match chars.next()?.1 {
        '\\' => {
            chars.next();
            body.char_indices().skip(2).find(|(_, char)| *char == '\'')?.0
        }
        _ => chars.next().filter(|(_, char)| *char == '\'')?.0,
    };
    Some(rest.len() - body.len() + end + 1)
}

/// `#[test]`, `#[tokio::test(…)]` and the like.
fn is_test_attribute(rest: &str) -> bool {
    let Some(attribute) = rest.strip_prefix("#[") else { return false };
    let path = attribute.split(['(', ']']).next().unwrap_or_default();
    path.rsplit("::").next() == Some("test")
}

/// A word of a text: its line, and whether only white space or comment slashes precede it.
#[derive(Debug)]
struct Word {
    line: usize,
    text: String,
    follows: bool,
}

fn words(fragments: &[Fragment]) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    let mut last: Option<(Kind, usize)> = None;
    for Fragment { kind, line, text } in fragments {
        // Lines of one comment are one text: a phrase may be broken between them.
        let mut follows = *kind == Kind::Comment && last == Some((Kind::Comment, line - 1));
        let mut line = *line;
        let mut word = String::new();
        for char in text.chars().chain([' ']) {
            let in_word = char.is_alphanumeric() || (char == '_' && *kind != Kind::TestName);
            if in_word {
                word.extend(char.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                found.push(Word { line, text: std::mem::take(&mut word), follows });
                follows = true;
            }
            follows &= char.is_whitespace() || matches!(char, '/' | '!' | '_');
            line += usize::from(char == '\n');
        }
        last = Some((*kind, line));
    }
    found
}

/// Banned words and phrases, with their lines.
fn banned(words: &[Word]) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (at, first) in words.iter().enumerate() {
        for phrase in BANNED {
            let matches = phrase.split(' ').enumerate().all(|(offset, expected)| {
                words
                    .get(at + offset)
                    .is_some_and(|word| word.text == expected && (offset == 0 || word.follows))
            });
            if matches {
                found.push((first.line, *phrase));
            }
        }
    }
    found
}

fn is_allowed(name: &str, line: &str, word: &str) -> bool {
    word == "seed"
        && (name.starts_with("crates/sim/") || RANDOM_SEED.iter().any(|part| line.contains(part)))
}

/// Rust and Markdown files below the roots, with their text.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut paths: Vec<PathBuf> = ROOTS.iter().map(|name| root().join(name)).collect();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            paths.extend(entries.filter(|path| !path.ends_with("target")));
        } else if is_checked(&path) {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{ROOTS:?} have no sources");
    found
}

fn is_checked(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|end| end == "rs" || end == "md")
}

fn fragments_of(name: &str, text: &str) -> Vec<Fragment> {
    if name.ends_with(".rs") {
        fragments(text)
    } else {
        vec![Fragment { kind: Kind::Comment, line: 1, text: text.to_owned() }]
    }
}

#[test]
fn banned_words_are_not_used() {
    let mut violations = Vec::new();
    for (name, text) in files() {
        if name == THIS_FILE {
            continue;
        }
        for (number, word) in banned(&words(&fragments_of(&name, &text))) {
            let line = text.lines().nth(number - 1).unwrap_or_default();
            if !is_allowed(&name, line, word) {
                violations.push(format!("{name}:{number}: \"{word}\": {}", line.trim()));
            }
        }
    }
    assert!(
        violations.is_empty(),
        "banned words; use plain Kubernetes English instead:\n{}",
        violations.join("\n")
    );
}

#[test]
fn test_names_are_short() {
    let mut violations = Vec::new();
    for (name, text) in files().into_iter().filter(|(name, _)| name.ends_with(".rs")) {
        for Fragment { kind, line, text } in fragments(&text) {
            if kind == Kind::TestName && text.len() > MAX_TEST_NAME {
                violations.push(format!("{name}:{line}: {text} has {} characters", text.len()));
            }
        }
    }
    assert!(
        violations.is_empty(),
        "test names have at most {MAX_TEST_NAME} characters:\n{}",
        violations.join("\n")
    );
}

#[test]
fn source_is_split_into_readable_fragments() {
    let source = r####"
//! told
fn told<'a>(told: &'a str) -> char { '"' } // anew
#[test]
fn nobody_moves() { let x = "so\"mebody \
    whoever"; /* residue /* mended */ tells */ }
#[tokio::test(start_paused = true)]
async fn short() { b'\''; '\u{22}'; r#told; br#"kept "data" torn"#; c"seed"; }
"####;
    let found: Vec<_> = fragments(source)
        .into_iter()
        .map(|fragment| (fragment.kind, fragment.line, fragment.text))
        .collect();
    let expected = [
        (Kind::Comment, 2, "//! told"),
        (Kind::Comment, 3, "// anew"),
        (Kind::TestName, 5, "nobody_moves"),
        (Kind::Literal, 5, "so mebody \n    whoever"),
        (Kind::Comment, 6, "/* residue /* mended */ tells */"),
        (Kind::TestName, 8, "short"),
        (Kind::Literal, 8, "kept \"data\" torn"),
        (Kind::Literal, 8, "seed"),
    ];
    assert_eq!(found, expected.map(|(kind, line, text)| (kind, line, text.to_owned())));
}

#[test]
fn words_and_phrases_are_found_with_their_line() {
    let found = |source: &str| banned(&words(&fragments(source)));
    assert_eq!(found("// It is Told.\n"), [(1, "told")]);
    assert_eq!(found("let told = tells(anew);\n"), []);
    assert_eq!(found("\"a\n{x}\\ntold\"\n"), [(2, "told")]);
    assert_eq!(found("// one a\n// node, and one a\n\n// device\n"), [(1, "one a node")]);
    assert_eq!(found("// kept, data; retold; somebody's; wait_told\n"), [(1, "somebody")]);
    assert_eq!(found("#[test]\nfn nobody_is_told() {}\n"), [(2, "nobody"), (2, "told")]);
    assert_eq!(found("\"told \\\n anew\"; 'a'; &'told str\n"), [(1, "told"), (2, "anew")]);
    assert!(is_allowed("a.rs", "// the random seed of a run", "seed"));
    assert!(!is_allowed("a.rs", "// seed the list", "seed"));
}
