//! Hints for authors, in addition to the engine's message.
//! SUMMARY   [`of_error`] knows names that other JavaScript engines have but this one lacks, and the engine's
//!           messages for common errors; [`of_source`] recognizes other languages; [`of_no_function`] knows why a
//!           source that compiles is not a function.
//! DIFFERS   CouchDB sends only the engine's message; so does this server unless hints are requested.

use oxc_ast::ast::Statement;

use super::tree::{is_typescript, with_tree};

/// An error of the engine and the beginning of its message; the remedy.
const HINTS: &[(&str, &str, &str)] = &[
    (
        "ReferenceError",
        "Promise is not defined",
        "nothing waits for a promise: return the value itself",
    ),
    (
        "ReferenceError",
        "fetch is not defined",
        "functions have no network: put what they need into the document",
    ),
    (
        "ReferenceError",
        "XMLHttpRequest is not defined",
        "functions have no network: put what they need into the document",
    ),
    (
        "ReferenceError",
        "setTimeout is not defined",
        "functions have no timers: they answer when they return",
    ),
    (
        "ReferenceError",
        "setInterval is not defined",
        "functions have no timers: they answer when they return",
    ),
    (
        "ReferenceError",
        "console is not defined",
        "write with log(text), as CouchDB's functions do",
    ),
    (
        "ReferenceError",
        "process is not defined",
        "functions do not run in Node: they have their arguments and CouchDB's helpers",
    ),
    (
        "ReferenceError",
        "Buffer is not defined",
        "functions do not run in Node: they have their arguments and CouchDB's helpers",
    ),
    (
        "ReferenceError",
        "window is not defined",
        "functions do not run in a browser: they have their arguments and CouchDB's helpers",
    ),
    (
        "RangeError",
        "Maximum call stack size exceeded",
        "a function calls itself without an end",
    ),
    (
        "TypeError",
        "circular reference",
        "a value that contains itself has no JSON: leave that member out",
    ),
    (
        "TypeError",
        "BigInt are forbidden in JSON.stringify",
        "JSON has no BigInt: convert it with Number or String",
    ),
    (
        "SyntaxError",
        "unsupported keyword: export",
        "a function is not a module: leave out what is before it, or bundle it into one function",
    ),
    (
        "SyntaxError",
        "return not in a function",
        "a return is outside of the function: look for a bracket that closes too early",
    ),
    (
        "invalid_require_path",
        "",
        "require reads texts of the design document alone, by their path: require('views/lib/NAME')",
    ),
];

/// Returns the remedy for an error.
pub(super) fn of_error(name: &str, message: &str) -> Option<&'static str> {
    HINTS
        .iter()
        .find(|(error, begins, _)| *error == name && message.starts_with(begins))
        .map(|(_, _, hint)| *hint)
}

/// Returns the remedy for a source that does not compile, if its text reveals more than the engine's message.
pub(super) fn of_source(source: &str) -> Option<&'static str> {
    if source.trim_start().starts_with("import ") {
        Some("a function is not a module: bundle what it imports into one function, or use require")
    } else {
        is_typescript(source).then_some("this is TypeScript: compile it to JavaScript first")
    }
}

/// Returns why a source that compiles is not a function, if known.
pub(super) fn of_no_function(source: &str) -> Option<&'static str> {
    let declares = |statement: &Statement<'_>| match statement {
        Statement::FunctionDeclaration(_) => Some(
            "a function with a name is a declaration, not a value: leave out its name, or put brackets around it",
        ),
        Statement::VariableDeclaration(_) => {
            Some("a declaration is not a value: leave out what is before the function")
        }
        _ => None,
    };
    with_tree(source, |tree| tree.body.last().and_then(declares)).flatten()
}
