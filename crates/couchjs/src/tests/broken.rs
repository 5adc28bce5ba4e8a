//! Random sources, most of them broken: parsing always returns a result, whatever the characters.

use serde_json::{Value, json};
use test_support::TestRandom;

use super::super::members::members_read;
use super::super::syntax::{check_function, check_module};
use super::{BATCH, answers};

const TEXTS: usize = 2000;

/// Maximum pieces of a source.
const PIECES_MAX: usize = 12;

/// Fragments of sources, and characters of one to four bytes.
const PIECES: &[&str] = &[
    "function(d){emit(1)}",
    "function(){}",
    "function(",
    "function",
    "async function(){}",
    "async ",
    "function f(){}",
    "0,",
    "let[]='';0,",
    "var a = 1",
    "return 1",
    "=>",
    "{",
    "}",
    "(",
    ")",
    "[",
    ";",
    ",",
    ".a",
    "'",
    "\"",
    "`",
    "${",
    "/",
    "/*",
    "*/",
    "//",
    "\\",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\u{2028}",
    "\u{feff}",
    "\0",
    "\u{7f}",
    "²",
    "é",
    "\u{a0}",
    "\u{ffff}",
    "\u{1f680}",
    "\"²\"",
    "'\u{1f680}é'",
];

fn text(random: &mut TestRandom) -> String {
    let count = random.below(PIECES_MAX) + 1;
    (0..count).map(|_| *random.one_of(PIECES)).collect()
}

/// Parses a source in every supported way.
fn parse(text: &str) {
    for mistake in [check_function(text), check_module(text)] {
        if let Err(mistake) = mistake {
            assert!(mistake.line > 0 && mistake.column > 0, "{text:?}");
        }
    }
    members_read(text);
}

#[test]
fn a_multibyte_character_after_an_anonymous_function_is_parsed() {
    for text in [
        "function(d){emit(1)}; function(){ \"²\";}; function(){}",
        "var a; function(é){}; function(){}",
        "var a; async function(é){}; function(){}",
        "var a; async\u{a0}function(é){}; function(){}",
    ] {
        parse(text);
        assert_eq!(check_function(text), Ok(()), "{text:?}");
    }
}

#[test]
fn parsing_returns_for_every_source() {
    let mut random = TestRandom::for_test("parsing_returns_for_every_source");
    let texts: Vec<String> = (0..TEXTS).map(|_| text(&mut random)).collect();
    for batch in texts.chunks(BATCH) {
        batch.iter().for_each(|text| parse(text));
        let commands: Vec<Value> = batch
            .iter()
            .flat_map(|text| [json!(["reset", {"report": true}]), json!(["add_fun", text])])
            .collect();
        let answers = answers(true, &commands);
        assert_eq!(answers.len(), commands.len(), "each command has an answer");
    }
}
