//! The source forms that CouchDB accepts beyond JavaScript's: `function(doc) { .. }` as a statement.
//!
//! A function without a name cannot stand at the start of a statement. CouchDB's engine is patched
//! to take it for an expression there; here it is put in parentheses, `;(function(doc) { .. })`,
//! and all else stays as it is. The scanner knows just enough of the language to tell where
//! statements begin: strings, templates, comments, regular expressions and brackets.

use std::borrow::Cow;

/// The source as the engine accepts it.
pub(super) fn normalise(source: &str) -> Cow<'_, str> {
    let edits = Scanner::new(source).edits();
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

/// What the last token was, as far as it decides what the next one means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Nothing, or `;`: a statement begins.
    Start,
    /// A name, number, string, `)`, `]`: an operand is complete.
    Operand,
    /// `}` of a block or a function.
    BlockEnd,
    /// `)` after the condition of `if`, `while`, `for` or `with`.
    ConditionEnd,
    /// An operator, an opening bracket, or a keyword that an expression follows.
    Operator,
    /// `if`, `while`, `for`, `with`: a condition follows.
    Condition,
}

/// An open bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// `(` or `[`
    Group,
    /// `(` of a condition.
    Condition,
    /// `{` of a block or a function body.
    Block,
    /// `{` of an object literal.
    Object,
    /// `${` in a template.
    Template,
}

/// How far a function that is being wrapped has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapping {
    No,
    /// Its parameters come.
    Parameters,
    /// Its body is open.
    Body,
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    open: Vec<Open>,
    last: Last,
    /// Whether a line ended since the last token.
    newline: bool,
    wrapping: Wrapping,
    edits: Vec<(usize, &'static str)>,
}

/// Keywords after which an expression goes on.
const OPERATOR_WORDS: [&str; 14] = [
    "return",
    "typeof",
    "instanceof",
    "in",
    "of",
    "new",
    "delete",
    "void",
    "throw",
    "case",
    "do",
    "else",
    "await",
    "yield",
];

impl<'a> Scanner<'a> {
    fn new(source: &'a str) -> Self {
        Scanner {
            source,
            at: 0,
            open: Vec::new(),
            last: Last::Start,
            newline: false,
            wrapping: Wrapping::No,
            edits: Vec::new(),
        }
    }

    /// What to insert, and where, in order.
    fn edits(mut self) -> Vec<(usize, &'static str)> {
        while let Some(next) = self.rest().chars().next() {
            self.token(next);
        }
        self.edits
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn token(&mut self, next: char) {
        match next {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => {
                self.newline = true;
                self.at += next.len_utf8();
            }
            c if c.is_whitespace() || c == '\u{feff}' => self.at += c.len_utf8(),
            '/' if self.rest().starts_with("//") => self.line_comment(),
            '/' if self.rest().starts_with("/*") => self.block_comment(),
            '/' if self.regex_allowed() => self.regex(),
            '"' | '\'' => self.string(next),
            '`' => {
                self.at += 1;
                self.template();
            }
            '(' | '[' | '{' => self.opening(next),
            ')' | ']' | '}' => self.closing(next),
            c if c.is_alphanumeric() || matches!(c, '_' | '$' | '#' | '\\') => self.word(),
            _ => self.operator(next),
        }
    }

    fn seen(&mut self, last: Last) {
        self.last = last;
        self.newline = false;
    }

    fn line_comment(&mut self) {
        let end = self.rest().find(['\n', '\r', '\u{2028}', '\u{2029}']);
        self.at = end.map_or(self.source.len(), |length| self.at + length);
    }

    fn block_comment(&mut self) {
        let end = self.rest()[2..]
            .find("*/")
            .map_or(self.source.len(), |n| self.at + n + 4);
        self.newline |= self.source[self.at..end].contains(['\n', '\r']);
        self.at = end;
    }

    fn regex_allowed(&self) -> bool {
        !matches!(self.last, Last::Operand)
    }

    /// Skips what stands up to an unescaped end; characters in a class do not end a regular
    /// expression.
    fn skip_to(&mut self, end: char, classes: bool) {
        let (mut escaped, mut in_class) = (false, false);
        for (offset, c) in self.rest().char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\n' | '\r' => {
                    self.at += offset;
                    return;
                }
                '[' if classes => in_class = true,
                ']' if classes => in_class = false,
                _ if c == end && !in_class => {
                    self.at += offset + 1;
                    return;
                }
                _ => {}
            }
        }
        self.at = self.source.len();
    }

    fn regex(&mut self) {
        self.skip_to('/', true);
        let flags = self.rest().find(|c: char| !c.is_alphanumeric());
        self.at = flags.map_or(self.source.len(), |length| self.at + length);
        self.seen(Last::Operand);
    }

    fn string(&mut self, quote: char) {
        self.skip_to(quote, false);
        self.seen(Last::Operand);
    }

    /// Reads a template up to its end or to the next `${`.
    fn template(&mut self) {
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '`' => {
                    self.at += offset + 1;
                    return self.seen(Last::Operand);
                }
                '$' if self.rest()[offset..].starts_with("${") => {
                    self.at += offset + 2;
                    self.open.push(Open::Template);
                    return self.seen(Last::Operator);
                }
                _ => {}
            }
        }
        self.at = self.source.len();
    }

    fn opening(&mut self, bracket: char) {
        let condition = self.last == Last::Condition;
        let kind = match bracket {
            '{' if matches!(self.last, Last::Operator) => Open::Object,
            '{' => Open::Block,
            '(' if condition => Open::Condition,
            _ => Open::Group,
        };
        if bracket == '{' && self.open.is_empty() && self.wrapping == Wrapping::Parameters {
            self.wrapping = Wrapping::Body;
        }
        self.open.push(kind);
        self.at += 1;
        self.seen(if kind == Open::Block {
            Last::Start
        } else {
            Last::Operator
        });
    }

    fn closing(&mut self, bracket: char) {
        self.at += 1;
        let kind = self.open.pop();
        if bracket == '}' && self.open.is_empty() && self.wrapping == Wrapping::Body {
            self.wrapping = Wrapping::No;
            self.edits.push((self.at, ")"));
            return self.seen(Last::Operand);
        }
        match kind {
            Some(Open::Template) => self.template(),
            Some(Open::Block) => self.seen(Last::BlockEnd),
            Some(Open::Condition) => self.seen(Last::ConditionEnd),
            _ => self.seen(Last::Operand),
        }
    }

    fn word(&mut self) {
        let part = |c: char| {
            c.is_alphanumeric() || matches!(c, '_' | '$' | '#' | '\\' | '\u{200c}' | '\u{200d}')
        };
        let length = self.rest().find(|c| !part(c)).unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        let member = self.source[..self.at].trim_end().ends_with('.');
        let wrap = self.open.is_empty()
            && self.wrapping == Wrapping::No
            && self.at_statement()
            && (word == "function" && followed_by_parameters(&self.rest()[length..])
                || word == "async" && followed_by_function(&self.rest()[length..]));
        if wrap {
            self.edits.push((self.at, ";("));
            self.wrapping = Wrapping::Parameters;
        }
        self.at += length;
        self.seen(match word {
            _ if member => Last::Operand,
            "if" | "while" | "for" | "with" => Last::Condition,
            _ if OPERATOR_WORDS.contains(&word) => Last::Operator,
            _ => Last::Operand,
        });
    }

    /// Whether a statement can begin here.
    fn at_statement(&self) -> bool {
        match self.last {
            Last::Start | Last::BlockEnd => true,
            Last::Operand => self.newline,
            Last::ConditionEnd | Last::Operator | Last::Condition => false,
        }
    }

    fn operator(&mut self, next: char) {
        // After `x++` and `x--` an operand is complete.
        if (self.rest().starts_with("++") || self.rest().starts_with("--"))
            && matches!(self.last, Last::Operand)
        {
            self.at += 2;
            return self.seen(Last::Operand);
        }
        if self.rest().starts_with("=>") {
            // The body of an arrow function is a block.
            self.at += 2;
            return self.seen(Last::ConditionEnd);
        }
        self.at += next.len_utf8();
        self.seen(if next == ';' {
            Last::Start
        } else {
            Last::Operator
        });
    }
}

/// The text after white space and comments.
fn skip_space(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        text = if let Some(comment) = text.strip_prefix("//") {
            comment.find('\n').map_or("", |end| &comment[end..])
        } else if let Some(comment) = text.strip_prefix("/*") {
            comment.find("*/").map_or("", |end| &comment[end + 2..])
        } else {
            return text;
        };
    }
}

fn followed_by_parameters(text: &str) -> bool {
    skip_space(text).starts_with('(')
}

fn followed_by_function(text: &str) -> bool {
    skip_space(text)
        .strip_prefix("function")
        .is_some_and(followed_by_parameters)
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
