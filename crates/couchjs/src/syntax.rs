//! Syntax errors with their lines, which the protocol has no place for.
//!
//! SUMMARY   [`check_function`] and [`check_module`] parse a source without running it, and return the
//!           line of the first mistake.
//! CALLED    By `settee map`, for files that its user wrote.
//! LIMITS    A source that the [`Parser`] cannot parse to its end passes; the query server decides.

pub use super::parser::SyntaxError;
use super::parser::{Parsed, Parser};
use super::source;

/// Parses the source of a function, in all the forms that the query server takes.
///
/// # Errors
/// The first mistake; its author is at fault.
pub fn check_function(source: &str) -> Result<(), SyntaxError> {
    // What is inserted adds no lines.
    check(|parser| source::parse(parser, source))
}

/// Parses the source of a module.
///
/// # Errors
/// As [`check_function`].
pub fn check_module(source: &str) -> Result<(), SyntaxError> {
    let module = format!("(function (module, exports, require) {{{source}\n}})");
    check(|parser| parser.parse(&module))
}

fn check(parse: impl FnOnce(&Parser) -> Parsed) -> Result<(), SyntaxError> {
    match Parser::new().map(|parser| parse(&parser)) {
        Some(Parsed::Wrong(mistake)) => Err(mistake),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(result: Result<(), SyntaxError>) -> Option<u32> {
        result.err().map(|error| error.line)
    }

    #[test]
    fn the_line_of_a_mistake_in_a_function_is_named() {
        let source = "// Orders\nfunction(doc) {\n  emit(doc. ;\n}\n";
        assert_eq!(line(check_function(source)), Some(3));
        assert_eq!(line(check_function("function(")), Some(1));
        assert_eq!(line(check_function("(doc) => {\n\n  emit(1;\n}")), Some(3));
    }

    #[test]
    fn sources_that_the_query_server_takes_have_no_mistake() {
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
        assert_eq!(error.line, 2);
        assert!(error.text.starts_with("SyntaxError: "), "{error}");
    }
}
