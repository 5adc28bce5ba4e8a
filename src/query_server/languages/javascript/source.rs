//! The source forms that CouchDB accepts beyond JavaScript's: `function(doc) { .. }` as a
//! statement.
//!
//! A function without a name cannot stand at the start of a statement. CouchDB's engine is patched
//! to take it for an expression there; here it is put in parentheses, `;(function(doc) { .. })`,
//! and all else stays as it is.

use std::borrow::Cow;

use super::scanner::Scan;

/// The source as the engine accepts it.
pub(super) fn normalise(source: &str) -> Cow<'_, str> {
    let edits = Scan::of(source).edits;
    if edits.is_empty() {
        return Cow::Borrowed(source);
    }
    let mut result = String::with_capacity(source.len() + 3 * edits.len());
    let mut copied = 0;
    for (at, text) in edits {
        result.push_str(&source[copied..at]);
        result.push_str(text);
        copied = at;
    }
    result.push_str(&source[copied..]);
    Cow::Owned(result)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn unchanged(source: &str) {
        assert_eq!(normalise(source), source);
    }

    #[test]
    fn an_anonymous_function_statement_is_put_in_parentheses() {
        assert_eq!(
            normalise("function(doc) { emit(1); }"),
            ";(function(doc) { emit(1); })"
        );
        assert_eq!(
            normalise("function (a, {b} = {}) {}\n;"),
            ";(function (a, {b} = {}) {})\n;"
        );
        assert_eq!(
            normalise("\u{feff}/* c */ function/*x*/(d){}"),
            "\u{feff}/* c */ ;(function/*x*/(d){})"
        );
        assert_eq!(
            normalise("function(d){}.bind(null)"),
            ";(function(d){}).bind(null)"
        );
        assert_eq!(normalise("async function(d){}"), ";(async function(d){})");
    }

    #[test]
    fn it_is_found_after_other_statements() {
        assert_eq!(
            normalise("var a = 1;\nfunction(d){}"),
            "var a = 1;\n;(function(d){})"
        );
        assert_eq!(
            normalise("var a = 1\nfunction(d){}"),
            "var a = 1\n;(function(d){})"
        );
        assert_eq!(
            normalise("function h() { } function(d){}"),
            "function h() { } ;(function(d){})"
        );
        assert_eq!(
            normalise("'use strict'\nfunction(d){}"),
            "'use strict'\n;(function(d){})"
        );
        assert_eq!(
            normalise("var a = {b: {}}\nfunction(d){}"),
            "var a = {b: {}}\n;(function(d){})"
        );
        assert_eq!(
            normalise("if (a) { b } function(d){}"),
            "if (a) { b } ;(function(d){})"
        );
        assert_eq!(
            normalise("function(a){}\nfunction(b){}"),
            ";(function(a){})\n;(function(b){})"
        );
    }

    #[test]
    fn expressions_and_declarations_are_left_alone() {
        for source in [
            "(function(doc) {})",
            "var f = function(doc) {}; f",
            "var f =\nfunction(doc) {}",
            "function named(doc) {}",
            "function* (doc) {}",
            "doc => { emit(1) }",
            "(() => { return function() {} })()",
            "new Function('doc', 'function(x) {}')",
            "x = [\nfunction() {}\n]",
            "return\nfunction() {}",
            "",
        ] {
            unchanged(source);
        }
    }

    #[test]
    fn strings_templates_regular_expressions_and_comments_are_skipped() {
        for text in [
            "'}'",
            "\"\\\"}\"",
            "`}`",
            "`${`}${'}'}`}}`",
            "/}/",
            "/[/}]/.test(x)",
            "x = a / b / c",
            "/* } */",
            "// }\n",
            "a++ / 2",
            "if (x) /}/.test(y)",
            "(a) / b",
            "x.return / 1",
            "'\\\n}'",
            "y = {a: /}/g}",
            "z = () => { return /}/ }",
        ] {
            let source = format!("function(doc) {{ {text} }}");
            assert_eq!(normalise(&source), format!(";({source})"), "{text}");
        }
    }

    #[test]
    fn an_unfinished_function_is_left_open() {
        assert_eq!(
            normalise("function(doc) { if (x) {"),
            ";(function(doc) { if (x) {"
        );
        assert_eq!(normalise("function(doc) { 'x"), ";(function(doc) { 'x");
        assert_eq!(normalise("function(doc) } {"), ";(function(doc) } {");
    }
}
