//! Conventions of the tree, checked: module headers, file sizes, purity of `core`, no leftovers.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "reads the source tree; a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(below: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "target" && entry.file_name() != "snapshots" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "{below} has sources");
    found
}

fn all() -> Vec<(String, String)> {
    [sources("crates"), sources("tests")].concat()
}

#[test]
fn every_module_says_what_it_is() {
    for (name, text) in all() {
        let is_test_body = name.ends_with("/tests.rs") || name.contains("/tests/");
        let header = text.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(header > 0 || is_test_body, "{name} has no module header (//! …)");
        assert!(header <= 14, "{name}: a module header orients, in about ten lines; this one has {header}");
    }
}

#[test]
fn files_stay_readable() {
    for (name, text) in all() {
        let lines = text.lines().count();
        assert!(lines <= 600, "{name} has {lines} lines: split it, or move its tests beside it");
    }
}

#[test]
fn core_is_pure() {
    const BANNED: &[&str] = &[
        "std::fs",
        "std::net",
        "std::process",
        "std::env",
        "tokio",
        "SystemTime",
        "Instant",
        "Timestamp::now",
        "Zoned::now",
        "async fn",
        ".await",
        "rand::",
        "println!",
        "thread::",
    ];
    for (name, text) in sources("crates/core/src") {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in BANNED {
                assert!(!line.contains(word), "{name}:{}: {word} does not belong into core: decisions are pure", number + 1);
            }
        }
    }
    let manifest = fs::read_to_string(root().join("crates/core/Cargo.toml")).unwrap();
    for dependency in ["tokio", "rustix", "reqwest", "axum", "rand"] {
        assert!(!manifest.contains(dependency), "core depends on {dependency}");
    }
}

#[test]
fn nothing_is_left_half_done() {
    // Spelled apart, so that this file does not find itself.
    let words = [
        ["to", "do!"].concat(),
        ["unimplemented", "!("].concat(),
        ["FIX", "ME"].concat(),
        ["TO", "DO"].concat(),
        ["#[ig", "nore"].concat(),
        ["dbg", "!("].concat(),
    ];
    for (name, text) in all() {
        for (number, line) in text.lines().enumerate() {
            for word in &words {
                assert!(!line.contains(word.as_str()), "{name}:{}: {word}", number + 1);
            }
        }
    }
}

#[test]
fn unsafe_code_lives_in_one_module() {
    for (name, text) in sources("crates") {
        let allowed = name == "crates/node/src/sys.rs" || name.starts_with("crates/node/src/sys/");
        let found = text.lines().any(|line| line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl"));
        assert!(!found || allowed, "{name}: unsafe code belongs into crates/node/src/sys.rs");
    }
}

#[test]
fn dependencies_point_downward() {
    // api ← core ← {node, operator, apiserver} ← {sim, quarry}
    let layers: &[(&str, &[&str])] = &[
        ("api", &["quarry-core", "quarry-node", "quarry-operator", "quarry-apiserver", "quarry-sim"]),
        ("core", &["quarry-node", "quarry-operator", "quarry-apiserver", "quarry-sim"]),
        ("node", &["quarry-operator", "quarry-apiserver", "quarry-sim"]),
        ("operator", &["quarry-node", "quarry-apiserver", "quarry-sim"]),
        ("apiserver", &["quarry-node", "quarry-operator", "quarry-core", "quarry-sim"]),
    ];
    for (name, above) in layers {
        let manifest = fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for crate_above in *above {
            assert!(!dependencies.contains(crate_above), "crates/{name} depends on {crate_above}");
        }
    }
}
