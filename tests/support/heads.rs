//! The header comment of an example, for tests that run its commands.

use std::fs;

use super::program::project;

/// The markers of comments.
const MARKS: [&str; 3] = ["//", "--", "#"];

/// Returns the commands in the header comment of an example: its indented lines, and what follows `Usage:`.
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

/// Returns the text of a comment line.
fn comment(line: &str) -> Option<&str> {
    MARKS.iter().find_map(|mark| line.strip_prefix(mark))
}
