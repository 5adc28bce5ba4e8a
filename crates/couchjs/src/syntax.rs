//! Syntax errors with line and column, which the protocol cannot express.
//!
//! SUMMARY   [`check_function`] and [`check_module`] parse a source without running it, and return the first error
//!           with its position.
//! CALLED    By `settee map`, for files that its user wrote.
//! LIMITS    A source that the [`Parser`] cannot parse completely passes; the query server decides.

use super::memory::Account;
use super::parser::{Parsed, Parser};
use super::positions::{Excerpt, Source, Spot};
use super::source;

/// The first error in a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SyntaxError {
    /// Its line, from 1.
    pub line: u32,
    /// Its column in characters, from 1.
    pub column: u32,
    /// The engine's message.
    pub text: String,
    /// That line, or the part of it around the error.
    pub source_line: String,
    /// White space, and a `^` below the error.
    pub caret: String,
}

/// Parses a function's source, in any form that the query server accepts.
///
/// # Errors
/// The first error; its author is at fault.
pub fn check_function(source: &str) -> Result<(), SyntaxError> {
    let account = Account::new(usize::MAX);
    check(source, |parser| {
        let (run, parsed) = source::parse(parser, source);
        (Source::of(source, &run, &account), parsed)
    })
}

/// Parses a module's source.
///
/// # Errors
/// See [`check_function`].
pub fn check_module(source: &str) -> Result<(), SyntaxError> {
    const BEFORE: &str = "(function (module, exports, require) {";
    let account = Account::new(usize::MAX);
    check(source, |parser| {
        let parsed = parser.parse(&format!("{BEFORE}{source}\n}})"));
        (Source::behind(BEFORE, source, &account), parsed)
    })
}

fn check(source: &str, parse: impl FnOnce(&Parser) -> (Source, Parsed)) -> Result<(), SyntaxError> {
    let Some((places, Parsed::Wrong(mistake))) = Parser::new().map(|parser| parse(&parser)) else {
        return Ok(());
    };
    let spot = places.spot((mistake.line, mistake.column), true);
    let shown = Excerpt::of(source, spot);
    let (source_line, caret) = shown.map_or_else(Default::default, |it| (it.line, it.caret));
    let Spot { line, column } = spot;
    Err(SyntaxError {
        line,
        column,
        text: mistake.text,
        source_line,
        caret,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn place(result: Result<(), SyntaxError>) -> Option<(u32, u32)> {
        result.err().map(|error| (error.line, error.column))
    }

    #[test]
    fn the_place_of_a_mistake_in_a_function_is_named() {
        let source = "// Orders\nfunction(doc) {\n  emit(doc. ;\n}\n";
        assert_eq!(place(check_function(source)), Some((3, 13)));
        assert_eq!(place(check_function("function(")), Some((1, 10)));
        let arrow = check_function("(doc) => {\n\n  emit(1;\n}");
        assert_eq!(place(arrow.clone()), Some((3, 9)));
        let error = arrow.unwrap_err();
        assert_eq!(
            (&*error.source_line, &*error.caret),
            ("  emit(1;", "        ^")
        );
    }

    #[test]
    fn sources_without_a_syntax_error_pass() {
        for source in [
            "function(doc) { emit(1); }",
            "(doc) => emit(1)",
            "var n = 1;\nfunction(doc) { with (doc) { emit(n); } }",
            "while (true) { }",
            "throw 1",
            "var n = 'a\0b'",
        ] {
            assert_eq!(check_function(source), Ok(()), "{source}");
        }
    }

    #[test]
    fn a_module_is_parsed_as_the_body_of_a_function() {
        assert_eq!(check_module("exports.a = 1;\nreturn; // end"), Ok(()));
        let error = check_module("exports.a = 1;\nexports.f = function( ;").unwrap_err();
        assert_eq!((error.line, error.column), (2, 23));
        assert!(error.text.starts_with("SyntaxError: "), "{error}");
    }
}
