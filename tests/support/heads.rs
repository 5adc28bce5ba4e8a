//! The head of each example, for tests that do what it says.

use std::fs;

use super::program::project;

/// The marks of comments.
const MARKS: [&str; 3] = ["//", "--", "#"];

/// Returns the lines of code in the text at the head of an example: those that are indented, and what follows `Usage:`.
pub fn code(example: &str) -> Vec<String> {
    let text = fs::read_to_string(project().join("examples").join(example)).unwrap();
    let text = match text.strip_prefix("#!") {
        Some(rest) => rest.split_once('\n').unwrap().1,
        None => &text,
    };
    let head: Vec<&str> = match text.strip_prefix("\"\"\"") {
        Some(rest) => rest.split_once("\"\"\"").unwrap().0.lines().collect(),
        None => text.lines().map_while(comment).collect(),
    };
    let code = head.into_iter().filter_map(|line| {
        let is_code = line.starts_with("  ").then_some(line);
        is_code.or_else(|| line.strip_prefix("Usage:"))
    });
    let code: Vec<String> = code.map(|line| line.trim().to_owned()).collect();
    assert!(!code.is_empty(), "{example} names no command");
    code
}

/// Returns what a line of a comment says.
fn comment(line: &str) -> Option<&str> {
    MARKS.iter().find_map(|mark| line.strip_prefix(mark))
}
