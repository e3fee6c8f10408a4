//! Conventions of the source tree: module headers, file sizes, purity of `core`, no leftovers,
//! complete reference documents. Language: `tidy/language.rs`; files and messages that are named elsewhere:
//! `tidy/references.rs`.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "reads the source tree; a test fails by panicking"
)]

#[path = "tidy/invariants.rs"]
mod invariants;
#[path = "tidy/language.rs"]
mod language;
#[path = "tidy/references.rs"]
mod references;

use quarry_api::reason::{Meaning, Row, Source, TABLE};
use serde_json::Value;
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(below: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut dirs = vec![root().join(below)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "target" && entry.file_name() != "snapshots" {
                dirs.push(path);
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
fn every_module_has_a_header() {
    for (name, text) in all() {
        let is_test_body = name.ends_with("/tests.rs") || name.contains("/tests/");
        let header = text.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(header > 0 || is_test_body, "{name} has no module header (//! …)");
        assert!(header <= 14, "{name}: a module header has about ten lines; this one has {header}");
    }
}

#[test]
fn files_have_at_most_600_lines() {
    for (name, text) in all() {
        let lines = text.lines().count();
        assert!(
            lines <= 600,
            "{name} has {lines} lines; split it, or move its tests to a separate file"
        );
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
        for (number, line) in
            text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for word in BANNED {
                assert!(
                    !line.contains(word),
                    "{name}:{}: {word} is not allowed in core; decisions are pure",
                    number + 1
                );
            }
        }
    }
    let manifest = fs::read_to_string(root().join("crates/core/Cargo.toml")).unwrap();
    for dependency in ["tokio", "rustix", "reqwest", "axum", "rand"] {
        assert!(!manifest.contains(dependency), "core depends on {dependency}");
    }
    // The types of Ironic without its client, which has sockets and files.
    let ironic = manifest.lines().find(|line| line.starts_with("quarry-ironic"));
    assert!(ironic.is_none_or(|line| line == "quarry-ironic.workspace = true"), "{ironic:?}");
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let pure = "quarry-ironic = { path = \"crates/ironic\", default-features = false }";
    assert!(workspace.lines().any(|line| line == pure), "the client of Ironic is on for all");
}

/// Files that plan, besides every `plan.rs`.
const PLANNERS: &[&str] = &["assign", "state_machine", "unpublished", "wipe", "deploy", "finalize"];
/// Files that check, besides every `check.rs`.
const CHECKERS: &[&str] = &["publication"];

fn is_named(file: &str, stems: &[&str]) -> bool {
    let name = file.rsplit('/').next().unwrap();
    !file.contains("/tests/") && stems.iter().any(|stem| name == format!("{stem}.rs"))
}

/// The functions of a file that other files may call.
fn visible_functions(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.starts_with("pub"));
    let after_fn = lines.filter_map(|line| line.split_once("fn ").map(|(_, rest)| rest));
    after_fn.filter_map(|rest| rest.split(['(', '<']).next()).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

/// What a file imports, one `use` after the other.
fn imports(text: &str) -> Vec<&str> {
    text.split("\nuse ").skip(1).filter_map(|rest| rest.split(';').next()).collect()
}

/// A checker that shares code with the planner repeats its mistakes. `mod.rs` passes on what `plan.rs` defines, so the
/// functions count as well, wherever they are imported from.
#[test]
fn checkers_use_no_planner() {
    let sources = sources("crates/core/src");
    let planners: Vec<&str> = [&["plan"], PLANNERS].concat();
    let planning: Vec<&(String, String)> =
        sources.iter().filter(|(name, _)| is_named(name, &planners)).collect();
    for planner in &planners {
        assert!(planning.iter().any(|(name, _)| is_named(name, &[*planner])), "{planner}.rs");
    }
    let functions: Vec<&str> =
        planning.iter().flat_map(|(_, text)| visible_functions(text)).collect();
    let checkers = [&["check"], CHECKERS].concat();
    let mut count = 0;
    for (name, text) in sources.iter().filter(|(name, _)| is_named(name, &checkers)) {
        count += 1;
        for item in imports(text) {
            assert!(!item.contains('*'), "{name} imports everything: {item}");
            for word in words(item) {
                let planner = planners.contains(&word) || functions.contains(&word);
                assert!(!planner, "{name} imports {word} of a planner: {item}");
            }
        }
        for planner in &planners {
            assert!(!text.contains(&format!("{planner}::")), "{name} uses {planner}::");
        }
        for function in &functions {
            assert!(!text.contains(&format!("::{function}(")), "{name} uses {function}");
        }
    }
    assert!(count >= 7, "the checkers are found: {count}");
    for (name, text) in &sources {
        // Of plans: a precondition or an option of mkfs is checked elsewhere.
        let signature =
            text.split("\npub fn check(").nth(1).and_then(|rest| rest.split('{').next());
        let checks = signature.is_some_and(|signature| signature.contains("Violation"));
        assert!(!checks || is_named(name, &["check"]), "{name}: `check` belongs in check.rs");
    }
}

/// What `mod.rs` defines itself is a fact or a type, which planner and checker share.
#[test]
fn a_directory_with_a_checker_plans_in_plan_rs() {
    let sources = sources("crates/core/src");
    for (name, _) in sources.iter().filter(|(name, _)| is_named(name, &["check"])) {
        let directory = name.strip_suffix("check.rs").unwrap();
        let plan = format!("{directory}plan.rs");
        assert!(sources.iter().any(|(name, _)| *name == plan), "{plan} is missing");
        let heads =
            [format!("{directory}mod.rs"), format!("{}.rs", directory.trim_end_matches('/'))];
        for (head, text) in sources.iter().filter(|(name, _)| heads.contains(name)) {
            let plans = visible_functions(text).into_iter().find(|one| one.starts_with("plan"));
            assert_eq!(plans, None, "{head}: it belongs in {plan}");
        }
    }
}

#[test]
fn no_unfinished_code_is_left() {
    // Split, so that this file does not match itself.
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
fn unsafe_code_is_in_one_module() {
    for (name, text) in sources("crates") {
        let allowed = name == "crates/node/src/sys.rs" || name.starts_with("crates/node/src/sys/");
        let found = text.lines().any(|line| {
            line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl")
        });
        assert!(!found || allowed, "{name}: unsafe code belongs in crates/node/src/sys/");
    }
}

#[test]
fn dependencies_point_downward() {
    // {api, ironic, ceph} <- core <- {node, operator, view} <- {sim, quarry}; apiserver knows api only.
    let layers: &[(&str, &[&str])] = &[
        ("ironic", &["api", "core", "failpoint", "node", "operator", "view", "apiserver", "sim"]),
        ("ceph", &["api", "core", "failpoint", "node", "operator", "view", "apiserver", "sim"]),
        ("api", &["ceph", "core", "ironic", "node", "operator", "view", "apiserver", "sim"]),
        ("core", &["node", "operator", "view", "apiserver", "sim"]),
        ("node", &["operator", "view", "apiserver", "sim"]),
        ("operator", &["node", "view", "apiserver", "sim"]),
        ("view", &["node", "operator", "apiserver", "sim"]),
        ("apiserver", &["ceph", "core", "ironic", "node", "operator", "view", "sim"]),
    ];
    // Terminals and tables belong to the binary: the console shows the same values.
    let crates = ["clap", "comfy-table", "indicatif", "anyhow"].map(str::to_owned);
    for (name, above) in layers {
        let mut above: Vec<String> = above.iter().map(|one| format!("quarry-{one}")).collect();
        if *name == "view" {
            above.extend(crates.clone());
        }
        let manifest =
            fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        let dependencies =
            manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for other in above {
            assert!(!dependencies.contains(&other), "crates/{name} depends on {other}");
        }
    }
}

/// docs/reference/reasons.md, generated from the table of reasons.
fn reasons_page() -> String {
    let mut page = "# Reasons\n\n\
        Why a device is not Available. One table in the code (`crates/api/src/reason.rs`) feeds\n\
        `status.devices[].reasons` of a NodeInventory, Events, metrics, `quarry devices`, `quarry explain` and this page. The\n\
        page is written by a test: `QUARRY_UPDATE_DOCS=1 cargo test --workspace --test tidy reasons`.\n\n\
        A device has every reason that applies, in this order, each with a detail where there is one (which mount point,\n\
        which signature, which owner). It is Available when it has none, NotAvailable when one of its reasons says so, else\n\
        Unknown.\n\n\
        *Class*: what the reason is about. *Node*: the agent reads it on the node. *Cluster*: only the operator knows it; it\n\
        comes through the spec of the NodeInventory. *Transient*: it may pass without intervention, and is waited for.\n\
        *Quarantine*: it is not certain which device this is, so no object can claim it. *Owned*: the device counts as\n\
        claimed. *InUse*: something other than the device claim uses the device. *Data*: the device contains data. *Unread*:\n\
        the content of the device could not be read.\n\n\
        | Reason | Class | Verdict | Known by | Means | The device … | What to do |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for Row { reason, class, state, source, transient, means, text, absent: _, remedy } in TABLE {
        let by = match source {
            Source::Node => "node",
            Source::Cluster => "cluster",
        };
        let means = means.iter().map(|meaning: &Meaning| format!("{meaning:?}"));
        let means: Vec<String> =
            transient.then(|| "Transient".to_owned()).into_iter().chain(means).collect();
        let plain = |text: &str| text.replace('|', "\\|").replace('<', "\\<");
        writeln!(
            page,
            "| `{reason}` | {class:?} | {} | {by} | {} | {} | {} |",
            state.as_str(),
            means.join(", "),
            plain(text),
            plain(remedy)
        )
        .unwrap();
    }
    page
}

// invariant: 9
#[test]
fn reasons_page_matches_the_table() {
    let path = root().join("docs/reference/reasons.md");
    if std::env::var_os("QUARRY_UPDATE_DOCS").is_some() {
        fs::write(&path, reasons_page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let command = "QUARRY_UPDATE_DOCS=1 cargo test --workspace --test tidy reasons";
    assert!(
        found == reasons_page(),
        "docs/reference/reasons.md differs from the table of reasons; regenerate it with `{command}`"
    );
}

/// Every leaf field of a schema, as `devices[].name`.
fn fields(schema: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, field) in properties {
            fields(
                field,
                &if path.is_empty() { name.clone() } else { format!("{path}.{name}") },
                found,
            );
        }
    } else if schema["items"]["properties"].is_object() {
        fields(&schema["items"], &format!("{path}[]"), found);
    } else {
        found.push(path.to_owned());
    }
}

/// The field that stands for this one in the document: Kubernetes' own types in a device set are named, not listed, and
/// so are the sets under the second key.
fn documented<'a>(kind: &str, field: &'a str) -> &'a str {
    const WHOLE: [&str; 5] = [
        "storage.storageClassDeviceSets[].volumeClaimTemplates[].spec",
        "storage.storageClassDeviceSets[].resources",
        "storage.storageClassDeviceSets[].placement",
        "storage.storageClassDeviceSets[].preparePlacement",
        "storage.storageClassDeviceSet",
    ];
    let part = |whole: &&&str| {
        let rest = field.strip_prefix(**whole);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    match WHOLE.iter().find(part) {
        Some(whole) if kind == "CephCluster" => &field[..whole.len()],
        _ => field,
    }
}

#[test]
fn every_field_is_documented() {
    let page = fs::read_to_string(root().join("docs/reference/fields.md")).unwrap();
    for kind in [
        "NodeInventory",
        "LocalVolumeDiscovery",
        "LocalVolumeDiscoveryResult",
        "LocalVolumeSet",
        "LocalVolume",
        "NodeJob",
        "BareMetalHost",
        "HardwareData",
        "CephCluster",
    ] {
        let section = page
            .split("\n## ")
            .find(|section| section.lines().next() == Some(kind))
            .unwrap_or_else(|| panic!("fields.md has no section {kind}"));
        let crd = quarry_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap();
        let properties = &schema["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"].into_iter().filter(|part| properties[part].is_object()) {
            let mut all = Vec::new();
            fields(&properties[part], "", &mut all);
            assert!(!all.is_empty(), "{kind}.{part}");
            for field in all.iter().map(|field| documented(kind, field)) {
                assert!(
                    section.contains(&format!("`{field}`")),
                    "docs/reference/fields.md does not name {kind}.{part}.{field}"
                );
            }
        }
    }
}

/// The table in the code is the one that the policy is built from.
#[test]
fn unused_fields_of_hosts_are_in_the_document() {
    let page = fs::read_to_string(root().join("docs/unsupported.md")).unwrap();
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("Fields of BareMetalHost"))
        .expect("unsupported.md has a section on BareMetalHost");
    let mut rows = section.lines().filter(|line| line.starts_with("| `"));
    for unused in quarry_api::bare_metal_host::fields::UNUSED {
        let row = format!("| `{}` | `{}` |", unused.field, unused.message);
        assert_eq!(rows.next(), Some(row.as_str()), "in docs/unsupported.md");
    }
    assert_eq!(rows.next(), None, "a row of docs/unsupported.md is not in the table of the code");
}

#[test]
fn warnings_of_ceph_clusters_are_in_the_document() {
    let page = fs::read_to_string(root().join("docs/unsupported.md")).unwrap();
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("Fields of CephCluster"))
        .expect("unsupported.md has a section on CephCluster");
    let mut rows = section.lines().filter(|line| line.starts_with("| `"));
    for warned in quarry_api::ceph_cluster::fields::warned() {
        let row = format!("| `{}` | `{}` |", warned.field, warned.message);
        assert_eq!(rows.next(), Some(row.as_str()), "in docs/unsupported.md");
    }
    assert_eq!(rows.next(), None, "a row of docs/unsupported.md is not in the table of the code");
}
