//! The pages that `settee man` writes: their names, their content, and that they are well formed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use settee::config::keys;

use crate::support::program::program;

fn pages(folder: &Path) -> Vec<PathBuf> {
    let written = program(&["man", folder.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    let sections = ["man1", "man5"].map(|section| fs::read_dir(folder.join(section)).unwrap());
    let files = sections.into_iter().flatten();
    files.map(|file| file.unwrap().path()).collect()
}

/// Returns the subcommands of a command, as listed in its help.
fn commands_below(command: &[&str]) -> Vec<String> {
    let output = program(command).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let listed = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, list)| list);
    let listed = listed.split("\n\n").next().unwrap_or_default();
    let names = listed.lines().filter_map(|line| {
        // Continuation lines are indented further.
        let line = line.strip_prefix("  ")?;
        (!line.starts_with(' ')).then(|| line.split(' ').next())?
    });
    let names = names.filter(|name| !matches!(*name, "help" | "man"));
    names.map(str::to_owned).collect()
}

#[test]
fn each_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let names = pages(folder.path());
    let names = names
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap());
    let written: BTreeSet<String> = names.map(str::to_owned).collect();
    let mut expected = BTreeSet::from(["settee.1".to_owned(), "settee.toml.5".to_owned()]);
    let commands = commands_below(&[]);
    assert!(commands.len() > 10, "{commands:?}");
    for command in &commands {
        expected.insert(format!("settee-{command}.1"));
        // The help of `couchjs` is CouchDB's own and lists no commands.
        for below in commands_below(&[command]) {
            expected.insert(format!("settee-{command}-{below}.1"));
        }
    }
    assert_eq!(written, expected);
}

#[test]
fn every_key_of_the_configuration_is_in_the_page_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    pages(folder.path());
    let page = fs::read_to_string(folder.path().join("man5/settee.toml.5")).unwrap();
    let tags: BTreeSet<&str> = page
        .split(".TP\n")
        .filter_map(|tag| tag.strip_prefix("\\fB")?.split_once("\\fR"))
        .map(|(key, _)| key)
        .collect();
    for key in keys::SECTIONS.iter().flat_map(keys::Section::rows) {
        let key = key.name;
        let key = key.replace('-', "\\-");
        assert!(tags.contains(&*key), "{key} of {tags:?}");
    }
}

#[test]
fn a_page_of_a_command_has_its_options_exit_codes_and_example() {
    let folder = tempfile::tempdir().unwrap();
    pages(folder.path());
    let page = fs::read_to_string(folder.path().join("man1/settee-serve.1")).unwrap();
    for part in [
        ".TH SETTEE-SERVE 1 ",
        "settee\\-serve \\- Run the service in the foreground",
        "\\fB\\-\\-socket\\fR",
        ".SH \"EXIT CODES\"",
        ".SH SIGNALS",
        ".SH EXAMPLE",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn groff_finds_nothing_wrong_where_it_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    for page in pages(folder.path()) {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Tutf8", "-z"]).arg(&page);
        let Ok(checked) = groff.output() else {
            return;
        };
        let complaint = String::from_utf8_lossy(&checked.stderr);
        assert!(
            checked.status.success() && complaint.is_empty(),
            "{complaint}"
        );
    }
}
