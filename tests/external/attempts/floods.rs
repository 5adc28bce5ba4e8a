//! Floods: what a function prints is bounded with and without a cell, so these are tried in one only.

use serde_json::json;

use super::attempt::Outcome;
use super::site::{Mode, Site};

const SOURCE: &str = include_str!("floods.py");

/// What a flood of more than 5 MB may leave in the log. Bytes.
const LOG_MAX: usize = 500_000;

/// Lets this function print, and returns what became of it; the next client is served, the log is short.
fn flood(function: &str) -> Outcome {
    let site = Site::start(Mode::Standard, "max_uses = 1\n");
    let outcome = site.run(SOURCE, &json!({"attempt": "flood", "function": function}));
    site.serves_the_next_client();
    let logged = site.service().log().len();
    assert!(logged < LOG_MAX, "{logged} bytes were logged");
    outcome
}

#[test]
fn a_flood_of_errors_is_not_logged_as_a_whole() {
    let outcome = flood("floods_its_errors");
    assert!(matches!(outcome, Outcome::Did(_)), "{outcome:?}");
}

#[test]
fn a_flood_for_the_log_is_not_logged_as_a_whole() {
    let outcome = flood("floods_the_log");
    assert!(matches!(outcome, Outcome::Did(_)), "{outcome:?}");
}

#[test]
fn a_flood_of_output_ends_the_query_server() {
    let outcome = flood("floods_its_output");
    assert!(matches!(outcome, Outcome::Ended(_)), "{outcome:?}");
}

#[test]
fn a_line_without_end_ends_the_query_server() {
    let outcome = flood("floods_its_output_with_one_line");
    assert!(matches!(outcome, Outcome::Ended(_)), "{outcome:?}");
}
