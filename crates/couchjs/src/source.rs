//! Source forms that CouchDB accepts beyond JavaScript: `function(doc) { .. }` as a statement.
//!
//! SUMMARY   [`begun`] turns the function at the start of a source into an expression; [`mended`] does so elsewhere,
//!           if the engine rejects the source.
//! PROMISES  A source that the engine accepts is unchanged. The position of such a function is not guessed: the
//!           engine reports the missing name. No line is added.
//! SOURCE    CouchDB's engine is patched to accept a nameless function as an expression in the position of a
//!           statement, without a `;` after it.
//! DIFFERS   It is also accepted in blocks.

use std::borrow::Cow;

use super::parser::{Parsed, Parser, SyntaxError};

/// Begins an expression with the value of the function that follows.
const EXPRESSION: &str = "0,";

/// The same after other statements. The declaration declares nothing, and is valid only in a list of statements: `if
/// (a) function() {}` stays wrong.
const STATEMENT: &str = "let[]='';0,";

/// Ends the statement.
const SEPARATOR: &str = ";";

/// All possible insertions into a source.
pub(super) const INSERTED: [&str; 3] = [EXPRESSION, STATEMENT, SEPARATOR];

/// Maximum number of insertions into a source after [`begun`], and of functions tried for each.
const MENDS_MAX: usize = 100;

/// The engine's message for a nameless function where a declaration is expected.
const NAME_EXPECTED: &str = "function name expected";

/// Its message for a second statement on the same line.
const SEMICOLON_EXPECTED: &str = "expecting ';'";

/// Returns the source with its first function as an expression.
pub(super) fn begun(source: &str) -> Cow<'_, str> {
    let start = source.len() - skip_space(source).len();
    if is_anonymous(&source[start..]) {
        Cow::Owned([&source[..start], EXPRESSION, &source[start..]].concat())
    } else {
        Cow::Borrowed(source)
    }
}

/// Mends a source that the engine rejects after [`begun`]; `None` if nothing can be changed. `memory_bytes` is
/// the functions' memory limit; parsing may take a fraction of it in addition.
pub(super) fn mended(source: &str, memory_bytes: usize) -> Option<String> {
    let mut mending = Mending::of(source);
    let untouched = mending.text.len();
    mending.run(&Parser::beside(memory_bytes)?);
    (mending.text.len() > untouched).then_some(mending.text)
}

/// Parses a source in any form that CouchDB accepts; returns the mended text and the verdict on it.
pub(super) fn parse(parser: &Parser, source: &str) -> (String, Parsed) {
    let mut mending = Mending::of(source);
    let parsed = mending.run(parser);
    (mending.text, parsed)
}

/// A source being mended, from beginning to end.
struct Mending {
    text: String,
    /// The start of the function last made an expression, unless its end is marked.
    function: Option<usize>,
    /// Where the search for the next one begins.
    from: usize,
}

impl Mending {
    fn of(source: &str) -> Self {
        let text = begun(source).into_owned();
        let function = (text.len() > source.len()).then(|| text.len() - skip_space(source).len());
        let from = function.map_or(0, |start| start + 1);
        Self {
            text,
            function,
            from,
        }
    }

    fn run(&mut self, parser: &Parser) -> Parsed {
        for _ in 0..MENDS_MAX {
            let parsed = parser.parse(&self.text);
            let is_mended = match &parsed {
                Parsed::Wrong(mistake) if mistake.text.ends_with(NAME_EXPECTED) => {
                    self.make_expression(parser)
                }
                Parsed::Wrong(mistake) if mistake.text.ends_with(SEMICOLON_EXPECTED) => {
                    self.separate(parser, mistake)
                }
                _ => false,
            };
            if !is_mended {
                return parsed;
            }
        }
        parser.parse(&self.text)
    }

    /// Turns the next nameless function that the engine rejects into an expression; returns whether it found one.
    fn make_expression(&mut self, parser: &Parser) -> bool {
        let text = &self.text;
        let places = text[self.from..].match_indices("function");
        let misses_name = |start: &usize| {
            let ends_there = format!("{}function(", &text[..*start]);
            matches!(parser.parse(&ends_there),
                Parsed::Wrong(mistake) if mistake.text.ends_with(NAME_EXPECTED))
        };
        let start = places
            .map(|(place, _)| self.from + place)
            .filter(|start| is_anonymous(&text[*start..]))
            .take(MENDS_MAX)
            .find(misses_name);
        let Some(function) = start else {
            return false;
        };
        let before = text[..function].trim_end_matches([' ', '\t']);
        let start = match before.strip_suffix("async") {
            Some(before) if !before.ends_with(is_name_part) => before.len(),
            _ => function,
        };
        self.text.insert_str(start, STATEMENT);
        self.function = Some(start + STATEMENT.len());
        self.from = function + STATEMENT.len() + "function".len();
        true
    }

    /// Ends the statement of the last function where the engine expects its end; returns whether the statement is
    /// complete there.
    fn separate(&mut self, parser: &Parser, mistake: &SyntaxError) -> bool {
        let Some(start) = self.function.take() else {
            return false;
        };
        let statement = offset(&self.text, mistake).and_then(|end| self.text.get(start..end));
        let Some(statement) = statement else {
            return false;
        };
        let is_expression = parser.parse(&format!("({statement}\n)")) == Parsed::Correct;
        if is_expression {
            let end = start + statement.len();
            self.text.insert_str(end, SEPARATOR);
            self.from = end;
        }
        is_expression
    }
}

/// Returns the byte offset of an error in a text.
fn offset(text: &str, mistake: &SyntaxError) -> Option<usize> {
    let mut lines = text.split_inclusive('\n');
    let line = usize::try_from(mistake.line).ok()?.checked_sub(1)?;
    let before: usize = lines.by_ref().take(line).map(str::len).sum();
    Some(before + usize::try_from(mistake.column).ok()?.checked_sub(1)?)
}

/// Whether a text begins with a nameless function.
fn is_anonymous(text: &str) -> bool {
    let text = text.strip_prefix("async").map_or(text, skip_space);
    text.strip_prefix("function")
        .map(skip_space)
        .is_some_and(|after| after.starts_with('('))
}

/// Whether a character may be part of a name; `true` if unknown.
pub(super) fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '\\') || !c.is_ascii()
}

/// The text after leading white space and comments.
fn skip_space(mut text: &str) -> &str {
    const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];
    loop {
        text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        text = if let Some(comment) = text.strip_prefix("//") {
            comment.find(LINE_ENDS).map_or("", |end| &comment[end..])
        } else if let Some(comment) = text.strip_prefix("/*") {
            comment.find("*/").map_or("", |end| &comment[end + 2..])
        } else {
            return text;
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn taken(source: &str) -> Option<String> {
        let mut mending = Mending::of(source);
        let parsed = mending.run(&Parser::new().unwrap());
        (parsed == Parsed::Correct).then_some(mending.text)
    }

    #[test]
    fn a_function_that_a_source_begins_with_is_made_an_expression() {
        for (source, expected) in [
            ("function(doc) { emit(1); }", "0,function(doc) { emit(1); }"),
            (
                "\u{feff}/* c */ function/*x*/(d){}",
                "\u{feff}/* c */ 0,function/*x*/(d){}",
            ),
            ("function(d){}.bind(null)", "0,function(d){}.bind(null)"),
            ("async function(d){}", "0,async function(d){}"),
        ] {
            assert_eq!(begun(source), expected);
            assert_eq!(taken(source).unwrap(), expected);
        }
    }

    #[test]
    fn functions_without_a_name_may_stand_as_statements() {
        for source in [
            "var a = 1;\nfunction(d){}",
            "var a = 1\nfunction(d){}",
            "function h() { } function(d){}",
            "'use strict'\nfunction(d){}",
            "'a\\\r\nb'\nfunction(d){}",
            "var a = {b: {}}\nfunction(d){}",
            "if (a) { b } function(d){}",
            "function(a){}\nfunction(b){}",
            "function(a){} function(b){}",
            "function(a){} function(b){} function(c){}",
            "function(a){}.bind(null) function(b){}",
            "function(a){} / 2 function(b){}",
            "function(a){ return h(a) } function h(a){}",
            "function(a){} var b = 1;",
            "function(a){} 5",
            "function(){} / 2 + \"/\"",
            "var of = 4; of / 2\nfunction(d) { '/' }",
            "// function\n/* function(a){} */ var b = 'function(c){}' + `function(d){}`\nfunction(e){}",
            "/* function // */ var a = 1; function\n(d){}",
            "function(doc) { function(inner){} emit(1) }",
            "var a = 1; async function(d){}",
            "var a = /function(b){}/; function(d){}",
            "var a = 1;\r\nfunction(a){} function(b){}",
        ] {
            assert!(taken(source).is_some(), "{source}");
        }
    }

    #[test]
    fn what_the_engine_takes_stays_as_it_is() {
        for source in [
            "(function(doc) {})",
            "var f = function(doc) {}; f",
            "var f =\nfunction(doc) {}",
            "function named(doc) {}",
            "doc => { emit(1) }",
            "(() => { return function() {} })()",
            "new Function('doc', 'function(x) {}')",
            "x = [\nfunction() {}\n]",
            "",
        ] {
            assert_eq!(taken(source).unwrap(), source);
            assert_eq!(mended(source, 64 << 20), None, "{source}");
        }
    }

    #[test]
    fn what_couchdb_refuses_is_refused() {
        for source in [
            "function* (doc) {}",
            "if (a) function(d){}",
            "L: function(d){}",
            "while (a) function(d){}",
            "var a = 5 function(d){}",
            "var a = 5 var b = 6; function(d){}",
            "x = function(a){} function(b){}",
            "return\nfunction() {}",
            "function(doc) { if (x) {",
            "function(doc) { 'x",
            "function(doc) } {",
            "function(doc) { @ }",
        ] {
            assert_eq!(taken(source), None, "{source}");
        }
    }

    #[test]
    fn mending_has_a_bound() {
        let many = "function(d){}\n".repeat(MENDS_MAX + 2);
        assert_eq!(taken(&many), None);
    }
}
