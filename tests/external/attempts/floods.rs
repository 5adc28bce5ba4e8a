//! Floods: what a function prints is bounded with and without a cell, so these run only in one.

use serde_json::json;

use super::attempt::Outcome;
use super::site::{Mode, Site};

const SOURCE: &str = include_str!("floods.py");

/// Maximum length of the log after a flood of more than 5 MB, in bytes.
const LOG_MAX: usize = 500_000;

/// Returns the outcome of a function that prints a flood; asserts that the next client is served and the log short.
fn flood(function: &str) -> Outcome {
    let site = Site::start(Mode::Standard, "max_uses = 1\n");
    let outcome = site.run(SOURCE, &json!({"attempt": "flood", "function": function}));
    site.serves_the_next_client();
    let logged = site.service().log().len();
    assert!(logged < LOG_MAX, "{logged} bytes were logged");
    outcome
}

#[test]
fn a_flood_on_stderr_is_only_partly_logged() {
    let outcome = flood("floods_its_errors");
    assert!(matches!(outcome, Outcome::Did(_)), "{outcome:?}");
}

#[test]
fn a_flood_of_log_lines_is_only_partly_logged() {
    let outcome = flood("floods_the_log");
    assert!(matches!(outcome, Outcome::Did(_)), "{outcome:?}");
}

#[test]
fn a_flood_of_output_ends_the_query_server() {
    let outcome = flood("floods_its_output");
    assert!(matches!(outcome, Outcome::Ended(_)), "{outcome:?}");
}

#[test]
fn an_endless_line_ends_the_query_server() {
    let outcome = flood("floods_its_output_with_one_line");
    assert!(matches!(outcome, Outcome::Ended(_)), "{outcome:?}");
}
