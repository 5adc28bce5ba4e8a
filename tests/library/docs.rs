//! The documentation lists exactly what the program has: keys and events of the log, bounds of the clients,
//! dependencies, files with unsafe code, layers of cells. Every metric is served.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;
use settee::metrics::{Metrics, prometheus_text, stats_at, stats_json};
use settee::query_server::cell::layers::Layer;
use settee::query_server::status::{DaemonStatus, PoolStatus, SandboxStatus, ServiceStatus};
use strum::VariantArray;

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the cells of every table row, without headings and rulers, by the heading above the table.
pub(crate) fn tables(text: &str) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut tables: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    let (mut heading, mut ruled) = (String::new(), false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('#') {
            heading = name.trim_start_matches('#').trim().to_owned();
        } else if line.starts_with("|--") {
            ruled = true;
        } else if ruled && line.starts_with('|') {
            let cells = line
                .trim_matches('|')
                .split('|')
                .map(|c| c.trim().replace('`', ""));
            tables
                .entry(heading.clone())
                .or_default()
                .push(cells.collect());
        } else {
            ruled = false;
        }
    }
    tables
}

/// Returns the keys of records, from their page.
fn documented_keys() -> Vec<String> {
    let mut tables = tables(&read("docs/logging.md"));
    let rows = tables.remove("Keys").expect("a table of the keys");
    rows.into_iter().map(|mut row| row.swap_remove(0)).collect()
}

#[test]
fn every_log_key_is_listed_once() {
    let mut keys = documented_keys();
    let listed = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), listed);
}

/// Returns the files below `folders` whose names end with `ends`.
fn files(folders: &[&str], ends: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("the entry can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.to_string_lossy().ends_with(ends) => files.push(path),
                false => {}
            }
        }
    }
    files
}

/// Returns the Rust files of the program and its crates, without those that hold tests only.
fn sources() -> Vec<PathBuf> {
    let mut sources = files(&["src", "crates"], ".rs");
    sources.retain(|path| !path.to_string_lossy().ends_with("tests.rs"));
    sources
}

#[test]
fn no_page_message_test_name_or_doc_comment_has_a_flagged_phrase() {
    let flagged =
        r"(?i)\b(whoever|of whom|in place of|passed over|to be had|in vain|stands? in for)\b";
    let flagged = Regex::new(flagged).expect("a pattern");
    let comment = Regex::new(r"(?m)^\s*// .*$").expect("a pattern");
    let gap = Regex::new(r"[\s_\\/!]+").expect("a pattern");
    let mut texts = files(&["src", "crates", "tests", "benches"], ".rs");
    texts.extend(files(&["docs", "monitoring"], ""));
    // This file has the list.
    texts.retain(|path| !path.ends_with(file!()));
    for path in texts {
        let text = String::from_utf8_lossy(&std::fs::read(&path).expect("a file")).into_owned();
        let text = comment.replace_all(&text, "");
        let text = gap.replace_all(&text, " ");
        let found = flagged.find(&text).map(|found| found.as_str());
        assert_eq!(found, None, "{}", path.display());
    }
}

/// Returns the name and the arguments of every logging macro in `code`, up to the matching bracket.
fn records(code: &str) -> Vec<(&str, &str)> {
    let start = r"\b(trace|debug|info|warn|error|crit|warn_repeating|record)!\s*\(";
    let starts = Regex::new(start).expect("a pattern");
    let token = Regex::new(r#""(?:[^"\\]|\\.)*"|[()]"#).expect("a pattern");
    let arguments = |begin: usize| {
        let mut depth = 1;
        for found in token.find_iter(&code[begin..]) {
            depth += match found.as_str() {
                "(" => 1,
                ")" => -1,
                _ => 0,
            };
            if depth == 0 {
                return &code[begin..begin + found.start()];
            }
        }
        panic!(
            "a macro without its closing bracket: {:.80}",
            &code[begin..]
        );
    };
    starts
        .captures_iter(code)
        .map(|start| {
            let name = start.get(1).map_or("", |name| name.as_str());
            let end = start.get(0).map_or(0, |whole| whole.end());
            (name, arguments(end))
        })
        .collect()
}

/// Returns the keys and the message of a record.
fn keys_and_message(record: &str) -> (Vec<&str>, Option<&str>) {
    let text = Regex::new(r#""((?:[^"\\]|\\.)*)"(\s*=>)?"#).expect("a pattern");
    let (mut keys, mut message) = (Vec::new(), None);
    for found in text.captures_iter(record) {
        let content = found.get(1).map_or("", |content| content.as_str());
        match found.get(2) {
            Some(_) => keys.push(content),
            None if !content.is_empty() => message = message.or(Some(content)),
            None => {}
        }
    }
    (keys, message)
}

#[test]
fn records_are_found_with_their_keys_and_messages() {
    let code = r#"match x { 1 => info!(log, "one"; "a" => f(1), "b" => "(text"), _ => y("z") }
        slog::warn!(log, "two"; "c" => 3);"#;
    let found = records(code).into_iter();
    let found: Vec<_> = found
        .map(|(name, record)| (name, keys_and_message(record)))
        .collect();
    let expected = [
        ("info", (vec!["a", "b"], Some("one"))),
        ("warn", (vec!["c"], Some("two"))),
    ];
    assert_eq!(found, expected);
}

/// Returns the page and the section that list the events of a logging macro.
fn place(name: &str) -> (&'static str, &'static str) {
    match name {
        "crit" | "error" => ("docs/troubleshooting.md", "Errors"),
        "warn" | "warn_repeating" | "record" => ("docs/troubleshooting.md", "Warnings"),
        "info" => ("docs/logging.md", "Info"),
        _ => ("docs/logging.md", "Debug"),
    }
}

/// Returns the documented events, each with its page and section.
fn documented_events() -> BTreeSet<((&'static str, &'static str), String)> {
    let explained = tables(&read("docs/troubleshooting.md"));
    let explained = ["error", "warn"].map(|name| {
        let rows = explained[place(name).1].iter().map(|row| row[0].clone());
        rows.map(|event| (place(name), event)).collect::<Vec<_>>()
    });
    let page = read("docs/logging.md");
    let listed = ["info", "debug"].map(|name| {
        let (_, list) = page
            .split_once(&format!("\n### {}\n", place(name).1))
            .expect("a list");
        let list = list.split("\n#").next().unwrap_or_default();
        let events = list.lines().filter_map(|line| line.strip_prefix("* "));
        events
            .map(|event| (place(name), event.to_owned()))
            .collect()
    });
    explained.into_iter().chain(listed).flatten().collect()
}

#[test]
fn every_log_record_has_documented_keys_and_is_listed_and_explained_if_severe() {
    let comment = Regex::new(r"(?m)^\s*//.*$").expect("a pattern");
    let tests = Regex::new(r"\n#\[cfg\(test\)\]\n(#\[.*\n)*mod \w+ \{").expect("a pattern");
    let documented = documented_keys();
    let mut events = BTreeSet::new();
    for path in sources() {
        let source = read(&path);
        let code = tests.split(&source).next().unwrap_or_default();
        let code = comment.replace_all(code, "");
        // The pattern of the macro itself is not a record.
        let code = code.split("macro_rules!").next().unwrap_or_default();
        for (name, record) in records(code) {
            let (keys, message) = keys_and_message(record);
            for key in keys {
                assert!(
                    documented.iter().any(|name| name == key),
                    "{}: {key:?} is not a key of docs/logging.md",
                    path.display()
                );
            }
            events.extend(message.map(|message| (place(name), message.to_owned())));
        }
    }
    assert_eq!(events, documented_events());
}

#[test]
fn every_metric_is_served_in_both_formats() {
    let metrics = Metrics::new();
    metrics.pool("javascript");
    metrics.language("javascript");
    metrics.service("javascript");
    metrics.http_request("GET", 200, std::time::Duration::ZERO);
    let pool = PoolStatus {
        name: "javascript".into(),
        sandbox: Some(SandboxStatus {
            mode: "standard".into(),
            layers: vec!["files".into()],
            ..SandboxStatus::default()
        }),
        ..PoolStatus::default()
    };
    let snapshot = metrics.snapshot(&DaemonStatus {
        pools: vec![pool],
        services: vec![ServiceStatus {
            name: "javascript".into(),
            pool: "javascript".into(),
            limit: Some(1),
            ..ServiceStatus::default()
        }],
        ..DaemonStatus::default()
    });
    let (stats, text) = (stats_json(&snapshot), prometheus_text(&snapshot));
    for family in &snapshot.families {
        let name = family.definition.prometheus;
        assert!(!family.samples.is_empty(), "{name} is never served");
        let kind = family.definition.kind.prometheus();
        assert!(
            text.contains(&format!("\n# TYPE {name} {kind}\n{name}")),
            "{name}"
        );
        let Some(path) = family.definition.stats else {
            continue;
        };
        let mut path = path.replace('.', "/");
        // A label's value may contain dots.
        for label in &family.samples[0].labels {
            path = format!("{path}/{label}");
        }
        let leaf = stats_at(&stats, &path);
        assert!(
            leaf["value"].is_number() || leaf["value"].is_object(),
            "{path}"
        );
        assert_eq!(leaf["type"], family.definition.kind.stats(), "{path}");
        assert_eq!(leaf["desc"], family.definition.help, "{path}");
    }
    assert_eq!(text.matches("# TYPE ").count(), snapshot.families.len());
}

/// Returns the bounds that a client's files set, without the language's keywords.
fn bounds(folder: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let bound =
        Regex::new(r"(?m)^(?:const )?([A-Z_]+_(?:MAX|FIRST) = [^;\n]+);?$").expect("a pattern");
    let files = std::fs::read_dir(root).expect("the folder can be read");
    let files = files.map(|entry| entry.expect("the entry can be read").path());
    let texts: Vec<_> = files.filter(|path| path.is_file()).map(read).collect();
    let found = texts.iter().flat_map(|text| bound.captures_iter(text));
    found.map(|found| found[1].to_owned()).collect()
}

#[test]
fn the_bounds_of_the_clients_are_documented_with_their_values() {
    let tables = tables(&read("docs/clients.md"));
    let column = |column: usize| {
        let rows = tables["After a loss"].iter();
        rows.map(|row| row[column].clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(bounds("clients/python/settee"), column(1));
    assert_eq!(bounds("clients/node/lib"), column(2));
}

#[test]
fn every_dependency_is_documented() {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("the manifest is TOML");
    let all = manifest["workspace"]["dependencies"].as_table();
    let others = all.expect("a table").iter();
    let others = others.filter(|(_, from)| from.get("path").is_none());
    let declared: BTreeSet<String> = others.map(|(name, _)| name.clone()).collect();
    let tables = tables(&read("docs/dependencies.md"));
    let names = tables["Dependencies"]
        .iter()
        .flat_map(|row| row[0].split(", "));
    let documented: BTreeSet<String> = names.map(str::to_owned).collect();
    assert_eq!(declared, documented);
}

#[test]
fn every_file_with_unsafe_code_is_listed_in_contributing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_unsafe = Regex::new(r"(?m)^[^/\n]*\bunsafe (\{|fn|extern|impl)").expect("a pattern");
    let with_unsafe = sources()
        .into_iter()
        .filter(|path| is_unsafe.is_match(&read(path)));
    let relative = |path: PathBuf| {
        path.strip_prefix(root)
            .expect("a file of the project")
            .display()
            .to_string()
    };
    let with_unsafe: BTreeSet<_> = with_unsafe.map(relative).collect();
    let page = read("CONTRIBUTING.md");
    let (_, list) = page.split_once("`unsafe` only").expect("the list");
    let (list, _) = list.split_once("SAFETY note").expect("the end of the list");
    let file = Regex::new(r"`([\w/]+\.rs)`").expect("a pattern");
    let named = file.captures_iter(list).map(|found| found[1].to_owned());
    assert_eq!(named.collect::<BTreeSet<_>>(), with_unsafe);
}

#[test]
fn each_layer_of_a_cell_is_promised_for_each_kind_of_query_server() {
    let tables = tables(&read("SECURITY.md"));
    let rows = &tables["What each language is promised"];
    let promised: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    let layers: Vec<_> = Layer::VARIANTS.iter().map(Layer::to_string).collect();
    assert_eq!(promised, layers);
    for row in rows {
        assert_eq!(row.len(), 4, "{row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
}

#[test]
fn resources_shared_by_cells_are_documented_with_their_attempts() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rust = |folder: &str| {
        let files = std::fs::read_dir(project.join(folder)).expect("a folder");
        let paths = files.map(|file| file.expect("a file").path());
        let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "rs"));
        paths.map(read).collect::<String>()
    };
    let attempts = "tests/external/attempts";
    let sources = rust(attempts) + &rust("tests/daemon/pools");
    // Matches an attempt in a list of attempts, or a test.
    let made = Regex::new(r"(?m)^ +(\w+)(?:\.[\w.\[\]():&, ]+)?;$|^fn (\w+)").expect("a pattern");
    let made = made.captures_iter(&sources).flat_map(|found| {
        let names = [found.get(1), found.get(2)].into_iter().flatten();
        names.map(|name| name.as_str()).collect::<Vec<_>>()
    });
    let made: BTreeSet<_> = made.collect();
    let tables = tables(&read("SECURITY.md"));
    let rows = &tables["What cells share"];
    let shown: BTreeSet<_> = rows.iter().flat_map(|row| row[3].split(", ")).collect();
    let unknown: Vec<_> = shown.difference(&made).collect();
    assert!(unknown.is_empty(), "unknown attempts: {unknown:?}");
    let counted = read(format!("{attempts}/counters.py"));
    let counted = counted
        .lines()
        .filter_map(|line| line.strip_prefix("def takes_"));
    let undocumented: Vec<_> = counted
        .filter_map(|rest| rest.split('(').next())
        .filter(|name| !shown.contains(name))
        .collect();
    assert!(
        undocumented.is_empty(),
        "not in the table: {undocumented:?}"
    );
    for row in rows {
        assert_eq!(row.len(), 4, "{row:?}");
        for cell in &row[1..3] {
            let word = cell.split([':', ';', ',', ' ']).next().expect("a word");
            let allowed = ["own", "bounded", "shared", "none", "the", "with"];
            assert!(allowed.contains(&word), "{row:?}");
        }
    }
}

#[test]
fn the_licence_is_complete_and_the_notice_credits_the_origins() {
    let licence = read("LICENSE");
    for part in [
        "Version 2.0, January 2004",
        "END OF TERMS AND CONDITIONS",
        "APPENDIX",
    ] {
        assert!(licence.contains(part), "{part}");
    }
    let notice = read("NOTICE");
    for origin in ["Apache CouchDB", "pidq", "pooler", "Postfix"] {
        assert!(notice.contains(origin), "{origin}");
    }
}
