//! Every link from a page to another page, a heading or a file has a target, and every metric that a page names exists.
//! The contents of the book list every page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::docs::read;

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["", "docs", "clients/python", "clients/node"].map(|folder| root.join(folder));
    let files = folders
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let files = files.map(|entry| entry.expect("an entry").path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// Returns a page without its blocks of code.
fn prose(page: &Path) -> String {
    let text = read(page);
    pattern("(?s)```.*?```").replace_all(&text, "").into_owned()
}

/// Returns the anchors of the headings of a page.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = prose(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let not_in_anchor = pattern(r"[^\w\- ]");
    let name = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        not_in_anchor.replace_all(&heading, "").replace(' ', "-")
    };
    headings.map(name).collect()
}

#[test]
fn every_link_between_pages_has_a_target() {
    let link = pattern(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)");
    for page in pages() {
        let text = prose(&page);
        for found in link
            .captures_iter(&text)
            .filter(|found| !found[1].contains("://"))
        {
            let to = match &found[1] {
                "" => page.clone(),
                path => page.with_file_name(path),
            };
            assert!(to.exists(), "{}: {}", page.display(), &found[0]);
            if let Some(heading) = found.get(2) {
                let known = headings(&to).contains(heading.as_str());
                assert!(known, "{}: {}", page.display(), &found[0]);
            }
        }
    }
}

#[test]
fn the_contents_of_the_book_list_every_page_once() {
    let contents = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/SUMMARY.md");
    let text = read(&contents);
    let link = pattern(r"\]\(([^)]+)\)");
    let listed = link.captures_iter(&text).map(|found| found[1].to_owned());
    let mut listed: Vec<_> = listed.collect();
    listed.sort();
    let name = |page: &Path| {
        let name = page.file_name()?.to_str()?;
        let folder = page.parent()?;
        match folder == contents.parent()? {
            true => Some(name.to_owned()),
            false => (folder == contents.parent()?.parent()?).then(|| format!("../{name}")),
        }
    };
    let pages = pages().into_iter().filter(|page| *page != contents);
    let mut pages: Vec<_> = pages.filter_map(|page| name(&page)).collect();
    pages.sort();
    assert_eq!(listed, pages);
}

#[test]
fn every_metric_that_a_page_names_exists() {
    let metric = pattern("`((?:settee|couchdb)_[a-z_]+)`");
    let names = |text: &str| {
        let found = metric.captures_iter(text).map(|found| found[1].to_owned());
        found.collect::<BTreeSet<_>>()
    };
    let known = read("docs/metrics.md");
    let (_, known) = known.split_once("## Metrics\n").expect("the table");
    let known = names(known);
    for page in pages() {
        let named = names(&read(&page));
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", page.display());
    }
}
