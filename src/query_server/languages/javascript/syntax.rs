//! Where a source breaks the grammar: for people, the protocol has no place for it.
//!
//! SUMMARY   [`check_function`] and [`check_module`] parse a source, without running any of it, and
//!           name the line of the mistake.
//! CALLED    By `settee map`, about files that its user wrote.
//! LIMITS    A source whose parsing takes more than [`MEMORY_BYTES`] or holds a NUL passes; the
//!           query server has the last word.

use std::ffi::CString;

use rquickjs::convert::Coerced;
use rquickjs::{Context, Ctx, Error, Runtime};

use super::bytecode::Script;
use super::{DEFAULT_MEMORY_BYTES, source};

/// Most memory that parsing may take, in bytes: as much as the query server has.
const MEMORY_BYTES: usize = DEFAULT_MEMORY_BYTES;

/// A mistake in a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SyntaxError {
    /// Its line; the first is 1.
    pub line: u32,
    /// What the engine says.
    pub text: String,
}

/// Parses the source of a function, in all the forms that the query server takes.
///
/// # Errors
/// The first mistake; its author is at fault.
pub fn check_function(source: &str) -> Result<(), SyntaxError> {
    // Adds no lines and takes none away.
    parse(&source::normalise(source))
}

/// Parses the source of a module.
///
/// # Errors
/// As [`check_function`].
pub fn check_module(source: &str) -> Result<(), SyntaxError> {
    parse(&format!(
        "(function (module, exports, require) {{{source}\n}})"
    ))
}

fn parse(source: &str) -> Result<(), SyntaxError> {
    let (Ok(source), Ok(runtime)) = (CString::new(source), Runtime::new()) else {
        return Ok(());
    };
    runtime.set_memory_limit(MEMORY_BYTES);
    let Ok(context) = Context::full(&runtime) else {
        return Ok(());
    };
    context.with(|ctx| match Script::compile(&ctx, c"source", &source) {
        Err(Error::Exception) => mistake(&ctx).map_or(Ok(()), Err),
        _ => Ok(()),
    })
}

/// The pending exception, when it is about the grammar.
fn mistake(ctx: &Ctx<'_>) -> Option<SyntaxError> {
    let error = ctx.catch();
    let text = error.get::<Coerced<String>>().ok()?.0;
    let stack: String = error.as_object()?.get("stack").ok()?;
    // "    at source:LINE:COLUMN"
    let place = stack.lines().find_map(|line| line.split_once("source:"))?.1;
    let line = place.split(':').next()?.parse().ok()?;
    text.starts_with("SyntaxError")
        .then_some(SyntaxError { line, text })
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
            "a\0b",
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
