//! The README is true: its figures are those of the pages that it links to, each guarantee names its tests, and the
//! program is described by the same sentence everywhere.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use regex::Regex;

use crate::docs::read;
use crate::support::program::SETTEE;

/// The most words that the README may have.
const WORDS_MAX: usize = 900;

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// Returns the README without its code blocks.
fn prose() -> String {
    let text = read("README.md");
    pattern("(?s)```.*?```").replace_all(&text, "").into_owned()
}

/// Returns the part of a page from the heading with this anchor to the next heading; without an anchor, the whole page.
fn section(page: &str, name: &str) -> String {
    let text = read(page);
    if name.is_empty() {
        return text;
    }
    let no_part = pattern(r"[^\w\- ]");
    let mut parts = text.split("\n#").filter(|part| {
        let heading = part.lines().next().unwrap_or_default();
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        no_part.replace_all(&heading, "").replace(' ', "-") == name
    });
    parts.next().expect("the section").to_owned()
}

#[test]
fn every_figure_of_the_readme_is_on_the_page_that_it_links_to() {
    let figure = pattern(r"\d[\d,.]* %(?: of a core)?|\d[\d,.]*(?: (?:MiB|ms|s))?\b");
    let link = pattern(r"\[([^\]]*\d[^\]]*)\]\((docs/[\w-]+\.md)#?([\w-]*)\)");
    let text = prose();
    let mut compared = 0;
    for found in link.captures_iter(&text) {
        let there = section(&found[2], &found[3]);
        for figure in figure.find_iter(&found[1]) {
            assert!(there.contains(figure.as_str()), "{}", &found[0]);
            compared += 1;
        }
    }
    assert!(compared > 4, "{compared}");
    let rest = link.replace_all(&text, "");
    let measured = pattern(r"\d (ms|s|%|KiB|KB|kB|per second)\b|\d %");
    assert_eq!(
        measured.find(&rest).map(|found| found.as_str()),
        None,
        "a figure without a link to its page"
    );
}

#[test]
fn every_bench_that_the_readme_names_exists_and_is_on_the_page_of_its_figures() {
    let text = prose();
    let named = pattern(r"\]\((docs/[\w-]+\.md)[^)]*\)[^*]*?\(`(cargo bench --bench (\w+))`\)");
    let benches: Vec<_> = named.captures_iter(&text).collect();
    assert_eq!(benches.len(), text.matches("cargo bench").count());
    for found in benches {
        let source = format!("benches/{}.rs", &found[3]);
        assert!(
            Path::new(env!("CARGO_MANIFEST_DIR")).join(&source).exists(),
            "{source}"
        );
        assert!(read(&found[1]).contains(&found[2]), "{}", &found[0]);
    }
}

#[test]
fn the_defaults_that_the_readme_states_are_those_of_the_configuration() {
    let text = prose();
    let defaults = read("config/default.toml");
    for (told, key) in [
        (
            "[`standard`](docs/cells.md), the default,",
            "sandbox = \"standard\"",
        ),
        ("by default [5,000 ms]", "os_process_timeout = 5000"),
        (
            "[64 MiB](docs/tuning.md#memory) for JavaScript",
            "javascript_memory_max = 67108864",
        ),
    ] {
        assert!(text.contains(told), "{told}");
        assert!(defaults.lines().any(|line| line == key), "{key}");
    }
}

/// Adds the names of all functions of the Rust files in a folder.
fn add_functions(folder: &Path, names: &mut BTreeSet<String>) {
    let function = pattern(r"(?m)^\s*(?:pub |async )*fn (\w+)");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_functions(&path, names);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = read(&path);
            names.extend(
                function
                    .captures_iter(&text)
                    .map(|found| found[1].to_owned()),
            );
        }
    }
}

#[test]
fn every_guarantee_names_the_tests_that_check_it() {
    let mut known = BTreeSet::new();
    for folder in ["tests", "src", "crates"] {
        add_functions(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
            &mut known,
        );
    }
    let page = read("docs/guarantees.md");
    let named = pattern(r"`([a-z0-9]+(?:_[a-z0-9]+){4,})`");
    let guarantees: Vec<_> = page.split("\n* ").skip(1).collect();
    assert!(guarantees.len() > 10, "{}", guarantees.len());
    for guarantee in guarantees {
        let tests: Vec<_> = named.captures_iter(guarantee).collect();
        assert!(!tests.is_empty(), "no test checks it: {guarantee}");
        for test in tests {
            assert!(known.contains(&test[1]), "there is no {}", &test[1]);
        }
    }
}

#[test]
fn the_program_is_described_by_the_same_sentence_everywhere() {
    let (_, sentence) = env!("CARGO_PKG_DESCRIPTION").split_at("Runs ".len());
    for (page, before) in [
        ("README.md", "**Settee runs "),
        ("docs/SUMMARY.md", "Settee runs "),
        ("docs/conf.py", "\"description\": \"Runs "),
        ("src/http/dashboard/page.html", "<title>Settee runs "),
    ] {
        let said = format!("{before}{sentence}");
        assert!(read(page).contains(&said), "{page} does not say {said}");
    }
    let help = Command::new(SETTEE).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words: Vec<_> = help.split_whitespace().collect();
    let said = words.join(" ");
    assert!(said.starts_with(env!("CARGO_PKG_DESCRIPTION")), "{help}");
}

#[test]
fn the_readme_is_short_and_has_its_two_commands_after_their_marks() {
    let text = read("README.md");
    let words = text.split_whitespace().count();
    assert!(words <= WORDS_MAX, "{words} words");
    for (mark, command) in [
        (
            "main job",
            "cargo run --release --locked -- map --map examples/orders/by_customer.js --reduce _sum --group \
             examples/orders/orders.ndjson",
        ),
        ("tests", "cargo test --locked"),
    ] {
        let block = format!("\n<!-- ci: {mark} -->\n```sh\n{command}\n```\n");
        assert_eq!(text.matches(&block).count(), 1, "{block}");
    }
}
