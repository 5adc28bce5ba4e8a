//! Plays the built-in conformance cases against `settee couchjs`, with one test per file.

use std::ffi::OsString;
use std::time::Duration;

use futures_util::StreamExt;
use settee::conform::report::CaseResult;
use settee::conform::run::Subject;
use settee::conform::suite;
use settee::conform_target::Target;
use settee::query_server::cell::Cell;
use settee::query_server::child::{CommandSpec, Spawner};

use crate::cells::own::strictest;
use crate::support::program::SETTEE;

/// How long the server may take for a case.
const DEADLINE: Duration = Duration::from_secs(60);

macro_rules! categories {
    ($($test:ident => $file:literal,)*) => {
        $(
            #[actix_rt::test]
            async fn $test() {
                play_file($file).await;
            }
        )*

        #[test]
        fn every_file_of_transcripts_is_played() {
            let known = [$($file),*];
            for (name, _) in suite::files("javascript") {
                assert!(known.contains(&name), "{name} has no test");
            }
        }
    };
}

categories! {
    common => "common",
    basic => "basic",
    compile => "compile",
    design_documents => "ddoc",
    filters => "ddoc-filters",
    lists => "ddoc-lists",
    rewrites => "ddoc-rewrites",
    shows => "ddoc-shows",
    updates => "ddoc-updates",
    validation => "ddoc-validate",
    index => "index",
    language => "language",
    modules => "lib",
    log => "log",
    map => "map",
    policy => "policy",
    protocol => "protocol",
    reduce => "reduce",
    reset => "reset",
    sandbox => "sandbox",
    own_compile => "own-compile",
    own_ddoc => "own-ddoc",
    own_ddoc_filters => "own-ddoc-filters",
    own_ddoc_lists => "own-ddoc-lists",
    own_ddoc_rewrites => "own-ddoc-rewrites",
    own_ddoc_shows => "own-ddoc-shows",
    own_ddoc_updates => "own-ddoc-updates",
    own_ddoc_validate => "own-ddoc-validate",
    own_index => "own-index",
    own_language => "own-language",
    own_lib => "own-lib",
    own_log => "own-log",
    own_map => "own-map",
    own_policy => "own-policy",
    own_protocol => "own-protocol",
    own_reduce => "own-reduce",
    own_reset => "own-reset",
    own_sandbox => "own-sandbox",
}

async fn play_file(name: &str) {
    let (_, text) = suite::files("javascript")
        .find(|(file, _)| *file == name)
        .expect("the file is built in");
    let cases = suite::cases_of(text, "javascript").expect("the lines are cases");
    assert!(!cases.is_empty(), "{name} holds no case");
    let subject = Subject {
        target: Target::Command(CommandSpec {
            program: SETTEE.into(),
            arguments: vec![OsString::from("couchjs")],
            environment: Vec::new(),
            // Functions must behave the same in a cell.
            cell: Cell::Own(strictest()),
        }),
        time: DEADLINE,
        spawner: Spawner::start().expect("there is room for a thread"),
    };
    let reports: Vec<_> = subject.reports(&cases).collect().await;
    let failures: Vec<String> = reports
        .into_iter()
        .filter(|report| report.result != CaseResult::Pass)
        .map(|report| format!("{report:?}"))
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}
