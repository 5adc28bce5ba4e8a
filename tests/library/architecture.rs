//! The layers of modules and crates, read from sources and manifests; docs/architecture.md lists every actor.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::docs::{read, tables};

/// The top modules of `settee`, from the bottom up: each may use those above it in this list, never those below.
const MODULES: [&str; 24] = [
    "otp",
    "machine_bounds",
    "pace",
    "aside",
    "drain",
    "in_flight",
    "logging",
    "audit",
    "tls",
    "auth",
    "operations",
    "replicator",
    "query_server",
    "messages",
    "health",
    "metrics",
    "functions",
    "actors",
    "languages",
    "conform_target",
    "http",
    "app",
    "cli",
    "main",
];

/// The workspace crates that each crate in `crates/` may depend on.
const CRATES: [(&str, &[&str]); 13] = [
    ("blocking", &[]),
    ("child", &[]),
    ("client", &[]),
    ("config", &["child", "client", "policy", "replication"]),
    ("conform", &["child"]),
    ("couchjs", &["json"]),
    ("json", &[]),
    ("mango", &["json"]),
    ("policy", &[]),
    (
        "replication",
        &["blocking", "child", "json", "mango", "policy"],
    ),
    (
        "store",
        &["blocking", "child", "config", "policy", "test_support"],
    ),
    ("test_support", &[]),
    ("testkit", &["child", "policy", "settee", "test_support"]),
];

/// Crates that are not part of the program; only these may depend on actix.
const FOR_TESTS: [&str; 2] = ["test_support", "testkit"];

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn is_test_file(path: &Path) -> bool {
    path.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs")
    })
}

/// Returns the text of a file without comments and tests; tests may use anything.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let tests = Regex::new(r"\n#\[cfg\(test\)\]\n(#\[.*\n)*mod \w+ \{").unwrap();
    let code = tests.split(&text).next().unwrap_or_default();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the top modules that a text names as `crate::NAME` or in `crate::{NAME, ..}`.
fn named_modules(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let list = rest
            .strip_prefix('{')
            .and_then(|list| list.split('}').next());
        for path in list.unwrap_or(rest).split(',') {
            let path = path.trim_start();
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
            named.insert(path[..end.unwrap_or(path.len())].to_owned());
            if list.is_none() {
                break;
            }
        }
    }
    named.retain(|name| MODULES.contains(&name.as_str()));
    named
}

#[test]
fn modules_use_only_modules_of_lower_layers() {
    let source = root().join("src");
    let mut wrong = Vec::new();
    for path in rust_files(&source) {
        let inside = path.strip_prefix(&source).unwrap();
        let first = inside.components().next().unwrap();
        let module = first.as_os_str().to_string_lossy();
        let module = module.trim_end_matches(".rs");
        if module == "lib" || is_test_file(inside) {
            continue;
        }
        let height = MODULES.iter().position(|known| *known == module);
        let height = height.unwrap_or_else(|| panic!("'{module}' is missing from MODULES"));
        for used in named_modules(&code(&path)) {
            if MODULES[height..].contains(&used.as_str()) && used != module {
                wrong.push(format!("{}: uses {used}", inside.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "modules that use higher layers:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_architecture_page_lists_every_actor_with_its_file() {
    let source = root().join("src");
    let actor = Regex::new(r"\bActor for (\w+)").unwrap();
    let mut actors = BTreeSet::new();
    for path in rust_files(&source) {
        let inside = path.strip_prefix(&source).unwrap();
        if is_test_file(inside) {
            continue;
        }
        let code = code(&path);
        let found = actor.captures_iter(&code);
        actors.extend(found.map(|name| (name[1].to_owned(), format!("src/{}", inside.display()))));
    }
    let tables = tables(&read("docs/architecture.md"));
    let documented = tables["Actors"]
        .iter()
        .map(|row| (row[0].clone(), row[1].clone()));
    assert_eq!(documented.collect::<BTreeSet<_>>(), actors);
}

#[test]
fn only_tell_sends_beyond_the_bound_of_a_mailbox() {
    let tell = root().join("src/otp/tell.rs");
    let others = rust_files(&root().join("src"));
    let others = others.iter().filter(|path| **path != tell);
    let found = others.filter(|path| !is_test_file(path) && code(path).contains(".do_send("));
    assert_eq!(found.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

/// Returns the names below `[dependencies]` of a manifest.
fn dependencies(manifest: &Path) -> Vec<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    dependencies.map_or_else(Vec::new, |table| table.keys().cloned().collect())
}

#[test]
fn crates_depend_only_on_the_crates_allowed_to_them() {
    let own: Vec<&str> = CRATES.iter().map(|(name, _)| *name).collect();
    let folders = fs::read_dir(root().join("crates")).unwrap();
    for folder in folders.map(|entry| entry.unwrap().path()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let allowed = CRATES.iter().find(|(known, _)| *known == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("'{name}' is missing from CRATES"));
        for used in dependencies(&folder.join("Cargo.toml")) {
            let known = used.strip_prefix("settee_").unwrap_or(&used);
            // `config` depends on the library of the same name.
            let is_own = own.contains(&known) && used != name;
            assert!(
                !is_own || allowed.contains(&known),
                "{name} depends on {used}"
            );
            let is_for_tests = FOR_TESTS.contains(&name.as_str());
            assert!(
                !used.starts_with("actix") || is_for_tests,
                "{name} depends on {used}"
            );
        }
    }
}

#[test]
fn the_policy_crate_depends_only_on_rustc_hash_serde_and_strum() {
    let used = dependencies(&root().join("crates/policy/Cargo.toml"));
    assert_eq!(used, ["rustc-hash", "serde", "strum"]);
}
