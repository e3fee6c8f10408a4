//! `docs/reference/invariants.md`: which tests show which invariant, from the marks `// invariant: 3` above tests.

use super::{root, sources};
use std::{collections::BTreeMap, fmt::Write, fs};

/// Number and title of each invariant, from ARCHITECTURE.md.
fn invariants() -> BTreeMap<u32, String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = text.split("\n## Invariants").nth(1).expect("ARCHITECTURE.md has invariants");
    let section = section.split("\n## ").next().unwrap_or_default();
    let parse = |line: &str| {
        let (number, rest) = line.split_once(". **")?;
        Some((number.parse().ok()?, rest.split("**").next()?.trim_end_matches('.').to_owned()))
    };
    section.lines().filter_map(parse).collect()
}

/// The tests of each invariant, as `tier: path::name`.
fn marked_tests() -> BTreeMap<u32, Vec<(String, String)>> {
    let mut found: BTreeMap<u32, Vec<(String, String)>> = BTreeMap::new();
    for (file, text) in [sources("crates"), sources("tests")].concat() {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(numbers) = line.strip_prefix("// invariant: ") else { continue };
            let test = lines[at..].iter().take(8).find_map(|line| {
                let name = line.split_once("fn ")?.1;
                Some(name.split('(').next()?.to_owned())
            });
            let test = test.unwrap_or_else(|| panic!("{file}:{}: no test follows", at + 1));
            let is_test = lines[at..]
                .iter()
                .take(8)
                .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
            assert!(is_test, "{file}:{}: {test} is no test", at + 1);
            for number in numbers.split(',') {
                let number = number.trim().parse();
                let number = number.unwrap_or_else(|_| panic!("{file}:{}: {line}", at + 1));
                found.entry(number).or_default().push((file.clone(), test.clone()));
            }
        }
    }
    found.values_mut().for_each(|tests| tests.sort());
    found
}

fn page() -> String {
    let (invariants, mut tests) = (invariants(), marked_tests());
    let mut page = String::from(
        "# Invariants and their tests\n\nGenerated from the marks on the tests (`// invariant: N`). What the invariants are, and where they hold:\n[ARCHITECTURE.md](../../ARCHITECTURE.md#invariants).\n",
    );
    for (number, title) in &invariants {
        let tests = tests.remove(number).unwrap_or_default();
        assert!(!tests.is_empty(), "invariant {number} ({title}) has no test: mark one");
        write!(page, "\n## {number}. {title}\n\n").unwrap();
        for (file, test) in tests {
            writeln!(page, "- `{test}` ({file})").unwrap();
        }
    }
    assert!(tests.is_empty(), "tests of unknown invariants: {tests:?}");
    page
}

#[test]
fn every_invariant_has_tests_and_they_are_listed() {
    let path = root().join("docs/reference/invariants.md");
    if std::env::var_os("QUARRY_UPDATE_DOCS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let command = "QUARRY_UPDATE_DOCS=1 cargo test --workspace --test tidy";
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page(), "docs/reference/invariants.md is outdated; run `{command}`");
}
